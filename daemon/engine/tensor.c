/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/tensor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/heap.h"
#include "base/log.h"
#include "daemon/engine/admission.h"
#include "daemon/engine/front.h"
#include "daemon/engine/lost.h"
#include "daemon/engine/move.h"
#include "daemon/engine/name_space.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/prefetch.h"
#include "daemon/engine/publish.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"

#define BYTES_MAX         (1ull << 47)
#define DOOMED_A_TURN     64u /* looked at, by a scan of all clients' pins each */
#define DOOMED_FIRST_NS   NS_PER_MS
#define DOOMED_LONGEST_NS (100 * NS_PER_MS)
#define CREATE_WAIT_NS    (10 * NS_PER_S)

/* ---- owners' lists ---- */

static uint32_t *owner_list(struct engine *e, const struct record *r)
{
	if (r->flags & RECORD_NAMED)
		return &e->name_spaces[r->name_space].first;
	return &e->holder_table[r->owner]->first;
}

static void owner_link(struct engine *e, uint32_t tensor)
{
	struct record *r = &e->records[tensor];
	uint32_t *first = owner_list(e, r);

	r->owner_prev = TENSOR_NONE;
	r->owner_next = *first;
	if (*first != TENSOR_NONE)
		e->records[*first].owner_prev = tensor;
	*first = tensor;
}

static void owner_unlink(struct engine *e, uint32_t tensor)
{
	struct record *r = &e->records[tensor];

	if (r->owner_prev != TENSOR_NONE)
		e->records[r->owner_prev].owner_next = r->owner_next;
	else
		*owner_list(e, r) = r->owner_next;
	if (r->owner_next != TENSOR_NONE)
		e->records[r->owner_next].owner_prev = r->owner_prev;
	r->owner_prev = r->owner_next = TENSOR_NONE;
}

/* ---- create ---- */

static int spec_bytes(const struct engine_spec *s, uint64_t *ret, struct err *err)
{
	uint64_t bytes;

	if (s->class_ >= ENGINE_CLASSES || dtype_bytes(s->dtype) == 0)
		return err_set(err, EINVAL, "class %u or dtype %u is not known", s->class_,
			       s->dtype);
	if (s->ndim > PROTOCOL_NDIM_MAX)
		return err_set(err, EINVAL, "%u dimensions, at most %u", s->ndim,
			       PROTOCOL_NDIM_MAX);
	if (s->name != NULL && (s->name_bytes == 0 || s->name_bytes > PROTOCOL_NAME_MAX ||
				memchr(s->name, '\0', s->name_bytes) != NULL))
		return err_set(err, EINVAL, "a name has 1 to %u bytes and no NUL",
			       PROTOCOL_NAME_MAX);
	bytes = dtype_bytes(s->dtype);
	for (unsigned i = 0; i < s->ndim; i++)
		if (__builtin_mul_overflow(bytes, s->shape[i], &bytes))
			return err_set(err, EOVERFLOW, "a shape of more than 2^64 bytes");
	if (bytes > BYTES_MAX)
		return err_set(err, EOVERFLOW, "a shape of more than 2^47 bytes");
	*ret = bytes;
	return 0;
}

static int take_index(struct engine *e, uint32_t *ret, struct err *err)
{
	if (e->free_first != TENSOR_NONE) {
		*ret = e->free_first;
		e->free_first = e->records[*ret].owner_next;
		return 0;
	}
	if (e->index_high == e->params.tensors)
		return err_set(err, ENOSPC, "the table holds `tensors: %u` and is full",
			       e->params.tensors);
	*ret = e->index_high++;
	return 0;
}

static void give_index(struct engine *e, uint32_t tensor)
{
	e->records[tensor].flags = 0;
	e->records[tensor].owner_next = e->free_first;
	e->free_first = tensor;
}

static uint32_t check_word(uint32_t index, uint32_t generation, const struct record *r)
{
	struct {
		uint32_t index, generation;
		uint64_t bytes;
		uint8_t class_, dtype;
	} __attribute__((packed)) stable = { index, generation, r->bytes, r->class_, r->dtype };

	return crc32c(0, &stable, sizeof(stable));
}

