/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's last words. Something is wrong, nobody knows what: nothing here asserts, allocates,
 * locks or follows a list for ever. Facts come before names, which need more to be right.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/plural.h"
#include "base/log.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/request.h"
#include "daemon/engine/state.h"

#define LINES_MAX  64u /* of one kind */
#define NAME_SHOWN 96

/* ---- lines ---------------------------------------------------------------------------------- */

static void say(int fd, const char *fmt, ...) PRINTF(2, 3);
static void say(int fd, const char *fmt, ...)
{
	char line[512];
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line) - 1, fmt, ap);
	va_end(ap);
	n = strlen(line);
	line[n++] = '\n';
	for (size_t at = 0; at < n;) {
		ssize_t written = write(fd, line + at, n - at);

		if (written <= 0)
			return;
		at += (size_t)written;
	}
}

static unsigned long long ull(uint64_t n)
{
	return n;
}

static const char *device_name(const struct engine *e, uint8_t device)
{
	return device < e->device_count ? e->devices[device].tier->base.name : "nowhere";
}

/* ---- tensors -------------------------------------------------------------------------------- */

static bool is_live(const struct engine *e, uint32_t tensor)
{
	return tensor > 0 && tensor < e->index_high && (e->records[tensor].flags & RECORD_LIVE);
}

static void say_tensor(struct engine *e, uint32_t tensor, const char *head, int fd)
{
	const struct record *r = &e->records[tensor];

	say(fd,
	    "%s tensor %u: %llu bytes, class %u, word0 %#llx, front %s, sources %#x, flags %#x, "
	    "move %u, ready %u, wanted %u, version %llu",
	    head, tensor, ull(r->bytes), r->class_, ull(word0_of(e, tensor)),
	    device_name(e, r->front), r->sources, r->flags, r->move, r->ready, r->wanted,
	    ull(r->version));
}

static void say_name(struct engine *e, uint32_t tensor, int fd)
{
	uint16_t ns = e->records[tensor].name_space;
	char shown[NAME_SHOWN + 1] = "";
	const char *name = "";
	uint32_t its_ns;
	size_t n = namemap_name(e->names, tensor, &name, &its_ns);

	memcpy(shown, name, MIN(n, (size_t)NAME_SHOWN));
	log_printable(shown);
	say(fd, "  name '%s' in namespace '%.*s'", shown, NAME_SHOWN,
	    ns < e->name_space_count ? e->name_spaces[ns].name : "?");
}

static void say_pins(struct engine *e, uint32_t tensor, int fd)
{
	const struct list *it = e->holders.next;

	for (unsigned i = 0; i < LINES_MAX && it != NULL && it != &e->holders; i++, it = it->next) {
		const struct holder *h = list_entry(it, struct holder, link);
		uint64_t slot = h->magic == HOLDER_MAGIC ? atomic_load(&h->pins[tensor]) : 0;

		if (slot != 0)
			say(fd, "  slot of client %u, process %d: %#llx", h->id, h->pid, ull(slot));
	}
}

/* Its extent, and whose the next one is. */
static void say_extent(struct engine *e, uint8_t device, uint32_t node, int fd)
{
	struct extent x, next;

	if (device >= e->device_count || node == EXTENT_NONE)
		return;
	if (!extents_has(e->devices[device].extents, node)) {
		say(fd, "  extent %u of %s: there is none", node, device_name(e, device));
		return;
	}
	extents_get(e->devices[device].extents, node, &x);
	say(fd, "  extent %u of %s: [%#llx, +%llu), owner %u", node, device_name(e, device),
	    ull(x.offset), ull(x.bytes), x.owner);
	if (!extents_next(e->devices[device].extents, node, &next))
		return;
	say(fd, "  beside it: [%#llx, +%llu), owner %u", ull(next.offset), ull(next.bytes),
	    next.owner);
	if (is_live(e, next.owner))
		say_tensor(e, next.owner, "  beside it:", fd);
}

/* ---- moves ---------------------------------------------------------------------------------- */

static void say_move(const struct engine *e, const struct move *m, const char *head, int fd)
{
	if (m->magic != MOVE_MAGIC) {
		say(fd, "%s move at %p: no move, magic %#x", head, (const void *)m, m->magic);
		return;
	}
	say(fd,
	    "%s move %u: kind %u phase %u tensor %u from %s to %s, node %u, %u of %u pieces done, "
	    "%u in flight, stop %d, result %d %s",
	    head, m->id, m->kind, m->phase, m->tensor, device_name(e, m->from),
	    device_name(e, m->to), m->to_node, m->done_pieces, m->pieces, m->in_flight, m->stop,
	    m->result, m->cause);
}

