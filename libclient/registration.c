/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/registration.h"

#include "libclient/error.h"

#define PAGE 4096u

/* map.c has seen to it that fences and stream words follow each other in pages of their own. */
static void *fence_pages(struct tierd *t, uint64_t *ret_bytes)
{
	char *base = (char *)t->fences;
	char *end = (char *)(t->streams + t->stream_count);

	*ret_bytes = ALIGN_UP((uint64_t)(end - base), PAGE);
	return base;
}

/* `register_lock` is held. What was registered is gone if the context is that did it. A context
 * that is lost sees nothing, and others may: a failure leaves it as it was. */
static int register_once(struct tierd *t, struct gpu_stream *s, bool was, void *base,
			 uint64_t bytes)
{
	int rc;

	if (was && gpu_is_registered(s, base))
		return 0;
	rc = gpu_register(s, base, bytes, error_slot());
	if (rc == 0)
		t->register_device = s->device;
	return rc;
}

int registration_fences(struct tierd *t, struct gpu_stream *s)
{
	uint64_t bytes;
	void *base = fence_pages(t, &bytes);
	int rc;

	pthread_mutex_lock(&t->register_lock);
	rc = register_once(t, s, t->fences_registered, base, bytes);
	t->fences_registered = t->fences_registered || rc == 0;
	pthread_mutex_unlock(&t->register_lock);
	return rc;
}

static char *chunk_base(struct tierd *t, uint64_t chunk)
{
	return (char *)t->zone.base + chunk * ZONE_CHUNK;
}

/* `register_lock` is held. */
static int chunk_register(struct tierd *t, struct gpu_stream *s, uint64_t chunk)
{
	uint64_t bit = (uint64_t)1 << (chunk % 64), *word = &t->zone_registered[chunk / 64];
	int rc = register_once(t, s, *word & bit, chunk_base(t, chunk),
			       MIN(ZONE_CHUNK, t->zone.bytes - chunk * ZONE_CHUNK));

	*word |= rc == 0 ? bit : 0;
	return rc;
}

int registration_zone(struct tierd *t, struct gpu_stream *s, uint64_t offset, uint64_t bytes)
{
	uint64_t chunk = offset / ZONE_CHUNK;
	int rc = 0;

	pthread_mutex_lock(&t->register_lock);
	for (; rc == 0 && chunk * ZONE_CHUNK < offset + bytes; chunk++)
		rc = chunk_register(t, s, chunk);
	pthread_mutex_unlock(&t->register_lock);
	return rc;
}

void registration_undo(struct tierd *t)
{
	uint64_t bytes;

	for (uint64_t c = 0; c * ZONE_CHUNK < t->zone.bytes; c++)
		if ((t->zone_registered[c / 64] >> (c % 64)) & 1)
			gpu_unregister(t->register_device, chunk_base(t, c));
	if (t->fences_registered)
		gpu_unregister(t->register_device, fence_pages(t, &bytes));
	t->zone = (struct segment){ NULL, 0 };
	t->fences_registered = false;
}
