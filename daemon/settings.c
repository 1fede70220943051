/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings.h"

#include <errno.h>
#include <string.h>
#include <sys/un.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/plural.h"
#include "config.h"
#include "daemon/address.h"
#include "daemon/quotas.h"
#include "daemon/share.h"
#include "libclient/protocol/page.h"
#include "tiers/dram.h"
#include "tiers/memory.h"

#define STAGING_SHARE_MAX  MIB(64) /* of one nvme path */
#define STAGING_DRAM_PART  8u      /* at most this part of dram */
#define STAGING_BLOCKS_MIN 2u      /* of each path, and as many of the engine's for it */
/* Without nvme: what one GPU hands to others, and how the engine cuts it into slots. */
#define STAGING_GPU_MAX  MIB(64)
#define STAGING_GPU_SLOT MIB(1)

/* ---- what variants may pick ----------------------------------------------------------------- */

static const struct tier_ops *backend_at(enum tier_kind kind, size_t i)
{
	for (const struct tier_ops *const *ops = tier_backends; *ops != NULL; ops++) {
		if ((*ops)->kind == kind && i-- == 0)
			return *ops;
	}
	return NULL;
}

const struct tier_ops *settings_backend(enum tier_kind kind, const struct config_variant *variant)
{
	return variant->choice < 0 ? NULL : backend_at(kind, (size_t)variant->choice);
}

static bool backend_choice(enum tier_kind kind, size_t i, struct config_choice *ret)
{
	const struct tier_ops *ops = backend_at(kind, i);

	if (!ops)
		return false;
	*ret = (struct config_choice){ ops->name, ops->help, ops->rows, ops->config_size };
	return true;
}

static bool hbm_choice(size_t i, struct config_choice *ret)
{
	return backend_choice(TIER_KIND_HBM, i, ret);
}

static bool dram_choice(size_t i, struct config_choice *ret)
{
	return backend_choice(TIER_KIND_DRAM, i, ret);
}

static bool nvme_choice(size_t i, struct config_choice *ret)
{
	*ret = (struct config_choice){ "io_uring", "Asynchronous I/O of the kernel.",
				       nvme_option_rows, sizeof(struct nvme_options) };
	return i == 0;
}

static bool policy_choice(size_t i, struct config_choice *ret)
{
	const struct policy_ops *ops = policy_all[i];

	if (!ops)
		return false;
	*ret = (struct config_choice){ ops->name, ops->help, ops->rows, ops->config_size };
	return true;
}

/* ---- tables --------------------------------------------------------------------------------- */

/* clang-format off */
#define AT(type, member) offsetof(struct type, member)

/* What may be left out of a build. */
static const struct config_absent hbm_absent[] = {
#ifndef HAVE_CUDA
	{ "cuda", "it was configured without a cuda.h of CUDA 12.4 or newer" },
#endif
	{ NULL, NULL },
};
static const struct config_sub hbm_sub = { .size = sizeof(struct config_variant),
					   .selector = "backend",
					   .variant = hbm_choice,
					   .absent = hbm_absent };
static const struct config_sub dram_sub = { .size = sizeof(struct config_variant),
					    .selector = "backend",
					    .selector_default = "host",
					    .variant = dram_choice };

static const struct config_sub nvme_path_sub = { .rows = nvme_path_rows,
						 .size = sizeof(struct nvme_path),
						 .scalar_key = "path" };
static const struct config_row nvme_rows[] = {
	{ "paths", CONFIG_LIST, AT(settings_nvme, paths), NULL, "1", "12", CONFIG_REQUIRED,
	  "Where the tier's bytes are: existing folders, in which tierd makes a file without a "
	  "name, or block devices. A list of {path, size}.",
	  NULL, &nvme_path_sub },
	CONFIG_END,
};
static const struct config_sub nvme_sub = { .rows = nvme_rows,
					    .size = sizeof(struct settings_nvme),
					    .selector = "backend",
					    .selector_default = "io_uring",
					    .variant = nvme_choice };

