/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/system/hostile_rig.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "tests/unit/point.h"

static struct system *const s = &domain_system;
static unsigned seed = 1;

uint32_t hostile_any(void)
{
	return (uint32_t)rand_r(&seed) << 16 ^ (uint32_t)rand_r(&seed);
}

uint64_t hostile_any64(void)
{
	return (uint64_t)hostile_any() << 32 | hostile_any();
}

uint64_t hostile_end_ns(void)
{
	return clock_now_ns() + (getenv("TIERD_TEST_LONG") ? 20 : 1) * NS_PER_S;
}

static void serves_a_newcomer(struct system *unused, void *arg)
{
	struct tierd *t = domain_enter(*(const uid_t *)arg);
	tierd_tensor x = domain_make(t, NULL, KIB(64));

	domain_fill(t, x, TIERD_HOST, 0x44);
	MUST(domain_holds(t, x, TIERD_HOST, 0x44), "bytes differ");
	tierd_close(t);
}

void hostile_beside_a_neighbour(void (*hostile)(struct system *, void *), bool killed)
{
	static const uid_t users[] = { RED, BLUE };
	pid_t blue, red;
	int status;

	if (domain_root_is_missing())
		return;
	domain_start(DOMAIN_TWO);
	blue = domain_neighbour();
	red = system_child(hostile, s, NULL);
	domain_neighbour_goes_on();
	if (killed) {
		usleep(500000);
		domain_neighbour_goes_on();
		kill(red, SIGKILL);
		ck_assert_int_eq(waitpid(red, &status, 0), red);
		if (!WIFSIGNALED(status))
			system_fail(s, "the hostile client ended by itself with %d", status);
	} else {
		system_child_end(s, red, 120000);
	}
	for (unsigned i = 0; i < 2; i++)
		system_child_end(s, system_child(serves_a_newcomer, s, (void *)&users[i]), 60000);
	domain_neighbour_goes_on();
	domain_neighbour_end(blue);
	domain_stop();
}

void hostile_open(struct wire *w)
{
	int rc = wire_open(s->socket, "hostile", w);

	MUST(rc == 0, "open: %d: %s", rc, w->reply.text);
}

void hostile_by_processes(void (*body)(struct wire *w))
{
	uint64_t end_ns = hostile_end_ns();
	int status = 0;

	domain_become(RED);
	while (clock_now_ns() < end_ns) {
		pid_t pid = fork();

		if (pid == 0) {
			struct wire w;

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			hostile_open(&w);
			body(&w);
			_exit(0);
		}
		seed = hostile_any();
		MUST(waitpid(pid, &status, 0) == pid && status == 0, "it ended with %d", status);
	}
}

bool hostile_is_hung_up(const struct wire *w)
{
	struct pollfd p = { w->fd, POLLRDHUP, 0 };

	return poll(&p, 1, 10000) == 1;
}

bool hostile_is_served(struct wire *w)
{
	const struct sq_entry e = { .opcode = OP_STEP, .id = SQ_ENTRIES - 1 };
	struct cq_entry c;

	wire_submit(w, &e);
	return wire_wait(w, 2000, &c);
}
