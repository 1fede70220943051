/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/digest.h"

#include <poll.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/crc32c.h"
#include "tests/fake/bytes.h"
#include "tests/unit/unit.h"

#define JOBS  96u
#define BYTES MIB(1)

struct world {
	struct digest digest;
	unsigned char *from, *to;
	struct digest_job jobs[JOBS];
	unsigned back[JOBS]; /* how often each came back */
	unsigned came;
	bool urgent; /* what is queued from now on */
};

BYTES_UNSEEN static void words_fill(uint64_t *to, uint64_t bytes)
{
	bytes_are_written(to, bytes);
	for (uint64_t i = 0; i < bytes / 8; i++)
		to[i] = (i + 1) * 0x9e3779b97f4a7c15ull;
}

static void world_open(struct world *w, unsigned threads)
{
	struct err err = ERR_INIT;

	memset(w, 0, sizeof(*w));
	ck_assert_int_eq(digest_start(&w->digest, "nvme0", threads, &err), 0);
	w->from = malloc(JOBS * BYTES);
	w->to = calloc(JOBS, BYTES);
	ck_assert(w->from != NULL && w->to != NULL);
	words_fill((uint64_t *)w->from, JOBS * BYTES);
}

static void world_close(struct world *w)
{
	digest_stop(&w->digest);
	free(w->from);
	free(w->to);
}

/* Odd ones are only summed. Lengths differ, and are no multiples of anything. */
static void queue(struct world *w, unsigned i)
{
	w->jobs[i] = (struct digest_job){ .from = w->from + i * BYTES,
					  .to = i % 2 == 0 ? w->to + i * BYTES : NULL,
					  .bytes = BYTES - i * 1013,
					  .urgent = w->urgent };
	list_init(&w->jobs[i].link);
	digest_queue(&w->digest, &w->jobs[i]);
}

static void came(struct world *w, const struct digest_job *job)
{
	w->back[job - w->jobs]++;
	w->came++;
}

static void check_all(struct world *w)
{
	for (unsigned i = 0; i < JOBS; i++) {
		const struct digest_job *job = &w->jobs[i];

		ck_assert_uint_eq(w->back[i], 1);
		ck_assert_uint_eq(job->crc, crc32c(0, job->from, job->bytes));
		if (job->to != NULL)
			ck_assert(bytes_equal(job->to, job->from, job->bytes));
		ck_assert_uint_eq(w->to[i * BYTES + job->bytes], 0);
	}
}

START_TEST(without_helpers_the_lane_does_all_in_order)
{
	static struct world w;

	world_open(&w, 0);
	ck_assert_ptr_null(digest_help(&w.digest));
	for (unsigned i = 0; i < JOBS; i++)
		queue(&w, i);
	for (unsigned i = 0; i < JOBS; i++) {
		ck_assert_ptr_null(digest_reap(&w.digest));
		ck_assert_ptr_eq(digest_help(&w.digest), &w.jobs[i]);
		came(&w, &w.jobs[i]);
	}
	ck_assert_ptr_null(digest_help(&w.digest));
	check_all(&w);
	world_close(&w);
}
END_TEST

START_TEST(urgent_ones_go_before_all_others_and_each_kind_in_order)
{
	static struct world w;
	unsigned next[2] = { 0, 1 }; /* every third is urgent */

	world_open(&w, 0);
	for (unsigned i = 0; i < JOBS; i++) {
		w.urgent = i % 3 == 0;
		queue(&w, i);
	}
	for (unsigned i = 0; i < JOBS; i++) {
		bool rest = next[0] >= JOBS;

		ck_assert_ptr_eq(digest_help(&w.digest), &w.jobs[next[rest]]);
		came(&w, &w.jobs[next[rest]]);
		next[rest] += rest ? 1 + (next[rest] % 3 == 2) : 3;
	}
	check_all(&w);
	world_close(&w);
}
END_TEST

/* The lane only waits, by the descriptor, which is readable as long as there is something. */
START_TEST(helpers_alone_do_a_backlog)
{
	static struct world w;
	struct pollfd p = { .events = POLLIN };

	world_open(&w, 3);
	p.fd = w.digest.fd;
	for (unsigned i = 0; i < JOBS; i++)
		queue(&w, i);
	while (w.came < JOBS) {
		struct digest_job *job;

		ck_assert_int_eq(poll(&p, 1, 60000), 1);
		job = digest_reap(&w.digest);
		ck_assert_ptr_nonnull(job);
		came(&w, job);
	}
	ck_assert_int_eq(poll(&p, 1, 0), 0);
	ck_assert_ptr_null(digest_reap(&w.digest));
	check_all(&w);
	world_close(&w);
}
END_TEST

/* Wakes for one would cost more than the sum. */
START_TEST(one_alone_is_the_lanes)
{
	static struct world w;

	world_open(&w, 2);
	for (unsigned i = 0; i < JOBS; i++) {
		/* Threads wait from now on; before that they would take what is there. */
		for (bool ready = false; !ready;) {
			pthread_mutex_lock(&w.digest.lock);
			ready = w.digest.idle == w.digest.count;
			pthread_mutex_unlock(&w.digest.lock);
		}
		queue(&w, i);
		ck_assert_ptr_eq(digest_help(&w.digest), &w.jobs[i]);
		came(&w, &w.jobs[i]);
	}
	check_all(&w);
	world_close(&w);
}
END_TEST

START_TEST(lane_and_helpers_share_and_each_comes_back_once)
{
	static struct world w;

	for (unsigned round = 0; round < 20; round++) {
		unsigned queued = 0;

		world_open(&w, 1 + round % DIGEST_THREADS_MAX);
		while (w.came < JOBS) {
			struct digest_job *job;

			for (unsigned n = 0; n < 7 && queued < JOBS; n++)
				queue(&w, queued++);
			job = digest_help(&w.digest);
			if (job != NULL)
				came(&w, job);
			while ((job = digest_reap(&w.digest)) != NULL)
				came(&w, job);
		}
		ck_assert_uint_eq(w.digest.lent, 0);
		check_all(&w);
		world_close(&w);
	}
}
END_TEST

UNIT_MAIN("digest", without_helpers_the_lane_does_all_in_order,
	  urgent_ones_go_before_all_others_and_each_kind_in_order, helpers_alone_do_a_backlog,
	  one_alone_is_the_lanes, lane_and_helpers_share_and_each_comes_back_once)
