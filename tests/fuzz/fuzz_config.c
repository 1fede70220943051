/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a configuration. They are refused with a place, or taken; what is taken prints,
 * loads again and prints the same. Seeds: tests/fuzz/seeds and the YAML test suite.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "config/config.h"
#include "tests/unit/config_sample.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static char *printed(const struct sample *s)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);

	ASSERT(to != NULL);
	config_print(sample_rows, s, to);
	ASSERT(fclose(to) == 0);
	return text;
}

static void check_taken(struct sample *s)
{
	struct err err = ERR_INIT;
	struct sample again;
	char *first = printed(s), *second;

	if (sample_load(first, &again, &err) != 0) {
		fprintf(stderr, "%s\n%s", err.text, first);
		abort();
	}
	second = printed(&again);
	ASSERT(strcmp(first, second) == 0);
	free(first);
	free(second);
	config_free(sample_rows, &again);
	config_free(sample_rows, s);
}

static void check_refused(int result, const struct err *err)
{
	unsigned line, column;

	ASSERT(result == err->code);
	ASSERT(result == -EINVAL || result == -EFBIG);
	ASSERT(result == -EFBIG || sscanf(err->text, "fuzz:%u:%u: ", &line, &column) == 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct err err = ERR_INIT;
	struct sample s = { 0 };
	int res = config_load_text(sample_rows, "fuzz", (const char *)data, bytes, &s, &err);

	if (res == 0)
		check_taken(&s);
	else
		check_refused(res, &err);
	return 0;
}

#ifndef LIBFUZZER
static int replay(const char *path)
{
	static uint8_t data[2 << 20];
	FILE *file = fopen(path, "rb");
	size_t bytes;

	if (file == NULL) {
		perror(path);
		return EXIT_FAILURE;
	}
	bytes = fread(data, 1, sizeof(data), file);
	fclose(file);
	LLVMFuzzerTestOneInput(data, bytes);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	int res = EXIT_SUCCESS;

	for (int i = 1; i < argc; i++)
		if (replay(argv[i]) != EXIT_SUCCESS)
			res = EXIT_FAILURE;
	return res;
}
#endif