static const struct move *move_of(const struct engine *e, uint32_t id)
{
	return id > 0 && id < e->move_room ? e->moves_by_id[id] : NULL;
}

static void say_moves(const struct engine *e, int fd)
{
	const struct list *it = e->moves.next;

	for (unsigned i = 0; i < LINES_MAX && it != NULL && it != &e->moves; i++, it = it->next)
		say_move(e, list_entry(it, struct move, link), "", fd);
}

/* ---- requests ------------------------------------------------------------------------------- */

static void say_request(const struct request *q, int fd)
{
	char tensors[160] = "";
	size_t at = 0;

	if (q->magic != REQUEST_MAGIC) {
		say(fd, "request at %p: no request, magic %#x", (const void *)q, q->magic);
		return;
	}
	for (size_t i = 0; i < MIN(q->n, 16u) && at < sizeof(tensors); i++)
		at += (size_t)snprintf(tensors + at, sizeof(tensors) - at, " %u%s",
				       q->items[i].tensor,
				       q->items[i].node != EXTENT_NONE ? "*" : "");
	say(fd, "request %u of client %u: kind %u state %u turn %u, to %u, %zu %s:%s", q->id,
	    q->holder->id, q->kind, q->state, q->turn, q->device, q->n,
	    PLURAL(q->n, "tensor", "tensors"), tensors);
}

static void say_requests(const struct list *requests, int fd)
{
	const struct list *it = requests->next;

	for (unsigned i = 0; i < LINES_MAX && it != NULL && it != requests; i++, it = it->next)
		say_request(list_entry(it, struct request, link), fd);
}

/* ---- tiers ---------------------------------------------------------------------------------- */

/* Of each namespace that has a row, and of all others. */
static void say_quotas(const struct engine *e, uint8_t device, int fd)
{
	if (!quotas_any(e) || e->devices[device].pool != device)
		return;
	for (unsigned i = 0; i < MIN(e->account_count, LINES_MAX); i++) {
		const struct quota_share *s = &e->accounts[i].pool[device];

		say(fd, "account %u, %s: %llu used, %llu guaranteed, limit %llu", i,
		    device_name(e, device), ull(s->used_bytes), ull(s->guarantee_bytes),
		    ull(s->limit_bytes));
	}
}

static void say_tiers(struct engine *e, int fd)
{
	for (unsigned i = 0; i < e->device_count; i++) {
		const struct device *d = &e->devices[i];

		say(fd,
		    "tier %s: %llu of %llu bytes used, %llu without memory, %u xfers in flight%s",
		    device_name(e, (uint8_t)i), ull(extents_used(d->extents)),
		    ull(extents_capacity(d->extents)), ull(d->closed_bytes), d->flight,
		    d->lost ? ", lost" : "");
		say_quotas(e, (uint8_t)i, fd);
		say_requests(&d->queue, fd);
	}
}

/* ---- all ------------------------------------------------------------------------------------ */

static void say_concerned(struct engine *e, int fd)
{
	const struct move *m = move_of(e, e->at_move);
	uint32_t tensor = e->at_tensor;

	if (is_live(e, tensor))
		say_tensor(e, tensor, "looked at last:", fd);
	else
		say(fd, "looked at last: tensor %u, which is none", tensor);
	if (m != NULL)
		say_move(e, m, "looked at last:", fd);
	if (!is_live(e, tensor))
		return;
	m = move_of(e, e->records[tensor].move);
	if (m != NULL)
		say_move(e, m, "  its", fd);
	say_pins(e, tensor, fd);
	say_extent(e, e->records[tensor].hbm_device, e->records[tensor].hbm_node, fd);
	say_extent(e, dram_of(e, &e->records[tensor]), e->records[tensor].dram_node, fd);
	say_name(e, tensor, fd);
}

static void say_busy_tensors(struct engine *e, int fd)
{
	unsigned lines = 0;

	for (uint32_t i = 1; i < e->index_high && lines < LINES_MAX; i++)
		if (is_live(e, i) && (e->records[i].move != 0 || e->records[i].wanted > 0)) {
			say_tensor(e, i, "", fd);
			lines++;
		}
}

void engine_dump(struct engine *e, int fd)
{
	say_concerned(e, fd);
	say_tiers(e, fd);
	say_requests(&e->running, fd);
	say_requests(&e->blocked, fd);
	say_moves(e, fd);
	say_busy_tensors(e, fd);
}
