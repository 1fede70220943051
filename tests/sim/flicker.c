/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/flicker.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "tests/sim/world.h"

struct flicker {
	pthread_t thread;
	struct holder *holder;
	pin_slot pins[WORLD_TENSORS];
	_Atomic bool stop;
};

static void *flicker_main(void *arg)
{
	struct flicker *f = arg;

	for (unsigned i = 0; !atomic_load_explicit(&f->stop, memory_order_relaxed); i++) {
		atomic_fetch_xor(&f->pins[i * 7919u % WORLD_TENSORS], PIN_ONE);
		for (unsigned j = 0; j < i % 64; j++)
			atomic_signal_fence(memory_order_seq_cst);
	}
	return NULL;
}

struct flicker *flicker_start(struct engine *e)
{
	struct flicker *f = calloc(1, sizeof(*f));
	struct err err = ERR_INIT;
	int rc;

	ASSERT(f != NULL);
	do
		rc = engine_holder_add(e, "a", 1, &(struct holder_tables){ .pins = f->pins }, 999,
				       NULL, &f->holder, &err);
	while (rc == -ENOMEM); /* which a run may be short of */
	ASSERT(rc == 0);
	ASSERT(pthread_create(&f->thread, NULL, flicker_main, f) == 0);
	return f;
}

void flicker_stop(struct flicker *f, struct engine *e, uint64_t now_ns)
{
	atomic_store(&f->stop, true);
	ASSERT(pthread_join(f->thread, NULL) == 0);
	engine_holder_die(e, f->holder, now_ns);
}
