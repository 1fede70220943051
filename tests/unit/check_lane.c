/* SPDX-License-Identifier: Apache-2.0
 *
 * The lane over a backend that the test plays itself: order by priority, -EBUSY, every xfer back
 * exactly once, wake-ups in both directions and none when nobody sleeps.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "tiers/lane.h"

#define DEPTH 4

struct played {
	struct tier_base base;
	int wake_fd;
	struct xfer *held[DEPTH];
	unsigned held_count;
	_Atomic unsigned refused, waits, commits;
	_Atomic bool shut;   /* nothing completes while set */
	sem_t *at_work, *go; /* reap() tells that it is called, and waits; NULL: it does not */
	int start_result;
};

static struct played *of(struct tier *t)
{
	return (struct played *)t;
}

static int played_start(struct tier *t, int wake_fd, struct err *err)
{
	of(t)->wake_fd = wake_fd;
	if (of(t)->start_result < 0)
		return err_set(err, -of(t)->start_result, "played: cannot start");
	return 0;
}

static void played_stop(struct tier *t)
{
	ASSERT(of(t)->held_count == 0);
}

static int played_queue(struct tier *t, struct xfer *x)
{
	struct played *p = of(t);

	if (p->held_count == DEPTH) {
		atomic_fetch_add(&p->refused, 1);
		return -EBUSY;
	}
	p->held[p->held_count++] = x;
	return 0;
}

static void played_commit(struct tier *t)
{
	atomic_fetch_add(&of(t)->commits, 1);
}

static unsigned played_reap(struct tier *t, struct xfer **done, unsigned max)
{
	struct played *p = of(t);

	if (p->held_count == 0 || atomic_load(&p->shut))
		return 0;
	if (p->at_work != NULL) {
		sem_post(p->at_work);
		sem_wait(p->go);
	}
	done[0] = p->held[0];
	memmove(&p->held[0], &p->held[1], --p->held_count * sizeof(p->held[0]));
	return 1;
}

static void played_wait(struct tier *t, int64_t timeout_ns)
{
	struct pollfd fd = { .fd = of(t)->wake_fd, .events = POLLIN };

	atomic_fetch_add(&of(t)->waits, 1);
	/* While shut, only the wake-up ends the wait: what was let go is found after it. */
	poll(&fd, 1, -1);
}

static const struct tier_ops played_ops = {
	.name = "played",
	.lane_start = played_start,
	.lane_stop = played_stop,
	.queue = played_queue,
	.commit = played_commit,
	.reap = played_reap,
	.wait = played_wait,
};

static void play(struct played *p)
{
	memset(p, 0, sizeof(*p));
	p->base = (struct tier_base){
		.magic = TIER_MAGIC, .ops = &played_ops, .bytes = MIB(1), .name = "played"
	};
}

struct control {
	int done_fd;
	_Atomic uint32_t done_wanted;
	struct lane *lane;
	unsigned sleeps;
};

static void control_start(struct control *c, struct played *p)
{
	struct err err = ERR_INIT;

	memset(c, 0, sizeof(*c));
	c->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ck_assert_int_eq(lane_start((struct tier *)p, c->done_fd, &c->done_wanted, &c->lane, &err),
			 0);
}

static void control_stop(struct control *c)
{
	lane_stop(c->lane);
	close(c->done_fd);
}

/* As the control thread does: look, ask to be woken, look once more, sleep. */
static unsigned control_wait(struct control *c, struct xfer **done, unsigned max)
{
	for (;;) {
		struct pollfd fd = { .fd = c->done_fd, .events = POLLIN };
		unsigned n = lane_reap(c->lane, done, max);
		uint64_t count;

		if (n > 0)
			return n;
		atomic_store(&c->done_wanted, 1);
		n = lane_reap(c->lane, done, max);
		if (n == 0) {
			c->sleeps++;
			ck_assert_int_eq(poll(&fd, 1, 20000), 1); /* or a wake-up was lost */
		}
		if (atomic_exchange(&c->done_wanted, 0) == 0)
			ck_assert(read(c->done_fd, &count, sizeof(count)) == 8 || errno == EAGAIN);
		if (n > 0)
			return n;
	}
}

static void submit(struct control *c, struct xfer *x, uint8_t priority)
{
	memset(x, 0, sizeof(*x));
	x->priority = priority;
	x->result = 77; /* the lane's to set */
	lane_submit(c->lane, x);
}

static void wait_until(struct played *p, unsigned waits)
{
	struct timespec pause = { 0, 1000000 };

	for (unsigned i = 0; atomic_load(&p->waits) < waits; i++) {
		ck_assert_uint_lt(i, 20000);
		nanosleep(&pause, NULL);
	}
}