static const struct config_row tiers_rows[] = {
	{ "hbm", CONFIG_VARIANT, AT(settings_tiers, hbm), NULL, NULL, NULL, CONFIG_OPTIONAL,
	  "GPU memory, a cache over the tiers below: it adds no capacity. May be missing.", NULL,
	  &hbm_sub },
	{ "dram", CONFIG_VARIANT, AT(settings_tiers, dram), NULL, NULL, NULL, CONFIG_REQUIRED,
	  "Host memory, the hub through which all moves go.", NULL, &dram_sub },
	{ "nvme", CONFIG_VARIANT, AT(settings_tiers, nvme), NULL, NULL, NULL, CONFIG_OPTIONAL,
	  "Files or block devices, the lowest tier. May be missing.", NULL, &nvme_sub },
	CONFIG_END,
};
static const struct config_sub tiers_sub = { .rows = tiers_rows,
					     .size = sizeof(struct settings_tiers) };

#define WATERMARK_ROWS(high, low) \
	{ "high", CONFIG_PERMILLE, AT(engine_watermark, high_permille), high, "1%", "100%", 0, \
	  "Above this share of the tier, room is made in the background.", NULL, NULL }, \
	{ "low", CONFIG_PERMILLE, AT(engine_watermark, low_permille), low, "0%", "100%", 0, \
	  "Down to this share; at most `high`.", NULL, NULL }, \
	CONFIG_END

static const struct config_row watermark_hbm_rows[] = { WATERMARK_ROWS("95%", "90%") };
static const struct config_row watermark_dram_rows[] = { WATERMARK_ROWS("92%", "88%") };
static const struct config_sub watermark_hbm_sub = { .rows = watermark_hbm_rows,
						     .size = sizeof(struct engine_watermark) };
static const struct config_sub watermark_dram_sub = { .rows = watermark_dram_rows,
						      .size = sizeof(struct engine_watermark) };
static const struct config_row watermarks_rows[] = {
	{ "hbm", CONFIG_MAP, AT(settings_watermarks, hbm), NULL, NULL, NULL, 0,
	  "Of the hbm tier.", NULL, &watermark_hbm_sub },
	{ "dram", CONFIG_MAP, AT(settings_watermarks, dram), NULL, NULL, NULL, 0,
	  "Of the dram tier.", NULL, &watermark_dram_sub },
	CONFIG_END,
};
static const struct config_sub watermarks_sub = { .rows = watermarks_rows,
						  .size = sizeof(struct settings_watermarks) };

static const struct config_row class_rows[] = {
	{ "overcommit", CONFIG_PERMILLE, AT(settings_class, overcommit_permille), "100%", "100%",
	  "1000%", 0,
	  "How much of the class `create` admits for the room there is: 200% admits twice as many "
	  "bytes as could be written at once.",
	  NULL, NULL },
	CONFIG_END,
};
static const struct config_sub class_sub = { .rows = class_rows,
					     .size = sizeof(struct settings_class),
					     .selector = "policy",
					     .selector_default = "lru",
					     .variant = policy_choice };

/* In the order of enum tierd_class. */
struct settings_classes {
	struct settings_class class_[ENGINE_CLASSES];
};
static const struct config_row classes_rows[] = {
#define X(number, name, of_many)                                                             \
	{ name, CONFIG_VARIANT, AT(settings_classes, class_[number]), NULL, NULL, NULL, 0, \
	  "What chooses " of_many " to go and to come.", NULL, &class_sub },
	PAGE_CLASSES(X)
#undef X
	CONFIG_END,
};
static const struct config_sub classes_sub = { .rows = classes_rows,
					       .size = sizeof(struct settings_classes) };

