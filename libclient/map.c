/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/connect.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "libclient/place.h"
#include "libclient/registration.h"
#include "libclient/slab.h"

static int map_one(int fd, uint64_t bytes, int prot, const char *what, struct segment *ret,
		   struct err *err)
{
	struct stat st;
	void *base;

	/* A segment shorter than announced would be a SIGBUS later. */
	if (fstat(fd, &st) < 0)
		return err_set(err, errno, "%s: %s", what, strerror(errno));
	if (bytes == 0 || bytes > SIZE_MAX || (uint64_t)st.st_size < bytes)
		return err_set(err, EPROTO, "%s: %lld bytes came, %llu were announced", what,
			       (long long)st.st_size, (unsigned long long)bytes);
	base = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return err_set(err, errno, "%s: mapping %llu bytes: %s", what,
			       (unsigned long long)bytes, strerror(errno));
	*ret = (struct segment){ base, bytes };
	if (madvise(base, bytes, MADV_DONTFORK) < 0)
		return err_set(err, errno, "%s: %s", what, strerror(errno));
	return 0;
}

static bool array_ok(const struct layout_array *a, uint64_t total, uint32_t stride, uint32_t least,
		     uint32_t most)
{
	return a->offset >= CONTROL_HEADER_BYTES && a->offset % 8 == 0 && a->stride == stride &&
	       a->count >= least && a->count <= most && a->offset <= total &&
	       (uint64_t)a->stride * a->count <= total - a->offset;
}

static int check_table(const struct table_header *h, const struct hello_reply *r, struct err *err)
{
	uint64_t bytes = (uint64_t)h->descriptors_stride * h->descriptors_count;

	if (h->magic != PROTOCOL_MAGIC || h->major != PROTOCOL_MAJOR || h->boot_id != r->boot_id)
		return err_set(err, EPROTO, "descriptor table: not of this daemon and version");
	if (h->header_bytes < sizeof(*h) || (uint64_t)h->total_pages * 4096 != r->table_bytes ||
	    h->descriptors_offset < h->header_bytes || h->descriptors_offset % CACHE_LINE != 0 ||
	    h->descriptors_stride != sizeof(struct descriptor) || h->descriptors_count == 0 ||
	    h->descriptors_offset > r->table_bytes ||
	    bytes > r->table_bytes - h->descriptors_offset)
		return err_set(err, EPROTO, "descriptor table: sizes that cannot be");
	return 0;
}

static bool power_of_two(uint32_t n)
{
	return n != 0 && (n & (n - 1)) == 0;
}

/* `h` is a private copy. */
static int check_control(const struct control_header *h, const struct hello_reply *r,
			 uint32_t tensors, struct err *err)
{
	uint64_t total = h->total_bytes;

	if (h->magic != PROTOCOL_MAGIC || h->major != PROTOCOL_MAJOR || h->boot_id != r->boot_id ||
	    h->client_id != r->client_id)
		return err_set(err, EPROTO, "control segment: not of this daemon and client");
	if (h->header_bytes != CONTROL_HEADER_BYTES || total != r->control_bytes ||
	    !array_ok(&h->sq, total, sizeof(struct sq_entry), 8, SQ_ENTRIES) ||
	    !array_ok(&h->cq, total, sizeof(struct cq_entry), h->sq.count, h->sq.count) ||
	    !array_ok(&h->texts, total, TEXT_BYTES, h->sq.count, h->sq.count) ||
	    !array_ok(&h->payload, total, PAYLOAD_BYTES, 1, 64) ||
	    !array_ok(&h->window, total, WINDOW_BYTES, 1, 64) ||
	    !array_ok(&h->logs, total, LOG_STRIDE, 0, 4096) ||
	    !array_ok(&h->fences, total, sizeof(struct fence), 1, FENCES) ||
	    !array_ok(&h->streams, total, sizeof(struct stream_word), 1, STREAMS) ||
	    !array_ok(&h->deferred, total, DEFERRED_STRIDE, h->streams.count, h->streams.count) ||
	    h->fences.offset % 4096 != 0 ||
	    h->streams.offset != ALIGN_UP(h->fences.offset + h->fences.count * 64ull, 4096) ||
	    !array_ok(&h->pins, total, sizeof(pin_slot), tensors, tensors) ||
	    !power_of_two(h->sq.count))
		return err_set(err, EPROTO, "control segment: sizes that cannot be");
	return 0;
}

static void use_control(struct tierd *t, const struct control_header *h)
{
	char *base = t->control.base;

	t->header = t->control.base;
	t->sq = base + h->sq.offset;
	t->cq = base + h->cq.offset;
	t->texts = base + h->texts.offset;
	t->payloads = base + h->payload.offset;
	t->windows = base + h->window.offset;
	t->logs = (struct access_log *)(void *)(base + h->logs.offset);
	t->fences = (struct fence *)(void *)(base + h->fences.offset);
	t->streams = (struct stream_word *)(void *)(base + h->streams.offset);
	t->deferred = (struct deferred_ring *)(void *)(base + h->deferred.offset);
	t->fence_count = h->fences.count;
	t->stream_count = h->streams.count;
	t->ids = h->sq.count;
	t->payload_slots = h->payload.count;
	t->window_slots = h->window.count;
	t->log_count = h->logs.count;
	t->payload_bytes = PAYLOAD_BYTES;
	t->window_bytes = WINDOW_BYTES;
	t->hot.slots = (pin_slot *)(void *)(base + h->pins.offset);
}

