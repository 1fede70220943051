/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/fence.h"

#include <errno.h>

#include "base/heap.h"
#include "daemon/engine/failed.h"
#include "daemon/engine/request.h"

#define VALUE_MAX 0xffffffffffffull /* of a token */

/* First in, first out: what a fence says of a failure stands as long as it can before its next one
 * overwrites it. The values are the daemon's own: what stands in the client's memory is a copy. */
struct fence_pool {
	uint64_t value[FENCES]; /* last handed out */
	uint16_t free[FENCES];
	unsigned first, count, spent; /* spent: has no values left */
};

static struct fence_pool *pool_of(struct holder *h)
{
	if (h->pool != NULL)
		return h->pool;
	h->pool = heap_zeros(1, sizeof(*h->pool));
	if (h->pool == NULL)
		return NULL;
	for (unsigned i = 0; i < FENCES; i++)
		h->pool->free[i] = (uint16_t)i;
	h->pool->count = FENCES;
	return h->pool;
}

bool fence_take(struct request *q, uint64_t *ret_token)
{
	struct fence_pool *p = pool_of(q->holder);

	if (p == NULL || p->count == 0)
		return false;
	q->fence = p->free[p->first];
	p->first = (p->first + 1) % FENCES;
	p->count--;
	q->fence_value = ++p->value[q->fence];
	*ret_token = fence_token(q->fence, q->fence_value);
	return true;
}

static void fence_give(struct holder *h, uint32_t fence)
{
	struct fence_pool *p = h->pool;

	if (p->value[fence] == VALUE_MAX) {
		p->spent++;
		return;
	}
	p->free[(p->first + p->count) % FENCES] = (uint16_t)fence;
	p->count++;
}

unsigned fences_out(const struct holder *h)
{
	return h->pool == NULL ? 0 : FENCES - h->pool->count - h->pool->spent;
}

/* What failed comes before the value that says that it is over. */
static void fence_store(const struct request *q)
{
	struct fence *f = &q->holder->fences[q->fence];

	if (q->result < 0) {
		const struct item *item = &q->items[q->failed];

		__atomic_store_n(&f->result, q->result, __ATOMIC_RELAXED);
		__atomic_store_n(&f->index, item->tensor, __ATOMIC_RELAXED);
		__atomic_store_n(&f->generation, item->generation, __ATOMIC_RELAXED);
		atomic_store_explicit(&f->failed_at, q->fence_value, memory_order_release);
	}
	atomic_store_explicit(&f->value, q->fence_value, memory_order_release);
}

static void forget(struct engine *e, struct request *q)
{
	for (size_t i = 0; i < q->n; i++)
		record_of(e, q->items[i].tensor)->granted--;
	acquire_release_items(e, q);
	e->unblocked = true;
	look_at_queues(e);
	list_remove(&q->holder_link);
	q->magic = 0;
	heap_free(q);
}

void fence_item_ended(struct engine *e, struct item *item, const struct move *m)
{
	struct request *q = item->request;
	int rc = fill_result(m);

	ASSERT(q->granted && q->open > 0);
	if (rc < 0 && q->result == 0) {
		q->result = rc;
		q->failed = (uint32_t)(item - q->items);
	}
	if (rc == 0) {
		item->ready = true;
		record_of(e, item->tensor)->ready++;
	}
	if (--q->open > 0)
		return;
	fence_store(q);
	fence_give(q->holder, q->fence);
	forget(e, q);
}

void fences_forget(struct engine *e, struct holder *h)
{
	struct list *it, *tmp;

	list_for_each_safe (it, tmp, &h->granted)
		forget(e, list_entry(it, struct request, holder_link));
	heap_free(h->pool);
	h->pool = NULL;
}
