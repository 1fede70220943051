/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters as Prometheus reads them: text exposition format 0.0.4, made of the rows of the stats
 * page, so that a new row is a new metric. Bytes stay bytes, nanoseconds become seconds; what only
 * grows ends with _total. Pure; any thread.
 */
#ifndef TIERD_DAEMON_EXPOSITION_H
#define TIERD_DAEMON_EXPOSITION_H

#include <stddef.h>
#include <stdio.h>

#include "libclient/protocol/page.h"

struct exposition {
	const char *domain; /* a label of each of its samples */
	struct page page;
};

void exposition_write(FILE *to, const char *version, const struct exposition *of, size_t n);

#endif
