/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the numbers lie: /proc/meminfo knows the machine, /proc/self/cgroup the path of this
 * process in each hierarchy, /proc/self/mountinfo where a hierarchy is mounted and which part of it
 * is to be seen there. Every directory from the process up to the mount may have a limit.
 */
#define _GNU_SOURCE
#include "tiers/limits.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define V1_UNLIMITED (UINT64_MAX / 4) /* version 1 writes a huge number for "none" */

struct hierarchy {
	const char *type;       /* in mountinfo */
	const char *controller; /* version 1: named in the options and in /proc/self/cgroup */
	const char *limit, *used;
	const char *reclaimable; /* a line of memory.stat: page cache that gives way */
};
static const struct hierarchy hierarchies[] = {
	{ "cgroup", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
	  "total_inactive_file" },
	{ "cgroup2", NULL, "memory.max", "memory.current", "inactive_file" },
	/* Above it the kernel holds up whoever takes memory, to reclaim what is pinned here. */
	{ "cgroup2", NULL, "memory.high", "memory.current", "inactive_file" },
};

/* ---- files --------------------------------------------------------------------------------- */

/* A text that does not fit is cut; as a path it names nothing then. */
static void format(char *ret, size_t room, const char *fmt, ...) PRINTF(3, 4);
static void format(char *ret, size_t room, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(ret, room, fmt, args);
	va_end(args);
}

static FILE *open_at(const char *root, const char *path)
{
	char whole[PATH_MAX];

	format(whole, sizeof(whole), "%s%s", root, path);
	return fopen(whole, "re");
}

/* The number after `key`, at the start of a line; an empty key: the first number of the file. */
static bool read_number(const char *root, const char *path, const char *key, int base,
			uint64_t *ret)
{
	FILE *f = open_at(root, path);
	size_t key_bytes = strlen(key);
	char line[512], *end;
	bool found = false;

	while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
		if (strncmp(line, key, key_bytes) != 0)
			continue;
		errno = 0;
		*ret = strtoull(line + key_bytes, &end, base);
		found = end != line + key_bytes && errno == 0;
	}
	if (f != NULL)
		fclose(f);
	return found;
}

static void tighten(struct limit *limit, uint64_t bytes, const char *source)
{
	if (limit->source[0] != '\0' && bytes >= limit->bytes)
		return;
	limit->bytes = bytes;
	format(limit->source, sizeof(limit->source), "%s", source);
}

/* ---- the machine --------------------------------------------------------------------------- */

/* Memory that a host lends as it is used does not show in MemTotal yet, but its blocks are there.
 */
static uint64_t blocks_bytes(const char *root)
{
	static const char folder[] = "/sys/devices/system/memory";
	char path[PATH_MAX];
	const struct dirent *entry;
	uint64_t block = 0, count = 0, online;
	DIR *d;

	format(path, sizeof(path), "%s%s", root, folder);
	d = opendir(path);
	if (d == NULL)
		return 0;
	while ((entry = readdir(d)) != NULL) {
		if (strncmp(entry->d_name, "memory", 6) != 0)
			continue;
		format(path, sizeof(path), "%s/%s/online", folder, entry->d_name);
		count += read_number(root, path, "", 10, &online) && online == 1;
	}
	closedir(d);
	format(path, sizeof(path), "%s/block_size_bytes", folder);
	return read_number(root, path, "", 16, &block) ? block * count : 0;
}

static int read_machine(const char *root, struct limits *ret, struct err *err)
{
	uint64_t total_kib, available_kib, total, blocks = blocks_bytes(root);

	if (!read_number(root, "/proc/meminfo", "MemTotal:", 10, &total_kib) ||
	    !read_number(root, "/proc/meminfo", "MemAvailable:", 10, &available_kib))
		return err_set(err, ENODATA,
			       "/proc/meminfo does not tell MemTotal and MemAvailable");
	total = KIB(total_kib);
	if (blocks > total + total / 8) {
		tighten(&ret->total, blocks, "/sys/devices/system/memory");
		tighten(&ret->available, KIB(available_kib) + blocks - total,
			"/sys/devices/system/memory");
		return 0;
	}
	tighten(&ret->total, total, "MemTotal of /proc/meminfo");
	tighten(&ret->available, KIB(available_kib), "MemAvailable of /proc/meminfo");
	return 0;
}

/* ---- cgroups ------------------------------------------------------------------------------- */

/* Whether the word stands in a list with commas. */
static bool listed(const char *list, const char *word)
{
	size_t bytes = strlen(word);

	for (const char *at = list; at != NULL; at = strchr(at, ',')) {
		at += *at == ',';
		if (strncmp(at, word, bytes) == 0 && (at[bytes] == ',' || at[bytes] == '\0'))
			return true;
	}
	return false;
}

