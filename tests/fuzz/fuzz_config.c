/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a configuration: of the daemon, and by a table that has every kind of row. They are
 * refused with a place, or taken; what is taken prints, loads again and prints the same.
 */
#include <errno.h>
#include <stdio.h>

#include "base/check.h"
#include "daemon/settings.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/words.h"
#include "tests/unit/config_sample.h"

static int load_sample(const char *text, size_t bytes, void *ret, struct err *err)
{
	memset(ret, 0, sizeof(struct sample));
	return config_load_text(sample_rows, "fuzz", text, bytes, ret, err);
}

static int load_settings(const char *text, size_t bytes, void *ret, struct err *err)
{
	return settings_load_text("fuzz", text, bytes, ret, err);
}

static const struct table {
	const struct config_row *rows;
	int (*load)(const char *text, size_t bytes, void *ret, struct err *err);
} tables[] = { { sample_rows, load_sample }, { settings_rows, load_settings } };

union filled {
	struct sample sample;
	struct settings settings;
};

static char *printed(const struct table *t, const union filled *s, size_t *ret_bytes)
{
	char *text = NULL;
	FILE *to = open_memstream(&text, ret_bytes);

	ASSERT(to != NULL);
	config_print(t->rows, s, to);
	ASSERT(fclose(to) == 0);
	return text;
}

static void check_taken(const struct table *t, union filled *s)
{
	struct err err = ERR_INIT;
	union filled again;
	size_t first_bytes, second_bytes;
	char *first = printed(t, s, &first_bytes), *second;

	if (t->load(first, first_bytes, &again, &err) != 0) {
		fprintf(stderr, "%s\n%s", err.text, first);
		abort();
	}
	second = printed(t, &again, &second_bytes);
	ASSERT(first_bytes == second_bytes && memcmp(first, second, first_bytes) == 0);
	free(first);
	free(second);
	config_free(t->rows, &again);
	config_free(t->rows, s);
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
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		struct err err = ERR_INIT;
		union filled s;
		int rc = tables[i].load((const char *)data, bytes, &s, &err);

		if (rc == 0)
			check_taken(&tables[i], &s);
		else
			check_refused(rc, &err);
	}
	fuzz_count("documents", 1);
	return 0;
}

#ifdef LIBFUZZER
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t room, unsigned seed);

/* Puts a word of the tables somewhere. */
static size_t put_word(uint8_t *data, size_t bytes, size_t room, unsigned random)
{
	static struct words words;
	const char *word;
	size_t at = bytes > 0 ? random / 7 % (bytes + 1) : 0, gone = 0, n;

	for (size_t i = 0; words.count == 0 && i < ARRAY_SIZE(tables); i++)
		words_add(&words, tables[i].rows);
	word = words.word[random % words.count];
	n = strlen(word);
	/* Half of them take the place of a word that stands there. */
	while (random % 2 == 0 && at + gone < bytes && data[at + gone] > ' ' &&
	       strchr(":,{}[]\"'", data[at + gone]) == NULL)
		gone++;
	if (bytes - gone + n > room)
		return bytes;
	memmove(data + at + n, data + at + gone, bytes - at - gone);
	memcpy(data + at, word, n);
	return bytes - gone + n;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t room, unsigned seed)
{
	if (seed % 4 == 0)
		return LLVMFuzzerMutate(data, put_word(data, bytes, room, seed / 4), room);
	if (seed % 4 == 1)
		return put_word(data, bytes, room, seed / 4);
	return LLVMFuzzerMutate(data, bytes, room);
}
#endif
