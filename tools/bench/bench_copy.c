/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies to and from a GPU through tierd, by the public API of another process, each size beside
 * the raw driver copy of as many bytes in the same run, one after the other, once in memory of the
 * driver's and once in the very pages that tierd uses, as not all memory of a box is as fast: up,
 * down, both ways at once, on all GPUs at once, and between the GPU and nvme, which is compared
 * with the slower of the raw file and the raw link. As many copies are queued on either side. Many
 * rounds, of which the medians are printed, and the lowest and highest ratio.
 */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "tools/bench/raw_disk.h"
#include "tools/bench/sides.h"

#define GPUS_MAX    8u
#define ROUNDS      15u
#define DISK_ROUNDS 41u    /* rounds on a disk differ by a fifth */
#define ROUND_BYTES GIB(1) /* at most, of one side */
#define QUICK_BYTES MIB(16)
#define DISK_BYTES  MIB(512)
#define DISK_PIECE  MIB(32)
#define BALLAST     MIB(256) /* more of it than hbm pushes the others out */
#define BALLASTS    5u
#define PUSHES      20u

static const uint64_t sizes[] = { KIB(4),  KIB(64), KIB(256), MIB(1), MIB(4),
				  MIB(16), MIB(64), MIB(256), GIB(1) };

static const struct bench_config config = {
	.hbm_bytes = GIB(3), .hbm_backend = "cuda", .dram_bytes = GIB(5), .spin_us = BENCH_SPIN_US
};
static const struct bench_config disk_config = { .hbm_bytes = GIB(1),
						 .hbm_backend = "cuda",
						 .dram_bytes = GIB(4),
						 .nvme_bytes = GIB(6),
						 .spin_us = BENCH_SPIN_US };
static const struct bench_config quick_config = {
	.hbm_bytes = MIB(256), .hbm_backend = "cuda", .dram_bytes = MIB(256), .nvme_bytes = MIB(512)
};

struct copy {
	const struct bench_options *o;
	const char *socket;
	unsigned gpus;
	struct card gpu[GPUS_MAX];
	uint64_t ours[DISK_ROUNDS], raw[DISK_ROUNDS];
	uint64_t same[ROUNDS]; /* raw, from and to the same pages as ours */
	unsigned rounds;
};

static double median_gbps(double bytes, const uint64_t *ns, unsigned n)
{
	double gbps[DISK_ROUNDS];

	for (unsigned i = 0; i < n; i++)
		gbps[i] = bytes / (double)MAX(ns[i], 1);
	return median(gbps, n);
}

/* The median of the rounds' ratios: what is slow for a while is slow for both. */
static double ratio_to(const struct copy *c, const uint64_t *raw, double *ratio)
{
	for (unsigned i = 0; i < c->rounds; i++)
		ratio[i] = (double)raw[i] / (double)MAX(c->ours[i], 1);
	return median(ratio, c->rounds);
}

static void print(struct copy *c, const char *direction, uint64_t bytes, unsigned queued,
		  unsigned sides)
{
	double all = (double)(bytes * queued * sides);
	double ratio[DISK_ROUNDS];
	struct result r;

	result_begin(&r, c->o, "copy");
	result_text(&r, "direction", direction);
	result_count(&r, "bytes", bytes);
	result_count(&r, "queued", queued);
	result_real(&r, "gbps", median_gbps(all, c->ours, c->rounds));
	result_real(&r, "raw_gbps", median_gbps(all, c->raw, c->rounds));
	if (c->same[0] != 0) {
		result_real(&r, "same_gbps", median_gbps(all, c->same, c->rounds));
		result_real(&r, "same_ratio", ratio_to(c, c->same, ratio));
	}
	result_real(&r, "ratio", ratio_to(c, c->raw, ratio));
	result_real(&r, "ratio_low", ratio[0]);
	result_real(&r, "ratio_high", ratio[c->rounds - 1]);
	result_end(&r);
}

/* ---- between dram and GPUs ---- */

static const char *const names[] = { [GPU_UP] = "h2d", [GPU_DOWN] = "d2h" };

static int failed(const struct side *s)
{
	fprintf(stderr, "tierd-bench: copy: %s of %llu bytes: %s\n", names[s->direction],
		(unsigned long long)s->bytes, strerror(-s->rc));
	return 1;
}

/* A raw copy of all sides at once in the pages where they stand. *ret_ns: how long it took. */
static int raw_same(struct copy *c, struct side *sides, unsigned n,
		    uint64_t (*raw)(struct copy *, struct side *), uint64_t *ret_ns)
{
	unsigned held = 0;

	while (held < n && (sides[held].rc = side_hold(&sides[held], &c->gpu[0])) == 0)
		held++;
	if (held == n)
		*ret_ns = raw(c, sides);
	for (unsigned i = 0; i < held; i++)
		side_let_go(&sides[i]);
	return held == n ? 0 : sides[held].rc;
}

