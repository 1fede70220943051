/* SPDX-License-Identifier: Apache-2.0
 *
 * What the program that scripts/layout.awk writes prints its tables with. A hole between two
 * members ends it, but for those that an alignment to a cache line makes: a struct of the protocol
 * names what it reserves.
 */
#ifndef TIERD_TESTS_LAYOUT_TABLES_H
#define TIERD_TESTS_LAYOUT_TABLES_H

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static const char *table_name;
static size_t expected_offset, struct_bytes;

/* A bar would end the cell. */
static void cell(const char *text)
{
	for (; *text != '\0'; text++)
		printf("%s%c", *text == '|' ? "\\" : "", *text);
	fputs(" |\n", stdout);
}

static void table(const char *name, size_t bytes)
{
	printf("## %s\n\n`%s`, %zu bytes:\n\n| offset | bytes | field | type | is |\n"
	       "| --- | --- | --- | --- | --- |\n",
	       name, name, bytes);
	table_name = name;
	expected_offset = 0;
	struct_bytes = bytes;
}

static void hole(size_t to)
{
	if (to == expected_offset)
		return;
	if (to < expected_offset || to - expected_offset >= 64 || to % 64 != 0) {
		fprintf(stderr, "%s: a hole before offset %zu\n", table_name, to);
		exit(EXIT_FAILURE);
	}
	printf("| %zu | %zu | | | zero |\n", expected_offset, to - expected_offset);
}

static void field(size_t offset, size_t bytes, const char *name, const char *type, const char *is)
{
	hole(offset);
	printf("| %zu | %zu | `%s` | %s | ", offset, bytes, name, type);
	cell(is);
	expected_offset = offset + bytes;
}

static void done(void)
{
	hole(struct_bytes);
	putchar('\n');
}

#define FIELD(of, member, name, type, is) \
	field(offsetof(of, member), sizeof(((of *)0)->member), name, type, is)

static void names(const char *name)
{
	printf("## %s\n\n| name | value | is |\n| --- | --- | --- |\n", name);
}

static void value(const char *name, uint64_t number, const char *is)
{
	if (number > 0xffff)
		printf("| `%s` | 0x%" PRIx64 " | ", name, number);
	else
		printf("| `%s` | %" PRIu64 " | ", name, number);
	cell(is);
}

#endif
