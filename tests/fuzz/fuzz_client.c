/* SPDX-License-Identifier: Apache-2.0
 *
 * The library beside a daemon that breaks the protocol: hello, headers, descriptors, completions
 * and messages about slabs that cannot be. Each call ends, all of a view can be read, no descriptor
 * is left. The daemon is the fake of the unit tests, in a thread of its own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "libclient/admin.h"
#include "libclient/client.h"
#include "libclient/slab.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/fake_daemon.h"

#define TENSORS   8u
#define CALLS_MAX 64u
#define LATE_NS   1000000ull

static struct fake fake;
static struct fuzz_bytes bytes; /* of the daemon once there is a client: under the fake's lock */

/* ---- before the hello ----------------------------------------------------------------------- */

/* What the client checks once is put back, for the fake uses it as well. */
static struct control_header control;
static struct table_header table;
static bool elsewhere; /* the client may look for parts of C where the fake has none */

static void overwrite(struct fuzz_bytes *b, void *at, size_t room)
{
	for (unsigned n = fuzz_u8(b) % 4; n > 0; n--) {
		size_t i = fuzz_number(b, 2) % room;

		((uint8_t *)at)[i] ^= fuzz_u8(b);
	}
}

static void spoil(struct fake *f, struct hello_reply *reply)
{
	uint8_t what = fuzz_u8(&bytes);

	if (what & 1)
		overwrite(&bytes, reply, sizeof(*reply));
	elsewhere = what & 2;
	if (elsewhere)
		overwrite(&bytes, f->control, offsetof(struct control_header, sq_tail));
	if (what & 4)
		overwrite(&bytes, f->table, offsetof(struct table_header, awake));
	if (what & 8)
		overwrite(&bytes, f->stats, offsetof(struct stats_page, reserved1));
}

/* ---- answers -------------------------------------------------------------------------------- */

