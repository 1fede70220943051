/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole engine by very many seeds, on all CPUs. Each seed alone says what the run meets
 * (plan.c). At the end the table of what was reached is printed, and a row that never was fails the
 * suite. SIM_SEED repeats one run, or is the first of SIM_SEEDS; SIM_SECONDS ends after a time and
 * not after a count. A failure prints the command that repeats it.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "tests/sim/plan.h"

/* As one test among others; scripts/test has a stage for many. */
#ifdef __SANITIZE_THREAD__
#define SEEDS 20
#else
#define SEEDS 200
#endif
#define SEEDS_FOR_ALL 2000 /* from so many on every row has to be reached */
#define WORKERS_MOST  256

struct worker {
	pid_t pid;
	int log; /* what its run says, kept for the case that it fails */
};

struct shared {
	_Atomic uint64_t next, done;
	_Atomic bool stop;
};

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void run_one(uint64_t seed)
{
	struct plan plan;

	plan_make(seed, &plan);
	stepper_run(seed, number("SIM_STEPS", plan.steps), plan.policy, &plan.trouble);
}

/* A run that fails aborts, having said how it is repeated: nothing of the process is used again. */
static _Noreturn void work(struct shared *shared, int log, uint64_t end, uint64_t end_ns)
{
	uint64_t seed;

	ASSERT(dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0);
	while (!atomic_load(&shared->stop) && clock_now_ns() < end_ns &&
	       (seed = atomic_fetch_add(&shared->next, 1)) < end) {
		ASSERT(lseek(log, 0, SEEK_SET) == 0 && ftruncate(log, 0) == 0);
		run_one(seed);
		atomic_fetch_add(&shared->done, 1);
	}
	_exit(EXIT_SUCCESS);
}

static unsigned start(struct shared *shared, uint64_t end, uint64_t end_ns, struct worker *ret)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned n = (unsigned)number("SIM_JOBS", cpus > 0 ? (uint64_t)cpus : 1);

	n = MIN(n, WORKERS_MOST);
	fflush(stdout);
	for (unsigned i = 0; i < n; i++) {
		ret[i].log = memfd_create("log", MFD_CLOEXEC);
		ASSERT(ret[i].log >= 0);
		ret[i].pid = fork();
		ASSERT(ret[i].pid >= 0);
		if (ret[i].pid == 0)
			work(shared, ret[i].log, end, end_ns);
	}
	return n;
}

static void show_log(int log)
{
	char text[65536];
	ssize_t n = pread(log, text, sizeof(text), 0);

	if (n > 0)
		fwrite(text, 1, (size_t)n, stderr);
}

/* Returns how many failed; the others end with their run. */
static unsigned wait_all(struct shared *shared, const struct worker *workers, unsigned n)
{
	unsigned failed = 0;
	int status;

	for (unsigned ended = 0; ended < n; ended++) {
		pid_t pid = waitpid(-1, &status, 0);

		ASSERT(pid > 0);
		if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS)
			continue;
		atomic_store(&shared->stop, true);
		failed++;
		for (unsigned i = 0; i < n; i++)
			if (workers[i].pid == pid)
				show_log(workers[i].log);
		fprintf(stderr, "sim: that run ended with wait status 0x%x\n", (unsigned)status);
	}
	return failed;
}

static int run_many(uint64_t first, uint64_t seeds)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t begin_ns = clock_now_ns(), seconds = number("SIM_SECONDS", 0), done;
	struct worker workers[WORKERS_MOST];
	unsigned failed, never, n;

	ASSERT(shared != MAP_FAILED);
	atomic_store(&shared->next, first);
	coverage_open();
	n = start(shared, seconds > 0 ? UINT64_MAX : first + seeds,
		  seconds > 0 ? begin_ns + seconds * NS_PER_S : UINT64_MAX, workers);
	failed = wait_all(shared, workers, n);
	never = coverage_print();
	done = atomic_load(&shared->done);
	printf("sim: %llu seeds from %llu on in %.1f s, %u failed, %u rows never reached\n",
	       (unsigned long long)done, (unsigned long long)first,
	       (double)(clock_now_ns() - begin_ns) / NS_PER_S, failed, never);
	return failed == 0 && (never == 0 || done < SEEDS_FOR_ALL) ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(void)
{
	bool one = getenv("SIM_SEED") != NULL && getenv("SIM_SEEDS") == NULL;

	/* Failures that were asked for are no news. */
	log_configure(getenv("TIERD_LOG") != NULL ? getenv("TIERD_LOG") : "error");
	if (one) {
		run_one(number("SIM_SEED", 1));
		return EXIT_SUCCESS;
	}
	return run_many(number("SIM_SEED", 1), number("SIM_SEEDS", SEEDS));
}
