# SPDX-License-Identifier: Apache-2.0
#
# What man.awk and man-api.awk share; read before them.

# A text in lines that fit, none of which may look like a request.
function put(s,    n, i, words, line)
{
	n = split(s, words, " ")
	line = words[1]
	for (i = 2; i <= n; i++) {
		if (length(line) + 1 + length(words[i]) > 78) {
			put_line(line)
			line = words[i]
		} else {
			line = line " " words[i]
		}
	}
	put_line(line)
}

function put_line(s)
{
	print (s ~ /^[.']/ ? "\\&" : "") s
}
