# SPDX-License-Identifier: Apache-2.0
#
# What man.awk and man-api.awk share; read before them.

# Text that troff takes as it is. `code` says that a minus is a minus.
function plain(s, code)
{
	gsub(/\\/, "\\e", s)
	gsub(/\^/, "\\(ha", s)
	gsub(/~/, "\\(ti", s)
	if (code)
		gsub(/-/, "\\-", s)
	return s
}

# Code as editors show it: the tabs of troff are at other columns.
function columns(s,    i)
{
	while ((i = index(s, "\t")) > 0)
		s = substr(s, 1, i - 1) substr("        ", 1 + (i - 1) % 8) substr(s, i + 1)
	return s
}

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
