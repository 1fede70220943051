/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands for device_cuda.c where configure found no nvcc.
 */
#include "examples/train_gpt/device.h"
#include "examples/train_gpt/fatal.h"

struct device *device_open_cuda(int ordinal)
{
	fatal("--gpu %d: this train_gpt has no kernels: configure found no CUDA Toolkit with nvcc",
	      ordinal);
}