static uint64_t same_one(struct copy *c, struct side *s)
{
	return card_raw(&c->gpu[0], s->pages, s->direction, s->bytes, s->n);
}

static int one_way(struct copy *c, enum gpu_direction d, uint64_t bytes, unsigned n)
{
	struct side s;

	if (side_open(&s, c->socket, d, 0, bytes, n) < 0)
		return bench_failed("copy");
	side_round(&s); /* slabs are made and mapped */
	card_raw(&c->gpu[0], NULL, d, bytes, n);
	for (unsigned i = 0; i < c->rounds && s.rc == 0; i++) {
		c->ours[i] = side_round(&s);
		c->raw[i] = card_raw(&c->gpu[0], NULL, d, bytes, n);
		if (s.rc == 0)
			s.rc = raw_same(c, &s, 1, same_one, &c->same[i]);
	}
	if (s.rc == 0)
		print(c, names[d], bytes, n, 1);
	side_close(&s);
	return s.rc < 0 ? failed(&s) : 0;
}

static const struct side *any_failed(const struct side *sides, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (sides[i].rc < 0)
			return &sides[i];
	return NULL;
}

static int first_failure(const struct side *sides, unsigned n)
{
	const struct side *s = any_failed(sides, n);

	return s != NULL ? failed(s) : 0;
}

static uint64_t same_both(struct copy *c, struct side *s)
{
	return card_raw_both(&c->gpu[0], s[GPU_UP].pages, s[GPU_DOWN].pages, s->bytes, s->n);
}

/* Both directions on one GPU. */
static int both_ways(struct copy *c, uint64_t bytes, unsigned n)
{
	struct side sides[GPU_DIRECTIONS];
	int rc;

	for (unsigned d = 0; d < GPU_DIRECTIONS; d++)
		if (side_open(&sides[d], c->socket, d, 0, bytes, n) < 0)
			return bench_failed("copy");
	sides_round(sides, GPU_DIRECTIONS);
	card_raw_both(&c->gpu[0], NULL, NULL, bytes, n);
	for (unsigned i = 0; i < c->rounds && !any_failed(sides, GPU_DIRECTIONS); i++) {
		c->ours[i] = sides_round(sides, GPU_DIRECTIONS);
		c->raw[i] = card_raw_both(&c->gpu[0], NULL, NULL, bytes, n);
		if (!any_failed(sides, GPU_DIRECTIONS))
			raw_same(c, sides, GPU_DIRECTIONS, same_both, &c->same[i]);
	}
	rc = first_failure(sides, GPU_DIRECTIONS);
	if (rc == 0)
		print(c, "both", bytes, n, GPU_DIRECTIONS);
	for (unsigned d = 0; d < GPU_DIRECTIONS; d++)
		side_close(&sides[d]);
	return rc;
}

struct raw_thread {
	struct card *gpu;
	void *const *host;
	uint64_t bytes, ns;
	unsigned n;
	pthread_t thread;
};

static void *raw_main(void *arg)
{
	struct raw_thread *r = arg;

	card_attach(r->gpu);
	r->ns = card_raw(r->gpu, r->host, GPU_UP, r->bytes, r->n);
	return NULL;
}

/* All GPUs up at once: as long as the slowest takes. `sides`: in their pages, else NULL. */
static uint64_t raw_all(struct copy *c, const struct side *sides, uint64_t bytes, unsigned n)
{
	struct raw_thread r[GPUS_MAX];
	uint64_t ns = 0;

	for (unsigned i = 0; i < c->gpus; i++) {
		r[i] = (struct raw_thread){ .gpu = &c->gpu[i],
					    .host = sides != NULL ? sides[i].pages : NULL,
					    .bytes = bytes,
					    .n = n };
		ASSERT(pthread_create(&r[i].thread, NULL, raw_main, &r[i]) == 0);
	}
	for (unsigned i = 0; i < c->gpus; i++) {
		pthread_join(r[i].thread, NULL);
		ns = MAX(ns, r[i].ns);
	}
	return ns;
}

static uint64_t same_all(struct copy *c, struct side *sides)
{
	return raw_all(c, sides, sides->bytes, sides->n);
}

