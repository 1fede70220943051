/* SPDX-License-Identifier: Apache-2.0
 *
 * Who waits for what, for people: requests in progress, client by client. A call tells what one
 * answer holds and where to go on.
 */
#include <string.h>

#include "daemon/engine/crowd.h"
#include "daemon/engine/move.h"
#include "daemon/engine/request.h"

/* Where to go on: the client's number, and how many of its requests were told. */
#define AT(holder, told)  ((uint64_t)(holder) << 32 | (told))
#define AT_HOLDER(number) ((number) >> 32)
#define AT_TOLD(number)   ((uint32_t)(number))

#define LOOKED_MAX 65536u /* slots of clients, an answer: some ms however many there are */

static const struct item *first_missing(const struct request *q)
{
	for (size_t i = 0; i < q->n; i++)
		if (!q->items[i].ready)
			return &q->items[i];
	/* An item of a walk that is ready names what was flushed before. */
	return q->n > 0 && q->walk == 0 ? &q->items[0] : NULL;
}

static uint8_t place_of(const struct engine *e, const struct request *q)
{
	return q->device == DEVICE_NONE ? PROTOCOL_PLACE_HOST : e->devices[q->device].place;
}

static void put_names(const struct wire_wait *w, const char *name, const char *of_tensor,
		      const char *of_client, char *to)
{
	memcpy(to, w, sizeof(*w));
	to += sizeof(*w);
	memcpy(to, name, w->name_bytes);
	memcpy(to + w->name_bytes, of_tensor, w->name_space_bytes);
	memcpy(to + w->name_bytes + w->name_space_bytes, of_client, w->client_space_bytes);
}

/* Of its tensor, which may have been destroyed meanwhile. Returns the name. */
static const char *put_tensor(struct engine *e, const struct request *q, struct wire_wait *w,
			      const char **ret_space)
{
	const struct item *item = first_missing(q);
	const char *name = "";
	uint32_t ns;

	*ret_space = "";
	if (item == NULL)
		return name;
	w->index = item->tensor;
	w->generation = item->generation;
	if (!handle_live(e, item->tensor, item->generation))
		return name;
	w->tensor_bytes = record_of(e, item->tensor)->bytes;
	w->name_bytes = (uint8_t)namemap_name(e->names, item->tensor, &name, &ns);
	*ret_space = e->name_spaces[record_of(e, item->tensor)->name_space].name;
	w->name_space_bytes = (uint8_t)strlen(*ret_space);
	return name;
}

/* An answer in the making. `looked`: of each tensor of a request a slot of each client. */
struct answer {
	char *to;
	size_t room, used, looked;
	struct crowd crowd;
};

/* It waits for room: because its namespace has all that it may, or because all have; and who pins
 * most of that. */
static enum wait_reason put_room(struct engine *e, struct request *q, struct crowd *crowd,
				 struct wire_wait *w)
{
	const struct account *limited = NULL;
	uint64_t over;

	if (request_is_live(e, q))
		limited = quota_limits(e, q, &over);
	crowd_find(e, q->device, limited, crowd);
	w->blocker_pid = (uint32_t)crowd->pid;
	w->blocker_kib = (uint32_t)MIN(crowd->bytes / 1024, UINT32_MAX);
	return limited != NULL ? WAIT_FOR_QUOTA : WAIT_FOR_ROOM;
}

static enum wait_reason put_reason(struct engine *e, struct request *q, struct crowd *crowd,
				   struct wire_wait *w)
{
	int pid = q->kind == REQUEST_ACQUIRE ? acquire_blocker(e, q) : 0;

	w->blocker_pid = (uint32_t)pid;
	if (q->state == REQUEST_BLOCKED)
		return WAIT_FOR_OTHERS;
	if (pid > 0)
		return WAIT_FOR_PIN;
	return q->state == REQUEST_QUEUED ? put_room(e, q, crowd, w) : WAIT_FOR_MOVE;
}

static bool put_wait(struct engine *e, struct request *q, struct answer *a)
{
	const char *of_client = e->name_spaces[q->holder->name_space].name, *of_tensor, *name;
	struct wire_wait w = { .pid = (uint32_t)q->holder->pid,
			       .client = q->holder->id,
			       .kind = (uint8_t)q->kind,
			       .place = place_of(e, q),
			       .access = q->access,
			       .tensors = (uint32_t)(q->walk != 0 ? q->open : q->n),
			       .since_ns = e->now_ns - MIN(q->begin_ns, e->now_ns),
			       .device = DEVICE_NONE,
			       .client_space_bytes = (uint8_t)strlen(of_client) };

	w.reason = (uint8_t)put_reason(e, q, &a->crowd, &w);
	if (q->device != DEVICE_NONE)
		w.device = e->devices[q->device].lane;
	name = put_tensor(e, q, &w, &of_tensor);
	w.bytes = (uint32_t)ALIGN_UP(
		sizeof(w) + w.name_bytes + w.name_space_bytes + w.client_space_bytes, 8);
	a->looked += q->n * (1 + e->holder_room);
	if (w.bytes > a->room - a->used)
		return false;
	memset(a->to + a->used + w.bytes - 8, 0, 8);
	put_names(&w, name, of_tensor, of_client, a->to + a->used);
	a->used += w.bytes;
	return true;
}

/* Those of one client from number *told on. false: that is enough for one answer. */
static bool put_holder(struct engine *e, const struct holder *h, uint32_t *told, struct answer *a)
{
	const struct list *it;
	uint32_t i = 0;

	list_for_each (it, &h->requests) {
		if (i++ < *told)
			continue;
		if (a->looked >= LOOKED_MAX ||
		    !put_wait(e, list_entry(it, struct request, holder_link), a))
			return false;
		++*told;
	}
	return true;
}

size_t engine_waits(struct engine *e, uint64_t from, void *to, size_t room, uint64_t now_ns,
		    uint64_t *next)
{
	struct answer a = { .to = to, .room = room, .crowd.looks = LOOKED_MAX };
	uint32_t told = AT_TOLD(from);

	static_assert((int)REQUEST_ACQUIRE == WAIT_ACQUIRE && (int)REQUEST_COPY == WAIT_COPY &&
			      (int)REQUEST_FLUSH == WAIT_FLUSH,
		      "one numbering");
	e->now_ns = now_ns;
	for (uint64_t i = MAX(AT_HOLDER(from), 1u); i < e->holder_room; i++, told = 0) {
		const struct holder *h = e->holder_table[i];

		if (h == NULL || put_holder(e, h, &told, &a))
			continue;
		*next = AT(i, told);
		return a.used;
	}
	*next = 0;
	return a.used;
}
