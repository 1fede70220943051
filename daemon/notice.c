/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/notice.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/heap.h"
#include "daemon/greet.h"

#define WORD_BITS 64u

static uint32_t slabs_of(const struct server_arena *a)
{
	if (a->slab_bytes == 0)
		return 0;
	return (uint32_t)((a->bytes + a->slab_bytes - 1) / a->slab_bytes);
}

static uint32_t slabs_of_all(const struct notices *n)
{
	uint32_t total = 0;

	for (unsigned i = 0; i < n->arenas; i++)
		total += slabs_of(&n->arena[i]);
	return total;
}

int notices_create(const struct server_arena *arenas, unsigned count, struct notices *ret,
		   struct err *err)
{
	struct notices n = { .arena = arenas, .arenas = count };
	size_t words = slabs_of_all(&n) / WORD_BITS + 1;

	n.mapped = heap_zeros(words, sizeof(*n.mapped));
	n.owed = heap_zeros(words, sizeof(*n.owed));
	n.asked = heap_zeros(words, sizeof(*n.asked));
	if (!n.mapped || !n.owed || !n.asked) {
		notices_destroy(&n);
		return err_set(err, ENOMEM, "no memory for %zu bytes of slabs of a client",
			       3 * words * sizeof(*n.owed));
	}
	*ret = n;
	return 0;
}

void notices_destroy(struct notices *n)
{
	heap_free(n->mapped);
	heap_free(n->owed);
	heap_free(n->asked);
	*n = (struct notices){ 0 };
}

/* ---- bits ----------------------------------------------------------------------------------- */

static bool bit_is(const uint64_t *bits, uint32_t bit)
{
	return bits[bit / WORD_BITS] >> (bit % WORD_BITS) & 1;
}

/* Returns what it was. */
static bool bit_put(uint64_t *bits, uint32_t bit, bool value)
{
	uint64_t mask = 1ull << (bit % WORD_BITS);
	bool was = bits[bit / WORD_BITS] & mask;

	if (value)
		bits[bit / WORD_BITS] |= mask;
	else
		bits[bit / WORD_BITS] &= ~mask;
	return was;
}

static void owe(struct notices *n, uint32_t bit, bool value)
{
	bool was = bit_put(n->owed, bit, value);

	n->owed_count += value;
	n->owed_count -= was;
}

/* Its arena; NULL: there is no such slab. */
static const struct server_arena *slab_find(const struct notices *n, uint32_t arena,
					    uint64_t offset, uint32_t *ret_bit)
{
	uint32_t first = 0;

	for (unsigned i = 0; i < n->arenas; i++) {
		const struct server_arena *a = &n->arena[i];

		if (a->arena == arena) {
			if (a->slab_bytes == 0 || offset >= a->bytes || offset % a->slab_bytes != 0)
				return NULL;
			*ret_bit = first + (uint32_t)(offset / a->slab_bytes);
			return a;
		}
		first += slabs_of(a);
	}
	return NULL;
}

int notices_check(const struct notices *n, uint32_t arena, uint64_t offset, struct err *err)
{
	uint32_t bit;

	if (slab_find(n, arena, offset, &bit))
		return 0;
	return err_set(err, EINVAL, "no slab begins at %llu of arena %u",
		       (unsigned long long)offset, arena);
}

static uint32_t bit_of(const struct notices *n, uint32_t arena, uint64_t offset)
{
	uint32_t bit = 0;

	ASSERT(slab_find(n, arena, offset, &bit));
	return bit;
}

bool notices_mapped(const struct notices *n, uint32_t arena, uint64_t offset)
{
	return bit_is(n->mapped, bit_of(n, arena, offset));
}

void notices_unmap(struct notices *n, uint32_t arena, uint64_t offset)
{
	uint32_t bit = bit_of(n, arena, offset);

	if (bit_is(n->mapped, bit) && !bit_is(n->asked, bit))
		owe(n, bit, true);
}

void notices_gone(struct notices *n, uint32_t arena, uint64_t offset)
{
	uint32_t bit = bit_of(n, arena, offset);

	bit_put(n->mapped, bit, false);
	bit_put(n->asked, bit, false);
	owe(n, bit, false);
}

void notices_kept(struct notices *n, uint32_t arena, uint64_t offset)
{
	bit_put(n->asked, bit_of(n, arena, offset), false);
}

/* ---- messages ------------------------------------------------------------------------------- */

static struct hello_slab message(const struct server_arena *a, uint16_t kind, uint64_t offset)
{
	return (struct hello_slab){ .magic = PROTOCOL_MAGIC,
				    .kind = kind,
				    .arena = a->arena,
				    .offset = offset,
				    .bytes = MIN(a->slab_bytes, a->bytes - offset) };
}

int notices_map(struct notices *n, int socket_fd, uint32_t arena, uint64_t offset, int fd,
		struct err *err)
{
	uint32_t bit = 0;
	const struct server_arena *a = slab_find(n, arena, offset, &bit);
	struct hello_slab m;
	int rc;

	ASSERT(a);
	/* Descriptors on their way count against a limit of the daemon's that all clients share, so
	 * one that does not read has one there. */
	if (!notices_send(n, socket_fd) || greet_unread(socket_fd))
		return err_set(err, EAGAIN,
			       "slab: messages that this client has not read are "
			       "in the way");
	m = message(a, SLAB_MAP, offset);
	rc = greet_slab(socket_fd, &m, fd, err);
	if (rc == 0)
		bit_put(n->mapped, bit, true);
	return rc;
}

static bool arena_send(struct notices *n, const struct server_arena *a, uint32_t first,
		       int socket_fd)
{
	for (uint32_t i = 0; i < slabs_of(a) && n->owed_count > 0; i++) {
		struct hello_slab m;

		if (!bit_is(n->owed, first + i))
			continue;
		m = message(a, SLAB_UNMAP, (uint64_t)i * a->slab_bytes);
		if (greet_slab(socket_fd, &m, -1, NULL) < 0)
			return false;
		owe(n, first + i, false);
		bit_put(n->asked, first + i, true);
	}
	return true;
}

bool notices_send(struct notices *n, int socket_fd)
{
	uint32_t first = 0;

	for (unsigned i = 0; i < n->arenas && n->owed_count > 0; i++) {
		if (!arena_send(n, &n->arena[i], first, socket_fd))
			return false;
		first += slabs_of(&n->arena[i]);
	}
	return true;
}
