/* SPDX-License-Identifier: Apache-2.0 */
#include "base/copy.h"

#include <string.h>

#if defined(__SSE2__)

#include <emmintrin.h>
#include <stdint.h>

#include "base/compiler.h"

#define AHEAD_BYTES 1024 /* how far the loads are asked for beforehand */

/* One line; `to` is aligned to 16. */
static inline void stream_line(char *to, const char *from)
{
	__m128i a = _mm_loadu_si128((const __m128i *)from);
	__m128i b = _mm_loadu_si128((const __m128i *)(from + 16));
	__m128i c = _mm_loadu_si128((const __m128i *)(from + 32));
	__m128i d = _mm_loadu_si128((const __m128i *)(from + 48));

	_mm_stream_si128((__m128i *)to, a);
	_mm_stream_si128((__m128i *)(to + 16), b);
	_mm_stream_si128((__m128i *)(to + 32), c);
	_mm_stream_si128((__m128i *)(to + 48), d);
}

void copy_stream(void *to, const void *from, size_t bytes)
{
	size_t head = MIN(bytes, -(uintptr_t)to % CACHE_LINE);
	char *t = (char *)to + head;
	const char *f = (const char *)from + head;

	memcpy(to, from, head);
	bytes -= head;
	for (; bytes >= CACHE_LINE; bytes -= CACHE_LINE, t += CACHE_LINE, f += CACHE_LINE) {
		/* Past the end it is only a hint. */
		_mm_prefetch(f + AHEAD_BYTES, _MM_HINT_NTA);
		stream_line(t, f);
	}
	memcpy(t, f, bytes);
	/* Streaming stores are not ordered by what publishes the copy: this does it. */
	_mm_sfence();
}

#else

void copy_stream(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

#endif
