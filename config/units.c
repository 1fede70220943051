/* SPDX-License-Identifier: Apache-2.0 */
#include "config/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "config/number.h"
#include "config/text.h"

struct unit {
	const char *name;
	uint64_t factor;
};

/* What an unknown unit may have meant: up to two names of units. */
struct unit_guess {
	const char *names[2];
};

struct unit_scale {
	const struct unit *units; /* the first has factor 1; ends with NULL */
	const char *noun, *known; /* for messages */
	uint64_t max;
	struct unit_guess (*guess)(const char *unit, const struct number *number);
};

static int why_set(struct why *why, const char *fmt, ...) PRINTF(2, 3);
static int why_set(struct why *why, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, args);
	va_end(args);
	return -EINVAL;
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool begins_with(const char *text, const char *prefix)
{
	while (*prefix != '\0')
		if (lower(*text++) != *prefix++)
			return false;
	return true;
}

/* A number without a unit: what people who leave it out mean depends on how large it is. */
static struct unit_guess guess_size(const char *unit, const struct number *number)
{
	static const char letters[] = "kmgt";
	static const struct unit_guess guesses[] = {
		{ { "KB", "KiB" } },
		{ { "MB", "MiB" } },
		{ { "GB", "GiB" } },
		{ { "TB", "TiB" } },
	};
	const char *letter = strchr(letters, lower(*unit));

	if (*unit == '\0')
		return number->whole > 0 && number->whole < 10000
			       ? guesses[2]
			       : (struct unit_guess){ { "B", NULL } };
	if (begins_with(unit, "b"))
		return (struct unit_guess){ { "B", NULL } };
	return letter != NULL ? guesses[letter - letters] : (struct unit_guess){ { NULL, NULL } };
}

static struct unit_guess guess_rate(const char *unit, const struct number *number)
{
	static const char *const rates[][2] = {
		{ "B", "B/s" },     { "KB", "KB/s" },   { "KiB", "KiB/s" },
		{ "MB", "MB/s" },   { "MiB", "MiB/s" }, { "GB", "GB/s" },
		{ "GiB", "GiB/s" }, { "TB", "TB/s" },   { "TiB", "TiB/s" },
	};
	struct unit_guess size, rate = { { NULL, NULL } };

	/* An exact size lacks nothing but its /s. */
	for (size_t i = 0; i < ARRAY_SIZE(rates); i++)
		if (strcmp(unit, rates[i][0]) == 0)
			return (struct unit_guess){ { rates[i][1], NULL } };
	size = guess_size(unit, number);
	for (unsigned g = 0; g < 2 && size.names[g] != NULL; g++)
		for (size_t i = 0; i < ARRAY_SIZE(rates); i++)
			if (strcmp(size.names[g], rates[i][0]) == 0)
				rate.names[g] = rates[i][1];
	return rate;
}

static struct unit_guess guess_duration(const char *unit, const struct number *number)
{
	static const struct {
		const char *prefix;
		struct unit_guess guess;
	} rows[] = {
		{ "ms", { { "ms", NULL } } },  { "mil", { { "ms", NULL } } },
		{ "mic", { { "us", NULL } } }, { "min", { { "min", NULL } } },
		{ "m", { { "min", "ms" } } },  { "s", { { "s", NULL } } },
		{ "us", { { "us", NULL } } },  { "\xc2\xb5", { { "us", NULL } } },
		{ "n", { { "ns", NULL } } },   { "h", { { "h", NULL } } },
	};

	if (*unit == '\0')
		return (struct unit_guess){ { "s", "ms" } };
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (begins_with(unit, rows[i].prefix))
			return rows[i].guess;
	return (struct unit_guess){ { NULL, NULL } };
}

/* 4K is 4Ki or 4000: the zeros stand where a unit would. */
static struct unit_guess guess_count(const char *unit, const struct number *number)
{
	if (begins_with(unit, "k"))
		return (struct unit_guess){ { "Ki", "000" } };
	if (begins_with(unit, "m"))
		return (struct unit_guess){ { "Mi", "000000" } };
	if (begins_with(unit, "g"))
		return (struct unit_guess){ { "Gi", "000000000" } };
	return (struct unit_guess){ { NULL, NULL } };
}

