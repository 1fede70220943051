/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/policy.h"

#include <string.h>

#include "base/compiler.h"

/* One line a policy; the order is that of the reference. */
#define POLICIES(X)     \
	X(lru)          \
	X(fifo)         \
	X(hotness)      \
	X(pin_fraction) \
	X(next_use)

#define X(name) extern const struct policy_ops policy_##name;
POLICIES(X)
#undef X

const struct policy_ops *const policy_all[] = {
#define X(name) &policy_##name,
	POLICIES(X)
#undef X
		NULL,
};

const struct policy_ops *policy_find(const char *name)
{
	for (size_t i = 0; policy_all[i] != NULL; i++)
		if (strcmp(policy_all[i]->name, name) == 0)
			return policy_all[i];
	return NULL;
}
