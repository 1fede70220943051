/* SPDX-License-Identifier: Apache-2.0
 *
 * What an operator finds out with tierctl about a tierd that is at work: who waits for whom, why a
 * tensor stays, what leaks, what was there at the peak.
 */
#define _GNU_SOURCE /* setgroups */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/system/client_rig.h"
#include "tests/system/tierctl_rig.h"

#define CONFIG                                     \
	"tensors: 4Ki\n"                           \
	"linger: 100ms\n"                          \
	"tiers:\n"                                 \
	"  hbm: {backend: memory, size: 8MiB}\n"   \
	"  dram: {size: 16MiB, huge_pages: off}\n" \
	"  nvme: {paths: [{path: @NVME@, size: 64MiB}], block: 64KiB}\n"

static void begin(void)
{
	system_start(s, CONFIG);
	connect_as("job");
}

static const char *self(void)
{
	static char text[32];

	snprintf(text, sizeof(text), "process %d ", (int)getpid());
	return text;
}

START_TEST(why_names_the_pin_the_place_and_the_policy)
{
	tierd_tensor h;
	struct tierd_view v;
	char handle[32];

	begin();
	h = make_named("layer.0.w", MIB(1));
	v = hold(h, TIERD_HOST, TIERD_WRITE);
	ck_assert_int_eq(TIERCTL(s->socket, "why", "layer.0.w"), 0);
	ck_assert(tierctl_says("job/layer.0.w"));
	ck_assert(tierctl_says("resident on dram"));
	ck_assert(tierctl_says("it stays: clients pin it"));
	ck_assert(tierctl_says(self()));
	ck_assert(tierctl_says("1 of them to write; it has written"));
	ck_assert(tierctl_says("policy     lru"));
	ck_assert(tierctl_says("rank       none: it cannot go now, see why\n"));
	snprintf(handle, sizeof(handle), "%u:%u", h.index, h.generation);
	ck_assert_int_eq(TIERCTL(s->socket, "--json", "why", handle), 0);
	ck_assert(tierctl_says("\"reasons\":[\"PINNED\""));
	ck_assert(tierctl_says("\"pinned_by\":[{\"pid\":"));
	tierd_release(t, &v);
	ck_assert_int_eq(tierd_flush(t, &h, 1), 0);
	ck_assert_int_eq(TIERCTL(s->socket, "why", "layer.0.w"), 0);
	ck_assert(tierctl_says("a lower tier has the same bytes"));
	ck_assert(tierctl_says("below the high watermark"));
	do /* it is held for its asker for 100 ms */
		ck_assert_int_eq(TIERCTL(s->socket, "why", "layer.0.w"), 0);
	while (strstr(tierctl_said, "it goes when room is wanted") == NULL);
	ck_assert(tierctl_says("rank       it goes next\n"));
	ck_assert_ptr_null(strstr(tierctl_said, "clients pin it"));
	ck_assert_int_eq(TIERCTL(s->socket, "why", "nosuch"), 1);
	end();
}
END_TEST

static void *ask_for_the_gpu(void *arg)
{
	tierd_tensor *h = arg;
	struct tierd_view v;

	ck_assert_int_eq(tierd_acquire(t, *h, 0, TIERD_READ, WAIT, &v), 0);
	tierd_release(t, &v);
	return NULL;
}

static bool waits_for_the_pin(void)
{
	ck_assert_int_eq(TIERCTL(s->socket, "top", "--once", "--interval", "0.05"), 0);
	return strstr(tierctl_said, "job/held (") != NULL;
}