static const struct unit size_units[] = {
	{ "B", 1 },           { "KB", 1000 },          { "MB", 1000000 },
	{ "GB", 1000000000 }, { "TB", 1000000000000 }, { "KiB", KIB(1) },
	{ "MiB", MIB(1) },    { "GiB", GIB(1) },       { "TiB", GIB(1024) },
	{ NULL, 0 },
};
static const struct unit rate_units[] = {
	{ "B/s", 1 },
	{ "KB/s", 1000 },
	{ "MB/s", 1000000 },
	{ "GB/s", 1000000000 },
	{ "TB/s", 1000000000000 },
	{ "KiB/s", KIB(1) },
	{ "MiB/s", MIB(1) },
	{ "GiB/s", GIB(1) },
	{ "TiB/s", GIB(1024) },
	{ NULL, 0 },
};
static const struct unit duration_units[] = {
	{ "ns", 1 },       { "us", NS_PER_US },      { "ms", NS_PER_MS },
	{ "s", NS_PER_S }, { "min", 60 * NS_PER_S }, { "h", 3600 * NS_PER_S },
	{ NULL, 0 },
};
static const struct unit count_units[] = {
	{ "", 1 }, { "Ki", KIB(1) }, { "Mi", MIB(1) }, { "Gi", GIB(1) }, { NULL, 0 },
};

/* INT64_MAX where the system's own types (off_t, time_t) end. */
const struct unit_scale unit_sizes = {
	size_units, "a size, as 64GiB", "B KB MB GB TB (1000) KiB MiB GiB TiB (1024)",
	INT64_MAX,  guess_size,
};
const struct unit_scale unit_rates = {
	rate_units,
	"a rate, as 2GB/s",
	"B/s KB/s MB/s GB/s TB/s (1000) KiB/s MiB/s GiB/s TiB/s (1024)",
	INT64_MAX,
	guess_rate,
};
const struct unit_scale unit_durations = {
	duration_units, "a time, as 30s", "ns us ms s min h", INT64_MAX, guess_duration,
};
const struct unit_scale unit_counts = {
	count_units, "a number, as 4096 or 4Mi", "none, Ki Mi Gi (1024)", UINT64_MAX, guess_count,
};

const char *unit_format(const struct unit_scale *scale, uint64_t value, char ret[UNIT_TEXT_BYTES])
{
	const struct unit *best = scale->units;

	for (const struct unit *unit = scale->units; unit->name != NULL; unit++)
		if (value != 0 && value % unit->factor == 0 && unit->factor > best->factor)
			best = unit;
	if (value == 0 && scale == &unit_durations)
		best = &duration_units[3];
	snprintf(ret, UNIT_TEXT_BYTES, "%" PRIu64 "%s", value / best->factor, best->name);
	return ret;
}

/* ": write A or B" with what the odd number most likely is; nothing when it has no likely value. */
static void spell_values(const struct unit_scale *scale, const struct number_guess *guess, char *to,
			 size_t room)
{
	char one[UNIT_TEXT_BYTES], two[UNIT_TEXT_BYTES];

	*to = '\0';
	if (guess->count == 0)
		return;
	snprintf(one, sizeof(one), "%" PRIu64 "%s", guess->values[0], scale->units[0].name);
	if (guess->count == 2)
		snprintf(two, sizeof(two), "%" PRIu64 "%s", guess->values[1], scale->units[0].name);
	else
		unit_format(scale, guess->values[0], two);
	if (strcmp(one, two) == 0)
		snprintf(to, room, ": write %s", one);
	else
		snprintf(to, room, ": write %s or %s", one, two);
}

static int fail_form(const struct unit_scale *scale, const char *text, enum number_form form,
		     const struct number_guess *guess, struct why *why)
{
	static const char *const what[] = {
		[NUMBER_NEGATIVE] = "is negative",
		[NUMBER_TOO_LARGE] = "is too large",
		[NUMBER_TOO_FINE] = "has more than 9 digits after the point",
		[NUMBER_OCTAL] = "has a leading zero",
		[NUMBER_PREFIX] = "is not decimal",
		[NUMBER_EXPONENT] = "has an exponent",
		[NUMBER_SEPARATOR] = "has a separator between digits",
	};
	char quoted[TEXT_QUOTE_BYTES], spelled[2 * UNIT_TEXT_BYTES + 16];

	if (form == NUMBER_EMPTY)
		return why_set(why, "is empty; expected %s", scale->noun);
	text_quote(text, quoted);
	if (form == NUMBER_NONE)
		return why_set(why, "%s is not %s", quoted, scale->noun);
	spell_values(scale, guess, spelled, sizeof(spelled));
	return why_set(why, "%s %s%s", quoted, what[form], spelled);
}

