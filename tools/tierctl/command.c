/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* strerrorname_np */
#include "tools/tierctl/command.h"

#include <errno.h>
#include <string.h>

#include "libclient/admin.h"
#include "libclient/protocol/hello.h"
#include "libclient/tierd.h"
#include "tools/tierctl/json.h"

const struct command command_all[] = {
	{ "status",
	  NULL,
	  "bytes a tier and class, moves, rates and stalls",
	  "Reads the daemon's counters from shared memory, twice for the rates. \"used\" is what\n"
	  "tensors have taken, being filled ones among them, \"valid\" what holds their bytes.\n"
	  "\"there\" and \"has memory\" are what has memory now: a GPU's comes as it is wanted\n"
	  "and goes when it is idle, and \"largest free\" counts only what is there.\n"
	  "tierctl is a client itself. dram's limit is its configured size less staging.",
	  OPTION_I | OPTION_A,
	  status_run,
	  { [OPTION_INDEX_I] = "time between the two samples that rates are made of; 0: no rates; "
			       "default 1",
	    [OPTION_INDEX_A] = "every counter of the daemon, with its meaning" } },
	{ "list",
	  NULL,
	  "all tensors, one a line",
	  "In the order of their handles. A tensor may have bytes in several tiers at once: what\n"
	  "lower ones hold need not be written again when it goes. `state` is of where clients\n"
	  "reach it, hbm or dram: absent (on nvme alone, or never written), filling, resident,\n"
	  "evicting and dropping (on its way out), failed (its bytes could not be read back).\n"
	  "With --json, one object a tensor and line.",
	  OPTION_N,
	  list_run,
	  { NULL } },
	{ "show",
	  "NAME",
	  "what and where a tensor is",
	  "NAME is a tensor's name as it was given to tierd_create, or INDEX:GENERATION as `list`\n"
	  "prints it, for tensors without a name. Every namespace that has the name is shown.",
	  OPTION_N,
	  show_run,
	  { NULL } },
	{ "why",
	  "NAME",
	  "where a tensor is, why, and who pins it",
	  "NAME as for `show`. \"why\" is what the daemon itself would ask before it moved or\n"
	  "dropped the tensor: what keeps it where it is, or that it goes when room is wanted and\n"
	  "its turn comes; \"rank\" says how many would go before it, if all went one after the\n"
	  "other now. The policy's score is in bytes x seconds until needed, for each second\n"
	  "that bringing it back costs; the highest goes first. Uses of threads without an access\n"
	  "log (more than 64 in a process) are not counted in \"last used\".",
	  OPTION_N,
	  why_run,
	  { NULL } },
	{ "top",
	  NULL,
	  "bars of every tier, rates of every lane, stalls, and who waits for what",
	  "Drawn anew every --interval seconds on a terminal, else one after the other; with\n"
	  "--json, one object a line. In a bar P, G, O, A and X are valid bytes of parameters,\n"
	  "gradients, optimizer state, activations and the rest, + is taken and not valid yet, .\n"
	  "is free memory, and a blank has no memory yet: if more was refused, who waits for room\n"
	  "waits until others of the machine give some back. Rates are bytes a second; \"in\" is\n"
	  "what the lane has written to its device, \"queue\" transfers that it has now, and\n"
	  "\"oldest\" for how long it has had the first of them: a device that answers no more\n"
	  "shows by it. A second of stall a second is one client that waits all the time: it is\n"
	  "counted when a wait ends, and who waits now stands below. Times in ns with --json, all\n"
	  "else in bytes.",
	  OPTION_I | OPTION_O,
	  top_run,
	  { [OPTION_INDEX_I] =
		    "time from one look to the next, which rates are made of; default 1" } },
	{ "leaks",
	  NULL,
	  "tensors that stay pinned, and bytes that grow, step after step",
	  "Waits until each job that calls tierd_step() has ended --steps iterations, --timeout\n"
	  "seconds at most. Then it prints tensors that are pinned and were not acquired in the\n"
	  "last --steps iterations of their namespace, and groups of tensors of one namespace,\n"
	  "class and name prefix (the name up to its first digit) whose bytes, or pins, were more\n"
	  "after every iteration. A job's iteration is that of its furthest client. An access log\n"
	  "that was overrun makes a use look older than it is: then a line says so. In the end a\n"
	  "line of each namespace says how many steps were seen; with --json, an object with\n"
	  "\"steps_seen\", \"steps_asked\" and \"enough\". Exit status 3 if anything was found; 1\n"
	  "if not, and nothing was looked at (no such tensor, no step) or a namespace that made\n"
	  "steps was seen for too few of them.",
	  OPTION_N | OPTION_T | OPTION_W,
	  leaks_run,
	  { NULL } },
	{ "peak",
	  NULL,
	  "the most that each tier has held, and of what",
	  "Since the daemon's start or the last --mark, which is one for all who look, and may be\n"
	  "made by each of them. \"at the peak\" is what each class had in the tier when that "
	  "held\n"
	  "the most; \"own highest\" is the class's own, at whatever time.",
	  OPTION_M,
	  peak_run,
	  { NULL } },
	{ "quotas",
	  NULL,
	  "what jobs have of each tier, and may have",
	  "A line for each row of `namespaces` and each GPU, dram and nvme; first come those that\n"
	  "have no row, together. \"sure\" is what can be asked for whatever others use: the\n"
	  "limit, or the tier less what is guaranteed to others. With --json, one object a line.",
	  0,
	  quotas_run,
	  { NULL } },
	{ "evict",
	  "[PATTERN]",
	  "how many tensors were told that they are not needed soon",
	  "A hint: their policies let them go before others, and what is dirty is written back\n"
	  "now. PATTERN is of shell wildcards, against NAME and NAMESPACE/NAME. Only root may "
	  "name\n"
	  "tensors of another user's namespace.",
	  OPTION_A | OPTION_N,
	  evict_run,
	  { [OPTION_INDEX_A] = "every tensor, instead of PATTERN" } },
	{ "doctor",
	  NULL,
	  "what of this machine tierd can use, and how to mend what it cannot",
	  "One line a thing: ok, warn (tierd does without, and worse) or fail (tierd does not "
	  "start,\n"
	  "or not as configured). Without a daemon the daemon's own probes are tried, by "
	  "--config;\n"
	  "with one, lines of devices say what it chose, and of the configuration's paths only\n"
	  "whether they are there is tried. Limits are those of the process that asks:\n"
	  "run it as the daemon's user, with the daemon's limits. Exit status 1 if anything fails.",
	  OPTION_C,
	  doctor_run,
	  { NULL } },
	{ "config check",
	  "FILE",
	  "what is wrong with a configuration",
	  "Starts nothing and needs no daemon. It reads the file as tierd does, but looks at the\n"
	  "file alone: whether this machine has the memory, the GPUs and the folders is seen when\n"
	  "tierd starts.",
	  0,
	  config_check_run,
	  { NULL } },
	{ "config show",
	  "FILE",
	  "a configuration with all defaults",
	  "What is printed, with or without --json, is a configuration that means the same.",
	  0,
	  config_show_run,
	  { NULL } },
	{ "config reference",
	  NULL,
	  "every key, with unit, range, default and meaning",
	  "As Markdown: docs/configuration.md. With --json, one object a key and line.",
	  0,
	  config_reference_run,
	  { NULL } },
	{ "reference",
	  NULL,
	  "this reference",
	  "As Markdown: docs/tierctl.md. With --json, one object a command and line.",
	  0,
	  reference_run,
	  { NULL } },
	{ NULL, NULL, NULL, NULL, 0, NULL, { NULL } },
};