const char *tensor_text(struct engine *e, uint32_t tensor, char text[TENSOR_TEXT_BYTES])
{
	const char *name;
	uint32_t name_space;
	size_t n = namemap_name(e->names, tensor, &name, &name_space);

	if (n > 0)
		snprintf(text, TENSOR_TEXT_BYTES, "tensor '%.*s'", (int)MIN(n, 60), name);
	else
		snprintf(text, TENSOR_TEXT_BYTES, "tensor %u:%u", tensor,
			 word0_generation(word0_of(e, tensor)));
	log_printable(text);
	return text;
}

/* What of dram it could ever come to. */
static uint64_t dram_for_moves(const struct engine *e, const struct record *r)
{
	const struct account *a = &e->accounts[e->name_spaces[r->name_space].account];
	uint64_t bytes = admission_dram_for_moves(e, (r->flags & RECORD_ZONED) != 0);

	return quotas_any(e) && e->zone == DEVICE_NONE ? MIN(bytes, quota_dram_for_moves(e, a))
						       : bytes;
}

/* The record and the descriptor of a tensor that was admitted. */
static void begin_tensor(struct engine *e, struct holder *h, const struct engine_spec *s,
			 uint64_t bytes, uint32_t tensor)
{
	struct record *r = &e->records[tensor];
	struct descriptor *d = &e->descriptors[tensor];
	uint32_t generation = word0_generation(word0_of(e, tensor));

	*r = (struct record){ .bytes = bytes,
			      .used_ns = e->now_ns,
			      .used_step = e->name_spaces[h->name_space].steps,
			      .hbm_node = EXTENT_NONE,
			      .dram_node = EXTENT_NONE,
			      .owner = h->id,
			      .name_space = h->name_space,
			      .flags = RECORD_LIVE,
			      .front = DEVICE_NONE,
			      .hbm_device = DEVICE_NONE,
			      .sources = SOURCE_ZERO,
			      .class_ = s->class_,
			      .dtype = s->dtype,
			      .ndim = s->ndim };
	memcpy(r->shape, s->shape, sizeof(r->shape));
	if (s->name != NULL)
		r->flags |= RECORD_NAMED;
	if (bytes < SMALL_BYTES)
		r->flags |= RECORD_SMALL;
	if (s->flags & SPEC_DEVICE_COPY)
		r->flags |= RECORD_ZONED;
	if (bytes >= SMALL_BYTES && ALIGN_UP(bytes, GRANULE) > dram_for_moves(e, r))
		r->flags |= RECORD_LARGE;
	if (generation == 0)
		generation = 1;
	d->bytes = bytes;
	d->class_ = s->class_;
	d->dtype = s->dtype;
	d->check = check_word(tensor, generation, r);
	publish_born(e, tensor, generation);
	owner_link(e, tensor);
	name_space_take(e, r->name_space);
	admission_count(e, tensor, true);
	memset((char *)e->slots + tensor * e->policy_slots.stride, 0, e->policy_slots.stride);
	policy_tell(e, tensor, POLICY_EVENT_CREATED, POLICY_TIER_NONE, POLICY_TIER_NONE, 0);
}

static void destroy_one(struct engine *e, uint32_t tensor, uint64_t end);

/* All that has ended by now. The doomed that were found pinned may not be any more. */
static void wait_for_ends(struct engine *e, struct holder *h)
{
	h->waits_for_end = e->ends_ever;
	h->waits_until_ns = e->now_ns + CREATE_WAIT_NS;
	h->waits_for_round = e->doomed_rounds + 1 + (e->doomed_end > 0);
	if (e->doomed_end == 0)
		e->doomed_at_ns = e->now_ns;
	e->doomed_wait_ns = DOOMED_FIRST_NS;
}

/* Bytes and an index. What was destroyed is in nobody's way, but it may be so much that it has to
 * go turn by turn, or on its way somewhere. */
static int take_room(struct engine *e, struct holder *h, const struct engine_spec *s,
		     uint64_t bytes, uint32_t *ret_tensor, struct err *err)
{
	int rc = admission_check(e, h, s, bytes, err);

	if (rc == 0)
		rc = take_index(e, ret_tensor, err);
	if (rc != -ENOSPC && rc != -EDQUOT)
		return rc;
	if (h->waits_for_end == 0)
		wait_for_ends(e, h);
	if (engine_ends(e, h))
		return err_set(err, EAGAIN, "what has ended is going yet");
	return rc;
}