static int all_gpus(struct copy *c, uint64_t bytes, unsigned n)
{
	struct side sides[GPUS_MAX];
	int rc;

	for (unsigned i = 0; i < c->gpus; i++)
		if (side_open(&sides[i], c->socket, GPU_UP, (int)i, bytes, n) < 0)
			return bench_failed("copy");
	sides_round(sides, c->gpus);
	raw_all(c, NULL, bytes, n);
	for (unsigned i = 0; i < c->rounds && !any_failed(sides, c->gpus); i++) {
		c->ours[i] = sides_round(sides, c->gpus);
		c->raw[i] = raw_all(c, NULL, bytes, n);
		if (!any_failed(sides, c->gpus))
			raw_same(c, sides, c->gpus, same_all, &c->same[i]);
	}
	rc = first_failure(sides, c->gpus);
	if (rc == 0)
		print(c, "h2d_all", bytes, n, c->gpus);
	for (unsigned i = 0; i < c->gpus; i++)
		side_close(&sides[i]);
	return rc;
}

static uint64_t round_bytes(const struct copy *c)
{
	return c->o->quick ? QUICK_BYTES : ROUND_BYTES;
}

static int links(struct copy *c)
{
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(sizes) && rc == 0; i++) {
		uint64_t bytes = sizes[i];
		unsigned n = (unsigned)MIN(SIDE_TENSORS, round_bytes(c) / bytes);

		if (n == 0)
			break;
		rc = one_way(c, GPU_UP, bytes, n);
		if (rc == 0)
			rc = one_way(c, GPU_DOWN, bytes, n);
		if (rc == 0)
			rc = both_ways(c, bytes, n);
		if (rc == 0 && c->gpus > 1 && bytes >= MIB(4))
			rc = all_gpus(c, bytes, n);
	}
	return rc;
}

/* ---- between nvme and a GPU ---- */

struct disk {
	struct side side;
	tierd_tensor ballast[BALLASTS];
	unsigned ballasts;
	uint64_t ballast_bytes, bytes;
	struct raw_disk raw;
};

static int visit(struct tierd *t, tierd_tensor h, int place, uint32_t access)
{
	struct tierd_view v;
	int rc = tierd_acquire(t, h, place, access, -1, &v);

	if (rc == 0)
		tierd_release(t, &v);
	return rc;
}

/* How many of the set stand on nvme alone. */
static int count_away(struct disk *d, unsigned *ret)
{
	struct tierd_info info;
	int rc = 0;

	*ret = 0;
	for (unsigned i = 0; i < d->side.n && rc == 0; i++) {
		rc = tierd_stat(d->side.t, d->side.set[i], &info);
		*ret += rc == 0 &&
			info.stored_bytes[TIERD_HBM] + info.stored_bytes[TIERD_DRAM] == 0;
	}
	return rc;
}

/* What stands on nvme and in hbm leaves hbm when others want all of it. */
static int push_out(struct disk *d)
{
	struct side *s = &d->side;
	unsigned away = 0;
	int rc = 0;

	for (unsigned tries = 0; tries < PUSHES && rc == 0 && away < s->n; tries++) {
		rc = tierd_evict(s->t, s->set, s->n);
		for (unsigned i = 0; i < 2 * d->ballasts && rc == 0; i++)
			rc = visit(s->t, d->ballast[i % d->ballasts],
				   i < d->ballasts ? TIERD_HOST : 0, TIERD_READ);
		if (rc == 0)
			rc = count_away(d, &away);
	}
	if (rc == 0 && away < s->n) {
		fprintf(stderr, "tierd-bench: copy: %u of %u tensors leave hbm\n", away, s->n);
		rc = -EAGAIN;
	}
	return rc;
}

static int take_all(struct disk *d, uint32_t access)
{
	struct tierd_view views[SIDE_TENSORS];
	int rc = tierd_acquire_batch(d->side.t, d->side.set, d->side.n, 0, access, -1, views);

	for (unsigned i = 0; rc == 0 && i < d->side.n; i++)
		tierd_release(d->side.t, &views[i]);
	return rc;
}

static int disk_down(struct copy *c, struct disk *d, uint64_t *ret_ns)
{
	int rc = take_all(d, TIERD_WRITE | TIERD_DISCARD);
	uint64_t begin = clock_now_ns();

	if (rc == 0)
		rc = tierd_flush(d->side.t, d->side.set, d->side.n);
	*ret_ns = clock_now_ns() - begin;
	return rc;
}

static int disk_up(struct copy *c, struct disk *d, uint64_t *ret_ns)
{
	int rc = push_out(d);
	uint64_t begin = clock_now_ns();

	if (rc == 0)
		rc = take_all(d, TIERD_READ);
	*ret_ns = clock_now_ns() - begin;
	return rc;
}

/* The link is faster than any disk here, but that is for the figures to say. */
static uint64_t slower(struct copy *c, uint64_t disk_ns, enum gpu_direction direction,
		       uint64_t bytes)
{
	uint64_t piece = MIN(bytes, MIB(4));
	uint64_t link_ns = card_raw(&c->gpu[0], NULL, direction, piece, (unsigned)(bytes / piece));

	return MAX(disk_ns, link_ns);
}

/* A disk remembers what was done to it: a read behind a write is slower than one behind a read. So
 * who is first changes each round. */
