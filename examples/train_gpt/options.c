/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/train_gpt/options.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option_kind {
	OPTION_COUNT,  /* uint64_t */
	OPTION_REAL,   /* double */
	OPTION_INT,    /* int */
	OPTION_TEXT,   /* const char * */
	OPTION_APPEND, /* const char *[] at offset, counted by data_count */
	OPTION_PLACE,  /* int */
	OPTION_FLAG,   /* bool */
};

struct option_row {
	const char *name, *argument, *default_text;
	enum option_kind kind;
	size_t offset;
	double min, max;
	const char *help;
};

#define MODEL(member) offsetof(struct options, model.member)
#define AT(member)    offsetof(struct options, member)

static const struct option_row rows[] = {
	{ "layers", "N", "6", OPTION_COUNT, MODEL(layers), 1, 512, "blocks" },
	{ "heads", "N", "6", OPTION_COUNT, MODEL(heads), 1, 1024, "attention heads a block" },
	{ "width", "N", "384", OPTION_COUNT, MODEL(width), 1, 32768,
	  "width of the stream, a multiple of heads" },
	{ "context", "N", "64", OPTION_COUNT, MODEL(context), 1, 65536, "bytes a sequence" },
	{ "batch", "N", "4", OPTION_COUNT, MODEL(batch), 1, 65536, "sequences a step" },
	{ "steps", "N", "12", OPTION_COUNT, AT(steps), 1, 1e9, "training steps" },
	{ "lr", "X", "0.001", OPTION_REAL, MODEL(rate), 0, 1, "learning rate" },
	{ "decay", "X", "0.1", OPTION_REAL, MODEL(decay), 0, 1, "weight decay, decoupled" },
	{ "seed", "N", "1", OPTION_COUNT, MODEL(seed), 0, 1e15, "of initial values and batches" },
	{ "data", "PATH", NULL, OPTION_APPEND, AT(data), 0, OPTIONS_DATA_MAX,
	  "file, or folder of C sources, to learn; may be repeated (default: tierd's sources)" },
	{ "in-memory", NULL, NULL, OPTION_FLAG, AT(in_memory), 0, 0,
	  "the same arithmetic without tierd, all tensors in memory" },
	{ "gpu", "N", "-1", OPTION_INT, AT(gpu), -1, 1023,
	  "compute on this GPU, with CUDA; -1: on the CPU" },
	{ "socket", "PATH", NULL, OPTION_TEXT, AT(socket), 0, 0,
	  "tierd's socket (default: where the library looks)" },
	{ "place", "gpu0|host", NULL, OPTION_PLACE, AT(place), 0, 0,
	  "where tierd holds what the CPU computes with (default: gpu0 if it has an hbm tier)" },
	{ "update-place", "gpu0|host", NULL, OPTION_PLACE, AT(update_place), 0, 0,
	  "likewise for the optimizer (default: as --place)" },
	{ "threads", "N", "1", OPTION_COUNT, AT(threads), 1, 256,
	  "BLAS threads; results depend on it, so compare runs with the same" },
	{ "losses", "FILE", NULL, OPTION_TEXT, AT(losses), 0, 0,
	  "write a line a step: step, loss in hexadecimal and decimal" },
	{ "check-gradients", NULL, NULL, OPTION_FLAG, AT(check_gradients), 0, 0,
	  "compare gradients with finite differences in double, those of a GPU with the CPU's; "
	  "end" },
	{ "gradient-samples", "N", "3", OPTION_COUNT, AT(gradient_samples), 1, 1e6,
	  "elements compared a kind of parameter" },
	{ "json", NULL, NULL, OPTION_FLAG, AT(json), 0, 0, "one JSON object a line" },
	{ "help", NULL, NULL, OPTION_FLAG, AT(help), 0, 0, "this text" },
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

static int refuse(char *text, const char *name, const char *value, const char *why)
{
	snprintf(text, OPTIONS_TEXT_MAX, "--%s %s: %s", name, value, why);
	return -EINVAL;
}

static int set_number(const struct option_row *row, const char *value, void *at, char *text)
{
	char why[80];
	char *end;
	double number;

	errno = 0;
	number = strtod(value, &end);
	if (end == value || *end != '\0' || errno != 0 || !isfinite(number))
		return refuse(text, row->name, value, "not a number");
	if (row->kind != OPTION_REAL && number != floor(number))
		return refuse(text, row->name, value, "not a whole number");
	if (number < row->min || number > row->max) {
		snprintf(why, sizeof(why), "not from %g to %g", row->min, row->max);
		return refuse(text, row->name, value, why);
	}
	if (row->kind == OPTION_COUNT)
		*(uint64_t *)at = (uint64_t)number;
	else if (row->kind == OPTION_INT)
		*(int *)at = (int)number;
	else
		*(double *)at = number;
	return 0;
}

static int set_place(const struct option_row *row, const char *value, int *at, char *text)
{
	if (strcmp(value, "gpu0") != 0 && strcmp(value, "host") != 0)
		return refuse(text, row->name, value, "neither gpu0 nor host");
	*at = value[0] == 'g' ? PLACE_GPU0 : PLACE_HOST;
	return 0;
}

static int set(struct options *o, const struct option_row *row, const char *value, char *text)
{
	void *at = (char *)o + row->offset;

	switch (row->kind) {
	case OPTION_COUNT:
	case OPTION_REAL:
	case OPTION_INT:
		return set_number(row, value, at, text);
	case OPTION_TEXT:
		*(const char **)at = value;
		return 0;
	case OPTION_APPEND:
		if (o->data_count == OPTIONS_DATA_MAX)
			return refuse(text, row->name, value, "too many of them");
		((const char **)at)[o->data_count++] = value;
		return 0;
	case OPTION_PLACE:
		return set_place(row, value, at, text);
	case OPTION_FLAG:
		*(bool *)at = true;
		return 0;
	}
	return refuse(text, row->name, value, "unknown kind");
}

static const struct option_row *find(const char *name, size_t bytes)
{
	for (size_t i = 0; i < ROWS; i++)
		if (strlen(rows[i].name) == bytes && memcmp(rows[i].name, name, bytes) == 0)
			return &rows[i];
	return NULL;
}

/* One option at argv[*i], as "--name value" or "--name=value". */
static int parse_one(int argc, char *const *argv, int *i, struct options *ret, char *text)
{
	const char *word = argv[*i], *value = NULL;
	size_t bytes = strcspn(word, "=");
	const struct option_row *row;

	row = strncmp(word, "--", 2) == 0 ? find(word + 2, bytes - 2) : NULL;
	if (row == NULL) {
		snprintf(text, OPTIONS_TEXT_MAX, "%s: no such option; --help lists them", word);
		return -EINVAL;
	}
	if (word[bytes] == '=')
		value = word + bytes + 1;
	if (row->argument == NULL && value != NULL)
		return refuse(text, row->name, value, "takes no value");
	if (row->argument != NULL && value == NULL) {
		if (*i + 1 == argc)
			return refuse(text, row->name, "", "a value is missing");
		value = argv[++*i];
	}
	return set(ret, row, value, text);
}

static int check(const struct options *o, char *text)
{
	if (o->model.width % o->model.heads != 0) {
		snprintf(text, OPTIONS_TEXT_MAX, "--width %llu is not a multiple of --heads %llu",
			 (unsigned long long)o->model.width, (unsigned long long)o->model.heads);
		return -EINVAL;
	}
	/* BLAS counts rows and columns in int. */
	if (o->model.batch * o->model.context > 1 << 24) {
		snprintf(text, OPTIONS_TEXT_MAX, "--batch times --context is more than 2^24");
		return -EINVAL;
	}
	if (o->gpu >= 0 && (o->place != PLACE_AUTO || o->update_place != PLACE_AUTO)) {
		snprintf(text, OPTIONS_TEXT_MAX,
			 "--gpu %d computes at that GPU: --place and --update-place are the CPU's",
			 o->gpu);
		return -EINVAL;
	}
	return 0;
}

int options_parse(int argc, char *const *argv, struct options *ret, char *text)
{
	*ret = (struct options){ 0 };
	for (size_t i = 0; i < ROWS; i++)
		if (rows[i].default_text != NULL && set(ret, &rows[i], rows[i].default_text, text))
			return -EINVAL;
	for (int i = 1; i < argc; i++) {
		int rc = parse_one(argc, argv, &i, ret, text);

		if (rc != 0)
			return rc;
	}
	return check(ret, text);
}

void options_help(void)
{
	puts("Usage: train_gpt [OPTION]...\n"
	     "Trains a GPT on bytes; its parameters, gradients, moments and activations are "
	     "tensors "
	     "of tierd.\n");
	for (size_t i = 0; i < ROWS; i++) {
		char left[64];

		snprintf(left, sizeof(left), "--%s%s%s", rows[i].name,
			 rows[i].argument != NULL ? " " : "",
			 rows[i].argument != NULL ? rows[i].argument : "");
		printf("  %-26s %s", left, rows[i].help);
		if (rows[i].default_text != NULL)
			printf(" (default %s)", rows[i].default_text);
		putchar('\n');
	}
}
