/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory that is registered with the device, in pieces of at most 1 GiB. A piece that cannot
 * be registered stays as it is: copies there are slower. A copy across two registrations fails, so
 * the lane knows where they meet.
 */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/heap.h"
#include "base/log.h"
#include "tiers/gpu_inside.h"

static unsigned piece_count(uint64_t bytes)
{
	return (unsigned)((bytes + GPU_REGISTER_MAX - 1) / GPU_REGISTER_MAX);
}

/* ---- borders: L ----------------------------------------------------------------------------- */

/* The first border after `at`, or `count`. */
static unsigned border_after(const struct gpu_memory *m, uintptr_t at)
{
	unsigned low = 0, high = m->count;

	while (low < high) {
		unsigned middle = low + (high - low) / 2;

		if (m->borders[middle] > at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static void border_add(struct gpu_memory *m, uintptr_t at)
{
	unsigned i = border_after(m, at);

	if (i > 0 && m->borders[i - 1] == at)
		return;
	ASSERT(m->count < m->room);
	memmove(m->borders + i + 1, m->borders + i, (m->count - i) * sizeof(*m->borders));
	m->borders[i] = at;
	m->count++;
}

int gpu_pin_prepare(struct gpu *g, uint64_t bytes)
{
	struct gpu_memory *m = &g->memory;
	unsigned want = piece_count(bytes) + 1, room;
	uintptr_t *borders;

	if (m->count + m->promised + want > m->room) {
		room = 2 * (m->count + m->promised + want);
		borders = heap_grow(m->borders, room, sizeof(*borders));
		if (borders == NULL)
			return -ENOMEM;
		m->borders = borders;
		m->room = room;
	}
	m->promised += want;
	return 0;
}

void gpu_pin_done(struct gpu *g, const char *base, uint64_t bytes)
{
	struct gpu_memory *m = &g->memory;

	m->promised -= piece_count(bytes) + 1;
	for (uint64_t at = 0; at < bytes; at += GPU_REGISTER_MAX)
		border_add(m, (uintptr_t)base + at);
	border_add(m, (uintptr_t)base + bytes);
}

uint64_t gpu_pin_span(const struct gpu *g, const void *host, uint64_t bytes)
{
	const struct gpu_memory *m = &g->memory;
	unsigned i = border_after(m, (uintptr_t)host);

	return i < m->count ? MIN(bytes, m->borders[i] - (uintptr_t)host) : bytes;
}

/* ---- registration: H ------------------------------------------------------------------------ */

static void refused(struct gpu *g, const char *base, uint64_t bytes, const struct err *err)
{
	struct gpu_memory *m = &g->memory;

	if (!m->warned)
		log_warn(TIER,
			 "%s; after %llu MiB of host memory the next %llu stay unregistered, as "
			 "may others: copies there are slower",
			 err->text, (unsigned long long)(m->pinned_bytes >> 20),
			 (unsigned long long)(bytes >> 20));
	else
		log_debug(TIER, "%s; %llu MiB at %p stay unregistered", err->text,
			  (unsigned long long)(bytes >> 20), (const void *)base);
	m->warned = true;
}

/* One registration serves all GPUs, so that of another's tier is as good as an own one. */
static void register_piece(struct gpu *g, char *base, uint64_t bytes)
{
	struct gpu_pinned *p = heap_zeros(1, sizeof(*p));
	struct err err = ERR_INIT;
	CUresult result;

	if (p == NULL) {
		err_set(&err, ENOMEM, "%s: no memory", g->base.name);
		refused(g, base, bytes, &err);
		return;
	}
	result = g->cuda->mem_host_register(base, bytes, CU_MEMHOSTREGISTER_PORTABLE);
	if (result == CUDA_SUCCESS) {
		p->base = base;
		list_push_back(&g->memory.pinned, &p->link);
	} else {
		heap_free(p);
	}
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
		g->memory.pinned_bytes += bytes;
		return;
	}
	gpu_check(g, result, &err, "cuMemHostRegister");
	refused(g, base, bytes, &err);
}

void gpu_pin_run(struct gpu *g, char *base, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += GPU_REGISTER_MAX)
		register_piece(g, base + at, MIN(bytes - at, GPU_REGISTER_MAX));
}

/* ---- start and stop: L ---------------------------------------------------------------------- */

int gpu_pin_start(struct gpu *g)
{
	for (unsigned i = 0; i < g->memory.range_count; i++) {
		struct gpu_range *r = &g->memory.ranges[i];

		if (r->ready == 0)
			continue;
		if (gpu_pin_prepare(g, r->ready) < 0)
			return -ENOMEM;
		gpu_pin_run(g, r->base, r->ready);
		gpu_pin_done(g, r->base, r->ready);
	}
	return 0;
}

void gpu_pin_stop(struct gpu *g)
{
	struct gpu_memory *m = &g->memory;

	while (!list_empty(&m->pinned)) {
		struct gpu_pinned *p =
			list_entry(list_pop_front(&m->pinned), struct gpu_pinned, link);

		gpu_say(g, g->cuda->mem_host_unregister(p->base), "cuMemHostUnregister");
		heap_free(p);
	}
	heap_free(m->borders);
	m->borders = NULL;
	m->count = m->room = m->promised = 0;
}
