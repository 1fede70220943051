/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tierctl/find.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/admin.h"

struct found {
	const struct arguments *arguments;
	struct tierd_info *infos;
	size_t count, room;
};

/* Kept, since a request cannot be made while the list is read. */
static int keep(struct found *f, const struct tierd_info *i)
{
	if (f->count == f->room) {
		size_t room = f->room > 0 ? 2 * f->room : 16;
		struct tierd_info *grown = reallocarray(f->infos, room, sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		f->infos = grown;
		f->room = room;
	}
	f->infos[f->count++] = *i;
	return 0;
}

static int match(void *ctx, const struct tierd_info *i)
{
	struct found *f = ctx;
	const struct arguments *a = f->arguments;

	if (i->name[0] != '\0' && strcmp(i->name, a->operand) == 0 &&
	    (a->name_space == NULL || strcmp(i->name_space, a->name_space) == 0))
		return keep(f, i);
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

static int search(struct found *f, struct tierd *t)
{
	struct tierd_info info;
	tierd_tensor handle;
	int rc = admin_list(t, match, f);

	/* A name that looks like a handle is a name first. */
	if (rc != 0 || f->count > 0 || !is_handle(f->arguments->operand, &handle))
		return rc;
	rc = tierd_stat(t, handle, &info);
	return rc == 0 ? keep(f, &info) : rc;
}

int find_tensors(const struct arguments *a, struct tierd *t,
		 int (*each)(void *ctx, struct tierd *t, const struct tierd_info *i), void *ctx)
{
	struct found f = { .arguments = a };
	char sentence[512];
	int rc = search(&f, t), status = STATUS_OK;

	snprintf(sentence, sizeof(sentence), "%s: no such tensor", a->operand);
	if (rc == -ENOMEM)
		status = command_failed(a, rc, "no memory for so many tensors of that name");
	else if (rc < 0)
		status = command_failed(a, rc, tierd_error(t));
	else if (f.count == 0)
		status = command_failed(a, -ENOENT, sentence);
	for (size_t i = 0; status == STATUS_OK && i < f.count; i++)
		if (each(ctx, t, &f.infos[i]) != 0)
			break;
	free(f.infos);
	return status;
}
