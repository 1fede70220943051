/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors by name, in every namespace, or one by its handle. A name is looked for in the list of
 * all tensors: a lookup would need a connection inside the job's namespace. One thread.
 */
#ifndef TIERD_TIERCTL_FIND_H
#define TIERD_TIERCTL_FIND_H

#include "libclient/tierd.h"
#include "tools/tierctl/command.h"

/* Calls `each` for those that a->operand names, of a->name_space where that was given. A value
 * other than 0 from `each` ends it. STATUS_OK, or the exit status after command_failed(): there is
 * none, or the daemon cannot be asked. */
int find_tensors(const struct arguments *a, struct tierd *t,
		 int (*each)(void *ctx, struct tierd *t, const struct tierd_info *i), void *ctx);

#endif
