/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tierctl/text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/compiler.h"
#include "libclient/protocol/page.h"
#include "libclient/tierd.h"

static const char *const dtypes[] = { "u8",  "i8",  "i32",    "i64",    "f16", "bf16",
				      "f32", "f64", "f8e4m3", "f8e5m2", "bool" };
static const char *const states[] = { "absent",   "filling",  "resident",
				      "evicting", "dropping", "failed" };

static_assert(ARRAY_SIZE(dtypes) == TIERD_BOOL + 1, "a name a dtype");
static_assert(ARRAY_SIZE(states) == TIERD_STATE_FAILED + 1, "a name a state");

const char *text_class(uint32_t class_)
{
	return class_ < STATS_CLASSES ? page_classes[class_] : "?";
}

const char *text_dtype(uint32_t dtype)
{
	return dtype < ARRAY_SIZE(dtypes) ? dtypes[dtype] : "?";
}

const char *text_state(uint32_t state)
{
	return state < ARRAY_SIZE(states) ? states[state] : "?";
}

const char *text_bytes(uint64_t bytes, char ret[TEXT_ROOM])
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 1024) {
		snprintf(ret, TEXT_ROOM, bytes > 0 ? "%" PRIu64 " B" : "%" PRIu64, bytes);
		return ret;
	}
	/* What would be printed as 1024.0 is the next unit's 1.0. */
	while (value >= 1023.95 && unit + 1 < ARRAY_SIZE(units)) {
		value /= 1024;
		unit++;
	}
	snprintf(ret, TEXT_ROOM, "%.1f %s", value, units[unit]);
	return ret;
}

const char *text_duration(uint64_t ns, char ret[TEXT_ROOM])
{
	uint64_t min = ns / (60 * NS_PER_S);

	if (ns == 0)
		snprintf(ret, TEXT_ROOM, "0");
	else if (ns < NS_PER_US)
		snprintf(ret, TEXT_ROOM, "%" PRIu64 " ns", ns);
	else if (ns < NS_PER_MS)
		snprintf(ret, TEXT_ROOM, "%.1f us", (double)ns / NS_PER_US);
	else if (ns < NS_PER_S)
		snprintf(ret, TEXT_ROOM, "%.1f ms", (double)ns / NS_PER_MS);
	else if (min < 2)
		snprintf(ret, TEXT_ROOM, "%.1f s", (double)ns / NS_PER_S);
	else if (min < 60)
		snprintf(ret, TEXT_ROOM, "%" PRIu64 " min", min);
	else if (min < 48 * 60)
		snprintf(ret, TEXT_ROOM, "%" PRIu64 " h %" PRIu64 " min", min / 60, min % 60);
	else
		snprintf(ret, TEXT_ROOM, "%" PRIu64 " d %" PRIu64 " h", min / 1440, min / 60 % 24);
	return ret;
}
