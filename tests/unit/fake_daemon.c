/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/unit/fake_daemon.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/compiler.h"
#include "libclient/protocol/pin.h"
#include "tests/unit/leftovers.h"

#define PAGES(n) ALIGN_UP(n, 4096)

static void *segment(const char *name, uint64_t bytes, int *ret_fd)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *p;

	ASSERT(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ASSERT(p != MAP_FAILED);
	*ret_fd = fd;
	return p;
}

static struct layout_array array(uint64_t *at, uint32_t stride, uint32_t count)
{
	struct layout_array a = { *at, stride, count };

	*at = PAGES(*at + (uint64_t)stride * count);
	return a;
}

static uint64_t control_bytes(struct control_header *h)
{
	uint64_t at = CONTROL_HEADER_BYTES;

	h->sq = array(&at, sizeof(struct sq_entry), SQ_ENTRIES);
	h->cq = array(&at, sizeof(struct cq_entry), SQ_ENTRIES);
	h->texts = array(&at, TEXT_BYTES, SQ_ENTRIES);
	h->payload = array(&at, PAYLOAD_BYTES, PAYLOAD_SLOTS);
	h->window = array(&at, WINDOW_BYTES, WINDOW_SLOTS);
	h->logs = array(&at, LOG_STRIDE, LOGS);
	h->fences = array(&at, sizeof(struct fence), FENCES);
	h->streams = array(&at, sizeof(struct stream_word), STREAMS);
	h->deferred = array(&at, DEFERRED_STRIDE, STREAMS);
	h->pins = array(&at, sizeof(pin_slot), FAKE_TENSORS);
	return at;
}

static void make_control(struct fake *f)
{
	struct control_header h = { .magic = PROTOCOL_MAGIC,
				    .major = PROTOCOL_MAJOR,
				    .minor = PROTOCOL_MINOR,
				    .header_bytes = CONTROL_HEADER_BYTES,
				    .client_id = 7,
				    .boot_id = 99 };
	char *base;

	h.total_bytes = control_bytes(&h);
	base = segment("fake-c", h.total_bytes, &f->control_fd);
	memcpy(base, &h, sizeof(h));
	f->control = (struct control_header *)(void *)base;
	f->slots = (pin_slot *)(void *)(base + h.pins.offset);
	f->logs = (struct access_log *)(void *)(base + h.logs.offset);
	f->payloads = base + h.payload.offset;
	f->windows = base + h.window.offset;
	f->texts = base + h.texts.offset;
	f->fences = (struct fence *)(void *)(base + h.fences.offset);
	f->streams = (struct stream_word *)(void *)(base + h.streams.offset);
	f->deferred = (struct deferred_ring *)(void *)(base + h.deferred.offset);
}

static void make_table(struct fake *f)
{
	uint64_t bytes = TABLE_HEADER_BYTES + FAKE_TENSORS * sizeof(struct descriptor);

	f->table = segment("fake-t", bytes, &f->table_fd);
	f->table->magic = PROTOCOL_MAGIC;
	f->table->major = PROTOCOL_MAJOR;
	f->table->header_bytes = TABLE_HEADER_BYTES;
	f->table->total_pages = (uint32_t)(bytes / 4096);
	f->table->boot_id = 99;
	f->table->descriptors_offset = TABLE_HEADER_BYTES;
	f->table->descriptors_stride = sizeof(struct descriptor);
	f->table->descriptors_count = FAKE_TENSORS;
	f->descriptors = (struct descriptor *)(void *)((char *)f->table + TABLE_HEADER_BYTES);
}

static void make_segments(struct fake *f)
{
	make_control(f);
	make_table(f);
	f->stats = segment("fake-s", PAGES(sizeof(struct stats_page)), &f->stats_fd);
	f->stats->magic = PROTOCOL_MAGIC;
	f->stats->bytes = sizeof(struct stats_page);
	f->stats->minor = PROTOCOL_MINOR;
	f->stats->boot_id = 99;
	f->arena = segment("fake-d", FAKE_ARENA, &f->arena_fd);
	f->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void fake_tensor(struct fake *f, uint32_t index, uint32_t generation, uint8_t state, uint8_t place,
		 uint16_t flags, uint64_t bytes)
{
	struct descriptor *d = &f->descriptors[index];

	d->bytes = bytes;
	atomic_store(&d->word1, word1_make(0, (uint64_t)index * FAKE_TENSOR_SIZE));
	atomic_store(&d->word0, word0_make(generation, state, place, flags));
}

void fake_gpu_tensor(struct fake *f, uint32_t index, uint8_t state, uint64_t offset, uint64_t bytes)
{
	struct descriptor *d = &f->descriptors[index];

	/* The test's thread and the daemon's take turns here by way of the client. */
	__atomic_store_n(&d->bytes, bytes, __ATOMIC_RELAXED);
	atomic_store(&d->word1, word1_make(1, offset));
	atomic_store(&d->word0, word0_make(1, state, FAKE_GPU, 0));
}

void fake_say_slab(struct fake *f, uint16_t kind, uint64_t offset, int fd)
{
	struct hello_slab slab = { .magic = PROTOCOL_MAGIC,
				   .kind = kind,
				   .arena = 1,
				   .offset = offset,
				   .bytes = f->slab_bytes };
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(fd))];
	} control = { 0 };
	struct iovec iov = { .iov_base = &slab, .iov_len = sizeof(slab) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof(control);
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
	}
	ASSERT(sendmsg(f->socket_fd, &m, MSG_NOSIGNAL) == sizeof(slab));
	if (fd >= 0)
		close(fd);
}

