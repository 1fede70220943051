/* SPDX-License-Identifier: Apache-2.0
 *
 * Ring entries, payloads, pins, access logs, deferred releases and fences of hostile clients, as a
 * language that the input is read as, while a second thread changes the control segments. After
 * each input, and whenever it says so, the engine's invariants hold and an honest client finds its
 * bytes as it left them; at the end nothing of the hostile ones is left.
 */
#include <stdio.h>

#include "base/check.h"
#include "libclient/protocol/pin.h"
#include "tests/fuzz/flipper.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/honest.h"
#include "tests/fuzz/hostile.h"

#define CLIENTS    FLIPPER_TARGETS
#define OPCODES    24u /* two more than there are, and 0 */
#define HANDLES_AN 8u  /* handles or specs that an entry lists */

static struct fuzz_daemon d;
static struct honest honest;
static struct hostile client[CLIENTS];
static struct sq_entry last; /* for repeats */

/* ---- entries -------------------------------------------------------------------------------- */

/* One entry in four is wrong somewhere; of the others most are served, and fill the tiers. */
static bool wild;

static struct wire_handle any_handle(struct fuzz_bytes *b, const struct hostile *c)
{
	uint8_t pick = fuzz_u8(b);
	struct wire_handle t = c->handle[pick % HOSTILE_HANDLES];

	if (pick < 32 || t.index == 0)
		t = honest.tensor[pick % HONEST_TENSORS].handle;
	else if (pick < 64)
		t = client[c->number ^ 1].handle[pick % HOSTILE_HANDLES];
	else if (wild && pick < 128)
		t.index = (uint32_t)fuzz_number(b, 2);
	else if (wild)
		t.generation += (uint32_t)(int8_t)fuzz_u8(b);
	return t;
}

static uint8_t any_place(struct fuzz_bytes *b)
{
	uint8_t pick = fuzz_u8(b), gpus = (uint8_t)d.world.shape.hbm;

	if (wild && pick < 128)
		return pick;
	return gpus == 0 || pick % 2 == 0 ? PROTOCOL_PLACE_HOST : pick / 2 % gpus;
}

static uint8_t any_access(struct fuzz_bytes *b)
{
	static const uint8_t all[] = { ACCESS_READ, ACCESS_WRITE, ACCESS_READ | ACCESS_WRITE,
				       ACCESS_WRITE | ACCESS_DISCARD };
	uint8_t pick = fuzz_u8(b);

	return wild && pick < 128 ? pick : all[pick % ARRAY_SIZE(all)];
}

static int64_t any_timeout(struct fuzz_bytes *b)
{
	static const int64_t all[] = { -1,  (int64_t)NS_PER_MS, 50 * (int64_t)NS_PER_MS, 0,
				       100, INT64_MAX };
	uint8_t pick = fuzz_u8(b);

	return wild && pick < 128 ? (int64_t)fuzz_number(b, 8) : all[pick % ARRAY_SIZE(all)];
}

static uint32_t put_handles(struct fuzz_bytes *b, struct hostile *c, char *to, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct wire_handle t = any_handle(b, c);

		memcpy(to + i * sizeof(t), &t, sizeof(t));
	}
	return n * (uint32_t)sizeof(struct wire_handle);
}

static uint32_t put_spec(struct fuzz_bytes *b, char *to)
{
	static const uint32_t sizes[] = { 1, 511, 4096, 4097, 16384, 50000, 150000, 700000 };
	uint8_t pick = fuzz_u8(b), kind = fuzz_u8(b);
	uint8_t name_bytes = kind % 8 == 0 ? 1 + kind / 8 % 4 : 0;
	struct wire_spec spec = { .bytes = (uint32_t)ALIGN_UP(sizeof(spec) + name_bytes, 8),
				  .class_ = kind / 8 % PROTOCOL_CLASSES,
				  .ndim = 1,
				  .name_bytes = name_bytes,
				  .shape = { sizes[pick % 8] } };

	if (kind >= 192 && d.world.shape.zone)
		spec.flags = SPEC_DEVICE_COPY;
	if (wild && pick < 64) {
		spec.class_ = fuzz_u8(b);
		spec.dtype = fuzz_u8(b);
		spec.ndim = fuzz_u8(b);
		spec.flags = fuzz_u8(b);
		for (unsigned i = 0; i < PROTOCOL_NDIM_MAX; i++)
			spec.shape[i] = fuzz_number(b, 3);
	}
	memcpy(to, &spec, sizeof(spec));
	memset(to + sizeof(spec), 'a' + pick % 4, spec.bytes - sizeof(spec));
	return spec.bytes;
}

