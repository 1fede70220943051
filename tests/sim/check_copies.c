/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_in and copy_out beside whatever else is done with the tensor.
 */
#include "tests/unit/unit.h"

#include <errno.h>

#include "tests/sim/rig.h"

#define HOST  PROTOCOL_PLACE_HOST
#define LARGE (WORLD_DRAM + WORLD_BLOCK)

/* A dirty tensor on hbm whose write-back takes every staging slot of its direction. */
static void fill_staging(struct rig *r)
{
	struct wire_handle t = rig_create(r, 0, 8 * WORLD_BLOCK);
	char *at = rig_pin(r, 0, t, 0, ACCESS_WRITE);

	memset(at, 1, 8 * WORLD_BLOCK);
	rig_unpin(r, 0, t, ACCESS_WRITE);
	rig_flush_all(r, 0, 1, &t, 1);
}

START_TEST(a_cancelled_copy_leaves_the_old_bytes_or_the_new)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle t = rig_create(r, 1, LARGE);
	char old[WORLD_BLOCK], new[WORLD_BLOCK], got[WORLD_BLOCK] = { 0 };

	memset(old, 'o', sizeof(old));
	memset(new, 'n', sizeof(new));
	rig_copy(r, 1, 1, t, true, sizeof(old), old);
	ck_assert_int_eq(rig_wait(r, 1, 1, 10), 0);
	fill_staging(r);
	rig_copy(r, 1, 2, t, true, sizeof(new), new);
	engine_cancel(r->world.engine, r->client[1].holder, 2, r->world.now_ns);
	ck_assert_int_eq(r->client[1].result[2], -EINTR);
	rig_settle(r, 10);
	rig_copy(r, 1, 3, t, false, sizeof(got), got);
	ck_assert_int_eq(rig_wait(r, 1, 3, 10), 0);
	ck_assert(memcmp(got, old, sizeof(got)) == 0 || memcmp(got, new, sizeof(got)) == 0);
	rig_close(r);
}
END_TEST

/* "Resident now" sends the client to pin it: that has to work, or the two would ask each other for
 * ever. */
static void copy_of_unfilled(uint64_t bytes, uint8_t place, bool in)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle t = rig_create(r, 0, bytes);
	char window[WORLD_BLOCK] = { 0 };
	int rc;

	rig_acquire(r, 0, 1, t, place, ACCESS_WRITE | ACCESS_DISCARD, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 1, 10), 0);
	ck_assert(word0_flags(rig_word0(r, t)) & FLAG_UNFILLED);
	rig_copy(r, 1, 2, t, in, sizeof(window), window);
	rc = rig_wait(r, 1, 2, 1000);
	ck_assert(rc == 0 || rc == -EAGAIN);
	if (rc == -EAGAIN) {
		ck_assert_int_eq(word0_state(rig_word0(r, t)), STATE_RESIDENT);
		ck_assert(!(word0_flags(rig_word0(r, t)) & FLAG_UNFILLED));
	}
	rig_close(r);
}

START_TEST(a_copy_of_an_unfilled_front_comes_to_an_end)
{
	copy_of_unfilled(8 * WORLD_BLOCK, HOST, false);
	copy_of_unfilled(8 * WORLD_BLOCK, HOST, true);
	copy_of_unfilled(8 * WORLD_BLOCK, 0, false);
	copy_of_unfilled(8 * WORLD_BLOCK, 0, true);
}
END_TEST

/* The writer has pinned it and was stopped before it said `filled`: the old bytes are the tensor's
 * for as long as he is. */
static void copy_beside_who_was_stopped(struct rig *r, struct wire_handle t, char c)
{
	char window[WORLD_BLOCK], wanted[WORLD_BLOCK];
	char *at;

	memset(wanted, c, sizeof(wanted));
	memset(window, '?', sizeof(window));
	rig_acquire(r, 0, 1, t, 0, ACCESS_WRITE | ACCESS_DISCARD, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 1, 10), 0);
	at = rig_try(r, 0, t, 0, ACCESS_WRITE);
	ck_assert_ptr_nonnull(at);
	ck_assert(word0_flags(rig_word0(r, t)) & FLAG_UNFILLED);
	rig_copy(r, 1, 2, t, false, sizeof(window), window);
	ck_assert_int_eq(rig_wait(r, 1, 2, 1000), 0);
	ck_assert_mem_eq(window, wanted, sizeof(window));
	/* Who would overwrite some of it waits: the rest may still become the writer's. */
	rig_copy(r, 1, 3, t, true, sizeof(window), window);
	ck_assert_int_eq(rig_wait(r, 1, 3, 100), RIG_UNANSWERED);
	atomic_fetch_or(&r->client[0].pins[t.index], PIN_FILLED);
	memset(at, 'n', WORLD_BLOCK);
	ck_assert_int_eq(rig_wait(r, 1, 3, 100), -EAGAIN);
	rig_copy(r, 1, 2, t, false, sizeof(window), window);
	ck_assert_int_eq(rig_wait(r, 1, 2, 100), -EAGAIN);
	rig_unpin(r, 0, t, ACCESS_WRITE);
}

