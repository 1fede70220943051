/* SPDX-License-Identifier: Apache-2.0
 *
 * What the checks of `tierctl doctor` share. A check looks at one thing by the daemon's own probe
 * and says one line of it, or one a path. One thread.
 */
#ifndef TIERD_TIERCTL_DOCTOR_H
#define TIERD_TIERCTL_DOCTOR_H

#include "base/err.h"
#include "daemon/settings.h"
#include "libclient/protocol/page.h"
#include "tools/tierctl/command.h"

enum doctor_status { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

struct doctor {
	const struct arguments *arguments;
	struct settings settings;
	bool configured; /* there is a configuration, and it is valid */
	bool served; /* a daemon is there, if only to refuse: it has its memory and space already */
	struct page page; /* of that one, where it lets us in */
	/* What the checks found of sizes in %: of the smallest GPU, and of all paths. 0: not known.
	 */
	uint64_t gpu_bytes, nvme_bytes;
	unsigned gpus; /* of the configuration; 0: not known */
	unsigned failed;
};

/* A line. `mend` is how to mend it, "" where nothing is to be mended; it is not said of what is
 * well. */
void doctor_say(struct doctor *d, enum doctor_status status, const char *what, const char *mend,
		const char *fmt, ...) PRINTF(5, 6);

/* The bytes that `tiers.dram.size` names, staging among them; 0: not configured, or not known. */
uint64_t doctor_dram_bytes(const struct doctor *d);

void doctor_socket(struct doctor *d);
void doctor_memlock(struct doctor *d);
void doctor_huge_pages(struct doctor *d);
void doctor_memory(struct doctor *d);
void doctor_numa(struct doctor *d);
void doctor_descriptors(struct doctor *d);
void doctor_kernel(struct doctor *d);
void doctor_io_uring(struct doctor *d);
void doctor_paths(struct doctor *d);
void doctor_cuda(struct doctor *d);
void doctor_domains(struct doctor *d);
/* After those that find sizes. */
void doctor_namespaces(struct doctor *d);

#endif
