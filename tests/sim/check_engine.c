/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole engine by seed: every policy, machines of every shape, with and without faults, with
 * and without a client that keeps no rules. SIM_SEED and SIM_STEPS repeat one run; SIM_SEEDS sets
 * how many seeds (default 2: check_seeds runs thousands). Under TSan only the client that keeps no
 * rules is of interest, which is a second thread.
 */
#include "tests/unit/unit.h"

#include <string.h>

#include "base/log.h"
#include "tests/sim/quotas.h"
#include "tests/sim/stepper.h"

#ifdef __SANITIZE_THREAD__
#define ONLY_THREADS true
#else
#define ONLY_THREADS false
#endif

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void run_seeds(const struct stepper_trouble *trouble)
{
	uint64_t steps = number("SIM_STEPS", 3000), seeds = number("SIM_SEEDS", 2);
	uint64_t first = number("SIM_SEED", 1);
	const char *only = getenv("SIM_POLICY");

	if (ONLY_THREADS && !trouble->flicker)
		return;
	/* Failures that were asked for are no news. */
	log_configure(getenv("TIERD_LOG") != NULL ? getenv("TIERD_LOG") : "error");

	if (getenv("SIM_SEED") != NULL)
		seeds = 1;
	for (size_t p = 0; policy_all[p] != NULL; p++) {
		if (only != NULL && strcmp(only, policy_all[p]->name) != 0)
			continue;
		for (uint64_t seed = first; seed < first + seeds; seed++)
			stepper_run(seed, steps, policy_all[p], trouble);
	}
}

START_TEST(every_byte_is_right_after_any_order_of_events)
{
	run_seeds(&(struct stepper_trouble){ .shape = { .hbm = 1, .nvme = 2 } });
}
END_TEST

START_TEST(every_byte_is_right_when_devices_fail)
{
	run_seeds(&(struct stepper_trouble){ .shape = { .hbm = 1, .nvme = 2 }, .faults = true });
}
END_TEST

START_TEST(every_byte_is_right_on_machines_of_every_shape)
{
	static const struct world_shape shapes[] = {
		{ .nvme = 1 }, { .hbm = 1 }, { .hbm = 2, .nvme = 1 }, { .hbm = 2 }
	};

	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
		run_seeds(&(struct stepper_trouble){ .shape = shapes[i], .faults = i == 2 });
}
END_TEST

START_TEST(every_byte_is_right_beside_a_client_that_keeps_no_rules)
{
	run_seeds(&(struct stepper_trouble){ .shape = { .hbm = 1, .nvme = 2 }, .flicker = true });
}
END_TEST

START_TEST(every_byte_is_right_beside_a_zone)
{
	static const struct world_shape shapes[] = {
		{ .hbm = 1, .nvme = 2, .zone = true },
		{ .nvme = 1, .zone = true },
		{ .hbm = 2, .zone = true },
		{ .hbm = 1, .nvme = 1, .zone = true, .slabs = true }
	};

	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
		run_seeds(&(struct stepper_trouble){ .shape = shapes[i], .faults = i % 2 == 0 });
}
END_TEST

START_TEST(every_byte_is_right_while_memory_comes_and_goes)
{
	static const struct world_shape shapes[] = { { .hbm = 1, .nvme = 2, .slabs = true },
						     { .hbm = 2, .nvme = 1, .slabs = true },
						     { .hbm = 1, .nvme = 0, .slabs = true } };

	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
		run_seeds(&(struct stepper_trouble){ .shape = shapes[i] });
		run_seeds(&(struct stepper_trouble){ .shape = shapes[i], .faults = true });
	}
}
END_TEST

START_TEST(every_byte_is_right_when_memory_fails)
{
	static const struct world_shape shapes[] = { { .hbm = 2, .nvme = 1 },
						     { .hbm = 1, .nvme = 2, .slabs = true } };

	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
		run_seeds(&(struct stepper_trouble){ .shape = shapes[i],
						     .faults = true,
						     .mapped_faults = true,
						     .flicker = i == 1 });
}
END_TEST

START_TEST(every_byte_that_stood_elsewhere_is_right_when_gpus_are_lost)
{
	static const struct world_shape shapes[] = { { .hbm = 1, .nvme = 2 },
						     { .hbm = 2, .nvme = 1 },
						     { .hbm = 2 },
						     { .hbm = 2, .nvme = 1, .slabs = true },
						     { .hbm = 1, .nvme = 1, .zone = true } };

	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
		run_seeds(&(struct stepper_trouble){ .shape = shapes[i],
						     .losses = true,
						     .faults = i == 3,
						     .mapped_faults = i == 1,
						     .flicker = i == 0 });
}
END_TEST

/* Nothing is below dram, and it is full but for some per cent: what has to come finds room that is
 * in pieces. Who waits for it and not for a pin is answered (see drain() of the stepper). */
START_TEST(nobody_waits_for_ever_where_room_is_in_pieces)
{
	static const struct world_shape shapes[] = { { 0 },
						     { .zone = true },
						     { .hbm = 1 },
						     { .hbm = 2, .zone = true },
						     { .hbm = 1, .slabs = true } };

	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
		run_seeds(&(struct stepper_trouble){
			.shape = shapes[i], .crowded = true, .mapped_faults = i == 1 });
}
END_TEST

/* What the engine checks after each call: nobody has more than its limit, and what namespaces have
 * adds up. Whoever asks for what it may have is answered, whatever others are guaranteed. */
START_TEST(every_byte_is_right_and_nobody_waits_for_ever_with_quotas)
{
	static const struct {
		struct world_shape shape;
		bool faults, crowded;
	} runs[] = {
		{ { .hbm = 1, .nvme = 2, .quotas = quotas_on_gpu, .quota_count = 2 },
		  false,
		  false },
		{ { .hbm = 2, .nvme = 1, .zone = true, .quotas = quotas_on_gpu, .quota_count = 2 },
		  true,
		  false },
		{ { .hbm = 1, .nvme = 2, .quotas = quotas_everywhere, .quota_count = 2 },
		  false,
		  false },
		{ { .hbm = 1,
		    .nvme = 1,
		    .slabs = true,
		    .quotas = quotas_everywhere,
		    .quota_count = 2 },
		  true,
		  false },
		{ { .hbm = 1, .quotas = quotas_everywhere, .quota_count = 2 }, false, true },
		{ { .hbm = 2, .nvme = 2, .quotas = quotas_everywhere, .quota_count = 1 },
		  false,
		  true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(runs); i++)
		run_seeds(&(struct stepper_trouble){ .shape = runs[i].shape,
						     .faults = runs[i].faults,
						     .crowded = runs[i].crowded });
}
END_TEST

UNIT_MAIN("engine", every_byte_is_right_after_any_order_of_events,
	  every_byte_is_right_when_devices_fail, every_byte_is_right_on_machines_of_every_shape,
	  every_byte_is_right_beside_a_client_that_keeps_no_rules,
	  every_byte_is_right_beside_a_zone, every_byte_is_right_while_memory_comes_and_goes,
	  every_byte_is_right_when_memory_fails,
	  every_byte_that_stood_elsewhere_is_right_when_gpus_are_lost,
	  nobody_waits_for_ever_where_room_is_in_pieces,
	  every_byte_is_right_and_nobody_waits_for_ever_with_quotas)
