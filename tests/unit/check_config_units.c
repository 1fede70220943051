/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "config/number.h"
#include "config/units.h"

/* `why` NULL: reads as `value`. */
struct spelling {
	const char *text;
	uint64_t value;
	const char *why;
};

static void check_spellings(const struct unit_scale *scale, const struct spelling *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct why why = { "" };
		uint64_t value = 4711;
		int res = unit_read(scale, rows[i].text, NULL, &value, &why);

		if (rows[i].why == NULL) {
			ck_assert_msg(res == 0, "%s: %s", rows[i].text, why.text);
			ck_assert_msg(value == rows[i].value, "%s is %llu", rows[i].text,
				      (unsigned long long)value);
		} else {
			ck_assert_msg(res == -EINVAL, "taken: %s", rows[i].text);
			ck_assert_str_eq(why.text, rows[i].why);
			ck_assert_uint_eq(value, 4711);
		}
	}
}

#define KNOWN "the units are B KB MB GB TB (1000) KiB MiB GiB TiB (1024)"

static const struct spelling size_spellings[] = {
	{ "64GB", 64000000000, NULL },
	{ "64GiB", GIB(64), NULL },
	{ "64 GB", 64000000000, NULL },
	{ "0B", 0, NULL },
	{ "1B", 1, NULL },
	{ "1.5GiB", GIB(3) / 2, NULL },
	{ "4.1GiB", 4402341478, NULL },
	{ "0.001KB", 1, NULL },
	{ "1KB", 1000, NULL },
	{ "1KiB", 1024, NULL },
	{ "3TB", 3000000000000, NULL },
	{ "3TiB", GIB(3072), NULL },
	{ "9223372036854775807B", INT64_MAX, NULL },
	{ "64G", 0, "'64G' is ambiguous: write 64GB or 64GiB" },
	{ "64g", 0, "'64g' is ambiguous: write 64GB or 64GiB" },
	{ "64Gi", 0, "'64Gi' is ambiguous: write 64GB or 64GiB" },
	{ "64gb", 0, "'64gb' is ambiguous: write 64GB or 64GiB" },
	{ "64Gb", 0, "'64Gb' is ambiguous: write 64GB or 64GiB" },
	{ "64 gb", 0, "'64 gb' is ambiguous: write 64GB or 64GiB" },
	{ "64 G B", 0, "'64 G B' is ambiguous: write 64GB or 64GiB" },
	{ "64  GB", 0, "'64  GB' has an unknown unit: " KNOWN },
	{ "64GBs", 0, "'64GBs' is ambiguous: write 64GB or 64GiB" },
	{ "64GiBytes", 0, "'64GiBytes' is ambiguous: write 64GB or 64GiB" },
	{ "1.5k", 0, "'1.5k' is ambiguous: write 1.5KB or 1.5KiB" },
	{ "64bytes", 0, "'64bytes' has an unknown unit: write 64B" },
	{ "64XB", 0, "'64XB' has an unknown unit: " KNOWN },
	{ "64", 0, "'64' has no unit: write 64GB or 64GiB" },
	{ "1048576", 0, "'1048576' has no unit: write 1048576B" },
	{ "0", 0, "'0' has no unit: write 0B" },
	{ "18446744073709551615", 0,
	  "'18446744073709551615' has no unit: write 18446744073709551615B" },
	{ "18446744073709551616", 0, "'18446744073709551616' is too large" },
	{ "18446744073709551615B", 0, "'18446744073709551615B' is too large" },
	{ "8589934592GiB", 0, "'8589934592GiB' is too large" },
	{ "8388608TiB", 0, "'8388608TiB' is too large" },
	{ "99999999999999999999999999GB", 0, "'99999999999999999999999999GB' is too large" },
	{ "16EiB", 0, "'16EiB' has an unknown unit: " KNOWN },
	{ "64e9", 0, "'64e9' has an exponent: write 64000000000B or 64GB" },
	{ "6.4e10", 0, "'6.4e10' has an exponent: write 64000000000B or 64GB" },
	{ "1e400", 0, "'1e400' has an exponent" },
	{ "1e9GB", 0, "'1e9GB' has an exponent" },
	{ "1e-3", 0, "'1e-3' has an exponent" },
	{ "1.25e1", 0, "'1.25e1' has an exponent" },
	{ "0x1000", 0, "'0x1000' is not decimal: write 4096B or 4KiB" },
	{ "010", 0, "'010' has a leading zero: write 10B or 8B" },
	{ "064GB", 0, "'064GB' has a leading zero" },
	{ "1_000", 0, "'1_000' has a separator between digits: write 1000B or 1KB" },
	{ "1,000", 0, "'1,000' has a separator between digits: write 1000B or 1KB" },
	{ "1,5GB", 0, "'1,5GB' has a separator between digits" },
	{ "", 0, "is empty; expected a size, as 64GiB" },
	{ "-1", 0, "'-1' is negative" },
	{ "-0", 0, "'-0' is negative" },
	{ "-5GB", 0, "'-5GB' is negative" },
	{ "+5GB", 0, "'+5GB' is not a size, as 64GiB" },
	{ "nan", 0, "'nan' is not a size, as 64GiB" },
	{ "inf", 0, "'inf' is not a size, as 64GiB" },
	{ "-inf", 0, "'-inf' is not a size, as 64GiB" },
	{ "GB", 0, "'GB' is not a size, as 64GiB" },
	{ ".5GB", 0, "'.5GB' is not a size, as 64GiB" },
	{ "5.GB", 0, "'5.GB' is not a size, as 64GiB" },
	{ "1.2.3GB", 0, "'1.2.3GB' is not a size, as 64GiB" },
	{ "0.1B", 0, "'0.1B' is not a whole number of B" },
	{ "1.5B", 0, "'1.5B' is not a whole number of B" },
	{ "0.0001KB", 0, "'0.0001KB' is less than 1B" },
	{ "0.1234567891GB", 0, "'0.1234567891GB' has more than 9 digits after the point" },
	{ "64\xc2\xa0GB", 0, "'64\xc2\xa0GB' has an unknown unit: " KNOWN },
	{ "64GB ", 0, "'64GB ' is ambiguous: write 64GB or 64GiB" },
	{ " 64GB", 0, "' 64GB' is not a size, as 64GiB" },
};

