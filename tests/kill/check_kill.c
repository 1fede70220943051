/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients and the daemon killed or stopped between any two instructions of any operation. Whoever
 * goes on finds every byte, and nothing is left of those that are gone: no tensor, no pin, no
 * descriptor, no memory, no file. KILL_LOOPS: how often (20; 10,000 with TIERD_TEST_LONG);
 * KILL_SEED repeats a run; KILL_OP: one operation alone, by name.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"
#include "tests/kill/step.h"
#include "tests/kill/watch.h"
#include "tests/system/system.h"

#define CONFIG                                   \
	"tensors: 4Ki\n"                         \
	"linger: 0s\n"                           \
	"tiers:\n"                               \
	"  hbm: {backend: memory, size: 4MiB}\n" \
	"  dram: {size: 8MiB}\n"                 \
	"  nvme: {paths: [{path: @NVME@, size: 32MiB}], block: 64KiB}\n"

#define OPS_MAX     64u
#define FIRST_SPAN  2000u /* instructions, until an operation is known */
#define DAEMON_SPAN 20000u
#define CHILD_MS    60000
#define MEMORY_LEEWAY                                                              \
	MIB(24) /* of the daemon: what its tiers had not touched yet, and malloc's \
		 */

static struct system tierd_system;
static struct system *const s = &tierd_system;

/* ---- what and where ---- */

static struct op ops[OPS_MAX];
static unsigned op_count;
static uint64_t span[OPS_MAX]; /* about as many instructions as it takes */
static uint64_t random_state;

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text != NULL && *text != '\0' ? strtoull(text, NULL, 10) : otherwise;
}

static uint64_t random_below(uint64_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % n;
}

static void add_ops(const struct op *from, unsigned n)
{
	const char *only = getenv("KILL_OP");

	for (unsigned i = 0; i < n; i++)
		if (only == NULL || strcmp(only, from[i].name) == 0)
			ops[op_count++] = from[i];
}

static void begin(uint64_t first_span)
{
	random_state = number("KILL_SEED", 1) * 0x9e3779b97f4a7c15ull | 1;
	op_count = 0;
	add_ops(kill_ops, kill_op_count);
#ifdef HAVE_CUDA
	if (getenv("TIERD_TEST_HBM") != NULL && strcmp(getenv("TIERD_TEST_HBM"), "cuda") == 0)
		add_ops(kill_stream_ops, kill_stream_op_count);
#endif
	ck_assert_uint_gt(op_count, 0);
	for (unsigned i = 0; i < op_count; i++)
		span[i] = first_span;
	system_start(s, CONFIG);
}

/* A point somewhere in the operation, or behind its end. */
static uint64_t choose(unsigned op)
{
	return random_below(span[op] + span[op] / 8 + 1);
}

static void learn(unsigned op, uint64_t asked, enum step_at at, uint64_t made)
{
	if (at != STEP_POINT)
		span[op] = made;
	else if (asked > span[op] / 2)
		span[op] = span[op] * 3 / 2 + 64;
}

static struct victim victim_of(uint64_t loop)
{
	return (struct victim){ .socket = s->socket,
				.target = (unsigned)(loop / op_count % KILL_SHARED),
				.version = 0x80000000u | (uint32_t)loop };
}

struct work {
	const struct op *op;
	struct victim victim;
};

static int act(struct work *w)
{
	int rc = w->op->prepare != NULL ? w->op->prepare(&w->victim) : kill_connect(&w->victim);

	return kill_said(&w->victim, "before", rc);
}

static int marked(void *arg)
{
	struct work *w = arg;
	int rc;

	if (act(w) < 0)
		return 1;
	step_mark();
	rc = w->op->run(&w->victim);
	step_mark();
	if (kill_said(&w->victim, w->op->name, rc) < 0)
		return 2;
	if (w->victim.t != NULL)
		tierd_close(w->victim.t);
	return 0;
}

/* ---- clients ---- */

