/* SPDX-License-Identifier: Apache-2.0 */
#define OPS_TABLE ops_f32
#define REAL      float
#define REAL_NAME "f32"
#define REAL_EXP  expf
#define REAL_TANH tanhf
#define REAL_SQRT sqrtf
#define REAL_GEMM cblas_sgemm
#include "examples/train_gpt/ops_template.h"
