/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/error.h"

#include "libclient/tierd.h"

static _Thread_local struct err last_error;

struct err *error_slot(void)
{
	return &last_error;
}

const char *tierd_error(struct tierd *t)
{
	return last_error.text;
}
