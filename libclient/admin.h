/* SPDX-License-Identifier: Apache-2.0
 *
 * What an operator's tool needs beyond tierd.h; not exported by libtierd.so. Tools link
 * libclient.la (CLIENT_LIBS). Errors leave their sentence in tierd_error(). Any thread.
 */
#ifndef TIERD_CLIENT_ADMIN_H
#define TIERD_CLIENT_ADMIN_H

#include "libclient/protocol/stats_page.h"
#include "libclient/tierd.h"

/* Calls `each` for every tensor of the domain, in the order of their indices, names filled. A value
 * other than 0 from `each` ends it and is returned. */
int admin_list(struct tierd *t, int (*each)(void *ctx, const struct tierd_info *info), void *ctx);
/* Peaks begin anew. */
int admin_mark(struct tierd *t);
/* The daemon's counters as they are mapped, valid until tierd_close(); read them with relaxed
 * loads. */
const struct stats_page *admin_stats_page(struct tierd *t);

#endif
