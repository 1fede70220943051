/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tierctl/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"

/* Bytes of the UTF-8 character at `s` and its number; 0 when there is none: a stray or missing
 * byte, a longer form than needed, a surrogate, beyond U+10FFFF. */
static size_t utf8_length(const unsigned char *s, size_t count, uint32_t *ret)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t length = s[0] < 0x80 ? 1 : s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	uint32_t c = length == 1 ? s[0] : s[0] & (0x7fu >> length);

	if (length == 0 || s[0] >= 0xf8 || length > count)
		return 0;
	for (size_t i = 1; i < length; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < least[length] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	*ret = c;
	return length;
}

static bool steers_a_terminal(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x200e || c == 0x200f ||
	       (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

/* Bytes from `s` on that stand for themselves, 0 when the first does not. */
static size_t plain_length(const unsigned char *s, size_t count)
{
	size_t n = 0, length;
	uint32_t c;

	while (n < count && s[n] != '\\' && s[n] != '"' &&
	       (length = utf8_length(s + n, count - n, &c)) > 0 && !steers_a_terminal(c))
		n += length;
	return n;
}

/* Bytes of what cannot stand for itself: a whole character, so that none is cut. */
static size_t strange_length(const unsigned char *s, size_t count)
{
	uint32_t c;

	return MAX(utf8_length(s, count, &c), 1);
}

static void put_escaped(FILE *to, const char *bytes, size_t count, bool json)
{
	const unsigned char *s = (const unsigned char *)bytes, *end = s + count;
	const char *backslash = json ? "\\\\" : "\\";

	while (s < end) {
		size_t n = plain_length(s, (size_t)(end - s));

		fwrite(s, 1, n, to);
		s += n;
		if (s == end)
			return;
		if (*s == '\\') {
			fprintf(to, "%s%s", backslash, backslash);
			s++;
		} else if (*s == '"') {
			fputs(json ? "\\\"" : "\"", to);
			s++;
		} else {
			for (n = strange_length(s, (size_t)(end - s)); n > 0; n--)
				fprintf(to, "%sx%02x", backslash, *s++);
		}
	}
}

void json_plain(FILE *to, const char *bytes, size_t count)
{
	put_escaped(to, bytes, count, false);
}

static void begin(struct json *j, const char *key)
{
	if (j->follows)
		fputc(',', j->to);
	j->follows = true;
	if (key != NULL) {
		fputc('"', j->to);
		fputs(key, j->to);
		fputs("\":", j->to);
	}
}

void json_open(struct json *j, const char *key, char bracket)
{
	ASSERT(bracket == '{' || bracket == '[');
	begin(j, key);
	fputc(bracket, j->to);
	j->follows = false;
}

void json_close(struct json *j, char bracket)
{
	ASSERT(bracket == '}' || bracket == ']');
	fputc(bracket, j->to);
	j->follows = true;
}

void json_u64(struct json *j, const char *key, uint64_t value)
{
	begin(j, key);
	fprintf(j->to, "%" PRIu64, value);
}

void json_i64(struct json *j, const char *key, int64_t value)
{
	begin(j, key);
	fprintf(j->to, "%" PRId64, value);
}

void json_double(struct json *j, const char *key, double value)
{
	ASSERT(isfinite(value));
	begin(j, key);
	fprintf(j->to, "%.3f", value);
}

void json_bool(struct json *j, const char *key, bool value)
{
	begin(j, key);
	fputs(value ? "true" : "false", j->to);
}

void json_null(struct json *j, const char *key)
{
	begin(j, key);
	fputs("null", j->to);
}

void json_text(struct json *j, const char *key, const char *text)
{
	begin(j, key);
	fputc('"', j->to);
	for (; *text != '\0'; text++) {
		ASSERT((unsigned char)*text >= 0x20 || *text == '\n');
		if (*text == '"' || *text == '\\')
			fputc('\\', j->to);
		if (*text == '\n')
			fputs("\\n", j->to);
		else
			fputc(*text, j->to);
	}
	fputc('"', j->to);
}

void json_name(struct json *j, const char *key, const char *bytes, size_t count)
{
	begin(j, key);
	fputc('"', j->to);
	put_escaped(j->to, bytes, count, true);
	fputc('"', j->to);
}

void json_end(struct json *j)
{
	fputc('\n', j->to);
	j->follows = false;
}
