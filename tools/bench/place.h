/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the scheduler lets three sleepers wake each other decides what a wake-up costs: some 4 us
 * on one CPU, some 13 us on another that has gone idle, and it may change with every run. So both
 * sides of a comparison are put in the same places. Main thread.
 */
#ifndef TIERD_BENCH_PLACE_H
#define TIERD_BENCH_PLACE_H

#include <sys/types.h>

/* The calling thread on the first CPU that it may use, all threads of the n processes on the
 * second. No effect where there is one CPU, and on a process of pid 0. */
void place_apart(const pid_t *served_by, unsigned n);
/* The calling thread on the CPU that it may use whose dependent additions are quickest now; returns
 * the nanoseconds that one takes. A CPU of a virtual machine may be half of a core whose other half
 * works for somebody else: it is half as quick then, and neither side of a comparison sees why. */
double place_quickest(void);
/* As it was before place_apart() and place_quickest(). */
void place_freely(const pid_t *served_by, unsigned n);

#endif