static const struct config_row user_rows[] = {
	{ "user", CONFIG_TEXT, AT(settings_user, user), NULL, NULL, NULL, CONFIG_REQUIRED,
	  "The name of a user, looked up when the daemon starts, or a numeric user id.", NULL,
	  NULL },
	CONFIG_END,
};
static const struct config_sub user_sub = { .rows = user_rows,
					    .size = sizeof(struct settings_user),
					    .scalar_key = "user" };
static const struct config_row domain_rows[] = {
	{ "name", CONFIG_TEXT, AT(settings_domain, name), NULL, NULL, NULL, CONFIG_REQUIRED,
	  "What it is called in messages and by `tierctl --domain`; at most 63 bytes, not "
	  "`default`.",
	  NULL, NULL },
	{ "users", CONFIG_LIST, AT(settings_domain, users), NULL, "1", "256", CONFIG_REQUIRED,
	  "Who is in it: a user is in one domain at most, and has to be of the group of `socket`.",
	  NULL, &user_sub },
	{ "hbm", CONFIG_BYTES, AT(settings_domain, hbm), NULL, "2MiB", NULL, 0,
	  "Its share of each GPU's `tiers.hbm.size`, in bytes or in % of that; not set: none.",
	  NULL, NULL },
	{ "dram", CONFIG_BYTES, AT(settings_domain, dram), NULL, "1MiB", NULL, CONFIG_REQUIRED,
	  "Likewise of `tiers.dram.size`; `staging` and `tiers.dram.zone` are divided by it.",
	  NULL, NULL },
	{ "nvme", CONFIG_BYTES, AT(settings_domain, nvme), NULL, "1MiB", NULL, 0,
	  "Likewise of all `tiers.nvme.paths` together, spread over them by their size; not set: "
	  "none.",
	  NULL, NULL },
	CONFIG_END,
};
static const struct config_sub domain_sub = { .rows = domain_rows,
					      .size = sizeof(struct settings_domain) };
static const char *const strangers_names[] = { "default", "refuse", NULL };

static const struct config_row metrics_rows[] = {
	{ "listen", CONFIG_TEXT, AT(settings_metrics, listen), NULL, NULL, NULL, 0,
	  "ADDRESS:PORT of an HTTP listener with all counters for Prometheus, below /metrics: "
	  "127.0.0.1:9477. Whoever reaches it may read. Not set: there is none.", NULL, NULL },
	{ "beyond_loopback", CONFIG_BOOL, AT(settings_metrics, beyond_loopback), "false", NULL,
	  NULL, 0, "Whether `listen` may be an address that other machines reach.", NULL, NULL },
	CONFIG_END,
};
static const struct config_sub metrics_sub = { .rows = metrics_rows,
					       .size = sizeof(struct settings_metrics) };

