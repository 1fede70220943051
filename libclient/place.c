/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libclient/error.h"
#include "libclient/gpu.h"

#define UUID_TEXT_BYTES 41

void place_start(struct tierd *t)
{
	atomic_store(&t->hot.places[0], PROTOCOL_PLACE_HOST);
	for (unsigned i = 0; i < CLIENT_PLACES; i++)
		atomic_store(&t->hot.places[1 + i], t->by_uuid ? PLACE_UNKNOWN : (uint8_t)i);
}

/* As nvidia-smi writes it. */
static void uuid_write(const uint8_t uuid[16], char ret[UUID_TEXT_BYTES])
{
	size_t n = (size_t)snprintf(ret, UUID_TEXT_BYTES, "GPU-");

	for (unsigned i = 0; i < 16; i++)
		n += (size_t)snprintf(ret + n, UUID_TEXT_BYTES - n,
				      i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
				      uuid[i]);
}

static struct slab_arena *arena_of(struct tierd *t, const uint8_t uuid[16])
{
	for (unsigned i = 0; i < HELLO_ARENAS_MAX; i++)
		if (t->slabs[i].bytes != 0 && memcmp(t->slabs[i].uuid, uuid, 16) == 0)
			return &t->slabs[i];
	return NULL;
}

/* `place_lock` is held. What is known is written once. */
static int match(struct tierd *t, int ordinal, struct err *err)
{
	char text[UUID_TEXT_BYTES];
	struct slab_arena *a;
	uint8_t uuid[16];
	int rc;

	if (atomic_load(&t->hot.places[1 + ordinal]) != PLACE_UNKNOWN)
		return 0;
	rc = gpu_uuid(ordinal, uuid, err);
	if (rc < 0)
		return rc;
	a = arena_of(t, uuid);
	if (a == NULL) {
		uuid_write(uuid, text);
		return err_set(err, ENODEV, "place %d is %s, which is no GPU of the daemon",
			       ordinal, text);
	}
	a->ordinal = ordinal;
	atomic_store(&t->hot.places[1 + ordinal], a->place);
	return 0;
}

int place_find(struct tierd *t, int place, uint8_t *ret)
{
	struct err *err = error_slot();
	int count, rc = client_usable(t);

	if (rc < 0)
		return rc;
	if (place < TIERD_HOST || place >= (int)CLIENT_PLACES || !t->by_uuid)
		return err_set(err, ENODEV, "no place %d", place);
	rc = gpu_count(&count, err);
	if (rc < 0)
		return err_prefix(err, "place %d", place);
	if (place >= count)
		return err_set(err, ENODEV, "no place %d: this process sees %d GPU%s", place, count,
			       count == 1 ? "" : "s");
	pthread_mutex_lock(&t->place_lock);
	rc = match(t, place, err);
	pthread_mutex_unlock(&t->place_lock);
	if (rc < 0)
		return rc;
	*ret = atomic_load(&t->hot.places[1 + place]);
	return 0;
}

static int known_ordinal(struct tierd *t, uint8_t wire)
{
	for (int i = 0; i < (int)CLIENT_PLACES; i++)
		if (atomic_load(&t->hot.places[1 + i]) == wire)
			return i;
	return -1;
}

int place_ordinal(struct tierd *t, uint8_t wire, bool find, int *ret)
{
	struct err *err = error_slot();
	int count = 0, found = known_ordinal(t, wire), rc = 0;

	if (found < 0 && find && t->by_uuid)
		rc = gpu_count(&count, err);
	pthread_mutex_lock(&t->place_lock);
	for (int i = 0; rc == 0 && found < 0 && i < MIN(count, (int)CLIENT_PLACES); i++)
		if (match(t, i, err) == 0 && atomic_load(&t->hot.places[1 + i]) == wire)
			found = i;
	pthread_mutex_unlock(&t->place_lock);
	if (found < 0)
		return err_set(err, ENODEV, "the daemon's GPU %u is not seen by this process",
			       wire);
	*ret = found;
	return 0;
}
