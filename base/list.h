/* SPDX-License-Identifier: Apache-2.0
 *
 * Intrusive doubly linked list with a sentinel. No allocation, no locks: one owning thread.
 */
#ifndef TIERD_BASE_LIST_H
#define TIERD_BASE_LIST_H

#include <stdbool.h>

#include "base/compiler.h"

struct list {
	struct list *prev, *next;
};

static inline void list_init(struct list *l)
{
	l->prev = l->next = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

/* Of an entry: whether it stands in some list (entries are list_init()ed before first use). */
static inline bool list_linked(const struct list *entry)
{
	return entry->next != entry;
}

static inline void list_insert_before(struct list *at, struct list *entry)
{
	entry->prev = at->prev;
	entry->next = at;
	at->prev->next = entry;
	at->prev = entry;
}

static inline void list_push_back(struct list *l, struct list *entry)
{
	list_insert_before(l, entry);
}

static inline void list_push_front(struct list *l, struct list *entry)
{
	list_insert_before(l->next, entry);
}

static inline void list_remove(struct list *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
	list_init(entry);
}

static inline struct list *list_pop_front(struct list *l)
{
	struct list *entry = l->next;

	if (entry == l)
		return NULL;
	list_remove(entry);
	return entry;
}

/* Moves all entries of `from` to the end of `to`, in their order. */
static inline void list_splice(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#define list_entry(ptr, type, m) container_of(ptr, type, m)
#define list_first(l, type, m)   list_entry((l)->next, type, m)

/* `it` is a struct list *; the body must not remove it. */
#define list_for_each(it, l) for (it = (l)->next; it != (l); it = it->next)
/* The body may remove `it` (but not `tmp`). */
#define list_for_each_safe(it, tmp, l) \
	for (it = (l)->next, tmp = it->next; it != (l); it = tmp, tmp = it->next)

#endif
