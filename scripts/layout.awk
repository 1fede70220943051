# SPDX-License-Identifier: Apache-2.0
#
# From the headers of libclient/protocol a C program that prints, as Markdown, what lies where in
# each struct and which numbers there are: names and comments are the headers', offsets and values
# the compiler's. What it prints is merged into docs/protocol.md by scripts/layout-merge.awk. It knows
# the C that the headers are written in; what it does not know it does not compile or refuses.

function c_string(s)
{
	gsub(/\\/, "\\\\", s)
	gsub(/"/, "\\\"", s)
	return "\"" s "\""
}

# The text of a comment.
function words(s)
{
	sub(/^\/\*+<? */, "", s)
	sub(/ *\*\/$/, "", s)
	gsub(/\n[ \t]*\*? */, " ", s)
	gsub(/  +/, " ", s)
	return s
}

function out(s)
{
	code = code s "\n"
}

# Takes the next comment or the next piece up to `last` from `body`. Sets token, comment (whether it
# is one) and fresh (whether it begins a line).
function next_token(last)
{
	fresh = 0
	if (match(body, /^[ \t\n]+/)) {
		fresh = substr(body, 1, RLENGTH) ~ /\n/
		body = substr(body, RLENGTH + 1)
	}
	if (body == "")
		return 0
	comment = body ~ /^\/\*/
	at = comment ? index(body, "*/") + 1 : index(body, last)
	if (at == 0)
		at = length(body)
	token = substr(body, 1, at)
	body = substr(body, at + 1)
	return 1
}

# Items are emitted when the comment behind them can not come any more.
function emit(    i)
{
	for (i = 1; i <= items; i++)
		out("\t" item[i] ", " c_string(about) ");")
	items = 0
	about = ""
}

function add_comment(s)
{
	about = about (about == "" ? "" : " ") words(s)
}

