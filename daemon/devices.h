/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiers of the configuration, opened: one hbm device a GPU, dram, then one nvme device a path,
 * in the order in which the engine numbers them; so a GPU's place is its number. Also the staging
 * segment, of which each nvme device gets its share. Control thread.
 */
#ifndef TIERD_DAEMON_DEVICES_H
#define TIERD_DAEMON_DEVICES_H

#include "daemon/server.h"
#include "daemon/settings.h"
#include "tiers/arena.h"
#include "tiers/dram.h"

struct topology;

struct devices {
	struct topology *topo; /* the machine's, of whoever opened it */
	struct tier *tier[ENGINE_DEVICES_MAX];
	unsigned count;
	/* What open() was given, valid until close. */
	struct dram_config dram;
	struct nvme_config nvme[ENGINE_DEVICES_MAX];
	unsigned nvme_count, gpu_count;
	uint64_t zone_bytes;           /* of dram, whole slabs */
	struct arena staging;          /* the daemon's alone; base NULL: none */
	uint64_t engine_staging_bytes; /* the first part of it */
};

int devices_open(const struct settings *settings, struct topology *topo, struct devices *ret,
		 struct err *err);
/* After the lanes have stopped. */
void devices_close(struct devices *devices);

/* What clients map: fills at most HELLO_ARENAS_MAX, returns how many or -errno. */
int devices_arenas(const struct devices *devices, struct server_arena *ret, struct err *err);
/* Descriptors of the process that they may take from now on. */
uint64_t devices_later_fds(const struct devices *devices);
/* The first arena whose memory was found gone; NULL: none. */
const struct tier *devices_damaged(const struct devices *devices);
/* One line a device into the stats page. */
void devices_tell(const struct devices *devices, struct stats_page *stats);

#endif