/* A pin of one process keeps another waiting, which top says of both. */
START_TEST(top_shows_who_waits_for_whom)
{
	struct tierd_view v;
	struct tierd *other, *mine;
	tierd_tensor h;
	pthread_t asker;

	begin();
	h = make_named("held", MIB(2));
	fill(h, TIERD_HOST, 1);
	v = hold(h, TIERD_HOST, TIERD_READ);
	mine = t;
	ck_assert_int_eq(tierd_open(s->socket, "asker", 0, &other), 0);
	t = other;
	ck_assert_int_eq(pthread_create(&asker, NULL, ask_for_the_gpu, &h), 0);
	while (!waits_for_the_pin())
		;
	ck_assert(tierctl_says("asker acquire gpu0"));
	ck_assert(tierctl_says(": a pin elsewhere of process "));
	ck_assert(tierctl_says("1 waiting"));
	ck_assert_int_eq(TIERCTL(s->socket, "--json", "top", "--once", "--interval", "0.05"), 0);
	ck_assert(tierctl_says("\"waits\":[{\"pid\":"));
	ck_assert(tierctl_says("\"tensor\":\"held\""));
	tierd_release(mine, &v);
	ck_assert_int_eq(pthread_join(asker, NULL), 0);
	tierd_close(other);
	t = mine;
	ck_assert_int_eq(TIERCTL(s->socket, "top", "--once", "--interval", "0.05"), 0);
	ck_assert(tierctl_says("0 waiting"));
	end();
}
END_TEST

static void *ask_for_one_more(void *arg)
{
	tierd_tensor *h = arg;
	struct tierd_view v;

	ck_assert_int_eq(tierd_acquire(t, *h, TIERD_HOST, TIERD_READ, WAIT, &v), 0);
	tierd_release(t, &v);
	return NULL;
}

/* There is room, but not for that namespace; its own process has it. */
START_TEST(top_shows_who_waits_for_its_quota)
{
	struct tierd_view v[4];
	tierd_tensor h[5];
	pthread_t asker;
	char want[128];

	system_start(s, CONFIG "namespaces: [{name: job, dram: {limit: 4MiB}}]\n");
	connect_as("job");
	for (unsigned i = 0; i < 5; i++)
		h[i] = make(MIB(1));
	for (unsigned i = 0; i < 4; i++)
		v[i] = hold(h[i], TIERD_HOST, TIERD_WRITE);
	ck_assert_int_eq(pthread_create(&asker, NULL, ask_for_one_more, &h[4]), 0);
	do
		ck_assert_int_eq(TIERCTL(s->socket, "top", "--once", "--interval", "0.05"), 0);
	while (strstr(tierctl_said, "\n1 waiting") == NULL);
	snprintf(want, sizeof(want),
		 ": room within what its namespace may have of dram; process %d pins 4.0 MiB of "
		 "that\n",
		 (int)getpid());
	ck_assert(tierctl_says(want));
	for (unsigned i = 0; i < 4; i++)
		tierd_release(t, &v[i]);
	ck_assert_int_eq(pthread_join(asker, NULL), 0);
	end();
}
END_TEST

/* hbm may have more than there is memory for, as a GPU whose memory others have. */
#define CONFIG_LACKS                                                          \
	"tensors: 4Ki\n"                                                      \
	"tiers:\n"                                                            \
	"  hbm: {backend: memory, size: 16MiB, slab: 2MiB, physical: 4MiB}\n" \
	"  dram: {size: 16MiB, huge_pages: off}\n"

START_TEST(top_says_that_memory_lacks)
{
	struct tierd_view v[2];
	tierd_tensor h[3];
	pthread_t asker;

	system_start(s, CONFIG_LACKS);
	connect_as("job");
	ck_assert_int_eq(TIERCTL(s->socket, "top", "--once", "--interval", "0.05"), 0);
	ck_assert_ptr_null(strstr(tierctl_said, "refused"));
	for (unsigned i = 0; i < 3; i++)
		h[i] = make(MIB(2));
	for (unsigned i = 0; i < 2; i++)
		v[i] = hold(h[i], 0, TIERD_WRITE);
	ck_assert_int_eq(pthread_create(&asker, NULL, ask_for_the_gpu, &h[2]), 0);
	do
		ck_assert_int_eq(TIERCTL(s->socket, "top", "--once", "--interval", "0.05"), 0);
	while (strstr(tierctl_said, ", memory for 4.0 MiB: more was refused ") == NULL);
	ck_assert(tierctl_says(" 4.0 MiB of 16.0 MiB, 1 wait for room, memory for 4.0 MiB"));
	ck_assert_int_eq(TIERCTL(s->socket, "status", "--all", "--interval", "0"), 0);
	ck_assert(tierctl_says("\ntier hbm\nlimit_bytes "));
	ck_assert(tierctl_says("\nslabs_refused "));
	ck_assert(tierctl_says("\ndevice hbm0\nlimit_bytes "));
	ck_assert_ptr_null(strstr(tierctl_said, "\ntier nvme\n"));
	for (unsigned i = 0; i < 2; i++)
		tierd_release(t, &v[i]);
	ck_assert_int_eq(pthread_join(asker, NULL), 0);
	end();
}
END_TEST

