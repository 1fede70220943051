/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines to stderr, by topic: "object first, exact cause", lower case, one line a failure.
 * A line that repeats is printed once more with "repeated N times" when another comes or the
 * repeat interval has passed; of a topic's warnings a dozen a minute are printed, the others
 * counted. TIERD_LOG=move:debug,lane:trace sets levels; the default is info.
 * Any thread. The library (libclient) never logs above debug.
 */
#ifndef TIERD_BASE_LOG_H
#define TIERD_BASE_LOG_H

#include <stdbool.h>

#include "base/compiler.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };

/* One row a topic: X(enumerator, "name", "what it speaks of"). */
#define LOG_TOPICS(X)                                                \
	X(MAIN, "main", "start, stop and configuration")             \
	X(SERVER, "server", "socket, connections, death of clients") \
	X(REQUEST, "request", "ring entries")                        \
	X(ENGINE, "engine", "tensors and their states")              \
	X(MOVE, "move", "moves and their transfers")                 \
	X(RECLAIM, "reclaim", "victims, cleaning, compaction")       \
	X(LANE, "lane", "lane threads")                              \
	X(TIER, "tier", "tiers and devices")                         \
	X(CLIENT, "client", "the client library")

enum log_topic {
#define X(id, name, help) LOG_TOPIC_##id,
	LOG_TOPICS(X)
#undef X
		LOG_TOPIC_COUNT
};

/* Parses TIERD_LOG's syntax; NULL leaves the defaults. -EINVAL on an unknown topic or level. */
int log_configure(const char *spec);
/* Before a sleep: prints a pending "repeated N times", if the topic may still say something. */
void log_flush(void);
/* Before the end: prints all that is pending, "N more were left out" among it. */
void log_end(void);
/* What a client chose must not steer a terminal nor begin a line: control characters become '?'. */
void log_printable(char *text);
bool log_enabled(enum log_topic topic, enum log_level level);
void log_write(enum log_topic topic, enum log_level level, const char *fmt, ...) PRINTF(3, 4);

#define log_at(topic, level, ...)                                                                 \
	(log_enabled(LOG_TOPIC_##topic, level) ? log_write(LOG_TOPIC_##topic, level, __VA_ARGS__) \
					       : (void)0)
#define log_error(topic, ...) log_at(topic, LOG_ERROR, __VA_ARGS__)
#define log_warn(topic, ...)  log_at(topic, LOG_WARN, __VA_ARGS__)
#define log_info(topic, ...)  log_at(topic, LOG_INFO, __VA_ARGS__)
#define log_debug(topic, ...) log_at(topic, LOG_DEBUG, __VA_ARGS__)
#define log_trace(topic, ...) log_at(topic, LOG_TRACE, __VA_ARGS__)

#endif
