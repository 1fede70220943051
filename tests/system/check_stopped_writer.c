/* SPDX-License-Identifier: Apache-2.0
 *
 * A writer that was stopped between its pin and `filled`, played by hand, and who copies beside it.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/protocol/pin.h"
#include "tests/system/client_rig.h"
#include "tests/system/wire.h"

#define DRAM MIB(10) /* staging is the rest */
#define CONFIG                                   \
	"tensors: 4Ki\n"                         \
	"staging: 2MiB\n"                        \
	"tiers:\n"                               \
	"  hbm: {backend: memory, size: 4MiB}\n" \
	"  dram: {size: 12MiB}\n"                \
	"  nvme: {paths: [{path: @NVME@, size: 64MiB}], block: 64KiB}\n"

static void begin(void)
{
	system_start(s, CONFIG);
	connect_as("job");
}

/* Its bytes, all of them `byte`, are on nvme alone then. */
static void sink(tierd_tensor h, int byte)
{
	tierd_tensor all = make(DRAM);
	struct tierd_info info;
	struct tierd_view v;

	fill(h, TIERD_HOST, byte);
	v = hold(all, TIERD_HOST, TIERD_READ);
	tierd_release(t, &v);
	ck_assert_int_eq(tierd_destroy(t, &all, 1), 0);
	ck_assert_int_eq(tierd_stat(t, h, &info), 0);
	ck_assert_uint_eq(info.stored_bytes[TIERD_HBM] + info.stored_bytes[TIERD_DRAM], 0);
	ck_assert_uint_eq(info.stored_bytes[TIERD_NVME], info.bytes);
}

/* As libtierd does, up to where `filled` would be said: returns where the front is. */
static char *discard_and_stop(struct wire *w, tierd_tensor h, uint8_t place)
{
	const struct sq_entry e = { .opcode = OP_ACQUIRE,
				    .index = h.index,
				    .generation = h.generation,
				    .place = place,
				    .access = ACCESS_WRITE | ACCESS_DISCARD,
				    .timeout_ns = WAIT };
	const struct descriptor *d = wire_descriptor(w, h.index);
	struct cq_entry c;
	uint64_t old;

	ck_assert_int_eq(wire_call(w, &e, &c), 0);
	ck_assert(pin_raise(wire_pin(w, h.index), ACCESS_WRITE, &old));
	ck_assert_uint_eq(word0_state(d->word0), STATE_RESIDENT);
	ck_assert_uint_eq(word0_place(d->word0), place);
	ck_assert(word0_flags(d->word0) & FLAG_UNFILLED);
	return (char *)w->arena[word1_arena(d->word1)] + word1_offset(d->word1);
}

static void copies_are(tierd_tensor h, uint64_t bytes, int byte)
{
	unsigned char *out = malloc(bytes);

	ck_assert_ptr_nonnull(out);
	memset(out, ~byte, bytes);
	alarm(WAIT / NS_PER_S);
	ck_assert_msg(tierd_copy_out(t, h, 0, out, bytes) == 0, "%s", tierd_error(t));
	alarm(0);
	ck_assert_int_eq(out[0], byte);
	ck_assert(memcmp(out, out + 1, bytes - 1) == 0);
	free(out);
}

START_TEST(copies_bring_what_a_stopped_writer_has_not_overwritten)
{
	const uint64_t bytes = MIB(3);
	tierd_tensor h = make(bytes);
	struct wire w;
	uint64_t old;
	char *at;

	ck_assert_int_eq(wire_open(s->socket, "job", &w), 0);
	sink(h, 0x5a);
	discard_and_stop(&w, h, 0);
	copies_are(h, bytes, 0x5a);
	ck_assert(pin_lower(wire_pin(&w, h.index), ACCESS_WRITE, &old)); /* as if he died */
	copies_are(h, bytes, 0x5a);
	at = discard_and_stop(&w, h, PROTOCOL_PLACE_HOST);
	copies_are(h, bytes, 0x5a);
	atomic_fetch_or(wire_pin(&w, h.index), PIN_FILLED);
	memset(at, 0x77, bytes);
	copies_are(h, bytes, 0x77);
	expect(h, TIERD_HOST, 0x77);
	wire_close(&w);
}
END_TEST

UNIT_MAIN_WITH(begin, end, "stopped_writer", copies_bring_what_a_stopped_writer_has_not_overwritten)
