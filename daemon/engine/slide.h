/* SPDX-License-Identifier: Apache-2.0
 *
 * Compaction within a tier that has nowhere else to go: between two obstacles (pins, moves, slabs
 * that are not there) tensors come down to lower addresses one after the other, each into the gap
 * before it, over its own old place where need be, until the gaps are one. No step down changes the
 * order of tensors, and those below a page only ever go up past larger ones, so that steps come to
 * an end whatever was planned before. Host memory only: a copy over
 * its own source cannot be given up half-way. Control thread.
 */
#ifndef TIERD_ENGINE_SLIDE_H
#define TIERD_ENGINE_SLIDE_H

#include "daemon/engine/state.h"

struct slide {
	uint32_t before; /* the taken node that the window's first gap follows, EXTENT_NONE */
	uint64_t end;    /* of its last gap */
	uint64_t cost;   /* bytes that come down */
	bool found;
};

/* The window that costs least of those whose gaps make a hole of `bytes`. O(nodes). */
struct slide slide_find(struct engine *e, uint8_t device, uint64_t bytes);
/* Its first step. False: what was to move cannot any more. */
bool slide_begin(struct engine *e, uint8_t device, const struct slide *s);
/* The step after the last one, while the window lasts. */
bool slide_go_on(struct engine *e, uint8_t device);
/* Where no window would do because the rest is in gaps below a page: everything comes down as far
 * as it can, then tensors below a page go above those of whole pages, one after the other. */
bool slide_tidy(struct engine *e, uint8_t device);

#endif
