/* SPDX-License-Identifier: Apache-2.0
 *
 * Many bytes at a time, by what is no thread of ours: copies, fills and kernels of a GPU, and what
 * a test itself puts into tensors and looks for. TSan keeps twice as much memory for a range as the
 * range has, and going through that costs many times what the copy does. So it sees both ends and
 * a byte in each 64 KiB: it still finds what a lane does meanwhile to the same bytes, since it sees
 * all that lanes and the library do.
 */
#ifndef TIERD_TESTS_FAKE_BYTES_H
#define TIERD_TESTS_FAKE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#ifdef __SANITIZE_THREAD__
/* Of libtsan. */
void __tsan_read1(void *at);
void __tsan_write1(void *at);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

#define BYTES_STRIDE 65536u
/* A function whose own loads and stores are not seen one by one. */
#define BYTES_UNSEEN __attribute__((no_sanitize_thread))

static inline void bytes_seen(const void *start, size_t bytes, void (*access)(void *at))
{
	char *at = (char *)start;

	for (size_t i = 0; i < bytes; i += BYTES_STRIDE)
		access(at + i);
	if (bytes > 0)
		access(at + bytes - 1);
}

static inline void bytes_are_read(const void *at, size_t bytes)
{
	bytes_seen(at, bytes, __tsan_read1);
}

static inline void bytes_are_written(const void *at, size_t bytes)
{
	bytes_seen(at, bytes, __tsan_write1);
}

static inline void bytes_unseen_begin(void)
{
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static inline void bytes_unseen_end(void)
{
	AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
#define BYTES_UNSEEN

static inline void bytes_are_read(const void *at, size_t bytes)
{
}
static inline void bytes_are_written(const void *at, size_t bytes)
{
}
static inline void bytes_unseen_begin(void)
{
}
static inline void bytes_unseen_end(void)
{
}
#endif

static inline void bytes_copy(void *to, const void *from, size_t bytes)
{
	bytes_are_read(from, bytes);
	bytes_are_written(to, bytes);
	bytes_unseen_begin();
	memcpy(to, from, bytes);
	bytes_unseen_end();
}

static inline void bytes_fill(void *to, int byte, size_t bytes)
{
	bytes_are_written(to, bytes);
	bytes_unseen_begin();
	memset(to, byte, bytes);
	bytes_unseen_end();
}

static inline bool bytes_equal(const void *a, const void *b, size_t bytes)
{
	bool equal;

	bytes_are_read(a, bytes);
	bytes_are_read(b, bytes);
	bytes_unseen_begin();
	equal = memcmp(a, b, bytes) == 0;
	bytes_unseen_end();
	return equal;
}

#endif
