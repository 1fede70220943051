/* SPDX-License-Identifier: Apache-2.0
 *
 * A command of tierctl: one row of command_all and one function, in a file of its own. Usage lines,
 * --help and docs/tierctl.md come from the rows. One thread.
 */
#ifndef TIERD_TIERCTL_COMMAND_H
#define TIERD_TIERCTL_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Exit statuses. */
enum status {
	STATUS_OK = 0,
	STATUS_FAILED =
		1, /* the daemon cannot be reached, no such tensor, a configuration is wrong */
	STATUS_USAGE = 2, /* the command line is wrong: nothing was done */
	STATUS_FOUND = 3, /* done, and what was looked for is there: only of leaks */
};

/* X(letter, member, "name", "ARGUMENT" or NULL, for_all, "help"): an option. Those that are not for
 * all commands stand in the rows that take them, as OPTION_letter; with NULL for help each of these
 * says what it means there. */
#define OPTIONS(X)                                                                                \
	X(S, socket, "socket", "PATH", true,                                                      \
	  "the daemon's socket; else $TIERD_SOCKET, $XDG_RUNTIME_DIR/tierd.sock, "                \
	  "/run/tierd/tierd.sock")                                                                \
	X(D, domain, "domain", "NAME", true,                                                      \
	  "the domain to look at, for root and the daemon's own user; else that of the caller")   \
	X(J, json, "json", NULL, true, "JSON instead of text, one object a line, errors as well") \
	X(H, help, "help", NULL, true, "what a command does")                                     \
	X(V, version, "version", NULL, true, "the version of tierctl")                            \
	X(I, interval, "interval", "SECONDS", false, NULL)                                        \
	X(A, all, "all", NULL, false, NULL)                                                       \
	X(N, name_space, "namespace", "NAME", false, "only tensors of this namespace")            \
	X(O, once, "once", NULL, false, "one look, and not one after the other")                  \
	X(T, steps, "steps", "N", false, "so many iterations (tierd_step()); default 5")          \
	X(W, timeout, "timeout", "SECONDS", false, "how long to wait for them; default 60")       \
	X(M, mark, "mark", NULL, false, "after that, peaks begin anew")                           \
	X(C, config, "config", "FILE", false,                                                     \
	  "the daemon's configuration; default /etc/tierd/tierd.yaml, if it is there")

enum option_index {
#define X(letter, member, name, argument, for_all, help) OPTION_INDEX_##letter,
	OPTIONS(X)
#undef X
		OPTION_COUNT
};

enum option_bit {
#define X(letter, member, name, argument, for_all, help) \
	OPTION_##letter = 1u << OPTION_INDEX_##letter,
	OPTIONS(X)
#undef X
};

/* The command line. An option without argument is "" where it was given, NULL where not. */
struct arguments {
#define X(letter, member, name, argument, for_all, help) const char *member;
	OPTIONS(X)
#undef X
	const char *operand; /* NULL: none */
};

struct command {
	const char *name;    /* one word or two */
	const char *operand; /* its name in the usage line, "[NAME]": it may be missing; NULL:
				takes none */
	const char *help;    /* one line */
	const char *text;    /* more, wrapped; "" */
	unsigned options;    /* OPTION_* beside those for all */
	int (*run)(const struct arguments *a);
	const char *option_help[OPTION_COUNT]; /* by OPTION_INDEX_*; NULL: as the option's row */
};

/* Ends with a NULL name. */
extern const struct command command_all[];

int status_run(const struct arguments *a);
int quotas_run(const struct arguments *a);
int list_run(const struct arguments *a);
int show_run(const struct arguments *a);
int why_run(const struct arguments *a);
int top_run(const struct arguments *a);
int leaks_run(const struct arguments *a);
int peak_run(const struct arguments *a);
int evict_run(const struct arguments *a);
int doctor_run(const struct arguments *a);
int config_check_run(const struct arguments *a);
int config_show_run(const struct arguments *a);
int config_reference_run(const struct arguments *a);
int reference_run(const struct arguments *a);

/* Usage of all commands ("") or of those whose names begin with the words `only`; false: none does,
 * and nothing was written. */
bool command_usage(FILE *to, const char *only);

/* Says what failed, as text to stderr or as JSON to stdout, and returns STATUS_FAILED. `code` is a
 * negative errno; the sentence may hold any bytes. */
int command_failed(const struct arguments *a, int code, const char *sentence);
/* What was printed so far goes out: 0, or the errno of the first time that it did not. */
int command_flush(void);
int command_misused(const struct arguments *a, const char *sentence);

struct tierd;
/* Connects as an operator, to the domain that the command line names: 0 or -errno, said by
 * tierd_error(NULL). */
int command_open(const struct arguments *a, const char *socket, struct tierd **ret);
/* Likewise, but 0, or the exit status after command_failed(). */
int command_connect(const struct arguments *a, struct tierd **ret);

#endif
