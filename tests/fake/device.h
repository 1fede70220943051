/* SPDX-License-Identifier: Apache-2.0
 *
 * A device of train_gpt on the CPU: the functions of kernels.cu themselves, a warp as 32 threads
 * that run in any order between two sums, products by the BLAS of the CPU. Memory that was not
 * written holds NaN; what was given back is unmapped memory for the sanitizers. Aborts where
 * something is still there at the end. One caller.
 */
#ifndef TIERD_TESTS_FAKE_DEVICE_H
#define TIERD_TESTS_FAKE_DEVICE_H

#include "examples/train_gpt/device.h"

struct device *fake_device_open(void);
/* How often each kernel was launched since the device was opened. */
const uint64_t *fake_device_launches(void);

#endif
