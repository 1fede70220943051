/* SPDX-License-Identifier: Apache-2.0
 *
 * What of the configuration is one domain's: the same settings with sizes of its own, so that
 * whoever opens devices by settings needs not know of domains. Domains are numbered as they stand
 * in `domains`; the default domain, where there is one, comes last and has what is left. Control
 * thread, at start.
 */
#ifndef TIERD_DAEMON_SHARE_H
#define TIERD_DAEMON_SHARE_H

#include "daemon/settings.h"
#include "tiers/dram.h"

#define SHARE_DEFAULT_NAME "default"
#define SHARE_NAME_MAX     63u

struct share {
	const char *name; /* of the domain */
	/* Its own sizes; the rest belongs to the whole, which outlives it. Points into this struct,
	 * so that it stays where it was made. */
	struct settings settings;
	void *hbm; /* what settings.tiers.hbm has as config, if not the whole's */
	struct dram_config dram;
	struct nvme_path paths[ENGINE_DEVICES_MAX];
};

/* How many domains there are: one where none is configured. */
unsigned share_count(const struct settings *whole);
/* Whether domain `i` is the default one. */
bool share_is_default(const struct settings *whole, unsigned i);
/* Whether names and users differ and all shares fit: -EINVAL with a sentence that begins with the
 * path of the key. At load; what follows is of settings that passed. */
int shares_check(const struct settings *whole, struct err *err);
int share_make(const struct settings *whole, unsigned i, struct share *ret, struct err *err);
void share_free(struct share *share);

#endif
