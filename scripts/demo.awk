# SPDX-License-Identifier: Apache-2.0
#
# The judge of scripts/demo. Reads the losses of both runs and their reports, of the run on tierd
# first; prints what happened and, as the last line, the verdict. Needs steps.

function mib(bytes)
{
	return sprintf("%.1f MiB", bytes / 1048576)
}

# The value of key=value in the line.
function of(key,    i)
{
	for (i = 2; i <= NF; i++)
		if (index($i, key "=") == 1)
			return substr($i, length(key) + 2)
	complain("the report has no " key " in: " $0)
}

function complain(what)
{
	complaints = complaints ", " what
}

function absolute(x)
{
	return x < 0 ? -x : x
}

BEGIN {
	classes = split("parameter gradient optimizer activation", class)
	ways = split("hbm-dram dram-nvme nvme-dram dram-hbm", way)
	tiers = split("hbm dram nvme", tier)
}

FNR == 1 { file++ }
file == 1 { bits[$1] = $2; loss[$1] = $3; lines++ }
file == 2 { memory_bits[$1] = $2; memory_loss[$1] = $3; memory_lines++ }
file == 3 && $1 == "model" {
	model_bytes = of("bytes")
	ops = of("ops")
}
file == 3 && $1 == "step" {
	seconds[of("step")] = of("seconds")
	stall_ns[of("step")] = of("stall_ns")
}
file == 3 && $1 == "moves" { moves[of("class"), of("from") "-" of("to")] = of("count") }
file == 3 && $1 == "moved" {
	moved[of("from") "-" of("to")] = of("bytes")
	if (of("from") == "nvme")
		nvme_read += of("bytes")
	if (of("to") == "nvme")
		nvme_written += of("bytes")
}
file == 3 && $1 == "tier" {
	peak[of("tier")] = of("peak_bytes")
	limit[of("tier")] = of("limit_bytes")
}
file == 3 && $1 == "done" {
	done = 1
	all_seconds = of("seconds")
	all_stall_ns = of("stall_ns")
}
file == 4 && $1 == "model" { memory_ops = of("ops") }
file == 4 && $1 == "step" { memory_seconds[of("step")] = of("seconds") }

function print_losses(    s)
{
	printf "\n%6s  %12s  %12s  %9s  %9s  %9s\n", "step", "on tierd", "in memory", "seconds",
		"in memory", "stalled"
	for (s = 1; s <= steps; s++)
		printf "%6d  %12s  %12s  %9.3f  %9.3f  %9.3f%s\n", s, loss[s], memory_loss[s],
			seconds[s], memory_seconds[s], stall_ns[s] / 1e9,
			bits[s] == memory_bits[s] ? "" : "  differs"
}

# Of a step; the first one, which fills all places for the first time, counts only if alone.
function mean(list,    s, sum)
{
	if (steps == 1)
		return list[1]
	for (s = 2; s <= steps; s++)
		sum += list[s]
	return sum / (steps - 1)
}

function print_moves(    c, w)
{
	printf "\n%-12s", "moves"
	for (w = 1; w <= ways; w++)
		printf "  %12s", way[w]
	for (c = 1; c <= classes; c++) {
		printf "\n%-12s", class[c]
		for (w = 1; w <= ways; w++)
			printf "  %12d", moves[class[c], way[w]]
	}
	printf "\n%-12s", "all bytes"
	for (w = 1; w <= ways; w++)
		printf "  %12s", mib(moved[way[w]])
	printf "\n\n"
	for (w = 1; w <= tiers; w++)
		printf "%-5s  peak %s of %s\n", tier[w], mib(peak[tier[w]]), mib(limit[tier[w]])
	printf "model  %s, read from nvme %s, written to nvme %s\n\n", mib(model_bytes),
		mib(nvme_read), mib(nvme_written)
}

function judge(    s, c, w, apart)
{
	if (lines != steps || memory_lines != steps || !done)
		complain("a run is not whole: " lines + 0 " and " memory_lines + 0 " losses")
	if (ops != memory_ops)
		complain("one run computes with " ops ", the other one with " memory_ops)
	for (s = 1; s <= steps; s++)
		if (bits[s] == "" || bits[s] != memory_bits[s]) {
			differing++
			apart = absolute(loss[s] - memory_loss[s])
			if (apart > worst)
				worst = apart
		}
	if (differing)
		complain("the loss of " differing " steps differs, by " worst + 0 " at most")
	for (c = 1; c <= classes; c++)
		for (w = 1; w <= ways; w++)
			if (moves[class[c], way[w]] + 0 < 1)
				complain("no " class[c] " moved " way[w])
	if (!model_bytes || nvme_read + 0 < model_bytes + 0)
		complain("less than the model was read from nvme")
	if (loss[steps] + 0 >= loss[1] + 0)
		complain("the loss did not fall")
}

END {
	print_losses()
	print_moves()
	judge()
	if (complaints != "") {
		print "demo: FAIL" complaints
		exit 1
	}
	printf "demo: PASS, %d steps, loss difference 0, hbm %s/%s, dram %s/%s, nvme written %s, " \
		"stall %.1f %%, a step %.3f s, in memory %.3f s, by %s\n", steps,
		mib(peak["hbm"]), mib(limit["hbm"]), mib(peak["dram"]), mib(limit["dram"]),
		mib(nvme_written), all_stall_ns / 1e7 / all_seconds, mean(seconds),
		mean(memory_seconds), ops == "cuda" ? "a GPU" : "the CPU"
}
