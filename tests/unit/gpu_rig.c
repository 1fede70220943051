/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/unit/gpu_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/fake/bytes.h"
#include "tests/unit/point.h"
#include "tiers/gpu_inside.h"

bool gpu_rig_leaks;

/* The test's thread is the lane of each rig in turn. */
static void enter(struct gpu_rig *rig)
{
	const struct gpu *g = (struct gpu *)rig->tier;

	/* Where this call is the one that is to fail, the context was current before. */
	(void)g->cuda->ctx_set_current(g->context);
}

void gpu_rig_begin(void)
{
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	setenv("FAKE_CUDA_BYTES", "268435456", 1);
	log_configure("error");
	fake_cuda_begin();
}

void gpu_rig_end(void)
{
	struct fake_cuda_counts c = fake_cuda_counts();

	if (gpu_rig_leaks)
		return;
	ck_assert_uint_eq(c.contexts, 0);
	ck_assert_uint_eq(c.handles + c.reservations + c.mappings, 0);
	ck_assert_uint_eq(c.allocations + c.registrations, 0);
	ck_assert_uint_eq(c.streams + c.events + c.queued, 0);
	ck_assert_uint_eq(fake_cuda_used_bytes(0) + fake_cuda_used_bytes(1), 0);
}

int gpu_rig_open(struct gpu_rig *rig, unsigned index, struct err *err)
{
	int r;

	if (rig->config.size.bytes == 0) {
		rig->config.size.bytes = RIG_SLABS * RIG_SLAB;
		rig->config.slab_bytes = RIG_SLAB;
	}
	rig->kept = malloc(sizeof(*rig->kept));
	ck_assert_ptr_nonnull(rig->kept);
	*rig->kept = rig->config;
	rig->host = mmap(NULL, RIG_HOST, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(rig->host, MAP_FAILED);
	rig->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = gpu_ops.open(rig->kept, index, NULL, &rig->tier, err);
	if (r == 0) {
		gpu_ops.host_memory(rig->tier, rig->host, RIG_HOST, RIG_HOST);
		r = gpu_ops.lane_start(rig->tier, rig->wake_fd, err);
		if (r < 0)
			gpu_ops.close(rig->tier);
	}
	if (r < 0) {
		munmap(rig->host, RIG_HOST);
		close(rig->wake_fd);
		free(rig->kept);
	}
	return r;
}

void gpu_rig_close(struct gpu_rig *rig)
{
	ck_assert_uint_eq(rig->lent, 0);
	enter(rig);
	gpu_ops.lane_stop(rig->tier);
	gpu_ops.close(rig->tier);
	munmap(rig->host, RIG_HOST);
	close(rig->wake_fd);
	free(rig->kept);
}

void gpu_rig_lend(struct gpu_rig *rig, struct xfer *x)
{
	x->result = 0;
	x->cause[0] = '\0';
	rig->lent++;
	ck_assert_int_eq(gpu_ops.queue(rig->tier, x), 0);
}

unsigned gpu_rig_turn(struct gpu_rig *rig, struct xfer **done, unsigned max)
{
	unsigned n;

	enter(rig);
	gpu_ops.commit(rig->tier);
	n = gpu_ops.reap(rig->tier, done, max);
	for (unsigned i = 0; i < n; i++)
		ck_assert((done[i]->result == 0) == (done[i]->cause[0] == '\0'));
	ck_assert_uint_le(n, rig->lent);
	rig->lent -= n;
	return n;
}

void gpu_rig_finish(struct gpu_rig *rig)
{
	struct xfer *done[16];

	while (rig->lent > 0)
		if (gpu_rig_turn(rig, done, ARRAY_SIZE(done)) == 0 && rig->lent > 0 &&
		    !fake_cuda_step(rig->seed++))
			gpu_ops.wait(rig->tier, NS_PER_MS);
}

int gpu_rig_run(struct gpu_rig *rig, struct xfer *x)
{
	gpu_rig_lend(rig, x);
	gpu_rig_finish(rig);
	return x->result;
}

int gpu_rig_back(struct gpu_rig *rig, unsigned first, unsigned count)
{
	int r = 0;

	for (unsigned i = first; r == 0 && i < first + count; i++) {
		struct xfer x = { .op = XFER_BACK,
				  .offset = i * rig->tier->base.slab_bytes,
				  .bytes = rig->tier->base.slab_bytes };

		r = gpu_rig_run(rig, &x);
	}
	return r;
}

unsigned char *gpu_rig_memory(struct gpu_rig *rig)
{
	return (unsigned char *)(uintptr_t)((struct gpu *)rig->tier)->range;
}

struct gpu_rig gpu_rig_new(unsigned index)
{
	struct gpu_rig rig = { .seed = 1 };
	struct err err = ERR_INIT;
	int r = gpu_rig_open(&rig, index, &err);

	ck_assert_msg(r == 0, "%s", err.text);
	return rig;
}

BYTES_UNSEEN void gpu_rig_fill(unsigned char *at, uint64_t bytes, unsigned seed)
{
	bytes_are_written(at, bytes);
	for (uint64_t i = 0; i < bytes; i++)
		at[i] = (unsigned char)((i * 2654435761u + seed * 40503u) >> 11);
}

bool gpu_rig_all(const unsigned char *at, uint64_t bytes, unsigned char value)
{
	return at[0] == value && bytes_equal(at, at + 1, bytes - 1);
}