static void say(const char *what, uint64_t loop, const struct op *op, uint64_t point)
{
	fprintf(stderr, "kill: %s in loop %llu, \"%s\", before instruction %llu\n", what,
		(unsigned long long)loop, op->name, (unsigned long long)point);
}

/* Runs a new victim up to some point; it has not ended. */
static pid_t to_some_point(struct work *w, unsigned op, uint64_t loop, uint64_t *ret_point)
{
	pid_t pid = step_child(marked, w);
	int status = 0;
	enum step_at at = step_to_mark(pid, &status);
	uint64_t asked = choose(op), made;

	*ret_point = asked;
	if (at == STEP_MARK)
		at = step_run(pid, asked, NULL, NULL, &made, &status);
	if (at == STEP_ENDED) {
		say("a victim ended", loop, w->op, asked);
		system_fail(s, "wait status %#x", status);
	}
	learn(op, asked, at, made);
	return pid;
}

static void killed(struct watch *watch, uint64_t loop)
{
	unsigned op = (unsigned)(loop % op_count);
	struct work w = { &ops[op], victim_of(loop) };
	uint64_t point;
	pid_t pid = to_some_point(&w, op, loop, &point);
	int status;

	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%#x", status);
	say("killed", loop, w.op, point);
	watch_behind(watch, w.op, w.victim.target, w.victim.version);
}

/* It may stop itself once more, by its mark. */
static void runs_to_its_end(pid_t pid)
{
	int status;

	do {
		kill(pid, SIGCONT);
		ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	} while (WIFSTOPPED(status));
	ck_assert_msg(status == 0, "wait status %#x", status);
}

static void stopped(struct watch *watch, uint64_t loop)
{
	unsigned op = (unsigned)(loop % op_count);
	struct work w = { &ops[op], victim_of(loop) };
	uint64_t point;
	pid_t pid = to_some_point(&w, op, loop, &point);
	int status;

	step_leave(pid, true);
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
	say("stopped", loop, w.op, point);
	watch_beside(watch, w.op, w.victim.target, w.victim.version);
	runs_to_its_end(pid);
	watch_behind(watch, w.op, w.victim.target, w.victim.version);
}

/* After a look at each operation, so that all of the daemon that will be touched has been. */
static void holds_no_more(const struct system_holdings *before)
{
	struct system_holdings now = system_holdings(s->pid);

	/* Slabs of a GPU come and go, with a descriptor each and their mappings. */
	ck_assert_uint_le(now.descriptors, before->descriptors + 2);
	ck_assert_uint_le(now.maps, before->maps + 8);
	ck_assert_uint_le(now.resident_bytes, before->resident_bytes + MEMORY_LEEWAY);
}

static void loops_of_clients(void (*loop)(struct watch *, uint64_t), uint64_t loops)
{
	struct system_holdings before = { 0 };
	struct watch watch;

	begin(FIRST_SPAN);
	watch_start(&watch, s->socket);
	for (uint64_t i = 0; i < loops; i++) {
		loop(&watch, i);
		if (i == op_count)
			before = system_holdings(s->pid);
	}
	if (loops > op_count)
		holds_no_more(&before);
	watch_end(&watch);
	system_stop(s);
}

static uint64_t all_loops(void)
{
	return number("KILL_LOOPS", getenv("TIERD_TEST_LONG") != NULL ? 10000 : 20);
}

START_TEST(clients_are_killed_anywhere)
{
	loops_of_clients(killed, all_loops() * 6 / 10);
}
END_TEST

START_TEST(clients_are_stopped_anywhere)
{
	loops_of_clients(stopped, all_loops() * 2 / 10);
}
END_TEST

/* ---- the daemon ---- */

struct worker {
	pid_t pid;
	int go, done; /* pipes: what to begin at, what it says */
};

