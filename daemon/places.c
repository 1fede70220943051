/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/places.h"

#include "daemon/connection.h"
#include "daemon/server.h"

bool place_counts(const struct connection *c)
{
	return c->state == CONNECTION_SERVING || c->state == CONNECTION_STOPPED;
}

static bool is_silent(const struct connection *c)
{
	return c->state == CONNECTION_HELLO;
}

static unsigned count_of_user(const struct list *connections, uid_t uid,
			      bool (*is)(const struct connection *))
{
	const struct list *it;
	unsigned n = 0;

	list_for_each (it, connections) {
		const struct connection *c = list_entry(it, struct connection, link);

		n += is(c) && c->uid == uid;
	}
	return n;
}

unsigned places_of_user(const struct list *connections, uid_t uid)
{
	return count_of_user(connections, uid, place_counts);
}

unsigned places_silent(const struct list *connections, uid_t uid)
{
	return count_of_user(connections, uid, is_silent);
}

uint64_t places_open(const struct list *connections, bool guests)
{
	const struct list *it;
	uint64_t n = 0;

	list_for_each (it, connections) {
		const struct connection *c = list_entry(it, struct connection, link);

		n += c->state != CONNECTION_DEAD && c->guest == guests;
	}
	return n;
}

static bool may_go(const struct connection *c)
{
	return is_silent(c) && !c->refused && !server_may_look(c->uid);
}

struct connection *places_most_silent(const struct list *connections,
				      const struct connection *newcomer)
{
	struct connection *first = NULL;
	const struct list *it;

	/* They stand in the order in which they came. */
	list_for_each (it, connections) {
		struct connection *c = list_entry(it, struct connection, link);

		if (c == newcomer || !may_go(c))
			continue;
		if (places_silent(connections, c->uid) > 1)
			return c;
		if (first == NULL)
			first = c;
	}
	return first;
}