/* This process in the hierarchy, as /proc/self/cgroup says it: "4:memory:/a/b", "0::/a/b". */
static bool find_path(const char *root, const struct hierarchy *h, char *ret, size_t room)
{
	FILE *f = open_at(root, "/proc/self/cgroup");
	char line[PATH_MAX + 256];
	bool found = false;

	while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
		char *controllers = strchr(line, ':');
		char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;

		if (path == NULL)
			continue;
		*controllers++ = '\0';
		*path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		found = h->controller != NULL ? listed(controllers, h->controller)
					      : strcmp(line, "0") == 0 && *controllers == '\0';
		if (found)
			format(ret, room, "%s", path);
	}
	if (f != NULL)
		fclose(f);
	return found;
}

struct mount {
	char root[PATH_MAX], point[PATH_MAX];
};

/* "36 35 98:0 ROOT POINT opts [tags] - TYPE source super-options" */
static bool parse_mount(char *line, const struct hierarchy *h, struct mount *ret)
{
	char *dash = strstr(line, " - "), type[64], source[256], options[512];

	if (dash == NULL || sscanf(dash + 3, "%63s %255s %511s", type, source, options) != 3 ||
	    strcmp(type, h->type) != 0 ||
	    (h->controller != NULL && !listed(options, h->controller)))
		return false;
	return sscanf(line, "%*s %*s %*s %4095s %4095s", ret->root, ret->point) == 2;
}

static bool find_mount(const char *root, const struct hierarchy *h, struct mount *ret)
{
	FILE *f = open_at(root, "/proc/self/mountinfo");
	char line[3 * PATH_MAX];
	bool found = false;

	while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL)
		found = parse_mount(line, h, ret);
	if (f != NULL)
		fclose(f);
	return found;
}

/* The process's directory below the mount point. What is mounted is perhaps only a part of the
 * hierarchy; a path that does not lie in it is above what can be seen: then the mount's top it is.
 */
static const char *below_mount(const char *path, const struct mount *m)
{
	size_t bytes = strcmp(m->root, "/") == 0 ? 0 : strlen(m->root);

	if (strncmp(path, m->root, bytes) != 0 || (path[bytes] != '/' && path[bytes] != '\0') ||
	    strncmp(path, "/..", 3) == 0)
		return "";
	return path + bytes;
}

static void read_group(const char *root, const struct hierarchy *h, const char *folder,
		       struct limits *ret)
{
	char path[PATH_MAX];
	uint64_t limit, used, gives_way = 0;

	format(path, sizeof(path), "%s/memory.stat", folder);
	read_number(root, path, h->reclaimable, 10, &gives_way);
	format(path, sizeof(path), "%s/%s", folder, h->used);
	if (!read_number(root, path, "", 10, &used))
		used = 0;
	used -= MIN(used, gives_way);
	format(path, sizeof(path), "%s/%s", folder, h->limit);
	if (!read_number(root, path, "", 10, &limit) || limit >= V1_UNLIMITED)
		return; /* "max" is no number */
	tighten(&ret->total, limit, path);
	tighten(&ret->available, limit - MIN(limit, used), path);
}

static void read_hierarchy(const char *root, const struct hierarchy *h, struct limits *ret)
{
	char path[PATH_MAX], folder[PATH_MAX];
	struct mount mount;
	size_t top;

	if (!find_path(root, h, path, sizeof(path)) || !find_mount(root, h, &mount))
		return;
	top = strlen(mount.point);
	format(folder, sizeof(folder), "%s%s", mount.point, below_mount(path, &mount));
	for (;;) {
		char *slash;

		read_group(root, h, folder, ret);
		slash = strrchr(folder, '/');
		if (strlen(folder) <= top || slash == NULL)
			return;
		*slash = '\0';
	}
}

int limits_read(const char *root, struct limits *ret, struct err *err)
{
	struct limits limits = { 0 };
	int r = read_machine(root, &limits, err);

	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(hierarchies); i++)
		read_hierarchy(root, &hierarchies[i], &limits);
	*ret = limits;
	return 0;
}

int limits_check(const char *name, uint64_t bytes, struct err *err)
{
	struct limits limits;
	int r = limits_read("", &limits, err);

	if (r < 0)
		return err_prefix(err, "%s", name);
	if (bytes > limits.total.bytes)
		return err_set(err, EINVAL,
			       "%s: %" PRIu64 " MiB are wanted, %" PRIu64
			       " MiB are all there is (%s)",
			       name, bytes >> 20, limits.total.bytes >> 20, limits.total.source);
	if (bytes > limits.available.bytes)
		return err_set(err, ENOMEM,
			       "%s: %" PRIu64 " MiB are wanted, %" PRIu64 " MiB are available (%s)",
			       name, bytes >> 20, limits.available.bytes >> 20,
			       limits.available.source);
	return 0;
}