/* One line an interval, whole each, until nobody reads. */
START_TEST(top_goes_on_until_it_is_ended)
{
	static const char *const words[] = { "--json", "top", "--interval", "0.05", NULL };
	unsigned lines = 0;
	char c;
	pid_t pid;
	int fd, status;

	begin();
	pid = tierctl_start(s->socket, words, &fd);
	while (lines < 3) {
		ck_assert_int_eq(read(fd, &c, 1), 1);
		lines += c == '\n';
	}
	ck_assert_int_eq(kill(pid, SIGINT), 0);
	close(fd);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status));
	end();
}
END_TEST

#define CONFIG_HANGS                               \
	"tensors: 4Ki\n"                           \
	"tiers:\n"                                 \
	"  dram: {size: 16MiB, huge_pages: off}\n" \
	"  nvme: {paths: [{path: @NVME@, size: 64MiB}], block: 64KiB, fault: {lost: 100%}}\n"

/* What it was given never comes back. */
START_TEST(a_device_that_hangs_is_seen)
{
	const char *nvme;
	double age_ns = 0;
	tierd_tensor h;

	system_start(s, CONFIG_HANGS);
	connect_as("job");
	h = make_named("stuck", MIB(1));
	fill(h, TIERD_HOST, 1);
	ck_assert_int_eq(tierd_evict(t, &h, 1), 0);
	do
		ck_assert_int_eq(TIERCTL(s->socket, "--json", "why", "stuck"), 0);
	while (strstr(tierctl_said, "\"out_at\":\"nvme0\"") == NULL);
	usleep(20000);
	ck_assert_int_eq(TIERCTL(s->socket, "why", "stuck"), 0);
	ck_assert(tierctl_says("nvme0 has had one of its transfers for "));
	ck_assert_int_eq(TIERCTL(s->socket, "--json", "status", "--interval", "0"), 0);
	nvme = strstr(tierctl_said, "{\"name\":\"nvme0\"");
	ck_assert_ptr_nonnull(nvme);
	nvme = strstr(nvme, "\"oldest_ns\":");
	ck_assert_ptr_nonnull(nvme);
	ck_assert_int_eq(sscanf(nvme, "\"oldest_ns\":%lf", &age_ns), 1);
	ck_assert_double_ge(age_ns, 20e6);
	ck_assert_int_eq(TIERCTL(s->socket, "top", "--once", "--interval", "0.05"), 0);
	ck_assert(tierctl_says("oldest"));
	end();
}
END_TEST

/* ---- leaks ---- */

static _Atomic bool job_ends;

/* Each iteration takes one more activation and never gives it back; one view was forgotten early
 * on; the rest is as it should be. */
static void *leaking_job(void *arg)
{
	const struct timespec iteration = { 0, 30 * 1000 * 1000 };
	tierd_tensor weights = make_named("weights.0", KIB(64)), act;
	char name[32];

	for (unsigned i = 0; !atomic_load(&job_ends); i++) {
		struct tierd_spec spec = {
			.name = name, .class_ = TIERD_ACTIVATION, .ndim = 1, .shape = { 4096 }
		};
		tierd_tensor temporary;

		snprintf(name, sizeof(name), "act.%u.out", i);
		if (i < 3000) /* of 4096 that there may be */
			ck_assert_int_eq(tierd_create(t, &spec, 1, &act), 0);
		temporary = make(8192);
		fill(temporary, TIERD_HOST, 1);
		fill(weights, TIERD_HOST, (int)(i & 0xff));
		ck_assert_int_eq(tierd_destroy(t, &temporary, 1), 0);
		ck_assert_int_eq(tierd_step(t), 0);
		nanosleep(&iteration, NULL);
	}
	return NULL;
}