static const struct unit *find_unit(const struct unit_scale *scale, const char *name)
{
	for (const struct unit *unit = scale->units; unit->name != NULL; unit++)
		if (strcmp(unit->name, name) == 0)
			return unit;
	return NULL;
}

static bool fits(const struct number *number, const struct unit *unit,
		 const struct unit_range *range)
{
	uint64_t value;

	return number_times(number, unit->factor, &value) && value >= range->min &&
	       value <= range->max;
}

/* The next larger unit, or the next smaller one; NULL: there is none. */
static const struct unit *next_unit(const struct unit_scale *scale, const struct unit *from,
				    bool larger)
{
	const struct unit *best = NULL;

	for (const struct unit *u = scale->units; u->name != NULL; u++) {
		bool beyond = larger ? u->factor > from->factor : u->factor < from->factor;

		if (beyond && (best == NULL ||
			       (larger ? u->factor < best->factor : u->factor > best->factor)))
			best = u;
	}
	return best;
}

/* Of what was guessed for a number without a unit, that which the range has room for. Where that is
 * nothing: the next smaller unit, and the smallest, in which programs count; else larger ones.
 * Nothing fits: the guess stands. */
static struct unit_guess guess_within(const struct unit_scale *scale, struct unit_guess guess,
				      const struct number *number, const struct unit_range *range)
{
	const struct unit *first = find_unit(scale, guess.names[0]);
	struct unit_guess ret = { { NULL, NULL } };
	unsigned n = 0;

	for (unsigned i = 0; i < 2 && guess.names[i] != NULL; i++)
		if (fits(number, find_unit(scale, guess.names[i]), range))
			ret.names[n++] = guess.names[i];
	for (unsigned larger = 0; n == 0 && larger < 2; larger++)
		for (const struct unit *u = next_unit(scale, first, larger); u != NULL && n < 2;
		     u = next_unit(scale, u, larger)) {
			if (!fits(number, u, range))
				continue;
			ret.names[n++] = u->name;
			if (!larger && u != scale->units && fits(number, scale->units, range))
				ret.names[n++] = scale->units->name;
		}
	return n > 0 ? ret : guess;
}

/* `text` is `digits` characters of a number and then `unit`: 64G gives 64GB or 64GiB. */
static int fail_unit(const struct unit_scale *scale, const char *text, int digits, const char *unit,
		     const struct number *number, const struct unit_range *range, struct why *why)
{
	struct unit_guess guess = scale->guess(unit, number);
	const char *what = *unit == '\0' ? "has no unit" : "has an unknown unit";
	char quoted[TEXT_QUOTE_BYTES];

	if (*unit == '\0' && range != NULL)
		guess = guess_within(scale, guess, number, range);
	text_quote(text, quoted);
	if (unit[strcspn(unit, "0123456789")] != '\0')
		return why_set(why, "%s is more than one number with its unit", quoted);
	if (digits > UNIT_TEXT_BYTES || guess.names[0] == NULL)
		return why_set(why, "%s %s: the units are %s", quoted, what, scale->known);
	if (guess.names[1] == NULL)
		return why_set(why, "%s %s: write %.*s%s", quoted, what, digits, text,
			       guess.names[0]);
	return why_set(why, "%s %s: write %.*s%s or %.*s%s", quoted,
		       *unit == '\0' ? what : "is ambiguous", digits, text, guess.names[0], digits,
		       text, guess.names[1]);
}

