/* SPDX-License-Identifier: Apache-2.0
 *
 * A linear hash table: chains of values, and each insertion splits at most one bucket in two. The
 * names lie in records of a pool; a freed record waits in the list of its size. Records are not
 * split or merged: the pool's addresses cover every size at full capacity, and it starts again from
 * nothing when the last name goes.
 */
#include "base/namemap.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/heap.h"
#include "base/siphash.h"

#define NAMEMAP_MAGIC  0x6e616d65u
#define BUCKETS_MIN    64u
#define GRANULE_BYTES  8u
#define RECORD_HEAD    5u
#define RECORD_CLASSES 34u /* by granules; 5 + 255 bytes are 33 of them, and none has 0 */
/* Granules of all classes together: what one value can use up in the worst case. */
#define GRANULES_A_VALUE (33u * 34u / 2)

/* In the pool, never aligned to more than a granule. */
struct record {
	uint32_t ns; /* of a free record: the next one of its class */
	uint8_t bytes;
	char name[];
};
_Static_assert(offsetof(struct record, name) == RECORD_HEAD, "a record's head has no padding");

/* References are index + 1, so that untouched, zero memory says "none". */
struct entry {
	uint32_t record;
	uint32_t next;
};

struct namemap {
	uint32_t magic;
	uint32_t capacity;
	uint32_t count;
	uint32_t buckets_used;
	uint32_t values_touched;
	uint64_t pool_used, pool_granules;
	struct siphash_key key;
	uint32_t *buckets;
	struct entry *entries;
	char *pool;
	uint64_t mapped_bytes;
	uint32_t free_records[RECORD_CLASSES];
};

static uint32_t buckets_max(uint32_t capacity)
{
	return MAX(capacity, BUCKETS_MIN);
}

/* References have 32 bits. Only above 7 million values is this short of the worst case, and still
 * holds every one of them with the longest name. */
static uint64_t pool_granules(uint32_t capacity)
{
	return MIN((uint64_t)capacity * GRANULES_A_VALUE, UINT32_MAX - 1);
}

static int map_tables(struct namemap *m, struct err *err)
{
	uint64_t buckets = ALIGN_UP(sizeof(uint32_t) * (uint64_t)buckets_max(m->capacity), 4096);
	uint64_t entries = ALIGN_UP(sizeof(struct entry) * (uint64_t)m->capacity, 4096);
	uint64_t pool = pool_granules(m->capacity) * GRANULE_BYTES;
	char *at;

	m->pool_granules = pool_granules(m->capacity);
	m->mapped_bytes = buckets + entries + pool;
	at = heap_map(m->mapped_bytes);
	if (at == NULL)
		return err_set(err, errno, "names: no %llu bytes of addresses for %u tensors: %s",
			       (unsigned long long)m->mapped_bytes, m->capacity, strerror(errno));
	m->buckets = (uint32_t *)at;
	m->entries = (struct entry *)(at + buckets);
	m->pool = at + buckets + entries;
	return 0;
}

int namemap_create(uint32_t capacity, struct namemap **ret, struct err *err)
{
	struct namemap *m;
	int rc;

	ASSERT(capacity > 0);
	m = heap_zeros(1, sizeof(*m));
	if (m == NULL)
		return err_set(err, ENOMEM, "names: out of memory");
	m->magic = NAMEMAP_MAGIC;
	m->capacity = capacity;
	m->buckets_used = BUCKETS_MIN;
	rc = map_tables(m, err);
	if (rc == 0 && getrandom(&m->key, sizeof(m->key), 0) != sizeof(m->key))
		rc = err_set(err, EIO, "names: getrandom: %s", strerror(errno));
	if (rc < 0) {
		heap_unmap(m->buckets, m->mapped_bytes);
		heap_free(m);
		return rc;
	}
	*ret = m;
	return 0;
}

void namemap_destroy(struct namemap *m)
{
	if (m == NULL)
		return;
	ASSERT_OBJ(m, NAMEMAP_MAGIC);
	heap_unmap(m->buckets, m->mapped_bytes);
	m->magic = 0;
	heap_free(m);
}

static struct record *record_at(const struct namemap *m, uint32_t ref)
{
	ASSERT(ref != 0 && ref <= m->pool_used);
	return (struct record *)(m->pool + (uint64_t)(ref - 1) * GRANULE_BYTES);
}

static uint32_t record_granules(size_t name_bytes)
{
	return (uint32_t)((RECORD_HEAD + name_bytes + GRANULE_BYTES - 1) / GRANULE_BYTES);
}

/* 0 when the pool is used up. */
static uint32_t record_take(struct namemap *m, uint32_t ns, const char *name, size_t bytes)
{
	uint32_t granules = record_granules(bytes);
	uint32_t ref = m->free_records[granules];
	struct record *record;

	ASSERT(granules > 0 && granules < RECORD_CLASSES);
	if (ref != 0) {
		m->free_records[granules] = record_at(m, ref)->ns;
	} else {
		if (m->pool_granules - m->pool_used < granules)
			return 0;
		ref = (uint32_t)m->pool_used + 1;
		m->pool_used += granules;
	}
	record = record_at(m, ref);
	record->ns = ns;
	record->bytes = (uint8_t)bytes;
	memcpy(record->name, name, bytes);
	return ref;
}