START_TEST(leaks_finds_what_was_planted_and_nothing_else)
{
	struct tierd_view v, held;
	tierd_tensor forgotten, busy;
	pthread_t job;

	begin();
	forgotten = make_named("grad.7", KIB(256));
	v = hold(forgotten, TIERD_HOST, TIERD_WRITE);
	busy = make_named("not.stepping", KIB(64));
	held = hold(busy, TIERD_HOST, TIERD_READ);
	tierd_release(t, &held);
	ck_assert_int_eq(pthread_create(&job, NULL, leaking_job, NULL), 0);
	ck_assert_int_eq(TIERCTL(s->socket, "leaks", "--steps", "6", "--timeout", "50"), 3);
	ck_assert(tierctl_says("pinned for "));
	ck_assert(tierctl_says("job/grad.7 ("));
	/* How many of the steps it saw is a matter of who else wants the processor. */
	ck_assert(tierctl_says("bytes that grow after every step, "));
	ck_assert(tierctl_says(" of them: job/act.*, activation:"));
	ck_assert_ptr_null(strstr(tierctl_said, "weights"));
	ck_assert_ptr_null(strstr(tierctl_said, "unnamed"));
	ck_assert_ptr_null(strstr(tierctl_said, "not.stepping"));
	ck_assert_ptr_null(strstr(tierctl_said, "nothing found"));
	ck_assert_int_eq(TIERCTL(s->socket, "--json", "leaks", "--steps", "6"), 3);
	ck_assert(tierctl_says("{\"leak\":\"pinned\""));
	ck_assert(tierctl_says("\"used_ago_ns\":"));
	ck_assert(tierctl_says("\"used_ago_steps\":"));
	ck_assert(tierctl_says("\"steps_asked\":6,\"enough\":true}"));
	ck_assert(tierctl_says(
		"{\"leak\":\"growing_bytes\",\"namespace\":\"job\",\"prefix\":\"act.\""));
	ck_assert_int_eq(TIERCTL(s->socket, "leaks", "--steps", "3", "--namespace", "other",
				 "--timeout", "0.2"),
			 1);
	/* That is no clean bill. */
	ck_assert_ptr_null(strstr(tierctl_said, "nothing found"));
	ck_assert(tierctl_says("nothing was looked at: there are no such tensors"));
	atomic_store(&job_ends, true);
	ck_assert_int_eq(pthread_join(job, NULL), 0);
	tierd_release(t, &v);
	end();
}
END_TEST

/* The exit status of tierctl, which sees an iteration every 10 ms meanwhile. */
static int tierctl_of_steps(const char *const *words)
{
	int fd;
	pid_t pid = tierctl_start(s->socket, words, &fd);

	do /* until it says something */
		ck_assert_int_eq(tierd_step(t), 0);
	while (poll(&(struct pollfd){ fd, POLLIN, 0 }, 1, 10) == 0);
	return tierctl_end(pid, fd);
}
#define LEAKS_OF_STEPS(...) tierctl_of_steps((const char *const[]){ __VA_ARGS__, NULL })

