/* SPDX-License-Identifier: Apache-2.0
 *
 * `namespaces` of the configuration, for the engine: shares become bytes of the tiers that a domain
 * has. Control thread, at start.
 */
#ifndef TIERD_DAEMON_QUOTAS_H
#define TIERD_DAEMON_QUOTAS_H

#include "daemon/settings.h"

/* Of an item of `namespaces`. */
extern const struct config_sub quotas_sub;
/* Of `excess`. */
extern const struct config_sub excess_sub;

/* What can be told without a machine: names that differ, tiers that there are, guarantees that are
 * not above their limits nor, together, above the whole. -EINVAL with a sentence that begins with
 * the path of the key. */
int quotas_check(const struct settings *s, struct err *err);
/* `tier_bytes`: of one GPU, of dram and of nvme, as the engine will have them. The list is freed by
 * the caller after the engine; NULL where there are none. */
int quotas_make(const struct settings *s, const uint64_t tier_bytes[TIER_KINDS],
		struct engine_quota **ret, unsigned *ret_count, struct err *err);

#endif
