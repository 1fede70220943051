/* SPDX-License-Identifier: Apache-2.0
 *
 * tierctl: reads the command line by the rows of command.h and runs one command.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/nofile.h"
#include "config.h"
#include "config/suggest.h"
#include "tools/tierctl/command.h"

struct parsed {
	struct arguments arguments;
	unsigned given; /* OPTION_* */
	char **words;   /* what is no option */
	int word_count;
};

static const struct option options[] = {
#define X(letter, member, name, argument, for_all, help)                    \
	{ name, (argument) != NULL ? required_argument : no_argument, NULL, \
	  256 + OPTION_INDEX_##letter },
	OPTIONS(X)
#undef X
		{ NULL, 0, NULL, 0 },
};

static void store(struct arguments *a, unsigned option, const char *value)
{
	switch (option) {
#define X(letter, member, name, argument, for_all, help) \
	case OPTION_INDEX_##letter:                      \
		a->member = value;                       \
		return;
		OPTIONS(X)
#undef X
	}
	ASSERT(!"an option without a row");
}

/* --json is looked for first: an error before it is read must be JSON as well. */
static void find_json(int argc, char **argv, struct arguments *a)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--json") == 0)
			a->json = "";
}

/* Why getopt_long() did not take `word`: '?' or ':' is what it returned. */
static int refused(const struct arguments *a, const char *word, int answer)
{
	const char *names[OPTION_COUNT + 1] = { NULL }, *nearest;
	char sentence[512], name[64] = "";

	for (unsigned i = 0; i < OPTION_COUNT; i++)
		names[i] = options[i].name;
	sscanf(word, "--%63[^=]", name);
	nearest = suggest_name(names, name);
	if (answer == ':')
		snprintf(sentence, sizeof(sentence), "%s: its argument is missing", word);
	else if (nearest != NULL && strcmp(nearest, name) == 0)
		snprintf(sentence, sizeof(sentence), "--%s: takes no argument", name);
	else
		snprintf(sentence, sizeof(sentence), "%s: no such option%s%s", word,
			 nearest != NULL ? "; the nearest is --" : "",
			 nearest != NULL ? nearest : "");
	return command_misused(a, sentence);
}

static int parse(int argc, char **argv, struct parsed *p)
{
	int option;

	find_json(argc, argv, &p->arguments);
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		if (option == 'h')
			option = 256 + OPTION_INDEX_H;
		if (option == '?' || option == ':')
			return refused(&p->arguments, argv[optind - 1], option);
		p->given |= 1u << (option - 256);
		store(&p->arguments, (unsigned)option - 256, optarg != NULL ? optarg : "");
	}
	p->words = argv + optind;
	p->word_count = argc - optind;
	/* As with many programs: `help status` is `status --help`. */
	if (p->word_count > 0 && strcmp(p->words[0], "help") == 0) {
		p->arguments.help = "";
		p->words++;
		p->word_count--;
	}
	return STATUS_OK;
}

/* How many words of the command line are this command's name; 0: it is another. */
static int words_of(const struct command *c, const struct parsed *p)
{
	const char *second = strchr(c->name, ' ');
	size_t first = second != NULL ? (size_t)(second - c->name) : strlen(c->name);

	if (p->word_count < 1 || strlen(p->words[0]) != first ||
	    strncmp(p->words[0], c->name, first) != 0)
		return 0;
	if (second == NULL)
		return 1;
	return p->word_count > 1 && strcmp(p->words[1], second + 1) == 0 ? 2 : 0;
}

static const struct command *find(const struct parsed *p, int *ret_words)
{
	for (const struct command *c = command_all; c->name != NULL; c++) {
		*ret_words = words_of(c, p);
		if (*ret_words > 0)
			return c;
	}
	return NULL;
}

