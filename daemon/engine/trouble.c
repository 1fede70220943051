/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/trouble.h"

#include <stdio.h>

#include "daemon/engine/request.h"

static void note(struct clean_trouble *t, const struct move *m, uint64_t before_ns)
{
	t->error = m->result;
	t->failed_before_ns = MAX(t->failed_before_ns, before_ns);
	snprintf(t->cause, sizeof(t->cause), "%s", m->cause);
}

void trouble_note(struct engine *e, const struct move *m, uint64_t before_ns)
{
	uint8_t device = record_of(e, m->tensor)->front;

	note(&e->devices[device].trouble, m, before_ns);
	note(&share_of(e, m->tensor, device)->trouble, m, before_ns);
}

static void forget(struct clean_trouble *t)
{
	t->error = 0;
	t->failed_before_ns = 0;
}

void trouble_forget(struct engine *e, uint32_t tensor)
{
	uint8_t device = record_of(e, tensor)->front;

	forget(&e->devices[device].trouble);
	forget(&share_of(e, tensor, device)->trouble);
}

/* Whether something is left alone there that would have made room. */
static bool any_broken(const struct engine *e, uint8_t device, struct quota_demand demand)
{
	demand.whole = true;
	for (uint32_t i = 0; i < e->backoff_count; i++) {
		uint64_t at = ((uint64_t)e->backoff_first + i) % e->params.tensors;
		uint32_t tensor = e->backoff[at].tensor;
		const struct record *r = &e->records[tensor];

		if ((r->flags & RECORD_BACKOFF) != 0 && r->front == device &&
		    quota_yields(e, &demand, tensor, device))
			return true;
	}
	return false;
}

/* Who waits for its own is not told of others' tensors. */
static const struct clean_trouble *trouble_of(const struct engine *e, uint8_t device,
					      const struct quota_demand *demand)
{
	const struct device *d = &e->devices[device];

	return demand->own ? &demand->account->pool[d->pool].trouble : &d->trouble;
}

/* Nothing below takes the bytes. Who was told of a first failure could be told of what a second
 * has healed. */
void trouble_tell(struct engine *e, struct request *q, uint8_t device,
		  const struct quota_demand *demand)
{
	const struct clean_trouble *t = trouble_of(e, device, demand);

	if (t->failed_before_ns != 0 && t->failed_before_ns >= q->begin_ns &&
	    any_broken(e, device, *demand))
		request_finish(e, q, t->error, t->cause);
}

const char *trouble_text(struct engine *e, struct request *q)
{
	uint64_t over;
	const struct account *limited = quota_limits(e, q, &over);
	struct quota_demand demand = {
		.account = limited != NULL ? limited : quota_of_request(e, q),
		.own = limited != NULL,
		.asks = limited == NULL,
	};
	const struct clean_trouble *t = trouble_of(e, q->device, &demand);

	return t->error != 0 && any_broken(e, q->device, demand) ? t->cause : NULL;
}
