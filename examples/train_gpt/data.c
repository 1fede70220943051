/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/train_gpt/data.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "examples/train_gpt/fatal.h"
#include "examples/train_gpt/random.h"

/* Folders inside folders: a link that leads back up ends here. */
#define DEPTH_MAX 32

static int refuse(char *text, const char *path, int code, const char *what)
{
	snprintf(text, DATA_TEXT_MAX, "%s: %s", path, what);
	return -code;
}

static int room_for(struct data *d, size_t bytes)
{
	size_t room = d->room > 0 ? d->room : 1 << 20;
	uint8_t *grown;

	if (bytes > DATA_BYTES_MAX - d->size)
		return -EFBIG;
	while (room < d->size + bytes)
		room *= 2;
	if (room == d->room)
		return 0;
	grown = realloc(d->bytes, room);
	if (grown == NULL)
		return -ENOMEM;
	d->bytes = grown;
	d->room = room;
	return 0;
}

static int read_stream(struct data *d, FILE *from)
{
	for (;;) {
		int rc = room_for(d, 1 << 16);
		size_t got;

		if (rc != 0)
			return rc;
		got = fread(d->bytes + d->size, 1, 1 << 16, from);
		d->size += got;
		if (got < 1 << 16)
			return ferror(from) ? -EIO : 0;
	}
}

static int add_file(struct data *d, const char *path, char *text)
{
	FILE *from = fopen(path, "re");
	int rc;

	if (from == NULL)
		return refuse(text, path, errno, strerror(errno));
	rc = read_stream(d, from);
	fclose(from);
	if (rc == -EFBIG)
		return refuse(text, path, EFBIG, "the data is larger than 256 MiB");
	if (rc != 0)
		return refuse(text, path, -rc, strerror(-rc));
	d->files++;
	return 0;
}

static int add_path(struct data *d, const char *path, unsigned depth, char *text);

static int is_source(const char *name)
{
	size_t n = strlen(name);

	return n > 2 && name[n - 2] == '.' && (name[n - 1] == 'c' || name[n - 1] == 'h');
}

static int add_entry(struct data *d, const char *folder, const char *name, unsigned depth,
		     char *text)
{
	char path[4096];
	struct stat st;

	if (name[0] == '.' || strncmp(name, "build", 5) == 0)
		return 0;
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, name) >= sizeof(path))
		return refuse(text, folder, ENAMETOOLONG, "a path below it is too long");
	if (stat(path, &st) != 0)
		return errno == ENOENT ? 0 : refuse(text, path, errno, strerror(errno));
	if (S_ISDIR(st.st_mode) || (S_ISREG(st.st_mode) && is_source(name)))
		return add_path(d, path, depth + 1, text);
	return 0;
}

/* By bytes, not by the locale: the same order everywhere. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_folder(struct data *d, const char *path, unsigned depth, char *text)
{
	struct dirent **entries;
	int n = scandir(path, &entries, NULL, by_name), rc = 0;

	if (n < 0)
		return refuse(text, path, errno, strerror(errno));
	for (int i = 0; i < n; i++) {
		if (rc == 0)
			rc = add_entry(d, path, entries[i]->d_name, depth, text);
		free(entries[i]);
	}
	free(entries);
	return rc;
}

static int add_path(struct data *d, const char *path, unsigned depth, char *text)
{
	struct stat st;

	if (depth > DEPTH_MAX)
		return refuse(text, path, ELOOP, "folders are nested too deep");
	if (stat(path, &st) != 0)
		return refuse(text, path, errno, strerror(errno));
	return S_ISDIR(st.st_mode) ? add_folder(d, path, depth, text) : add_file(d, path, text);
}

int data_add(struct data *d, const char *path, char *text)
{
	return add_path(d, path, 0, text);
}

void data_free(struct data *d)
{
	free(d->bytes);
	*d = (struct data){ 0 };
}

void data_sample(const struct data *d, uint64_t seed, uint64_t step, uint64_t batch, size_t window,
		 uint8_t *ret)
{
	struct random random = random_stream(seed, (1ull << 32) + step);

	REQUIRE(d->size >= window);
	for (uint64_t b = 0; b < batch; b++)
		memcpy(ret + b * window, d->bytes + random_below(&random, d->size - window + 1),
		       window);
}
