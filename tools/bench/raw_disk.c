/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tools/bench/raw_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"

#define BLOCK MIB(1)
#define DEPTH 64u

static int fail(const char *dir, const char *what, int code)
{
	fprintf(stderr, "tierd-bench: %s: %s: %s\n", dir, what, strerror(code));
	return -code;
}

static _Noreturn void die(const char *what, int code)
{
	fprintf(stderr, "tierd-bench: raw file: %s: %s\n", what, strerror(code));
	exit(1);
}

int raw_disk_open(const char *dir, uint64_t bytes, struct raw_disk *ret)
{
	int r;

	dir = dir != NULL ? dir : "/tmp";
	*ret = (struct raw_disk){ .bytes = bytes };
	ret->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
	if (ret->fd < 0 && errno == EINVAL)
		ret->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (ret->fd < 0)
		return fail(dir, "file", errno);
	/* On 2 MiB pages where they are to be had: a disk behind virtio is twice as fast with them.
	 */
	ret->blocks = mmap(NULL, DEPTH * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);
	if (ret->blocks != MAP_FAILED)
		madvise(ret->blocks, DEPTH * BLOCK, MADV_HUGEPAGE);
	if (ret->blocks == MAP_FAILED || fallocate(ret->fd, 0, 0, (off_t)bytes) < 0) {
		close(ret->fd);
		return fail(dir, "room", errno);
	}
	r = io_uring_queue_init(DEPTH, &ret->ring, 0);
	if (r < 0) {
		close(ret->fd);
		return fail(dir, "io_uring", -r);
	}
	memset(ret->blocks, 1, DEPTH * BLOCK);
	raw_disk_write(ret);
	return 0;
}

void raw_disk_close(struct raw_disk *d)
{
	io_uring_queue_exit(&d->ring);
	munmap(d->blocks, DEPTH * BLOCK);
	close(d->fd);
}

static void start(struct raw_disk *d, bool write, uint64_t block, unsigned slot)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&d->ring);
	char *at = (char *)d->blocks + slot * BLOCK;

	if (write)
		io_uring_prep_write(sqe, d->fd, at, (unsigned)BLOCK, block * BLOCK);
	else
		io_uring_prep_read(sqe, d->fd, at, (unsigned)BLOCK, block * BLOCK);
	io_uring_sqe_set_data64(sqe, slot);
}

static unsigned finish_one(struct raw_disk *d)
{
	struct io_uring_cqe *cqe;
	int r = io_uring_submit_and_wait(&d->ring, 1);
	unsigned slot;

	if (r < 0 || (r = io_uring_wait_cqe(&d->ring, &cqe)) < 0)
		die("io_uring", -r);
	if (cqe->res != (int)BLOCK)
		die("a transfer", cqe->res < 0 ? -cqe->res : EIO);
	slot = (unsigned)io_uring_cqe_get_data64(cqe);
	io_uring_cqe_seen(&d->ring, cqe);
	return slot;
}

static uint64_t pass(struct raw_disk *d, bool write)
{
	uint64_t blocks = d->bytes / BLOCK, next = 0, begin = clock_now_ns();
	unsigned in_flight = 0;

	for (; next < MIN(blocks, DEPTH); next++, in_flight++)
		start(d, write, next, (unsigned)next);
	while (in_flight > 0) {
		unsigned slot = finish_one(d);

		in_flight--;
		if (next < blocks) {
			start(d, write, next++, slot);
			in_flight++;
		}
	}
	if (write && fdatasync(d->fd) < 0)
		die("fdatasync", errno);
	return clock_now_ns() - begin;
}

uint64_t raw_disk_write(struct raw_disk *d)
{
	return pass(d, true);
}

uint64_t raw_disk_read(struct raw_disk *d)
{
	return pass(d, false);
}
