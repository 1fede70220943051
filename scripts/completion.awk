# SPDX-License-Identifier: Apache-2.0
#
# Completion for a shell, from a page of docs/ that has a program's commands and options: tierctl.md
# is printed from the rows of its commands, tierd.md is held against --help by a test. Variables:
# program, shell (bash, zsh).

function cells(s)
{
	sub(/^\| */, "", s)
	sub(/ *\|$/, "", s)
	split(s, cell, / *\| */)
	gsub(/`/, "", cell[1])
}

# Within single quotes, of a shell.
function quoted(s)
{
	gsub(/'/, "'\\''", s)
	gsub(/`/, "", s)
	gsub(/\[|\]\([^)]*\)/, "", s) # of a link, its text
	return "'" s "'"
}

# "--interval SECONDS" of the command that the page is at, "" is all commands.
function option(    words, n)
{
	n = split(cell[1], words, " ")
	argument[words[1]] = n > 1 ? words[2] : ""
	of_command[at] = of_command[at] (of_command[at] == "" ? "" : " ") words[1]
	if (!(words[1] in help))
		order[++options] = words[1]
	help[words[1]] = cell[2]
}

# What stands last in "tierctl show [--namespace NAME] NAME" and is no word of the command.
function operand_of(s)
{
	gsub(/`/, "", s)
	gsub(/ \[[^]]*\]/, "", s)
	return substr(s, length(program " " at) + 2)
}

/^#/ { synopsis = at = ""; off = $0 !~ "^# |^## Options$|^## " program " " }
off { next }
/^## / && $0 !~ /^## Options$/ {
	at = substr($0, length("## " program " ") + 1)
	command[++commands] = at
	synopsis = "wanted"
	next
}
synopsis == "wanted" && /^`/ { operand[at] = operand_of($0); synopsis = "read"; next }
synopsis == "read" && /^Prints / {
	about[at] = substr($0, 8)
	sub(/\.$/, "", about[at])
	synopsis = ""
}
/^\| `--/ { cells($0); option() }

# An associative array, as either shell writes it.
function table(name, keys, n, values,    i, form)
{
	form = shell == "zsh" ? "\t\t%s %s\n" : "\t\t[%s]=%s\n"
	printf "\tlocal -A %s=(\n", name
	for (i = 1; i <= n; i++)
		if (values[keys[i]] != "")
			printf form, quoted(keys[i]), quoted(values[keys[i]])
	print "\t)"
}

# The words given before the cursor; `next` is what an option before it waits for.
function common(first, last, word)
{
	print "\tlocal given= next= word i"
	table("argument", order, options, argument)
	table("operand", command, commands, operand)
	table("of_command", command, commands, of_command)
	printf "\tfor ((i = %s; i < %s; i++)); do\n", first, last
	printf "\t\tword=%s\n", word
	print "\t\tif [[ -n $next ]]; then"
	print "\t\t\tnext="
	print "\t\telif [[ $word == --* ]]; then"
	print "\t\t\tnext=${argument[$word]-}"
	print "\t\telse"
	print "\t\t\tgiven+=\"${given:+ }$word\""
	print "\t\tfi"
	print "\tdone"
	print "\tif [[ -z $next && -n $given ]]; then"
	print "\t\tnext=${operand[$given]-}"
	print "\tfi"
}

# Names of tensors that a daemon has, the first thousand that a shell takes as they are.
function names_of()
{
	printf "\t\t%s --json list 2>/dev/null | head -n 1000 |\n", program
	print "\t\t\tsed -n 's/.*\"name\":\"\\([A-Za-z0-9_.,@%+\\/-]*\\)\".*/\\1/p'"
}

function bash(    i)
{
	printf "_%s()\n{\n", program
	print "\tlocal cur=${COMP_WORDS[COMP_CWORD]} candidates= command"
	common("1", "COMP_CWORD", "${COMP_WORDS[i]}")
	print "\tCOMPREPLY=()"
	print "\tif [[ $cur == -* ]]; then"
	printf "\t\tcandidates='%s '${of_command[${given:-none}]-}\n", of_command[""]
	print "\telif [[ $next == FILE || $next == PATH ]]; then"
	print "\t\tcompopt -o filenames 2>/dev/null"
	print "\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$cur\")"
	print "\t\treturn"
	print "\telif [[ $next == NAME && -n ${operand[${given:-none}]-} ]]; then"
	print "\t\tcandidates=$("
	names_of()
	print "\t\t)"
	print "\telif [[ -z $next ]]; then"
	printf "\t\tset --"
	for (i = 1; i <= commands; i++)
		printf " \\\n\t\t\t%s", quoted(command[i])
	print ""
	print "\t\tfor command; do"
	print "\t\t\tif [[ $command == \"${given:+$given }\"* ]]; then"
	print "\t\t\t\tcommand=${command#\"${given:+$given }\"}"
	print "\t\t\t\tcandidates+=\" ${command%% *}\""
	print "\t\t\tfi"
	print "\t\tdone"
	print "\tfi"
	print "\tmapfile -t COMPREPLY < <(compgen -W \"$candidates\" -- \"$cur\" | sort -u)"
	printf "}\ncomplete -F _%s %s\n", program, program
}

function zsh(    i)
{
	printf "_%s()\n{\n", program
	print "\tlocal -a candidates=() all=()"
	common("2", "CURRENT", "${words[i]}")
	table("help", order, options, help)
	table("about", command, commands, about)
	for (i = 1; i <= commands; i++)
		printf "\tall+=(%s)\n", quoted(command[i])
	print "\tif [[ $PREFIX == -* ]]; then"
	printf "\t\tfor word in %s ${=of_command[$given]-}; do\n", of_command[""]
	print "\t\t\tcandidates+=(\"$word:${help[$word]}\")"
	print "\t\tdone"
	print "\t\t_describe -o option candidates"
	print "\telif [[ $next == FILE || $next == PATH ]]; then"
	print "\t\t_files"
	print "\telif [[ $next == NAME && -n ${operand[$given]-} ]]; then"
	print "\t\tcandidates=($("
	names_of()
	print "\t\t))"
	print "\t\t_describe tensor candidates"
	print "\telif [[ -n $next ]]; then"
	print "\t\t_message $next"
	print "\telse"
	print "\t\tfor word in $all; do"
	print "\t\t\tif [[ $word == \"${given:+$given }\"* ]]; then"
	print "\t\t\t\ti=${${word#\"${given:+$given }\"}%% *}"
	print "\t\t\t\tcandidates+=(\"$i:${about[$word]}\")"
	print "\t\t\tfi"
	print "\t\tdone"
	print "\t\t_describe command candidates"
	print "\tfi"
	printf "}\n_%s \"$@\"\n", program
}

END {
	if (options == 0) {
		print FILENAME ": no options" >"/dev/stderr"
		exit 1
	}
	if (shell == "zsh")
		print "#compdef " program
	print "# Generated by scripts/completion.awk; not to be changed by hand."
	if (shell == "zsh")
		zsh()
	else
		bash()
}
