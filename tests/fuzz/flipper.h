/* SPDX-License-Identifier: Apache-2.0
 *
 * A second thread that changes bytes of clients' control segments at any time, as a hostile client
 * does while the daemon reads. It works in bursts with naps between them, so that on one core, too,
 * it comes in between any two instructions. All calls are of one thread.
 */
#ifndef TIERD_TESTS_FUZZ_FLIPPER_H
#define TIERD_TESTS_FUZZ_FLIPPER_H

#include <stdint.h>

#define FLIPPER_TARGETS 2u

/* Segment `i`; NULL: none, and it is not touched any more when this returns. */
void flipper_aim(unsigned i, void *control);
/* From now on `burst` changes at a time; 0: none, and it rests when this returns. */
void flipper_run(uint64_t seed, unsigned burst);
/* Where a change may be, by the random number `pick`: all parts of the segment of a client of
 * `tensors`, those that the daemon reads most often. */
uint64_t flipper_offset(uint64_t pick, uint32_t tensors);

#endif