static void record_give(struct namemap *m, uint32_t ref)
{
	struct record *record = record_at(m, ref);
	uint32_t granules = record_granules(record->bytes);

	record->ns = m->free_records[granules];
	record->bytes = 0;
	m->free_records[granules] = ref;
}

static uint64_t name_hash(const struct namemap *m, uint32_t ns, const char *name, size_t bytes)
{
	struct siphash_key key = m->key;

	key.half[0] ^= ns;
	return siphash(key, name, bytes);
}

/* The largest power of two that is not above the buckets in use. */
static uint32_t level_of(const struct namemap *m)
{
	return 1u << (31 - __builtin_clz(m->buckets_used));
}

/* Buckets from the next one to split up to the level are still unsplit: their names go by one bit
 * less than those before and above them. */
static uint32_t *bucket_of(const struct namemap *m, uint64_t hash)
{
	uint32_t level = level_of(m);
	uint64_t i = hash & (2 * (uint64_t)level - 1);

	if (i >= m->buckets_used)
		i &= level - 1;
	return &m->buckets[i];
}

static uint32_t *bucket_of_record(const struct namemap *m, const struct record *record)
{
	return bucket_of(m, name_hash(m, record->ns, record->name, record->bytes));
}

static struct entry *entry_at(const struct namemap *m, uint32_t value)
{
	ASSERT(value < m->capacity);
	return &m->entries[value];
}

/* Hands the names of one bucket out anew between it and a bucket added at the end. */
static void split_a_bucket(struct namemap *m)
{
	uint32_t *from = &m->buckets[m->buckets_used - level_of(m)];
	uint32_t ref = *from;

	*from = 0;
	m->buckets_used++;
	while (ref != 0) {
		struct entry *entry = entry_at(m, ref - 1);
		uint32_t *to = bucket_of_record(m, record_at(m, entry->record));
		uint32_t next = entry->next;

		ASSERT(to == from || to == &m->buckets[m->buckets_used - 1]);
		entry->next = *to;
		*to = ref;
		ref = next;
	}
}

static bool same_name(const struct record *record, uint32_t ns, const char *name, size_t bytes)
{
	return record->ns == ns && record->bytes == bytes && memcmp(record->name, name, bytes) == 0;
}

int namemap_find(const struct namemap *m, uint32_t ns, const char *name, size_t bytes,
		 uint32_t *ret)
{
	uint32_t ref;

	ASSERT_OBJ(m, NAMEMAP_MAGIC);
	if (bytes == 0 || bytes > NAMEMAP_NAME_BYTES_MAX)
		return -ENOENT;
	ref = *bucket_of(m, name_hash(m, ns, name, bytes));
	while (ref != 0) {
		const struct entry *entry = entry_at(m, ref - 1);

		if (same_name(record_at(m, entry->record), ns, name, bytes)) {
			*ret = ref - 1;
			return 0;
		}
		ref = entry->next;
	}
	return -ENOENT;
}

int namemap_add(struct namemap *m, uint32_t ns, const char *name, size_t bytes, uint32_t value)
{
	struct entry *entry = entry_at(m, value);
	uint32_t other, *bucket;

	ASSERT(entry->record == 0);
	if (bytes == 0 || bytes > NAMEMAP_NAME_BYTES_MAX)
		return -EINVAL;
	if (namemap_find(m, ns, name, bytes, &other) == 0)
		return -EEXIST;
	entry->record = record_take(m, ns, name, bytes);
	if (entry->record == 0)
		return -ENOMEM;
	if (m->count >= m->buckets_used && m->buckets_used < buckets_max(m->capacity))
		split_a_bucket(m);
	bucket = bucket_of(m, name_hash(m, ns, name, bytes));
	entry->next = *bucket;
	*bucket = value + 1;
	m->count++;
	m->values_touched = MAX(m->values_touched, value + 1);
	return 0;
}

/* Where the reference to `value` stands: its bucket or the entry before it. */
static uint32_t *link_to(struct namemap *m, uint32_t value)
{
	uint32_t *link = bucket_of_record(m, record_at(m, entry_at(m, value)->record));

	while (*link != value + 1) {
		ASSERT(*link != 0);
		link = &entry_at(m, *link - 1)->next;
	}
	return link;
}

void namemap_remove(struct namemap *m, uint32_t value)
{
	struct entry *entry = entry_at(m, value);

	ASSERT_OBJ(m, NAMEMAP_MAGIC);
	if (entry->record == 0)
		return;
	*link_to(m, value) = entry->next;
	record_give(m, entry->record);
	*entry = (struct entry){ 0 };
	ASSERT(m->count > 0);
	if (--m->count == 0) {
		m->pool_used = 0;
		memset(m->free_records, 0, sizeof(m->free_records));
	}
}

size_t namemap_name(const struct namemap *m, uint32_t value, const char **ret, uint32_t *ret_ns)
{
	const struct record *record;

	ASSERT_OBJ(m, NAMEMAP_MAGIC);
	if (entry_at(m, value)->record == 0)
		return 0;
	record = record_at(m, entry_at(m, value)->record);
	*ret = record->name;
	*ret_ns = record->ns;
	return record->bytes;
}

uint32_t namemap_count(const struct namemap *m)
{
	return m->count;
}

uint64_t namemap_used_bytes(const struct namemap *m)
{
	return sizeof(*m) + sizeof(uint32_t) * (uint64_t)m->buckets_used +
	       sizeof(struct entry) * (uint64_t)m->values_touched + m->pool_used * GRANULE_BYTES;
}
