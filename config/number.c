/* SPDX-License-Identifier: Apache-2.0 */
#include "config/number.h"

#include <string.h>

enum { FRACTION_DIGITS_MAX = 9 };

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* The value of a digit in bases up to 16, 99 for what is none. */
static unsigned digit_value(char c)
{
	if (is_digit(c))
		return (unsigned)(c - '0');
	if (c >= 'a' && c <= 'f')
		return (unsigned)(c - 'a') + 10;
	return c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10 : 99;
}

/* Reads digits of `base`, jumping over '_' and ',' if `separators`; false on overflow or no digit.
 */
static bool read_digits(const char **text, unsigned base, bool separators, uint64_t *ret)
{
	const char *at = *text;
	bool any = false, fits = true;
	uint64_t value = 0;

	for (; digit_value(*at) < base || (separators && (*at == '_' || *at == ',')); at++) {
		if (*at == '_' || *at == ',')
			continue;
		any = true;
		fits = fits && !__builtin_mul_overflow(value, base, &value) &&
		       !__builtin_add_overflow(value, digit_value(*at), &value);
	}
	*text = at;
	*ret = value;
	return any && fits;
}

static void guess_add(struct number_guess *guess, uint64_t value)
{
	guess->values[guess->count++] = value;
}

/* 0x1000, 0o17, 0b101; "0B" is zero bytes and none of them. */
static unsigned prefix_base(const char *text)
{
	if (text[0] != '0')
		return 0;
	if ((text[1] == 'x' || text[1] == 'X') && digit_value(text[2]) < 16)
		return 16;
	if ((text[1] == 'o' || text[1] == 'O') && digit_value(text[2]) < 8)
		return 8;
	return (text[1] == 'b' || text[1] == 'B') && digit_value(text[2]) < 2 ? 2 : 0;
}

static enum number_form guess_base(const char *digits, unsigned base, enum number_form form,
				   struct number_guess *guess)
{
	uint64_t value;

	if (read_digits(&digits, base, false, &value) && *digits == '\0')
		guess_add(guess, value);
	return form;
}

static enum number_form guess_octal(const char *text, struct number_guess *guess)
{
	guess_base(text, 10, NUMBER_OCTAL, guess);
	if (guess->count != 0)
		guess_base(text, 8, NUMBER_OCTAL, guess);
	return NUMBER_OCTAL;
}

static enum number_form guess_separated(const char *text, struct number_guess *guess)
{
	uint64_t value;

	if (read_digits(&text, 10, true, &value) && *text == '\0')
		guess_add(guess, value);
	return NUMBER_SEPARATOR;
}

static bool begins_exponent(const char *text)
{
	if (*text != 'e' && *text != 'E')
		return false;
	return is_digit(text[1]) || ((text[1] == '+' || text[1] == '-') && is_digit(text[2]));
}

/* number x 10^exponent, when that is a whole number of 64 bits. */
static enum number_form guess_exponent(const struct number *number, const char *text,
				       struct number_guess *guess)
{
	uint64_t exponent, factor = 1, value;
	const char *at = text + (text[1] == '+' ? 2 : 1);

	if (text[1] == '-' || !read_digits(&at, 10, false, &exponent) || *at != '\0' ||
	    exponent > 19 || exponent < number->digits)
		return NUMBER_EXPONENT;
	for (uint64_t i = 0; i < exponent; i++)
		factor *= 10;
	if (number_times(number, factor, &value))
		guess_add(guess, value);
	return NUMBER_EXPONENT;
}

static bool read_fraction(const char **text, struct number *ret)
{
	const char *digits = *text + 1;

	if (**text != '.' || !is_digit(*digits))
		return true;
	*text = digits;
	if (strspn(digits, "0123456789") > FRACTION_DIGITS_MAX)
		return false;
	ret->digits = (unsigned)strspn(digits, "0123456789");
	return read_digits(text, 10, false, &ret->fraction);
}

enum number_form number_read(const char *text, struct number *ret, const char **ret_rest,
			     struct number_guess *ret_guess)
{
	struct number number = { 0 };
	unsigned base = prefix_base(text);
	const char *at = text;
	bool fits;

	ret_guess->count = 0;
	if (*text == '\0')
		return NUMBER_EMPTY;
	if (*text == '-')
		return is_digit(text[1]) ? NUMBER_NEGATIVE : NUMBER_NONE;
	if (!is_digit(*text))
		return NUMBER_NONE;
	if (base != 0)
		return guess_base(text + 2, base, NUMBER_PREFIX, ret_guess);
	fits = read_digits(&at, 10, false, &number.whole);
	if ((*at == '_' || *at == ',') && is_digit(at[1]))
		return guess_separated(text, ret_guess);
	if (*text == '0' && is_digit(text[1]))
		return guess_octal(text, ret_guess);
	if (!fits)
		return NUMBER_TOO_LARGE;
	if (!read_fraction(&at, &number))
		return NUMBER_TOO_FINE;
	if (begins_exponent(at))
		return guess_exponent(&number, at, ret_guess);
	*ret = number;
	*ret_rest = at;
	return NUMBER_PLAIN;
}

bool number_times(const struct number *number, uint64_t factor, uint64_t *ret)
{
	uint64_t power = 1, whole, part;

	for (unsigned i = 0; i < number->digits; i++)
		power *= 10;
	if (__builtin_mul_overflow(number->whole, factor, &whole))
		return false;
	part = (uint64_t)((unsigned __int128)number->fraction * factor / power);
	return !__builtin_add_overflow(whole, part, ret);
}
