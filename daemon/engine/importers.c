/* SPDX-License-Identifier: Apache-2.0
 *
 * Which clients have which slabs mapped. A slab of theirs is not UNBACKED.
 */
#include <errno.h>

#include "base/heap.h"
#include "daemon/engine/slabs.h"

bool slabs_mapped(const struct holder *h, uint8_t tier, uint32_t i)
{
	return h->slabs[tier] != NULL && (h->slabs[tier][i / 64] >> i % 64 & 1) != 0;
}

static struct slabs *find_slab(struct engine *e, unsigned device, uint64_t offset, uint32_t *ret,
			       struct err *err)
{
	struct slabs *s = device < e->params.device_count ? e->devices[device].slabs : NULL;

	if (s != NULL && e->devices[device].tier->base.ops->slab_fd != NULL && offset < s->end &&
	    offset % s->bytes == 0) {
		*ret = (uint32_t)(offset / s->bytes);
		return s;
	}
	err_set(err, EINVAL, "arena %u has no slab at %#llx", device, (unsigned long long)offset);
	return NULL;
}

int engine_slab_fd(struct engine *e, struct holder *h, unsigned device, uint64_t offset,
		   uint64_t *ret_bytes, struct err *err)
{
	uint32_t i;
	struct slabs *s = find_slab(e, device, offset, &i, err);
	struct tier *t;
	int fd;

	ASSERT(!h->dead);
	if (s == NULL)
		return -EINVAL;
	t = e->devices[device].tier;
	if (e->devices[device].lost)
		return err_set(err, ENODEV, "%s was lost", t->base.name);
	if (s->slab[i].state != SLAB_PRESENT)
		return err_set(err, EAGAIN, "%s: there is no memory at %#llx now", t->base.name,
			       (unsigned long long)offset);
	if (h->slabs[device] == NULL)
		h->slabs[device] = heap_zeros((s->count + 63) / 64, sizeof(uint64_t));
	if (h->slabs[device] == NULL)
		return err_set(err, ENOMEM, "no memory for a client's slabs");
	fd = t->base.ops->slab_fd(t, offset);
	if (fd < 0)
		return err_set(err, -fd, "%s: the slab at %#llx has no descriptor", t->base.name,
			       (unsigned long long)offset);
	s->slab[i].importers += !slabs_mapped(h, (uint8_t)device, i);
	h->slabs[device][i / 64] |= 1ull << i % 64;
	*ret_bytes = MIN(s->bytes, s->end - offset);
	return fd;
}

static void forget_import(struct engine *e, struct holder *h, uint8_t tier, uint32_t i)
{
	struct slabs *s = e->devices[tier].slabs;

	if (!slabs_mapped(h, tier, i))
		return;
	h->slabs[tier][i / 64] &= ~(1ull << i % 64);
	ASSERT(s->slab[i].importers > 0);
	s->slab[i].importers--;
	s->slab[i].kept = false;
	slabs_unback_if_free(e, tier);
}

/* Said twice it is still true. */
int engine_slab_gone(struct engine *e, struct holder *h, unsigned device, uint64_t offset,
		     uint64_t now_ns, struct err *err)
{
	uint32_t i;

	if (find_slab(e, device, offset, &i, err) == NULL)
		return -EINVAL;
	e->now_ns = now_ns;
	forget_import(e, h, (uint8_t)device, i);
	return 0;
}

/* A pin that only looked in may have been taken for a use: asked again until it is gone. */
int engine_slab_kept(struct engine *e, struct holder *h, unsigned device, uint64_t offset,
		     struct err *err)
{
	uint32_t i;
	struct slabs *s = find_slab(e, device, offset, &i, err);

	if (s == NULL)
		return -EINVAL;
	if (s->slab[i].state == SLAB_LEAVING && slabs_mapped(h, (uint8_t)device, i))
		e->params.hooks.slab_unmap(e->params.hooks.ctx, h, device, offset);
	return 0;
}

void slabs_holder_gone(struct engine *e, struct holder *h)
{
	for (unsigned d = 0; d < ENGINE_DEVICES_MAX; d++) {
		for (uint32_t i = 0; h->slabs[d] != NULL && i < e->devices[d].slabs->count; i++)
			forget_import(e, h, (uint8_t)d, i);
		heap_free(h->slabs[d]);
		h->slabs[d] = NULL;
	}
}