static int map_tables(struct tierd *t, const struct hello_reply *r, const struct hello_fds *fds,
		      struct err *err)
{
	struct control_header control;
	struct table_header *table;
	int rc = map_one(fds->fd[HELLO_FD_CONTROL], r->control_bytes, PROT_READ | PROT_WRITE,
			 "control segment", &t->control, err);

	if (rc == 0)
		rc = map_one(fds->fd[HELLO_FD_TABLE], r->table_bytes, PROT_READ, "descriptor table",
			     &t->table, err);
	if (rc == 0)
		rc = map_one(fds->fd[HELLO_FD_STATS], r->stats_bytes, PROT_READ, "stats page",
			     &t->stats, err);
	if (rc < 0)
		return rc;
	if (t->control.bytes < CONTROL_HEADER_BYTES || t->table.bytes < TABLE_HEADER_BYTES ||
	    t->stats.bytes < STATS_PAGE_HEAD)
		return err_set(err, EPROTO, "a segment is shorter than its header");
	table = t->table.base;
	rc = check_table(table, r, err);
	if (rc < 0)
		return rc;
	memcpy(&control, t->control.base, sizeof(control));
	rc = check_control(&control, r, table->descriptors_count, err);
	if (rc < 0)
		return rc;
	use_control(t, &control);
	t->hot.descriptors =
		(struct descriptor *)(void *)((char *)t->table.base + table->descriptors_offset);
	t->hot.awake = &table->awake;
	t->hot.tensors = table->descriptors_count;
	return 0;
}

/* A page of another minor has a head like ours and its counters at other places. */
static int use_stats(struct tierd *t, const struct hello_reply *r, struct err *err)
{
	const struct stats_page *s = t->stats.base;
	bool ours = s->minor == PROTOCOL_MINOR;

	if (s->magic != PROTOCOL_MAGIC || s->major != PROTOCOL_MAJOR || s->boot_id != r->boot_id ||
	    s->bytes < (ours ? sizeof(*s) : STATS_PAGE_HEAD) || s->bytes > r->stats_bytes)
		return err_set(err, EPROTO, "stats page: not of this daemon and version");
	t->page = ours ? s : NULL;
	return 0;
}

static int map_host_arena(struct tierd *t, const struct hello_arena *a, int fd, struct err *err)
{
	struct segment s = { NULL, 0 };
	int rc = map_one(fd, a->bytes, PROT_READ | PROT_WRITE, "arena", &s, err);

	t->hot.arenas[a->arena] = (struct client_arena){ s.base, s.bytes };
	if (rc == 0 && (a->zone_bytes > a->bytes || a->zone_bytes > ZONE_CHUNKS_MAX * ZONE_CHUNK))
		return err_set(err, EPROTO, "arena %u: a zone that cannot be", a->arena);
	if (rc == 0 && a->zone_bytes > 0)
		t->zone = (struct segment){ s.base, a->zone_bytes };
	return rc;
}

static int map_arenas(struct tierd *t, const struct hello_reply *r, const struct hello_fds *fds,
		      struct err *err)
{
	unsigned next = HELLO_FD_ARENAS;

	for (uint32_t i = 0; i < r->arenas; i++) {
		const struct hello_arena *a = &r->arena[i];
		int rc;

		if (a->arena >= HELLO_ARENAS_MAX || t->hot.arenas[a->arena].bytes != 0 ||
		    t->slabs[a->arena].bytes != 0)
			return err_set(err, EPROTO, "arena %u: a number that cannot be", a->arena);
		rc = a->slab_bytes != 0 ? slab_arena_add(t, a, err)
					: map_host_arena(t, a, fds->fd[next++], err);
		if (rc < 0)
			return rc;
	}
	place_start(t);
	return 0;
}

static void unmap_one(struct segment *s)
{
	if (s->bytes != 0)
		munmap(s->base, s->bytes);
	*s = (struct segment){ NULL, 0 };
}

void map_undo(struct tierd *t)
{
	registration_undo(t);
	slab_undo(t);
	for (unsigned i = 0; i < HELLO_ARENAS_MAX; i++) {
		struct segment s = { t->hot.arenas[i].base, t->hot.arenas[i].bytes };

		unmap_one(&s);
		t->hot.arenas[i] = (struct client_arena){ NULL, 0 };
	}
	unmap_one(&t->stats);
	unmap_one(&t->table);
	unmap_one(&t->control);
}

int map_segments(struct tierd *t, const struct hello_reply *r, struct hello_fds *fds,
		 struct err *err)
{
	int rc = map_tables(t, r, fds, err);

	if (rc == 0)
		rc = use_stats(t, r, err);
	if (rc == 0)
		rc = map_arenas(t, r, fds, err);
	if (rc < 0) {
		map_undo(t);
		return rc;
	}
	t->client_id = r->client_id;
	t->control_fd = fds->fd[HELLO_FD_CONTROL];
	t->doorbell_fd = fds->fd[HELLO_FD_DOORBELL];
	fds->fd[HELLO_FD_CONTROL] = -1;
	fds->fd[HELLO_FD_DOORBELL] = -1;
	return 0;
}