static uint32_t put_specs(struct fuzz_bytes *b, char *to, uint32_t n)
{
	uint32_t bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		bytes += put_spec(b, to + bytes);
	return bytes;
}

static void put_payload(struct fuzz_bytes *b, struct hostile *c, struct sq_entry *e)
{
	char *to = hostile_part(c, c->at.payload + e->payload);
	uint8_t pick = fuzz_u8(b);

	e->count = 1 + pick % HANDLES_AN;
	switch (e->opcode) {
	case OP_CREATE:
		e->payload_bytes = put_specs(b, to, e->count);
		break;
	case OP_LOOKUP:
		memset(to, 'a' + pick % 4, 4);
		e->payload_bytes = 1 + pick / 8 % 4;
		break;
	case OP_ACQUIRE:
	case OP_ACQUIRE_ON:
	case OP_DESTROY:
	case OP_PREFETCH:
	case OP_EVICT:
	case OP_FLUSH:
		if (pick >= 192 && e->opcode != OP_DESTROY)
			e->payload_bytes = put_handles(b, c, to, e->count);
		else
			e->count = 1;
		break;
	default:
		e->count = 0;
	}
}

/* Fields that only some opcodes have. */
static void put_range(struct fuzz_bytes *b, struct sq_entry *e)
{
	uint8_t pick = fuzz_u8(b);

	e->window = pick % (WINDOW_SLOTS + wild);
	if (e->opcode == OP_CANCEL)
		e->window = (e->id + pick) % SQ_ENTRIES;
	if (e->opcode == OP_LIST)
		e->offset = pick;
	if (e->opcode == OP_COPY_IN || e->opcode == OP_COPY_OUT) {
		e->offset = (uint64_t)(pick / 16) * 256;
		e->bytes = wild ? fuzz_number(b, 3) : pick % 16 * 32;
	}
	if (e->opcode >= OP_SLAB && e->opcode <= OP_SLAB_KEPT) {
		e->index = pick / 16 % 4;
		e->offset = pick % (WORLD_SLABS + 1) * WORLD_HBM_SLAB;
	}
}

static void mangle(struct fuzz_bytes *b, struct sq_entry *e)
{
	uint8_t at = fuzz_u8(b) % sizeof(*e), n = 1 + fuzz_u8(b) % 8;

	for (unsigned i = at; i < at + n && i < sizeof(*e); i++)
		((uint8_t *)e)[i] ^= fuzz_u8(b);
}

static void turns(unsigned n)
{
	daemon_turns(&d, n);
	for (unsigned i = 0; i < CLIENTS; i++)
		if (client[i].wire.fd >= 0 && !hostile_look(&client[i]))
			hostile_end(&client[i], 1);
}

static void put(struct hostile *c, struct sq_entry *e, bool keep_id)
{
	if (hostile_put(c, e, keep_id))
		return;
	/* Full: the daemon takes some, and answers some. */
	turns(2);
	if (c->wire.fd >= 0)
		hostile_put(c, e, keep_id);
}

