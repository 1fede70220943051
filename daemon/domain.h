/* SPDX-License-Identifier: Apache-2.0
 *
 * One domain, whole: its tables, devices, lanes and engine, which know of no other. That domains
 * share nothing is so by construction: whatever a client of one is given was made here for it. The
 * parts are made step by step, each step for all domains before the next one. Control thread.
 */
#ifndef TIERD_DAEMON_DOMAIN_H
#define TIERD_DAEMON_DOMAIN_H

#include <sys/types.h>

#include "daemon/devices.h"
#include "daemon/lanes.h"
#include "daemon/loop.h"
#include "daemon/segments.h"
#include "daemon/server.h"
#include "daemon/share.h"

#define DOMAINS_MAX 32u /* one more than `domains` may have */

struct domain {
	struct share share;
	uid_t *users;
	size_t user_count;
	bool is_default; /* also that of all who are in none */
	struct segments segments;
	struct devices devices;
	struct lanes lanes;
	struct engine_quota *quotas; /* the engine's, as long as it is */
	struct engine *engine;
	struct loop *loop;
	struct loop_source done;
	struct server_domain served;
	char damage[128]; /* what became of its memory, "": nothing */
};

/* All of the configuration, share_count() at most: their shares and their users, who are looked up
 * and differ. On failure, too, those in `ret` are the caller's to destroy. */
int domains_create(const struct settings *whole, struct domain **ret, unsigned *ret_count,
		   struct err *err);
int domain_make_segments(struct domain *d, struct err *err);
int domain_open_devices(struct domain *d, struct topology *topo, struct err *err);
struct loop_side domain_side(struct domain *d);
/* Lanes and engine; from then on `served` is filled. */
int domain_start(struct domain *d, struct loop *loop, struct err *err);

/* Clients can come now. */
void domain_begins(struct domain *d, uint64_t now_ns);
/* Hands to the engine what lanes have done; whether there was anything. */
bool domain_reap(struct domain *d, uint64_t now_ns);
/* The engine's turn, after that of the server; returns when the next one is due. */
uint64_t domain_turn(struct domain *d, uint64_t now_ns);

/* Why its memory is worth nothing any more; NULL: it is whole. */
const char *domain_damage(struct domain *d);

/* Transfers come back; the server has stopped. */
void domain_drain(struct domain *d);
void domain_end_engine(struct domain *d);
/* After the server is gone; whatever was made. */
void domain_destroy(struct domain *d);

bool domain_has_user(const struct domain *d, uid_t uid);

#endif
