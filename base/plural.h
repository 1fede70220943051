/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers in sentences for people: "1 pin is held", "2 pins are held". Any thread.
 */
#ifndef TIERD_BASE_PLURAL_H
#define TIERD_BASE_PLURAL_H

/* The words that go with `n` of them, to be printed by %s. */
#define PLURAL(n, one, many) ((n) == 1 ? (one) : (many))

#endif
