/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "daemon/segments.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/heap.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define PAGE 4096u

static int memfd_open(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	/* Kernels before 6.3 do not know NOEXEC_SEAL. */
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return fd;
}

static int segment_map(const char *name, bool read_only, struct segment *s, struct err *err)
{
	/* FUTURE_WRITE comes after our own mapping: it stops every later writable one. */
	int seals = F_SEAL_SHRINK | F_SEAL_GROW | (read_only ? F_SEAL_FUTURE_WRITE : 0);

	if (ftruncate(s->fd, (off_t)s->bytes) < 0)
		return err_set(err, errno, "segment %s: size of %llu bytes: %s", name,
			       (unsigned long long)s->bytes, strerror(errno));
	s->base = heap_refused()
			  ? MAP_FAILED
			  : mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
	if (s->base == MAP_FAILED) {
		s->base = NULL;
		return err_set(err, errno, "segment %s: map of %llu bytes: %s", name,
			       (unsigned long long)s->bytes, strerror(errno));
	}
	if (fcntl(s->fd, F_ADD_SEALS, seals) < 0 || fcntl(s->fd, F_ADD_SEALS, F_SEAL_SEAL) < 0)
		return err_set(err, errno, "segment %s: seals: %s", name, strerror(errno));
	return 0;
}

int segment_create(const char *name, uint64_t bytes, bool read_only, struct segment *ret,
		   struct err *err)
{
	struct segment s = { memfd_open(name), NULL, ALIGN_UP(bytes, PAGE) };
	int rc;

	if (s.fd < 0)
		return err_set(err, errno, "segment %s: memfd: %s", name, strerror(errno));
	rc = segment_map(name, read_only, &s, err);
	if (rc < 0) {
		segment_destroy(&s);
		return rc;
	}
	*ret = s;
	return 0;
}

void segment_destroy(struct segment *s)
{
	if (s->base)
		ASSERT(munmap(s->base, s->bytes) == 0);
	if (s->fd >= 0)
		close(s->fd);
	*s = (struct segment)SEGMENT_NONE;
}

static void table_header_write(struct segments *s)
{
	struct table_header *t = s->table.base;

	t->magic = PROTOCOL_MAGIC;
	t->major = PROTOCOL_MAJOR;
	t->minor = PROTOCOL_MINOR;
	t->header_bytes = TABLE_HEADER_BYTES;
	t->total_pages = (uint32_t)(s->table.bytes / PAGE);
	t->boot_id = s->boot_id;
	t->descriptors_offset = TABLE_HEADER_BYTES;
	t->descriptors_stride = sizeof(struct descriptor);
	t->descriptors_count = s->tensors;
	atomic_store(&t->awake, DAEMON_POLLING);
}

static void stats_header_write(struct segments *s)
{
	struct stats_page *p = s->stats.base;

	p->magic = PROTOCOL_MAGIC;
	p->major = PROTOCOL_MAJOR;
	p->minor = PROTOCOL_MINOR;
	p->bytes = sizeof(*p);
	p->boot_id = s->boot_id;
}

static int segments_make(struct segments *s, uint64_t records_bytes, struct err *err)
{
	uint64_t table_bytes =
		TABLE_HEADER_BYTES + (uint64_t)s->tensors * sizeof(struct descriptor);
	int rc;

	if (getrandom(&s->boot_id, sizeof(s->boot_id), 0) != sizeof(s->boot_id))
		return err_set(err, errno, "boot id: getrandom: %s", strerror(errno));
	rc = segment_create("tierd-table", table_bytes, true, &s->table, err);
	if (rc == 0)
		rc = segment_create("tierd-stats", sizeof(struct stats_page), true, &s->stats, err);
	if (rc == 0)
		rc = segment_create("tierd-records", records_bytes, true, &s->records, err);
	return rc;
}

