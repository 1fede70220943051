/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crc32c.h"

#include <isa-l/crc.h>

#include "base/compiler.h"

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
	const unsigned char *p = data;

	crc = ~crc;
	while (bytes > 0) {
		/* libisal takes an int. */
		size_t n = MIN(bytes, (size_t)1 << 30);

		crc = crc32_iscsi((unsigned char *)p, (int)n, crc);
		p += n;
		bytes -= n;
	}
	return ~crc;
}
