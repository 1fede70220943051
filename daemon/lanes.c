/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "daemon/lanes.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/plural.h"

#define REAP_BATCH 32u

int lanes_start(struct tier *const *devices, unsigned count, struct lanes *l, struct err *err)
{
	ASSERT(count <= ENGINE_DEVICES_MAX);
	*l = (struct lanes){ .done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	list_init(&l->refused);
	if (l->done_fd < 0)
		return err_set(err, errno, "lanes: eventfd: %s", strerror(errno));
	for (; l->count < count; l->count++) {
		int rc = lane_start(devices[l->count], l->done_fd, &l->done_wanted,
				    &l->lane[l->count], err);

		if (rc < 0) {
			lanes_stop(l);
			return rc;
		}
	}
	return 0;
}

void lanes_stop(struct lanes *l)
{
	ASSERT(list_empty(&l->refused));
	while (l->count > 0)
		lane_stop(l->lane[--l->count]);
	if (l->done_fd >= 0)
		close(l->done_fd);
	l->done_fd = -1;
}

void lanes_submit(struct lanes *l, unsigned device, struct xfer *x)
{
	ASSERT(device < l->count);
	if (l->closed) {
		x->result = -ECANCELED;
		snprintf(x->cause, sizeof(x->cause), "the daemon ends");
		list_push_back(&l->refused, &x->link);
		return;
	}
	lane_submit(l->lane[device], x);
	l->kick[device] = true;
}

void lanes_kick(struct lanes *l)
{
	for (unsigned i = 0; i < l->count; i++) {
		if (l->kick[i])
			lane_kick(l->lane[i]);
		l->kick[i] = false;
	}
}

static unsigned lane_reap_some(struct lane *lane, struct engine *engine, unsigned budget,
			       uint64_t now_ns)
{
	struct xfer *done[REAP_BATCH];
	unsigned total = 0;

	while (total < budget) {
		unsigned n = lane_reap(lane, done, REAP_BATCH);

		for (unsigned i = 0; i < n; i++)
			engine_xfer_done(engine, done[i], now_ns);
		total += n;
		if (n < REAP_BATCH)
			break;
	}
	return total;
}

unsigned lanes_reap(struct lanes *l, struct engine *engine, unsigned budget, uint64_t now_ns)
{
	unsigned total = 0;

	for (unsigned i = 0; i < l->count; i++)
		total += lane_reap_some(l->lane[i], engine, budget, now_ns);
	return total;
}

static void refused_return(struct lanes *l, struct engine *engine)
{
	struct list *entry;

	while ((entry = list_pop_front(&l->refused)) != NULL)
		engine_xfer_done(engine, list_entry(entry, struct xfer, link), clock_now_ns());
}

void lanes_drain(struct lanes *l, struct engine *engine)
{
	struct pollfd p = { l->done_fd, POLLIN, 0 };
	uint64_t drop;

	lanes_kick(l);
	l->closed = true;
	for (unsigned i = 0; i < l->count; i++)
		lane_ending(l->lane[i]);
	while (engine_in_flight(engine) > 0) {
		unsigned n;

		/* As in the control loop: say that a wake-up is wanted, look, then block. */
		atomic_store(&l->done_wanted, 1);
		n = lanes_reap(l, engine, UINT32_MAX, clock_now_ns());
		refused_return(l, engine);
		if (n > 0 || engine_in_flight(engine) == 0)
			continue;
		if (poll(&p, 1, 1000) == 0)
			log_info(LANE, "waiting for %u %s to come back", engine_in_flight(engine),
				 PLURAL(engine_in_flight(engine), "transfer", "transfers"));
		while (read(l->done_fd, &drop, sizeof(drop)) > 0)
			;
	}
}