START_TEST(sizes_have_one_meaning_or_none)
{
	check_spellings(&unit_sizes, size_spellings, ARRAY_SIZE(size_spellings));
}
END_TEST

START_TEST(numbers_of_yaml_are_not_numbers_here)
{
	static const struct spelling rows[] = {
		{ "0", 0, NULL },
		{ "4096", 4096, NULL },
		{ "4Ki", 4096, NULL },
		{ "4Mi", MIB(4), NULL },
		{ "18446744073709551615", UINT64_MAX, NULL },
		{ "18446744073709551616", 0, "'18446744073709551616' is too large" },
		{ "17179869184Gi", 0, "'17179869184Gi' is too large" },
		{ "1e9", 0, "'1e9' has an exponent: write 1000000000" },
		{ "1.0e9", 0, "'1.0e9' has an exponent: write 1000000000" },
		{ "1E+9", 0, "'1E+9' has an exponent: write 1000000000" },
		{ "1_000_000_000", 0,
		  "'1_000_000_000' has a separator between digits: write 1000000000" },
		{ "1,048,576", 0,
		  "'1,048,576' has a separator between digits: write 1048576 or 1Mi" },
		{ "0o17", 0, "'0o17' is not decimal: write 15" },
		{ "0b101", 0, "'0b101' is not decimal: write 5" },
		{ "0X10", 0, "'0X10' is not decimal: write 16" },
		{ "017", 0, "'017' has a leading zero: write 17 or 15" },
		{ "08", 0, "'08' has a leading zero: write 8" },
		{ "00", 0, "'00' has a leading zero: write 0" },
		{ "12:30:45", 0, "'12:30:45' is not a number, as 4096 or 4Mi" },
		{ ".inf", 0, "'.inf' is not a number, as 4096 or 4Mi" },
		{ "~", 0, "'~' is not a number, as 4096 or 4Mi" },
		{ "yes", 0, "'yes' is not a number, as 4096 or 4Mi" },
		{ "4K", 0, "'4K' is ambiguous: write 4Ki or 4000" },
		{ "4m", 0, "'4m' is ambiguous: write 4Mi or 4000000" },
		{ "4GiB", 0, "'4GiB' is ambiguous: write 4Gi or 4000000000" },
		{ "4 Mi", 0, "'4 Mi' has an unknown unit: the units are none, Ki Mi Gi (1024)" },
		{ "4s", 0, "'4s' has an unknown unit: the units are none, Ki Mi Gi (1024)" },
		{ "1.5", 0, "'1.5' is not a whole number" },
		{ "1.5Mi", 0, "'1.5Mi' is not a whole number" },
	};

	check_spellings(&unit_counts, rows, ARRAY_SIZE(rows));
}
END_TEST

