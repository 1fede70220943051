/* SPDX-License-Identifier: Apache-2.0
 *
 * The benchmark `nvme` of tierd-bench: read, write and mixed GB/s of the nvme tier, without a
 * daemon. Its arguments are those after the benchmark's name; the exit status comes back.
 */
#ifndef TIERD_TOOLS_BENCH_NVME_H
#define TIERD_TOOLS_BENCH_NVME_H

int bench_nvme(int argc, char **argv);

#endif
