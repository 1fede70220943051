/* SPDX-License-Identifier: Apache-2.0
 *
 * The device of tests/fake/device.h behind a stream of the fake CUDA driver: what it computes runs
 * when the stream gets there, in the driver's thread, on memory that the driver knows. So libtierd
 * and a tierd on the same driver can be used with it. One caller.
 */
#ifndef TIERD_TESTS_FAKE_DEVICE_STREAM_H
#define TIERD_TESTS_FAKE_DEVICE_STREAM_H

#include "examples/train_gpt/device.h"

/* After open_fake() of tests/unit/cuda_rig.h. */
struct device *fake_device_stream_open(void);

#endif
