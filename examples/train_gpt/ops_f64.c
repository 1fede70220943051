/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/train_gpt/ops_template.h"
