/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/unit/nvme_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define HOST_BYTES MIB(40)

static unsigned char *map(uint64_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(at, MAP_FAILED);
	return at;
}

void rig_init(struct rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	leftovers_folder(rig->folder);
	rig->config.path.path = strdup(rig->folder);
	ck_assert_ptr_nonnull(rig->config.path.path);
	rig->config.path.size.bytes = MIB(64);
	rig->config.options.queue_depth = 8;
	rig->config.options.block_bytes = MIB(1);
	rig->config.options.checksum_threads = 2;
	rig->config.options.direct = NVME_DIRECT_TRY;
	rig->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	ck_assert_int_ge(rig->wake_fd, 0);
	rig->host_bytes = HOST_BYTES;
	rig->host = map(HOST_BYTES);
}

void rig_end(struct rig *rig)
{
	if (rig->tier != NULL)
		rig_stop(rig);
	munmap(rig->host, rig->host_bytes);
	close(rig->wake_fd);
	free(rig->config.path.path);
	/* Fails when something was left in it. */
	ck_assert_int_eq(rmdir(rig->folder), 0);
}

int rig_try(struct rig *rig, struct err *err)
{
	ck_assert_ptr_null(rig->tier);
	return nvme_ops.open(&rig->config, 0, NULL, &rig->tier, err);
}

void rig_init_faulty(struct rig *rig)
{
	rig_init(rig);
	rig->config.options.fault.presence.present = true;
	rig->config.options.fault.seed = 11;
}

void rig_start(struct rig *rig)
{
	struct err err = ERR_INIT;
	int r = rig_try(rig, &err);

	ck_assert_msg(r == 0, "open: %d: %s", r, err.text);
	rig->staging_bytes = rig->tier->base.staging_want_bytes;
	rig->staging = map(rig->staging_bytes);
	nvme_ops.staging(rig->tier, rig->staging, rig->staging_bytes);
	nvme_ops.host_memory(rig->tier, rig->host, rig->host_bytes, rig->host_bytes);
	r = nvme_ops.lane_start(rig->tier, rig->wake_fd, &err);
	ck_assert_msg(r == 0, "lane_start: %d: %s", r, err.text);
}

void rig_stop(struct rig *rig)
{
	if (rig->staging != NULL) {
		nvme_ops.lane_stop(rig->tier);
		munmap(rig->staging, rig->staging_bytes);
	}
	nvme_ops.close(rig->tier);
	rig->tier = NULL;
	rig->staging = NULL;
}

struct xfer rig_xfer(uint8_t op, uint64_t offset, void *host, uint64_t bytes)
{
	struct xfer x = { .op = op, .offset = offset, .host = host, .bytes = bytes, .result = 1 };

	list_init(&x.link);
	return x;
}

void rig_run(struct rig *rig, struct xfer *x, unsigned n, unsigned *order)
{
	unsigned queued = 0, came = 0;
	struct xfer *done[4];
	uint64_t give_up_ns = clock_now_ns() + 120 * NS_PER_S;

	while (came < n) {
		unsigned count;

		while (queued < n && nvme_ops.queue(rig->tier, &x[queued]) == 0)
			queued++;
		nvme_ops.commit(rig->tier);
		count = nvme_ops.reap(rig->tier, done, ARRAY_SIZE(done));
		for (unsigned i = 0; i < count; i++, came++) {
			ck_assert(done[i] >= x && done[i] < x + n);
			ck_assert_int_le(done[i]->result, 0);
			if (order != NULL)
				order[came] = (unsigned)(done[i] - x);
		}
		if (count == 0)
			nvme_ops.wait(rig->tier, (int64_t)NS_PER_S);
		ck_assert_msg(clock_now_ns() < give_up_ns, "%u of %u xfers came back", came, n);
	}
}

int rig_write(struct rig *rig, uint64_t offset, void *host, uint64_t bytes, uint32_t *ret_crc)
{
	struct xfer x = rig_xfer(XFER_WRITE, offset, host, bytes);

	rig_run(rig, &x, 1, NULL);
	if (x.result == 0)
		*ret_crc = x.crc;
	return x.result;
}

int rig_read(struct rig *rig, uint64_t offset, void *host, uint64_t bytes, uint32_t crc)
{
	struct xfer x = rig_xfer(XFER_READ, offset, host, bytes);

	x.crc = crc;
	rig_run(rig, &x, 1, NULL);
	return x.result;
}

void rig_fill(unsigned char *at, uint64_t bytes, uint64_t seed)
{
	uint64_t z = seed * 0x9e3779b97f4a7c15ull + 1;

	for (uint64_t i = 0; i < bytes; i++) {
		if (i % 8 == 0)
			z = z * 6364136223846793005ull + 1442695040888963407ull;
		at[i] = (unsigned char)(z >> (i % 8 * 8));
	}
}

bool rig_all(const unsigned char *at, uint64_t bytes, unsigned char value)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (at[i] != value)
			return false;
	return true;
}

/* A block there and back. */
void rig_round_trip(struct rig *rig)
{
	uint32_t crc;

	rig_fill(rig->host, 5001, 1);
	ck_assert_int_eq(rig_write(rig, GRANULE, rig->host, 5001, &crc), 0);
	ck_assert_int_eq(rig_read(rig, GRANULE, rig->host + MIB(1), 5001, crc), 0);
	ck_assert_int_eq(memcmp(rig->host, rig->host + MIB(1), 5001), 0);
}

/* What another user or a container would see: in a child, whose limits end with it. */

void rig_in_child(void (*body)(struct rig *), bool unprivileged)
{
	struct rig rig;
	int status;
	pid_t pid;

	rig_init(&rig);
	if (unprivileged && geteuid() == 0)
		ck_assert_int_eq(chown(rig.folder, 65534, 65534), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		if (unprivileged && geteuid() == 0 &&
		    (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0))
			_exit(99);
		if (access(rig.config.path.path, W_OK) < 0)
			rig_skip("another user cannot reach %s", rig.config.path.path);
		else
			body(&rig);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: status %#x", status);
	rig_end(&rig);
}

void rig_child_failed(const char *expr, int line)
{
	fprintf(stderr, "child: line %d: %s does not hold\n", line, expr);
	_exit(1);
}