/* A tensor of client 2 whose bytes are all 'o', and on nvme alone. */
static struct wire_handle create_on_nvme(struct rig *r)
{
	struct wire_handle t = rig_create_filled(r, 2, 'o');
	struct wire_handle all = rig_create(r, 2, WORLD_DRAM);

	rig_pin(r, 2, all, HOST, ACCESS_READ);
	rig_unpin(r, 2, all, ACCESS_READ);
	ck_assert_int_eq(word0_state(rig_word0(r, t)), STATE_ABSENT);
	rig_destroy(r, 2, all);
	return t;
}

START_TEST(a_writer_who_is_stopped_leaves_the_old_bytes_to_copies)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });

	copy_beside_who_was_stopped(r, rig_create_filled(r, 0, 'o'), 'o');
	copy_beside_who_was_stopped(r, rig_create(r, 0, 4 * WORLD_BLOCK), 0);
	copy_beside_who_was_stopped(r, create_on_nvme(r), 'o');
	rig_close(r);
}
END_TEST

/* ---- while blocks below an unfilled front are read ---- */

struct reading {
	struct rig *r;
	struct wire_handle t;
	char *at; /* the front, pinned by client 0, who has not said `filled` */
	char window[RIG_FILLED];
};

/* Client 1's request 2, of all of it: its first read is on its way. */
static void reading_begin(struct reading *x, uint8_t place)
{
	x->r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	x->t = create_on_nvme(x->r);
	memset(x->window, '?', sizeof(x->window));
	rig_acquire(x->r, 0, 1, x->t, place, ACCESS_WRITE | ACCESS_DISCARD, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(x->r, 0, 1, 10), 0);
	x->at = rig_try(x->r, 0, x->t, place, ACCESS_WRITE);
	ck_assert_ptr_nonnull(x->at);
	rig_copy(x->r, 1, 2, x->t, false, sizeof(x->window), x->window);
	ck_assert_uint_eq(x->r->world.flying, 1);
}

static void fill(struct reading *x)
{
	atomic_fetch_or(&x->r->client[0].pins[x->t.index], PIN_FILLED);
	memset(x->at, 'n', RIG_FILLED);
}

static void die(struct reading *x)
{
	engine_holder_die(x->r->world.engine, x->r->client[0].holder, x->r->world.now_ns);
	x->r->client[0].holder = NULL;
	engine_check(x->r->world.engine);
}

static void ck_all(const char *bytes, char c, size_t n)
{
	ck_assert(rig_all_are(bytes, c, n));
}

/* What is read stays until it has been; then the reader who waits is let in. The copy is not half
 * of the old bytes and half of the new. */
START_TEST(a_reader_of_what_was_filled_meanwhile_waits_for_the_read_alone)
{
	static struct reading x;

	reading_begin(&x, 0);
	fill(&x);
	rig_unpin(x.r, 0, x.t, ACCESS_WRITE);
	engine_used(x.r->world.engine, x.r->client[0].holder, x.t.index, 0,
		    ACCESS_WRITE | ACCESS_DISCARD, x.r->world.now_ns);
	rig_acquire(x.r, 2, 3, x.t, 0, ACCESS_READ, ENGINE_NEVER);
	world_turn(&x.r->world, NS_PER_S);
	engine_check(x.r->world.engine);
	ck_assert(!x.r->client[2].answered[3] && !x.r->client[1].answered[2]);
	ck_assert(world_finish_one(&x.r->world));
	ck_assert(x.r->client[2].answered[3] && x.r->client[1].answered[2]);
	ck_assert_int_eq(x.r->client[2].result[3], 0);
	ck_all(rig_try(x.r, 2, x.t, 0, ACCESS_READ), 'n', RIG_FILLED);
	ck_assert_int_eq(x.r->client[1].result[2], -EAGAIN);
	rig_unpin(x.r, 2, x.t, ACCESS_READ);
	rig_close(x.r);
}
END_TEST

