/* SPDX-License-Identifier: Apache-2.0
 *
 * The completion ring: reaping it, sleeping on it as the leader of all waiting threads, and
 * noticing that the daemon has gone. Every function wants `lock` held; completion_sleep() lets it
 * go while it sleeps. request.c's alone.
 */
#ifndef TIERD_CLIENT_COMPLETION_H
#define TIERD_CLIENT_COMPLETION_H

#include "libclient/client.h"

enum { WORD_PENDING, WORD_DONE, WORD_LEAD };

/* Takes all that came: fills completions and wakes their threads. */
void completion_reap(struct tierd *t);
/* The leader's sleep: until something came, `until_ns`, or some time has passed. -EINTR. */
int completion_sleep(struct tierd *t, uint64_t until_ns);
/* `r` does not wait any more: if it led, another waiting thread leads from now on. */
void completion_hand_over(struct tierd *t, struct request *r);
/* Breaks the connection if the daemon has hung up. */
void completion_check_daemon(struct tierd *t);
/* Ends an outstanding request of a broken connection with -EPIPE. */
void completion_abandon(struct tierd *t, struct request *r);
/* Gives id and slots back. */
void request_give_back(struct tierd *t, struct request *r);

#endif
