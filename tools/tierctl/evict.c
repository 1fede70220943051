/* SPDX-License-Identifier: Apache-2.0
 *
 * tierctl evict: says of tensors that they are not needed soon.
 */
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "libclient/admin.h"
#include "tools/tierctl/command.h"
#include "tools/tierctl/json.h"
#include "tools/tierctl/text.h"

struct picked {
	const struct arguments *arguments;
	tierd_tensor *tensors;
	size_t count, room;
	uint64_t bytes;
	char refusal[600]; /* "": none */
};

static bool matches(const struct arguments *a, const struct tierd_info *i)
{
	char whole[2 * TIERD_NAME_MAX + 2];

	if (a->name_space != NULL && strcmp(i->name_space, a->name_space) != 0)
		return false;
	if (a->all != NULL)
		return true;
	snprintf(whole, sizeof(whole), "%s/%s", i->name_space, i->name);
	return i->name[0] != '\0' &&
	       (fnmatch(a->operand, i->name, 0) == 0 || fnmatch(a->operand, whole, 0) == 0);
}

static int pick(void *ctx, const struct tierd_info *i)
{
	struct picked *p = ctx;

	if (!matches(p->arguments, i))
		return 0;
	if (p->count == p->room) {
		size_t room = p->room > 0 ? 2 * p->room : 1024;
		tierd_tensor *grown = reallocarray(p->tensors, room, sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		p->tensors = grown;
		p->room = room;
	}
	p->tensors[p->count++] = i->tensor;
	p->bytes += i->bytes;
	return 0;
}

/* One that was destroyed meanwhile is none any more; what is another user's keeps none of the
 * others from being told, and is said at the end. */
static int hint(struct tierd *t, struct picked *p)
{
	int rc = 0;

	for (size_t at = 0; at < p->count && rc == 0; at += TIERD_BATCH_MAX) {
		size_t n = p->count - at;

		rc = tierd_evict(t, p->tensors + at, n < TIERD_BATCH_MAX ? n : TIERD_BATCH_MAX);
		if (rc == -EPERM)
			snprintf(p->refusal, sizeof(p->refusal), "%s; the others were told",
				 tierd_error(t));
		rc = rc == -EPERM || rc == -ESTALE ? 0 : rc;
	}
	return rc;
}

static void say(const struct arguments *a, const struct picked *p)
{
	struct json j = { stdout, false };
	char bytes[TEXT_ROOM];

	if (a->json == NULL) {
		printf("%zu %s, %s: told that %s not needed soon\n", p->count,
		       PLURAL(p->count, "tensor", "tensors"), text_bytes(p->bytes, bytes),
		       PLURAL(p->count, "it is", "they are"));
		return;
	}
	json_open(&j, NULL, '{');
	json_u64(&j, "tensors", p->count);
	json_u64(&j, "bytes", p->bytes);
	json_close(&j, '}');
	json_end(&j);
}

static int run(const struct arguments *a, struct tierd *t, struct picked *p)
{
	char sentence[512];
	int rc = admin_list(t, pick, p);

	if (rc == -ENOMEM)
		return command_failed(a, rc, "no memory for so many tensors");
	if (rc == 0 && p->count == 0) {
		snprintf(sentence, sizeof(sentence), "%s: no such tensor",
			 a->operand != NULL ? a->operand : "--all");
		return command_failed(a, -ENOENT, sentence);
	}
	if (rc == 0)
		rc = hint(t, p);
	if (rc < 0)
		return command_failed(a, rc, tierd_error(t));
	if (p->refusal[0] != '\0')
		return command_failed(a, -EPERM, p->refusal);
	say(a, p);
	return STATUS_OK;
}

int evict_run(const struct arguments *a)
{
	struct picked p = { .arguments = a };
	struct tierd *t;
	int status;

	if ((a->operand == NULL) == (a->all == NULL))
		return command_misused(a, "evict: takes a PATTERN or --all, and not both");
	status = command_connect(a, &t);
	if (status != STATUS_OK)
		return status;
	status = run(a, t, &p);
	tierd_close(t);
	free(p.tensors);
	return status;
}
