/* SPDX-License-Identifier: Apache-2.0 */
#include "config/memory.h"

#include <stdlib.h>
#include <string.h>

void *config_memory_zeros(size_t count, size_t bytes)
{
	return calloc(count != 0 ? count : 1, bytes != 0 ? bytes : 1);
}

char *config_memory_text(const char *text)
{
	return strdup(text);
}

void config_memory_free(void *memory)
{
	free(memory);
}
