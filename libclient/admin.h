/* SPDX-License-Identifier: Apache-2.0
 *
 * What an operator's tool needs beyond tierd.h; not exported by libtierd.so. Tools link
 * libclient.la (CLIENT_LIBS). Errors leave their sentence in tierd_error(). Any thread.
 */
#ifndef TIERD_CLIENT_ADMIN_H
#define TIERD_CLIENT_ADMIN_H

#include "libclient/protocol/explain.h"
#include "libclient/protocol/stats_page.h"
#include "libclient/tierd.h"

/* tierd_open() in a domain of this name (NULL: one's own), which root and the daemon's user may
 * choose. */
int admin_open(const char *socket_path, const char *name_space, const char *domain,
	       struct tierd **ret);
/* Calls `each` for every tensor of the domain, in the order of their indices, names filled. A value
 * other than 0 from `each` ends it and is returned. */
int admin_list(struct tierd *t, int (*each)(void *ctx, const struct tierd_info *info), void *ctx);
/* Why a tensor is where it is. `pins` gets the clients that pin it, `max` at most:
 * ret->pins_listed of them. Places are the daemon's own. -ESTALE. */
int admin_explain(struct tierd *t, tierd_tensor tensor, struct wire_explain *ret,
		  struct wire_pin *pins, size_t max);

/* Somebody who waits. Names end with NUL. */
struct admin_wait {
	struct wire_wait wait;
	char name[PROTOCOL_NAME_MAX + 1], name_space[PROTOCOL_NAME_MAX + 1];
	char client_space[PROTOCOL_NAME_MAX + 1];
};
/* As admin_list(), for every request in progress. */
int admin_waits(struct tierd *t, int (*each)(void *ctx, const struct admin_wait *wait), void *ctx);
/* What the namespaces of one row have of one device, or of dram or nvme. The name ends with NUL. */
struct admin_quota {
	struct wire_quota quota;
	char name[PROTOCOL_NAME_MAX + 1];
};
int admin_quotas(struct tierd *t, int (*each)(void *ctx, const struct admin_quota *quota),
		 void *ctx);
/* Peaks begin anew. */
int admin_mark(struct tierd *t);
/* The daemon's counters as they are mapped, valid until tierd_close(); read them with relaxed
 * loads. NULL: the daemon is of another minor version, whose counters lie elsewhere. */
const struct stats_page *admin_stats_page(struct tierd *t);

#endif
