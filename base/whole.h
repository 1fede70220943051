/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers that were computed as doubles, made whole for a page or a person: what is too large for
 * that is UINT64_MAX, what is below one or no number is 0, where C leaves all of these undefined.
 */
#ifndef TIERD_BASE_WHOLE_H
#define TIERD_BASE_WHOLE_H

#include <stdint.h>

static inline uint64_t whole_of(double number)
{
	return number >= 0x1p64 ? UINT64_MAX : number > 0 ? (uint64_t)number : 0;
}

#endif
