/* SPDX-License-Identifier: Apache-2.0
 *
 * A job for tests of other programs: makes tensors, writes and pins a few, says "ready" and keeps
 * them until its input ends.
 * Usage: tensors SOCKET NAMESPACE COUNT
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/tierd.h"

#define BATCH   1000u
#define WRITTEN 10u /* tensors of 4096 bytes, written and pinned; the others have none */

static struct tierd *t;
static tierd_tensor handles[BATCH];
static struct tierd_view views[WRITTEN];

static void must(int rc, const char *what)
{
	if (rc >= 0)
		return;
	printf("%s: %s\n", what, tierd_error(t));
	exit(1);
}

static void create(unsigned from, unsigned n)
{
	static struct tierd_spec specs[BATCH];
	static char names[BATCH][32];

	for (unsigned i = 0; i < n; i++) {
		snprintf(names[i], sizeof(names[i]), "layer.%u", from + i);
		specs[i] = (struct tierd_spec){ .name = names[i],
						.class_ = TIERD_OPTIMIZER,
						.dtype = TIERD_F32,
						.ndim = 1,
						.shape = { from + i < WRITTEN ? 1024 : 0 } };
	}
	if (from == 0)
		strcpy(names[0], "bad\xff\x1bname");
	must(tierd_create(t, specs, n, handles), "create");
}

static void write_some(unsigned n)
{
	must(tierd_acquire_batch(t, handles, n, TIERD_HOST, TIERD_WRITE, -1, views), "acquire");
	for (unsigned i = 0; i < n; i++)
		memset(views[i].data, (int)i, views[i].bytes);
}

int main(int argc, char **argv)
{
	unsigned count = argc == 4 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;

	if (count < WRITTEN) {
		puts("usage: tensors SOCKET NAMESPACE COUNT");
		return 2;
	}
	must(tierd_open(argv[1], argv[2], 0, &t), "open");
	for (unsigned from = 0; from < count; from += BATCH) {
		create(from, count - from < BATCH ? count - from : BATCH);
		if (from == 0)
			write_some(WRITTEN);
	}
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	for (unsigned i = 0; i < WRITTEN; i++)
		tierd_release(t, &views[i]);
	tierd_close(t);
	return 0;
}
