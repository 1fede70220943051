/* SPDX-License-Identifier: Apache-2.0
 *
 * tierctl show: one tensor, or all of a name.
 */
#include "tools/tierctl/find.h"
#include "tools/tierctl/info.h"

struct shown {
	const struct arguments *arguments;
	unsigned count;
};

static int print(void *ctx, struct tierd *t, const struct tierd_info *i)
{
	struct shown *s = ctx;

	if (s->arguments->json != NULL) {
		info_json(stdout, i);
	} else {
		fputs(s->count > 0 ? "\n" : "", stdout);
		info_text(stdout, i);
	}
	s->count++;
	return 0;
}

int show_run(const struct arguments *a)
{
	struct shown s = { .arguments = a };
	struct tierd *t;
	int status = command_connect(a, &t);

	if (status != STATUS_OK)
		return status;
	status = find_tensors(a, t, print, &s);
	tierd_close(t);
	return status;
}