int segments_create(uint32_t tensors, uint64_t records_bytes, struct segments *ret, struct err *err)
{
	struct segments s = { SEGMENT_NONE, SEGMENT_NONE, SEGMENT_NONE, 0, tensors };
	int rc = segments_make(&s, records_bytes, err);

	if (rc < 0) {
		segments_destroy(&s);
		return rc;
	}
	table_header_write(&s);
	stats_header_write(&s);
	*ret = s;
	return 0;
}

void segments_destroy(struct segments *s)
{
	segment_destroy(&s->records);
	segment_destroy(&s->stats);
	segment_destroy(&s->table);
}

void control_layout(uint32_t tensors, struct control_layout *ret)
{
	struct control_layout l;

	l.sq = CONTROL_HEADER_BYTES;
	l.cq = l.sq + SQ_ENTRIES * sizeof(struct sq_entry);
	l.texts = l.cq + SQ_ENTRIES * sizeof(struct cq_entry);
	l.payload = l.texts + SQ_ENTRIES * TEXT_BYTES;
	l.window = l.payload + (uint64_t)PAYLOAD_SLOTS * PAYLOAD_BYTES;
	l.logs = l.window + (uint64_t)WINDOW_SLOTS * WINDOW_BYTES;
	/* Pages that the client's GPU reaches, and nothing else in them. */
	l.fences = ALIGN_UP(l.logs + (uint64_t)LOGS * LOG_STRIDE, PAGE);
	l.streams = l.fences + FENCES * sizeof(struct fence);
	l.deferred = ALIGN_UP(l.streams + STREAMS * sizeof(struct stream_word), PAGE);
	l.pins = ALIGN_UP(l.deferred + (uint64_t)STREAMS * DEFERRED_STRIDE, PAGE);
	l.bytes = ALIGN_UP(l.pins + (uint64_t)tensors * sizeof(pin_slot), PAGE);
	/* Lanes want copy windows that a device can take directly. */
	ASSERT(l.window % PAGE == 0 && l.payload % PAGE == 0);
	*ret = l;
}

static void control_header_write(const struct segments *s, uint32_t client_id,
				 const struct control_layout *l, struct control_header *h)
{
	h->magic = PROTOCOL_MAGIC;
	h->major = PROTOCOL_MAJOR;
	h->minor = PROTOCOL_MINOR;
	h->header_bytes = CONTROL_HEADER_BYTES;
	h->client_id = client_id;
	h->total_bytes = l->bytes;
	h->boot_id = s->boot_id;
	h->sq = (struct layout_array){ l->sq, sizeof(struct sq_entry), SQ_ENTRIES };
	h->cq = (struct layout_array){ l->cq, sizeof(struct cq_entry), SQ_ENTRIES };
	h->texts = (struct layout_array){ l->texts, TEXT_BYTES, SQ_ENTRIES };
	h->payload = (struct layout_array){ l->payload, PAYLOAD_BYTES, PAYLOAD_SLOTS };
	h->window = (struct layout_array){ l->window, WINDOW_BYTES, WINDOW_SLOTS };
	h->logs = (struct layout_array){ l->logs, LOG_STRIDE, LOGS };
	h->pins = (struct layout_array){ l->pins, sizeof(pin_slot), s->tensors };
	h->fences = (struct layout_array){ l->fences, sizeof(struct fence), FENCES };
	h->streams = (struct layout_array){ l->streams, sizeof(struct stream_word), STREAMS };
	h->deferred = (struct layout_array){ l->deferred, DEFERRED_STRIDE, STREAMS };
	h->server_version = PROTOCOL_MINOR;
}

int control_create(const struct segments *s, uint32_t client_id, struct segment *ret,
		   struct err *err)
{
	struct control_layout l;
	int rc;

	control_layout(s->tensors, &l);
	rc = segment_create("tierd-control", l.bytes, false, ret, err);
	if (rc == 0)
		control_header_write(s, client_id, &l, ret->base);
	return rc;
}
