/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "daemon/metrics.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/guard.h"
#include "base/heap.h"
#include "base/log.h"
#include "config.h"
#include "daemon/address.h"
#include "daemon/exposition.h"

#ifdef HAVE_MICROHTTPD
#include <microhttpd.h>
#endif

#define IDLE_S       10u   /* a connection that says nothing is closed after it */
#define MEMORY_BYTES 8192u /* of a connection: a request is one line and a few headers */

/* ---- the listener --------------------------------------------------------------------------- */

#ifdef HAVE_MICROHTTPD

/* Fills a slot for each connection. All by the library's thread. */
struct seat {
	bool taken, leaving;
	int fd;
	uint64_t number; /* of all that ever came */
};

struct metrics {
	struct MHD_Daemon *http;
	struct seat seats[METRICS_CONNECTIONS + 1];
	uint64_t came;
	size_t count;
	struct metrics_domain of[];
};

static int listen_open(const char *listen_at, struct err *err)
{
	const int yes = 1;
	union address address;
	socklen_t bytes;
	int fd, code;

	if (address_read(listen_at, &address, &bytes) < 0)
		return err_set(err, EINVAL, "metrics.listen: '%s' is no address", listen_at);
	fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set(err, errno, "metrics.listen: socket: %s", strerror(errno));
	/* After a restart the port may still have ended connections. */
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(fd, &address.any, bytes) == 0 && listen(fd, (int)METRICS_CONNECTIONS) == 0)
		return fd;
	code = errno;
	close(fd);
	/* Another program may have it now. */
	return err_set(err, code, "metrics.listen: %s: %s", listen_at, strerror(code));
}

/* What the scrape gets, to be freed; NULL: no memory. */
static char *make_text(const struct metrics *m, size_t *ret_bytes)
{
	struct exposition *of = heap_zeros(m->count, sizeof(*of));
	char *text = NULL;
	FILE *to = of != NULL && !heap_refused() ? open_memstream(&text, ret_bytes) : NULL;
	bool whole;

	if (to == NULL) {
		heap_free(of);
		return NULL;
	}
	for (size_t i = 0; i < m->count; i++) {
		of[i].domain = m->of[i].name;
		page_read(m->of[i].page, &of[i].page);
	}
	exposition_write(to, PACKAGE_VERSION, of, m->count);
	heap_free(of);
	whole = !ferror(to);
	if (fclose(to) == 0 && whole)
		return text;
	free(text);
	return NULL;
}

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, char *text, size_t bytes,
			      enum MHD_ResponseMemoryMode mode, const char *type)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(bytes, text, mode);
	enum MHD_Result rc;

	if (r == NULL) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			free(text);
		return MHD_NO;
	}
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	rc = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return rc;
}

static enum MHD_Result answer_plain(struct MHD_Connection *c, unsigned status, const char *text)
{
	return answer(c, status, (char *)(uintptr_t)text, strlen(text), MHD_RESPMEM_PERSISTENT,
		      "text/plain; charset=utf-8");
}

static enum MHD_Result came(void *ctx, struct MHD_Connection *c, const char *url,
			    const char *method, const char *version, const char *upload,
			    size_t *upload_bytes, void **state)
{
	static const char type[] = "text/plain; version=0.0.4; charset=utf-8";
	const struct metrics *m = ctx;
	size_t bytes = 0;
	char *text;

	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return answer_plain(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET /metrics\n");
	if (strcmp(url, "/metrics") != 0)
		return answer_plain(c, MHD_HTTP_NOT_FOUND, "tierd: see /metrics\n");
	text = make_text(m, &bytes);
	if (text == NULL)
		return answer_plain(c, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory\n");
	return answer(c, MHD_HTTP_OK, text, bytes, MHD_RESPMEM_MUST_FREE, type);
}

/* Who sends a byte now and then is never idle, and a few of those would keep everybody else out. */
static void leave_to_next(struct metrics *m)
{
	struct seat *oldest = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(m->seats); i++) {
		struct seat *s = &m->seats[i];

		if (!s->taken)
			return;
		if (!s->leaving && (oldest == NULL || s->number < oldest->number))
			oldest = s;
	}
	if (oldest == NULL)
		return;
	oldest->leaving = true;
	(void)shutdown(oldest->fd, SHUT_RDWR); /* the library hears it and closes */
}

static void seat_take(struct metrics *m, struct MHD_Connection *c, void **ret)
{
	struct seat *s = m->seats;

	while (s < m->seats + ARRAY_SIZE(m->seats) && s->taken)
		s++;
	ASSERT(s < m->seats + ARRAY_SIZE(m->seats));
	*s = (struct seat){
		.taken = true,
		.fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd,
		.number = m->came++,
	};
	*ret = s;
	leave_to_next(m);
}

static void comes_or_goes(void *ctx, struct MHD_Connection *c, void **state,
			  enum MHD_ConnectionNotificationCode what)
{
	if (what == MHD_CONNECTION_NOTIFY_STARTED)
		seat_take(ctx, c, state);
	else
		((struct seat *)*state)->taken = false;
}

/* Signals are the control thread's: the library's thread inherits the mask. It keeps the port when
 * it fails, which a caller that ends does not mind. */
static struct MHD_Daemon *http_start(int fd, struct metrics *m)
{
	struct MHD_Daemon *ret;
	sigset_t was;

	guard_block_signals(&was);
	ret = MHD_start_daemon(
		MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC, 0, NULL, NULL, came,
		m, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
		METRICS_CONNECTIONS + 1, MHD_OPTION_NOTIFY_CONNECTION, comes_or_goes, m,
		MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)MEMORY_BYTES, MHD_OPTION_END);
	ASSERT(pthread_sigmask(SIG_SETMASK, &was, NULL) == 0);
	return ret;
}

int metrics_start(const char *listen_at, const struct metrics_domain *of, size_t n,
		  struct metrics **ret, struct err *err)
{
	struct metrics *m = heap_zeros(1, sizeof(*m) + n * sizeof(m->of[0]));
	int fd;

	if (m == NULL)
		return err_set(err, ENOMEM, "metrics: no memory");
	m->count = n;
	memcpy(m->of, of, n * sizeof(m->of[0]));
	fd = listen_open(listen_at, err);
	if (fd < 0) {
		heap_free(m);
		return fd;
	}
	m->http = http_start(fd, m);
	if (m->http == NULL) {
		close(fd);
		heap_free(m);
		return err_set(err, EAGAIN, "metrics.listen: %s: no thread can be started for it",
			       listen_at);
	}
	log_info(MAIN, "metrics on http://%s/metrics", listen_at);
	*ret = m;
	return 0;
}

void metrics_stop(struct metrics *m)
{
	if (m == NULL)
		return;
	MHD_stop_daemon(m->http); /* and the socket */
	heap_free(m);
}

#else

int metrics_start(const char *listen_at, const struct metrics_domain *of, size_t n,
		  struct metrics **ret, struct err *err)
{
	return err_set(err, ENOTSUP, "metrics.listen: built without libmicrohttpd");
}

void metrics_stop(struct metrics *m)
{
	ASSERT(m == NULL);
}

#endif