function fields(s,    type, n, i, list, name)
{
	sub(/;$/, "", s)
	gsub(/_Alignas\([0-9]+\)|_Atomic/, " ", s)
	gsub(/[ \t\n]+/, " ", s)
	sub(/^ /, "", s)
	match(s, /^(struct )?[a-z_0-9]+ /)
	type = substr(s, 1, RLENGTH - 1)
	n = split(substr(s, RLENGTH + 1), list, /, */)
	for (i = 1; i <= n; i++) {
		name = list[i]
		sub(/\[.*/, "", name)
		item[++items] = sprintf("FIELD(%s, %s, \"%s\", \"%s\"", structure, name, \
					list[i], type)
	}
}

# Rows of a macro, "#define X(name, unit, kind, help) type name;", as one declaration.
function take_rows(    begin, macro)
{
	while (match(body, /#define X\(name, unit, kind, help\)[^\n]*\n[ \t]*[A-Z_]+\(X\)\n#undef X/)) {
		begin = RSTART
		macro = substr(body, RSTART, RLENGTH)
		body = substr(body, 1, begin - 1) "ROWS " macro_of(macro) ";" \
			substr(body, begin + RLENGTH)
	}
}

# What stands before "(X)".
function macro_of(s)
{
	sub(/\(X\).*/, "", s)
	sub(/.*[^A-Z_]/, "", s)
	return s
}

# A struct without a name is a table of its own: "struct { ... } tier[N];" becomes a member.
function take_inner(    begin, end, name)
{
	while (match(body, /struct \{/)) {
		begin = RSTART
		end = index(substr(body, begin), "}")
		inner_body[++inners] = substr(body, begin + RLENGTH, end - RLENGTH - 1)
		body = substr(body, 1, begin - 1) "below" substr(body, begin + end)
		name = substr(body, begin + 6)
		sub(/[;[].*/, "", name)
		inner[inners] = name
	}
}

function one_table(title)
{
	out("\ttable(\"" title "\", sizeof(" structure "));")
	while (next_token(";")) {
		if (comment) {
			# One on a line of its own is of what follows.
			if (fresh)
				emit()
			add_comment(token)
			continue
		}
		if (items > 0)
			emit()
		if (token ~ /^ROWS /) {
			out("#define X(name, unit, kind, help) FIELD(" structure \
				", name, #name, \"uint64_t\", unit \", \" help);")
			out(substr(token, 6, length(token) - 6) "(X)")
			out("#undef X")
		} else {
			fields(token)
		}
	}
	emit()
	out("\tdone();")
}

function struct_done(    of, i)
{
	of = structure
	structure = "struct " of
	inners = 0
	take_rows()
	take_inner()
	one_table("struct " of)
	for (i = 1; i <= inners; i++) {
		structure = "__typeof__(((struct " of " *)0)->" inner[i] "[0])"
		body = inner_body[i]
		one_table(of "." inner[i] "[]")
	}
}

function value(name)
{
	item[++items] = sprintf("value(\"%s\", (uint64_t)%s", name, name)
}

# A table of names by one macro: "#define X(name, number, text) OP_##name = number,".
function rows_done(    prefix, macro)
{
	match(body, /[A-Z_]+##name/)
	prefix = substr(body, RSTART, RLENGTH - 6)
	macro = macro_of(substr(body, RSTART + RLENGTH))
	out("#define X(name, number, text) value(\"" prefix "\" #name, (uint64_t)" prefix \
		"##name, text);")
	out(macro "(X)")
	out("#undef X")
}

function enum_done(    name)
{
	if (enumeration == "") {
		match(body, /[A-Z]+/)
		enumeration = substr(body, RSTART, RLENGTH)
	}
	out("\tnames(\"enum " enumeration "\");")
	if (body ~ /##name/) {
		rows_done()
		out("\tputchar('\\n');")
		return
	}
	while (next_token(",")) {
		if (comment) {
			if (fresh)
				emit()
			add_comment(token)
			continue
		}
		if (items > 0)
			emit()
		if (token !~ /=/) # a count of them
			continue
		name = token
		gsub(/[ \t\n]*(=.*)?,?$/, "", name)
		value(name)
	}
	emit()
	out("\tputchar('\\n');")
}

FNR == 1 {
	file = FILENAME
	sub(/.*\//, "", file)
	includes = includes "#include \"libclient/protocol/" file "\"\n"
	defines = 0
}
reading == "define" {
	about = about "\n" $0
	if (/\*\//) {
		add_define()
		reading = ""
	}
	next
}
/^struct [a-z_]+ \{$/ { reading = "struct"; structure = $2; body = ""; next }
/^enum [a-z_]* *\{/ {
	reading = "enum"
	enumeration = $2 == "{" ? "" : $2
	body = $0
	sub(/^[^{]*\{/, "", body)
	if (body ~ /\};$/) {
		sub(/ *\};$/, "", body)
		enum_done()
		reading = ""
	}
	next
}
reading == "struct" && /^};/ { struct_done(); reading = ""; next }
reading == "enum" && /^};/ { enum_done(); reading = ""; next }
reading != "" { body = body "\n" $0; next }

function add_define()
{
	constant[file, ++constants[file]] = name
	constant_text[name] = about == "" ? "" : words(about)
	about = ""
}

/^#define [A-Z_]+[ \t]+[(0-9A-Z]/ && !/\\$/ {
	name = $2
	about = ""
	if (match($0, /\/\*.*/))
		about = substr($0, RSTART)
	if (about != "" && about !~ /\*\/$/)
		reading = "define"
	else
		add_define()
}

END {
	for (i = 1; i < ARGC; i++) {
		file = ARGV[i]
		sub(/.*\//, "", file)
		if (constants[file] == 0)
			continue
		out("\tnames(\"constants " file "\");")
		for (j = 1; j <= constants[file]; j++) {
			name = constant[file, j]
			out("\tvalue(\"" name "\", (uint64_t)" name ", " \
				c_string(constant_text[name]) ");")
		}
		out("\tputchar('\\n');")
	}
	print "/* Generated by scripts/layout.awk; not to be changed by hand. */"
	print includes
	print "#include \"tests/unit/layout_tables.h\"\n"
	print "static void all(void)\n{"
	printf "%s", code
	print "}\n"
	print "int main(void)\n{\n\tall();\n\treturn fflush(stdout) != 0;\n}"
}