START_TEST(xfers_come_back_in_order_of_priority)
{
	enum { EACH = 20 };
	struct played p;
	struct control c;
	struct xfer x[3 * EACH], *done[64];
	unsigned got = 0, last[XFER_PRIORITIES] = { 0 }, seen[XFER_PRIORITIES] = { 0 };

	play(&p);
	control_start(&c, &p);
	wait_until(&p, 1);
	atomic_store(&p.shut, true);
	for (unsigned i = 0; i < 3 * EACH; i++) {
		submit(&c, &x[i], (uint8_t)(XFER_PREFETCH - i % 3));
		x[i].part = i;
	}
	lane_kick(c.lane);
	wait_until(&p, 2); /* it has taken DEPTH of them, the most urgent ones */
	atomic_store(&p.shut, false);
	lane_kick(c.lane);
	while (got < 3 * EACH) {
		unsigned n = control_wait(&c, done, 64);

		for (unsigned i = 0; i < n; i++) {
			ck_assert_int_eq(done[i]->result, 0);
			ck_assert_uint_le(done[i]->begin_ns, done[i]->end_ns);
			ck_assert(seen[done[i]->priority]++ == 0 ||
				  last[done[i]->priority] < done[i]->part);
			last[done[i]->priority] = done[i]->part;
			/* All more urgent ones are back. */
			for (unsigned above = 0; above < done[i]->priority; above++)
				ck_assert_uint_eq(seen[above], EACH);
		}
		got += n;
	}
	ck_assert_uint_gt(atomic_load(&p.refused), 0);
	ck_assert_uint_eq(lane_reap(c.lane, done, 64), 0);
	control_stop(&c);
}
END_TEST

START_TEST(a_hundred_thousand_xfers_come_back_exactly_once)
{
	enum { COUNT = 512, ROUNDS = 200 };
	struct played p;
	struct control c;
	struct xfer *x = calloc(COUNT, sizeof(*x)), *done[64];
	unsigned total = 0;

	play(&p);
	control_start(&c, &p);
	for (unsigned round = 0; round < ROUNDS; round++) {
		/* Batches of uneven size, so that either side sleeps at every possible moment. */
		for (unsigned i = 0, batch = 1; i < COUNT; batch = batch * 5 % 61 + 1) {
			unsigned n = MIN(batch, COUNT - i), back = 0;

			for (unsigned k = 0; k < n; k++, i++)
				submit(&c, &x[i], (uint8_t)(i % XFER_PRIORITIES));
			lane_kick(c.lane);
			while (back < n) {
				unsigned m = control_wait(&c, done, 64);

				for (unsigned k = 0; k < m; k++) {
					ck_assert_int_eq(done[k]->result, 0);
					done[k]->result = 1; /* twice would be seen */
				}
				back += m;
			}
			ck_assert_uint_eq(back, n);
			total += n;
		}
	}
	ck_assert_uint_eq(total, COUNT * ROUNDS);
	ck_assert_uint_eq(lane_reap(c.lane, done, 64), 0);
	control_stop(&c);
	free(x);
}
END_TEST

START_TEST(an_idle_lane_sleeps_and_a_lane_at_work_is_not_woken)
{
	struct played p;
	struct control c;
	struct xfer x[2], *done[4];
	struct pollfd wake;
	struct timespec pause = { 0, 50000000 };
	sem_t at_work, go;

	play(&p);
	sem_init(&at_work, 0, 0);
	sem_init(&go, 0, 0);
	p.at_work = &at_work;
	p.go = &go;
	control_start(&c, &p);
	wait_until(&p, 1);
	nanosleep(&pause, NULL);
	ck_assert_uint_eq(atomic_load(&p.waits), 1); /* one wait, not a loop of them */
	submit(&c, &x[0], XFER_DEMAND);
	lane_kick(c.lane);
	sem_wait(&at_work);
	/* What woke it was taken, and nothing is written while it is at work. */
	wake = (struct pollfd){ .fd = p.wake_fd, .events = POLLIN };
	submit(&c, &x[1], XFER_DEMAND);
	lane_kick(c.lane);
	ck_assert_int_eq(poll(&wake, 1, 0), 0);
	sem_post(&go);
	sem_post(&go);
	for (unsigned got = 0; got < 2;)
		got += control_wait(&c, done, 4);
	wait_until(&p, 2);
	nanosleep(&pause, NULL);
	ck_assert_uint_eq(atomic_load(&p.waits), 2);
	control_stop(&c);
}
END_TEST

START_TEST(a_lane_that_cannot_start_says_why)
{
	struct played p;
	struct lane *lane = NULL;
	_Atomic uint32_t wanted = 0;
	struct err err = ERR_INIT;

	play(&p);
	p.start_result = -EPERM;
	ck_assert_int_eq(lane_start((struct tier *)&p, -1, &wanted, &lane, &err), -EPERM);
	ck_assert_str_eq(err.text, "played: cannot start");
	ck_assert_ptr_null(lane);
}
END_TEST

START_TEST(stop_waits_for_what_the_backend_holds)
{
	struct played p;
	struct control c;
	struct xfer x, *done[1];

	play(&p);
	control_start(&c, &p);
	submit(&c, &x, XFER_WRITE_BACK);
	lane_kick(c.lane);
	ck_assert_uint_eq(control_wait(&c, done, 1), 1);
	ck_assert_ptr_eq(done[0], &x);
	control_stop(&c); /* asserts that nothing is lent or held */
}
END_TEST

UNIT_MAIN("lane", xfers_come_back_in_order_of_priority,
	  a_hundred_thousand_xfers_come_back_exactly_once,
	  an_idle_lane_sleeps_and_a_lane_at_work_is_not_woken, a_lane_that_cannot_start_says_why,
	  stop_waits_for_what_the_backend_holds)
