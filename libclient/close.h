/* SPDX-License-Identifier: Apache-2.0
 *
 * What a release tells a closed connection. Any thread.
 */
#ifndef TIERD_CLIENT_CLOSE_H
#define TIERD_CLIENT_CLOSE_H

#include "libclient/client.h"

/* `views` pins that tierd_close() counted have ended; the last one unmaps and frees `t`. */
void close_view_ended(struct tierd *t, uint64_t views);

#endif