START_TEST(what_was_filled_meanwhile_goes_elsewhere_and_down)
{
	static struct reading x;

	reading_begin(&x, 0);
	fill(&x);
	rig_unpin(x.r, 0, x.t, ACCESS_WRITE);
	ck_assert_int_eq(rig_flush(x.r, 2, x.t), 0);
	ck_all(rig_pin(x.r, 2, x.t, HOST, ACCESS_READ), 'n', RIG_FILLED);
	ck_assert_int_eq(rig_wait(x.r, 1, 2, 100), -EAGAIN);
	rig_unpin(x.r, 2, x.t, ACCESS_READ);
	rig_close(x.r);
}
END_TEST

/* Nobody will fill it any more, so it goes, and the copy goes on. */
START_TEST(a_front_whose_writer_dies_meanwhile_goes)
{
	static struct reading x;

	reading_begin(&x, HOST);
	die(&x);
	ck_assert_int_eq(rig_wait(x.r, 1, 2, 100), 0);
	ck_all(x.window, 'o', RIG_FILLED);
	ck_assert_int_eq(word0_state(rig_word0(x.r, x.t)), STATE_ABSENT);
	rig_close(x.r);
}
END_TEST

START_TEST(what_a_writer_has_filled_who_dies_meanwhile_stays)
{
	static struct reading x;

	reading_begin(&x, HOST);
	fill(&x);
	die(&x);
	ck_assert_int_eq(rig_wait(x.r, 1, 2, 100), -EAGAIN);
	ck_all(rig_pin(x.r, 1, x.t, 0, ACCESS_READ), 'n', RIG_FILLED);
	rig_close(x.r);
}
END_TEST

START_TEST(a_tensor_that_is_destroyed_meanwhile_is_gone_after_the_read)
{
	static struct reading x;

	reading_begin(&x, 0);
	rig_destroy(x.r, 2, x.t);
	ck_assert_int_eq(rig_wait(x.r, 1, 2, 100), -ESTALE);
	fill(&x);
	rig_settle(x.r, 100);
	ck_assert_uint_eq(word0_generation(rig_word0(x.r, x.t)), x.t.generation);
	rig_unpin(x.r, 0, x.t, ACCESS_WRITE);
	rig_settle(x.r, 100);
	ck_assert_uint_ne(word0_generation(rig_word0(x.r, x.t)), x.t.generation);
	rig_close(x.r);
}
END_TEST

START_TEST(a_copy_that_is_cancelled_meanwhile_leaves_its_window_alone)
{
	static struct reading x;

	reading_begin(&x, 0);
	engine_cancel(x.r->world.engine, x.r->client[1].holder, 2, x.r->world.now_ns);
	ck_assert_int_eq(x.r->client[1].result[2], -EINTR);
	fill(&x);
	rig_settle(x.r, 10);
	ck_all(x.window, '?', RIG_FILLED);
	rig_copy(x.r, 1, 2, x.t, false, sizeof(x.window), x.window);
	ck_assert_int_eq(rig_wait(x.r, 1, 2, 100), -EAGAIN);
	rig_close(x.r);
}
END_TEST

/* The front is lost, and what is below it is still the tensor. */
START_TEST(a_gpu_that_is_lost_meanwhile_takes_the_front_alone)
{
	static struct reading x;
	struct wire_handle other;

	reading_begin(&x, 0);
	other = rig_create(x.r, 2, WORLD_BLOCK);
	world_lose(&x.r->world, 0);
	rig_acquire(x.r, 2, 3, other, 0, ACCESS_READ, ENGINE_NEVER);
	rig_settle(x.r, 10);
	ck_assert_int_eq(x.r->client[2].result[3], -ENODEV);
	rig_unpin(x.r, 0, x.t, ACCESS_WRITE);
	ck_assert_int_eq(rig_wait(x.r, 1, 2, 100), 0);
	ck_all(x.window, 'o', RIG_FILLED);
	ck_assert_uint_eq(x.r->world.stats->tensors_lost, 0);
	rig_close(x.r);
}
END_TEST

/* ---- below a fill that has failed ---- */

/* Clients 0 and 1 pin it, at the GPU's place, and its bytes are all 'o'. */
static struct wire_handle create_failed(struct rig *r, bool stored)
{
	struct wire_handle t = stored ? create_on_nvme(r) : rig_create_filled(r, 2, 'o');

	rig_acquire_on(r, 0, 1, &t, 1, 0, ACCESS_READ);
	ck_assert(r->client[0].answered[1]);
	ck_assert_ptr_nonnull(rig_try(r, 0, t, 0, ACCESS_READ));
	ck_assert_ptr_nonnull(rig_try(r, 1, t, 0, ACCESS_READ));
	r->world.fail_permille = stored ? 1000 : 0;
	r->world.fail_mapped_permille = stored ? 0 : 1000;
	rig_settle(r, 0);
	r->world.fail_permille = r->world.fail_mapped_permille = 0;
	ck_assert_int_eq(word0_state(rig_word0(r, t)), STATE_FAILED);
	return t;
}

