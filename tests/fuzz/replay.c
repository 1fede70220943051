/* SPDX-License-Identifier: Apache-2.0
 *
 * The main() of a fuzzer without libFuzzer: feeds it each file that is named, and each file of each
 * folder; without arguments those of its corpus.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/check.h"
#include "tests/fuzz/fuzz.h"

#define INPUT_MAX (2u << 20)

static unsigned fed;

static int feed(const char *path)
{
	uint8_t *data = malloc(INPUT_MAX);
	FILE *file = fopen(path, "rb");
	size_t bytes;

	if (file == NULL) {
		perror(path);
		free(data);
		return -1;
	}
	bytes = fread(data, 1, INPUT_MAX, file);
	ASSERT(!ferror(file) && fclose(file) == 0);
	/* As libFuzzer has it: a copy of just this size, so that a read beyond is found. */
	data = realloc(data, bytes + (bytes == 0));
	ASSERT(LLVMFuzzerTestOneInput(data, bytes) == 0);
	free(data);
	fed++;
	return 0;
}

static int feed_folder(const char *path)
{
	struct dirent **names;
	int n = scandir(path, &names, NULL, alphasort), rc = 0;

	if (n < 0) {
		perror(path);
		return -1;
	}
	for (int i = 0; i < n; i++) {
		char *file;

		ASSERT(asprintf(&file, "%s/%s", path, names[i]->d_name) > 0);
		if (names[i]->d_name[0] != '.' && feed(file) < 0)
			rc = -1;
		free(file);
		free(names[i]);
	}
	free(names);
	return rc;
}

static int feed_any(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? feed_folder(path) : feed(path);
}

int main(int argc, char **argv)
{
	int rc = argc > 1 ? 0 : feed_folder(FUZZ_CORPUS);

	for (int i = 1; i < argc; i++)
		if (feed_any(argv[i]) < 0)
			rc = -1;
	printf("%s: %u inputs\n", program_invocation_short_name, fed);
	return rc == 0 && fed > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