START_TEST(durations_name_their_unit)
{
	static const struct spelling rows[] = {
		{ "0s", 0, NULL },
		{ "5ns", 5, NULL },
		{ "5us", 5000, NULL },
		{ "5ms", 5000000, NULL },
		{ "1.5s", 1500000000, NULL },
		{ "2min", 120 * NS_PER_S, NULL },
		{ "1 h", 3600 * NS_PER_S, NULL },
		{ "60", 0, "'60' has no unit: write 60s or 60ms" },
		{ "5m", 0, "'5m' is ambiguous: write 5min or 5ms" },
		{ "5M", 0, "'5M' is ambiguous: write 5min or 5ms" },
		{ "5S", 0, "'5S' has an unknown unit: write 5s" },
		{ "5sec", 0, "'5sec' has an unknown unit: write 5s" },
		{ "5 minutes", 0, "'5 minutes' has an unknown unit: write 5min" },
		{ "5msec", 0, "'5msec' has an unknown unit: write 5ms" },
		{ "5\xc2\xb5s", 0, "'5\xc2\xb5s' has an unknown unit: write 5us" },
		{ "1h30min", 0, "'1h30min' is more than one number with its unit" },
		{ "1d", 0, "'1d' has an unknown unit: the units are ns us ms s min h" },
		{ "0.5ns", 0, "'0.5ns' is not a whole number of ns" },
		{ "0.0001us", 0, "'0.0001us' is less than 1ns" },
		{ "-1s", 0, "'-1s' is negative" },
		{ "3000000h", 0, "'3000000h' is too large" },
		{ "1e3s", 0, "'1e3s' has an exponent" },
		{ "1e9", 0, "'1e9' has an exponent: write 1000000000ns or 1s" },
		{ "inf", 0, "'inf' is not a time, as 30s" },
	};

	check_spellings(&unit_durations, rows, ARRAY_SIZE(rows));
}
END_TEST

START_TEST(rates_are_sizes_a_second)
{
	static const struct spelling rows[] = {
		{ "2GB/s", 2000000000, NULL },
		{ "1.5 MiB/s", MIB(3) / 2, NULL },
		{ "2GB", 0, "'2GB' has an unknown unit: write 2GB/s" },
		{ "2GiB", 0, "'2GiB' has an unknown unit: write 2GiB/s" },
		{ "2G/s", 0, "'2G/s' is ambiguous: write 2GB/s or 2GiB/s" },
		{ "2Gbps", 0, "'2Gbps' is ambiguous: write 2GB/s or 2GiB/s" },
		{ "2000000", 0, "'2000000' has no unit: write 2000000B/s" },
		{ "fast", 0, "'fast' is not a rate, as 2GB/s" },
	};

	check_spellings(&unit_rates, rows, ARRAY_SIZE(rows));
}
END_TEST

