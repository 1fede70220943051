/* SPDX-License-Identifier: Apache-2.0
 *
 * tierd-bench: one benchmark a file and a row in main.c. A benchmark prints its results line by
 * line through struct result and says on stderr what failed. Single-threaded unless its file says
 * so.
 */
#ifndef TIERD_TOOLS_BENCH_H
#define TIERD_TOOLS_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Options that all benchmarks share. */
struct bench_options {
	bool json;
	const char *socket; /* of a running daemon; NULL: a private one is started and ended */
	const char *part;   /* copy: links or disks alone; NULL: both */
	const char *dir;    /* where a private daemon's nvme file lies */
	unsigned clients;   /* acquire: at most, 0: the usual ones */
	unsigned seconds;   /* acquire: each measurement */
	unsigned dram_gib;  /* start: GiB of dram */
	bool is_long;       /* verify: the sizes that take minutes too */
	bool quick;         /* little of everything: shows that it works, no figures */
};

struct bench {
	const char *name, *help;
	/* 0, or the exit status. */
	int (*run)(const struct bench_options *o);
	/* Instead of `run`: parses its own options. */
	int (*run_alone)(int argc, char **argv);
};

int bench_acquire(const struct bench_options *o);
int bench_death(const struct bench_options *o);
int bench_miss(const struct bench_options *o);
int bench_copy(const struct bench_options *o);
int bench_gpu(const struct bench_options *o);
int bench_scale(const struct bench_options *o);
int bench_start(const struct bench_options *o);
int bench_verify(const struct bench_options *o);

/* ---- results: an object a line, or a line for people ---- */

struct result {
	bool json;
};

void result_begin(struct result *r, const struct bench_options *o, const char *bench);
void result_count(struct result *r, const char *key, uint64_t value);
void result_real(struct result *r, const char *key, double value);
void result_flag(struct result *r, const char *key, bool value);
void result_text(struct result *r, const char *key, const char *value);
void result_end(struct result *r);
/* A remark for people; nothing with --json. */
void result_note(const struct bench_options *o, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Sorts `values`; n > 0. */
double median(double *values, unsigned n);

/* Says "tierd-bench: what: sentence of the library". Returns 1, the exit status. */
int bench_failed(const char *what);

/* ---- a daemon to measure ---- */

struct bench_daemon {
	pid_t pid;    /* 0: none */
	bool private; /* ours to end */
	char dir[256], config[280];
	char socket[108];
};

/* What a private daemon is configured with; 0 bytes: no such tier. */
struct bench_config {
	uint64_t hbm_bytes, dram_bytes, nvme_bytes, staging_bytes;
	unsigned overcommit_percent; /* of class other; 0: the default */
	const char *hbm_backend;     /* NULL: memory */
	bool dram_later;             /* dram comes in the background, as it does by default */
	unsigned spin_us;            /* the control thread polls so long before it sleeps */
};

/* Copies of 32 MiB, two at once, come back every 0.6 ms: a thread that gives up before that is
 * asleep when the next one does, and costs the time to wake it. */
#define BENCH_SPIN_US 1000
/* This process's client spins as long, unless the environment says otherwise. */
void bench_spin(void);

/* With --socket: finds its pid only. 0, or 1 after saying why. */
int daemon_start(const struct bench_options *o, const struct bench_config *c,
		 struct bench_daemon *ret);
/* Ends a private daemon by SIGTERM. 0, or 1 when it did not end well. */
int daemon_stop(struct bench_daemon *d);

/* Time on a CPU of the daemon's control thread, of all its threads; its resident memory. */
uint64_t daemon_control_ns(const struct bench_daemon *d);
uint64_t daemon_cpu_ns(const struct bench_daemon *d);
uint64_t daemon_rss_bytes(const struct bench_daemon *d);

#endif
