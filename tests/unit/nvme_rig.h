/* SPDX-License-Identifier: Apache-2.0
 *
 * An nvme tier under test, driven by hand: the test is control thread and lane at once, so that it
 * sees each completion as it comes. The folder is to be on a real file system.
 */
#ifndef TIERD_TESTS_NVME_RIG_H
#define TIERD_TESTS_NVME_RIG_H

#include <stdbool.h>

#include "tests/unit/leftovers.h"
#include "tests/unit/point.h"
#include "tiers/nvme_inside.h"

struct rig {
	struct nvme_config config;
	struct tier *tier;
	int wake_fd;
	unsigned char *staging;
	uint64_t staging_bytes;
	unsigned char *host; /* `host_bytes` of memory for xfers, filled by nobody */
	uint64_t host_bytes;
	char folder[LEFTOVERS_ROOM]; /* made by rig_init(), removed by rig_end() */
};

/* A folder and a configuration that a test may change before rig_start(): block 1 MiB, depth 8,
 * two helpers, 64 MiB. */
void rig_init(struct rig *rig);
/* With a fault: map, in which nothing is harmed yet. */
void rig_init_faulty(struct rig *rig);
void rig_end(struct rig *rig);
/* Opens the tier and its lane; a failure fails the test. */
void rig_start(struct rig *rig);
void rig_stop(struct rig *rig);
/* Only opens, and gives what open() said. */
int rig_try(struct rig *rig, struct err *err);

struct xfer rig_xfer(uint8_t op, uint64_t offset, void *host, uint64_t bytes);
/* Queues all, in order, and returns when all have come back. `order`, when given, is filled with
 * their numbers as they finish. */
void rig_run(struct rig *rig, struct xfer *x, unsigned n, unsigned *order);
/* One xfer, there and back; returns its result. */
int rig_write(struct rig *rig, uint64_t offset, void *host, uint64_t bytes, uint32_t *ret_crc);
int rig_read(struct rig *rig, uint64_t offset, void *host, uint64_t bytes, uint32_t crc);

/* 5001 bytes there and back. */
void rig_round_trip(struct rig *rig);

/* A pattern that depends on where and when. */
void rig_fill(unsigned char *at, uint64_t bytes, uint64_t seed);
bool rig_all(const unsigned char *at, uint64_t bytes, unsigned char value);

/* Runs `body` on a rig of its own in a child, whose limits and filters end with it; unprivileged:
 * as another user than root. There CHILD() stands for ck_assert(). */
void rig_in_child(void (*body)(struct rig *), bool unprivileged);
#define CHILD(expr) ((expr) ? (void)0 : rig_child_failed(#expr, __LINE__))
_Noreturn void rig_child_failed(const char *expr, int line);

/* Says why a test does not run here; the test returns after it. */
#define rig_skip(...)                                                              \
	(fprintf(stderr, "skipped: %s: ", __func__), fprintf(stderr, __VA_ARGS__), \
	 fputc('\n', stderr))

#endif
