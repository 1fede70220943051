/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tools/bench/chain.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "libclient/futex.h"

static void ring(int fd)
{
	uint64_t one = 1;

	ASSERT(write(fd, &one, sizeof(one)) == sizeof(one));
}

static void drain(int fd)
{
	uint64_t n;

	ASSERT(read(fd, &n, sizeof(n)) == sizeof(n));
}

struct lane {
	int wake, done;
};

static void *lane_main(void *arg)
{
	struct lane *l = arg;

	for (;;) {
		struct pollfd p = { .fd = l->wake, .events = POLLIN };

		if (poll(&p, 1, -1) == 1) {
			drain(l->wake);
			ring(l->done);
		}
	}
	return NULL;
}

static int watch(int epoll_fd, int fd)
{
	struct epoll_event e = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e);
}

static _Noreturn void control_main(struct chain *c, pid_t parent)
{
	struct lane lane = { .wake = c->to_lane, .done = eventfd(0, EFD_CLOEXEC) };
	int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	pthread_t thread;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || pthread_create(&thread, NULL, lane_main, &lane) != 0 ||
	    watch(epoll_fd, c->to_control) < 0 || watch(epoll_fd, lane.done) < 0)
		_exit(1);
	for (;;) {
		struct epoll_event e;

		if (epoll_wait(epoll_fd, &e, 1, -1) != 1)
			continue;
		drain(e.data.fd);
		if (e.data.fd == c->to_control) {
			ring(lane.wake);
		} else {
			atomic_fetch_add(&c->words->done, 1);
			futex_wake(&c->words->done, 1, true);
		}
	}
}

int chain_start(struct chain *ret)
{
	pid_t parent = getpid();

	ret->words = mmap(NULL, sizeof(*ret->words), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ret->to_control = eventfd(0, EFD_CLOEXEC);
	ret->to_lane = eventfd(0, EFD_CLOEXEC);
	if (ret->words == MAP_FAILED || ret->to_control < 0 || ret->to_lane < 0)
		return -errno;
	ret->child = fork();
	if (ret->child == 0)
		control_main(ret, parent);
	return ret->child < 0 ? -errno : 0;
}

void chain_stop(struct chain *c)
{
	kill(c->child, SIGKILL);
	waitpid(c->child, NULL, 0);
	close(c->to_control);
	close(c->to_lane);
	munmap(c->words, sizeof(*c->words));
}

void chain_run(struct chain *c)
{
	uint32_t before = atomic_load(&c->words->done);

	ring(c->to_control);
	while (atomic_load(&c->words->done) == before)
		futex_wait(&c->words->done, before, clock_now_ns() + NS_PER_S, true);
}
