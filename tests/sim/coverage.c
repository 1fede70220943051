/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/coverage.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/compiler.h"
#include "daemon/engine/edges.h"
#include "daemon/engine/invariants.h"

#define SITES_MOST 512u

struct counts {
	_Atomic uint64_t row[2][64];
	_Atomic uint64_t fault[FAULT_COUNT][TIER_KINDS][XFER_OPS][2];
	_Atomic uint64_t refused[SITES_MOST];
};
static struct counts *counts;

static const char *const edge_names[] = {
#define X(name, kind, from, to, text) [EDGE_##name] = #name "|" #from " -> " #to ": " text,
	ENGINE_EDGES(X)
#undef X
};
static const char *const invariant_names[] = {
#define X(name, text) [INVARIANT_##name] = #name "|" text,
	ENGINE_INVARIANTS(X)
#undef X
};

/* What the engine asks of a tier of this kind; nothing else can be harmed. */
static const uint32_t asked[TIER_KINDS] = {
	[TIER_KIND_HBM] = FAULT_READ | FAULT_WRITE | FAULT_ZERO | FAULT_COPY | FAULT_BACK,
	[TIER_KIND_DRAM] = FAULT_ZERO | FAULT_COPY | FAULT_BACK,
	[TIER_KIND_NVME] = FAULT_READ | FAULT_WRITE | FAULT_SYNC,
};

void coverage_open(void)
{
	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	ASSERT(counts != MAP_FAILED);
}

static void count(_Atomic uint64_t *at)
{
	atomic_fetch_add_explicit(at, 1, memory_order_relaxed);
}

void coverage_reached(void *ctx, enum engine_table table, uint64_t rows)
{
	for (; counts != NULL && rows != 0; rows &= rows - 1)
		count(&counts->row[table][__builtin_ctzll(rows)]);
}

void coverage_fault(enum fault_kind kind, enum tier_kind tier, uint8_t op, bool after)
{
	ASSERT((asked[tier] & 1u << op) != 0);
	if (counts != NULL)
		count(&counts->fault[kind][tier][op][after]);
}

void coverage_refused(const struct heap_site *site)
{
	size_t n, at = (size_t)(site - heap_sites(&n));

	ASSERT(at < n && n <= SITES_MOST);
	if (counts != NULL)
		count(&counts->refused[at]);
}

static unsigned say(const char *name, uint64_t n)
{
	int width = (int)strcspn(name, "|");

	printf("  %12llu %s%-20.*s %s\n", (unsigned long long)n, n == 0 ? "NEVER " : "", width,
	       name, name[width] == '|' ? name + width + 1 : "");
	return n == 0;
}

static unsigned print_table(const char *title, const char *const *names, size_t n,
			    const _Atomic uint64_t *rows)
{
	unsigned never = 0;

	printf("%s:\n", title);
	for (size_t i = 0; i < n; i++)
		if (names[i] != NULL)
			never += say(names[i], rows[i]);
	return never;
}

/* Of one kind of fault on one kind of tier, by operation, at the call and at the completion. */
static unsigned print_fault(enum fault_kind kind, enum tier_kind tier)
{
	static const char *const ops[] = { "read", "write", "zero",   "copy",
					   "sync", "back",  "unback", "pin" };
	const struct fault_rule *rule = &fault_rules[kind];
	uint32_t all = (rule->tiers & 1u << tier) != 0 ? rule->ops & asked[tier] : 0;
	unsigned never = 0;

	for (uint8_t op = 0; op < XFER_OPS; op++)
		for (unsigned after = 0; (all & 1u << op) != 0 && after < 2; after++) {
			char name[96];

			if (!fault_can(kind, op, after))
				continue;
			snprintf(name, sizeof(name), "%s|%s, %s%s", rule->key, tier_kind_name(tier),
				 ops[op], after ? ", its bytes have moved" : "");
			never += say(name, counts->fault[kind][tier][op][after]);
		}
	return never;
}

/* Places at which the engine, and what it is made of, takes memory: those of the daemon around it
 * and of real devices are not the simulator's. */
static bool is_engines(const char *file)
{
	static const char *const of[] = { "base/", "daemon/engine/", "policy/", "tiers/extent.c" };

	for (size_t i = 0; i < ARRAY_SIZE(of); i++)
		if (strncmp(file, of[i], strlen(of[i])) == 0)
			return true;
	return false;
}

const struct heap_site *coverage_site(uint64_t i)
{
	size_t n;
	const struct heap_site *sites = heap_sites(&n);

	ASSERT(n <= SITES_MOST);
	for (size_t at = 0; at < n; at++)
		if (is_engines(heap_site_file(&sites[at])) && i-- == 0)
			return &sites[at];
	return NULL;
}

unsigned coverage_sites(void)
{
	unsigned n = 0;

	while (coverage_site(n) != NULL)
		n++;
	ASSERT(n > 0);
	return n;
}

static unsigned print_refused(void)
{
	const struct heap_site *site;
	unsigned never = 0;
	size_t n;

	printf("memory that was refused:\n");
	for (unsigned i = 0; i < coverage_sites(); i++) {
		char name[128];

		site = coverage_site(i);
		snprintf(name, sizeof(name), "%s|in %s, line %llu", site->function,
			 heap_site_file(site), (unsigned long long)site->line);
		never += say(name, counts->refused[site - heap_sites(&n)]);
	}
	return never;
}

unsigned coverage_print(void)
{
	unsigned never = print_table("edges", edge_names, ARRAY_SIZE(edge_names), counts->row[0]);

	never += print_table("invariants", invariant_names, ARRAY_SIZE(invariant_names),
			     counts->row[1]);
	printf("faults:\n");
	for (enum fault_kind kind = FAULT_NONE + 1; kind < FAULT_COUNT; kind++)
		for (enum tier_kind tier = 0; tier < TIER_KINDS; tier++)
			if (fault_rules[kind].simulated)
				never += print_fault(kind, tier);
	never += print_refused();
	return never;
}
