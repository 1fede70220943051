/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests that wait: acquires, copies and flushes. A request is BLOCKED (an earlier one wants one
 * of its tensors elsewhere), QUEUED for room at its device, or RUNNING (everything it needs is
 * reserved, so it can only wait for moves and for unpins). Requests never hold anything while they
 * are blocked or queued, which is why they cannot wait for each other in a circle. Control thread.
 */
#ifndef TIERD_ENGINE_REQUEST_H
#define TIERD_ENGINE_REQUEST_H

#include "daemon/engine/state.h"

/* A move that an item waited for has ended. */
void request_move_ended(struct engine *e, struct item *item, const struct move *m);
/* Notes what it failed of, where that is what the item wanted of it: a fill of its place, that was
 * no hint's. Returns whether the request has failed. */
bool request_take_failure(struct engine *e, const struct item *item, const struct move *m);
/* A move made for this request alone (copy, sync) has ended. */
void request_own_move_ended(struct engine *e, struct request *request, const struct move *m);
/* Looks at everything that was woken, and at the queues where room may have come. Every public call
 * of the engine ends with it. */
void requests_settle(struct engine *e);
/* Deadlines and polls; returns when to be called again. */
uint64_t requests_turn(struct engine *e);
/* Ends all of a holder's requests without answering. */
void requests_drop_holder(struct engine *e, struct holder *h);
/* Answers and forgets a request. */
void request_finish(struct engine *e, struct request *request, int result, const char *text);
/* Answers an acquire whose open items all arrive; what is left of it stores the fence. */
void request_grant(struct engine *e, struct request *request, uint64_t token);
/* Something has changed that may let a queue go on: an end of a move, an unpin, the time. */
void look_at_queues(struct engine *e);
void request_wake(struct engine *e, struct request *request);
/* It is woken at the next poll: unpins make no sound. */
void request_poll(struct engine *e, struct request *request);
/* A tensor whose write-back failed is left alone for a while. */
void request_backoff(struct engine *e, uint32_t tensor);

/* What the items of a request of each kind do when they are looked at (acquire.c, copy.c, flush.c).
 */
void acquire_step(struct engine *e, struct request *request);
/* It gets its extents and runs, or waits in its device's queue: a new one, one that was blocked, or
 * one whose turn it is (acquire_room.c). */
void acquire_admit(struct engine *e, struct request *request);
void acquire_enter(struct request *request, enum request_state state, struct list *list);
void acquire_run(struct engine *e, struct request *request);
void acquire_let_go(struct engine *e, struct request *request);
bool acquire_is_blocked(struct engine *e, const struct request *request);
void acquire_want_items(struct engine *e, struct request *request);
/* Whether the item would need an extent of its own at the request's device. */
bool acquire_needs_room(struct engine *e, const struct request *request, const struct item *item);
/* The extents that it would need at that device, in bytes. */
uint64_t acquire_lacking_bytes(struct engine *e, const struct request *request, uint8_t device);
/* Where its tensor goes to at the request's place. */
uint8_t item_device(struct engine *e, const struct item *item);
/* The other device of its place, where there are two: dram has a zone. */
uint8_t acquire_second_device(const struct engine *e, const struct request *request);
/* Whether they could ever be in that place together: 0, or -ENOSPC or -EDQUOT with the sentence.
 * All of these are in admission.c. */
int acquire_can_fit(struct engine *e, struct request *request, char *text, size_t room);
/* Whether somebody takes it to another place whom nothing keeps from it, neither room nor a pin. */
bool acquire_takes(struct engine *e, uint32_t tensor);
/* The process of a foreign pin that keeps a tensor of the request at another place, 0: none. */
int acquire_blocker(struct engine *e, const struct request *request);
void acquire_release_items(struct engine *e, struct request *request);
/* Whether an UNFILLED front has a writer who may say `filled` yet. */
bool acquire_may_fill(struct engine *e, uint32_t tensor);
/* A front that is not filled, wanted by somebody else than its writer: dropped, so that what is
 * below can be read. 0, or -EBUSY while it is pinned: looked at again by poll. */
int acquire_drop_unfilled(struct engine *e, struct request *request, uint32_t tensor);
void copy_step(struct engine *e, struct request *request);
/* It has waited for others' pins for long enough (copy.c). */
void copy_expire(struct engine *e, struct request *request);
void flush_step(struct engine *e, struct request *request);

struct request *request_new(struct engine *e, struct holder *h, uint32_t id, enum request_kind kind,
			    const struct wire_handle *t, size_t n);
bool handle_live(const struct engine *e, uint32_t index, uint32_t generation);
/* The sentence of the first of its tensors that is no more: there is one. And ends it with that. */
void request_name_stale(const struct engine *e, const struct request *request, char *text,
			size_t room);
void request_stale(struct engine *e, struct request *request);
/* Whether all of its tensors exist. */
bool request_is_live(const struct engine *e, const struct request *request);
/* Waits for the tensor's running move. */
void item_wait(struct engine *e, struct item *item);

#endif
