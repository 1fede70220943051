/* SPDX-License-Identifier: Apache-2.0
 *
 * The decimal number that a value begins with, and the forms that are numbers elsewhere but not
 * here (octal, hexadecimal, exponents, separators). Pure; any thread.
 */
#ifndef TIERD_CONFIG_NUMBER_H
#define TIERD_CONFIG_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* whole + fraction / 10^digits */
struct number {
	uint64_t whole, fraction;
	unsigned digits;
};

enum number_form {
	NUMBER_PLAIN,
	NUMBER_NONE, /* no number at all */
	NUMBER_EMPTY,
	NUMBER_NEGATIVE,
	NUMBER_TOO_LARGE, /* more than 64 bits */
	NUMBER_TOO_FINE,  /* more than 9 digits after the point */
	NUMBER_OCTAL,     /* a leading zero */
	NUMBER_PREFIX,    /* 0x, 0o, 0b */
	NUMBER_EXPONENT,
	NUMBER_SEPARATOR, /* 1_000, 1,000 */
};

/* What an odd form most likely means, when it is that and nothing more. */
struct number_guess {
	unsigned count; /* 0, 1 or 2 */
	uint64_t values[2];
};

/* PLAIN: `ret` is filled and `ret_rest` points behind it. Other forms fill `ret_guess`. */
enum number_form number_read(const char *text, struct number *ret, const char **ret_rest,
			     struct number_guess *ret_guess);
/* number x factor, rounded down; false when it needs more than 64 bits. */
bool number_times(const struct number *number, uint64_t factor, uint64_t *ret);

#endif
