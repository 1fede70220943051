/* SPDX-License-Identifier: Apache-2.0
 *
 * A table that uses every kind of config/config.h, shaped like a tierd configuration, for the tests
 * of config/.
 */
#ifndef TIERD_TESTS_CONFIG_SAMPLE_H
#define TIERD_TESTS_CONFIG_SAMPLE_H

#include <stddef.h>
#include <string.h>

#include "config/config.h"

struct sample_fault {
	struct config_presence presence;
	uint64_t seed;
	uint32_t error;
	uint64_t delay_ns;
};
static const struct config_row sample_fault_rows[] = {
	{ .key = "seed",
	  .kind = CONFIG_COUNT,
	  .offset = offsetof(struct sample_fault, seed),
	  .default_text = "1",
	  .help = "Which faults." },
	{ .key = "error",
	  .kind = CONFIG_PERMILLE,
	  .offset = offsetof(struct sample_fault, error),
	  .default_text = "0%",
	  .help = "How many fail." },
	{ .key = "delay",
	  .kind = CONFIG_DURATION,
	  .offset = offsetof(struct sample_fault, delay_ns),
	  .default_text = "0s",
	  .help = "Added to each." },
	CONFIG_END,
};
static const struct config_sub sample_fault_sub = {
	.rows = sample_fault_rows,
	.size = sizeof(struct sample_fault),
};

struct sample_memory {
	uint64_t size_bytes, rate;
};
static const struct config_row sample_memory_rows[] = {
	{ .key = "size",
	  .kind = CONFIG_SIZE,
	  .offset = offsetof(struct sample_memory, size_bytes),
	  .flags = CONFIG_REQUIRED,
	  .min = "4KiB",
	  .help = "Bytes of the arena." },
	{ .key = "rate",
	  .kind = CONFIG_RATE,
	  .offset = offsetof(struct sample_memory, rate),
	  .help = "Limit of the copy lane." },
	CONFIG_END,
};
struct sample_cuda {
	struct config_bytes size;
	char *devices;
};
static const struct config_row sample_cuda_rows[] = {
	{ .key = "size",
	  .kind = CONFIG_BYTES,
	  .offset = offsetof(struct sample_cuda, size),
	  .default_text = "90%",
	  .help = "Bytes a GPU." },
	{ .key = "devices",
	  .kind = CONFIG_TEXT,
	  .offset = offsetof(struct sample_cuda, devices),
	  .default_text = "all",
	  .help = "Which GPUs." },
	CONFIG_END,
};
static const struct config_absent sample_absent[] = {
	{ "rocm", "no header of it was found" },
	{ NULL, NULL },
};
static inline bool sample_backend(size_t i, struct config_choice *ret)
{
	static const struct config_choice choices[] = {
		{ "cuda", "A GPU.", sample_cuda_rows, sizeof(struct sample_cuda) },
		{ "memory", "Host memory.", sample_memory_rows, sizeof(struct sample_memory) },
		{ "none", "Nothing at all.", NULL, 0 },
	};

	if (i >= sizeof(choices) / sizeof(choices[0]))
		return false;
	*ret = choices[i];
	return true;
}

/* The variant and what stands beside its selector. */
struct sample_hbm {
	struct config_variant backend;
	struct sample_fault fault;
};
static const struct config_row sample_hbm_rows[] = {
	{ .key = "fault",
	  .kind = CONFIG_MAP,
	  .offset = offsetof(struct sample_hbm, fault),
	  .flags = CONFIG_OPTIONAL | CONFIG_HIDDEN,
	  .sub = &sample_fault_sub,
	  .help = "Faults by seed." },
	CONFIG_END,
};
static const struct config_sub sample_hbm_sub = {
	.rows = sample_hbm_rows,
	.size = sizeof(struct sample_hbm),
	.selector = "backend",
	.selector_default = "cuda",
	.variant = sample_backend,
	.absent = sample_absent,
};

enum sample_numa { SAMPLE_NEAREST, SAMPLE_INTERLEAVE, SAMPLE_OFF };
static const char *const sample_numa_names[] = { "nearest", "interleave", "off", NULL };
struct sample_dram {
	struct config_bytes size;
	int numa;
	bool touch;
};
static const struct config_row sample_dram_rows[] = {
	{ .key = "size",
	  .kind = CONFIG_BYTES,
	  .offset = offsetof(struct sample_dram, size),
	  .flags = CONFIG_REQUIRED,
	  .min = "1MiB",
	  .max = "1TiB",
	  .help = "Bytes of the arena." },
	{ .key = "numa",
	  .kind = CONFIG_CHOICE,
	  .offset = offsetof(struct sample_dram, numa),
	  .default_text = "nearest",
	  .choices = sample_numa_names,
	  .help = "Where pages go." },
	{ .key = "touch",
	  .kind = CONFIG_BOOL,
	  .offset = offsetof(struct sample_dram, touch),
	  .default_text = "true",
	  .help = "Touch pages first." },
	CONFIG_END,
};
static const struct config_sub sample_dram_sub = {
	.rows = sample_dram_rows,
	.size = sizeof(struct sample_dram),
};

struct sample_path {
	char *path;
	struct config_bytes size;
};
static const struct config_row sample_path_rows[] = {
	{ .key = "path",
	  .kind = CONFIG_PATH,
	  .offset = offsetof(struct sample_path, path),
	  .flags = CONFIG_REQUIRED,
	  .help = "A folder | device." },
	{ .key = "size",
	  .kind = CONFIG_BYTES,
	  .offset = offsetof(struct sample_path, size),
	  .default_text = "100%",
	  .help = "Bytes to use." },
	CONFIG_END,
};
static const struct config_sub sample_path_sub = {
	.rows = sample_path_rows,
	.size = sizeof(struct sample_path),
	.scalar_key = "path",
};