const struct config_row settings_rows[] = {
	{ "socket", CONFIG_PATH, AT(settings, socket), "/run/tierd/tierd.sock", NULL, NULL, 0,
	  "Where clients find the daemon; at most 107 bytes. A lock file stands beside it. Its "
	  "owner and group may connect, and whoever may can reach all tensors of their domain. "
	  "They are the daemon's own, but for a group that the folder gives (setgid).",
	  NULL, NULL },
	{ "tensors", CONFIG_COUNT, AT(settings, tensors), "4Mi", "1", "1Gi", 0,
	  "Tensors that can exist at once. Memory is taken only for those that do.", NULL, NULL },
	{ "linger", CONFIG_DURATION, AT(settings, linger_ns), "60s", NULL, NULL, 0,
	  "Named tensors outlive the last connection of their namespace by this.", NULL, NULL },
	{ "spin", CONFIG_DURATION, AT(settings, spin_ns), "0us", NULL, "1ms", 0,
	  "How long the control thread polls after progress before it blocks: a core for latency.",
	  NULL, NULL },
	{ "staging", CONFIG_SIZE, AT(settings, staging_bytes), NULL, "1MiB", NULL, 0,
	  "Bytes of `tiers.dram.size` that are for transfers alone, between checksum and device; "
	  "none without nvme where there is one GPU at most. Not set: up to 128 MiB a path, "
	  "256 MiB with hbm, without nvme 64 MiB a GPU, at most an eighth of dram, but four "
	  "blocks a path.",
	  NULL, NULL },
	{ "max_clients", CONFIG_COUNT, AT(settings, max_clients), "512", "1", "16Ki", 0,
	  "Connections at once; three descriptors each, and fewer where RLIMIT_NOFILE has no "
	  "room. Three more may look by tierctl, of root and the daemon's own user.",
	  NULL, NULL },
	{ "max_clients_per_uid", CONFIG_COUNT, AT(settings, max_clients_per_uid), "256", "1",
	  "16Ki", 0, "Likewise of one user.", NULL, NULL },
	{ "tiers", CONFIG_MAP, AT(settings, tiers), NULL, NULL, NULL, CONFIG_REQUIRED,
	  "The memory and storage that tierd manages.", NULL, &tiers_sub },
	{ "watermarks", CONFIG_MAP, AT(settings, watermarks), NULL, NULL, NULL, 0,
	  "When tiers are cleared in the background.", NULL, &watermarks_sub },
	{ "classes", CONFIG_MAP, AT(settings, class_), NULL, NULL, NULL, 0,
	  "The policy of each class of tensors.", NULL, &classes_sub },
	{ "domains", CONFIG_LIST, AT(settings, domains), NULL, NULL, "31", 0,
	  "Sets of users that share nothing: each has memory, files and tables of its own, of "
	  "fixed size. Who is in none shares what is left; without `domains` that is everything.",
	  NULL, &domain_sub },
	{ "strangers", CONFIG_CHOICE, AT(settings, strangers), "default", NULL, NULL, 0,
	  "What users in no domain get: the default domain, which has what the others leave, or "
	  "a refusal, and then what is left is not taken.",
	  strangers_names, NULL },
	{ "metrics", CONFIG_MAP, AT(settings, metrics), NULL, NULL, NULL, 0,
	  "Counters for Prometheus.", NULL, &metrics_sub },
	{ "core_dumps", CONFIG_BOOL, AT(settings, core_dumps), "false", NULL, NULL, 0,
	  "Lets cores be written and debuggers of the same user attach, as tierd --dumpable does: "
	  "clients of that user can then write what they must not, and a core holds the bytes of "
	  "all tensors.", NULL, NULL },
	{ "namespaces", CONFIG_LIST, AT(settings, namespaces), NULL, NULL, "256", 0,
	  "What jobs may have of each tier, in every domain by itself. Beside `tiers.dram.zone` of "
	  "hbm alone.",
	  NULL, &quotas_sub },
	{ "excess", CONFIG_MAP, AT(settings, excess), NULL, NULL, NULL, 0,
	  "Of pins that keep others from what `namespaces` says is theirs.", NULL, &excess_sub },
	{ "fault", CONFIG_MAP, AT(settings, fault), NULL, NULL, NULL,
	  CONFIG_OPTIONAL | CONFIG_HIDDEN,
	  "Refuses a share of tierd's own allocations: for tests, and to rehearse want of memory.",
	  NULL, &fault_heap_sub },
	CONFIG_END,
};

/* clang-format on */

/* ---- what holds between keys ---------------------------------------------------------------- */

static int watermark_check(const char *tier, const struct engine_watermark *w, struct err *err)
{
	if (w->low_permille <= w->high_permille)
		return 0;
	return err_set(err, EINVAL, "watermarks.%s.low: %u.%u%% is above `high`, %u.%u%%", tier,
		       w->low_permille / 10, w->low_permille % 10, w->high_permille / 10,
		       w->high_permille % 10);
}

/* Bytes of dram as configured; 0: a share of the machine, which only the tier can tell. */
static uint64_t dram_bytes(const struct settings *s)
{
	const struct dram_config *dram = s->tiers.dram.config;

	ASSERT(settings_backend(TIER_KIND_DRAM, &s->tiers.dram) == &dram_ops);
	return dram->size.permille ? 0 : dram->size.bytes;
}