START_TEST(a_unit_that_is_proposed_is_within_the_range)
{
	static const struct {
		const struct unit_scale *scale;
		const char *text;
		struct unit_range range;
		const char *says;
	} rows[] = {
		{ &unit_durations, "100", { 0, UINT64_MAX }, "write 100s or 100ms" },
		{ &unit_durations, "100", { 0, NS_PER_S }, "write 100ms" },
		{ &unit_durations, "100", { 0, NS_PER_MS }, "write 100us or 100ns" },
		{ &unit_durations, "1", { 0, NS_PER_MS }, "write 1ms" },
		{ &unit_durations, "5000", { 0, NS_PER_MS }, "write 5000ns" },
		{ &unit_durations, "1", { 60 * NS_PER_S, UINT64_MAX }, "write 1min or 1h" },
		{ &unit_durations, "0", { 1, UINT64_MAX }, "write 0s or 0ms" }, /* none is */
		{ &unit_sizes, "64", { MIB(2), GIB(1) }, "write 64MiB or 64MB" },
		{ &unit_sizes, "4096", { KIB(4), MIB(64) }, "write 4096KiB or 4096B" },
		{ &unit_sizes, "64", { MIB(1), UINT64_MAX }, "write 64GB or 64GiB" },
		{ &unit_sizes, "20000", { MIB(1), UINT64_MAX }, "write 20000KB or 20000KiB" },
		{ &unit_rates, "5", { 0, MIB(20) }, "write 5MiB/s or 5B/s" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct why why = { "" };
		uint64_t value = 4711;
		char want[128];

		ck_assert_int_eq(
			unit_read(rows[i].scale, rows[i].text, &rows[i].range, &value, &why),
			-EINVAL);
		snprintf(want, sizeof(want), "'%s' has no unit: %s", rows[i].text, rows[i].says);
		ck_assert_str_eq(why.text, want);
		ck_assert_uint_eq(value, 4711);
	}
}
END_TEST

START_TEST(shares_are_in_percent)
{
	static const struct spelling rows[] = {
		{ "95%", 950, NULL },
		{ "92.5 %", 925, NULL },
		{ "0%", 0, NULL },
		{ "100.0%", 1000, NULL },
		{ "150%", 1500, NULL },
		{ "95", 0, "'95' has no unit: write 95%" },
		{ "0.5", 0, "'0.5' has no unit: write 50% or 0.5%" },
		{ "0.95", 0, "'0.95' has no unit: write 95%" },
		{ "0.925", 0, "'0.925' has no unit: write 92.5%" },
		{ "0.005", 0, "'0.005' has no unit: write 0.5%" },
		{ "1.25", 0, "'1.25' has no unit: write 125%" },
		{ "1", 0, "'1' has no unit: write 100% or 1%" },
		{ "95.5", 0, "'95.5' has no unit: write 95.5%" },
		{ "95.25", 0, "'95.25' has no unit, and more than 1 digit after the point" },
		{ "0.9255", 0, "'0.9255' has no unit, and more than 1 digit after the point" },
		{ "4294967295", 0, "'4294967295' is not a share, as 95%" },
		{ "0", 0, "'0' has no unit: write 0%" },
		{ "92.55%", 0, "'92.55%' has more than 1 digit after the point" },
		{ "-5%", 0, "'-5%' is negative" },
		{ "%", 0, "'%' is not a share, as 95%" },
		{ "95%%", 0, "'95%%' is not a share, as 95%" },
		{ "5GB", 0, "'5GB' is not a share, as 95%" },
		{ "1e2%", 0, "'1e2%' has an exponent" },
		{ "", 0, "is empty; expected a share, as 95%" },
		{ "4294967296%", 0, "'4294967296%' is too large" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct why why = { "" };
		uint32_t value = 4711;
		int res = unit_read_permille(rows[i].text, &value, &why);

		ck_assert_msg((res == 0) == (rows[i].why == NULL), "%s: %s", rows[i].text,
			      why.text);
		ck_assert_str_eq(why.text, rows[i].why != NULL ? rows[i].why : "");
		ck_assert_uint_eq(value, res == 0 ? rows[i].value : 4711);
	}
}
END_TEST

static void check_round_trip(const struct unit_scale *scale, uint64_t value)
{
	char text[UNIT_TEXT_BYTES];
	struct why why = { "" };
	uint64_t again = ~value;

	unit_format(scale, value, text);
	ck_assert_msg(unit_read(scale, text, NULL, &again, &why) == 0, "%s: %s", text, why.text);
	ck_assert_msg(again == value, "%s", text);
}

START_TEST(what_is_formatted_reads_back_exactly)
{
	static const struct unit_scale *const scales[] = { &unit_sizes, &unit_rates,
							   &unit_durations, &unit_counts };
	uint64_t value = 1;

	for (size_t s = 0; s < ARRAY_SIZE(scales); s++) {
		check_round_trip(scales[s], 0);
		check_round_trip(scales[s], INT64_MAX);
		for (unsigned i = 0; i < 20000; i++) {
			/* Multiples of units as well as odd numbers. */
			value = value * 6364136223846793005ull + 1442695040888963407ull;
			check_round_trip(scales[s], value >> (1 + value % 63));
			check_round_trip(scales[s], (value % 1000) * GIB(1));
			check_round_trip(scales[s], (value % 1000) * NS_PER_S);
		}
	}
	for (uint32_t permille = 0; permille <= 2000; permille++) {
		char text[UNIT_TEXT_BYTES];
		struct why why = { "" };
		uint32_t again = 4711;

		unit_format_permille(permille, text);
		ck_assert_int_eq(unit_read_permille(text, &again, &why), 0);
		ck_assert_uint_eq(again, permille);
	}
}
END_TEST

START_TEST(a_value_is_formatted_by_its_largest_unit)
{
	char text[UNIT_TEXT_BYTES];

	ck_assert_str_eq(unit_format(&unit_sizes, 64000000000, text), "64GB");
	ck_assert_str_eq(unit_format(&unit_sizes, GIB(64), text), "64GiB");
	ck_assert_str_eq(unit_format(&unit_sizes, 4402341478, text), "4402341478B");
	ck_assert_str_eq(unit_format(&unit_sizes, 0, text), "0B");
	ck_assert_str_eq(unit_format(&unit_durations, 0, text), "0s");
	ck_assert_str_eq(unit_format(&unit_durations, 90 * NS_PER_S, text), "90s");
	ck_assert_str_eq(unit_format(&unit_rates, 2500000000, text), "2500MB/s");
	ck_assert_str_eq(unit_format(&unit_counts, MIB(4), text), "4Mi");
}
END_TEST

UNIT_MAIN("config_units", sizes_have_one_meaning_or_none, numbers_of_yaml_are_not_numbers_here,
	  durations_name_their_unit, rates_are_sizes_a_second,
	  a_unit_that_is_proposed_is_within_the_range, shares_are_in_percent,
	  what_is_formatted_reads_back_exactly, a_value_is_formatted_by_its_largest_unit)
