/* SPDX-License-Identifier: Apache-2.0
 *
 * libtierd's requests: many waiting threads, signals, deadlines, a daemon that lies or dies, and
 * the hello, against a daemon in a thread.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "libclient/client.h"
#include "libclient/request.h"
#include "tests/unit/fake_daemon.h"
#include "tests/unit/leftovers.h"

static struct fake fake;
static struct tierd *t;

static void begin(void)
{
	fake_start(&fake);
	for (uint32_t i = 1; i < FAKE_TENSORS; i++)
		fake_tensor(&fake, i, 1, STATE_ABSENT, 0, 0, FAKE_TENSOR_SIZE);
	ck_assert_int_eq(tierd_open(fake.path, "job", 0, &t), 0);
}

static void end(void)
{
	tierd_close(t);
	fake_stop(&fake);
}

START_TEST(a_miss_is_one_entry_and_then_a_pin)
{
	struct tierd_view v;

	begin();
	ck_assert_int_eq(tierd_acquire(t, (tierd_tensor){ 9, 1 }, 3, TIERD_READ, -1, &v), 0);
	ck_assert_int_eq(v.place, 3);
	ck_assert_uint_eq(fake_peek(&fake, &fake.counts[OP_ACQUIRE]), 1);
	ck_assert_uint_eq(atomic_load(&fake.slots[9]), PIN_ONE);
	/* The try that missed and the one that hit: only the second tells the daemon that what it
	 * brought is in use. */
	ck_assert_uint_eq(atomic_load(&fake.logs[0].head), 2);
	tierd_release(t, &v);
	end();
}
END_TEST

START_TEST(a_batch_is_one_entry_and_holds_nothing_while_it_waits)
{
	static tierd_tensor h[1000];
	static struct tierd_view v[1000];

	begin();
	for (uint32_t i = 0; i < 1000; i++)
		h[i] = (tierd_tensor){ 1 + i / 2, 1 };
	ck_assert_int_eq(tierd_acquire_batch(t, h, 1000, TIERD_HOST, TIERD_WRITE, -1, v), 0);
	ck_assert_uint_eq(fake_peek(&fake, &fake.counts[OP_ACQUIRE]), 1);
	for (uint32_t i = 0; i < 1000; i++) {
		ck_assert_uint_eq(v[i].tensor.index, 1 + i / 2);
		tierd_release(t, &v[i]);
	}
	ck_assert_uint_eq(atomic_load(&fake.slots[1]) & PIN_ANY, 0);
	end();
}
END_TEST

static void *miss_many(void *arg)
{
	uint32_t first = (uint32_t)(uintptr_t)arg;
	struct tierd_view v;

	for (uint32_t i = 0; i < 300; i++) {
		tierd_tensor h = { first + i, 1 };

		ck_assert_int_eq(tierd_acquire(t, h, TIERD_HOST, TIERD_READ, -1, &v), 0);
		ck_assert_uint_eq(v.tensor.index, h.index);
		tierd_release(t, &v);
	}
	return NULL;
}

START_TEST(eight_threads_miss_at_once)
{
	pthread_t threads[8];

	begin();
	for (uintptr_t i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, miss_many, (void *)(1 + i * 300));
	for (unsigned i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(fake_peek(&fake, &fake.counts[OP_ACQUIRE]), 2400);
	ck_assert_uint_eq(t->ids_taken, 0);
	end();
}
END_TEST

/* 31 requests outstanding a thread: every id but those kept for cancels. */
static void *hold_many(void *arg)
{
	struct call calls[31];

	for (unsigned i = 0; i < 31; i++) {
		ck_assert_int_eq(request_begin(t, 0, OP_ACQUIRE, &calls[i]), 0);
		calls[i].entry.index = 1;
		calls[i].entry.generation = 1;
		request_submit(t, &calls[i]);
	}
	for (unsigned i = 31; i-- > 0;) {
		ck_assert_int_eq(request_wait(t, &calls[i], REQUEST_NEVER), 0);
		request_end(t, &calls[i]);
	}
	return NULL;
}

START_TEST(all_credits_outstanding_from_eight_threads)
{
	pthread_t threads[8];
	struct call c[5];

	fake.hold_acquire = true;
	begin();
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < 8; i++)
			pthread_create(&threads[i], NULL, hold_many, NULL);
		fake_wait_held(&fake, 248);
		for (unsigned i = 0; i < 4; i++)
			ck_assert_int_eq(request_begin(t, CALL_TRY, OP_STEP, &c[i]), 0);
		/* The last four are for cancels. */
		ck_assert_int_eq(request_begin(t, CALL_TRY, OP_STEP, &c[4]), -EAGAIN);
		for (unsigned i = 0; i < 4; i++)
			request_end(t, &c[i]);
		fake_release_held(&fake, 0);
		for (unsigned i = 0; i < 8; i++)
			pthread_join(threads[i], NULL);
		ck_assert_uint_eq(t->ids_taken, 0);
	}
	end();
}
END_TEST

