/* SPDX-License-Identifier: Apache-2.0
 *
 * The configuration file as one struct. A module's keys stand in its own table; this one joins them
 * and checks what only holds between them. Control thread, at start.
 */
#ifndef TIERD_DAEMON_SETTINGS_H
#define TIERD_DAEMON_SETTINGS_H

#include <stdint.h>
#include <stdio.h>

#include "config/config.h"
#include "daemon/engine/engine.h"
#include "tiers/nvme.h"

/* `nvme:` names the I/O engine as its backend, beside which the paths stand. */
struct settings_nvme {
	struct config_variant backend; /* choice -1: no nvme; config: struct nvme_options */
	struct config_list paths;      /* of struct nvme_path */
};

struct settings_tiers {
	struct config_variant hbm,
		dram; /* choices among the backends of that kind; hbm: perhaps -1 */
	struct settings_nvme nvme;
};

struct settings_watermarks {
	struct engine_watermark hbm, dram;
};

struct settings_class {
	struct config_variant policy; /* choice: index into policy_all */
	uint32_t overcommit_permille;
};

struct settings_user {
	char *user; /* a name, or a number */
};

/* An item of `domains`; what is not set of a tier is nothing. */
struct settings_domain {
	char *name;
	struct config_list users; /* of struct settings_user */
	struct config_bytes hbm, dram, nvme;
};
/* An item of `namespaces`: what is not set of a tier is guaranteed nothing and limited by nothing.
 */
struct settings_quota {
	struct config_bytes guarantee, limit;
};
struct settings_namespace {
	char *name; /* may end with a star */
	struct settings_quota hbm, dram, nvme;
};
enum settings_strangers { STRANGERS_DEFAULT, STRANGERS_REFUSE };

enum settings_then { EXCESS_TELL, EXCESS_CUT_OFF, EXCESS_TERMINATE };
struct settings_excess {
	uint64_t patience_ns;
	int then; /* enum settings_then */
};

struct settings_metrics {
	char *listen; /* NULL: nobody listens */
	bool beyond_loopback;
};

struct settings {
	char *socket;
	uint64_t tensors;
	uint64_t linger_ns, spin_ns;
	uint64_t staging_bytes; /* 0: chosen from the nvme paths and the GPUs */
	uint64_t max_clients, max_clients_per_uid;
	struct settings_tiers tiers;
	struct settings_watermarks watermarks;
	struct settings_class class_[ENGINE_CLASSES];
	struct config_list domains; /* of struct settings_domain */
	int strangers;              /* enum settings_strangers */
	struct settings_metrics metrics;
	bool core_dumps;
	struct config_list namespaces; /* of struct settings_namespace */
	struct settings_excess excess;
	struct fault_config fault; /* of the daemon's own memory */
};

extern const struct config_row settings_rows[];

/* -EINVAL and the errno of the file as config_load_file(); the sentence names file and key. */
int settings_load(const char *path, struct settings *ret, struct err *err);
int settings_load_text(const char *name, const char *text, size_t bytes, struct settings *ret,
		       struct err *err);
void settings_free(struct settings *settings);
void settings_reference(FILE *to);

static inline const struct nvme_options *settings_nvme_options(const struct settings *s)
{
	return s->tiers.nvme.backend.config;
}
/* The backend that `hbm:` or `dram:` picked; NULL when it is missing. */
const struct tier_ops *settings_backend(enum tier_kind kind, const struct config_variant *variant);

/* What holds between sizes of tiers; of a domain's share as of the whole. */
int settings_check_sizes(const struct settings *s, struct err *err);

/* Devices of hbm as far as the configuration alone tells: no driver is asked before the start. */
unsigned settings_gpus_told(const struct settings *s);
/* How the staging segment is divided: the first part is the engine's, then come equal shares, one
 * an nvme path. All are whole pages. `gpus`: of the hbm tier; nothing is staged with one at most
 * and no nvme. */
struct settings_staging {
	uint64_t engine_bytes, share_bytes, total_bytes;
};
/* Also done at load for as many GPUs as the configuration tells of. */
int settings_check_staging(const struct settings *s, unsigned gpus, struct err *err);
void settings_staging(const struct settings *s, unsigned gpus, struct settings_staging *ret);

#endif