static int create_one(struct engine *e, struct holder *h, const struct engine_spec *s,
		      struct wire_handle *ret, struct err *err)
{
	uint64_t bytes = 0;
	uint32_t tensor = TENSOR_NONE;
	int rc = spec_bytes(s, &bytes, err);

	if (rc == 0)
		rc = take_room(e, h, s, bytes, &tensor, err);
	if (rc < 0)
		return rc;
	if (s->name != NULL) {
		rc = namemap_add(e->names, h->name_space, s->name, s->name_bytes, tensor);
		if (rc < 0) {
			give_index(e, tensor);
			return err_set(err, -rc,
				       rc == -EEXIST ? "the name '%.*s' is taken"
						     : "no memory for the name '%.*s'",
				       (int)s->name_bytes, s->name);
		}
	}
	begin_tensor(e, h, s, bytes, tensor);
	*ret = (struct wire_handle){ tensor, word0_generation(word0_of(e, tensor)) };
	return 0;
}

int engine_create_tensors(struct engine *e, struct holder *h, const struct engine_spec *specs,
			  size_t n, struct wire_handle *ret, uint64_t now_ns, struct err *err)
{
	size_t made = 0;
	int rc = 0;

	e->now_ns = now_ns;
	for (; made < n && rc == 0; made += rc == 0)
		rc = create_one(e, h, &specs[made], &ret[made], err);
	while (rc < 0 && made-- > 0)
		destroy_one(e, ret[made].index, ++e->ends_ever);
	if (rc != -EAGAIN)
		h->waits_for_end = 0;
	return rc;
}

int engine_lookup(struct engine *e, struct holder *h, const char *name, size_t name_bytes,
		  struct wire_handle *ret, struct err *err)
{
	uint32_t tensor;

	if (name_bytes == 0 || name_bytes > PROTOCOL_NAME_MAX)
		return err_set(err, EINVAL, "a name has 1 to %u bytes", PROTOCOL_NAME_MAX);
	if (namemap_find(e->names, h->name_space, name, name_bytes, &tensor) < 0)
		return err_set(err, ENOENT, "there is no tensor '%.*s' in this namespace",
			       (int)name_bytes, name);
	*ret = (struct wire_handle){ tensor, word0_generation(word0_of(e, tensor)) };
	return 0;
}

/* ---- destroy ---- */

/* The end, if nobody holds it any more. */
static bool bury(struct engine *e, uint32_t tensor)
{
	struct record *r = record_of(e, tensor);

	if (r->move != 0) {
		struct move *m = move_get(e, r->move);

		/* Who was let in before has its bytes, or 0xff, as long as it pins them. */
		if (m->kind != MOVE_FILL || !pins_any(e, tensor))
			move_stop(m);
		return false;
	}
	if (r->wanted > 0 || r->ready > 0)
		return false;
	if (lost_front(e, r) && state_of(e, tensor) == STATE_FAILED) {
		if (pins_any(e, tensor))
			return false;
		front_set(e, tensor, DEVICE_NONE);
	}
	if (r->front != DEVICE_NONE) {
		if (front_close(e, tensor, NULL) < 0)
			return false;
		front_set(e, tensor, DEVICE_NONE);
	}
	for (unsigned kind = 0; kind < TIER_KINDS; kind++)
		replica_drop(e, tensor, kind);
	policy_tell(e, tensor, POLICY_EVENT_FREED, POLICY_TIER_NONE, POLICY_TIER_NONE, 0);
	admission_count(e, tensor, false);
	name_space_put(e, r->name_space);
	publish_buried(e, tensor);
	give_index(e, tensor);
	return true;
}

static void add_doomed(struct engine *e, uint32_t tensor, uint64_t end)
{
	ASSERT(e->doomed_count < e->params.tensors);
	/* No later than those before it: they would wait as long as others are destroyed. */
	e->doomed_at_ns = MIN(doomed_due(e), e->now_ns + DOOMED_FIRST_NS);
	e->doomed_wait_ns = DOOMED_FIRST_NS;
	e->doomed_going = MIN(e->doomed_going, end);
	e->doomed_going_yet = MIN(e->doomed_going_yet, end);
	e->doomed[e->doomed_count++] = (struct doomed){ end, tensor };
}

