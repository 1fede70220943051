/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench/sides.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"

#define WAIT_NS (60ll * 1000000000ll)

static int use(struct side *s, int place, uint32_t access)
{
	struct tierd_view views[SIDE_TENSORS];
	int rc = tierd_acquire_batch(s->t, s->set, s->n, place, access, WAIT_NS, views);

	for (unsigned i = 0; rc == 0 && i < s->n; i++)
		tierd_release(s->t, &views[i]);
	return rc;
}

static int write_once(struct side *s)
{
	for (unsigned i = 0; i < s->n; i++) {
		struct tierd_view v;
		int rc = tierd_acquire(s->t, s->set[i], TIERD_HOST, TIERD_WRITE | TIERD_DISCARD,
				       WAIT_NS, &v);

		if (rc < 0)
			return rc;
		memset(v.data, (int)i + 1, v.bytes);
		tierd_release(s->t, &v);
	}
	return 0;
}

int side_open(struct side *s, const char *socket, enum gpu_direction direction, int place,
	      uint64_t bytes, unsigned n)
{
	struct tierd_spec specs[SIDE_TENSORS];
	int rc;

	*s = (struct side){ .direction = direction, .place = place, .bytes = bytes, .n = n };
	for (unsigned i = 0; i < n; i++)
		specs[i] =
			(struct tierd_spec){ .class_ = TIERD_OTHER, .ndim = 1, .shape = { bytes } };
	rc = tierd_open(socket, "bench-copy", 0, &s->t);
	if (rc < 0)
		return rc;
	rc = tierd_create(s->t, specs, n, s->set);
	if (rc == 0)
		rc = write_once(s);
	if (rc < 0)
		side_close(s);
	return rc;
}

static void unregister(struct side *s)
{
	for (unsigned i = 0; i < s->n && s->registered != NULL; i++)
		card_unregister(s->registered, s->pages[i]);
	s->registered = NULL;
}

void side_close(struct side *s)
{
	unregister(s);
	if (s->t != NULL)
		tierd_close(s->t);
	s->t = NULL;
}

/* Up: the front is in dram, so the last round's copy on the GPU is dropped. Down: the GPU has the
 * only bytes, which a writer that discards puts there without a copy. */
static int prepare(struct side *s)
{
	if (s->direction == GPU_UP)
		return use(s, TIERD_HOST, TIERD_READ);
	return use(s, s->place, TIERD_WRITE | TIERD_DISCARD);
}

/* They stand where they stood, unless a round had to make room. */
static bool have_moved(const struct side *s)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->pages[i] != s->held[i].data)
			return true;
	return false;
}

int side_hold(struct side *s, const struct card *gpu)
{
	uint32_t access = s->direction == GPU_UP ? TIERD_READ : TIERD_WRITE | TIERD_DISCARD;
	int rc = tierd_acquire_batch(s->t, s->set, s->n, TIERD_HOST, access, WAIT_NS, s->held);

	if (rc < 0 || !have_moved(s))
		return rc;
	unregister(s);
	for (unsigned i = 0; i < s->n; i++) {
		s->pages[i] = s->held[i].data;
		card_register(gpu, s->pages[i], s->bytes);
	}
	s->registered = gpu;
	return 0;
}

void side_let_go(struct side *s)
{
	for (unsigned i = 0; i < s->n; i++)
		tierd_release(s->t, &s->held[i]);
}

static void move(struct side *s)
{
	s->begin_ns = clock_now_ns();
	if (s->rc == 0)
		s->rc = use(s, s->direction == GPU_UP ? s->place : TIERD_HOST, TIERD_READ);
	s->end_ns = clock_now_ns();
}

uint64_t side_round(struct side *s)
{
	s->rc = prepare(s);
	move(s);
	return s->rc == 0 ? s->end_ns - s->begin_ns : 0;
}

/* ---- several at once ---- */

/* They begin within the time that a store takes to be seen: all of them look. */
static void *round_main(void *arg)
{
	struct side *s = arg;

	s->rc = prepare(s);
	atomic_fetch_add(s->go, 1);
	while (atomic_load(s->go) < s->parties)
		;
	move(s);
	return NULL;
}

uint64_t sides_round(struct side *sides, unsigned n)
{
	_Atomic unsigned go = 0;
	uint64_t begin = UINT64_MAX, end = 0;
	bool failed = false;

	for (unsigned i = 0; i < n; i++) {
		sides[i].go = &go;
		sides[i].parties = n;
		if (pthread_create(&sides[i].thread, NULL, round_main, &sides[i]) != 0)
			abort();
	}
	for (unsigned i = 0; i < n; i++) {
		pthread_join(sides[i].thread, NULL);
		begin = MIN(begin, sides[i].begin_ns);
		end = MAX(end, sides[i].end_ns);
		failed |= sides[i].rc < 0;
	}
	return failed ? 0 : end - begin;
}

static void *endless_main(void *arg)
{
	struct side *s = arg;

	while (!atomic_load(&s->stop) && side_round(s) > 0)
		s->rounds++;
	return NULL;
}

int side_start(struct side *s)
{
	atomic_store(&s->stop, false);
	s->rounds = 0;
	return -pthread_create(&s->thread, NULL, endless_main, s);
}

int side_end(struct side *s)
{
	atomic_store(&s->stop, true);
	pthread_join(s->thread, NULL);
	return s->rc;
}
