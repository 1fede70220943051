/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests that carry a list of handles, in as many payloads as they need. Any thread.
 */
#ifndef TIERD_CLIENT_HANDLES_H
#define TIERD_CLIENT_HANDLES_H

#include "libclient/request.h"

/* Sends `n` handles as `opcode`, a full payload at a time. All are sent whatever is answered; the
 * first failure is returned. With CALL_SIGNALS in `needs` a signal ends it. n = 0: one empty list.
 */
int handles_send(struct tierd *t, uint16_t opcode, unsigned needs, uint8_t place,
		 const tierd_tensor *tensors, size_t n);

#endif
