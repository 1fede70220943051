/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/protocol/page.h"

#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"

const char *const page_classes[STATS_CLASSES] = {
#define X(number, name, of_many) [number] = name,
	PAGE_CLASSES(X)
#undef X
};

static uint64_t get(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit((_Atomic uint64_t *)counter, memory_order_relaxed);
}

/* How long ago; what is there and was just now is not none. */
static uint64_t since(const _Atomic uint64_t *time_ns, uint64_t now_ns)
{
	uint64_t then = get(time_ns);

	return then == 0 ? 0 : MAX(now_ns - MIN(then, now_ns), 1u);
}

/* A word of each kind. */
#define READ_COUNTER(word) get(word)
#define READ_GAUGE(word)   get(word)
#define READ_SINCE(word)   since(word, ret->taken_ns)

static void read_class(const struct stats_page *from, unsigned i, unsigned c, struct page_tier *ret)
{
	ret->class_bytes[c] = get(&from->tier[i].class_bytes[c]);
	ret->class_peak_bytes[c] = get(&from->tier[i].class_peak_bytes[c]);
	ret->at_peak_bytes[c] = get(&from->tier[i].at_peak_bytes[c]);
}

static void read_tier(const struct stats_page *from, unsigned i, struct page *ret)
{
#define X(name, unit, kind, help) ret->tier[i].name = READ_##kind(&from->tier[i].name);
	STATS_PER_TIER(X)
#undef X
	for (unsigned c = 0; c < STATS_CLASSES; c++)
		read_class(from, i, c, &ret->tier[i]);
	for (unsigned to = 0; to < STATS_TIERS; to++) {
		ret->moved_bytes[i][to] = get(&from->moved_bytes[i][to]);
		for (unsigned c = 0; c < STATS_CLASSES; c++)
			ret->moves[c][i][to] = get(&from->moves[c][i][to]);
	}
}

static void read_device(const struct stats_page *from, unsigned i, struct page *ret)
{
#define X(name, unit, kind, help) ret->device[i].name = READ_##kind(&from->device[i].name);
	STATS_PER_DEVICE(X)
#undef X
}

static void read_all(const struct stats_page *from, struct page *ret)
{
#define X(name, unit, kind, help) ret->name = READ_##kind(&from->name);
	STATS_SCALARS(X)
#undef X
	for (unsigned i = 0; i < STATS_TIERS; i++)
		read_tier(from, i, ret);
	for (unsigned i = 0; i < STATS_DEVICES; i++)
		read_device(from, i, ret);
	for (unsigned c = 0; c < STATS_CLASSES; c++)
		ret->class_stall_ns[c] = get(&from->class_stall_ns[c]);
}

void page_read(const struct stats_page *from, struct page *ret)
{
	ret->taken_ns = clock_now_ns();
	read_all(from, ret);
	/* Written once, before the first client came. */
	memcpy(ret->chosen, from->chosen, sizeof(ret->chosen));
	for (size_t i = 0; i < sizeof(ret->chosen) / sizeof(ret->chosen[0]); i++)
		ret->chosen[i][sizeof(ret->chosen[i]) - 1] = '\0';
	memcpy(ret->domain, from->domain, sizeof(ret->domain));
	ret->domain[sizeof(ret->domain) - 1] = '\0';
}

size_t page_device_bytes(const struct page *p, unsigned device)
{
	return device < STATS_DEVICES ? strcspn(p->chosen[device], ": ") : 0;
}