static void entry(struct fuzz_bytes *b, struct hostile *c, uint8_t opcode)
{
	uint8_t how = fuzz_u8(b);
	struct sq_entry e = { .id = c->next_id % SQ_ENTRIES, .opcode = opcode };
	struct wire_handle t;

	wild = how >= 192;
	t = any_handle(b, c);
	e.index = t.index;
	e.generation = t.generation;
	e.place = any_place(b);
	e.access = any_access(b);
	/* The payload of an id stands where learn() looks for it. */
	e.payload = e.id % 4 * PAYLOAD_BYTES;
	e.timeout_ns = any_timeout(b);
	put_payload(b, c, &e);
	put_range(b, &e);
	if (how >= 240)
		mangle(b, &e);
	last = e;
	put(c, &e, how == 255);
}

/* The last one again and again: of other tensors, and one in four with a byte that is wrong. */
static void repeat(struct hostile *c, unsigned n, uint32_t random)
{
	for (; n > 0 && c->wire.fd >= 0; n--) {
		struct sq_entry e = last;
		struct wire_handle t = c->handle[n % HOSTILE_HANDLES];

		if (n % 2 == 0)
			t = honest.tensor[n / 2 % HONEST_TENSORS].handle;
		if (e.opcode < OP_SLAB || e.opcode > OP_SLAB_KEPT) {
			e.index = t.index;
			e.generation = t.generation;
		}
		random = random * 1664525u + 1013904223u;
		if (random >> 30 == 0)
			((uint8_t *)&e)[random >> 24] ^= (uint8_t)(1u << (random >> 16) % 8);
		put(c, &e, false);
	}
}

/* ---- everything else ------------------------------------------------------------------------ */

static void pin(struct fuzz_bytes *b, struct hostile *c)
{
	struct wire_handle t = any_handle(b, c);
	pin_slot *slot = wire_pin(&c->wire, t.index % WORLD_TENSORS);
	uint8_t pick = fuzz_u8(b);
	uint64_t old;

	if (pick < 96)
		pin_raise(slot, 1 + pick % 3, &old);
	else if (pick < 192)
		pin_lower(slot, 1 + pick % 3, &old);
	else if (pick < 224)
		atomic_fetch_or(slot, pick % 2 ? PIN_FILLED : PIN_WRITTEN);
	else
		atomic_store(slot, pick < 240 ? 0 : fuzz_number(b, 5));
}

static void log_use(struct fuzz_bytes *b, struct hostile *c)
{
	struct access_log *log = hostile_part(c, c->at.logs);
	struct wire_handle t = any_handle(b, c);
	uint8_t pick = fuzz_u8(b);

	atomic_store(&log->owner, 1);
	for (unsigned n = 1 + pick % 16; n > 0; n--, c->log_head++)
		atomic_store(
			&log->entries[c->log_head % LOG_ENTRIES],
			log_entry_make(t.index + n, PROTOCOL_PLACE_HOST, pick / 16, c->log_head));
	if (pick == 255)
		c->log_head += fuzz_number(b, 4);
	atomic_store_explicit(&log->head, c->log_head, memory_order_release);
}

static void defer(struct fuzz_bytes *b, struct hostile *c)
{
	uint8_t pick = fuzz_u8(b);
	unsigned i = pick % 4;
	struct deferred_ring *ring =
		hostile_part(c, c->at.deferred + i * (uint64_t)DEFERRED_STRIDE);
	struct stream_word *words = hostile_part(c, c->at.streams);
	uint32_t tail = atomic_load(&ring->tail);
	struct wire_handle t = any_handle(b, c);

	ring->entries[tail % DEFERRED_ENTRIES] =
		(struct deferred_entry){ t.index, 1 + pick / 4 % 3, fuzz_u8(b) };
	atomic_store(&ring->tail, tail + 1 + (pick >= 252) * (uint32_t)fuzz_number(b, 2));
	if (pick & 64)
		atomic_fetch_add(&words[i].value, fuzz_u8(b));
}

/* What the flipper does, at a place and time that the input says. */
static void poke(struct fuzz_bytes *b, struct hostile *c)
{
	uint64_t at = flipper_offset(fuzz_number(b, 5), WORLD_TENSORS);
	uint64_t value = fuzz_number(b, 1 + fuzz_u8(b) % 8);

	atomic_store((_Atomic uint64_t *)hostile_part(c, at / 8 * 8), value);
}