static int disk_pair(struct copy *c, struct disk *d, enum gpu_direction direction, unsigned round,
		     uint64_t *ret_ours, uint64_t *ret_raw)
{
	int rc = 0;

	for (unsigned turn = 0; turn < 2 && rc == 0; turn++) {
		bool ours = turn == round % 2;

		if (ours && direction == GPU_DOWN)
			rc = disk_down(c, d, ret_ours);
		else if (ours)
			rc = disk_up(c, d, ret_ours);
		else if (direction == GPU_DOWN)
			*ret_raw = slower(c, raw_disk_write(&d->raw), direction, d->bytes);
		else
			*ret_raw = slower(c, raw_disk_read(&d->raw), direction, d->bytes);
	}
	return rc;
}

static int disk_rounds(struct copy *c, struct disk *d)
{
	static const char *const disk_names[] = { [GPU_UP] = "nvme2hbm", [GPU_DOWN] = "hbm2nvme" };
	int rc = 0;

	for (unsigned k = 0; k < GPU_DIRECTIONS; k++) {
		enum gpu_direction direction = k == 0 ? GPU_DOWN : GPU_UP;

		c->rounds = c->o->quick ? 1 : DISK_ROUNDS;
		c->same[0] = 0;
		for (unsigned i = 0; i < c->rounds && rc == 0; i++)
			rc = disk_pair(c, d, direction, i, &c->ours[i], &c->raw[i]);
		if (rc < 0)
			return bench_failed("copy: nvme");
		print(c, disk_names[direction], d->side.bytes, d->side.n, 1);
	}
	return 0;
}

static int make_ballast(struct disk *d)
{
	struct tierd_spec specs[BALLASTS];
	int rc;

	for (unsigned i = 0; i < d->ballasts; i++)
		specs[i] = (struct tierd_spec){ .class_ = TIERD_OTHER,
						.ndim = 1,
						.shape = { d->ballast_bytes } };
	rc = tierd_create(d->side.t, specs, d->ballasts, d->ballast);
	for (unsigned i = 0; i < d->ballasts && rc == 0; i++)
		rc = visit(d->side.t, d->ballast[i], TIERD_HOST, TIERD_WRITE);
	/* What gives its room to others is not to be written for it. */
	if (rc == 0)
		rc = tierd_flush(d->side.t, d->ballast, d->ballasts);
	return rc;
}

static uint64_t disk_bytes(const struct bench_options *o)
{
	return o->quick ? MIB(32) : DISK_BYTES;
}

static int disks(struct copy *c)
{
	bool quick = c->o->quick;
	struct disk d = { .ballasts = BALLASTS,
			  .ballast_bytes = quick ? MIB(64) : BALLAST,
			  .bytes = disk_bytes(c->o) };
	uint64_t piece = quick ? MIB(8) : DISK_PIECE;
	int rc;

	if (raw_disk_open(c->o->dir, d.bytes, &d.raw) < 0)
		return 1;
	if (side_open(&d.side, c->socket, GPU_DOWN, 0, piece, (unsigned)(d.bytes / piece)) < 0)
		rc = bench_failed("copy");
	else
		rc = make_ballast(&d) < 0 ? bench_failed("copy") : disk_rounds(c, &d);
	side_close(&d.side);
	raw_disk_close(&d.raw);
	return rc;
}

/* ---- all ---- */

static int with_daemon(struct copy *c, const struct bench_config *config_,
		       int (*run)(struct copy *))
{
	struct bench_daemon daemon;
	int rc = daemon_start(c->o, c->o->quick ? &quick_config : config_, &daemon);

	if (rc != 0)
		return rc;
	c->socket = daemon.socket;
	rc = run(c);
	return daemon_stop(&daemon) | rc;
}

static bool wants(const struct bench_options *o, const char *part)
{
	return o->part == NULL || strcmp(o->part, part) == 0;
}

int bench_copy(const struct bench_options *o)
{
	static struct copy c;
	int rc = 0;

	c.o = o;
	c.rounds = o->quick ? 1 : ROUNDS;
	c.gpus = MIN(MAX(card_count(), 1), GPUS_MAX);
	for (unsigned i = c.gpus; i-- > 0 && rc == 0;)
		rc = card_open((int)i, MAX(round_bytes(&c), disk_bytes(o)), &c.gpu[i]);
	if (rc != 0)
		return rc;
	bench_spin();
	if (wants(o, "links"))
		rc = with_daemon(&c, &config, links);
	if (rc == 0 && wants(o, "disks"))
		rc = with_daemon(&c, &disk_config, disks);
	for (unsigned i = 0; i < c.gpus; i++) {
		card_attach(&c.gpu[i]);
		card_close(&c.gpu[i]);
	}
	return rc;
}
