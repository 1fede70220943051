/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/kill/watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "libclient/client.h"
#include "libclient/protocol/stats_page.h"
#include "tests/unit/point.h"

#define PATIENCE_NS (20 * NS_PER_S)
#define ANSWER_MS   120000

enum order { BESIDE, BEHIND, END };

struct command {
	enum order order;
	unsigned target;
	uint32_t version;
	bool writes, discards;
};

struct answer {
	bool good;
	char text[256];
};

/* ---- the process ---- */

struct state {
	struct tierd *t;
	tierd_tensor shared[KILL_SHARED];
	uint32_t version[KILL_SHARED], last;
	uint64_t tensors, committed_bytes; /* of the shared ones alone */
	struct command c;
	struct answer a;
	int fd;
};

static _Noreturn void wrong(struct state *s, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static _Noreturn void wrong(struct state *s, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(s->a.text, sizeof(s->a.text), format, args);
	va_end(args);
	s->a.good = false;
	if (send(s->fd, &s->a, sizeof(s->a), 0) != sizeof(s->a))
		fprintf(stderr, "watch: %s\n", s->a.text);
	_exit(1);
}

static void must(struct state *s, int rc, const char *what)
{
	if (rc < 0)
		wrong(s, "%s: %d: %s", what, rc, tierd_error(s->t));
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = (long)NS_PER_MS / 2 }, NULL);
}

/* Byte by byte: a copy that ends half-way need not end between two words. */
static bool mixed(uint64_t word, uint64_t a, uint64_t b, bool zero)
{
	for (unsigned shift = 0; shift < 64; shift += 8) {
		uint8_t byte = (uint8_t)(word >> shift);

		if (byte != (uint8_t)(a >> shift) && byte != (uint8_t)(b >> shift) &&
		    !(zero && byte == 0))
			return false;
	}
	return true;
}

static bool word_right(const struct state *s, unsigned i, uint64_t word)
{
	uint64_t known = kill_word(i, s->version[i]);

	if (i != s->c.target || !s->c.writes)
		return word == known;
	return mixed(word, known, kill_word(i, s->c.version), s->c.discards);
}

static void check_words(struct state *s, unsigned i, const uint64_t *words, const char *where)
{
	for (uint64_t k = 0; k < kill_shared_bytes[i] / 8; k++)
		if (!word_right(s, i, words[k]))
			wrong(s, "tensor %u %s: word %llu is %#llx, version %u", i, where,
			      (unsigned long long)k, (unsigned long long)words[k], s->version[i]);
}

static void check_copy(struct state *s, unsigned i)
{
	uint64_t *words = malloc(kill_shared_bytes[i]);

	must(s,
	     words == NULL ? -ENOMEM
			   : tierd_copy_out(s->t, s->shared[i], 0, words, kill_shared_bytes[i]),
	     "copy_out");
	check_words(s, i, words, "by copy_out");
	free(words);
}

static void check_place(struct state *s, unsigned i, int place)
{
	struct tierd_view v;

	must(s, tierd_acquire(s->t, s->shared[i], place, TIERD_READ, (int64_t)PATIENCE_NS, &v),
	     place == TIERD_HOST ? "acquire on the host" : "acquire on the GPU");
	check_words(s, i, v.data, place == TIERD_HOST ? "on the host" : "on the GPU");
	tierd_release(s->t, &v);
}

static void write_version(struct state *s, unsigned i)
{
	struct tierd_view v;

	must(s,
	     tierd_acquire(s->t, s->shared[i], TIERD_HOST, TIERD_WRITE, (int64_t)PATIENCE_NS, &v),
	     "acquire for writing");
	s->version[i] = ++s->last;
	kill_fill(v.data, v.bytes, kill_word(i, s->version[i]));
	tierd_release(s->t, &v);
}

static uint64_t clients(const struct state *s)
{
	const struct stats_page *page = s->t->stats.base;

	return atomic_load(&page->clients);
}

static struct tierd_stats stats(struct state *s)
{
	struct tierd_stats ret;

	must(s, tierd_stats(s->t, &ret), "stats");
	return ret;
}

/* Those with names, if it got so far. */
static void destroy_made(struct state *s)
{
	for (unsigned i = 0; i < KILL_MADE; i++) {
		tierd_tensor h;
		char name[32];
		int rc;

		kill_made_name(i, name, sizeof(name));
		rc = tierd_lookup(s->t, name, &h);
		if (rc == 0)
			rc = tierd_destroy(s->t, &h, 1);
		if (rc < 0 && rc != -ENOENT)
			must(s, rc, name);
	}
}

static void wait_until_alone(struct state *s)
{
	uint64_t end_ns = clock_now_ns() + PATIENCE_NS;

	while (clients(s) > 1) {
		if (clock_now_ns() > end_ns)
			wrong(s, "%llu clients are left", (unsigned long long)clients(s));
		nap();
	}
}

static void wait_for_nothing_of_it(struct state *s)
{
	uint64_t end_ns = clock_now_ns() + PATIENCE_NS;
	struct tierd_stats now = stats(s);

	for (; now.tensors != s->tensors || now.committed_bytes != s->committed_bytes;
	     now = stats(s)) {
		if (clock_now_ns() > end_ns)
			wrong(s, "%llu tensors of %llu bytes are left, not %llu of %llu",
			      (unsigned long long)now.tensors,
			      (unsigned long long)now.committed_bytes,
			      (unsigned long long)s->tensors,
			      (unsigned long long)s->committed_bytes);
		nap();
	}
}

