/* SPDX-License-Identifier: Apache-2.0
 *
 * Small helpers of the language that every layer uses. Pure macros; any thread.
 */
#ifndef TIERD_BASE_COMPILER_H
#define TIERD_BASE_COMPILER_H

#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a)              (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, m) ((type *)((char *)(ptr)-offsetof(type, m)))

/* `a` is a power of two. */
#define ALIGN_UP(x, a)   (((x) + ((a)-1)) & ~((uint64_t)(a)-1))
#define ALIGN_DOWN(x, a) ((x) & ~((uint64_t)(a)-1))

#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)

/* Each operand is evaluated once: calls stand in them, and what they do. For operands that count as
 * themselves, within functions; the type is that of `a < b ? a : b`. */
#define MIN(a, b)           CHOOSE(<, a, b, __COUNTER__)
#define MAX(a, b)           CHOOSE(>, a, b, __COUNTER__)
#define CHOOSE(op, a, b, n) CHOOSE_(op, a, b, JOIN(a_, n), JOIN(b_, n))
#define CHOOSE_(op, a, b, x, y)                             \
	__extension__({                                     \
		__typeof__(0 ? (a) : (b)) x = (a), y = (b); \
		x op y ? x : y;                             \
	})

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

#define CACHE_LINE 64

/* One turn of a short spin. */
#if defined(__x86_64__)
#define CPU_RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define CPU_RELAX() __asm__ __volatile__("yield")
#else
#define CPU_RELAX() ((void)0)
#endif

#define PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

#endif
