/* SPDX-License-Identifier: Apache-2.0
 *
 * A namespace is open, and found by its name, while clients are connected or its named tensors
 * linger. One that ends is found no more: its tensors go, and whoever comes with its name gets a
 * new one. Its number is free when no tensor, doomed ones among them, and no client, dead ones
 * whose tables are looked through among them, has it any more.
 */
#include "daemon/engine/name_space.h"

#include <errno.h>
#include <string.h>

#include "base/heap.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/tensor.h"

#define NAME_SPACES_MAX 65535u
#define BEGINS_A_TURN   64u /* ends that begin */

/* ---- the table ---- */

int name_spaces_open(struct engine *e, struct err *err)
{
	list_init(&e->name_spaces_free);
	list_init(&e->name_spaces_lingering);
	list_init(&e->name_spaces_ending);
	e->name_spaces = heap_map(NAME_SPACES_MAX * sizeof(*e->name_spaces));
	if (e->name_spaces == NULL)
		return err_set(err, ENOMEM, "no addresses for namespaces");
	return namemap_create(NAME_SPACES_MAX, &e->name_spaces_open, err);
}

void name_spaces_close(struct engine *e)
{
	namemap_destroy(e->name_spaces_open);
	heap_unmap(e->name_spaces, NAME_SPACES_MAX * sizeof(*e->name_spaces));
}

static uint16_t number_of(const struct engine *e, const struct name_space *ns)
{
	return (uint16_t)(ns - e->name_spaces);
}

/* NULL: all are taken. */
static struct name_space *take_number(struct engine *e)
{
	struct list *it = list_pop_front(&e->name_spaces_free);

	if (it != NULL)
		return list_entry(it, struct name_space, link);
	if (e->name_space_count == NAME_SPACES_MAX)
		return NULL;
	return &e->name_spaces[e->name_space_count++];
}

static int make(struct engine *e, const char *name, size_t bytes, uint32_t uid, uint16_t *ret)
{
	struct name_space *ns = take_number(e);
	int rc;

	if (ns == NULL)
		return -EUSERS;
	*ns = (struct name_space){ .first = TENSOR_NONE, .uid = uid };
	list_init(&ns->link);
	memcpy(ns->name, name, bytes);
	ns->account = quota_find(e, name, bytes);
	rc = namemap_add(e->name_spaces_open, 0, name, bytes, number_of(e, ns));
	if (rc < 0) {
		list_push_front(&e->name_spaces_free, &ns->link);
		return rc;
	}
	/* Anything in the arenas may be somebody else's from now on. */
	e->shared_domain |= e->name_spaces_ever++ > 0;
	*ret = number_of(e, ns);
	return 0;
}

/* ---- who has its number ---- */

int name_space_enter(struct engine *e, const char *name, size_t bytes, uint32_t uid, uint16_t *ret)
{
	uint32_t number;
	int rc = 0;

	ASSERT(bytes > 0 && bytes <= PROTOCOL_NAME_MAX);
	if (namemap_find(e->name_spaces_open, 0, name, bytes, &number) == 0)
		*ret = (uint16_t)number;
	else
		rc = make(e, name, bytes, uid, ret);
	if (rc < 0)
		return rc;
	list_remove(&e->name_spaces[*ret].link); /* it lingers no more */
	e->name_spaces[*ret].connections++;
	name_space_take(e, *ret);
	return 0;
}

void name_space_take(struct engine *e, uint16_t number)
{
	e->name_spaces[number].named_by++;
}

void name_space_put(struct engine *e, uint16_t number)
{
	struct name_space *ns = &e->name_spaces[number];

	ASSERT(ns->named_by > 0);
	if (--ns->named_by > 0)
		return;
	ASSERT(ns->connections == 0 && ns->first == TENSOR_NONE && !list_linked(&ns->link));
	list_push_front(&e->name_spaces_free, &ns->link);
}

/* ---- its end ---- */

static void begin_end(struct engine *e, struct name_space *ns)
{
	list_remove(&ns->link);
	namemap_remove(e->name_spaces_open, number_of(e, ns));
	if (ns->first == TENSOR_NONE)
		return;
	ns->end = ++e->ends_ever;
	list_push_back(&e->name_spaces_ending, &ns->link);
}

void name_space_leave(struct engine *e, uint16_t number)
{
	struct name_space *ns = &e->name_spaces[number];

	ASSERT(ns->connections > 0);
	if (--ns->connections > 0)
		return;
	if (ns->first == TENSOR_NONE) { /* it has nothing to linger for */
		begin_end(e, ns);
		return;
	}
	ns->expires_ns = e->now_ns + e->params.linger_ns;
	list_push_back(&e->name_spaces_lingering, &ns->link); /* all linger as long */
}

/* Returns when the next one has lingered. */
static uint64_t begin_ends(struct engine *e)
{
	for (unsigned i = 0; !list_empty(&e->name_spaces_lingering); i++) {
		struct name_space *ns =
			list_first(&e->name_spaces_lingering, struct name_space, link);

		if (ns->expires_ns > e->now_ns || i == BEGINS_A_TURN)
			return ns->expires_ns;
		begin_end(e, ns);
	}
	return ENGINE_NEVER;
}

uint64_t name_spaces_turn(struct engine *e)
{
	uint64_t next = begin_ends(e);
	unsigned left = DESTROYS_A_TURN;
	struct list *it;

	/* Its number may be free, and its link another list's, once its last tensor has gone. */
	while (left > 0 && (it = list_pop_front(&e->name_spaces_ending)) != NULL) {
		struct name_space *ns = list_entry(it, struct name_space, link);

		left -= tensor_destroy_some(e, &ns->first, ns->end, left);
		if (ns->first != TENSOR_NONE)
			list_push_front(&e->name_spaces_ending, &ns->link);
	}
	return list_empty(&e->name_spaces_ending) ? next : e->now_ns;
}

bool name_spaces_end(const struct engine *e, uint64_t end)
{
	return !list_empty(&e->name_spaces_ending) &&
	       list_first(&e->name_spaces_ending, struct name_space, link)->end <= end;
}
