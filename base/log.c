/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/plural.h"

#define LINE_BYTES         1024
#define REPEAT_INTERVAL_NS (60 * NS_PER_S)
#define WARNINGS_MAX       12u /* a topic and interval */

static const char *const topic_names[] = {
#define X(id, name, help) name,
	LOG_TOPICS(X)
#undef X
};
static const char *const level_names[] = { "error", "warn", "info", "debug", "trace" };

static int levels[LOG_TOPIC_COUNT] = { [0 ... LOG_TOPIC_COUNT - 1] = LOG_INFO };

/* The last line and how often it came since it was printed. */
static struct {
	pthread_mutex_t lock;
	char line[LINE_BYTES];
	enum log_topic topic;
	enum log_level level;
	unsigned repeats;
	uint64_t printed_ns;
} last = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Warnings of a topic since `begin_ns`: a device that fails fails for every tensor, each time with
 * another line. Under last.lock. */
static struct {
	uint64_t begin_ns;
	unsigned count;
} warnings[LOG_TOPIC_COUNT];

static int find_name(const char *const *names, size_t n, const char *name, size_t bytes)
{
	for (size_t i = 0; i < n; i++)
		if (strlen(names[i]) == bytes && memcmp(names[i], name, bytes) == 0)
			return (int)i;
	return -1;
}

static int set_level(const char *item, size_t bytes)
{
	const char *colon = memchr(item, ':', bytes);
	size_t name_bytes = colon != NULL ? (size_t)(colon - item) : 0;
	const char *level_text = colon != NULL ? colon + 1 : item;
	int level = find_name(level_names, ARRAY_SIZE(level_names), level_text,
			      bytes - (size_t)(level_text - item));
	int topic = 0, end = LOG_TOPIC_COUNT;

	if (level < 0)
		return -EINVAL;
	if (colon != NULL) {
		topic = find_name(topic_names, ARRAY_SIZE(topic_names), item, name_bytes);
		if (topic < 0)
			return -EINVAL;
		end = topic + 1;
	}
	for (; topic < end; topic++)
		levels[topic] = level;
	return 0;
}

int log_configure(const char *spec)
{
	while (spec != NULL && *spec != '\0') {
		size_t n = strcspn(spec, ",");

		if (set_level(spec, n) < 0)
			return -EINVAL;
		spec += n + (spec[n] == ',');
	}
	return 0;
}

bool log_enabled(enum log_topic topic, enum log_level level)
{
	return (int)level <= levels[topic];
}

static void print_repeats(void)
{
	if (last.repeats > 0)
		fprintf(stderr, "%s (repeated %u %s)\n", last.line, last.repeats,
			PLURAL(last.repeats, "time", "times"));
	last.repeats = 0;
}

static void print_left_out(enum log_topic topic)
{
	if (warnings[topic].count > WARNINGS_MAX)
		fprintf(stderr, "tierd: warn: %s: %u more of the kind were left out\n",
			topic_names[topic], warnings[topic].count - WARNINGS_MAX);
	warnings[topic].count = 0;
}

/* Whether this one is beyond what a topic may say in an interval. */
static bool is_flood(enum log_topic topic, enum log_level level, uint64_t now)
{
	if (level != LOG_WARN)
		return false;
	if (now - warnings[topic].begin_ns >= REPEAT_INTERVAL_NS) {
		print_left_out(topic);
		warnings[topic].begin_ns = now;
	}
	return ++warnings[topic].count > WARNINGS_MAX;
}

void log_printable(char *text)
{
	for (; *text != '\0'; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
}

void log_flush(void)
{
	pthread_mutex_lock(&last.lock);
	/* Who repeats itself with a nap in between would get a line each time. */
	if (last.repeats > 0 && !is_flood(last.topic, last.level, clock_now_ns()))
		print_repeats();
	pthread_mutex_unlock(&last.lock);
}

void log_end(void)
{
	pthread_mutex_lock(&last.lock);
	print_repeats();
	for (int topic = 0; topic < LOG_TOPIC_COUNT; topic++)
		print_left_out((enum log_topic)topic);
	pthread_mutex_unlock(&last.lock);
}

void log_write(enum log_topic topic, enum log_level level, const char *fmt, ...)
{
	char line[LINE_BYTES];
	uint64_t now = clock_now_ns();
	va_list args;
	int n = snprintf(line, sizeof(line), "tierd: %s: %s: ", level_names[level],
			 topic_names[topic]);

	va_start(args, fmt);
	vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, args);
	va_end(args);
	log_printable(line);
	pthread_mutex_lock(&last.lock);
	if (strcmp(line, last.line) == 0 && now - last.printed_ns < REPEAT_INTERVAL_NS) {
		last.repeats++;
	} else if (!is_flood(topic, level, now)) {
		print_repeats();
		fprintf(stderr, "%s\n", line);
		memcpy(last.line, line, sizeof(line));
		last.topic = topic;
		last.level = level;
		last.printed_ns = now;
	}
	pthread_mutex_unlock(&last.lock);
}
