/* SPDX-License-Identifier: Apache-2.0 */
#include "config/text.h"

#include <stdint.h>
#include <string.h>

/* Bytes of the sequence that `lead` begins, 0 when none can. */
static unsigned sequence_bytes(unsigned char lead)
{
	if (lead < 0x80)
		return 1;
	if (lead >= 0xc2 && lead <= 0xdf)
		return 2;
	if (lead >= 0xe0 && lead <= 0xef)
		return 3;
	return lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
}

/* The code point at `text`, or -1: not UTF-8 (cut, overlong, a surrogate or too large). */
static int32_t decode(const unsigned char *text, size_t room, unsigned *ret_bytes)
{
	static const int32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
	unsigned n = sequence_bytes(text[0]);
	int32_t code;

	if (n == 0 || n > room)
		return -1;
	code = n == 1 ? text[0] : text[0] & (0x7f >> n);
	for (unsigned i = 1; i < n; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return -1;
		code = code << 6 | (text[i] & 0x3f);
	}
	if (code < smallest[n] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		return -1;
	*ret_bytes = n;
	return code;
}

/* libyaml takes U+0085, U+2028 and U+2029 for ends of lines where editors do not, so line numbers
 * would be wrong; a byte order mark inside the text is invisible. */
static const char *code_fault(int32_t code, bool breaks)
{
	if (code == 0)
		return "a NUL byte";
	if (breaks && (code == '\t' || code == '\n' || code == '\r'))
		return NULL;
	if (code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x2028 || code == 0x2029)
		return "a control character";
	if (code == 0xfeff || code == 0xfffe || code == 0xffff)
		return "a byte order mark or noncharacter inside the text";
	return NULL;
}

bool text_check(const char *text, size_t bytes, bool breaks, struct text_fault *ret)
{
	size_t at = 0;

	while (at < bytes) {
		unsigned n = 1;
		int32_t code = decode((const unsigned char *)text + at, bytes - at, &n);
		const char *what = code < 0 ? "a byte that is not UTF-8" : code_fault(code, breaks);

		if (what != NULL) {
			*ret = (struct text_fault){ at, what };
			return false;
		}
		at += n;
	}
	return true;
}

const char *text_quote(const char *text, char ret[TEXT_QUOTE_BYTES])
{
	size_t bytes = strlen(text), room = TEXT_QUOTE_BYTES - sizeof("''...");
	bool cut = bytes > room;

	if (cut) {
		bytes = room;
		while (bytes > 0 && ((unsigned char)text[bytes] & 0xc0) == 0x80)
			bytes--;
	}
	ret[0] = '\'';
	memcpy(ret + 1, text, bytes);
	memcpy(ret + 1 + bytes, cut ? "...'" : "'", cut ? 5 : 2);
	return ret;
}