static void check_all(void)
{
	engine_check(d.world.engine);
	honest_look(&honest);
}

static void step_world(struct fuzz_bytes *b, uint8_t op)
{
	uint8_t pick = fuzz_u8(b);

	switch (op % 8) {
	case 0 ... 3:
		turns(1 + pick % 8);
		break;
	case 4:
		honest_ask(&honest, pick % HONEST_TENSORS,
			   pick & 64 && d.world.shape.hbm > 0 ? 0 : PROTOCOL_PLACE_HOST, pick & 128,
			   NS_PER_MS * (pick / 8 % 8));
		break;
	case 5:
		check_all();
		break;
	case 6:
		d.world.now_ns += pick * NS_PER_MS;
		break;
	case 7:
		d.world.fail_permille = pick % 4 == 0 ? pick : 0;
		break;
	}
}

static bool step(struct fuzz_bytes *b)
{
	uint8_t op = fuzz_u8(b);
	struct hostile *c = &client[op % CLIENTS];

	op /= CLIENTS;
	if (op >= 104) {
		step_world(b, op);
		return true;
	}
	if (c->wire.fd < 0 && !hostile_connect(c))
		return false;
	if (op < 66)
		entry(b, c, op % OPCODES);
	else if (op < 74)
		repeat(c, fuzz_u8(b), fuzz_u8(b) * 2654435761u);
	else if (op < 84)
		pin(b, c);
	else if (op < 88)
		log_use(b, c);
	else if (op < 94)
		defer(b, c);
	else if (op < 102)
		poke(b, c);
	else if (fuzz_u8(b) < 64)
		hostile_end(c, op + fuzz_u8(b));
	return true;
}

/* ---- an input ------------------------------------------------------------------------------- */

static void begin(struct fuzz_bytes *b)
{
	static const struct world_shape shapes[] = {
		{ .hbm = 1, .nvme = 1, .slabs = true },
		{ .hbm = 2, .nvme = 2 },
		{ .nvme = 1 },
		{ .hbm = 1, .slabs = true },
		{ .hbm = 1, .nvme = 1, .zone = true },
		{ 0 },
	};
	uint8_t shape = fuzz_u8(b), burst = fuzz_u8(b);
	uint64_t seed = fuzz_number(b, 2);

	daemon_open(&d, seed, shapes[shape % ARRAY_SIZE(shapes)]);
	honest_join(&honest, &d);
	for (unsigned i = 0; i < CLIENTS; i++)
		client[i] = (struct hostile){
			.daemon = &d, .wire.fd = -1, .number = i, .ghost = DAEMON_PIDS
		};
	/* A quarter without the flipper: these are the same each time. */
	flipper_run(seed, burst < 64 ? 0 : burst);
}

static void end(void)
{
	turns(4);
	check_all();
	flipper_run(1, 0);
	for (unsigned i = 0; i < CLIENTS; i++)
		hostile_end(&client[i], i);
	fuzz_count("ring entries", segments_stats(&d.segments)->requests);
	daemon_bury_clients(&d);
	check_all();
	honest_leave(&honest);
	daemon_close(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static unsigned inputs;
	struct fuzz_bytes b = { data, data + bytes };
	unsigned before;

	daemon_socket();
	before = inputs % 16 == 0 ? fuzz_descriptors() : 0;
	begin(&b);
	while (!fuzz_ended(&b) && step(&b))
		continue;
	end();
	if (inputs++ % 16 == 0)
		fuzz_check_descriptors(before);
	return 0;
}

#ifdef LIBFUZZER
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t room, unsigned seed);

/* Inputs are long: the start of a daemon takes as long as a thousand entries. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t room, unsigned seed)
{
	size_t least = room / 2 + seed % (room / 2 + 1);

	bytes = LLVMFuzzerMutate(data, bytes, room);
	for (; bytes < least; bytes++) {
		seed = seed * 1664525u + 1013904223u;
		data[bytes] = (uint8_t)(seed >> 24);
	}
	return bytes;
}
#endif
