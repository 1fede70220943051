/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic on a GPU: struct ops with floats in device memory, asynchronous in the stream of a
 * device. One device a process at a time, because the functions of struct ops carry no state.
 */
#ifndef TRAIN_GPT_OPS_CUDA_H
#define TRAIN_GPT_OPS_CUDA_H

#include "examples/train_gpt/device.h"
#include "examples/train_gpt/ops.h"

const struct ops *ops_cuda_open(struct device *d);
/* Gives back what the operations took of the device; before it is closed. */
void ops_cuda_close(void);

#endif