static void report(const struct arguments *a, const char *kind, int code, const char *sentence)
{
	const char *name = code != 0 ? strerrorname_np(-code) : NULL;
	struct json j = { stdout, false };

	if (a->json == NULL) {
		fputs("tierctl: ", stderr);
		json_plain(stderr, sentence, strlen(sentence));
		fputc('\n', stderr);
		return;
	}
	json_open(&j, NULL, '{');
	json_open(&j, "error", '{');
	json_text(&j, "kind", kind);
	if (name != NULL)
		json_text(&j, "errno", name);
	json_name(&j, "text", sentence, strlen(sentence));
	json_close(&j, '}');
	json_close(&j, '}');
	json_end(&j);
}

int command_flush(void)
{
	static int code;

	errno = 0;
	if (code == 0 && (fflush(stdout) != 0 || ferror(stdout)))
		code = errno != 0 ? errno : EIO;
	return code;
}

int command_failed(const struct arguments *a, int code, const char *sentence)
{
	report(a, "failed", code, sentence[0] != '\0' ? sentence : strerror(-code));
	return STATUS_FAILED;
}

int command_misused(const struct arguments *a, const char *sentence)
{
	report(a, "usage", 0, sentence);
	if (a->json == NULL)
		fputs("tierctl --help shows what there is\n", stderr);
	return STATUS_USAGE;
}

int command_open(const struct arguments *a, const char *socket, struct tierd **ret)
{
	return admin_open(socket, HELLO_OPERATOR_NAME_SPACE, a->domain, ret);
}

int command_connect(const struct arguments *a, struct tierd **ret)
{
	int rc = command_open(a, a->socket, ret);

	if (rc < 0)
		return command_failed(a, rc, tierd_error(NULL));
	if (admin_stats_page(*ret) != NULL)
		return STATUS_OK;
	rc = command_failed(a, -EPROTO, tierd_error(NULL));
	tierd_close(*ret);
	return rc;
}
