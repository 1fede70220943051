/* SPDX-License-Identifier: Apache-2.0
 *
 * A file without a name, read and written whole as fast as this folder's disk goes: O_DIRECT where
 * it takes it, 1 MiB blocks, 64 on their way, by io_uring. What tierd's way to nvme is compared
 * with. One thread.
 */
#ifndef TIERD_TOOLS_BENCH_RAW_DISK_H
#define TIERD_TOOLS_BENCH_RAW_DISK_H

#include <liburing.h>
#include <stdint.h>

struct raw_disk {
	int fd;
	uint64_t bytes;
	void *blocks; /* one a request in flight */
	struct io_uring ring;
};

/* 0 or -errno, said why. `bytes` is a multiple of 1 MiB. */
int raw_disk_open(const char *dir, uint64_t bytes, struct raw_disk *ret);
void raw_disk_close(struct raw_disk *d);
/* Nanoseconds; the write ends with an fdatasync. A failure ends the program. */
uint64_t raw_disk_write(struct raw_disk *d);
uint64_t raw_disk_read(struct raw_disk *d);

#endif
