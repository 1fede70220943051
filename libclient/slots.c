/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* SEEK_DATA */
#include "libclient/slots.h"

#include <unistd.h>

bool slots_any(struct tierd *t, bool (*is)(struct tierd *t, uint32_t index, void *ctx), void *ctx)
{
	off_t begin = (char *)t->hot.slots - (char *)t->control.base;
	off_t end = begin + (off_t)t->hot.tensors * (off_t)sizeof(pin_slot), at = begin;

	while (at < end) {
		off_t data = lseek(t->control_fd, at, SEEK_DATA), hole;

		if (data < 0 || data >= end)
			return false;
		hole = lseek(t->control_fd, data, SEEK_HOLE);
		hole = hole < 0 || hole > end ? end : hole;
		for (at = MAX(data, at); at < hole; at += (off_t)sizeof(pin_slot))
			if (is(t, (uint32_t)((size_t)(at - begin) / sizeof(pin_slot)), ctx))
				return true;
	}
	return false;
}
