/* SPDX-License-Identifier: Apache-2.0
 *
 * Several jobs on one GPU, each a process with a stream of its own: what a namespace is guaranteed
 * of it stays there, and what domains hand to each other through the driver is zeros. Copies and
 * memsets alone, no kernels, so that it runs on any driver: on the fake one it is
 * check_jobs_on_fake. Skipped (77) where there is no GPU.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cuda.h"
#include "libclient/admin.h"
#include "tests/fake/bytes.h"
#include "tests/system/domain_rig.h"

#define UNIT MIB(4) /* of a tensor, half a slab */
#define MS   120000

static struct system *const s = &domain_system;

/* A job's process. */
struct job {
	struct tierd *t;
	const struct cuda *cuda;
	CUcontext context;
	CUstream stream;
	unsigned char *copy; /* UNIT */
};

#define MUST_CUDA(j, call)                                                                     \
	do {                                                                                   \
		struct err err_ = ERR_INIT;                                                    \
		MUST(cuda_check((j)->cuda, (call), &err_, "%s", #call) == 0, "%s", err_.text); \
	} while (0)

/* After the process has become whoever it is. */
static void job_open(struct job *j, const char *name_space)
{
	struct err err = ERR_INIT;
	CUdevice device;

	MUST(cuda_open(&j->cuda, &err) == 0, "%s", err.text);
	MUST_CUDA(j, j->cuda->device_get(&device, 0));
	MUST_CUDA(j, j->cuda->primary_ctx_retain(&j->context, device));
	MUST_CUDA(j, j->cuda->ctx_set_current(j->context));
	MUST_CUDA(j, j->cuda->stream_create(&j->stream, CU_STREAM_NON_BLOCKING, 0));
	j->copy = malloc(UNIT);
	MUST(j->copy != NULL, "no memory");
	MUST(tierd_open(s->socket, name_space, 0, &j->t) == 0, "%s", tierd_error(NULL));
}

static void job_close(struct job *j)
{
	tierd_close(j->t);
	MUST_CUDA(j, j->cuda->stream_destroy(j->stream));
	free(j->copy);
}

static void job_make(struct job *j, tierd_tensor *ret, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		ret[i] = domain_make(j->t, NULL, UNIT);
}

static struct tierd_view job_hold(struct job *j, tierd_tensor x, uint32_t access)
{
	struct tierd_view v;

	MUST(tierd_acquire_on(j->t, &x, 1, 0, access, j->stream, &v) == 0, "acquire_on: %s",
	     tierd_error(j->t));
	return v;
}

static void job_let_go(struct job *j, struct tierd_view *v)
{
	MUST(tierd_release_on(j->t, v, 1, j->stream) == 0, "release_on: %s", tierd_error(j->t));
}

static void job_write(struct job *j, tierd_tensor x, int byte)
{
	struct tierd_view v = job_hold(j, x, TIERD_WRITE | TIERD_DISCARD);

	MUST_CUDA(j, j->cuda->memset_d8_async((CUdeviceptr)v.data, (unsigned char)byte, UNIT,
					      j->stream));
	job_let_go(j, &v);
}

/* What a view shows on the GPU is in j->copy then. */
static void job_look(struct job *j, const struct tierd_view *v)
{
	MUST_CUDA(j, j->cuda->memcpy_dtoh_async(j->copy, (CUdeviceptr)v->data, UNIT, j->stream));
	MUST_CUDA(j, j->cuda->stream_synchronize(j->stream));
}

static void job_expect(struct job *j, tierd_tensor x, int byte)
{
	struct tierd_view v = job_hold(j, x, TIERD_READ);

	job_look(j, &v);
	job_let_go(j, &v);
	MUST(system_bytes_are(j->copy, (unsigned char)byte, UNIT), "bytes differ");
}

/* ---- what a job is guaranteed ---- */

#define JOBS                                                        \
	"tensors: 4Ki\n"                                            \
	"tiers:\n"                                                  \
	"  hbm: {backend: cuda, size: 128MiB, slab: 8MiB}\n"        \
	"  dram: {size: 320MiB, huge_pages: off}\n"                 \
	"namespaces:\n"                                             \
	"  - {name: busy, hbm: {guarantee: 32MiB, limit: 64MiB}}\n" \
	"  - {name: quiet, hbm: {guarantee: 64MiB}}\n"
#define QUIET 16u /* tensors: all that it is guaranteed */
#define BUSY  40u /* more than the GPU holds */

struct used {
	const char *name;
	uint64_t bytes;
};

static int find_used(void *ctx, const struct admin_quota *q)
{
	struct used *u = ctx;

	if (q->quota.device == 0 && strcmp(q->name, u->name) == 0)
		u->bytes = q->quota.used_bytes;
	return 0;
}

static uint64_t used_of(struct job *j, const char *name_space)
{
	struct used u = { .name = name_space };

	MUST(admin_quotas(j->t, find_used, &u) == 0, "quotas: %s", tierd_error(j->t));
	return u.bytes;
}

/* It fills its guarantee, uses nothing for a long time, and finds all of it on the GPU. */
static void is_quiet(struct system *unused, void *arg)
{
	tierd_tensor x[QUIET];
	struct tierd_info info;
	struct job j;

	job_open(&j, "quiet");
	job_make(&j, x, QUIET);
	for (unsigned i = 0; i < QUIET; i++)
		job_write(&j, x[i], (int)i + 1);
	MUST_CUDA(&j, j.cuda->stream_synchronize(j.stream));
	domain_reach(1);
	domain_await(2);
	for (unsigned i = 0; i < QUIET; i++) {
		MUST(tierd_stat(j.t, x[i], &info) == 0, "stat: %s", tierd_error(j.t));
		MUST(info.place == 0, "tensor %u is not on the GPU any more", i);
		job_expect(&j, x[i], (int)i + 1);
	}
	job_close(&j);
}

static void is_busy(struct system *unused, void *arg)
{
	tierd_tensor x[BUSY];
	struct tierd_view v[QUIET + 1];
	struct job j;
	int rc;

	job_open(&j, "busy");
	job_make(&j, x, BUSY);
	domain_await(1);
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < BUSY; i++) {
			if (round > 0)
				job_expect(&j, x[i], (int)(i + round));
			job_write(&j, x[i], (int)(i + round + 1));
			MUST(used_of(&j, "busy") <= MIB(64), "it is above its limit");
			MUST(used_of(&j, "quiet") >= MIB(64), "it took what is guaranteed");
		}
	rc = tierd_acquire_on(j.t, x, QUIET + 1, 0, TIERD_READ, j.stream, v);
	MUST(rc == -EDQUOT, "more than its limit: %d", rc);
	MUST(used_of(&j, "busy") >= MIB(32), "it has less than it could");
	domain_reach(2);
	job_close(&j);
}

START_TEST(two_jobs_on_one_gpu_keep_what_each_is_guaranteed)
{
	pid_t quiet, busy;

	domain_start(JOBS);
	quiet = system_child(is_quiet, s, NULL);
	busy = system_child(is_busy, s, NULL);
	system_child_end(s, busy, MS);
	system_child_end(s, quiet, MS);
	domain_stop();
}
END_TEST

/* ---- what domains hand on ---- */

#define DOMAINS                                                       \
	"tensors: 4Ki\n"                                              \
	"strangers: refuse\n"                                         \
	"tiers:\n"                                                    \
	"  hbm: {backend: cuda, size: 128MiB, slab: 8MiB}\n"          \
	"  dram: {size: 256MiB, huge_pages: off}\n"                   \
	"domains:\n"                                                  \
	"  - {name: red, users: [60001], hbm: 64MiB, dram: 128MiB}\n" \
	"  - {name: blue, users: [60002], hbm: 64MiB, dram: 128MiB}\n"
#define TENSORS  12u /* six slabs of the eight that a domain has */
#define MANY     20u /* more than its share of the GPU holds */
#define ROUNDS   3u
#define OWN(uid) ((unsigned char)((uid) == RED ? 0x5c : 0xa3))

static void job_give_memory_back(struct job *j)
{
	const _Atomic uint64_t *backed = &admin_stats_page(j->t)->tier[0].backed_bytes;
	uint64_t end_ns = clock_now_ns() + 60 * NS_PER_S;

	while (atomic_load(backed) > 0) {
		MUST(clock_now_ns() < end_ns, "%llu bytes are not given back",
		     (unsigned long long)atomic_load(backed));
		MUST(tierd_trim(j->t) == 0, "trim: %s", tierd_error(j->t));
		usleep(1000);
	}
}

/* A writer that discards sees what was there: nothing, or what its own domain left. */
/* Where the first byte is that is neither 0 nor `own`. */
BYTES_UNSEEN static uint64_t first_of_others(const unsigned char *at, uint64_t bytes,
					     unsigned char own)
{
	uint64_t i = 0;

	while (i < bytes && (at[i] == 0 || at[i] == own))
		i++;
	return i;
}

static void job_look_for_others(struct job *j, tierd_tensor x, unsigned char own)
{
	struct tierd_view v = job_hold(j, x, TIERD_WRITE | TIERD_DISCARD);
	uint64_t i;

	job_look(j, &v);
	bytes_are_read(j->copy, UNIT);
	i = first_of_others(j->copy, UNIT, own);
	MUST(i == UNIT, "byte %llu is %#x", (unsigned long long)i, j->copy[i]);
	MUST_CUDA(j, j->cuda->memset_d8_async((CUdeviceptr)v.data, own, UNIT, j->stream));
	job_let_go(j, &v);
}

/* By turns all of the memory is one's and the other's. */
static void takes_turns(struct system *unused, void *arg)
{
	unsigned uid = *(const unsigned *)arg, turn = uid == BLUE;
	tierd_tensor x[TENSORS];
	struct job j;

	domain_become(uid);
	job_open(&j, "job");
	for (unsigned round = 0; round < ROUNDS; round++) {
		domain_await(2 * round + turn);
		job_make(&j, x, TENSORS);
		for (unsigned i = 0; i < TENSORS; i++)
			job_look_for_others(&j, x[i], OWN(uid));
		for (unsigned i = 0; i < TENSORS; i++)
			job_expect(&j, x[i], OWN(uid));
		MUST_CUDA(&j, j.cuda->stream_synchronize(j.stream));
		MUST(tierd_destroy(j.t, x, TENSORS) == 0, "destroy: %s", tierd_error(j.t));
		job_give_memory_back(&j);
		domain_reach(2 * round + turn + 1);
	}
	job_close(&j);
}

START_TEST(slabs_come_to_another_domain_as_zeros)
{
	unsigned red = RED, blue = BLUE;
	pid_t pid[2];

	if (domain_root_is_missing())
		return;
	domain_start(DOMAINS);
	pid[0] = system_child(takes_turns, s, &red);
	pid[1] = system_child(takes_turns, s, &blue);
	for (unsigned i = 0; i < 2; i++)
		system_child_end(s, pid[i], MS);
	domain_stop();
}
END_TEST

/* Both at once, each with more than its share of the GPU. */
static void works_beside_the_other(struct system *unused, void *arg)
{
	unsigned uid = *(const unsigned *)arg;
	tierd_tensor x[MANY];
	struct job j;

	domain_become(uid);
	job_open(&j, "job");
	for (unsigned round = 0; round < ROUNDS; round++) {
		job_make(&j, x, MANY);
		for (unsigned i = 0; i < MANY; i++)
			job_look_for_others(&j, x[i], OWN(uid));
		for (unsigned i = 0; i < MANY; i++)
			job_expect(&j, x[i], OWN(uid));
		MUST_CUDA(&j, j.cuda->stream_synchronize(j.stream));
		MUST(tierd_destroy(j.t, x, MANY) == 0, "destroy: %s", tierd_error(j.t));
		MUST(tierd_trim(j.t) == 0, "trim: %s", tierd_error(j.t));
	}
	job_close(&j);
}

START_TEST(streams_of_two_domains_see_their_own_bytes_alone)
{
	unsigned red = RED, blue = BLUE;
	pid_t pid[2];

	if (domain_root_is_missing())
		return;
	domain_start(DOMAINS);
	pid[0] = system_child(works_beside_the_other, s, &red);
	pid[1] = system_child(works_beside_the_other, s, &blue);
	for (unsigned i = 0; i < 2; i++)
		system_child_end(s, pid[i], MS);
	domain_stop();
}
END_TEST

/* Asked in a process of its own: this one forks clients, and no driver survives that. */
static bool has_gpu(void)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		const struct cuda *cuda;
		int n = 0;

		_exit(cuda_open(&cuda, NULL) == 0 && cuda->device_get_count(&n) == CUDA_SUCCESS &&
		      n > 0);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	       WEXITSTATUS(status) == 1;
}

int main(int argc, char **argv)
{
	static const TTest *const *const all[] = {
		&two_jobs_on_one_gpu_keep_what_each_is_guaranteed,
		&slabs_come_to_another_domain_as_zeros,
		&streams_of_two_domains_see_their_own_bytes_alone,
	};
	const TTest *tests[ARRAY_SIZE(all)];

	if (!has_gpu()) {
		printf("skipped: there is no GPU that CUDA can use\n");
		return 77;
	}
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		tests[i] = *all[i];
	return unit_run("jobs", tests, ARRAY_SIZE(tests), argv + 1);
}
