/* SPDX-License-Identifier: Apache-2.0
 *
 * The tier dram on this machine, as its unit tests open it and look at its file.
 */
#ifndef TIERD_TESTS_DRAM_RIG_H
#define TIERD_TESTS_DRAM_RIG_H

#include <sys/stat.h>

#include "base/log.h"
#include "tests/unit/point.h"
#include "tiers/dram.h"
#include "tiers/hugepage.h"
#include "tiers/topo.h"

static inline struct topology *this_machine(void)
{
	struct topology *topo;
	struct err err = ERR_INIT;

	log_configure("warn");
	ck_assert_int_eq(topo_open(&topo, &err), 0);
	return topo;
}

static inline struct tier *open_dram(struct dram_config *c, const struct topology *topo)
{
	struct err err = ERR_INIT;
	struct tier *t;

	ck_assert_msg(dram_ops.open(c, 0, topo, &t, &err) == 0, "%s", err.text);
	return t;
}

static inline uint64_t file_bytes(struct tier *t)
{
	struct arena_token token;
	struct err err = ERR_INIT;
	struct stat st;

	ck_assert_int_eq(t->base.ops->export_arena(t, &token, &err), 0);
	/* By a page of the pool at most. */
	ck_assert_uint_ge(token.bytes, t->base.bytes);
	ck_assert_uint_lt(token.bytes - t->base.bytes, HUGE_BYTES);
	ck_assert_int_eq(fstat(token.fd, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, token.bytes);
	return (uint64_t)st.st_blocks * 512;
}

#endif