/* A script sees by the status alone what was found, with and without --json. */
START_TEST(leaks_that_found_nothing_say_whether_they_have_looked)
{
	static const char none[] =
		"nothing was looked at: no job has called tierd_step() meanwhile";
	tierd_tensor weights;

	begin();
	weights = make_named("weights.0", KIB(64));
	fill(weights, TIERD_HOST, 1);
	ck_assert_int_eq(TIERCTL(s->socket, "leaks", "--timeout", "0.05"), 1);
	ck_assert(tierctl_says(none));
	ck_assert_int_eq(TIERCTL(s->socket, "--json", "leaks", "--timeout", "0.05"), 1);
	ck_assert(tierctl_says("\"errno\":\"ETIMEDOUT\""));
	ck_assert(tierctl_says(none));

	ck_assert_int_eq(LEAKS_OF_STEPS("leaks", "--steps", "2", "--timeout", "50"), 0);
	ck_assert(tierctl_says("nothing found"));
	ck_assert_int_eq(LEAKS_OF_STEPS("--json", "leaks", "--steps", "2", "--timeout", "50"), 0);
	ck_assert(tierctl_says("{\"namespace\":\"job\",\"steps_seen\":"));
	ck_assert(tierctl_says("\"steps_asked\":2,\"enough\":true}"));
	end();
}
END_TEST

START_TEST(leaks_that_saw_too_few_steps_say_so)
{
	static const char few[] = "too few steps were seen to tell";

	begin();
	make_named("weights.0", KIB(64));
	ck_assert_int_eq(LEAKS_OF_STEPS("leaks", "--steps", "100000", "--timeout", "1"), 1);
	ck_assert(tierctl_says(" of 100000 steps "));
	ck_assert(tierctl_says(few));
	ck_assert_ptr_null(strstr(tierctl_said, "nothing found"));
	ck_assert_int_eq(LEAKS_OF_STEPS("--json", "leaks", "--steps", "100000", "--timeout", "1"),
			 1);
	ck_assert(tierctl_says("{\"namespace\":\"job\",\"steps_seen\":"));
	ck_assert(tierctl_says("\"steps_asked\":100000,\"enough\":false}"));
	ck_assert(tierctl_says(few));
	end();
}
END_TEST

/* Nor is it waited for. */
START_TEST(a_job_without_steps_takes_no_clean_bill_from_others)
{
	struct tierd_spec spec = { .name = "kv", .ndim = 1, .shape = { 4096 } };
	struct tierd *server;
	tierd_tensor kv;

	begin();
	make_named("weights.0", KIB(64));
	ck_assert_int_eq(tierd_open(s->socket, "server", 0, &server), 0);
	ck_assert_int_eq(tierd_create(server, &spec, 1, &kv), 0);
	ck_assert_int_eq(LEAKS_OF_STEPS("leaks", "--steps", "2", "--timeout", "50"), 0);
	ck_assert(tierctl_says("server: no step was seen"));
	ck_assert(tierctl_says("nothing found"));
	tierd_close(server);
	end();
}
END_TEST

/* ---- peak, evict ---- */

/* Not even of a tier that nothing was ever put into. */
static void no_peak_is_older_than_the_daemon(void)
{
	static const char since[] = "\"since_ns\":", ago[] = "\"peak_ago_ns\":";
	const char *at = strstr(tierctl_said, since);
	unsigned long long most;

	ck_assert_ptr_nonnull(at);
	most = strtoull(at + strlen(since), NULL, 10);
	at = strstr(at, ago);
	ck_assert_ptr_nonnull(at);
	for (; at != NULL; at = strstr(at + 1, ago))
		ck_assert_uint_le(strtoull(at + strlen(ago), NULL, 10), most);
}

START_TEST(peak_says_what_was_there_and_a_mark_begins_anew)
{
	tierd_tensor a, b;

	begin();
	a = make_named("a", MIB(2));
	b = make_named("b", MIB(3));
	fill(a, TIERD_HOST, 1);
	fill(b, TIERD_HOST, 2);
	ck_assert_int_eq(tierd_destroy(t, &b, 1), 0);
	ck_assert_int_eq(TIERCTL(s->socket, "peak"), 0);
	ck_assert(tierctl_says("since the start"));
	ck_assert(tierctl_says("dram   5.0 MiB"));
	ck_assert_int_eq(TIERCTL(s->socket, "--json", "peak", "--mark"), 0);
	ck_assert(tierctl_says("\"marked\":false"));
	no_peak_is_older_than_the_daemon();
	ck_assert(tierctl_says("\"peak_bytes\":5242880,"));
	ck_assert(tierctl_says("\"at_peak_bytes\":{\"parameter\":5242880,"));
	ck_assert_int_eq(TIERCTL(s->socket, "--json", "peak"), 0);
	ck_assert(tierctl_says("\"marked\":true"));
	ck_assert(tierctl_says("\"peak_bytes\":2097152,"));
	end();
}
END_TEST

