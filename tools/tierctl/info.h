/* SPDX-License-Identifier: Apache-2.0
 *
 * One tensor's facts, as text and as JSON. One thread.
 */
#ifndef TIERD_TIERCTL_INFO_H
#define TIERD_TIERCTL_INFO_H

#include <stdio.h>

#include "libclient/tierd.h"
#include "tools/tierctl/json.h"

/* namespace/name, escaped; the namespace alone and a slash for a tensor without a name. */
void info_plain_name(FILE *to, const struct tierd_info *i);
/* Members of the open map. */
void info_json_members(struct json *j, const struct tierd_info *i);
/* One object on a line. */
void info_json(FILE *to, const struct tierd_info *i);
/* A paragraph. */
void info_text(FILE *to, const struct tierd_info *i);

#endif