unsigned settings_gpus_told(const struct settings *s)
{
	const struct tier_ops *ops = settings_backend(TIER_KIND_HBM, &s->tiers.hbm);
	const struct memory_config *memory = s->tiers.hbm.config;

	if (!ops)
		return 0;
	return ops == &memory_ops ? (unsigned)memory->devices : 1;
}

static uint64_t staging_least(const struct settings *s, unsigned gpus)
{
	const struct nvme_options *o = settings_nvme_options(s);

	if (o)
		return 2 * STAGING_BLOCKS_MIN * o->block_bytes * s->tiers.nvme.paths.count;
	return gpus > 1 ? STAGING_BLOCKS_MIN * STAGING_GPU_SLOT * gpus : 0;
}

/* The engine's part of staging for each share of a path. A disk may bring a whole depth at once:
 * while that is checked and goes on to a GPU the next is on its way, and another is queued. */
static unsigned staging_parts(const struct settings *s, unsigned gpus)
{
	return s->staging_bytes == 0 && gpus > 0 ? 3 : 1;
}

/* What nothing configured means: enough for all devices at full depth, but not a large part of a
 * small dram. */
static uint64_t staging_default(const struct settings *s, unsigned gpus)
{
	const struct nvme_options *o = settings_nvme_options(s);
	uint64_t total = gpus * STAGING_GPU_MAX, dram = dram_bytes(s);

	if (o)
		total = (1 + staging_parts(s, gpus)) * s->tiers.nvme.paths.count *
			MIN(o->queue_depth * o->block_bytes, STAGING_SHARE_MAX);
	if (dram > 0)
		total = MIN(total, dram / STAGING_DRAM_PART);
	return MAX(total, staging_least(s, gpus));
}

void settings_staging(const struct settings *s, unsigned gpus, struct settings_staging *ret)
{
	uint64_t paths = settings_nvme_options(s) ? s->tiers.nvme.paths.count : 0, total;

	*ret = (struct settings_staging){ 0 };
	if (staging_least(s, gpus) == 0)
		return;
	total = s->staging_bytes ? s->staging_bytes : staging_default(s, gpus);
	if (paths > 0)
		ret->share_bytes =
			ALIGN_DOWN(total / (1 + staging_parts(s, gpus)) / paths, GRANULE);
	ret->engine_bytes = ALIGN_DOWN(total - paths * ret->share_bytes, GRANULE);
	ret->total_bytes = ret->engine_bytes + paths * ret->share_bytes;
}

static int staging_too_small(const struct settings *s, unsigned gpus, struct err *err)
{
	unsigned long long have = s->staging_bytes, least = staging_least(s, gpus);
	const struct nvme_options *o = settings_nvme_options(s);

	if (!o)
		return err_set(err, EINVAL,
			       "staging: %llu bytes are too small for what %u devices of hbm hand "
			       "to each other: %llu are needed",
			       have, gpus, least);
	return err_set(err, EINVAL,
		       "staging: %llu bytes are too small for %zu %s with blocks of %llu bytes "
		       "(tiers.nvme.block): %llu are needed",
		       have, s->tiers.nvme.paths.count,
		       PLURAL(s->tiers.nvme.paths.count, "path", "paths"),
		       (unsigned long long)o->block_bytes, least);
}

int settings_check_staging(const struct settings *s, unsigned gpus, struct err *err)
{
	struct settings_staging parts;

	if (s->staging_bytes > 0 && s->staging_bytes < staging_least(s, gpus))
		return staging_too_small(s, gpus, err);
	settings_staging(s, gpus, &parts);
	if (dram_bytes(s) > 0 && parts.total_bytes >= dram_bytes(s))
		return err_set(
			err, EINVAL,
			"tiers.dram.size: %llu bytes leave nothing beside staging, %llu bytes",
			(unsigned long long)dram_bytes(s), (unsigned long long)parts.total_bytes);
	return 0;
}

