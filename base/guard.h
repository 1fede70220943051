/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory whose pages another process can take away: a client can punch holes into an arena, and on
 * huge pages the next access raises SIGBUS where the pool is empty. In a guarded range the handler
 * puts private memory in the page's place, marks the range as damaged and goes on, so that whoever
 * met it, a driver's code among them, needs not know. What stands in a damaged range is worth
 * nothing. A SIGBUS anywhere else ends the process as it would without.
 *
 * A thread that has SIGBUS blocked is killed by it: threads are started between
 * guard_block_signals() and the return to the old mask.
 */
#ifndef TIERD_BASE_GUARD_H
#define TIERD_BASE_GUARD_H

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

/* More than all arenas of all domains. */
#define GUARD_RANGES 1024u

/* [base, bytes) in pages of `page_bytes`, all of them aligned. `damaged` becomes 1; it stands until
 * guard_remove(). Any thread, but one at a time. */
void guard_add(void *base, uint64_t bytes, uint64_t page_bytes, _Atomic uint32_t *damaged);
/* Nobody looks at the range any more. */
void guard_remove(void *base);

/* All signals but SIGBUS, for threads that leave the others to the control thread. */
void guard_block_signals(sigset_t *was);

#endif