/* `lock` is held. */
static void deferred_one(struct fake *f, uint32_t i)
{
	struct deferred_ring *r = &f->deferred[i];

	while (f->deferred_head[i] != atomic_load(&r->tail)) {
		struct deferred_entry e = r->entries[f->deferred_head[i] % DEFERRED_ENTRIES];
		uint64_t old;

		if (atomic_load(&f->streams[i].value) < e.value)
			return;
		ASSERT(e.index < FAKE_TENSORS && pin_lower(&f->slots[e.index], e.access, &old));
		atomic_store(&r->head, ++f->deferred_head[i]);
	}
}

static void deferred_all(struct fake *f)
{
	for (uint32_t i = 0; i < STREAMS; i++)
		deferred_one(f, i);
}

void fake_deferred(struct fake *f)
{
	pthread_mutex_lock(&f->lock);
	deferred_all(f);
	pthread_mutex_unlock(&f->lock);
}

void fake_complete(struct fake *f, uint32_t id, int result, uint64_t value, uint32_t payload_bytes,
		   const char *text)
{
	struct cq_entry e = {
		.id = id, .result = result, .value = value, .payload_bytes = payload_bytes
	};

	if (id < SQ_ENTRIES)
		snprintf(f->texts + (size_t)id * TEXT_BYTES, TEXT_BYTES, "%s", text);
	ring_put((char *)f->control + f->control->cq.offset, SQ_ENTRIES, &f->control->cq_tail,
		 &f->cq_tail, &e);
	ring_fence();
	if (atomic_exchange(&f->control->cq_waiting, 0) != 0)
		syscall(SYS_futex, &f->control->cq_tail, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void fake_release_held(struct fake *f, int result)
{
	pthread_mutex_lock(&f->lock);
	for (uint32_t i = 0; i < f->held_count; i++)
		fake_complete(f, f->held[i].id, result, 0, 0, "held");
	f->held_count = 0;
	pthread_mutex_unlock(&f->lock);
}

uint32_t fake_peek(struct fake *f, const uint32_t *number)
{
	uint32_t now;

	pthread_mutex_lock(&f->lock);
	now = *number;
	pthread_mutex_unlock(&f->lock);
	return now;
}

void fake_wait_held(struct fake *f, uint32_t n)
{
	while (fake_peek(f, &f->held_count) < n)
		sched_yield();
}

void fake_wait_asleep(struct fake *f)
{
	struct pollfd bell = { .fd = f->doorbell_fd, .events = POLLIN };
	bool sleeps = false;

	while (!sleeps) {
		pthread_mutex_lock(&f->lock);
		sleeps = f->asleep && poll(&bell, 1, 0) == 0;
		pthread_mutex_unlock(&f->lock);
		if (!sleeps)
			usleep(100);
	}
}

void fake_wait_bye(struct fake *f)
{
	while (fake_peek(f, &f->bye) == 0)
		sched_yield();
}

static void cancel(struct fake *f, const struct sq_entry *e)
{
	for (uint32_t i = 0; i < f->held_count; i++) {
		if (f->held[i].id != e->window)
			continue;
		f->held[i] = f->held[--f->held_count];
		fake_complete(f, e->window, -EINTR, 0, 0, "cancelled");
		break;
	}
	fake_complete(f, e->id, 0, 0, 0, "");
}

static void create(struct fake *f, const struct sq_entry *e)
{
	char *payload = f->payloads + e->payload;
	struct wire_handle made[PAYLOAD_BYTES / sizeof(struct wire_spec)];
	uint32_t at = 0;

	for (uint32_t i = 0; i < e->count; i++) {
		struct wire_spec s;

		memcpy(&s, payload + at, sizeof(s));
		ASSERT(s.bytes % 8 == 0 && at + s.bytes <= e->payload_bytes);
		at += s.bytes;
		made[i] = (struct wire_handle){ 1 + f->created++ % (FAKE_TENSORS - 1), 1 };
		fake_tensor(f, made[i].index, 1, STATE_ABSENT, 0, 0, s.ndim ? s.shape[0] : 1);
	}
	ASSERT(at == e->payload_bytes);
	memcpy(payload, made, e->count * sizeof(made[0]));
	fake_complete(f, e->id, 0, 0, e->count * (uint32_t)sizeof(made[0]), "");
}

static void acquire(struct fake *f, const struct sq_entry *e)
{
	const struct wire_handle *list = (void *)(f->payloads + e->payload);
	uint32_t n = e->count == 0 ? 1 : e->count;

	if (f->hold_acquire) {
		f->held[f->held_count++] = *e;
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t index = e->count == 0 ? e->index : list[i].index;
		uint64_t w = atomic_load(&f->descriptors[index].word0);

		atomic_store(&f->descriptors[index].word0,
			     word0_make(word0_generation(w), STATE_RESIDENT, e->place, 0));
	}
	fake_complete(f, e->id, 0, 0, 0, "");
}

static void copy(struct fake *f, const struct sq_entry *e)
{
	char *bytes = f->arena + (uint64_t)e->index * FAKE_TENSOR_SIZE + e->offset;
	char *window = f->windows + (uint64_t)e->window * WINDOW_BYTES;

	ASSERT(e->bytes <= WINDOW_BYTES);
	if (e->opcode == OP_COPY_OUT)
		memcpy(window, bytes, e->bytes);
	else
		memcpy(bytes, window, e->bytes);
	fake_complete(f, e->id, 0, e->bytes, 0, "");
}

static void slab(struct fake *f, const struct sq_entry *e)
{
	int fd = f->slab_fd(f, e->offset);

	ASSERT(e->index == 1 && e->offset % f->slab_bytes == 0);
	if (fd < 0) {
		fake_complete(f, e->id, -ENOMEM, 0, 0, "no descriptor");
		return;
	}
	fake_say_slab(f, SLAB_MAP, e->offset, fd);
	fake_complete(f, e->id, 0, 0, 0, "");
}

static void usual_answer(struct fake *f, const struct sq_entry *e)
{
	switch (e->opcode) {
	case OP_ACQUIRE:
		acquire(f, e);
		break;
	case OP_CANCEL:
		cancel(f, e);
		break;
	case OP_SLAB:
		slab(f, e);
		break;
	case OP_CREATE:
		create(f, e);
		break;
	case OP_COPY_OUT:
	case OP_COPY_IN:
		copy(f, e);
		break;
	default:
		fake_complete(f, e->id, 0, 0, 0, "");
	}
}

static bool drain(struct fake *f)
{
	struct sq_entry e;
	bool any = false;

	pthread_mutex_lock(&f->lock);
	deferred_all(f);
	while (ring_take((char *)f->control + f->control->sq.offset, SQ_ENTRIES,
			 &f->control->sq_tail, &f->sq_head, &e) == 1) {
		any = true;
		f->counts[e.opcode % 64]++;
		if (f->answer == NULL || !f->answer(f, &e))
			usual_answer(f, &e);
	}
	pthread_mutex_unlock(&f->lock);
	return any;
}

static void doorbell(struct fake *f)
{
	uint64_t n;

	if (read(f->doorbell_fd, &n, sizeof(n)) == sizeof(n)) {
		pthread_mutex_lock(&f->lock);
		f->doorbells++;
		pthread_mutex_unlock(&f->lock);
	}
}

static void socket_event(struct fake *f)
{
	struct hello_bye bye;
	ssize_t n = recv(f->socket_fd, &bye, sizeof(bye), MSG_DONTWAIT);

	pthread_mutex_lock(&f->lock);
	if (n == sizeof(bye) && bye.magic == PROTOCOL_MAGIC && strcmp(bye.bye, "BYE") == 0)
		f->bye = 1;
	else if (n == 0)
		f->hung_up = 1;
	pthread_mutex_unlock(&f->lock);
}

static void doze(struct fake *f, struct pollfd *p)
{
	pthread_mutex_lock(&f->lock);
	f->asleep = !f->never_sleep;
	pthread_mutex_unlock(&f->lock);
	poll(p, fake_peek(f, &f->hung_up) ? 2 : 3, f->never_sleep ? 0 : -1);
	pthread_mutex_lock(&f->lock);
	f->asleep = false;
	pthread_mutex_unlock(&f->lock);
}

static void serve(struct fake *f)
{
	struct pollfd p[3] = { { .fd = f->stop_fd, .events = POLLIN },
			       { .fd = f->doorbell_fd, .events = POLLIN },
			       { .fd = f->socket_fd, .events = POLLIN } };

	for (;;) {
		if (!f->never_sleep)
			atomic_store(&f->table->awake, DAEMON_ASLEEP);
		ring_fence();
		if (!drain(f))
			doze(f, p);
		if (p[0].revents != 0)
			return;
		atomic_store(&f->table->awake, DAEMON_POLLING);
		if (p[1].revents != 0)
			doorbell(f);
		if (!fake_peek(f, &f->hung_up) && p[2].revents != 0)
			socket_event(f);
	}
}

static void fill_reply(struct fake *f, struct hello_reply *r)
{
	memset(r, 0, sizeof(*r));
	r->magic = PROTOCOL_MAGIC;
	r->major = PROTOCOL_MAJOR;
	r->minor = PROTOCOL_MINOR;
	r->fds = HELLO_FDS + 1;
	r->boot_id = 99;
	r->client_id = 7;
	r->arenas = 1;
	r->control_bytes = f->control->total_bytes;
	r->table_bytes = (uint64_t)f->table->total_pages * 4096;
	r->stats_bytes = PAGES(sizeof(struct stats_page));
	r->arena[0] = (struct hello_arena){ .arena = 0,
					    .place = PROTOCOL_PLACE_HOST,
					    .bytes = FAKE_ARENA,
					    .zone_bytes = f->zone_bytes };
	if (f->slab_bytes == 0)
		return;
	r->arenas = 2;
	r->arena[1] = (struct hello_arena){ .arena = 1,
					    .place = FAKE_GPU,
					    .bytes = FAKE_SLABS * f->slab_bytes,
					    .slab_bytes = f->slab_bytes };
	memcpy(r->arena[1].uuid, f->uuid, sizeof(f->uuid));
}

static void send_reply(struct fake *f)
{
	int fds[] = { f->control_fd, f->table_fd, f->doorbell_fd, f->stats_fd, f->arena_fd };
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(fds))];
	} control = { 0 };
	struct hello_reply reply;
	struct iovec iov = { .iov_base = &reply, .iov_len = sizeof(reply) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(c), fds, sizeof(fds));
	fill_reply(f, &reply);
	if (f->spoil != NULL)
		f->spoil(f, &reply);
	if (reply.result < 0)
		m.msg_control = NULL, m.msg_controllen = 0;
	ASSERT(sendmsg(f->socket_fd, &m, MSG_NOSIGNAL) == sizeof(reply));
}

