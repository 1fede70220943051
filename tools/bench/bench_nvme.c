/* SPDX-License-Identifier: Apache-2.0
 *
 * What the nvme tier reads and writes: its real backend and lane on a folder or device, CRCs
 * included, whole blocks in order, the queue kept full. The first pass over the space (which lays
 * it out on the disk) is made before anything is measured.
 *
 * --small-pages: memory on 4 KiB pages, as with huge_pages: off. --serve reads one measurement a
 * line from stdin, "read 3", so that a script can alternate it with another program on the same
 * disk.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "config/units.h"
#include "tiers/arena.h"
#include "tiers/lane.h"
#include "tiers/nvme.h"
#include "tools/bench/bench_nvme.h"

enum mode { MODE_READ, MODE_WRITE, MODE_MIXED, MODES };
static const char *const mode_names[] = { "read", "write", "mixed" };

struct bench {
	struct nvme_config config;
	uint64_t seconds;
	int mode; /* -1: all */
	bool json, serve, small_pages;

	struct tier *tier;
	struct lane *lane;
	int done_fd;
	_Atomic uint32_t done_wanted;
	struct arena memory; /* as the daemon's: staging, then one block an xfer */
	struct xfer *xfers;
	unsigned xfer_count;
	uint64_t blocks;  /* of the tier */
	uint32_t *crc;    /* one a block */
	uint64_t next[2]; /* block to read, to write */
	uint64_t completed_bytes;
};

static int usage(void)
{
	fputs("usage: tierd-bench nvme --dir DIR [--size SIZE] [--block SIZE] [--depth N]\n"
	      "                        [--mode read|write|mixed] [--seconds N] [--json] "
	      "[--serve]\n",
	      stderr);
	return 2;
}

static bool misused(const char *subject, const char *what)
{
	fprintf(stderr, "tierd-bench nvme: %s: %s\n", subject, what);
	return false;
}

static int find_mode(const char *name)
{
	for (int i = 0; i < MODES; i++)
		if (strcmp(mode_names[i], name) == 0)
			return i;
	return -1;
}

static bool read_number(const struct unit_scale *scale, const char *option, const char *text,
			uint64_t *ret)
{
	struct why why;

	if (unit_read(scale, text, NULL, ret, &why) == 0)
		return true;
	fprintf(stderr, "tierd-bench nvme: --%s: %s\n", option, why.text);
	return false;
}

static bool take_option(struct bench *b, int c, const char *option)
{
	struct nvme_options *o = &b->config.options;

	switch (c) {
	case 'd':
		b->config.path.path = optarg;
		return true;
	case 'S':
		return read_number(&unit_sizes, option, optarg, &b->config.path.size.bytes);
	case 'b':
		return read_number(&unit_sizes, option, optarg, &o->block_bytes);
	case 'q':
		return read_number(&unit_counts, option, optarg, &o->queue_depth);
	case 't':
		return read_number(&unit_counts, option, optarg, &b->seconds);
	case 'm':
		b->mode = find_mode(optarg);
		return b->mode >= 0 || misused(optarg, "not a mode");
	case 'j':
		return b->json = true;
	case 's':
		return b->serve = true;
	case 'p':
		return b->small_pages = true;
	}
	return false;
}

static bool parse(struct bench *b, int argc, char **argv)
{
	static const struct option options[] = {
		{ "dir", required_argument, NULL, 'd' },
		{ "size", required_argument, NULL, 'S' },
		{ "block", required_argument, NULL, 'b' },
		{ "depth", required_argument, NULL, 'q' },
		{ "seconds", required_argument, NULL, 't' },
		{ "mode", required_argument, NULL, 'm' },
		{ "json", no_argument, NULL, 'j' },
		{ "serve", no_argument, NULL, 's' },
		{ "small-pages", no_argument, NULL, 'p' },
		{ NULL, 0, NULL, 0 },
	};
	int c, index = 0;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "", options, &index)) != -1) {
		if (c == '?')
			return misused(argv[optind - 1],
				       "no such option, or its argument is missing");
		if (!take_option(b, c, options[index].name))
			return false;
	}
	if (optind < argc)
		return misused(argv[optind], "not an option");
	if (b->config.path.path == NULL)
		return misused("--dir DIR", "is needed: an existing folder, or a block device");
	return true;
}

