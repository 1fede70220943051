/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers on the command line: STATUS_OK, or the exit status after command_misused(). What was not
 * given leaves *ret as it is. One thread.
 */
#ifndef TIERD_TIERCTL_OPTION_H
#define TIERD_TIERCTL_OPTION_H

#include <stdint.h>

#include "tools/tierctl/command.h"

/* From `least` to an hour. */
int option_seconds(const struct arguments *a, const char *name, const char *text, double least,
		   double *ret);
/* From 1 to 1000000. */
int option_count(const struct arguments *a, const char *name, const char *text, uint64_t *ret);

#endif
