/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line: one row an option (options.c), `--help` and the checks come from the rows.
 */
#ifndef TRAIN_GPT_OPTIONS_H
#define TRAIN_GPT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "examples/train_gpt/model.h"

#define OPTIONS_DATA_MAX 64
#define OPTIONS_TEXT_MAX 512

enum options_place { PLACE_AUTO, PLACE_GPU0, PLACE_HOST };

struct options {
	struct gpt_config model;
	uint64_t steps, threads, gradient_samples;
	const char *data[OPTIONS_DATA_MAX]; /* none: this repository's sources */
	uint64_t data_count;
	const char *socket, *losses;
	int place, update_place; /* enum options_place */
	int gpu;                 /* that computes, -1: the CPU does */
	bool in_memory, check_gradients, json, help;
};

/* Fills `ret` from the defaults and argv; strings stay argv's. 0, or -EINVAL with the sentence in
 * `text` (OPTIONS_TEXT_MAX bytes). */
int options_parse(int argc, char *const *argv, struct options *ret, char *text);
void options_help(void);

#endif
