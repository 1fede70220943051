/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/losses.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "tests/sim/client.h"

/* Whatever SIM_STEPS says: a run that is cut short is the same run. */
#define WITHIN_STEPS 3000u
#define LAST_STEPS   64u
#define SHAKEN_STEPS 60u /* in which what was lost is found, and clients die of it */

/* One in four so late that it is found out while what is left is answered. */
static uint64_t any_step(struct stepper *s)
{
	uint64_t within = s->trouble->lose_within > 0 ? s->trouble->lose_within : WITHIN_STEPS;

	return below(s, 4) ? below(s, within) : within - 1 - below(s, LAST_STEPS);
}

void losses_plan(struct stepper *s)
{
	for (unsigned d = 0; d < ARRAY_SIZE(s->lose_at); d++)
		s->lose_at[d] = UINT64_MAX;
	for (unsigned d = 0; s->trouble->losses && d < s->world.shape.hbm; d++)
		if (d == 0 || below(s, 2))
			s->lose_at[d] = any_step(s);
}

/* FILLING names where it goes to, and not which GPU has the bytes still. */
static bool is_on_lost(const struct stepper *s, const struct wire_info *info)
{
	bool moves = info->state == STATE_FILLING || info->state == STATE_FAILED;

	for (unsigned d = 0; d < s->world.shape.hbm; d++)
		if (s->world.devices[d].lost && info->state != STATE_ABSENT &&
		    (info->place == d || (moves && info->stored_bytes[TIER_KIND_HBM] > 0)))
			return true;
	return false;
}

/* Asked before the engine can find out, since until then it may drop what stands below. */
static void look(struct stepper *s, struct model *m)
{
	char room[512] __attribute__((aligned(8)));
	const struct wire_info *info = (const struct wire_info *)room;
	struct err err = ERR_INIT;

	if (engine_stat(s->world.engine, m->handle, room, sizeof(room), &err) < 0)
		return;
	if (info->dirty && is_on_lost(s, info))
		m->may_be_lost = true;
}

void losses_look(struct stepper *s)
{
	bool any = false;

	for (unsigned d = 0; d < s->world.shape.hbm; d++)
		any |= s->world.devices[d].lost;
	for (unsigned i = 0; any && i < MODELS; i++)
		if (s->models[i].live)
			look(s, &s->models[i]);
}

void losses_step(struct stepper *s, uint64_t step)
{
	for (unsigned d = 0; d < s->world.shape.hbm; d++)
		if (s->lose_at[d] == step) {
			world_lose(&s->world, d);
			s->shaken = SHAKEN_STEPS;
		}
	losses_look(s);
}

bool losses_front(struct stepper *s, const struct model *m)
{
	uint64_t word1 = atomic_load(&s->world.descriptors[m->handle.index].word1);

	return s->world.devices[word1_arena(word1)].lost;
}

void losses_check_answer(struct stepper *s, const struct want *w, int result, const char *text)
{
	bool lost = strstr(text, "its bytes were on") != NULL;
	bool may = w->n == 0; /* a flush: of whatever there is */

	if (!lost)
		return;
	ASSERT(result == -EIO);
	for (size_t i = 0; i < w->n; i++) {
		const struct model *m = &s->models[w->model[i]];

		may |= !same_tensor(m, w->handle[i]) || m->may_be_lost;
	}
	ASSERT(may);
	s->lost++;
}

void losses_revived(struct stepper *s, struct model *m)
{
	m->may_be_lost = losses_front(s, m);
}
