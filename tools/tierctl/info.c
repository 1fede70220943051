/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tierctl/info.h"

#include <inttypes.h>
#include <string.h>

#include "base/plural.h"
#include "tools/tierctl/json.h"
#include "tools/tierctl/text.h"
#include "tiers/tier.h"

void info_plain_name(FILE *to, const struct tierd_info *i)
{
	json_plain(to, i->name_space, strlen(i->name_space));
	fputc('/', to);
	json_plain(to, i->name, strlen(i->name));
}

static bool has_place(const struct tierd_info *i)
{
	return i->state != TIERD_STATE_ABSENT;
}

static void json_place(struct json *j, const struct tierd_info *i)
{
	if (!has_place(i))
		json_null(j, "place");
	else if (i->place == TIERD_HOST)
		json_text(j, "place", "host");
	else
		json_i64(j, "place", i->place);
}

void info_json_members(struct json *j, const struct tierd_info *i)
{
	json_u64(j, "index", i->tensor.index);
	json_u64(j, "generation", i->tensor.generation);
	json_name(j, "namespace", i->name_space, strlen(i->name_space));
	if (i->name[0] != '\0')
		json_name(j, "name", i->name, strlen(i->name));
	else
		json_null(j, "name");
	json_text(j, "class", text_class(i->class_));
	json_text(j, "dtype", text_dtype(i->dtype));
	json_open(j, "shape", '[');
	for (uint32_t d = 0; d < i->ndim; d++)
		json_u64(j, NULL, i->shape[d]);
	json_close(j, ']');
	json_u64(j, "bytes", i->bytes);
	json_u64(j, "version", i->version);
	json_text(j, "state", text_state(i->state));
	json_place(j, i);
	json_bool(j, "dirty", i->dirty != 0);
	json_u64(j, "pins", i->pins);
	json_open(j, "stored_bytes", '{');
	for (unsigned tier = 0; tier < TIERD_TIERS; tier++)
		json_u64(j, tier_kind_name(tier), i->stored_bytes[tier]);
	json_close(j, '}');
}

void info_json(FILE *to, const struct tierd_info *i)
{
	struct json j = { to, false };

	json_open(&j, NULL, '{');
	info_json_members(&j, i);
	json_close(&j, '}');
	json_end(&j);
}

static void text_shape(FILE *to, const struct tierd_info *i)
{
	fprintf(to, "%-10s %s [", "shape", text_dtype(i->dtype));
	for (uint32_t d = 0; d < i->ndim; d++)
		fprintf(to, "%s%" PRIu64, d > 0 ? ", " : "", i->shape[d]);
	fputs("]\n", to);
}

static void text_place(FILE *to, const struct tierd_info *i)
{
	fprintf(to, "%-10s %s", "state", text_state(i->state));
	if (has_place(i) && i->place == TIERD_HOST)
		fputs(", at the host", to);
	else if (has_place(i))
		fprintf(to, ", at gpu %" PRId32, i->place);
	fprintf(to, "%s, %" PRIu32 " %s\n", i->dirty ? ", no lower tier holds these bytes yet" : "",
		i->pins, PLURAL(i->pins, "pin", "pins"));
}

void info_text(FILE *to, const struct tierd_info *i)
{
	char text[TEXT_ROOM];

	fprintf(to, "%-10s ", "tensor");
	info_plain_name(to, i);
	fprintf(to, "\n%-10s %" PRIu32 ":%" PRIu32 "\n", "handle", i->tensor.index,
		i->tensor.generation);
	fprintf(to, "%-10s %s\n", "class", text_class(i->class_));
	text_shape(to, i);
	fprintf(to, "%-10s %" PRIu64 " (%s)\n", "bytes", i->bytes, text_bytes(i->bytes, text));
	fprintf(to, "%-10s %" PRIu64 "\n", "version", i->version);
	text_place(to, i);
	for (unsigned tier = 0; tier < TIERD_TIERS; tier++)
		fprintf(to, "in %-7s %s\n", tier_kind_name(tier),
			text_bytes(i->stored_bytes[tier], text));
}