static void any_message(struct fuzz_bytes *b)
{
	struct hello_slab m = { .magic = PROTOCOL_MAGIC,
				.kind = fuzz_u8(b) % 4,
				.arena = fuzz_u8(b) % 4,
				.offset = fuzz_u8(b) % 10 * 4096ull,
				.bytes = 4096 };
	uint8_t how = fuzz_u8(b);
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(4 * sizeof(int))];
	} ctl = { 0 };
	struct iovec iov = { &m, how >= 240 ? fuzz_u8(b) % sizeof(m) : sizeof(m) };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };
	unsigned fds = how % 4;

	if (how >= 192)
		overwrite(b, &m, sizeof(m));
	if (fds > 0) {
		h.msg_control = &ctl;
		h.msg_controllen = CMSG_SPACE(fds * sizeof(int));
		ctl.align.cmsg_level = SOL_SOCKET;
		ctl.align.cmsg_type = SCM_RIGHTS;
		ctl.align.cmsg_len = CMSG_LEN(fds * sizeof(int));
		for (unsigned i = 0; i < fds; i++)
			memcpy(CMSG_DATA(&ctl.align) + i * sizeof(int), &fake.arena_fd,
			       sizeof(int));
	}
	(void)!sendmsg(fake.socket_fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Whether it was that of the request, which then has its answer. */
static bool any_completion(struct fuzz_bytes *b, const struct sq_entry *e)
{
	uint8_t how = fuzz_u8(b);
	bool right = how < 128;
	uint32_t id = right ? e->id : (uint32_t)fuzz_number(b, 1 + how % 4);
	int result = how % 2 ? -(int)fuzz_number(b, 1 + how / 2 % 2) : (int)fuzz_number(b, 1);
	uint64_t value = fuzz_number(b, how % 9);
	uint32_t payload_bytes = (uint32_t)fuzz_number(b, 1 + how / 4 % 3);

	right = id == e->id;
	if (right)
		fuzz_copy(b, fake.payloads + e->payload, fuzz_u8(b));
	fake_complete(&fake, id, result, value, payload_bytes, how % 4 == 1 ? "" : "no");
	/* Not every sentence ends. */
	if (how % 64 >= 48)
		memset(fake.texts + (uint64_t)(id % SQ_ENTRIES) * TEXT_BYTES, 'x', TEXT_BYTES);
	return right;
}

static void any_descriptor(struct fuzz_bytes *b)
{
	struct descriptor *t = &fake.descriptors[1 + fuzz_u8(b) % TENSORS];

	overwrite(b, t, sizeof(*t));
}

/* What ends the request; its payload may be another one's by now, and is not believed. */
static void plain_answer(const struct sq_entry *e)
{
	const struct wire_handle first = { 1, 1 };
	uint32_t listed = e->opcode == OP_CREATE || e->opcode == OP_LOOKUP;

	if (listed)
		memcpy(fake.payloads + e->payload, &first, sizeof(first));
	if (e->opcode == OP_ACQUIRE)
		fake_tensor(&fake, 1 + (e->index - 1) % TENSORS, e->generation, STATE_RESIDENT,
			    e->place, 0, 100);
	fake_complete(&fake, e->id, e->opcode == OP_SLAB ? -ENOMEM : 0, 0,
		      listed * (uint32_t)sizeof(first), "no memory");
}

/* Some wrong things, and then an answer, so that each call ends. */
static bool answer(struct fake *f, const struct sq_entry *e)
{
	bool answered = false;

#ifdef __SANITIZE_THREAD__
	plain_answer(e); /* to all else the client may listen while it is written */
	return true;
#endif
	for (unsigned n = 0; n < 4 && !answered; n++) {
		switch (fuzz_u8(&bytes) % 8) {
		case 1:
			any_message(&bytes);
			break;
		case 2:
			any_descriptor(&bytes);
			break;
		case 3 ... 4:
			answered = any_completion(&bytes, e);
			break;
		case 5:
			/* Forward: one that went back would hide the answer, and is silence. */
			f->cq_tail += (uint32_t)fuzz_number(&bytes, 2) % (2 * SQ_ENTRIES);
			break;
		default:
			plain_answer(e);
			answered = true;
		}
	}
	if (!answered)
		plain_answer(e);
	return true;
}

/* ---- the client's calls --------------------------------------------------------------------- */

static int each_info(void *ctx, const struct tierd_info *info)
{
	ASSERT(memchr(info->name, '\0', sizeof(info->name)) != NULL);
	return 0;
}

static int each_wait(void *ctx, const struct admin_wait *w)
{
	ASSERT(memchr(w->name, '\0', sizeof(w->name)) != NULL);
	return 0;
}

static void use(struct tierd *t, tierd_tensor x, uint8_t how)
{
	struct tierd_view v;

	if (tierd_acquire(t, x, TIERD_HOST, how % 2 ? TIERD_WRITE : TIERD_READ, LATE_NS, &v) != 0)
		return;
	for (uint64_t at = 0; at < v.bytes; at += 4096)
		(void)((volatile char *)v.data)[at];
	if (v.bytes > 0)
		(void)((volatile char *)v.data)[v.bytes - 1];
	tierd_release(t, &v);
}

static void explain(struct tierd *t, tierd_tensor x)
{
	struct wire_explain why;
	struct wire_pin pins[4];

	if (admin_explain(t, x, &why, pins, ARRAY_SIZE(pins)) == 0)
		ASSERT(why.pins_listed <= ARRAY_SIZE(pins));
}

static void call(struct tierd *t, uint8_t op, uint8_t arg)
{
	tierd_tensor x = { 1 + arg % TENSORS, 1 };
	struct tierd_spec spec = { .ndim = 1, .shape = { 1000 } };
	struct tierd_info info;
	char room[512] = { 0 };

	switch (op % 12) {
	case 0:
		(void)tierd_create(t, &spec, 1, &x);
		break;
	case 1:
		(void)tierd_lookup(t, "x", &x);
		break;
	case 2 ... 4:
		use(t, x, arg);
		break;
	case 5:
		if (tierd_stat(t, x, &info) == 0)
			(void)each_info(NULL, &info);
		break;
	case 6:
		(void)tierd_copy_out(t, x, arg, room, sizeof(room));
		break;
	case 7:
		(void)tierd_copy_in(t, x, arg, room, sizeof(room));
		break;
	case 8:
		(void)admin_list(t, each_info, NULL);
		break;
	case 9:
		(void)admin_waits(t, each_wait, NULL);
		break;
	case 10:
		explain(t, x);
		break;
	case 11:
		slab_drain(t, true);
		break;
	}
}

static void calls(struct fuzz_bytes *b)
{
	struct tierd *t;

	if (tierd_open(fake.path, "job", TIERD_NO_THREAD, &t) != 0)
		return;
	memcpy((void *)fake.control, &control, offsetof(struct control_header, sq_tail));
	for (unsigned n = 0; n < CALLS_MAX && !fuzz_ended(b) && !elsewhere; n++) {
		uint8_t op = fuzz_u8(b);

		call(t, op, fuzz_u8(b));
	}
	tierd_close(t);
}

/* The first half is the client's, the second the daemon's. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes mine = { data, data + size / 2 };
	unsigned before = fuzz_descriptors();

	bytes = (struct fuzz_bytes){ data + size / 2, data + size };
	fake = (struct fake){ .answer = answer, .spoil = spoil, .slab_bytes = 4096 };
	memset(fake.uuid, 1, sizeof(fake.uuid));
	fake_start(&fake);
	for (uint32_t i = 1; i <= TENSORS; i++)
		fake_tensor(&fake, i, 1, STATE_RESIDENT, PROTOCOL_PLACE_HOST, 0, 100 * i);
	memcpy(&control, (void *)fake.control, sizeof(control));
	memcpy(&table, (void *)fake.table, sizeof(table));
	calls(&mine);
	memcpy((void *)fake.control, &control, offsetof(struct control_header, sq_tail));
	memcpy((void *)fake.table, &table, offsetof(struct table_header, awake));
	fake_stop(&fake);
	fuzz_check_descriptors(before);
	fuzz_count("documents", 1);
	return 0;
}
