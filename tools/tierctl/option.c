/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tierctl/option.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_MAX 3600.0
#define COUNT_MAX   1000000u

int option_seconds(const struct arguments *a, const char *name, const char *text, double least,
		   double *ret)
{
	char sentence[128], *end;
	double value;

	if (text == NULL)
		return STATUS_OK;
	value = strtod(text, &end);
	if (end != text && *end == '\0' && value >= least && value <= SECONDS_MAX) {
		*ret = value;
		return STATUS_OK;
	}
	snprintf(sentence, sizeof(sentence), "%s: seconds from %g to %g are wanted", name, least,
		 SECONDS_MAX);
	return command_misused(a, sentence);
}

int option_count(const struct arguments *a, const char *name, const char *text, uint64_t *ret)
{
	char sentence[128], *end;
	uint64_t value;

	if (text == NULL)
		return STATUS_OK;
	value = strtoull(text, &end, 10);
	if (strspn(text, "0123456789") == strlen(text) && end != text && value >= 1 &&
	    value <= COUNT_MAX) {
		*ret = value;
		return STATUS_OK;
	}
	snprintf(sentence, sizeof(sentence), "%s: a number from 1 to %u is wanted", name,
		 COUNT_MAX);
	return command_misused(a, sentence);
}
