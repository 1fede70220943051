/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/compiler.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/nofile.h"
#include "base/plural.h"
#include "config.h"
#include "daemon/daemon.h"

/* What a service manager can act on. */
enum {
	STATUS_OK = 0,
	STATUS_FAILED = 1, /* at run time: starting again may help */
	STATUS_USAGE = 2,
	STATUS_CONFIG = 78, /* EX_CONFIG: starting again does not help */
};

/* Of a start that failed, by the kind of its error: whether what was asked for is wrong, or is
 * never to be had like this. All else may be another time: memory, a disk, a driver, a socket. */
static int status_of_start(int rc)
{
	switch (-rc) {
	case EINVAL:  /* against a rule, or beyond what the device is */
	case ENOTSUP: /* which a device or a file system cannot do */
	case ENOSYS:  /* nor this kernel */
	case EEXIST:  /* something stands where only nothing may */
	case ENOTDIR: /* or something else than what is needed */
	case EMFILE:  /* RLIMIT_NOFILE */
		return STATUS_CONFIG;
	default:
		return STATUS_FAILED;
	}
}

enum action { ACTION_RUN, ACTION_CHECK, ACTION_PRINT };

struct arguments {
	const char *config;
	enum action action;
	bool dumpable;
};

enum { OPTION_CHECK = 256, OPTION_PRINT, OPTION_REFERENCE, OPTION_DUMPABLE, OPTION_VERSION };

static const struct option options[] = {
	{ "config", required_argument, NULL, 'c' },
	{ "check-config", no_argument, NULL, OPTION_CHECK },
	{ "print-config", no_argument, NULL, OPTION_PRINT },
	{ "print-reference", no_argument, NULL, OPTION_REFERENCE },
	{ "dumpable", no_argument, NULL, OPTION_DUMPABLE },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, OPTION_VERSION },
	{ NULL, 0, NULL, 0 },
};

static const char usage[] =
	"usage: tierd --config FILE [--check-config | --print-config] [--dumpable]\n"
	"       tierd --print-reference | --help | --version\n"
	"\n"
	"Serves in the foreground until SIGTERM or SIGINT and logs to stderr.\n"
	"\n"
	"  --config FILE      the configuration, in YAML\n"
	"  --check-config     say what is wrong with it and start nothing; the machine is not\n"
	"                     looked at\n"
	"  --print-config     print it with all defaults and start nothing\n"
	"  --print-reference  print every key, its unit, range, default and meaning\n"
	"  --dumpable         let debuggers of the same user attach and cores be written:\n"
	"                     clients of that user can then write what they must not\n"
	"\n"
	"TIERD_LOG=TOPIC:LEVEL,... sets log levels: error, warn, info, debug, trace.\n"
	"\n"
	"exit status: 0 ended by a signal, or the configuration is valid\n"
	"             1 failed: starting again may help\n"
	"             2 wrong usage\n"
	"             78 wrong configuration, or one that cannot be had on this machine:\n"
	"                do not start again\n";

static int usage_wrong(const char *subject, const char *what)
{
	fprintf(stderr, "tierd: %s: %s\ntierd --help shows what there is\n", subject, what);
	return STATUS_USAGE;
}

static void usage_print(void)
{
	static const char *const topics[] = {
#define X(id, name, help) name,
		LOG_TOPICS(X)
#undef X
	};

	fputs(usage, stdout);
	fputs("\nlog topics:", stdout);
	for (size_t i = 0; i < ARRAY_SIZE(topics); i++)
		printf(" %s", topics[i]);
	putchar('\n');
}