static void worker_start(struct worker *w, struct work *work)
{
	int go[2], done[2];
	char byte = 0;

	ck_assert_int_eq(pipe(go), 0);
	ck_assert_int_eq(pipe(done), 0);
	w->pid = fork();
	ck_assert_int_ge(w->pid, 0);
	if (w->pid == 0) {
		close(go[1]);
		close(done[0]);
		if (act(work) < 0 || write(done[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1)
			_exit(1);
		/* Its daemon may die under it: any answer is one. */
		work->op->run(&work->victim);
		_exit(write(done[1], &byte, 1) != 1);
	}
	close(go[0]);
	close(done[1]);
	w->go = go[1];
	w->done = done[0];
	ck_assert_msg(read(w->done, &byte, 1) == 1, "%s: the client ended before", work->op->name);
}

static bool worker_done(void *arg)
{
	struct worker *w = arg;
	struct pollfd p = { .fd = w->done, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* Runs the daemon's control thread to some point after the client has begun. */
static void daemon_to_some_point(struct worker *w, unsigned op, uint64_t *ret_point)
{
	uint64_t asked = choose(op), made;
	enum step_at at;
	int status;

	ck_assert_int_eq(step_seize(s->pid), 0);
	ck_assert_int_eq(write(w->go, "", 1), 1);
	at = step_run(s->pid, asked, worker_done, w, &made, &status);
	ck_assert_msg(at != STEP_ENDED, "the daemon ended: %#x", status);
	learn(op, asked, at, made);
	*ret_point = asked;
}

static void worker_end(struct worker *w)
{
	struct pollfd p = { .fd = w->done, .events = POLLIN };
	int status;

	if (poll(&p, 1, CHILD_MS) != 1)
		system_fail(s, "a client waits for a daemon that is gone");
	ck_assert_int_eq(waitpid(w->pid, &status, 0), w->pid);
	ck_assert_msg(status == 0, "wait status %#x", status);
	close(w->go);
	close(w->done);
}

static void no_file_is_left(void)
{
	DIR *dir = opendir(s->nvme);
	const struct dirent *e;

	ck_assert_ptr_nonnull(dir);
	while ((e = readdir(dir)) != NULL)
		ck_assert_msg(e->d_name[0] == '.', "%s/%s is left", s->nvme, e->d_name);
	closedir(dir);
}

START_TEST(the_daemon_is_killed_anywhere)
{
	begin(DAEMON_SPAN);
	for (uint64_t i = 0, n = all_loops() / 10; i < n; i++) {
		unsigned op = (unsigned)random_below(op_count);
		struct work w = { &ops[op], victim_of(i) };
		struct worker worker;
		struct watch watch;
		uint64_t point;

		watch_start(&watch, s->socket);
		worker_start(&worker, &w);
		daemon_to_some_point(&worker, op, &point);
		system_kill(s);
		say("the daemon was killed", i, w.op, point);
		worker_end(&worker);
		watch_abandon(&watch);
		no_file_is_left();
		system_launch(s);
	}
	system_stop(s);
}
END_TEST

START_TEST(the_daemon_is_stopped_anywhere)
{
	struct watch watch;

	begin(DAEMON_SPAN);
	watch_start(&watch, s->socket);
	for (uint64_t i = 0, n = all_loops() / 10; i < n; i++) {
		unsigned op = (unsigned)random_below(op_count);
		struct work w = { &ops[op], victim_of(i) };
		struct worker worker;
		uint64_t point;
		int status;

		worker_start(&worker, &w);
		daemon_to_some_point(&worker, op, &point);
		step_leave(s->pid, true);
		ck_assert_int_eq(waitpid(s->pid, &status, WUNTRACED), s->pid);
		ck_assert(WIFSTOPPED(status));
		kill(s->pid, SIGCONT);
		say("the daemon was stopped", i, w.op, point);
		worker_end(&worker);
		watch_behind(&watch, w.op, w.victim.target, w.victim.version);
	}
	watch_end(&watch);
	system_stop(s);
}
END_TEST

UNIT_MAIN("kill", clients_are_killed_anywhere, clients_are_stopped_anywhere,
	  the_daemon_is_killed_anywhere, the_daemon_is_stopped_anywhere)
