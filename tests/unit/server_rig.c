/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/unit/server_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "tests/unit/point.h"

static bool rig_turn(void *ctx, uint64_t now_ns, uint64_t *ret_next_ns)
{
	struct rig *rig = ctx;
	bool progress = server_turn(rig->server, now_ns, ret_next_ns);

	server_turn_end(rig->server);
	*ret_next_ns = now_ns;
	if (--rig->turns_left == 0)
		loop_stop(rig->loop);
	return progress;
}

static bool rig_pending(void *ctx, bool logs)
{
	struct rig *rig = ctx;

	return server_pending(rig->server, logs);
}

static void loop_start(struct rig *rig, struct err *err)
{
	struct stats_page *stats = segments_stats(&rig->segments);
	const struct loop_work work = { .ctx = rig,
					.turn = rig_turn,
					.pending = rig_pending,
					.sides = &rig->side,
					.side_count = 1 };

	rig->side = (struct loop_side){ &segments_table(&rig->segments)->awake, &rig->done_wanted,
					&stats->turns, &stats->sleeps };
	ck_assert_int_eq(loop_create(&work, &rig->loop, err), 0);
}

/* A GPU with slabs, of which the last is shorter, before an arena with a descriptor. */
static unsigned rig_arenas(struct server_arena *ret)
{
	static int dram_fd = -1;

	if (dram_fd < 0)
		dram_fd = memfd_create("rig-dram", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(dram_fd, MIB(1)), 0);
	ret[0] = (struct server_arena){ .arena = RIG_SLAB_ARENA,
					.place = RIG_SLAB_ARENA,
					.fd = -1,
					.bytes = RIG_SLAB_BYTES * RIG_SLABS - RIG_SLAB_BYTES / 2,
					.slab_bytes = RIG_SLAB_BYTES,
					.uuid = "rig-gpu-uuid-15" };
	ret[1] = (struct server_arena){ .arena = 1,
					.place = PROTOCOL_PLACE_HOST,
					.fd = dram_fd,
					.bytes = MIB(1),
					.zone_bytes = 65536 };
	return 2;
}

/* The rig has one domain, for everybody who names none. */
static struct server_domain *rig_domain_of(void *ctx, uid_t uid, const char *name, struct err *err)
{
	struct rig *rig = ctx;

	if (name[0] == '\0')
		return &rig->domain;
	err_set(err, EPERM, "not for uid %u: %s", (unsigned)uid, name);
	return NULL;
}

uint64_t rig_connections_max = 1024, rig_clients_max = 3;
unsigned rig_domains = 1;

void rig_start(struct rig *rig)
{
	struct server_params params = { .clients_max = rig_clients_max,
					.clients_per_uid_max = MAX(rig_clients_max, 8u),
					.connections_max = rig_connections_max };
	struct err err = ERR_INIT;

	memset(rig, 0, sizeof(*rig));
	fake_engine_reset();
	leftovers_folder(rig->directory);
	snprintf(rig->socket, sizeof(rig->socket), "%s/tierd.sock", rig->directory);
	ck_assert_msg(rendezvous_open(rig->socket, &rig->rendezvous, &err) == 0, "%s", err.text);
	ck_assert_int_eq(segments_create(RIG_TENSORS, 4096, &rig->segments, &err), 0);
	loop_start(rig, &err);
	params.socket_path = rig->socket;
	params.loop = rig->loop;
	rig->domain.engine = &fake_engine;
	rig->domain.segments = &rig->segments;
	rig->domain.arenas = rig_arenas(rig->domain.arena);
	params.ctx = rig;
	params.domain_of = rig_domain_of;
	params.domains = rig->domains;
	params.domain_count = rig_domains;
	rig->other = rig->domain;
	rig->domains[0] = &rig->domain;
	rig->domains[1] = &rig->other;
	ck_assert_msg(server_create(&params, &rig->rendezvous, &rig->server, &err) == 0, "%s",
		      err.text);
}

void rig_stop(struct rig *rig)
{
	server_stop(rig->server);
	server_destroy(rig->server);
	loop_destroy(rig->loop);
	segments_destroy(&rig->segments);
	rendezvous_close(&rig->rendezvous);
	/* Fails when anything was left in it. */
	ck_assert_int_eq(rmdir(rig->directory), 0);
}

void rig_run(struct rig *rig)
{
	struct err err = ERR_INIT;

	rig->turns_left = 4;
	ck_assert_int_eq(loop_run(rig->loop, &err), 0);
}

void rig_client(struct rig *rig, struct wire *ret)
{
	ck_assert_int_eq(wire_connect(rig->socket, ret), 0);
	ck_assert_int_eq(wire_hello(ret, "unit"), 0);
	rig_run(rig);
	ck_assert_int_eq(wire_receive(ret), 0);
}

int rig_call(struct rig *rig, struct wire *w, const struct sq_entry *e, struct cq_entry *ret)
{
	wire_submit(w, e);
	rig_run(rig);
	ck_assert_msg(wire_poll(w, ret), "no completion");
	ck_assert_uint_eq(ret->id, e->id);
	return ret->result;
}