static int zone_check(const struct settings *s, struct err *err)
{
	const struct dram_config *dram = s->tiers.dram.config;
	struct settings_staging parts;
	uint64_t room;

	settings_staging(s, settings_gpus_told(s), &parts);
	room = dram_bytes(s) - parts.total_bytes;
	if (dram_bytes(s) == 0 || dram->zone_bytes < room)
		return 0;
	return err_set(err, EINVAL,
		       "tiers.dram.zone: %llu bytes leave nothing of the %llu bytes of dram for "
		       "other tensors",
		       (unsigned long long)dram->zone_bytes, (unsigned long long)room);
}

static int devices_check(const struct settings *s, struct err *err)
{
	size_t paths = settings_nvme_options(s) ? s->tiers.nvme.paths.count : 0;
	size_t all = settings_gpus_told(s) + 1 + paths;

	if (all <= ENGINE_DEVICES_MAX)
		return 0;
	return err_set(
		err, EINVAL,
		"tiers: %u %s of hbm, one of dram and %zu %s of nvme are %zu, %d are possible",
		settings_gpus_told(s), PLURAL(settings_gpus_told(s), "device", "devices"), paths,
		PLURAL(paths, "path", "paths"), all, ENGINE_DEVICES_MAX);
}

static int backend_check(enum tier_kind kind, const struct config_variant *variant, struct err *err)
{
	const struct tier_ops *ops = settings_backend(kind, variant);
	struct err why = ERR_INIT;

	if (!ops || !ops->check || ops->check(variant->config, &why) == 0)
		return 0;
	return err_set(err, EINVAL, "tiers.%s.%s", tier_kind_name(kind), why.text);
}

/* What a row cannot say. */
static int tiers_check(const struct settings *s, struct err *err)
{
	const struct nvme_options *o = settings_nvme_options(s);
	struct err why = ERR_INIT;
	int rc = backend_check(TIER_KIND_HBM, &s->tiers.hbm, err);

	if (rc == 0)
		rc = backend_check(TIER_KIND_DRAM, &s->tiers.dram, err);
	if (rc < 0)
		return rc;
	if (o && o->block_bytes % GRANULE != 0)
		return err_set(err, EINVAL, "tiers.nvme.block: %llu bytes are no multiple of 4KiB",
			       (unsigned long long)o->block_bytes);
	if (o && fault_check(&o->fault, TIER_KIND_NVME, false, &why) < 0)
		return err_set(err, EINVAL, "tiers.nvme.%s", why.text);
	return 0;
}

static int socket_check(const struct settings *s, struct err *err)
{
	const size_t max = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1;

	if (strlen(s->socket) <= max)
		return 0;
	return err_set(err, EINVAL, "socket: a path of %zu bytes, %zu are possible",
		       strlen(s->socket), max);
}

int settings_check_sizes(const struct settings *s, struct err *err)
{
	int rc = tiers_check(s, err);

	if (rc == 0)
		rc = devices_check(s, err);
	if (rc == 0)
		rc = settings_check_staging(s, settings_gpus_told(s), err);
	if (rc == 0)
		rc = zone_check(s, err);
	return rc;
}

static int metrics_listen_check(const struct settings_metrics *m, struct err *err)
{
	struct err why = ERR_INIT;
	bool loopback;

	if (m->listen == NULL)
		return 0;
#ifndef HAVE_MICROHTTPD
	return err_set(err, EINVAL,
		       "metrics.listen: this tierd was built without libmicrohttpd: there is no "
		       "listener");
#endif
	if (address_check(m->listen, &loopback, &why) < 0)
		return err_set(err, EINVAL, "metrics.listen: %s", why.text);
	if (!loopback && !m->beyond_loopback)
		return err_set(err, EINVAL,
			       "metrics.listen: %s is reached by other machines, and whoever "
			       "reaches it may read; `beyond_loopback: true` allows that",
			       m->listen);
	return 0;
}

