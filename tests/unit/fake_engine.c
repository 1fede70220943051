/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_engine.h"

#include <errno.h>
#include <string.h>

#include "daemon/server.h"

struct engine fake_engine;

void fake_engine_reset(void)
{
	memset(&fake_engine, 0, sizeof(fake_engine));
}

static void called(struct engine *e, const char *name, struct holder *h, size_t count,
		   const struct wire_handle *t)
{
	e->calls++;
	e->last = name;
	e->holder = h;
	e->count = count;
	if (t && count > 0)
		e->first = *t;
}

static void name_keep(struct engine *e, const char *name, size_t bytes)
{
	memset(e->name, 0, sizeof(e->name));
	if (name)
		memcpy(e->name, name, bytes);
}

void fake_engine_gone(struct holder *h)
{
	h->used = false;
	server_holder_gone(h);
}

int engine_holder_add(struct engine *e, const char *name_space, size_t name_bytes,
		      const struct holder_tables *tables, int pid, void *user, struct holder **ret,
		      struct err *err)
{
	for (unsigned i = 0; i < FAKE_HOLDERS; i++) {
		struct holder *h = &e->holders[i];

		if (h->used)
			continue;
		*h = (struct holder){ .user = user, .pins = tables->pins, .used = true };
		memcpy(h->name_space, name_space, name_bytes);
		*ret = h;
		return 0;
	}
	return err_set(err, ENOMEM, "fake engine: no holder left");
}

void *engine_holder_user(const struct holder *h)
{
	return h->user;
}

void engine_holder_stop(struct engine *e, struct holder *h)
{
	h->stopped = true;
}

void engine_holder_die(struct engine *e, struct holder *h, uint64_t now_ns)
{
	h->dead = true;
	if (!e->hold_gone)
		fake_engine_gone(h);
}

int engine_create_tensors(struct engine *e, struct holder *h, const struct engine_spec *specs,
			  size_t n, struct wire_handle *ret, uint64_t now_ns, struct err *err)
{
	called(e, "create", h, n, NULL);
	if (e->ends)
		return err_set(err, EAGAIN, "others are ending");
	e->spec = specs[0];
	name_keep(e, specs[0].name, specs[0].name_bytes);
	for (size_t i = 0; i < n; i++)
		ret[i] = (struct wire_handle){ (uint32_t)i, 7 };
	return 0;
}

bool engine_ends(const struct engine *e, const struct holder *h)
{
	return e->ends;
}

int engine_lookup(struct engine *e, struct holder *h, const char *name, size_t name_bytes,
		  struct wire_handle *ret, struct err *err)
{
	called(e, "lookup", h, 0, NULL);
	name_keep(e, name, name_bytes);
	*ret = (struct wire_handle){ 3, 4 };
	return name_bytes == 7 ? err_set(err, ENOENT, "no tensor of that name") : 0;
}

int engine_destroy_tensors(struct engine *e, struct holder *h, const struct wire_handle *t,
			   size_t n, uint64_t now_ns, struct err *err)
{
	called(e, "destroy", h, n, t);
	return 0;
}

int engine_prefetch(struct engine *e, struct holder *h, const struct wire_handle *t, size_t n,
		    uint8_t place, uint64_t now_ns, struct err *err)
{
	called(e, "prefetch", h, n, t);
	e->place = place;
	return 0;
}

int engine_evict(struct engine *e, struct holder *h, const struct wire_handle *t, size_t n,
		 uint64_t now_ns, struct err *err)
{
	called(e, "evict", h, n, t);
	return 0;
}

void engine_step(struct engine *e, struct holder *h, uint64_t now_ns)
{
	called(e, "step", h, 0, NULL);
}

void engine_trim(struct engine *e)
{
	called(e, "trim", NULL, 0, NULL);
}

void engine_mark(struct engine *e, uint64_t now_ns)
{
	called(e, "mark", NULL, 0, NULL);
}

int engine_stat(struct engine *e, struct wire_handle t, void *to, size_t room, struct err *err)
{
	called(e, "stat", NULL, 1, &t);
	e->bytes = room;
	if (room < sizeof(struct wire_info))
		return 0;
	memset(to, 0x5a, sizeof(struct wire_info));
	return sizeof(struct wire_info);
}

