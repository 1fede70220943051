/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/fence.h"

#include <errno.h>
#include <string.h>

#include "libclient/error.h"

/* `fence_lock` is held in the functions without a prefix. */

/* -ENODEV is not of the tensor's GPU alone: its bytes may have stood on another. */
static const char *failure_cause(const struct fence *f)
{
	if (f->result == -ENODEV)
		return "it was on or for a GPU which was lost";
	return strerror(f->result < 0 && f->result > -4096 ? -f->result : EIO);
}

/* -EIO. */
static int failure_set(struct err *err, const struct fence *f)
{
	return err_set(err, EIO, "tensor %u:%u did not come to its GPU: %s", f->index,
		       f->generation, failure_cause(f));
}

static void take_failure(struct tierd *t, const struct fence *f)
{
	if (t->fence_failed.code != 0)
		return;
	failure_set(&t->fence_failed, f);
	t->fence_failed_tensor = (tierd_tensor){ f->index, f->generation };
}

/* Takes note of what became of a fence; true: it is outstanding still. */
static bool look(struct tierd *t, uint32_t i)
{
	struct fence *f = &t->fences[i];
	uint64_t wanted = t->fence_wanted[i];

	if (wanted == 0)
		return false;
	/* Pairs with the daemon's store, which comes after the failure's. */
	if (atomic_load_explicit(&f->value, memory_order_acquire) < wanted)
		return true;
	if (atomic_load_explicit(&f->failed_at, memory_order_relaxed) == wanted)
		take_failure(t, f);
	t->fence_wanted[i] = 0;
	return false;
}

static bool look_at_all(struct tierd *t)
{
	bool left = false;

	for (uint32_t i = 0; i < t->fence_count; i++)
		left = look(t, i) || left;
	return left;
}

int fence_expect(struct tierd *t, uint64_t token)
{
	uint32_t i = fence_token_index(token);
	int rc = 0;

	if (token == 0)
		return 0;
	if (i >= t->fence_count || fence_token_value(token) == 0)
		return error_set(EPROTO, "fence %u: there is none", i);
	pthread_mutex_lock(&t->fence_lock);
	if (t->fences_let_go)
		rc = error_set(EPIPE, "the daemon has gone");
	/* The daemon takes a fence again only after its value was stored. */
	else if (look(t, i))
		rc = error_set(EPROTO, "fence %u was handed out twice", i);
	else
		t->fence_wanted[i] = fence_token_value(token);
	pthread_mutex_unlock(&t->fence_lock);
	return rc;
}

bool fence_passed(struct tierd *t, uint64_t token)
{
	return token == 0 || atomic_load_explicit(&t->fences[fence_token_index(token)].value,
						  memory_order_acquire) >= fence_token_value(token);
}

void *fence_word(struct tierd *t, uint64_t token)
{
	return &t->fences[fence_token_index(token)].value;
}

int fence_failure(struct tierd *t)
{
	int rc = 0;

	pthread_mutex_lock(&t->fence_lock);
	look_at_all(t);
	if (t->fence_failed.code != 0)
		rc = error_set(-t->fence_failed.code, "%s", t->fence_failed.text);
	t->fence_failed.code = 0;
	pthread_mutex_unlock(&t->fence_lock);
	return rc;
}

int fence_token_failure(struct tierd *t, uint64_t token)
{
	uint32_t i = fence_token_index(token);
	uint64_t value = fence_token_value(token);
	const struct fence *f = &t->fences[i];
	int rc = 0;

	if (token == 0 || !fence_passed(t, token))
		return 0;
	pthread_mutex_lock(&t->fence_lock);
	if (atomic_load_explicit(&f->failed_at, memory_order_relaxed) == value) {
		rc = failure_set(error_slot(), f);
		if (t->fence_wanted[i] == value)
			t->fence_wanted[i] = 0;
	}
	pthread_mutex_unlock(&t->fence_lock);
	return rc;
}

int fence_failure_of(struct tierd *t, tierd_tensor h)
{
	int rc;

	pthread_mutex_lock(&t->fence_lock);
	look_at_all(t);
	if (t->fence_failed_tensor.index == h.index &&
	    t->fence_failed_tensor.generation == h.generation) {
		rc = error_set(EIO, "%s", t->fence_failed.text);
		t->fence_failed.code = 0;
	} else
		rc = error_set(EIO, "tensor %u:%u did not come to its GPU", h.index, h.generation);
	pthread_mutex_unlock(&t->fence_lock);
	return rc;
}

bool fence_none_left(struct tierd *t)
{
	bool left;

	pthread_mutex_lock(&t->fence_lock);
	left = look_at_all(t);
	pthread_mutex_unlock(&t->fence_lock);
	return !left;
}

void fence_let_go(struct tierd *t)
{
	pthread_mutex_lock(&t->fence_lock);
	t->fences_let_go = true;
	for (uint32_t i = 0; i < t->fence_count; i++)
		if (look(t, i))
			atomic_store_explicit(&t->fences[i].value, t->fence_wanted[i],
					      memory_order_seq_cst);
	pthread_mutex_unlock(&t->fence_lock);
}