static void behind(struct state *s)
{
	wait_until_alone(s);
	destroy_made(s);
	wait_for_nothing_of_it(s);
	for (unsigned i = 0; i < KILL_SHARED; i++) {
		check_place(s, i, i % 2 ? TIERD_HOST : 0);
		check_place(s, i, i % 2 ? 0 : TIERD_HOST);
	}
	if (s->c.writes)
		write_version(s, s->c.target);
}

static void beside(struct state *s)
{
	struct tierd_spec spec = { .ndim = 1, .shape = { 5000 } };
	struct tierd_view v;
	tierd_tensor h;

	for (unsigned i = 0; i < KILL_SHARED; i++)
		check_copy(s, i);
	must(s, tierd_create(s->t, &spec, 1, &h), "create");
	must(s, tierd_acquire(s->t, h, TIERD_HOST, TIERD_WRITE, (int64_t)PATIENCE_NS, &v),
	     "acquire of one's own");
	tierd_release(s->t, &v);
	must(s, tierd_destroy(s->t, &h, 1), "destroy");
}

static void settle(struct state *s)
{
	uint64_t end_ns = clock_now_ns() + PATIENCE_NS;
	struct tierd_stats now;

	must(s, tierd_destroy(s->t, s->shared, KILL_SHARED), "destroy");
	must(s, tierd_trim(s->t), "trim");
	for (now = stats(s);
	     now.tier[TIERD_HBM].reserved_bytes != 0 || now.tier[TIERD_DRAM].reserved_bytes != 0 ||
	     now.tier[TIERD_NVME].reserved_bytes != 0 || now.tensors != 0;
	     now = stats(s)) {
		if (clock_now_ns() > end_ns)
			wrong(s, "%llu tensors, %llu, %llu and %llu bytes of the tiers are left",
			      (unsigned long long)now.tensors,
			      (unsigned long long)now.tier[TIERD_HBM].reserved_bytes,
			      (unsigned long long)now.tier[TIERD_DRAM].reserved_bytes,
			      (unsigned long long)now.tier[TIERD_NVME].reserved_bytes);
		nap();
	}
	tierd_close(s->t);
}

/* Where there was more than one namespace, recycled bytes are zeroed before anybody sees them: what
 * a discarding writer leaves unwritten is zeros then, and not an older version. */
static void be_of_two_namespaces(struct state *s, const char *socket)
{
	must(s, tierd_open(socket, "another", 0, &s->t), "open");
	tierd_close(s->t);
}

static void make_shared(struct state *s, const char *socket)
{
	struct tierd_spec specs[KILL_SHARED];
	char names[KILL_SHARED][32];
	struct tierd_stats now;

	be_of_two_namespaces(s, socket);
	must(s, tierd_open(socket, KILL_NAME_SPACE, 0, &s->t), "open");
	for (unsigned i = 0; i < KILL_SHARED; i++) {
		kill_shared_name(i, names[i], sizeof(names[i]));
		specs[i] = (struct tierd_spec){ .name = names[i],
						.class_ = TIERD_PARAMETER,
						.ndim = 1,
						.shape = { kill_shared_bytes[i] } };
	}
	must(s, tierd_create(s->t, specs, KILL_SHARED, s->shared), "create");
	for (unsigned i = 0; i < KILL_SHARED; i++)
		write_version(s, i);
	now = stats(s);
	s->tensors = now.tensors;
	s->committed_bytes = now.committed_bytes;
}

static void answer(struct state *s)
{
	s->a = (struct answer){ .good = true };
	if (send(s->fd, &s->a, sizeof(s->a), 0) != sizeof(s->a))
		_exit(1);
}

static _Noreturn void run(int fd, const char *socket)
{
	static struct state s;

	s.fd = fd;
	make_shared(&s, socket);
	answer(&s);
	while (recv(fd, &s.c, sizeof(s.c), 0) == sizeof(s.c)) {
		if (s.c.order == BESIDE)
			beside(&s);
		else if (s.c.order == BEHIND)
			behind(&s);
		else
			settle(&s);
		answer(&s);
		if (s.c.order == END)
			_exit(0);
	}
	_exit(1);
}

/* ---- the test ---- */

static void hear(struct watch *w)
{
	struct pollfd p = { .fd = w->fd, .events = POLLIN };
	struct answer a;

	ck_assert_msg(poll(&p, 1, ANSWER_MS) == 1, "the watch does not answer");
	ck_assert_msg(recv(w->fd, &a, sizeof(a), 0) == sizeof(a), "the watch has ended");
	ck_assert_msg(a.good, "%s", a.text);
}

static void order(struct watch *w, const struct command *c)
{
	ck_assert_int_eq(send(w->fd, c, sizeof(*c), MSG_NOSIGNAL), sizeof(*c));
	hear(w);
}

void watch_start(struct watch *w, const char *socket)
{
	pid_t parent = getpid();
	int fds[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	w->fd = fds[0];
	w->pid = fork();
	ck_assert_int_ge(w->pid, 0);
	if (w->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		if (getppid() == parent)
			run(fds[1], socket);
		_exit(1);
	}
	close(fds[1]);
	hear(w);
}

void watch_beside(struct watch *w, const struct op *op, unsigned target, uint32_t version)
{
	order(w, &(struct command){ BESIDE, target, version, op->writes, op->discards });
}

void watch_behind(struct watch *w, const struct op *op, unsigned target, uint32_t version)
{
	order(w, &(struct command){ BEHIND, target, version, op->writes, op->discards });
}

void watch_end(struct watch *w)
{
	int status;

	order(w, &(struct command){ .order = END });
	ck_assert_int_eq(waitpid(w->pid, &status, 0), w->pid);
	ck_assert_int_eq(status, 0);
	close(w->fd);
}

void watch_abandon(struct watch *w)
{
	kill(w->pid, SIGKILL);
	waitpid(w->pid, NULL, 0);
	close(w->fd);
}