/* Nothing that is written as more than 0 becomes 0. */
static int scale_number(const struct unit_scale *scale, const char *text, const struct unit *unit,
			const struct number *number, uint64_t *ret, struct why *why)
{
	char quoted[TEXT_QUOTE_BYTES];
	uint64_t value;

	text_quote(text, quoted);
	if (!number_times(number, unit->factor, &value) || value > scale->max)
		return why_set(why, "%s is too large", quoted);
	if (value == 0 && number->fraction != 0)
		return why_set(why, "%s is less than 1%s", quoted, scale->units->name);
	*ret = value;
	return 0;
}

int unit_read(const struct unit_scale *scale, const char *text, const struct unit_range *range,
	      uint64_t *ret, struct why *why)
{
	char quoted[TEXT_QUOTE_BYTES];
	struct number_guess guess;
	const struct unit *unit;
	struct number number;
	const char *rest;
	enum number_form form = number_read(text, &number, &rest, &guess);
	int digits = (int)(form == NUMBER_PLAIN ? rest - text : 0);

	if (form != NUMBER_PLAIN)
		return fail_form(scale, text, form, &guess, why);
	if (*rest != '\0' && strchr(".:;-+", *rest) != NULL)
		return fail_form(scale, text, NUMBER_NONE, &guess, why);
	if (*rest == ' ' && scale != &unit_counts)
		rest++;
	unit = find_unit(scale, rest);
	if (number.digits != 0 && (scale == &unit_counts || (unit != NULL && unit->factor == 1)))
		return why_set(why, "%s is not a whole number%s%s", text_quote(text, quoted),
			       *scale->units->name != '\0' ? " of " : "", scale->units->name);
	if (unit == NULL)
		return fail_unit(scale, text, digits, rest, &number, range, why);
	return scale_number(scale, text, unit, &number, ret, why);
}

/* Without % 0.5 is a share of one or a small percentage, 50% or 0.5%; 0.925 can only be 92.5%, and
 * 95.5 only 95.5%. Finer ones are nothing that could be written. */
static int fail_permille(const char *text, const struct number *number, const char *rest,
			 struct why *why)
{
	char quoted[TEXT_QUOTE_BYTES], of_one[UNIT_TEXT_BYTES];
	bool small = number->whole <= 1, fine = number->digits > 1;
	uint64_t permille = 0;

	text_quote(text, quoted);
	if (*rest != '\0' || number->whole > UINT32_MAX / 10)
		return why_set(why, "%s is not a share, as 95%%", quoted);
	if (small && number->digits <= 3)
		(void)number_times(number, 1000, &permille);
	unit_format_permille((uint32_t)permille, of_one);
	if (fine && permille == 0)
		return why_set(why, "%s has no unit, and more than 1 digit after the point",
			       quoted);
	if (fine)
		return why_set(why, "%s has no unit: write %s", quoted, of_one);
	if (permille != 0)
		return why_set(why, "%s has no unit: write %s or %s%%", quoted, of_one, text);
	return why_set(why, "%s has no unit: write %s%%", quoted, text);
}

int unit_read_permille(const char *text, uint32_t *ret, struct why *why)
{
	static const struct unit_scale shares = { .units = count_units, .noun = "a share, as 95%" };
	char quoted[TEXT_QUOTE_BYTES];
	struct number_guess guess;
	struct number number;
	const char *rest;
	enum number_form form = number_read(text, &number, &rest, &guess);
	uint64_t permille;

	if (form != NUMBER_PLAIN) {
		guess.count = 0;
		return fail_form(&shares, text, form, &guess, why);
	}
	rest += *rest == ' ';
	if (strcmp(rest, "%") != 0)
		return fail_permille(text, &number, rest, why);
	text_quote(text, quoted);
	if (number.digits > 1)
		return why_set(why, "%s has more than 1 digit after the point", quoted);
	if (!number_times(&number, 10, &permille) || permille > UINT32_MAX)
		return why_set(why, "%s is too large", quoted);
	*ret = (uint32_t)permille;
	return 0;
}

const char *unit_format_permille(uint32_t permille, char ret[UNIT_TEXT_BYTES])
{
	if (permille % 10 != 0)
		snprintf(ret, UNIT_TEXT_BYTES, "%u.%u%%", permille / 10, permille % 10);
	else
		snprintf(ret, UNIT_TEXT_BYTES, "%u%%", permille / 10);
	return ret;
}
