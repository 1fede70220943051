/* SPDX-License-Identifier: Apache-2.0
 *
 * tierctl show: tensors by name, in every namespace, or one by its handle. A name is looked for in
 * the list of all tensors: a lookup would need a connection inside the job's namespace.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/admin.h"
#include "tools/tierctl/command.h"
#include "tools/tierctl/info.h"

struct search {
	const struct arguments *arguments;
	unsigned found;
};

static void print(struct search *s, const struct tierd_info *i)
{
	if (s->arguments->json != NULL) {
		info_json(stdout, i);
	} else {
		fputs(s->found > 0 ? "\n" : "", stdout);
		info_text(stdout, i);
	}
	s->found++;
}

static int each(void *ctx, const struct tierd_info *i)
{
	struct search *s = ctx;
	const struct arguments *a = s->arguments;

	if (i->name[0] != '\0' && strcmp(i->name, a->operand) == 0 &&
	    (a->name_space == NULL || strcmp(i->name_space, a->name_space) == 0))
		print(s, i);
	return 0;
}

/* "INDEX:GENERATION" and nothing else. */
static bool is_handle(const char *text, tierd_tensor *ret)
{
	unsigned index, generation;
	int end = 0;

	if (strspn(text, "0123456789:") != strlen(text) ||
	    sscanf(text, "%9u:%9u%n", &index, &generation, &end) != 2 || text[end] != '\0')
		return false;
	*ret = (tierd_tensor){ index, generation };
	return true;
}

static int show(struct tierd *t, struct search *s)
{
	struct tierd_info info;
	tierd_tensor handle;
	int rc = admin_list(t, each, s);

	/* A name that looks like a handle is a name first. */
	if (rc != 0 || s->found > 0 || !is_handle(s->arguments->operand, &handle))
		return rc;
	rc = tierd_stat(t, handle, &info);
	if (rc == 0)
		print(s, &info);
	return rc;
}

int show_run(const struct arguments *a)
{
	struct search s = { .arguments = a };
	char sentence[512];
	struct tierd *t;
	int rc, status = command_connect(a, &t);

	if (status != STATUS_OK)
		return status;
	rc = show(t, &s);
	snprintf(sentence, sizeof(sentence), "%s: no such tensor", a->operand);
	if (rc < 0)
		status = command_failed(a, rc, tierd_error(t));
	else if (s.found == 0)
		status = command_failed(a, -ENOENT, sentence);
	tierd_close(t);
	return status;
}
