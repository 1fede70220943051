/* SPDX-License-Identifier: Apache-2.0
 *
 * The protocol spoken by hand, for tests that must do what the library never would. One thread.
 */
#ifndef TIERD_TESTS_WIRE_H
#define TIERD_TESTS_WIRE_H

#include <stdbool.h>

#include "libclient/protocol/hello.h"
#include "libclient/protocol/ring.h"
#include "libclient/protocol/stats_page.h"

struct wire {
	int fd;
	struct hello_reply reply;
	int fds[HELLO_FDS + HELLO_ARENAS_MAX];
	unsigned fd_count;
	struct control_header *control;
	/* Where the parts of it are, as greeted with: a test may write rubbish over the header. */
	struct layout_array sq, cq, texts, payload, pins;
	const struct table_header *table;
	const struct stats_page *stats;
	void *arena[HELLO_ARENAS_MAX]; /* in the order of the reply; NULL: it has slabs */
	uint32_t sq_tail, cq_head;
};

/* 0 or -errno. */
int wire_connect(const char *path, struct wire *ret);
void wire_hello_fill(const char *name_space, struct hello_request *ret);
int wire_hello(struct wire *w, const char *name_space);
/* The answer to a hello: its result, or -errno; on 0 everything is mapped. Waits 10 s at most. */
int wire_receive(struct wire *w);
/* All of it, in one. */
int wire_open(const char *path, const char *name_space, struct wire *ret);
void wire_bye(struct wire *w);
void wire_close(struct wire *w); /* without a BYE: as a crash does */

static inline void *wire_part(const struct wire *w, uint64_t offset)
{
	return (char *)w->control + offset;
}
static inline void *wire_payload(const struct wire *w, unsigned slot)
{
	return wire_part(w, w->payload.offset + (uint64_t)slot * PAYLOAD_BYTES);
}
static inline const char *wire_text(const struct wire *w, uint32_t id)
{
	return wire_part(w, w->texts.offset + (uint64_t)id * TEXT_BYTES);
}
static inline pin_slot *wire_pin(const struct wire *w, uint32_t index)
{
	return (pin_slot *)wire_part(w, w->pins.offset) + index;
}
static inline const struct descriptor *wire_descriptor(const struct wire *w, uint32_t index)
{
	return (const struct descriptor *)((const char *)w->table + w->table->descriptors_offset) +
	       index;
}

/* Puts an entry and rings the doorbell. */
void wire_submit(struct wire *w, const struct sq_entry *e);
/* Takes one completion if there is one. */
bool wire_poll(struct wire *w, struct cq_entry *ret);
/* Sleeps on cq_tail as a client does; false after `timeout_ms`. */
bool wire_wait(struct wire *w, int timeout_ms, struct cq_entry *ret);
/* Submit and wait; the result, -ETIME when nothing came within 10 s. */
int wire_call(struct wire *w, const struct sq_entry *e, struct cq_entry *ret);

/* CREATE of one tensor of bytes (dtype U8), in payload slot 0. */
int wire_create(struct wire *w, const char *name, uint64_t bytes, struct wire_handle *ret);

#endif
