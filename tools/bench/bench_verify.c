/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes and patterns through every tier: what was written comes back whole from hbm, dram and nvme,
 * through pointers and through copies.
 */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "libclient/tierd.h"
#include "tools/bench/bench.h"

#define GPU       0
#define BALLAST   MIB(4)
#define BALLASTS  32u /* together more than dram */
#define TRIES     50u
#define QUICK_MAX 4097u
#define NVME_MIN  4096u /* smaller tensors never go to nvme */

/* `create` keeps room for the largest tensor once more. */
#define NVME_LONG (2 * LARGE + GIB(1))

static const struct bench_config config = {
	.hbm_bytes = MIB(48), .dram_bytes = MIB(96), .nvme_bytes = GIB(1), .staging_bytes = MIB(16)
};

static const uint64_t sizes[] = { 0,    1,    3,     511,        512,    513,        4095,
				  4096, 4097, 65537, MIB(1) - 1, MIB(1), MIB(1) + 1, 28824000 };
#define LARGE (GIB(4) + 4097) /* larger than dram: by copies only */

struct pattern {
	const char *name;
	unsigned char (*byte)(uint64_t at);
};

static unsigned char zeros(uint64_t at)
{
	return 0;
}

static unsigned char ones(uint64_t at)
{
	return 0xff;
}

/* Differs from itself at every shift by a sector, page or block. */
static unsigned char counter(uint64_t at)
{
	return (unsigned char)(at * 131 + (at >> 9) * 7 + (at >> 20));
}

static unsigned char noise(uint64_t at)
{
	uint64_t x = (at >> 3) * 0x9e3779b97f4a7c15ull;

	return (unsigned char)((x ^ x >> 29) >> (at & 7) * 8);
}

static const struct pattern patterns[] = {
	{ "zeros", zeros }, { "ones", ones }, { "counter", counter }, { "noise", noise }
};

struct verify {
	const struct bench_options *o;
	struct tierd *t;
	tierd_tensor ballast[BALLASTS];
	const struct pattern *pattern;
	uint64_t bytes;
	tierd_tensor h;
	bool good; /* no byte was wrong */
};

static void fill(const struct verify *v, uint64_t at, unsigned char *to, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		to[i] = v->pattern->byte(at + i);
}

static void check(struct verify *v, const char *where, uint64_t at, const unsigned char *from,
		  uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes && v->good; i++) {
		if (from[i] == v->pattern->byte(at + i))
			continue;
		fprintf(stderr, "tierd-bench: %s of %llu bytes, byte %llu, %s: %#x, not %#x\n",
			v->pattern->name, (unsigned long long)v->bytes,
			(unsigned long long)(at + i), where, from[i], v->pattern->byte(at + i));
		v->good = false;
	}
}

static int check_at(struct verify *v, const char *where, int place)
{
	struct tierd_view view;
	int rc = tierd_acquire(v->t, v->h, place, TIERD_READ, -1, &view);

	if (rc < 0)
		return rc;
	if (view.bytes != v->bytes)
		v->good = false;
	check(v, where, 0, view.data, view.bytes);
	tierd_release(v->t, &view);
	return 0;
}

static int use_ballast(struct verify *v)
{
	int rc = 0;

	for (unsigned i = 0; i < BALLASTS && rc == 0; i++) {
		struct tierd_view view;

		rc = tierd_acquire(v->t, v->ballast[i], TIERD_HOST, TIERD_WRITE, -1, &view);
		if (rc < 0)
			break;
		*(char *)view.data = (char)i;
		tierd_release(v->t, &view);
	}
	return rc;
}

/* Pushes the tensor down until no byte of it is in hbm or dram: out of hbm by asking for it in
 * dram, out of dram by others that want the room. Below 4 KiB it stays there. */
static int push_down(struct verify *v)
{
	struct tierd_info info;
	int rc = check_at(v, "back in dram", TIERD_HOST);

	if (v->bytes < NVME_MIN)
		return rc;
	for (unsigned tries = 0; tries < TRIES && rc == 0; tries++) {
		rc = tierd_stat(v->t, v->h, &info);
		if (rc == 0 && info.stored_bytes[TIERD_HBM] + info.stored_bytes[TIERD_DRAM] == 0)
			return 0;
		if (rc == 0)
			rc = tierd_evict(v->t, &v->h, 1);
		if (rc == 0)
			rc = use_ballast(v);
	}
	if (rc == 0) {
		fprintf(stderr, "tierd-bench: %llu bytes do not leave hbm and dram\n",
			(unsigned long long)v->bytes);
		v->good = false;
	}
	return rc;
}