/* The second words of the commands that begin with `word`, as "check, show"; "": none does. */
static void second_words(const char *word, char *ret, size_t room)
{
	size_t n = strlen(word), at = 0;

	ret[0] = '\0';
	for (const struct command *c = command_all; c->name != NULL && at < room; c++)
		if (strncmp(c->name, word, n) == 0 && c->name[n] == ' ')
			at += (size_t)snprintf(ret + at, room - at, "%s%s", at > 0 ? ", " : "",
					       c->name + n + 1);
}

static const char *nearest_command(const char *words)
{
	const char *names[32] = { NULL };
	size_t n = 0;

	for (const struct command *c = command_all; c->name != NULL; c++) {
		ASSERT(n + 1 < ARRAY_SIZE(names));
		names[n++] = c->name;
	}
	return suggest_name(names, words);
}

static int unknown(const struct parsed *p)
{
	char sentence[512], words[128], seconds[128];
	const char *nearest;

	if (p->word_count == 0)
		return command_misused(&p->arguments, "a command is missing");
	second_words(p->words[0], seconds, sizeof(seconds));
	snprintf(words, sizeof(words), "%s%s%s", p->words[0],
		 p->word_count > 1 && seconds[0] != '\0' ? " " : "",
		 p->word_count > 1 && seconds[0] != '\0' ? p->words[1] : "");
	nearest = nearest_command(words);
	if (seconds[0] != '\0')
		snprintf(sentence, sizeof(sentence), "%s: %s: one of %s", words,
			 p->word_count > 1 ? "no such command" : "a word is missing", seconds);
	else
		snprintf(sentence, sizeof(sentence), "%s: no such command%s%s", words,
			 nearest != NULL ? "; the nearest is " : "",
			 nearest != NULL ? nearest : "");
	return command_misused(&p->arguments, sentence);
}

static int usage(const struct parsed *p, const struct command *c)
{
	const char *only = c != NULL ? c->name : p->word_count > 0 ? p->words[0] : "";

	if (p->arguments.json != NULL)
		return reference_run(&p->arguments);
	return command_usage(stdout, only) ? STATUS_OK : unknown(p);
}

static int run(struct parsed *p, const struct command *c, int words)
{
	static const unsigned for_all =
#define X(letter, member, name, argument, all, help) ((all) ? OPTION_##letter : 0u) |
		OPTIONS(X)
#undef X
			0u;
	int most = c->operand != NULL ? 1 : 0, least = most > 0 && c->operand[0] != '[' ? 1 : 0;
	int operands = p->word_count - words;
	unsigned extra = p->given & ~(for_all | c->options);
	char sentence[512];

	if (operands < least || operands > most) {
		snprintf(sentence, sizeof(sentence), "%s: takes %s%s", c->name,
			 most > 0 ? "one " : "no operand", most > 0 ? c->operand : "");
		return command_misused(&p->arguments, sentence);
	}
	if (extra != 0) {
		snprintf(sentence, sizeof(sentence), "%s: takes no --%s", c->name,
			 options[__builtin_ctz(extra)].name);
		return command_misused(&p->arguments, sentence);
	}
	if (operands > 0)
		p->arguments.operand = p->words[words];
	return c->run(&p->arguments);
}

static int act(int argc, char **argv)
{
	struct parsed p = { 0 };
	const struct command *c;
	int words, status = parse(argc, argv, &p);

	if (status != STATUS_OK)
		return status;
	if (p.arguments.version != NULL) {
		puts("tierctl " VERSION);
		return STATUS_OK;
	}
	c = find(&p, &words);
	if (p.arguments.help != NULL)
		return usage(&p, c);
	return c != NULL ? run(&p, c, words) : unknown(&p);
}

int main(int argc, char **argv)
{
	static char buffer[1 << 16]; /* a list may have millions of lines */
	int status;

	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	status = nofile_keep_stdio() == 0 ? act(argc, argv) : STATUS_FAILED;

	/* A full disk shows only now. */
	if (command_flush() != 0) {
		fprintf(stderr, "tierctl: stdout: %s\n", strerror(command_flush()));
		return status != STATUS_OK ? status : STATUS_FAILED;
	}
	return status;
}
