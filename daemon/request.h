/* SPDX-License-Identifier: Apache-2.0
 *
 * Ring entries: one row an opcode says what its payload is and who handles it. An entry is a
 * private copy; its payload is copied once into private memory before anything in it is looked at;
 * every offset and length is checked in u64 without overflow. A wrong entry is answered with a
 * sentence; it never harms anybody but its sender. Control thread.
 */
#ifndef TIERD_DAEMON_REQUEST_H
#define TIERD_DAEMON_REQUEST_H

#include <stdint.h>

#include "daemon/connection.h"

#define REQUEST_SPECS_MAX (PAYLOAD_BYTES / sizeof(struct wire_spec))

/* Private copies of what a request lists; one request at a time is taken apart. */
struct request_scratch {
	_Alignas(8) unsigned char payload[PAYLOAD_BYTES];
	_Alignas(8) unsigned char answer[PAYLOAD_BYTES];
	struct engine_spec specs[REQUEST_SPECS_MAX];
};

enum request_payload {
	REQUEST_NOTHING, /* must be empty */
	REQUEST_HANDLES, /* count handles; one in index, generation when there is none */
	REQUEST_SPECS,
	REQUEST_NAME,
	REQUEST_ROOM, /* room for the answer; nothing is read */
};

struct ring_request;
struct request_row {
	const char *name;
	enum request_payload payload;
	/* 0: done, `value` and `answer_bytes` are set; -errno with the sentence; REQUEST_LATER: the
	 * engine completes it. */
	int (*run)(struct ring_request *r, struct err *err);
};
#define REQUEST_LATER 1

/* NULL: no such opcode. */
const struct request_row *request_row(uint16_t opcode);

/* Handles the entry of a request that was marked outstanding: completes it now or hands it to the
 * engine. */
void request_handle(struct connection *c, const struct sq_entry *entry, uint64_t now_ns);

#endif
