/* SPDX-License-Identifier: Apache-2.0
 *
 * What runs of the stepper have reached: edges of the state machine (daemon/engine/edges.h),
 * invariants whose premise was true (invariants.h), faults by tier, operation and place
 * (tiers/fault.h), and places where memory was refused (base/heap.h). All processes of a suite
 * count in one shared page.
 */
#ifndef TIERD_TESTS_SIM_COVERAGE_H
#define TIERD_TESTS_SIM_COVERAGE_H

#include "base/heap.h"
#include "daemon/engine/engine.h"
#include "tiers/fault.h"

/* Before any process is forked that counts. */
void coverage_open(void);
/* The hook for engine_hooks.reached. */
void coverage_reached(void *ctx, enum engine_table table, uint64_t rows);
/* A fault met this operation there: `after` its bytes had moved, or instead of it. */
void coverage_fault(enum fault_kind kind, enum tier_kind tier, uint8_t op, bool after);
/* Places where the engine takes memory, 0 to coverage_sites() - 1. */
unsigned coverage_sites(void);
const struct heap_site *coverage_site(uint64_t i);
/* An allocation at this place was refused. */
void coverage_refused(const struct heap_site *site);
/* Prints all rows with how many runs' steps reached them; returns how many were never reached. */
unsigned coverage_print(void);

#endif
