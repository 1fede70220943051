/* SPDX-License-Identifier: Apache-2.0
 *
 * The fences that the daemon handed to this connection: which are outstanding, whether what they
 * stand for failed, and letting the streams go when the daemon is dead. `fence_lock` guards them;
 * no call is made below it. Any thread.
 */
#ifndef TIERD_CLIENT_FENCE_H
#define TIERD_CLIENT_FENCE_H

#include "libclient/client.h"

/* A token came: from now on the fence is watched. Only then may a stream be told to wait for it.
 * -EPIPE: nobody would ever store its value; -EPROTO. */
int fence_expect(struct tierd *t, uint64_t token);
/* Token 0 has passed. */
bool fence_passed(struct tierd *t, uint64_t token);
/* The word that a stream waits on. */
void *fence_word(struct tierd *t, uint64_t token);
/* -EIO with the sentence of the first failure since the last call, else 0. */
int fence_failure(struct tierd *t);
/* -EIO with the sentence if that of this token has passed and failed, else 0. */
int fence_token_failure(struct tierd *t, uint64_t token);
/* Of this tensor, whose fill failed: -EIO with the sentence, so that fence_failure() need not say
 * it. Why is told where it is known still: of one tensor, the last whose fence was seen to fail. */
int fence_failure_of(struct tierd *t, tierd_tensor h);
/* No stream can be waiting any more. */
bool fence_none_left(struct tierd *t);
/* The daemon is dead: stores all values in its place. */
void fence_let_go(struct tierd *t);

#endif
