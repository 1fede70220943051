/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a stats page, and one that changes while it is read: by the library and by those
 * commands of tierctl that show it, whose text steers no terminal and whose JSON is one value. The
 * linker leads them to this page, to waits that are any bytes as well, and past their pauses.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "libclient/admin.h"
#include "libclient/client.h"
#include "libclient/protocol/page.h"
#include "tests/fuzz/fuzz.h"
#include "tools/tierctl/command.h"

#define NAP_US    30
#define DEPTH_MAX 64u

/* Code of ours that libFuzzer learns nothing from, and that would take most of its time. */
#ifdef __clang__
#define UNCOUNTED __attribute__((no_sanitize("coverage")))
#else
#define UNCOUNTED
#endif

static struct stats_page page;
static struct tierd *reader; /* of `page` */

static struct fuzz_bytes waits;

int __wrap_admin_waits(struct tierd *t, int (*each)(void *ctx, const struct admin_wait *wait),
		       void *ctx);
int __wrap_nanosleep(const struct timespec *want, struct timespec *left);
int __wrap_command_connect(const struct arguments *a, struct tierd **ret);
void __wrap_tierd_close(struct tierd *t);

int __wrap_command_connect(const struct arguments *a, struct tierd **ret)
{
	*ret = reader;
	return STATUS_OK;
}

void __wrap_tierd_close(struct tierd *t)
{
	ASSERT(t == reader);
}

/* Who waits, from what is left of the input: names end, and that is all that is sure of them. */
int __wrap_admin_waits(struct tierd *t, int (*each)(void *ctx, const struct admin_wait *wait),
		       void *ctx)
{
	struct fuzz_bytes b = waits;
	int rc = 0;

	for (unsigned n = fuzz_u8(&b) % 32; n > 0 && rc == 0; n--) {
		struct admin_wait w = { 0 };

		fuzz_copy(&b, &w.wait, sizeof(w.wait));
		fuzz_copy(&b, w.name, fuzz_u8(&b) % sizeof(w.name));
		fuzz_copy(&b, w.name_space, fuzz_u8(&b) % 32);
		fuzz_copy(&b, w.client_space, fuzz_u8(&b) % 32);
		rc = each(ctx, &w);
	}
	return rc;
}

int __wrap_nanosleep(const struct timespec *want, struct timespec *left)
{
	return 0;
}

static void reader_make(void)
{
	reader = aligned_alloc(CACHE_LINE, ALIGN_UP(sizeof(*reader), CACHE_LINE));
	ASSERT(reader != NULL);
	memset((void *)reader, 0, sizeof(*reader));
	atomic_store(&reader->hot.count, 1);
	reader->pid = getpid();
	reader->stats.base = &page;
	reader->page = &page;
	reader->stats.bytes = sizeof(page);
}

/* ---- a page that changes -------------------------------------------------------------------- */

/* From `uptime_ns` on to the last before `chosen` all is words, in the page and in a snapshot. */
#define WORDS_OF(type) ((offsetof(type, chosen) - offsetof(type, uptime_ns)) / 8)

static _Atomic uint64_t *words(void)
{
	return &page.uptime_ns;
}

/* Each time all words have the next number. */
struct writer {
	_Atomic bool stop;
	_Atomic uint64_t begun, done; /* numbers that are in some words, in all */
};

static void *writer_main(void *arg)
{
	struct writer *w = arg;

	for (uint64_t n = 1; !atomic_load(&w->stop); n++) {
		atomic_store(&w->begun, n);
		for (size_t i = 0; i < WORDS_OF(struct stats_page); i++)
			atomic_store_explicit(&words()[i], n, memory_order_relaxed);
		atomic_store(&w->done, n);
		usleep(NAP_US);
	}
	return NULL;
}

/* Any bytes at any place and time, of the input. */
struct scribble {
	_Atomic bool stop;
	struct fuzz_bytes bytes;
};

UNCOUNTED static void *scribble_main(void *arg)
{
	struct scribble *s = arg;
	struct fuzz_bytes b = s->bytes;
	_Atomic uint8_t *to = (_Atomic uint8_t *)&page;

	while (!atomic_load(&s->stop)) {
		size_t at;

		if (fuzz_ended(&b))
			b = s->bytes;
		at = fuzz_number(&b, 2) % sizeof(page);
		atomic_store_explicit(&to[at], fuzz_u8(&b), memory_order_relaxed);
	}
	return NULL;
}

static bool is_between(uint64_t n, uint64_t least, uint64_t most)
{
	return n >= least && n <= most;
}

/* Some are times, and read as how long ago. No number is older than the read, none is of a time
 * after it, none is of two. */