/* What getopt_long() made of `word`. -1: go on; else the status to end with. */
static int option_take(int option, const char *word, struct arguments *a)
{
	switch (option) {
	case 'c':
		a->config = optarg;
		return -1;
	case OPTION_CHECK:
		a->action = ACTION_CHECK;
		return -1;
	case OPTION_PRINT:
		a->action = ACTION_PRINT;
		return -1;
	case OPTION_DUMPABLE:
		a->dumpable = true;
		return -1;
	case OPTION_REFERENCE:
		settings_reference(stdout);
		return STATUS_OK;
	case 'h':
		usage_print();
		return STATUS_OK;
	case OPTION_VERSION:
		printf("tierd %s\n", PACKAGE_VERSION);
		return STATUS_OK;
	case ':':
		return usage_wrong(word, "its argument is missing");
	default:
		return usage_wrong(word, "no such option, or one that takes no argument");
	}
}

static int arguments_parse(int argc, char **argv, struct arguments *ret)
{
	int option, status = -1;

	opterr = 0;
	while (status < 0 && (option = getopt_long(argc, argv, ":c:h", options, NULL)) != -1)
		status = option_take(option, argv[optind - 1], ret);
	if (status >= 0)
		return status;
	if (optind < argc)
		return usage_wrong(argv[optind], "not an option; a configuration is --config FILE");
	if (!ret->config)
		return usage_wrong("--config FILE", "is missing");
	return -1;
}

static int failed(const struct err *err, int status)
{
	log_error(MAIN, "%s", err->text);
	log_end();
	return status;
}

/* A unit that was misunderstood can still be seen in the log. */
static void say_size(void *ctx, const char *path, const char *text)
{
	log_info(MAIN, "%s: %s", path, text);
}

static int serve(const struct settings *settings)
{
	struct err err = ERR_INIT;
	struct daemon *daemon;
	int rc, status;

	config_each_size(settings_rows, settings, say_size, NULL);
	if (settings->core_dumps && prctl(PR_SET_DUMPABLE, 1) < 0) {
		err_set(&err, errno, "prctl: %s", strerror(errno));
		return failed(&err, STATUS_FAILED);
	}
	fault_heap(&settings->fault);
	rc = daemon_create(settings, &daemon, &err);
	if (rc == 0) {
		rc = daemon_run(daemon, &err);
		daemon_destroy(daemon);
		status = STATUS_FAILED;
	} else {
		status = status_of_start(rc);
	}
	fault_heap(NULL);
	return rc < 0 ? failed(&err, status) : STATUS_OK;
}

static int run(const struct arguments *a)
{
	struct settings settings;
	struct err err = ERR_INIT;
	int status = STATUS_OK;

	if (settings_load(a->config, &settings, &err) < 0) {
		fprintf(stderr, "tierd: %s\n", err.text);
		return STATUS_CONFIG;
	}
	if (a->action == ACTION_CHECK)
		printf("%s: valid\n", a->config);
	else if (a->action == ACTION_PRINT)
		config_print(settings_rows, &settings, stdout);
	else
		status = serve(&settings);
	settings_free(&settings);
	if (heap_taken() > 0)
		log_error(MAIN, "%llu %s taken and not given back",
			  (unsigned long long)heap_taken(),
			  PLURAL(heap_taken(), "block of memory was", "blocks of memory were"));
	return status;
}

static int act(int argc, char **argv)
{
	struct arguments arguments = { 0 };
	int status = arguments_parse(argc, argv, &arguments);

	if (status >= 0)
		return status;
	/* Else a client of the same user could open our descriptors and memory through /proc. */
	if (!arguments.dumpable && prctl(PR_SET_DUMPABLE, 0) < 0) {
		fprintf(stderr, "tierd: prctl: %s\n", strerror(errno));
		return STATUS_FAILED;
	}
	if (log_configure(getenv("TIERD_LOG")) < 0)
		return usage_wrong("TIERD_LOG", "a topic or level that is not known");
	/* A reader of our stderr that went away must not end us. */
	signal(SIGPIPE, SIG_IGN);
	return run(&arguments);
}

int main(int argc, char **argv)
{
	int status = nofile_keep_stdio() == 0 ? act(argc, argv) : STATUS_FAILED;

	/* A full disk shows only now. */
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "tierd: stdout: %s\n", strerror(errno));
		return status != STATUS_OK ? status : STATUS_FAILED;
	}
	return status;
}
