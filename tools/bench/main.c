/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_nvme.h"

static const struct bench benches[] = {
	{ "acquire", "hits: latency and system calls, 1 and 8 clients, with and without a storm",
	  bench_acquire, NULL },
#ifdef HAVE_CUDA
	{ "copy", "GB/s to and from a GPU and nvme, each beside the raw copy", bench_copy, NULL },
	{ "gpu", "kernels beside copies, small misses, hits, acquires on a stream", bench_gpu,
	  NULL },
#endif
	{ "death", "how long the pins of a killed client last", bench_death, NULL },
	{ "miss", "latency, throughput and control thread's time, a tier pair and size", bench_miss,
	  NULL },
	{ "nvme", "read, write and mixed GB/s through the tier, without a daemon", NULL,
	  bench_nvme },
	{ "scale", "a million named tensors: creates, memory, hits, idle time", bench_scale, NULL },
#ifdef HAVE_CUDA
	{ "start", "until the first acquire, and until all of a large dram is registered",
	  bench_start, NULL },
#endif
	{ "verify", "sizes and patterns whole through every tier", bench_verify, NULL },
};

enum {
	OPTION_JSON,
	OPTION_SOCKET,
	OPTION_DIR,
	OPTION_CLIENTS,
	OPTION_SECONDS,
	OPTION_DRAM,
	OPTION_LONG,
	OPTION_PART,
	OPTION_QUICK
};

static const struct option options[] = {
	{ "json", no_argument, NULL, OPTION_JSON },
	{ "socket", required_argument, NULL, OPTION_SOCKET },
	{ "dir", required_argument, NULL, OPTION_DIR },
	{ "clients", required_argument, NULL, OPTION_CLIENTS },
	{ "seconds", required_argument, NULL, OPTION_SECONDS },
	{ "dram", required_argument, NULL, OPTION_DRAM },
	{ "long", no_argument, NULL, OPTION_LONG },
	{ "part", required_argument, NULL, OPTION_PART },
	{ "quick", no_argument, NULL, OPTION_QUICK },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static void usage(void)
{
	FILE *to = stdout;

	fputs("usage: tierd-bench [--json] BENCHMARK [OPTION...]\n\n", to);
	for (size_t i = 0; i < ARRAY_SIZE(benches); i++)
		fprintf(to, "  %-8s %s\n", benches[i].name, benches[i].help);
	fputs("\n"
	      "  --json         an object a line\n"
	      "  --socket PATH  measure this daemon; else a private one is started and ended\n"
	      "  --dir DIR      where the private daemon's nvme file lies (else $TMPDIR, /tmp)\n"
	      "  --clients N    acquire: this many clients only\n"
	      "  --seconds N    acquire: each measurement (2)\n"
	      "  --dram GIB     start: size of dram (64)\n"
	      "  --part PART    copy: links (dram and GPUs) or disks (nvme and a GPU) alone\n"
	      "  --long         verify: sizes above 4 GiB too\n"
	      "  --quick        little of everything: shows that it works, no figures\n"
	      "\n"
	      "nvme has options of its own: --dir DIR is required, tierd-bench nvme lists them.\n",
	      to);
}

/* The sentence first: a page of options hides it. */
static int misused(const char *subject, const char *what)
{
	fprintf(stderr, "tierd-bench: %s: %s\ntierd-bench --help shows what there is\n", subject,
		what);
	return 2;
}

static bool take_option(struct bench_options *o, int c)
{
	switch (c) {
	case OPTION_JSON:
		o->json = true;
		return true;
	case OPTION_SOCKET:
		o->socket = optarg;
		return true;
	case OPTION_DIR:
		o->dir = optarg;
		return true;
	case OPTION_CLIENTS:
		o->clients = (unsigned)strtoul(optarg, NULL, 10);
		return o->clients > 0;
	case OPTION_SECONDS:
		o->seconds = (unsigned)strtoul(optarg, NULL, 10);
		return o->seconds > 0;
	case OPTION_DRAM:
		o->dram_gib = (unsigned)strtoul(optarg, NULL, 10);
		return o->dram_gib > 0;
	case OPTION_LONG:
		o->is_long = true;
		return true;
	case OPTION_PART:
		o->part = optarg;
		return strcmp(optarg, "links") == 0 || strcmp(optarg, "disks") == 0;
	case OPTION_QUICK:
		o->quick = true;
		o->seconds = 1;
		return true;
	default:
		return false;
	}
}

static const struct bench *find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(benches); i++)
		if (strcmp(benches[i].name, name) == 0)
			return &benches[i];
	return NULL;
}

/* The benchmark takes the rest of the line; a --json before its name goes along. */
static int run_alone(const struct bench *b, bool json, int argc, char **argv)
{
	char **args = calloc((size_t)argc + 2, sizeof(*args)), flag[] = "--json";
	int n = 0, status;

	if (args == NULL)
		return 1;
	args[n++] = argv[0];
	if (json)
		args[n++] = flag;
	for (int i = 1; i < argc; i++)
		args[n++] = argv[i];
	optind = 1;
	opterr = 1;
	status = b->run_alone(n, args);
	free(args);
	return status;
}

/* Takes options up to the first other word; -1: go on, else the status to end with. */
static int parse(struct bench_options *o, int argc, char **argv)
{
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		if (c == 'h') {
			usage();
			return EXIT_SUCCESS;
		}
		if (!take_option(o, c))
			return misused(argv[optind - 1],
				       c == '?' ? "no such option, or its argument is missing"
						: "not a value that it takes");
	}
	return -1;
}

int main(int argc, char **argv)
{
	struct bench_options o = { .seconds = 2, .dram_gib = 64, .dir = getenv("TMPDIR") };
	const struct bench *b;
	int status = parse(&o, argc, argv), first;

	if (status >= 0)
		return status;
	first = optind;
	b = first < argc ? find(argv[first]) : NULL;
	if (b == NULL)
		return first < argc ? misused(argv[first], "no such benchmark")
				    : misused("BENCHMARK", "is missing");
	if (b->run_alone != NULL)
		return run_alone(b, o.json, argc - first, argv + first);
	optind = 1;
	status = parse(&o, argc - first, argv + first);
	if (status >= 0)
		return status;
	if (optind < argc - first)
		return misused(argv[first + optind], "not an option");
	return b->run(&o);
}