static void let_go(struct rig *r, struct wire_handle t)
{
	rig_unpin(r, 0, t, ACCESS_READ);
	rig_unpin(r, 1, t, ACCESS_READ);
}

static void copy_past_failed(bool stored)
{
	static char got[RIG_FILLED];
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle t = create_failed(r, stored);

	/* Also for who pins it: what he looks at are no bytes of the tensor. */
	for (unsigned client = 0; client < 3; client += 2) {
		memset(got, '?', sizeof(got));
		rig_copy(r, client, 2, t, false, sizeof(got), got);
		ck_assert_int_eq(rig_wait(r, client, 2, 100), 0);
		ck_all(got, 'o', sizeof(got));
	}
	let_go(r, t);
	rig_settle(r, 5);
	ck_assert_int_ne(word0_state(rig_word0(r, t)), STATE_FAILED);
	rig_close(r);
}

START_TEST(a_failed_fill_leaves_the_bytes_to_copies_however_long_it_is_pinned)
{
	copy_past_failed(false);
	copy_past_failed(true);
}
END_TEST

/* The first block is being read when something happens. */
static void read_and(void (*event)(struct rig *r, struct wire_handle t), int result)
{
	static char got[RIG_FILLED];
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle t = create_failed(r, true);

	rig_copy(r, 2, 2, t, false, sizeof(got), got);
	ck_assert_uint_eq(r->world.flying, 1);
	event(r, t);
	world_turn(&r->world, 200 * NS_PER_MS);
	engine_check(r->world.engine);
	ck_assert_uint_eq(r->world.flying, 1);
	ck_assert_int_eq(word0_state(rig_word0(r, t)), STATE_FAILED);
	ck_assert_int_eq(rig_wait(r, 2, 2, 500), result);
	ck_assert(result < 0 || rig_all_are(got, 'o', sizeof(got)));
	rig_settle(r, 200);
	ck_assert_int_ne(word0_state(rig_word0(r, t)), STATE_FAILED);
	rig_close(r);
}

static void let_go_and_want(struct rig *r, struct wire_handle t)
{
	rig_acquire(r, 1, 1, t, HOST, ACCESS_READ, ENGINE_NEVER);
	rig_acquire(r, 2, 1, t, 0, ACCESS_READ, ENGINE_NEVER);
	let_go(r, t);
}

static void let_go_and_destroy(struct rig *r, struct wire_handle t)
{
	rig_destroy(r, 2, t);
	let_go(r, t);
}

START_TEST(a_failed_fill_stays_until_what_is_below_was_read)
{
	read_and(let_go, 0);
	read_and(let_go_and_want, -EAGAIN);
	read_and(let_go_and_destroy, -ESTALE);
}
END_TEST

/* ---- who is in the way was stopped ---- */

#define PATIENCE_MS 1000

/* Client 2's request 2 waits for its time and no longer, and says why. */
static void ck_ends(struct rig *r, int result, const char *why)
{
	ck_assert_int_eq(rig_wait(r, 2, 2, PATIENCE_MS - 5), RIG_UNANSWERED);
	ck_assert_int_eq(rig_wait(r, 2, 2, 10), result);
	ck_assert_msg(strstr(r->client[2].text[2], why) != NULL, "%s", r->client[2].text[2]);
}

static void copy_into_failed(bool stored)
{
	static char new[RIG_FILLED], got[RIG_FILLED];
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle t = create_failed(r, stored);

	memset(new, 'n', sizeof(new));
	rig_copy(r, 2, 2, t, true, sizeof(new), new);
	ck_ends(r, -EIO, "; process 101 pins it");
	rig_copy(r, 2, 3, t, false, sizeof(got), got);
	ck_assert_int_eq(rig_wait(r, 2, 3, 100), 0);
	ck_all(got, 'o', sizeof(got)); /* nothing of it was written */
	rig_copy(r, 2, 2, t, true, sizeof(new), new);
	ck_assert_int_eq(rig_wait(r, 2, 2, PATIENCE_MS / 2), RIG_UNANSWERED);
	let_go(r, t);
	ck_assert_int_eq(rig_wait(r, 2, 2, 100), stored ? 0 : -EAGAIN);
	rig_close(r);
}

START_TEST(who_writes_below_a_failed_fill_is_told_that_it_stays_pinned)
{
	copy_into_failed(false);
	copy_into_failed(true);
}
END_TEST

