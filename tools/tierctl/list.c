/* SPDX-License-Identifier: Apache-2.0
 *
 * tierctl list: every tensor, printed as it comes, so that a million take no memory here.
 */
#include <inttypes.h>
#include <string.h>

#include "libclient/admin.h"
#include "tools/tierctl/command.h"
#include "tools/tierctl/info.h"
#include "tools/tierctl/text.h"

static void text_line(const struct tierd_info *i)
{
	char handle[TEXT_ROOM], bytes[TEXT_ROOM], at[TIERD_TIERS][TEXT_ROOM];

	for (unsigned tier = 0; tier < TIERD_TIERS; tier++)
		text_bytes(i->stored_bytes[tier], at[tier]);
	snprintf(handle, sizeof(handle), "%" PRIu32 ":%" PRIu32, i->tensor.index,
		 i->tensor.generation);
	printf("%-12s %-10s %-8s %10s %10s %10s %10s %5s %5" PRIu32 "  ", handle,
	       text_class(i->class_), text_state(i->state), text_bytes(i->bytes, bytes), at[0],
	       at[1], at[2], i->dirty ? "dirty" : "", i->pins);
	info_plain_name(stdout, i);
	putchar('\n');
}

static int each(void *ctx, const struct tierd_info *i)
{
	const struct arguments *a = ctx;

	if (a->name_space != NULL && strcmp(i->name_space, a->name_space) != 0)
		return 0;
	if (a->json != NULL)
		info_json(stdout, i);
	else
		text_line(i);
	/* Nobody reads any more, or the disk is full: main() says so. */
	return ferror(stdout) ? 1 : 0;
}

int list_run(const struct arguments *a)
{
	struct tierd *t;
	int rc, status = command_connect(a, &t);

	if (status != STATUS_OK)
		return status;
	if (a->json == NULL)
		printf("%-12s %-10s %-8s %10s %10s %10s %10s %5s %5s  %s\n", "handle", "class",
		       "state", "bytes", "in hbm", "in dram", "in nvme", "", "pins",
		       "namespace/name");
	rc = admin_list(t, each, (void *)a);
	if (rc < 0)
		status = command_failed(a, rc, tierd_error(t));
	tierd_close(t);
	return status;
}
