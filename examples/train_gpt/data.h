/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes to learn from: files, or the C sources below folders, in an order that depends on their
 * names only. Loaded once, into memory of the program.
 */
#ifndef TRAIN_GPT_DATA_H
#define TRAIN_GPT_DATA_H

#include <stddef.h>
#include <stdint.h>

#define DATA_BYTES_MAX (1ull << 28)
#define DATA_TEXT_MAX  4400

struct data {
	uint8_t *bytes;
	size_t size, room;
	size_t files;
};

/* A file as it is; a folder stands for all *.c and *.h below it, but for names that begin with "."
 * or "build". Appends. 0, or -errno with the sentence in `text` (DATA_TEXT_MAX bytes). */
int data_add(struct data *d, const char *path, char *text);
void data_free(struct data *d);

/* Fills `batch` windows of `window` bytes, from places drawn for this step. d->size >= window. */
void data_sample(const struct data *d, uint64_t seed, uint64_t step, uint64_t batch, size_t window,
		 uint8_t *ret);

#endif
