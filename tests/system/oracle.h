/* SPDX-License-Identifier: Apache-2.0
 *
 * The byte oracle: what every tensor must hold, kept in memory that all test processes share. A
 * tensor is divided into chunks of 64 KiB with a version each; bytes follow from (seed, version,
 * position), version 0 is zeros. Workers of several processes read, write, discard, copy, hint and
 * destroy at random and check what they see under their pin, while tierd moves everything about.
 * tierd does not arbitrate between writers, so a tensor has a reader-writer lock here.
 */
#ifndef TIERD_TESTS_ORACLE_H
#define TIERD_TESTS_ORACLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/tierd.h"
#include "tests/system/system.h"

#define ORACLE_CHUNK       65536u
#define ORACLE_TENSORS_MAX 256u
#define ORACLE_NAME_SPACE  "oracle"

struct oracle_tensor {
	pthread_rwlock_t lock; /* of everything below, and of the tensor's bytes */
	tierd_tensor handle;
	uint64_t bytes, seed;
	uint32_t first_chunk, chunks; /* in oracle.version */
};

struct oracle_params {
	uint64_t host_max,
		gpu_max;     /* largest tensor that a place takes; gpu_max 0: no such place */
	unsigned gpus;       /* places 0, 1, ...; 0 is 1 */
	uint64_t batch_max;  /* bytes of a batch */
	bool no_nvme;        /* nothing can be flushed */
	uint64_t patience_s; /* for an answer; 0: 60 */
	bool io_fails;       /* -EIO and -ENOSPC may come back; bytes may not differ all the same */
};

struct oracle {
	struct oracle_params params;
	uint32_t count, chunks;
	struct oracle_tensor tensor[ORACLE_TENSORS_MAX];
	_Atomic uint64_t end_ns; /* workers stop then */
	_Atomic uint64_t operations, checked_bytes, io_errors;
	uint32_t version[];
};

/* Shared memory for `chunks_max` chunks; tensors are created one by one, in class order. */
struct oracle *oracle_open(const struct oracle_params *params, uint64_t bytes_max);
void oracle_close(struct oracle *o);
void oracle_add(struct oracle *o, struct tierd *t, uint64_t bytes);

/* One process's work until end_ns; ends the process with status 1 and a sentence on any mismatch.
 */
void oracle_work(struct system *s, struct oracle *o, unsigned seed);
/* `workers` processes for `seconds`; then every byte of every tensor is checked in each place. */
void oracle_run(struct system *s, struct oracle *o, unsigned workers, unsigned seconds);
/* By one connection: every byte of one tensor anew. */
void oracle_rewrite(struct oracle *o, struct tierd *t, uint32_t tensor);
/* By one process: all tensors in every place that takes them, and by copies. It is not the test's
 * own, which may have to fork again: no driver of a GPU survives that. */
void oracle_check_all(struct system *s, struct oracle *o);

#endif