size_t engine_list(struct engine *e, uint32_t from, void *to, size_t room, uint32_t *next)
{
	called(e, "list", NULL, from, NULL);
	memset(to, 0xa5, room);
	*next = 99;
	return room;
}

int engine_explain(struct engine *e, struct wire_handle t, void *to, size_t room, uint64_t now_ns,
		   struct err *err)
{
	called(e, "explain", NULL, 1, &t);
	if (room < sizeof(struct wire_explain))
		return 0;
	memset(to, 0x5a, sizeof(struct wire_explain));
	return sizeof(struct wire_explain);
}

size_t engine_quotas(struct engine *e, uint64_t from, void *to, size_t room, uint64_t *next)
{
	called(e, "quotas", NULL, from, NULL);
	memset(to, 0xa6, room);
	*next = 1ull << 41;
	return room;
}

size_t engine_waits(struct engine *e, uint64_t from, void *to, size_t room, uint64_t now_ns,
		    uint64_t *next)
{
	called(e, "waits", NULL, from, NULL);
	memset(to, 0xa5, room);
	*next = 1ull << 40;
	return room;
}

void engine_acquire(struct engine *e, struct holder *h, uint32_t request,
		    const struct wire_handle *t, size_t n, uint8_t place, uint8_t access,
		    uint64_t deadline_ns, uint64_t now_ns)
{
	called(e, "acquire", h, n, t);
	e->request = request;
	e->place = place;
	e->access = access;
	e->deadline_ns = deadline_ns;
}

void engine_acquire_on(struct engine *e, struct holder *h, uint32_t request,
		       const struct wire_handle *t, size_t n, uint8_t place, uint8_t access,
		       uint64_t deadline_ns, uint64_t now_ns)
{
	engine_acquire(e, h, request, t, n, place, access, deadline_ns, now_ns);
	e->last = "acquire_on";
}

void engine_deferred(struct engine *e, struct holder *h, uint64_t now_ns)
{
	e->deferred++;
}

int engine_slab_fd(struct engine *e, struct holder *h, unsigned device, uint64_t offset,
		   uint64_t *ret_bytes, struct err *err)
{
	called(e, "slab_fd", h, 0, NULL);
	e->slab_device = device;
	e->slab_offset = offset;
	*ret_bytes = 4096;
	return e->slab_fd >= 0 ? e->slab_fd : err_set(err, -e->slab_fd, "no memory there now");
}

int engine_slab_gone(struct engine *e, struct holder *h, unsigned device, uint64_t offset,
		     uint64_t now_ns, struct err *err)
{
	called(e, "slab_gone", h, 0, NULL);
	e->slabs_gone++;
	e->slab_device = device;
	e->slab_offset = offset;
	return 0;
}

int engine_slab_kept(struct engine *e, struct holder *h, unsigned device, uint64_t offset,
		     struct err *err)
{
	called(e, "slab_kept", h, 0, NULL);
	e->slab_device = device;
	e->slab_offset = offset;
	return 0;
}

void engine_flush(struct engine *e, struct holder *h, uint32_t request, const struct wire_handle *t,
		  size_t n, uint64_t now_ns)
{
	called(e, "flush", h, n, t);
	e->request = request;
}

void engine_copy(struct engine *e, struct holder *h, uint32_t request, struct wire_handle t,
		 bool in, uint64_t offset, uint64_t bytes, void *window, uint64_t now_ns)
{
	called(e, in ? "copy_in" : "copy_out", h, 1, &t);
	e->request = request;
	e->offset = offset;
	e->bytes = bytes;
	e->window = window;
}

void engine_cancel(struct engine *e, struct holder *h, uint32_t request, uint64_t now_ns)
{
	called(e, "cancel", h, 0, NULL);
	e->cancelled = request;
}

void engine_used(struct engine *e, struct holder *h, uint32_t index, uint8_t place, uint8_t access,
		 uint64_t now_ns)
{
	e->uses++;
	e->use_index = index;
}