static int settings_check(const struct settings *s, struct err *err)
{
	int rc = socket_check(s, err);

	if (rc == 0)
		rc = watermark_check("hbm", &s->watermarks.hbm, err);
	if (rc == 0)
		rc = watermark_check("dram", &s->watermarks.dram, err);
	if (rc == 0)
		rc = settings_check_sizes(s, err);
	if (rc == 0)
		rc = shares_check(s, err);
	if (rc == 0)
		rc = metrics_listen_check(&s->metrics, err);
	if (rc == 0)
		rc = quotas_check(s, err);
	if (rc == 0)
		rc = fault_heap_check(&s->fault, err);
	return rc;
}

/* ---- load ----------------------------------------------------------------------------------- */

/* The sentence of a check begins with the path of the key: puts file, line and column before it. */
static int locate(const char *name, const char *text, size_t bytes, struct err *err)
{
	unsigned line, column;
	char path[128];
	int rc;

	snprintf(path, sizeof(path), "%.*s", (int)strcspn(err->text, ":"), err->text);
	rc = text ? config_locate_text(text, bytes, path, &line, &column)
		  : config_locate_file(name, path, &line, &column);
	return rc < 0 ? err_prefix(err, "%s", name)
		      : err_prefix(err, "%s:%u:%u", name, line, column);
}

int settings_load(const char *path, struct settings *ret, struct err *err)
{
	struct settings s = { 0 };
	int rc = config_load_file(settings_rows, path, &s, err);

	if (rc == 0 && settings_check(&s, err) < 0) {
		settings_free(&s);
		rc = locate(path, NULL, 0, err);
	}
	if (rc == 0)
		*ret = s;
	return rc;
}

int settings_load_text(const char *name, const char *text, size_t bytes, struct settings *ret,
		       struct err *err)
{
	struct settings s = { 0 };
	int rc = config_load_text(settings_rows, name, text, bytes, &s, err);

	if (rc == 0 && settings_check(&s, err) < 0) {
		settings_free(&s);
		rc = locate(name, text, bytes, err);
	}
	if (rc == 0)
		*ret = s;
	return rc;
}

void settings_free(struct settings *s)
{
	config_free(settings_rows, s);
	*s = (struct settings){ 0 };
}

static const char example[] =
	"\n## Example\n"
	"\n"
	"Two users that share nothing, and everybody else, on a box with GPUs and two disks:\n"
	"\n"
	"    socket: /run/tierd/tierd.sock\n"
	"    tiers:\n"
	"      hbm:  {backend: cuda, size: 64GiB}       # of each GPU\n"
	"      dram: {size: 256GiB}\n"
	"      nvme:\n"
	"        paths:\n"
	"          - {path: /mnt/nvme0, size: 1TiB}     # an existing folder\n"
	"          - {path: /mnt/nvme1, size: 1TiB}\n"
	"    domains:\n"
	"      - {name: red,  users: [1001], hbm: 16GiB, dram: 64GiB, nvme: 512GiB}\n"
	"      - {name: blue, users: [1002], hbm: 16GiB, dram: 64GiB, nvme: 512GiB}\n"
	"    classes:\n"
	"      optimizer: {policy: pin_fraction, fraction: 60%}\n"
	"    namespaces:                                # of each domain's share\n"
	"      - {name: prod, dram: {guarantee: 16GiB}, nvme: {guarantee: 25%}}\n"
	"      - {name: \"dev*\", hbm: {limit: 4GiB}, dram: {limit: 16GiB}, nvme: {limit: 50%}}\n"
	"    metrics: {listen: \"127.0.0.1:9477\"}       # curl http://127.0.0.1:9477/metrics\n";

void settings_reference(FILE *to)
{
	config_reference_units(to);
	fputc('\n', to);
	config_reference(settings_rows, to);
	fputs(example, to);
}