static int copy_back(struct verify *v, const char *where)
{
	unsigned char *buffer = malloc(v->bytes + 1);
	int rc = buffer != NULL ? 0 : -1;

	if (rc == 0)
		rc = tierd_copy_out(v->t, v->h, 0, buffer, v->bytes);
	if (rc == 0)
		check(v, where, 0, buffer, v->bytes);
	free(buffer);
	return rc;
}

static int round_trip(struct verify *v)
{
	struct tierd_view view;
	int rc = tierd_acquire(v->t, v->h, GPU, TIERD_WRITE | TIERD_DISCARD, -1, &view);

	if (rc < 0)
		return rc;
	fill(v, 0, view.data, view.bytes);
	tierd_release(v->t, &view);
	rc = check_at(v, "from hbm", GPU);
	if (rc == 0)
		rc = check_at(v, "hbm to dram", TIERD_HOST);
	if (rc == 0)
		rc = push_down(v);
	if (rc == 0)
		rc = copy_back(v, "copied from below");
	if (rc == 0)
		rc = push_down(v);
	if (rc == 0)
		rc = check_at(v, "below to hbm", GPU);
	if (rc == 0)
		rc = push_down(v);
	if (rc == 0)
		rc = check_at(v, "below to dram", TIERD_HOST);
	return rc;
}

/* A tensor larger than dram is reached by copies, a piece that starts anywhere at a time. */
static int round_trip_large(struct verify *v)
{
	uint64_t piece = 3 * MIB(1) + 517;
	unsigned char *buffer = malloc(piece);
	int rc = buffer != NULL ? 0 : -1;

	for (uint64_t at = 0; at < v->bytes && rc == 0; at += piece) {
		fill(v, at, buffer, MIN(piece, v->bytes - at));
		rc = tierd_copy_in(v->t, v->h, at, buffer, MIN(piece, v->bytes - at));
	}
	for (uint64_t at = 0; at < v->bytes && rc == 0; at += piece) {
		rc = tierd_copy_out(v->t, v->h, at, buffer, MIN(piece, v->bytes - at));
		if (rc == 0)
			check(v, "copied", at, buffer, MIN(piece, v->bytes - at));
	}
	free(buffer);
	return rc;
}

static int verify_one(struct verify *v, uint64_t bytes, const struct pattern *p)
{
	struct tierd_spec spec = { .class_ = TIERD_PARAMETER, .ndim = 1, .shape = { bytes } };
	struct result r;
	int rc = tierd_create(v->t, &spec, 1, &v->h);

	v->pattern = p;
	v->bytes = bytes;
	v->good = true;
	if (rc == 0)
		rc = bytes < LARGE ? round_trip(v) : round_trip_large(v);
	if (rc == 0)
		rc = tierd_destroy(v->t, &v->h, 1);
	if (rc < 0)
		bench_failed("verify");
	result_begin(&r, v->o, "verify");
	result_count(&r, "bytes", bytes);
	result_text(&r, "pattern", p->name);
	result_flag(&r, "good", rc == 0 && v->good);
	result_end(&r);
	return rc == 0 && v->good ? 0 : -1;
}

static int verify_all(struct verify *v)
{
	struct tierd_spec specs[BALLASTS];
	int rc;

	for (unsigned i = 0; i < BALLASTS; i++)
		specs[i] = (struct tierd_spec){ .class_ = TIERD_OTHER,
						.ndim = 1,
						.shape = { BALLAST } };
	rc = tierd_create(v->t, specs, BALLASTS, v->ballast);
	if (rc < 0)
		return bench_failed("verify");
	for (size_t s = 0; s < ARRAY_SIZE(sizes) && !(v->o->quick && sizes[s] > QUICK_MAX); s++)
		for (size_t p = 0; p < ARRAY_SIZE(patterns); p++)
			rc |= verify_one(v, sizes[s], &patterns[p]);
	if (v->o->is_long)
		rc |= verify_one(v, LARGE, &patterns[2]);
	return rc;
}

int bench_verify(const struct bench_options *o)
{
	struct verify v = { .o = o };
	struct bench_config c = config;
	struct bench_daemon d;
	int rc;

	if (o->is_long)
		c.nvme_bytes = NVME_LONG;
	rc = daemon_start(o, &c, &d);
	if (rc != 0)
		return rc;
	if (tierd_open(d.socket, "bench-verify", 0, &v.t) < 0) {
		rc = bench_failed("verify");
	} else {
		rc = verify_all(&v) != 0;
		tierd_close(v.t);
	}
	return (daemon_stop(&d) != 0) | rc;
}
