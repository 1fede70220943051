# SPDX-License-Identifier: Apache-2.0
#
# Puts tables into a page: what the first file has below "## NAME" goes between the lines
# "<!-- NAME -->" and "<!-- end -->" of the second. Each table has to have its place, and each place
# a table.

function fail(what)
{
	print FILENAME ":" FNR ": " what >"/dev/stderr"
	failed = 1
}

FNR == 1 { file++ }
file == 1 && /^## / { name = substr($0, 4); body[name] = ""; next }
file == 1 { body[name] = body[name] $0 "\n"; next }

/^<!-- .* -->$/ && $0 != "<!-- end -->" {
	name = $0
	gsub(/^<!-- | -->$/, "", name)
	if (!(name in body))
		fail("there is no " name " to be put here")
	else if (name in put)
		fail(name " has two places")
	put[name] = 1
	text = body[name]
	gsub(/^\n+|\n+$/, "", text)
	printf "%s\n\n%s\n\n", $0, text
	inside = 1
	next
}
$0 == "<!-- end -->" { inside = 0 }
!inside { print }

END {
	for (name in body)
		if (!(name in put))
			fail("it has no place for " name ": <!-- " name " -->")
	if (inside)
		fail("an end is missing")
	exit failed
}