/* Bytes that no layer below can shorten. */
static void fill(unsigned char *at, uint64_t bytes)
{
	uint64_t z = 1;

	for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
		z = z * 6364136223846793005ull + 1442695040888963407ull;
		memcpy(at + i, &z, 8);
	}
}

/* Staging, and a dram arena of one block an xfer. */
static int make_memory(struct bench *b, uint64_t staging, struct err *err)
{
	uint64_t block = b->config.options.block_bytes;
	struct arena_options o = {
		.name = "bench-nvme",
		.bytes = staging + b->xfer_count * block,
		.touch = true,
		.huge = b->small_pages ? ARENA_HUGE_OFF : ARENA_HUGE_TRY,
	};
	unsigned char *host;
	int r = arena_create(&o, &b->memory, err);

	if (r < 0)
		return r;
	host = (unsigned char *)b->memory.base + staging;
	fill(host, b->xfer_count * block);
	for (unsigned i = 0; i < b->xfer_count; i++)
		b->xfers[i].host = host + i * block;
	nvme_ops.staging(b->tier, b->memory.base, staging);
	nvme_ops.host_memory(b->tier, host, b->xfer_count * block, b->xfer_count * block);
	return 0;
}

static int start(struct bench *b, struct err *err)
{
	uint64_t block = b->config.options.block_bytes;
	int r = nvme_ops.open(&b->config, 0, NULL, &b->tier, err);

	if (r < 0)
		return r;
	b->blocks = b->tier->base.bytes / block;
	/* Some more than the depth: the lane has the next at hand when one completes. */
	b->xfer_count = (unsigned)(b->config.options.queue_depth * 3 / 2 + 1);
	b->xfers = calloc(b->xfer_count, sizeof(*b->xfers));
	b->crc = calloc(b->blocks, sizeof(*b->crc));
	ASSERT(b->xfers != NULL && b->crc != NULL);
	b->done_fd = eventfd(0, EFD_CLOEXEC);
	ASSERT(b->done_fd >= 0);
	r = make_memory(b, b->tier->base.staging_want_bytes, err);
	if (r == 0)
		r = lane_start(b->tier, b->done_fd, &b->done_wanted, &b->lane, err);
	if (r < 0)
		nvme_ops.close(b->tier);
	return r;
}

static void stop(struct bench *b)
{
	lane_stop(b->lane);
	nvme_ops.close(b->tier);
	arena_destroy(&b->memory);
	close(b->done_fd);
	free(b->xfers);
	free(b->crc);
}

/* Reads keep to the first half of the space and writes to the second where both go on at once: a
 * block that is being written has no CRC yet. */
static void submit(struct bench *b, struct xfer *x, bool write, bool halves)
{
	uint64_t half = b->blocks / 2, *next = &b->next[write];
	uint64_t begin = halves && write ? half : 0, end = halves && !write ? half : b->blocks;

	if (*next < begin || *next >= end)
		*next = begin;
	x->op = write ? XFER_WRITE : XFER_READ;
	/* Not demand, which may go past the depth: what is compared has the same depth. */
	x->priority = write ? XFER_WRITE_BACK : XFER_PREFETCH;
	x->part = (uint32_t)*next;
	x->offset = *next * b->config.options.block_bytes;
	x->bytes = b->config.options.block_bytes;
	x->crc = write ? 0 : b->crc[*next];
	++*next;
	lane_submit(b->lane, x);
}

static bool take_done(struct bench *b, struct xfer *x)
{
	if (x->result < 0) {
		fprintf(stderr, "tierd-bench nvme: %s\n", x->cause);
		return false;
	}
	if (x->op == XFER_WRITE)
		b->crc[x->part] = x->crc;
	b->completed_bytes += x->bytes;
	return true;
}

static unsigned wait_done(struct bench *b, struct xfer **done, unsigned max)
{
	unsigned n = lane_reap(b->lane, done, max);
	uint64_t count;

	while (n == 0) {
		atomic_store(&b->done_wanted, 1);
		n = lane_reap(b->lane, done, max);
		if (n > 0) {
			/* Not wanted any more; unless the lane saw it first and writes. */
			if (atomic_exchange(&b->done_wanted, 0) != 0)
				break;
		}
		ASSERT(read(b->done_fd, &count, sizeof(count)) == sizeof(count));
		if (n == 0)
			n = lane_reap(b->lane, done, max);
	}
	return n;
}

