/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of up to millions of tensors: (namespace, name) to a value and back. Values are indices
 * below the capacity, each with at most one name. One owning thread.
 *
 * A name of 24 bytes costs 44 bytes in all. Address space for the capacity is reserved at creation
 * and touched as names come, so nothing ever moves, and a table grows by one bucket an insertion:
 * no call takes long. The hash is keyed, so no client can make names that collide.
 */
#ifndef TIERD_BASE_NAMEMAP_H
#define TIERD_BASE_NAMEMAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define NAMEMAP_NAME_BYTES_MAX 255u

struct namemap;

/* `capacity` of 1 or more: values are below it. -ENOMEM when the addresses cannot be reserved. */
int namemap_create(uint32_t capacity, struct namemap **ret, struct err *err);
void namemap_destroy(struct namemap *);

/* Names `value`, which must have no name. Copies the bytes. -EEXIST: the namespace has the name;
 * -EINVAL: not 1 to 255 bytes. */
int namemap_add(struct namemap *, uint32_t ns, const char *name, size_t bytes, uint32_t value);
/* -ENOENT: no such name. */
int namemap_find(const struct namemap *, uint32_t ns, const char *name, size_t bytes,
		 uint32_t *ret);
/* Forgets the name of `value`; nothing to do when it has none. */
void namemap_remove(struct namemap *, uint32_t value);
/* Length of the name of `value`, 0 and outputs untouched when it has none. `*ret` is not
 * terminated and valid until the value's name is removed. */
size_t namemap_name(const struct namemap *, uint32_t value, const char **ret, uint32_t *ret_ns);

uint32_t namemap_count(const struct namemap *);
/* Bytes of memory in use, all tables included. */
uint64_t namemap_used_bytes(const struct namemap *);

#endif
