/* SPDX-License-Identifier: Apache-2.0
 *
 * The metrics listener of a real tierd: what it serves is read as strictly as the format is
 * written, holds every counter and what the dashboard asks for, and clients of it are bounded.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/metrics.h"
#include "libclient/protocol/stats_page.h"
#include "tests/system/client_rig.h"

#define SERVED_MAX  (1 << 20)
#define METRICS_MAX 256
#define IDLE        (2 * METRICS_CONNECTIONS) /* connections that say nothing */

static char served[SERVED_MAX];
static unsigned port;

/* ---- HTTP ----------------------------------------------------------------------------------- */

static struct sockaddr_in address_at(unsigned number)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons((uint16_t)number),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static unsigned free_port(void)
{
	struct sockaddr_in a = address_at(0);
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	close(fd);
	return ntohs(a.sin_port);
}

static int dial(void)
{
	struct sockaddr_in a = address_at(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

/* All that comes until the other side closes. Returns the status, 0: it was closed unanswered. */
static int request(const char *method, const char *path, const char **ret_body)
{
	char head[256];
	int fd = dial(), status = 0;
	size_t at = 0;
	ssize_t n;

	snprintf(head, sizeof(head), "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		 method, path);
	ck_assert_int_eq(send(fd, head, strlen(head), MSG_NOSIGNAL), strlen(head));
	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		ck_assert_int_eq(poll(&p, 1, 20000), 1);
		n = read(fd, served + at, sizeof(served) - 1 - at);
		if (n <= 0)
			break;
		at += (size_t)n;
		ck_assert_uint_lt(at, sizeof(served) - 1);
	}
	close(fd);
	served[at] = '\0';
	*ret_body = strstr(served, "\r\n\r\n");
	*ret_body = *ret_body != NULL ? *ret_body + 4 : served + at;
	(void)sscanf(served, "HTTP/1.1 %d", &status);
	return status;
}

/* ---- the text format, strictly -------------------------------------------------------------- */

struct metric {
	char name[128];
	bool counter;
	unsigned samples;
	char seen[256][256]; /* label sets: each once */
};
static struct metric metrics[METRICS_MAX];
static size_t metric_count;

static size_t name_bytes(const char *text)
{
	size_t n = 0;

	while (isalnum((unsigned char)text[n]) || text[n] == '_')
		n++;
	ck_assert_msg(n > 0 && !isdigit((unsigned char)text[0]), "no name: %.40s", text);
	return n;
}

static struct metric *metric_named(const char *name, size_t n)
{
	for (size_t i = 0; i < metric_count; i++)
		if (strlen(metrics[i].name) == n && memcmp(metrics[i].name, name, n) == 0)
			return &metrics[i];
	return NULL;
}

/* "# HELP name text", and then at once "# TYPE name counter" or gauge; each name once. */
static const char *read_head(const char *line, size_t bytes, const char *next, struct metric **ret)
{
	const char *name = line + strlen("# HELP ");
	size_t n;
	char type[160];

	ck_assert_msg(strncmp(line, "# HELP ", 7) == 0, "no HELP: %.60s", line);
	n = name_bytes(name);
	ck_assert_msg(name[n] == ' ' && (size_t)(name + n + 1 - line) < bytes, "no help: %.60s",
		      line);
	ck_assert_ptr_null(metric_named(name, n));
	ck_assert_uint_lt(metric_count, METRICS_MAX);
	*ret = &metrics[metric_count++];
	memcpy((*ret)->name, name, n);
	snprintf(type, sizeof(type), "# TYPE %s counter\n", (*ret)->name);
	(*ret)->counter = strncmp(next, type, strlen(type)) == 0;
	if (!(*ret)->counter)
		snprintf(type, sizeof(type), "# TYPE %s gauge\n", (*ret)->name);
	ck_assert_msg(strncmp(next, type, strlen(type)) == 0, "no TYPE: %.60s", next);
	/* The convention, both ways. */
	ck_assert_int_eq((*ret)->counter, n > 6 && strcmp((*ret)->name + n - 6, "_total") == 0);
	ck_assert_ptr_null(strstr((*ret)->name, "_ns"));
	return next + strlen(type);
}

/* {key="value",...}: escapes of the format and no others. Returns what follows. */
static const char *read_labels(const char *text)
{
	ck_assert_int_eq(*text, '{');
	do {
		text++;
		text += name_bytes(text);
		ck_assert_msg(text[0] == '=' && text[1] == '"', "no value: %.40s", text);
		for (text += 2; *text != '"'; text++) {
			ck_assert_msg((unsigned char)*text >= 0x20 && *text != 0x7f,
				      "a character that does not belong: %.40s", text);
			if (*text == '\\')
				ck_assert(*++text == '\\' || *text == '"' || *text == 'n');
		}
		text++;
	} while (*text == ',');
	ck_assert_int_eq(*text, '}');
	return text + 1;
}

static void read_sample(const char *line, struct metric *m)
{
	size_t n = name_bytes(line), labels;
	const char *after;
	char *end;
	double value;

	ck_assert_msg(metric_named(line, n) == m, "not of the metric before it: %.60s", line);
	after = read_labels(line + n);
	labels = (size_t)(after - line) - n;
	ck_assert_uint_lt(labels, sizeof(m->seen[0]));
	for (unsigned i = 0; i < m->samples; i++)
		ck_assert_msg(strlen(m->seen[i]) != labels ||
				      memcmp(m->seen[i], line + n, labels) != 0,
			      "twice: %.60s", line);
	ck_assert_uint_lt(m->samples, ARRAY_SIZE(m->seen));
	memcpy(m->seen[m->samples++], line + n, labels);
	ck_assert_int_eq(*after, ' ');
	ck_assert(isdigit((unsigned char)after[1]));
	value = strtod(after + 1, &end);
	ck_assert_msg(*end == '\n' && value >= 0, "no value: %.60s", line);
}

static void read_text(const char *text)
{
	struct metric *m = NULL;

	memset(metrics, 0, sizeof(metrics));
	metric_count = 0;
	while (*text != '\0') {
		const char *end = strchr(text, '\n');

		ck_assert_ptr_nonnull(end); /* the last line ends, too */
		if (*text == '#') {
			text = read_head(text, (size_t)(end - text), end + 1, &m);
			continue;
		}
		ck_assert_ptr_nonnull(m);
		read_sample(text, m);
		text = end + 1;
	}
}

static void scrape(void)
{
	const char *body;

	ck_assert_int_eq(request("GET", "/metrics", &body), 200);
	ck_assert_ptr_nonnull(strstr(served, "Content-Type: text/plain; version=0.0.4"));
	read_text(body);
}

/* A sample's value; fails where there is none. */
static double value_of(const char *sample)
{
	const char *at = strstr(served, sample);

	ck_assert_msg(at != NULL, "no %s", sample);
	return strtod(at + strlen(sample), NULL);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void begin(const char *more)
{
	char config[1024];

	port = free_port();
	snprintf(config, sizeof(config),
		 "tensors: 4Ki\n"
		 "metrics: {listen: \"127.0.0.1:%u\"}\n"
		 "tiers:\n"
		 "  hbm: {backend: memory, size: 8MiB}\n"
		 "  dram: {size: 16MiB, huge_pages: off}\n"
		 "  nvme: {paths: [{path: @NVME@, size: 64MiB}], block: 64KiB}\n%s",
		 port, more);
	system_start(s, config);
}

static void check_row(const char *group, const char *name, bool counter)
{
	char want[160];
	size_t n = strlen(name);
	bool ns = n > 3 && strcmp(name + n - 3, "_ns") == 0;

	snprintf(want, sizeof(want), "tierd_%s%.*s%s%s", group, (int)(ns ? n - 3 : n), name,
		 ns ? "_seconds" : "", counter ? "_total" : "");
	ck_assert_msg(metric_named(want, strlen(want)) != NULL, "%s is not served", want);
	ck_assert_uint_gt(metric_named(want, strlen(want))->samples, 0);
}

#define COUNTER true
#define GAUGE   false
#define SINCE   false

START_TEST(every_counter_is_served_in_the_format)
{
	tierd_tensor h;

	begin("");
	connect_as("job");
	h = make(MIB(1));
	fill(h, TIERD_HOST, 1);
	expect(h, 0, 1);
	scrape();
#define X(name, unit, kind, help) check_row("", #name, kind);
	STATS_SCALARS(X)
#undef X
#define X(name, unit, kind, help) check_row("tier_", #name, kind);
	STATS_PER_TIER(X)
#undef X
#define X(name, unit, kind, help) check_row("device_", #name, kind);
	STATS_PER_DEVICE(X)
#undef X
	ck_assert(value_of("tierd_tensors{domain=\"default\"} ") == 1);
	ck_assert(value_of("tierd_tier_class_bytes{domain=\"default\",tier=\"hbm\","
			   "class=\"parameter\"} ") == MIB(1));
	ck_assert(value_of("tierd_device_in_bytes_total{domain=\"default\",device=\"hbm0\"} ") >=
		  MIB(1));
	end();
}
END_TEST

/* Two that differ in such a character alone are two. */
START_TEST(a_domain_may_have_any_name)
{
	begin("domains:\n"
	      "  - {name: \"a\\\"b\\\\ \u00fc\", users: [4294967293], dram: 2MiB}\n"
	      "  - {name: \"a\\\"b\\\\ \u00f6\", users: [4294967292], dram: 2MiB}\n");
	connect_as("job");
	scrape();
	ck_assert(value_of("tierd_clients{domain=\"a\\\"b\\\\ \u00fc\"} ") == 0);
	ck_assert(value_of("tierd_clients{domain=\"a\\\"b\\\\ \u00f6\"} ") == 0);
	end();
}
END_TEST

START_TEST(only_get_of_metrics_is_answered)
{
	const char *body;

	begin("");
	connect_as("job");
	ck_assert_int_eq(request("GET", "/", &body), 404);
	ck_assert_int_eq(request("GET", "/metrics/../../etc/passwd", &body), 404);
	ck_assert_int_eq(request("DELETE", "/metrics", &body), 405);
	ck_assert_int_eq(request("HEAD", "/metrics", &body), 200);
	ck_assert_str_eq(body, "");
	end();
}
END_TEST

/* All of a page or none of it. */
START_TEST(without_memory_for_a_page_there_is_none)
{
	unsigned pages = 0, refusals = 0;

	begin("fault: {no_memory: 50%, after: 200}\n");
	ck_assert(!system_log_has(s, "(injected"));
	for (unsigned i = 0; i < 400 && (pages < 3 || refusals < 3); i++) {
		const char *body;
		int status = request("GET", "/metrics", &body);

		if (status == 503)
			ck_assert_str_eq(body, "no memory\n");
		else if (status == 200)
			ck_assert_ptr_nonnull(strstr(body, "\n# TYPE tierd_tensors gauge\n"));
		refusals += status == 503;
		pages += status == 200;
	}
	ck_assert_uint_ge(pages, 3);
	ck_assert_uint_ge(refusals, 3);
	system_end(s);
	ck_assert(!system_log_has(s, "taken and not given back"));
	system_stop(s);
}
END_TEST

/* Those that say nothing are few, and go after a while; tierd serves its own clients all the
 * time. */
START_TEST(silent_connections_are_few_and_short)
{
	int fds[IDLE];
	const char *body;
	tierd_tensor h;
	char c;

	begin("");
	connect_as("job");
	for (unsigned i = 0; i < IDLE; i++)
		fds[i] = dial();
	h = make(MIB(1));
	fill(h, TIERD_HOST, 1);
	expect(h, TIERD_HOST, 1);
	for (unsigned i = 0; i < IDLE; i++) {
		struct pollfd p = { .fd = fds[i], .events = POLLIN };

		ck_assert_int_eq(poll(&p, 1, 60000), 1);
		ck_assert_int_le(read(fds[i], &c, 1), 0);
		close(fds[i]);
	}
	while (request("GET", "/metrics", &body) != 200)
		;
	end();
}
END_TEST

static int drips[METRICS_CONNECTIONS];
static atomic_bool drips_stop;

/* A byte of a header that never ends on each of them, long before it is idle for too long. */
static void *drip(void *arg)
{
	static const char head[] = "GET /metrics HTTP/1.1\r\nHost: x\r\nX: ";

	for (unsigned i = 0; i < METRICS_CONNECTIONS; i++)
		(void)send(drips[i], head, strlen(head), MSG_NOSIGNAL);
	while (!atomic_load(&drips_stop)) {
		for (unsigned i = 0; i < METRICS_CONNECTIONS; i++)
			(void)send(drips[i], "a", 1, MSG_NOSIGNAL);
		usleep(200 * 1000);
	}
	return NULL;
}

START_TEST(connections_that_never_end_keep_nobody_out)
{
	pthread_t thread;

	begin("");
	connect_as("job");
	for (unsigned i = 0; i < METRICS_CONNECTIONS; i++)
		drips[i] = dial();
	ck_assert_int_eq(pthread_create(&thread, NULL, drip, NULL), 0);
	for (unsigned i = 0; i < 20; i++)
		scrape();
	atomic_store(&drips_stop, true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	for (unsigned i = 0; i < METRICS_CONNECTIONS; i++)
		close(drips[i]);
	end();
}
END_TEST

START_TEST(a_port_that_is_taken_is_said)
{
	char config[256];
	int status;

	begin("");
	connect_as("job");
	scrape();
	tierd_close(t);
	system_end(s);
	snprintf(config, sizeof(config), "127.0.0.1:%u", port);
	/* Ours now. */
	{
		struct sockaddr_in a = address_at(port);
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
		ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
		ck_assert_int_eq(listen(fd, 1), 0);
		ck_assert(!system_tries(s, &status));
		ck_assert(system_log_has(s, "metrics.listen: 127.0.0.1:"));
		ck_assert(system_log_has(s, "Address already in use"));
		close(fd);
	}
	system_stop(s);
}
END_TEST

/* Each metric that a query of the dashboard names is one that is served. */
START_TEST(the_dashboard_asks_for_what_is_served)
{
	FILE *f = fopen(GRAFANA_PATH, "re");
	unsigned named = 0;
	char line[4096];

	ck_assert_ptr_nonnull(f);
	begin("");
	connect_as("job");
	scrape();
	while (fgets(line, sizeof(line), f) != NULL) {
		bool query =
			strstr(line, "\"expr\":") != NULL || strstr(line, "\"query\":") != NULL;

		ck_assert_ptr_nonnull(strchr(line, '\n'));
		for (const char *at = line; query && (at = strstr(at, "tierd_")) != NULL; named++) {
			size_t n = name_bytes(at);

			ck_assert_msg(metric_named(at, n) != NULL, "nobody serves %.*s", (int)n,
				      at);
			at += n;
		}
	}
	fclose(f);
	ck_assert_uint_ge(named, 20);
	end();
}
END_TEST

UNIT_MAIN("metrics", every_counter_is_served_in_the_format, a_domain_may_have_any_name,
	  only_get_of_metrics_is_answered, without_memory_for_a_page_there_is_none,
	  silent_connections_are_few_and_short, connections_that_never_end_keep_nobody_out,
	  a_port_that_is_taken_is_said, the_dashboard_asks_for_what_is_served)
