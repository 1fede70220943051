/* SPDX-License-Identifier: Apache-2.0
 *
 * Hints that are wrong, as where a router chooses experts anew in every step: all that is asked for
 * comes, what was fetched for nobody makes room again, and no more is read than was asked for or
 * hinted at.
 */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tests/system/client_rig.h"
#include "tests/system/wire.h"

#define LAYERS  32u
#define EXPERTS 8u /* of which a layer uses two */
#define STEPS   12u
#define BYTES   (KIB(64) - 7)
#define ALL     (LAYERS * EXPERTS)

/* A quarter of them stands in dram. */
#define CONFIG(policy)                                                   \
	"tensors: 4Ki\n"                                                 \
	"staging: 2MiB\n"                                                \
	"tiers:\n"                                                       \
	"  dram: {size: 6MiB}\n"                                         \
	"  nvme: {paths: [{path: @NVME@, size: 48MiB}], block: 64KiB}\n" \
	"classes: {parameter: {policy: " policy "}}\n"

static tierd_tensor h[ALL];
static uint64_t random_state = 1;

static unsigned expert(unsigned layer)
{
	random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
	return layer * EXPERTS + (unsigned)(random_state >> 33) % EXPERTS;
}

/* What is guessed has nothing to do with what is used. Every fourth step is given up half-way. */
static unsigned step(unsigned n)
{
	unsigned layers = n % 4 == 3 ? LAYERS / 2 : LAYERS;

	for (unsigned l = 0; l < layers; l++) {
		tierd_tensor guess[2] = { h[expert((l + 1) % LAYERS)],
					  h[expert((l + 2) % LAYERS)] };

		ck_assert_int_eq(tierd_prefetch(t, guess, 2, TIERD_HOST), 0);
		for (unsigned i = 0; i < 2; i++) {
			unsigned e = expert(l);

			expect(h[e], TIERD_HOST, (int)(e % 251) + 1);
		}
	}
	ck_assert_int_eq(tierd_step(t), 0);
	return layers;
}

static uint64_t moves_up(void)
{
	struct tierd_stats stats;
	uint64_t n = 0;

	ck_assert_int_eq(tierd_stats(t, &stats), 0);
	for (unsigned class_ = 0; class_ < TIERD_CLASSES; class_++)
		n += stats.moves[class_][TIERD_NVME][TIERD_DRAM];
	return n;
}

static void wrong_hints(const char *config)
{
	unsigned layers = 0;
	uint64_t before;
	struct wire w;
	tierd_tensor big;

	system_start(s, config);
	connect_as("job");
	for (unsigned i = 0; i < ALL; i++) {
		h[i] = make(BYTES);
		fill(h[i], TIERD_HOST, (int)(i % 251) + 1);
	}
	before = moves_up();
	for (unsigned n = 0; n < STEPS; n++)
		layers += step(n);
	/* Two that are used and two that are guessed, each read once at most. */
	ck_assert_uint_gt(moves_up(), before);
	ck_assert_uint_le(moves_up() - before, layers * 4);
	ck_assert_int_eq(wire_open(s->socket, "counter", &w), 0);
	ck_assert_uint_gt(atomic_load(&w.stats->prefetches), 0);
	ck_assert_uint_gt(atomic_load(&w.stats->prefetches_unused), 0);
	wire_bye(&w);
	/* None of it is kept for somebody who will not come: all of dram can be had. */
	big = make(MIB(3));
	fill(big, TIERD_HOST, 99);
	expect(big, TIERD_HOST, 99);
	end();
}

START_TEST(hints_that_nobody_follows_are_in_nobodys_way)
{
	wrong_hints(CONFIG("lru"));
	wrong_hints(CONFIG("next_use"));
	wrong_hints(CONFIG("hotness"));
}
END_TEST

UNIT_MAIN("hints", hints_that_nobody_follows_are_in_nobodys_way)
