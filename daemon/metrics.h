/* SPDX-License-Identifier: Apache-2.0
 *
 * The metrics listener: HTTP by libmicrohttpd in a thread of its own, which reads stats pages as
 * any client does and knows nothing else. GET /metrics is all there is. Few connections, short
 * ones. Started and stopped by the control thread. Without libmicrohttpd the key is refused by the
 * settings, and none is started.
 */
#ifndef TIERD_DAEMON_METRICS_H
#define TIERD_DAEMON_METRICS_H

#include <stddef.h>

#include "base/err.h"
#include "libclient/protocol/stats_page.h"

#define METRICS_CONNECTIONS 8u
/* Descriptors: those, one more that takes the place of the oldest, the listening socket and what
 * the thread waits by. */
#define METRICS_FDS (METRICS_CONNECTIONS + 5u)

struct metrics_domain {
	const char *name;
	const struct stats_page *page; /* mapped until metrics_stop() */
};

struct metrics;
int metrics_start(const char *listen, const struct metrics_domain *of, size_t n,
		  struct metrics **ret, struct err *err);
/* NULL is none. */
void metrics_stop(struct metrics *metrics);

#endif