static void destroy_one(struct engine *e, uint32_t tensor, uint64_t end)
{
	struct record *r = record_of(e, tensor);
	uint64_t word0 = word0_of(e, tensor);

	owner_unlink(e, tensor);
	prefetch_cancel(e, tensor);
	if (r->flags & RECORD_NAMED)
		namemap_remove(e->names, tensor);
	r->flags |= RECORD_DOOMED;
	publish(e, tensor, word0_state(word0), word0_flags(word0) & FLAG_UNFILLED);
	e->orphans |= r->wanted > 0;
	if (!bury(e, tensor))
		add_doomed(e, tensor, end);
}

int engine_destroy_tensors(struct engine *e, struct holder *h, const struct wire_handle *t,
			   size_t n, uint64_t now_ns, struct err *err)
{
	int rc = 0;

	e->now_ns = now_ns;
	for (size_t i = 0; i < n; i++) {
		if (!handle_live(e, t[i].index, t[i].generation))
			rc = err_set(err, ESTALE, "tensor %u:%u was destroyed before", t[i].index,
				     t[i].generation);
		else if (e->records[t[i].index].name_space != h->name_space)
			rc = err_set(err, EPERM, "the tensor belongs to another namespace");
		else
			destroy_one(e, t[i].index, ++e->ends_ever);
	}
	requests_settle(e);
	return rc;
}

unsigned tensor_destroy_some(struct engine *e, const uint32_t *first, uint64_t end, unsigned most)
{
	unsigned n = 0;

	for (; n < most && *first != TENSOR_NONE; n++)
		destroy_one(e, *first, end);
	return n;
}

/* Who finds room once they are gone does not wait for pins, but for a look at them; and not for
 * ever for a device that ends nothing. */
static bool doomed_go(const struct engine *e, const struct holder *h)
{
	return e->doomed_count > 0 &&
	       (e->doomed_rounds < h->waits_for_round ||
		(e->doomed_going <= h->waits_for_end && e->now_ns < h->waits_until_ns));
}

bool engine_ends(const struct engine *e, const struct holder *h)
{
	const struct list *it;

	list_for_each (it, &e->tombstones) {
		const struct holder *dead = list_entry(it, struct holder, link);

		if (dead->first != TENSOR_NONE && dead->end <= h->waits_for_end)
			return true;
	}
	return name_spaces_end(e, h->waits_for_end) || doomed_go(e, h);
}

uint64_t doomed_due(const struct engine *e)
{
	return e->doomed_count == 0 ? ENGINE_NEVER : e->doomed_at_ns;
}

/* Whether nothing but moves, and who waits for their end, keeps it. */
static bool goes_by_itself(struct engine *e, uint32_t tensor)
{
	const struct record *r = record_of(e, tensor);

	return (r->move != 0 || r->wanted > 0 || r->ready > 0) && !pins_any(e, tensor);
}

/* Whoever was added since the round began waits for the next one, or this one might never end. */
static void bury_next(struct engine *e)
{
	struct doomed *d = &e->doomed[e->doomed_next];

	if (bury(e, d->tensor)) {
		*d = e->doomed[--e->doomed_end];
		e->doomed[e->doomed_end] = e->doomed[--e->doomed_count];
		return;
	}
	if (goes_by_itself(e, d->tensor))
		e->doomed_going_yet = MIN(e->doomed_going_yet, d->end);
	e->doomed_next++;
}

static void begin_round(struct engine *e)
{
	e->doomed_end = e->doomed_count;
	e->doomed_going_yet = ENGINE_NEVER;
}

static void end_round(struct engine *e)
{
	e->doomed_next = e->doomed_end = 0;
	e->doomed_rounds++;
	e->doomed_going = e->doomed_going_yet;
	e->doomed_wait_ns = MIN(e->doomed_wait_ns * 2, DOOMED_LONGEST_NS);
	e->doomed_at_ns = e->now_ns + e->doomed_wait_ns;
}

/* Goes on turn by turn until all have been looked at, and then waits. */
static uint64_t doomed_turn(struct engine *e)
{
	if (e->now_ns < doomed_due(e))
		return doomed_due(e);
	if (e->doomed_end == 0)
		begin_round(e);
	for (unsigned i = 0; i < DOOMED_A_TURN && e->doomed_next < e->doomed_end; i++)
		bury_next(e);
	if (e->doomed_next < e->doomed_end)
		return e->now_ns;
	end_round(e);
	return doomed_due(e);
}

uint64_t tensors_turn(struct engine *e)
{
	uint64_t next = name_spaces_turn(e);

	return MIN(next, doomed_turn(e));
}