/* Runs for `seconds`, or for `blocks` when that is not 0. Returns bytes a second, 0 on a failure.
 */
static double run(struct bench *b, int mode, uint64_t seconds, uint64_t blocks)
{
	uint64_t begin_ns = clock_now_ns(), end_ns = begin_ns + seconds * NS_PER_S;
	uint64_t submitted = 0, came = 0;
	struct xfer *done[64];
	bool good = true;

	b->completed_bytes = 0;
	/* From the start of the space, as fio does: what is below may have a cache of its own. */
	b->next[0] = b->next[1] = 0;
	for (; submitted < b->xfer_count && (blocks == 0 || submitted < blocks); submitted++)
		submit(b, &b->xfers[submitted],
		       mode == MODE_WRITE || (mode == MODE_MIXED && submitted % 2 == 1),
		       mode == MODE_MIXED);
	lane_kick(b->lane);
	while (came < submitted) {
		unsigned n = wait_done(b, done, ARRAY_SIZE(done));

		for (unsigned i = 0; i < n; i++, came++) {
			good = take_done(b, done[i]) && good;
			if (!good || (blocks != 0 ? submitted == blocks : clock_now_ns() > end_ns))
				continue;
			submit(b, done[i], done[i]->op == XFER_WRITE, mode == MODE_MIXED);
			submitted++;
		}
		lane_kick(b->lane);
	}
	if (!good)
		return 0;
	return (double)b->completed_bytes / ((double)(clock_now_ns() - begin_ns) / NS_PER_S);
}

static bool measure(struct bench *b, int mode, uint64_t seconds)
{
	const struct nvme_options *o = &b->config.options;
	double rate = run(b, mode, seconds, 0);

	if (rate <= 0)
		return false;
	if (b->json)
		printf("{\"bench\":\"nvme\",\"mode\":\"%s\",\"block\":%llu,\"depth\":%llu,"
		       "\"gbps\":%.3f}\n",
		       mode_names[mode], (unsigned long long)o->block_bytes,
		       (unsigned long long)o->queue_depth, rate / 1e9);
	else
		printf("nvme %-5s %7.3f GB/s, block %llu, depth %llu\n", mode_names[mode],
		       rate / 1e9, (unsigned long long)o->block_bytes,
		       (unsigned long long)o->queue_depth);
	fflush(stdout);
	return true;
}

static bool serve(struct bench *b)
{
	char line[64], name[16];
	unsigned long seconds;

	while (fgets(line, sizeof(line), stdin) != NULL) {
		if (sscanf(line, "%15s %lu", name, &seconds) != 2 || find_mode(name) < 0) {
			fprintf(stderr, "tierd-bench nvme: \"MODE SECONDS\" expected\n");
			return false;
		}
		if (!measure(b, find_mode(name), seconds))
			return false;
	}
	return true;
}

static bool measure_all(struct bench *b)
{
	for (int mode = 0; mode < MODES; mode++)
		if ((b->mode < 0 || b->mode == mode) && !measure(b, mode, b->seconds))
			return false;
	return true;
}

int bench_nvme(int argc, char **argv)
{
	struct bench b = { .seconds = 3, .mode = -1 };
	struct err err = ERR_INIT;
	double first;
	bool good;

	b.config.path.size.bytes = GIB(4);
	b.config.options.block_bytes = NVME_BLOCK_DEFAULT;
	b.config.options.queue_depth = NVME_DEPTH_DEFAULT;
	b.config.options.checksum_threads = NVME_CHECKSUM_THREADS_DEFAULT;
	if (!parse(&b, argc, argv))
		return usage();
	if (start(&b, &err) < 0) {
		fprintf(stderr, "tierd-bench nvme: %s\n", err.text);
		return EXIT_FAILURE;
	}
	first = run(&b, MODE_WRITE, 0, b.blocks);
	fprintf(stderr, "nvme first pass %.3f GB/s: %s; memory: %s\n", first / 1e9,
		b.tier->base.chosen, b.memory.chosen);
	good = first > 0 && (b.serve ? serve(&b) : measure_all(&b));
	stop(&b);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
