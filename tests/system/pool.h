/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine's pool of 2 MiB pages, made larger for a test and smaller again. Needs root. One
 * thread; uses Check's assertions.
 */
#ifndef TIERD_TESTS_POOL_H
#define TIERD_TESTS_POOL_H

#include <sys/types.h>

/* Pages beside those that are there, which go by pool_return(), or by our end, however we end.
 * After it the caller has system_pool_take(). -1: they are not to be had. */
int pool_borrow(unsigned pages, pid_t *ret_guardian);
void pool_return(int pool, pid_t guardian);
/* Pages in use stay. */
void pool_set(unsigned pages);

#endif
