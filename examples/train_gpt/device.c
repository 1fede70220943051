/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/train_gpt/device.h"

void device_close(struct device *d)
{
	if (d != NULL)
		d->calls->close(d->state);
}
