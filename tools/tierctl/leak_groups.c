/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tierctl/leak_groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

#define ROOM_LEAST 64u

size_t leak_prefix_bytes(const char *name)
{
	return strcspn(name, "0123456789");
}

static int space_of(struct leak_groups *g, const char *name, uint32_t *ret)
{
	struct leak_space *grown;

	for (size_t i = 0; i < g->space_count; i++)
		if (strcmp(g->spaces[i].name, name) == 0) {
			*ret = (uint32_t)i;
			return 0;
		}
	if (g->space_count == g->space_room) {
		size_t room = MAX(2 * g->space_room, ROOM_LEAST);

		grown = reallocarray(g->spaces, room, sizeof(*grown));
		if (grown == NULL)
			return -ENOMEM;
		g->spaces = grown;
		g->space_room = room;
	}
	*ret = (uint32_t)g->space_count;
	g->spaces[g->space_count] = (struct leak_space){ 0 };
	strcpy(g->spaces[g->space_count++].name, name); /* both have room for the longest */
	return 0;
}

/* FNV-1a. */
static uint64_t hash(uint32_t space, uint32_t class_, const char *prefix, size_t n)
{
	uint64_t h = 0xcbf29ce484222325u ^ (uint64_t)space << 8 ^ class_;

	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)prefix[i]) * 0x100000001b3u;
	return h * 0x9e3779b97f4a7c15u;
}

static uint64_t hash_of(const struct leak_group *group)
{
	return hash(group->space, group->class_, group->prefix, strlen(group->prefix));
}

/* Where the group stands or would stand. */
static uint32_t *bucket_of(struct leak_groups *g, const struct leak_group *key)
{
	size_t at = hash_of(key) % g->bucket_count;

	for (;; at = (at + 1) % g->bucket_count) {
		const struct leak_group *here;

		if (g->buckets[at] == 0)
			return &g->buckets[at];
		here = &g->groups[g->buckets[at] - 1];
		if (here->space == key->space && here->class_ == key->class_ &&
		    strcmp(here->prefix, key->prefix) == 0)
			return &g->buckets[at];
	}
}

static int grow(struct leak_groups *g)
{
	size_t room = MAX(2 * g->room, ROOM_LEAST), bucket_count = 2 * room;
	struct leak_group *groups = reallocarray(g->groups, room, sizeof(*groups));
	uint32_t *buckets;

	if (groups == NULL)
		return -ENOMEM;
	g->groups = groups;
	buckets = calloc(bucket_count, sizeof(*buckets));
	if (buckets == NULL)
		return -ENOMEM;
	free(g->buckets);
	g->buckets = buckets;
	g->bucket_count = bucket_count;
	g->room = room;
	for (size_t i = 0; i < g->count; i++)
		*bucket_of(g, &groups[i]) = (uint32_t)i + 1;
	return 0;
}

static int group_of(struct leak_groups *g, uint32_t space, const struct tierd_info *i,
		    struct leak_group **ret)
{
	struct leak_group key = { .space = space, .class_ = i->class_ };
	uint32_t *bucket;

	memcpy(key.prefix, i->name, leak_prefix_bytes(i->name));
	if (g->count == g->room && grow(g) < 0)
		return -ENOMEM;
	bucket = bucket_of(g, &key);
	if (*bucket == 0) {
		g->groups[g->count] = key;
		*bucket = (uint32_t)++g->count;
	}
	*ret = &g->groups[*bucket - 1];
	return 0;
}

void leak_groups_begin(struct leak_groups *g)
{
	for (size_t i = 0; i < g->count; i++)
		g->groups[i].tensors = g->groups[i].bytes.now = g->groups[i].pins.now = 0;
	for (size_t i = 0; i < g->space_count; i++)
		g->spaces[i].listed = false;
}

int leak_groups_add(struct leak_groups *g, const struct tierd_info *i)
{
	struct leak_group *group;
	uint32_t space;
	int rc = space_of(g, i->name_space, &space);

	if (rc == 0)
		rc = group_of(g, space, i, &group);
	if (rc < 0)
		return rc;
	g->spaces[space].asked = i->tensor;
	g->spaces[space].listed = true;
	group->tensors++;
	group->bytes.now += i->bytes;
	group->pins.now += i->pins;
	return 0;
}

/* `looks`: how many there were. */
static void compare(struct leak_trend *t, uint64_t looks)
{
	if (looks == 0) {
		t->first = t->now;
		t->grew = true;
	} else {
		t->grew &= t->now >= t->last && (looks == 1 || t->now > t->before_last);
	}
	t->before_last = t->last;
	t->last = t->now;
}

/* A group that comes after its namespace's first look has grown from nothing. */
static void compare_group(struct leak_group *group, bool late)
{
	if (late && group->looks == 0) {
		group->bytes.grew = group->pins.grew = true;
		group->looks++;
	}
	compare(&group->bytes, group->looks);
	compare(&group->pins, group->looks);
	group->looks++;
}

bool leak_trend_grows(const struct leak_trend *t)
{
	return t->grew && t->last > t->first;
}

void leak_groups_end(struct leak_groups *g)
{
	for (size_t i = 0; i < g->count; i++) {
		const struct leak_space *s = &g->spaces[g->groups[i].space];

		if (s->moved)
			compare_group(&g->groups[i], s->looks > 0);
	}
	for (size_t i = 0; i < g->space_count; i++)
		g->spaces[i].looks += g->spaces[i].moved;
}

void leak_groups_free(struct leak_groups *g)
{
	free(g->spaces);
	free(g->groups);
	free(g->buckets);
	*g = (struct leak_groups){ 0 };
}
