/* SPDX-License-Identifier: Apache-2.0
 *
 * What --help and docs/tierctl.md say, from the rows of options and commands.
 */
#include "tools/tierctl/command.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "libclient/protocol/stats_page.h"
#include "tools/tierctl/json.h"

struct option_row {
	const char *name, *argument, *help;
	bool for_all;
};

static const struct option_row option_rows[OPTION_COUNT] = {
#define X(letter, member, name, argument, for_all, help) { name, argument, help, for_all },
	OPTIONS(X)
#undef X
};

static const struct {
	enum status status;
	const char *help;
} status_rows[] = {
	{ STATUS_OK, "done" },
	{ STATUS_FAILED, "failed: no daemon, no such tensor, a configuration is wrong" },
	{ STATUS_USAGE, "the command line is wrong: nothing was done" },
	{ STATUS_FOUND, "leaks: something was found" },
};

static bool takes(const struct command *c, unsigned option)
{
	return c->options >> option & 1;
}

static void put_synopsis(FILE *to, const struct command *c)
{
	fprintf(to, "tierctl %s", c->name);
	for (unsigned i = 0; i < OPTION_COUNT; i++)
		if (takes(c, i))
			fprintf(to, " [--%s%s%s]", option_rows[i].name,
				option_rows[i].argument != NULL ? " " : "",
				option_rows[i].argument != NULL ? option_rows[i].argument : "");
	if (c->operand != NULL)
		fprintf(to, " %s", c->operand);
}

/* `c`: the command that it is for; NULL: all. */
static void put_option(FILE *to, const struct command *c, unsigned option, bool markdown)
{
	const struct option_row *o = &option_rows[option];
	const char *own = c != NULL ? c->option_help[option] : NULL;
	const char *help = own != NULL ? own : o->help;
	char left[64];

	ASSERT(help != NULL);

	snprintf(left, sizeof(left), "--%s%s%s", o->name, o->argument != NULL ? " " : "",
		 o->argument != NULL ? o->argument : "");
	if (markdown)
		fprintf(to, "| `%s` | %s |\n", left, help);
	else
		fprintf(to, "  %-20s %s\n", left, help);
}

/* "config" is said by "config check", but "conf" is not. */
static bool begins(const char *name, const char *only)
{
	size_t n = strlen(only);

	return strncmp(name, only, n) == 0 && (name[n] == '\0' || name[n] == ' ');
}

static void put_one(FILE *to, const struct command *c)
{
	fputs("usage: ", to);
	put_synopsis(to, c);
	fprintf(to, "\n\n%s: %s\n%s%s", c->name, c->help, c->text, c->text[0] != '\0' ? "\n" : "");
	for (unsigned i = 0; i < OPTION_COUNT; i++)
		if (takes(c, i))
			put_option(to, c, i, false);
	fputc('\n', to);
}

static void put_general(FILE *to)
{
	fputs("for all commands:\n", to);
	for (unsigned i = 0; i < OPTION_COUNT; i++)
		if (option_rows[i].for_all)
			put_option(to, NULL, i, false);
	fputs("\nexit status:\n", to);
	for (size_t i = 0; i < ARRAY_SIZE(status_rows); i++)
		fprintf(to, "  %d  %s\n", status_rows[i].status, status_rows[i].help);
}

static void put_overview(FILE *to)
{
	fputs("usage: tierctl COMMAND [OPTION...]\n\n"
	      "Looks at a tierd and at its configuration.\n\n",
	      to);
	for (const struct command *c = command_all; c->name != NULL; c++)
		fprintf(to, "  %-20s %s\n", c->name, c->help);
	fputs("\ntierctl COMMAND --help says more of one.\n\n", to);
}

bool command_usage(FILE *to, const char *only)
{
	bool found = only[0] == '\0';

	if (found)
		put_overview(to);
	for (const struct command *c = command_all; only[0] != '\0' && c->name != NULL; c++)
		if (begins(c->name, only)) {
			put_one(to, c);
			found = true;
		}
	if (found)
		put_general(to);
	return found;
}

static void put_markdown(FILE *to, const struct command *c)
{
	fprintf(to, "\n## tierctl %s\n\n`", c->name);
	put_synopsis(to, c);
	fprintf(to, "`\n\nPrints %s.\n", c->help);
	if (c->text[0] != '\0')
		fprintf(to, "\n%s\n", c->text);
	if (c->options != 0)
		fputs("\n| option | is |\n| --- | --- |\n", to);
	for (unsigned i = 0; i < OPTION_COUNT; i++)
		if (takes(c, i))
			put_option(to, c, i, true);
}

static void put_counters(FILE *to)
{
	fputs("\n## Counters\n\n"
	      "`status --all` prints these, `--json status` under the same names.\n"
	      "\n| counter | unit | is |\n| --- | --- | --- |\n",
	      to);
#define X(name, unit, kind, help) fputs("| `" #name "` | " unit " | " help " |\n", to);
	STATS_SCALARS(X)
#undef X
	fputs("\n| counter of a tier | unit | is |\n| --- | --- | --- |\n", to);
#define X(name, unit, kind, help) fputs("| `" #name "` | " unit " | " help " |\n", to);
	STATS_PER_TIER(X)
#undef X
	fputs("\n| counter of a device | unit | is |\n| --- | --- | --- |\n", to);
#define X(name, unit, kind, help) fputs("| `" #name "` | " unit " | " help " |\n", to);
	STATS_PER_DEVICE(X)
#undef X
}

static void markdown(FILE *to)
{
	fputs("# tierctl\n\n"
	      "Looks at a tierd and at its configuration. This page is printed by `tierctl\n"
	      "reference`, from the same rows as `--help`; `make docs` writes it anew.\n"
	      "\n| option of all commands | is |\n| --- | --- |\n",
	      to);
	for (unsigned i = 0; i < OPTION_COUNT; i++)
		if (option_rows[i].for_all)
			put_option(to, NULL, i, true);
	fputs("\n| exit status | means |\n| --- | --- |\n", to);
	for (size_t i = 0; i < ARRAY_SIZE(status_rows); i++)
		fprintf(to, "| %d | %s |\n", status_rows[i].status, status_rows[i].help);
	fputs("\nWith `--json`, what fails prints `{\"error\":{\"kind\",\"errno\",\"text\"}}` to\n"
	      "stdout; kind is `failed` or `usage`. Names are any bytes: what is not UTF-8, and\n"
	      "control characters, are written `\\xNN` a byte and a backslash as two, in text and\n"
	      "within JSON strings alike.\n",
	      to);
	for (const struct command *c = command_all; c->name != NULL; c++)
		put_markdown(to, c);
	put_counters(to);
}

static void put_object(struct json *j, const struct command *c)
{
	json_open(j, NULL, '{');
	json_text(j, "command", c->name);
	if (c->operand != NULL)
		json_text(j, "operand", c->operand);
	json_text(j, "help", c->help);
	json_text(j, "text", c->text);
	json_open(j, "options", '[');
	for (unsigned i = 0; i < OPTION_COUNT; i++)
		if (takes(c, i) || option_rows[i].for_all)
			json_text(j, NULL, option_rows[i].name);
	json_close(j, ']');
	json_close(j, '}');
	json_end(j);
}

int reference_run(const struct arguments *a)
{
	struct json j = { stdout, false };

	if (a->json == NULL) {
		markdown(stdout);
		return STATUS_OK;
	}
	for (const struct command *c = command_all; c->name != NULL; c++)
		put_object(&j, c);
	return STATUS_OK;
}