START_TEST(evict_writes_back_what_the_pattern_names)
{
	tierd_tensor a[2], b;
	struct tierd_info info;

	begin();
	a[0] = make_named("layer.0", KIB(64));
	a[1] = make_named("layer.1", KIB(64));
	b = make_named("head", KIB(64));
	fill(a[0], TIERD_HOST, 1);
	fill(a[1], TIERD_HOST, 1);
	fill(b, TIERD_HOST, 1);
	ck_assert_int_eq(TIERCTL(s->socket, "evict", "layer.*"), 0);
	ck_assert(tierctl_says("2 tensors, 128.0 KiB"));
	for (unsigned i = 0; i < 2; i++)
		do
			ck_assert_int_eq(tierd_stat(t, a[i], &info), 0);
		while (info.dirty);
	ck_assert_int_eq(tierd_stat(t, b, &info), 0);
	ck_assert_uint_eq(info.dirty, 1);
	ck_assert_int_eq(TIERCTL(s->socket, "why", "layer.0"), 0);
	ck_assert(tierctl_says("a client said that it is not needed soon"));
	ck_assert_int_eq(TIERCTL(s->socket, "--json", "evict", "--all"), 0);
	ck_assert(tierctl_says("{\"tensors\":3,\"bytes\":196608}"));
	ck_assert_int_eq(TIERCTL(s->socket, "evict"), 2);
	ck_assert_int_eq(TIERCTL(s->socket, "evict", "--all", "x"), 2);
	ck_assert_int_eq(TIERCTL(s->socket, "evict", "nosuch*"), 1);
	end();
}
END_TEST

/* ---- cores ---- */

#define NOBODY 65534u

static void drop_to_nobody(void)
{
	if (setgroups(0, NULL) < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
		_exit(99);
}

/* To whom the kernel gives the files of a daemon of a plain user: to root unless it is dumpable. */
static uid_t owner_of_daemon(const char *more)
{
	char config[1024], path[64];
	struct stat st;

	snprintf(config, sizeof(config), "%s%s", CONFIG, more);
	system_prepare(s, config);
	ck_assert_int_eq(chown(s->directory, NOBODY, NOBODY), 0);
	ck_assert_int_eq(chown(s->nvme, NOBODY, NOBODY), 0);
	ck_assert_int_eq(chown(s->config, NOBODY, NOBODY), 0);
	ck_assert_int_eq(close(creat(s->log, 0600)), 0);
	s->before_exec = drop_to_nobody;
	system_launch(s);
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)s->pid);
	ck_assert_int_eq(stat(path, &st), 0);
	system_stop(s);
	return st.st_uid;
}

START_TEST(a_daemon_is_dumpable_only_where_that_is_configured)
{
	if (geteuid() != 0)
		return;
	ck_assert_uint_eq(owner_of_daemon(""), 0);
	ck_assert_uint_eq(owner_of_daemon("core_dumps: true\n"), NOBODY);
}
END_TEST

UNIT_MAIN("tools", why_names_the_pin_the_place_and_the_policy, top_shows_who_waits_for_whom,
	  top_shows_who_waits_for_its_quota, top_says_that_memory_lacks,
	  top_goes_on_until_it_is_ended, a_device_that_hangs_is_seen,
	  leaks_finds_what_was_planted_and_nothing_else,
	  leaks_that_found_nothing_say_whether_they_have_looked,
	  leaks_that_saw_too_few_steps_say_so, a_job_without_steps_takes_no_clean_bill_from_others,
	  peak_says_what_was_there_and_a_mark_begins_anew, evict_writes_back_what_the_pattern_names,
	  a_daemon_is_dumpable_only_where_that_is_configured)