static void check_numbers(struct writer *w)
{
	uint64_t least = atomic_load(&w->done), most;
	const uint64_t *read;
	struct page snapshot;
	struct tierd_stats stats;

	page_read(&page, &snapshot);
	ASSERT(tierd_stats(reader, &stats) == 0);
	most = atomic_fetch_add(&w->begun, 0); /* no load before it may come after it */
	read = &snapshot.uptime_ns;
	for (size_t i = 0; i < WORDS_OF(struct page); i++)
		ASSERT(is_between(read[i], least, most) ||
		       is_between(snapshot.taken_ns - read[i], least, most));
	ASSERT(stats.log_lost >= least && stats.log_lost <= most);
	for (unsigned i = 0; i < STATS_TIERS; i++)
		ASSERT(stats.tier[i].peak_bytes >= least && stats.tier[i].peak_bytes <= most);
}

static void read_beside_a_writer(void)
{
	struct writer w = { 0 };
	pthread_t writer;

	memset((void *)&page, 0, sizeof(page));
	ASSERT(pthread_create(&writer, NULL, writer_main, &w) == 0);
	for (unsigned i = 0; i < 8; i++)
		check_numbers(&w);
	atomic_store(&w.stop, true);
	ASSERT(pthread_join(writer, NULL) == 0);
}

/* ---- what is shown -------------------------------------------------------------------------- */

/* The end of the JSON value at `s`, NULL: there is none. */
UNCOUNTED static const char *json_end(const char *s, unsigned depth)
{
	char close = *s == '{' ? '}' : ']';

	if (*s == '"') {
		for (s++; *s != '"'; s += 1 + (*s == '\\'))
			if (*s == '\0' || iscntrl((unsigned char)*s))
				return NULL;
		return s + 1;
	}
	if (*s != '{' && *s != '[') {
		size_t n = strspn(s, "0123456789.-+eEtrufalsn");

		return n > 0 ? s + n : NULL;
	}
	if (depth == DEPTH_MAX || *++s == close)
		return depth == DEPTH_MAX ? NULL : s + 1;
	for (;; s++) {
		if (close == '}') {
			if (*s != '"' || (s = json_end(s, depth + 1)) == NULL || *s++ != ':')
				return NULL;
		}
		s = json_end(s, depth + 1);
		if (s == NULL || *s != ',')
			return s != NULL && *s == close ? s + 1 : NULL;
	}
}

UNCOUNTED static bool steers_a_terminal(const char *text, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (iscntrl((unsigned char)text[i]) && text[i] != '\n')
			return true;
	return false;
}

static void show(int (*run)(const struct arguments *a), bool json)
{
	struct arguments a = { .json = json ? "" : NULL, .all = "", .once = "" };
	FILE *before = stdout;
	char *text = NULL;
	const char *end;
	size_t bytes;

	stdout = open_memstream(&text, &bytes);
	ASSERT(stdout != NULL);
	ASSERT(run(&a) == STATUS_OK);
	ASSERT(fclose(stdout) == 0);
	stdout = before;
	ASSERT(!steers_a_terminal(text, bytes));
	if (json) {
		end = json_end(text, 0);
		ASSERT(end != NULL && end[0] == '\n' && end[1] == '\0');
	}
	free(text);
}

static int (*const shown[])(const struct arguments *a) = { status_run, peak_run, top_run };

/* `view`: which command, as text or as JSON. One of them an input, so that there are thousands of
 * inputs a second. */
static void read_any(struct fuzz_bytes *b, bool beside, unsigned view)
{
	struct scribble s = { .bytes = *b };
	struct tierd_stats stats;
	pthread_t thread;

	memset((void *)&page, 0, sizeof(page));
	for (size_t at = 0; at < sizeof(page) && !fuzz_ended(b);) {
		uint8_t op = fuzz_u8(b);

		if (op < 128) { /* a run of the same; a page is longer than an input */
			size_t n = MIN((size_t)op * 16 + 1, sizeof(page) - at);

			memset((char *)&page + at, fuzz_u8(b), n);
			at += n;
		} else {
			at += fuzz_copy(b, (char *)&page + at,
					MIN((size_t)op - 127, sizeof(page) - at));
		}
	}
	beside = beside && s.bytes.at != s.bytes.end;
#ifdef __SANITIZE_THREAD__
	beside = false; /* what it does is a race by design */
#endif
	if (beside)
		ASSERT(pthread_create(&thread, NULL, scribble_main, &s) == 0);
	ASSERT(tierd_stats(reader, &stats) == 0);
	waits = *b;
	show(shown[view % ARRAY_SIZE(shown)], view / ARRAY_SIZE(shown) % 2);
	atomic_store(&s.stop, true);
	if (beside)
		ASSERT(pthread_join(thread, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_bytes b = { data, data + bytes };
	uint8_t how = fuzz_u8(&b);

	if (reader == NULL)
		reader_make();
	read_any(&b, how % 4 == 0, how / 4);
	if (how % 64 == 0)
		read_beside_a_writer();
	fuzz_count("documents", 1);
	return 0;
}
