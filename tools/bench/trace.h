/* SPDX-License-Identifier: Apache-2.0
 *
 * Counting the system calls of a child from outside, by ptrace.
 */
#ifndef TIERD_TOOLS_BENCH_TRACE_H
#define TIERD_TOOLS_BENCH_TRACE_H

#include <stdint.h>
#include <sys/types.h>

/* The child, before the part to be counted: stops until its parent traces it. */
void trace_me(void);
/* The child, at the beginning and at the end of that part. */
void trace_mark(void);
/* The parent: runs the child to its end. 0 and the calls between the two marks, or -errno. */
int trace_count(pid_t child, uint64_t *ret);

#endif