static _Atomic unsigned interrupted, finished;

static void on_signal(int signum)
{
}

static void *wait_for_ever(void *arg)
{
	struct tierd_view v = { .bytes = 5 };
	int rc = tierd_acquire(t, (tierd_tensor){ 8, 1 }, TIERD_HOST, TIERD_WRITE, -1, &v);

	if (rc == -EINTR && v.bytes == 5)
		atomic_fetch_add(&interrupted, 1);
	atomic_fetch_add(&finished, 1);
	return NULL;
}

START_TEST(a_signal_ends_the_wait_of_any_thread)
{
	/* SA_RESTART must make no difference. */
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	pthread_t threads[8];

	sigaction(SIGUSR1, &action, NULL);
	fake.hold_acquire = true;
	begin();
	for (unsigned i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, wait_for_ever, NULL);
	fake_wait_held(&fake, 8);
	/* One after the other, leader or not, none is left behind. A signal that comes before the
	 * thread sleeps is not seen, so it is sent again. */
	for (unsigned i = 0; i < 8; i++)
		while (atomic_load(&finished) == i) {
			pthread_kill(threads[7 - i], SIGUSR1);
			usleep(1000);
		}
	for (unsigned i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(interrupted, 8);
	ck_assert_uint_eq(fake_peek(&fake, &fake.counts[OP_CANCEL]), 8);
	ck_assert_uint_eq(fake_peek(&fake, &fake.held_count), 0);
	ck_assert_uint_eq(atomic_load(&fake.slots[8]), 0);
	ck_assert_int_eq(tierd_step(t), 0);
	end();
}
END_TEST

static void *signal_main_until_done(void *arg)
{
	pthread_t *main_thread = arg;

	while (atomic_load(&finished) == 0) {
		pthread_kill(*main_thread, SIGUSR1);
		usleep(1000);
	}
	return NULL;
}

START_TEST(a_signal_ends_the_wait_though_every_credit_is_out)
{
	struct sigaction action = { .sa_handler = on_signal };
	pthread_t threads[8], signals, self = pthread_self();
	struct tierd_view v;

	sigaction(SIGUSR1, &action, NULL);
	fake.hold_acquire = true;
	begin();
	for (unsigned i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, hold_many, NULL);
	fake_wait_held(&fake, 248);
	pthread_create(&signals, NULL, signal_main_until_done, &self);
	ck_assert_int_eq(tierd_acquire(t, (tierd_tensor){ 8, 1 }, TIERD_HOST, TIERD_READ, -1, &v),
			 -EINTR);
	atomic_store(&finished, 1);
	pthread_join(signals, NULL);
	fake_release_held(&fake, 0);
	for (unsigned i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	end();
}
END_TEST

static void *die_later(void *arg)
{
	fake_wait_held(&fake, 3);
	fake_die(&fake);
	return NULL;
}

static void *wait_for_pipe(void *arg)
{
	struct tierd_view v;

	if (tierd_acquire(t, (tierd_tensor){ 8, 1 }, TIERD_HOST, TIERD_READ, -1, &v) == -EPIPE)
		atomic_fetch_add(&finished, 1);
	return NULL;
}

START_TEST(all_waits_end_when_the_daemon_dies)
{
	pthread_t threads[3], killer;
	struct tierd_view v, held;
	tierd_tensor h;

	begin();
	ck_assert_int_eq(
		tierd_acquire(t, (tierd_tensor){ 1, 1 }, TIERD_HOST, TIERD_READ, -1, &held), 0);
	pthread_mutex_lock(&fake.lock);
	fake.hold_acquire = true;
	pthread_mutex_unlock(&fake.lock);
	for (unsigned i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, wait_for_pipe, NULL);
	pthread_create(&killer, NULL, die_later, NULL);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	pthread_join(killer, NULL);
	ck_assert_uint_eq(finished, 3);
	ck_assert_int_eq(tierd_acquire(t, (tierd_tensor){ 1, 1 }, TIERD_HOST, TIERD_READ, -1, &v),
			 -EPIPE);
	ck_assert_int_eq(tierd_lookup(t, "x", &h), -EPIPE);
	ck_assert_ptr_nonnull(strstr(tierd_error(t), "gone"));
	/* What is held stays readable and can be released. */
	*(volatile char *)held.data;
	tierd_release(t, &held);
	ck_assert_uint_eq(atomic_load(&fake.slots[1]), 0);
	end();
}
END_TEST

static bool lie(struct fake *f, const struct sq_entry *e)
{
	fake_complete(f, (e->id + 9) % SQ_ENTRIES, 0, 1, 8, "");
	fake_complete(f, SQ_ENTRIES, 0, 1, 8, "");
	fake_complete(f, UINT32_MAX, -EIO, 1, 8, "");
	if (e->opcode == OP_LOOKUP)
		fake_complete(f, e->id, 0, 0, UINT32_MAX, "");
	else if (e->opcode == OP_TRIM)
		fake_complete(f, e->id, INT32_MIN, 0, 0, "");
	else if (e->opcode == OP_STAT)
		fake_complete(f, e->id, 0, 0, 64, "");
	else
		fake_complete(f, e->id, 0, 0, 8, "");
	/* Twice, but only at the end: a request that takes the number next would believe it. */
	if (e->opcode == OP_CREATE)
		fake_complete(f, e->id, 0, 0, 0, "");
	return true;
}

START_TEST(hostile_completions_reach_nobody)
{
	struct tierd_spec spec = { .class_ = TIERD_OTHER };
	struct tierd_spec specs[2] = { spec, spec };
	struct tierd_info info = { .bytes = 3 };
	tierd_tensor h[2] = { { 3, 3 }, { 3, 3 } };

	fake.answer = lie;
	begin();
	ck_assert_int_eq(tierd_lookup(t, "x", &h[0]), -EPROTO);
	ck_assert_int_eq(tierd_trim(t), -EPROTO);
	ck_assert_int_eq(tierd_stat(t, h[0], &info), -EPROTO);
	ck_assert_int_eq(tierd_create(t, specs, 2, h), -EPROTO);
	ck_assert_uint_eq(h[0].index, 3);
	ck_assert_uint_eq(info.bytes, 3);
	ck_assert_uint_eq(t->ids_taken, 0);
	ck_assert_uint_gt(t->bad_completions, 0);
	end();
}
END_TEST

static bool wild_tail(struct fake *f, const struct sq_entry *e)
{
	atomic_store(&f->control->cq_tail, f->cq_tail + SQ_ENTRIES + 1);
	return true;
}

START_TEST(a_ring_out_of_range_breaks_the_connection)
{
	tierd_tensor h;

	fake.answer = wild_tail;
	begin();
	ck_assert_int_eq(tierd_lookup(t, "x", &h), -EPIPE);
	ck_assert_ptr_nonnull(strstr(tierd_error(t), "out of range"));
	ck_assert_int_eq(tierd_step(t), -EPIPE);
	end();
}
END_TEST

START_TEST(creations_are_all_or_nothing_across_payloads)
{
	static struct tierd_spec specs[3000];
	static tierd_tensor h[3000];

	begin();
	for (unsigned i = 0; i < 3000; i++)
		specs[i] = (struct tierd_spec){ .dtype = TIERD_F32, .ndim = 1, .shape = { 1 + i } };
	ck_assert_int_eq(tierd_create(t, specs, 3000, h), 0);
	pthread_mutex_lock(&fake.lock);
	ck_assert_uint_eq(fake.descriptors[h[2999].index].bytes, 3000);
	pthread_mutex_unlock(&fake.lock);
	ck_assert_uint_gt(fake_peek(&fake, &fake.counts[OP_CREATE]), 3);
	specs[2999].name = "";
	ck_assert_int_eq(tierd_create(t, specs, 3000, h), -EINVAL);
	specs[2999].name = NULL;
	specs[7] = (struct tierd_spec){ .ndim = 2, .shape = { 1ull << 40, 1ull << 40 } };
	ck_assert_int_eq(tierd_create(t, specs, 3000, h), -EOVERFLOW);
	specs[7].shape[1] = 0;
	ck_assert_int_eq(tierd_create(t, specs, 8, h), 0);
	end();
}
END_TEST

static bool fail_third_create(struct fake *f, const struct sq_entry *e)
{
	if (e->opcode != OP_CREATE || f->counts[OP_CREATE] != 3)
		return false;
	fake_complete(f, e->id, -EEXIST, 0, 0, "\"w\" exists");
	return true;
}

START_TEST(a_failed_creation_destroys_what_it_made)
{
	static struct tierd_spec specs[3500];
	static tierd_tensor h[3500];

	fake.answer = fail_third_create;
	begin();
	ck_assert_int_eq(tierd_create(t, specs, 3500, h), -EEXIST);
	ck_assert_str_eq(tierd_error(t), "\"w\" exists");
	ck_assert_uint_eq(h[0].generation, 0);
	ck_assert_uint_eq(fake_peek(&fake, &fake.counts[OP_DESTROY]), 1);
	ck_assert_uint_eq(t->ids_taken, 0);
	end();
}
END_TEST

static bool resident_now(struct fake *f, const struct sq_entry *e)
{
	uint64_t w = atomic_load(&f->descriptors[e->index].word0);

	if (e->opcode != OP_COPY_OUT || f->counts[OP_COPY_OUT] != 2)
		return false;
	atomic_store(&f->descriptors[e->index].word0,
		     word0_make(word0_generation(w), STATE_RESIDENT, PROTOCOL_PLACE_HOST, 0));
	fake_complete(f, e->id, -EAGAIN, 0, 0, "resident now");
	return true;
}

START_TEST(copies_go_by_windows_or_by_a_pin_and_meet_the_same_bytes)
{
	static char in[5 * WINDOW_BYTES + 77], out[sizeof(in)];
	tierd_tensor h = { 1, 1 };

	fake.answer = resident_now;
	begin();
	fake.descriptors[1].bytes = sizeof(in) + 3;
	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (char)(i * 7 + i / 4096);
	ck_assert_int_eq(tierd_copy_in(t, h, 3, in, sizeof(in)), 0);
	ck_assert_uint_eq(fake_peek(&fake, &fake.counts[OP_COPY_IN]), 6);
	ck_assert_int_eq(tierd_copy_out(t, h, 3, out, sizeof(out)), 0);
	ck_assert_int_eq(memcmp(in, out, sizeof(in)), 0);
	memset(out, 0, sizeof(out));
	ck_assert_int_eq(tierd_copy_out(t, h, 3, out, sizeof(out)), 0);
	ck_assert_int_eq(memcmp(in, out, sizeof(in)), 0);
	ck_assert_uint_eq(atomic_load(&fake.slots[1]), 0);
	ck_assert_int_eq(tierd_copy_out(t, h, 4, out, sizeof(out)), -EINVAL);
	ck_assert_int_eq(tierd_copy_out(t, h, UINT64_MAX, out, 2), -EINVAL);
	ck_assert_int_eq(tierd_copy_out(t, h, sizeof(in) + 3, out, 0), 0);
	ck_assert_uint_eq(t->windows_free, 0xff);
	end();
}
END_TEST

static unsigned spoil_case;

static void spoil(struct fake *f, struct hello_reply *r)
{
	struct control_header *c = f->control;

	switch (spoil_case) {
	case 0:
		r->result = -EUSERS;
		snprintf(r->text, sizeof(r->text), "too many");
		break;
	case 1:
		r->magic = 1;
		break;
	case 2:
		r->major++;
		break;
	case 3:
		r->fds++;
		break;
	case 4:
		r->arenas = HELLO_ARENAS_MAX + 1;
		r->fds = HELLO_FDS + r->arenas;
		break;
	case 5:
		r->control_bytes *= 2;
		break;
	case 6:
		r->arena[0].arena = HELLO_ARENAS_MAX;
		break;
	case 7:
		r->arena[0].bytes++;
		break;
	case 8:
		r->boot_id++;
		break;
	case 9:
		c->sq.count = 255;
		break;
	case 10:
		c->sq.offset = c->total_bytes - 64;
		break;
	case 11:
		c->pins.count /= 2;
		break;
	case 12:
		c->payload.offset = UINT64_MAX - 7;
		break;
	case 13:
		c->logs.stride = 8;
		break;
	case 14:
		f->table->descriptors_count = UINT32_MAX;
		break;
	case 15:
		f->table->descriptors_offset = UINT64_MAX - 63;
		break;
	case 16:
		f->stats->bytes = 8;
		break;
	case 17:
		r->table_bytes = 0;
		break;
	default:
		r->features = 1;
		break;
	}
}

START_TEST(a_hello_that_makes_no_sense_is_refused_and_leaks_nothing)
{
	for (spoil_case = 0; spoil_case < 19; spoil_case++) {
		int before = dup(0), after, want = spoil_case == 0 ? -EUSERS : -EPROTO;
		uint64_t bytes;

		memset(&fake, 0, sizeof(fake));
		fake.spoil = spoil;
		fake_start(&fake);
		bytes = fake.control->total_bytes;
		t = NULL;
		ck_assert_msg(tierd_open(fake.path, NULL, 0, &t) == want, "case %u: %s", spoil_case,
			      tierd_error(NULL));
		ck_assert_ptr_null(t);
		ck_assert_uint_eq(bytes, fake.control->total_bytes);
		fake.table->total_pages =
			(uint32_t)((TABLE_HEADER_BYTES + FAKE_TENSORS * 64) / 4096);
		fake_stop(&fake);
		close(before);
		after = dup(0);
		ck_assert_int_eq(before, after);
		close(after);
	}
}
END_TEST

/* One that was left behind. */
static void open_unserved(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	char path[LEFTOVERS_ROOM];
	struct tierd *none;

	leftovers_name(path, "unserved");
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	close(fd);
	ck_assert_int_eq(tierd_open(a.sun_path, NULL, 0, &none), -ECONNREFUSED);
	ck_assert_ptr_nonnull(strstr(tierd_error(NULL), "no daemon serves this socket; `tierd "));
	ck_assert_int_eq(unlink(a.sun_path), 0);
}

START_TEST(paths_and_arguments_of_open)
{
	char longpath[200];
	struct tierd *none = NULL;

	memset(longpath, 'x', sizeof(longpath) - 1);
	longpath[sizeof(longpath) - 1] = '\0';
	ck_assert_int_eq(tierd_open(longpath, NULL, 0, &none), -ENAMETOOLONG);
	ck_assert_int_eq(tierd_open("/nonexistent/sock", NULL, 0, &none), -ENOENT);
	ck_assert_str_eq(tierd_error(NULL),
			 "/nonexistent/sock: there is no socket; `tierd --config FILE` starts a "
			 "daemon, whose key `socket` says where it is, and TIERD_SOCKET names "
			 "another one to clients");
	ck_assert_int_eq(tierd_open("/etc/passwd", NULL, 0, &none), -ECONNREFUSED);
	ck_assert_ptr_nonnull(strstr(tierd_error(NULL), "/etc/passwd is no socket; `tierd "));
	open_unserved();
	ck_assert_int_eq(tierd_open("", NULL, 0, &none), -ENOENT);
	ck_assert_str_eq(tierd_error(NULL), "the path of the socket is empty");
	ck_assert_int_eq(tierd_open("/etc/passwd/sock", NULL, 0, &none), -ENOENT);
	ck_assert_ptr_nonnull(strstr(tierd_error(NULL), "/etc/passwd/sock: there is no socket; "));
	ck_assert_int_eq(tierd_open("/x", "", 0, &none), -EINVAL);
	ck_assert_int_eq(tierd_open("/x", NULL, TIERD_NO_THREAD | 2, &none), -EINVAL);
	memset(longpath, 'x', sizeof(longpath));
	setenv("TIERD_SOCKET", "/nonexistent/from-env", 1);
	ck_assert_int_eq(tierd_open(NULL, NULL, 0, &none), -ENOENT);
	ck_assert_ptr_nonnull(strstr(tierd_error(NULL), "from-env"));
	unsetenv("TIERD_SOCKET");
	setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
	ck_assert_int_lt(tierd_open(NULL, NULL, 0, &none), 0);
	ck_assert_ptr_nonnull(strstr(tierd_error(NULL), "/run/tierd/tierd.sock"));
	ck_assert_ptr_null(none);
	/* The socket that the environment names, or that lies in the runtime directory. */
	fake_start(&fake);
	setenv("TIERD_SOCKET", fake.path, 1);
	ck_assert_int_eq(tierd_open(NULL, NULL, 0, &t), 0);
	end();
}
END_TEST

UNIT_MAIN("client_wait", a_miss_is_one_entry_and_then_a_pin,
	  a_batch_is_one_entry_and_holds_nothing_while_it_waits, eight_threads_miss_at_once,
	  all_credits_outstanding_from_eight_threads, a_signal_ends_the_wait_of_any_thread,
	  a_signal_ends_the_wait_though_every_credit_is_out, all_waits_end_when_the_daemon_dies,
	  hostile_completions_reach_nobody, a_ring_out_of_range_breaks_the_connection,
	  creations_are_all_or_nothing_across_payloads, a_failed_creation_destroys_what_it_made,
	  copies_go_by_windows_or_by_a_pin_and_meet_the_same_bytes,
	  a_hello_that_makes_no_sense_is_refused_and_leaks_nothing, paths_and_arguments_of_open)