static void copy_into_unfilled(bool stored)
{
	static char new[RIG_FILLED];
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle t = stored ? create_on_nvme(r) : rig_create(r, 0, RIG_FILLED);

	rig_acquire(r, 0, 1, t, 0, ACCESS_WRITE | ACCESS_DISCARD, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 1, 10), 0);
	ck_assert_ptr_nonnull(rig_try(r, 0, t, 0, ACCESS_WRITE));
	rig_copy(r, 2, 2, t, true, sizeof(new), new);
	ck_ends(r, -EBUSY, "is being overwritten; process 100 pins it");
	rig_unpin(r, 0, t, ACCESS_WRITE);
	rig_close(r);
}

START_TEST(who_writes_below_an_unfilled_front_is_told_that_it_stays_pinned)
{
	copy_into_unfilled(false);
	copy_into_unfilled(true);
}
END_TEST

/* And nobody has looked since. */
START_TEST(what_was_filled_when_the_time_is_over_is_nobodys_fault)
{
	static char new[RIG_FILLED];
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle t = rig_create(r, 0, RIG_FILLED);

	rig_acquire(r, 0, 1, t, 0, ACCESS_WRITE | ACCESS_DISCARD, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 1, 10), 0);
	ck_assert_ptr_nonnull(rig_try(r, 0, t, 0, ACCESS_WRITE));
	rig_copy(r, 2, 2, t, true, sizeof(new), new);
	ck_assert_int_eq(rig_wait(r, 2, 2, PATIENCE_MS - 5), RIG_UNANSWERED);
	atomic_fetch_or(&r->client[0].pins[t.index], PIN_FILLED);
	world_turn(&r->world, PATIENCE_MS * NS_PER_MS);
	ck_assert_int_eq(rig_wait(r, 2, 2, 10), -EAGAIN);
	rig_unpin(r, 0, t, ACCESS_WRITE);
	rig_close(r);
}
END_TEST

/* Its bytes stand on another GPU alone. */
START_TEST(who_reads_what_a_failed_fill_keeps_from_him_is_told_so)
{
	static char got[RIG_FILLED];
	struct rig *r = rig_open((struct world_shape){ .hbm = 2, .nvme = 2 });
	struct wire_handle t = rig_create(r, 2, RIG_FILLED);

	memset(rig_pin(r, 2, t, 1, ACCESS_WRITE), 'o', RIG_FILLED);
	rig_unpin(r, 2, t, ACCESS_WRITE);
	rig_acquire_on(r, 0, 1, &t, 1, 0, ACCESS_READ);
	ck_assert(r->client[0].answered[1]);
	ck_assert_ptr_nonnull(rig_try(r, 0, t, 0, ACCESS_READ));
	r->world.fail_mapped_permille = 1000;
	rig_settle(r, 0);
	r->world.fail_mapped_permille = 0;
	ck_assert_int_eq(word0_state(rig_word0(r, t)), STATE_FAILED);
	rig_copy(r, 2, 2, t, false, sizeof(got), got);
	ck_ends(r, -EIO, "injected 5; process 100 pins it");
	rig_unpin(r, 0, t, ACCESS_READ);
	rig_settle(r, 5);
	rig_copy(r, 2, 2, t, false, sizeof(got), got);
	ck_assert_int_eq(rig_wait(r, 2, 2, 100), -EAGAIN);
	rig_close(r);
}
END_TEST

UNIT_MAIN("copies", a_cancelled_copy_leaves_the_old_bytes_or_the_new,
	  a_copy_of_an_unfilled_front_comes_to_an_end,
	  a_writer_who_is_stopped_leaves_the_old_bytes_to_copies,
	  a_reader_of_what_was_filled_meanwhile_waits_for_the_read_alone,
	  what_was_filled_meanwhile_goes_elsewhere_and_down,
	  a_front_whose_writer_dies_meanwhile_goes,
	  what_a_writer_has_filled_who_dies_meanwhile_stays,
	  a_tensor_that_is_destroyed_meanwhile_is_gone_after_the_read,
	  a_copy_that_is_cancelled_meanwhile_leaves_its_window_alone,
	  a_gpu_that_is_lost_meanwhile_takes_the_front_alone,
	  a_failed_fill_leaves_the_bytes_to_copies_however_long_it_is_pinned,
	  a_failed_fill_stays_until_what_is_below_was_read,
	  who_writes_below_a_failed_fill_is_told_that_it_stays_pinned,
	  who_writes_below_an_unfilled_front_is_told_that_it_stays_pinned,
	  what_was_filled_when_the_time_is_over_is_nobodys_fault,
	  who_reads_what_a_failed_fill_keeps_from_him_is_told_so)
