/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may have how much of a tier. An *account* is what one row of `namespaces:` says, for all the
 * namespaces that its name means together; account 0 is everybody else's. A *pool* is what a quota
 * is of: each GPU by itself, all of dram, all of nvme. Control thread.
 *
 * What counts are the extents of tensors, reserved ones among them, by the tensor's namespace. The
 * second extent of a tensor that moves within its tier, and the fresh block of a copy, are the
 * engine's (`moving_bytes`): they end with the old one given back.
 */
#ifndef TIERD_ENGINE_QUOTA_H
#define TIERD_ENGINE_QUOTA_H

#include "daemon/engine/state.h"

/* Of one account in one pool. */
struct quota_share {
	uint64_t guarantee_bytes, limit_bytes; /* UINT64_MAX: the pool's size alone */
	/* What it can have whatever others use of their guarantees; at most the limit. */
	uint64_t sure_bytes;
	uint64_t used_bytes;
	uint64_t leaving_bytes;   /* of them, those of running cleans that end in a drop */
	uint64_t wanted_bytes;    /* that its moves from above would like, and its limit refused */
	uint64_t excess_since_ns; /* excess.c: too much is pinned since then; 0: it is not */
	struct clean_trouble trouble; /* of its own tensors */
};

struct account {
	const struct engine_quota *quota; /* NULL: everybody else's */
	struct quota_share pool[ENGINE_DEVICES_MAX];
	/* Admitted, as struct part has it; all of it, and what never leaves dram. */
	uint64_t committed_bytes, small_bytes;
	struct sizes sizes;
	uint64_t nvme_shadow_bytes; /* of what it has of nvme: copies of fronts, which go first */
	uint64_t asked_bytes;       /* used while one request is looked at */
	bool seen;                  /* while one queue is looked at */
	uint64_t pinned_bytes;      /* crowd.c, while it looks at a device: by its */
	uint32_t pinned_last;       /* clients, and which tensor counted last */
	uint64_t ask_all_at_ns[ENGINE_DEVICES_MAX]; /* as struct device has it, for its demands */
};

#define ACCOUNT_NONE 0xffffu /* of no demand: the watermark's */

/* Whose need makes room. */
struct quota_demand {
	const struct account *account; /* NULL: nobody's, the watermark's */
	bool own;                      /* nothing is taken from others */
	bool asks; /* of the request that was looked at last, with `asked_bytes` of all accounts */
	/* Others that are above their guarantee may lose what takes them below it: only where
	 * nothing else is to be had, since tensors go as a whole. */
	bool whole;
};

int quotas_open(struct engine *e, struct err *err);
void quotas_close(struct engine *e);
/* The account of a namespace of that name: the row that names it, else the one with most of it. */
uint16_t quota_find(const struct engine *e, const char *name, size_t bytes);

static inline bool quotas_any(const struct engine *e)
{
	return e->account_count > 1;
}

static inline struct account *account_of(const struct engine *e, uint32_t tensor)
{
	return &e->accounts[e->name_spaces[e->records[tensor].name_space].account];
}
static inline struct account *account_of_holder(const struct engine *e, const struct holder *h)
{
	return &e->accounts[e->name_spaces[h->name_space].account];
}

static inline struct quota_share *share_of(const struct engine *e, uint32_t tensor, uint8_t device)
{
	return &account_of(e, tensor)->pool[e->devices[device].pool];
}

/* Whether the tensor's namespace may take as much more there. */
static inline bool quota_allows(const struct engine *e, uint32_t tensor, uint8_t device,
				uint64_t bytes)
{
	const struct quota_share *s = share_of(e, tensor, device);

	return bytes <= s->limit_bytes && s->used_bytes <= s->limit_bytes - bytes;
}

/* Whether nvme can take so much of the tensor, once copies of its account's fronts have gone. */
static inline bool quota_nvme_takes(const struct engine *e, uint32_t tensor, uint64_t bytes)
{
	const struct quota_share *s = share_of(e, tensor, e->nvme_first);
	uint64_t stays = s->used_bytes - account_of(e, tensor)->nvme_shadow_bytes;

	return bytes <= s->limit_bytes && stays <= s->limit_bytes - bytes;
}

/* An extent was taken or given. */
static inline void quota_count(struct engine *e, uint32_t tensor, uint8_t device, uint64_t bytes,
			       bool in)
{
	uint64_t n = in ? bytes : (uint64_t)0 - bytes;

	share_of(e, tensor, device)->used_bytes += n;
	if (e->devices[device].pool == e->nvme_first &&
	    (e->records[tensor].flags & RECORD_SHADOW << SHADOW_NVME) != 0)
		account_of(e, tensor)->nvme_shadow_bytes += n;
}
static inline void quota_count_moving(struct engine *e, uint8_t device, uint64_t bytes, bool in)
{
	e->devices[e->devices[device].pool].moving_bytes += in ? bytes : (uint64_t)0 - bytes;
}

/* Whether the demand may take the tensor's place on the device. */
bool quota_yields(const struct engine *e, const struct quota_demand *demand, uint32_t tensor,
		  uint8_t device);

/* ---- admission ---- */

/* `charged`: the bytes as admission counts them; `want`: what the class's overcommit makes of
 * those. 0, or -EDQUOT or -ENOSPC with the sentence. */
struct quota_charge {
	uint64_t charged, want;
	bool small;
};
int quota_admit(struct engine *e, const struct account *a, const struct quota_charge *c,
		struct err *err);
void quota_admitted(struct account *a, const struct quota_charge *c, bool in);
/* What dram has to hold of the account at least, beside `beside` bytes of it. */
uint64_t quota_stays_in_dram(const struct engine *e, const struct account *a, uint64_t beside);
/* What of dram tensors of the account could ever come and go in: beside its small ones. */
uint64_t quota_dram_for_moves(const struct engine *e, const struct account *a);

/* ---- requests ---- */

/* The account whose need it is: of its largest tensor. */
struct account *quota_of_request(const struct engine *e, const struct request *q);
/* 0, or -EDQUOT with the sentence: together they are more than what is sure. */
int quota_can_fit(struct engine *e, struct request *q, char *text, size_t room);
/* The account that is at its limit of the request's place, NULL: none; *ret_over: by how many bytes
 * what it lacks passes it. */
struct account *quota_limits(struct engine *e, struct request *q, uint64_t *ret_over);
/* Looks at those who wait for room at the device, each namespace's first. */
void quota_run_queue(struct engine *e, uint8_t device);
/* "namespaces[0] ('job*')" */
const char *quota_text(const struct engine *e, const struct account *a, char text[128]);

#endif