struct sample_nvme {
	struct config_presence presence;
	struct config_list paths;
	uint64_t queue_depth;
};
static const struct config_row sample_nvme_rows[] = {
	{ .key = "paths",
	  .kind = CONFIG_LIST,
	  .offset = offsetof(struct sample_nvme, paths),
	  .flags = CONFIG_REQUIRED,
	  .max = "4",
	  .sub = &sample_path_sub,
	  .help = "Where." },
	{ .key = "queue_depth",
	  .kind = CONFIG_COUNT,
	  .offset = offsetof(struct sample_nvme, queue_depth),
	  .default_text = "32",
	  .min = "1",
	  .max = "4Ki",
	  .help = "Requests in flight." },
	CONFIG_END,
};
static const struct config_sub sample_nvme_sub = {
	.rows = sample_nvme_rows,
	.size = sizeof(struct sample_nvme),
};

struct sample_tiers {
	struct sample_hbm hbm;
	struct sample_dram dram;
	struct sample_nvme nvme;
};
static const struct config_row sample_tiers_rows[] = {
	{ .key = "hbm",
	  .kind = CONFIG_VARIANT,
	  .offset = offsetof(struct sample_tiers, hbm),
	  .flags = CONFIG_OPTIONAL,
	  .sub = &sample_hbm_sub,
	  .help = "GPU memory." },
	{ .key = "dram",
	  .kind = CONFIG_MAP,
	  .offset = offsetof(struct sample_tiers, dram),
	  .flags = CONFIG_REQUIRED,
	  .sub = &sample_dram_sub,
	  .help = "Pinned memory." },
	{ .key = "nvme",
	  .kind = CONFIG_MAP,
	  .offset = offsetof(struct sample_tiers, nvme),
	  .flags = CONFIG_OPTIONAL,
	  .sub = &sample_nvme_sub,
	  .help = "Disks." },
	CONFIG_END,
};
static const struct config_sub sample_tiers_sub = {
	.rows = sample_tiers_rows,
	.size = sizeof(struct sample_tiers),
};

struct sample_lru {
	uint64_t half_life_ns;
};
static const struct config_row sample_hotness_rows[] = {
	{ .key = "half_life",
	  .kind = CONFIG_DURATION,
	  .offset = offsetof(struct sample_lru, half_life_ns),
	  .default_text = "30s",
	  .min = "1ms",
	  .help = "Of a use." },
	CONFIG_END,
};
static inline bool sample_policy(size_t i, struct config_choice *ret)
{
	if (i == 0)
		*ret = (struct config_choice){ "lru", "Least recently used.", NULL, 0 };
	else if (i == 1)
		*ret = (struct config_choice){ "hotness", "Decayed counts.", sample_hotness_rows,
					       sizeof(struct sample_lru) };
	return i < 2;
}
static const struct config_sub sample_class_sub = {
	.size = sizeof(struct config_variant),
	.selector = "policy",
	.variant = sample_policy,
};

struct sample_user {
	char *name;
};
static const struct config_row sample_user_rows[] = {
	{ .key = "name",
	  .kind = CONFIG_TEXT,
	  .offset = offsetof(struct sample_user, name),
	  .flags = CONFIG_REQUIRED,
	  .help = "Of a user." },
	CONFIG_END,
};
static const struct config_sub sample_user_sub = {
	.rows = sample_user_rows,
	.size = sizeof(struct sample_user),
	.scalar_key = "name",
};

struct sample {
	char *socket, *listen;
	uint64_t tensors, linger_ns;
	struct sample_tiers tiers;
	struct config_variant class_;
	struct config_list users;
	uint32_t high_permille;
};
static const struct config_row sample_rows[] = {
	{ .key = "socket",
	  .kind = CONFIG_PATH,
	  .offset = offsetof(struct sample, socket),
	  .default_text = "/run/tierd/tierd.sock",
	  .help = "Where clients connect." },
	{ .key = "tensors",
	  .kind = CONFIG_COUNT,
	  .offset = offsetof(struct sample, tensors),
	  .default_text = "4Mi",
	  .min = "1",
	  .max = "16Mi",
	  .help = "Tensors at most." },
	{ .key = "linger",
	  .kind = CONFIG_DURATION,
	  .offset = offsetof(struct sample, linger_ns),
	  .default_text = "60s",
	  .help = "Life of names." },
	{ .key = "tiers",
	  .kind = CONFIG_MAP,
	  .offset = offsetof(struct sample, tiers),
	  .flags = CONFIG_REQUIRED,
	  .sub = &sample_tiers_sub,
	  .help = "The tiers." },
	{ .key = "class",
	  .kind = CONFIG_VARIANT,
	  .offset = offsetof(struct sample, class_),
	  .flags = CONFIG_OPTIONAL,
	  .sub = &sample_class_sub,
	  .help = "A policy." },
	{ .key = "users",
	  .kind = CONFIG_LIST,
	  .offset = offsetof(struct sample, users),
	  .sub = &sample_user_sub,
	  .help = "Who may connect." },
	{ .key = "high",
	  .kind = CONFIG_PERMILLE,
	  .offset = offsetof(struct sample, high_permille),
	  .default_text = "95%",
	  .min = "50%",
	  .help = "High watermark." },
	{ .key = "listen",
	  .kind = CONFIG_TEXT,
	  .offset = offsetof(struct sample, listen),
	  .help = "Of metrics." },
	CONFIG_END,
};

/* Loads `text`; the name in messages is "t". */
static inline int sample_load(const char *text, struct sample *ret, struct err *err)
{
	memset(ret, 0, sizeof(*ret));
	return config_load_text(sample_rows, "t", text, strlen(text), ret, err);
}

#endif