static void *fake_main(void *arg)
{
	struct fake *f = arg;
	struct hello_request hello;
	struct pollfd p[2] = { { .fd = f->stop_fd, .events = POLLIN },
			       { .fd = f->listen_fd, .events = POLLIN } };

	poll(p, 2, -1);
	if (p[1].revents == 0)
		return NULL;
	f->socket_fd = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	/* Who names no domain says what any daemon understands. */
	if (recv(f->socket_fd, &hello, sizeof(hello), 0) != HELLO_REQUEST_BYTES_LEAST)
		return NULL;
	if (f->silent) {
		poll(p, 1, -1);
		return NULL;
	}
	send_reply(f);
	serve(f);
	return NULL;
}

void fake_start(struct fake *f)
{
	static _Atomic unsigned serial;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char end[24];

	pthread_mutex_init(&f->lock, NULL);
	make_segments(f);
	/* Tests of one program may each have one at a time, in a process of its own. */
	snprintf(end, sizeof(end), "%d-%u", (int)getpid(), atomic_fetch_add(&serial, 1));
	leftovers_name(f->path, end);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", f->path);
	unlink(f->path);
	f->socket_fd = -1;
	f->stop_fd = eventfd(0, EFD_CLOEXEC);
	f->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ASSERT(bind(f->listen_fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	ASSERT(listen(f->listen_fd, 8) == 0);
	ASSERT(pthread_create(&f->thread, NULL, fake_main, f) == 0);
}

static void stop_thread(struct fake *f)
{
	uint64_t one = 1;

	ASSERT(write(f->stop_fd, &one, sizeof(one)) == sizeof(one));
	pthread_join(f->thread, NULL);
}

void fake_die(struct fake *f)
{
	stop_thread(f);
	close(f->socket_fd);
	f->socket_fd = -1;
	pthread_mutex_lock(&f->lock);
	f->hung_up = 1;
	pthread_mutex_unlock(&f->lock);
}

void fake_stop(struct fake *f)
{
	int fds[] = { f->listen_fd,  f->socket_fd, f->stop_fd,  f->doorbell_fd,
		      f->control_fd, f->table_fd,  f->stats_fd, f->arena_fd };

	if (f->socket_fd >= 0 || !f->hung_up)
		stop_thread(f);
	munmap(f->arena, FAKE_ARENA);
	munmap(f->control, f->control->total_bytes);
	munmap(f->table, (uint64_t)f->table->total_pages * 4096);
	munmap(f->stats, PAGES(sizeof(struct stats_page)));
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	unlink(f->path);
}
