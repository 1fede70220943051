/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory, nodes, descriptors and the kernel.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/nofile.h"
#include "base/plural.h"
#include "daemon/greet.h"
#include "daemon/server.h"
#include "tiers/arena.h"
#include "tiers/dram.h"
#include "tiers/hugepage.h"
#include "tiers/limits.h"
#include "tiers/memory.h"
#include "tiers/topo.h"
#include "tools/tierctl/doctor.h"
#include "tools/tierctl/text.h"

#define CAP_IPC_LOCK_BIT 14 /* of linux/capability.h: locked memory is not counted */

/* ---- memory --------------------------------------------------------------------------------- */

uint64_t doctor_dram_bytes(const struct doctor *d)
{
	const struct dram_config *dram = d->settings.tiers.dram.config;
	struct limits limits;

	if (!d->configured)
		return 0;
	if (dram->size.permille == 0)
		return dram->size.bytes;
	if (limits_read("", &limits, NULL) < 0)
		return 0;
	return limits.total.bytes / 1000 * dram->size.permille;
}

/* Of the host memory that plays GPUs, what is taken at start. */
static uint64_t played_bytes(const struct doctor *d)
{
	const struct memory_config *hbm = d->settings.tiers.hbm.config;

	if (!d->configured ||
	    settings_backend(TIER_KIND_HBM, &d->settings.tiers.hbm) != &memory_ops || hbm->slab > 0)
		return 0;
	return hbm->devices * MIN(hbm->size.bytes, UINT64_MAX / 64);
}

#define LARGER ", or a larger limit of the container (memory.max, memory.high, --memory)"

void doctor_memory(struct doctor *d)
{
	uint64_t played = played_bytes(d), wanted = doctor_dram_bytes(d) + played;
	char total[TEXT_ROOM], available[TEXT_ROOM];
	struct err err = ERR_INIT;
	struct limits limits;

	if (limits_read("", &limits, &err) < 0) {
		doctor_say(d, DOCTOR_FAIL, "memory", "mount /proc", "%s", err.text);
		return;
	}
	/* A daemon that serves has taken what it wants. */
	if (wanted > 0 && !d->served &&
	    limits_check(played > 0 ? "hbm and dram" : "dram", wanted, &err) < 0) {
		doctor_say(d, DOCTOR_FAIL, "memory",
			   played > 0 ? "smaller sizes of tiers.hbm and tiers.dram" LARGER
				      : "a smaller tiers.dram.size" LARGER,
			   "%s", err.text);
		return;
	}
	doctor_say(d, DOCTOR_OK, "memory", "", "%s in all (%s), %s available (%s)",
		   text_bytes(limits.total.bytes, total), limits.total.source,
		   text_bytes(limits.available.bytes, available), limits.available.source);
}

#define TRIED_BYTES (4 * (uint64_t)HUGE_BYTES)

/* A small arena, made as dram is: what it stands on, and how many of its bytes on large pages. */
static int try_arena(bool no_pool, char *ret, size_t room, uint64_t *ret_large, struct err *err)
{
	const struct arena_options options = { .name = "huge pages",
					       .bytes = TRIED_BYTES,
					       .huge = ARENA_HUGE_TRY,
					       .no_pool = no_pool,
					       .touch = true };
	struct arena arena;
	int rc = arena_create(&options, &arena, err);

	if (rc < 0)
		return rc;
	*ret_large = arena.page_bytes == HUGE_BYTES
			     ? TRIED_BYTES
			     : hugepage_mapped_bytes(arena.base, TRIED_BYTES);
	snprintf(ret, room, "%s", arena.chosen);
	arena_destroy(&arena);
	return 0;
}

/* Of dram in whole large pages: staging does without, whatever is required. 0: not known. */
static uint64_t large_wanted(const struct doctor *d)
{
	uint64_t dram = doctor_dram_bytes(d);
	struct settings_staging parts;

	if (dram == 0)
		return 0;
	settings_staging(&d->settings, settings_gpus_told(&d->settings), &parts);
	return ALIGN_UP(dram - MIN(dram, parts.total_bytes), (uint64_t)HUGE_BYTES);
}

/* A pool that is empty by then says nothing of a daemon that has its pages. */
static bool daemon_has_large(const struct doctor *d)
{
	for (unsigned i = 0; i < STATS_DEVICES && page_device_bytes(&d->page, i) > 0; i++)
		if (strncmp(d->page.chosen[i], "dram", 4) == 0 &&
		    strstr(d->page.chosen[i], "2 MiB pages") != NULL)
			return true;
	return false;
}

/* The daemon takes all of its pages from the pool, or none. Those that the kernel gives one by one
 * are known to come only when they have come, and only a few are asked for here: that they came is
 * no promise of the others, without which `require` does not start. */
static enum doctor_status judge_large(bool required, bool in_pool, uint64_t large, uint64_t need)
{
	if (!required)
		return large > 0 ? DOCTOR_OK : DOCTOR_WARN;
	if (large < TRIED_BYTES)
		return DOCTOR_FAIL;
	return in_pool || need <= TRIED_BYTES ? DOCTOR_OK : DOCTOR_WARN;
}

static void say_large(struct doctor *d, bool required)
{
	char free[TEXT_ROOM], want[TEXT_ROOM + 64] = "", bytes[TEXT_ROOM], mend[192];
	char chosen[sizeof(((struct arena *)0)->chosen)];
	uint64_t need = large_wanted(d), pool = hugepage_pool_bytes(), large = 0;
	bool in_pool = need <= pool;
	struct err err = ERR_INIT;
	int rc = try_arena(!in_pool, chosen, sizeof(chosen), &large, &err);

	if (need > 0)
		snprintf(want, sizeof(want), ", dram %s %s", required ? "needs" : "wants",
			 text_bytes(need, bytes));
	snprintf(mend, sizeof(mend), "%ssysctl vm.nr_hugepages=%" PRIu64 "%s",
		 large > 0 ? "" : "transparent ones of Linux 6.1 or newer, or ",
		 (need > 0 ? need : (uint64_t)GIB(1)) / HUGE_BYTES,
		 large > 0 ? ", if the kernel does not give all of them at the start" : "");
	if (rc < 0)
		doctor_say(d, DOCTOR_FAIL, "huge pages", mend, "%s", err.text);
	else
		doctor_say(d, judge_large(required && !d->served, in_pool, large, need),
			   "huge pages", mend,
			   "of %" PRIu64 " MiB that were tried: %s; the pool has %s free%s",
			   TRIED_BYTES >> 20, chosen, text_bytes(pool, free), want);
}

void doctor_huge_pages(struct doctor *d)
{
	const struct dram_config *dram = d->configured ? d->settings.tiers.dram.config : NULL;
	enum arena_huge wanted = dram != NULL ? (enum arena_huge)dram->huge_pages : ARENA_HUGE_TRY;

	if (wanted == ARENA_HUGE_OFF)
		doctor_say(d, DOCTOR_OK, "huge pages", "", "off by the configuration");
	else if (daemon_has_large(d))
		doctor_say(d, DOCTOR_OK, "huge pages", "", "the daemon has them for dram");
	else
		say_large(d, wanted == ARENA_HUGE_REQUIRE);
}

/* Whether memory that is registered counts against RLIMIT_MEMLOCK. */
static bool locking_is_limited(void)
{
	unsigned long long capabilities = 0;
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "CapEff: %llx", &capabilities) == 1)
			break;
	if (f != NULL)
		fclose(f);
	return (capabilities >> CAP_IPC_LOCK_BIT & 1) == 0;
}

void doctor_memlock(struct doctor *d)
{
	uint64_t paths = d->configured ? d->settings.tiers.nvme.paths.count : 0;
	uint64_t need = doctor_dram_bytes(d) * paths; /* each ring counts what it registers */
	char limit[TEXT_ROOM], wanted[TEXT_ROOM];
	struct rlimit lock;

	if (getrlimit(RLIMIT_MEMLOCK, &lock) < 0)
		doctor_say(d, DOCTOR_FAIL, "memlock", "", "getrlimit: %s", strerror(errno));
	else if (!locking_is_limited() || lock.rlim_cur == RLIM_INFINITY)
		doctor_say(d, DOCTOR_OK, "memlock", "",
			   "unlimited: buffers of nvme are registered");
	else if (need <= lock.rlim_cur && d->configured)
		doctor_say(d, DOCTOR_OK, "memlock", "", "%s, %s are wanted",
			   text_bytes(lock.rlim_cur, limit), text_bytes(need, wanted));
	else
		doctor_say(d, DOCTOR_WARN, "memlock",
			   lock.rlim_max == RLIM_INFINITY
				   ? "LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited"
				   : "LimitMEMLOCK=infinity in the unit; the hard limit is below "
				     "that, so without one root raises it, by memlock in "
				     "/etc/security/limits.conf",
			   "%s: what of dram does not fit is not registered with nvme, which costs "
			   "some of each transfer; %s are wanted",
			   text_bytes(lock.rlim_cur, limit),
			   need > 0 ? text_bytes(need, wanted) : "as many bytes as dram has");
}

/* ---- socket --------------------------------------------------------------------------------- */

/* The daemon makes the last folder on the way there, if it is missing. */
void doctor_socket(struct doctor *d)
{
	char folder[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	char *slash;

	if (!d->configured || d->served)
		return;
	snprintf(folder, sizeof(folder), "%s", d->settings.socket);
	for (int i = 0; i < 2; i++) {
		slash = strrchr(folder, '/');
		slash[slash == folder] = '\0';
		if (access(folder, W_OK | X_OK) == 0 || errno != ENOENT || slash == folder)
			break;
	}
	if (access(folder, W_OK | X_OK) == 0)
		doctor_say(d, DOCTOR_OK, "socket", "", "%s: it can be made", d->settings.socket);
	else
		doctor_say(d, DOCTOR_FAIL, "socket",
			   "RuntimeDirectory= in the unit, or a key `socket` below a folder that "
			   "tierd's user may write",
			   "%s: nothing can be made in %s: %s", d->settings.socket, folder,
			   strerror(errno));
}

/* ---- nodes ---------------------------------------------------------------------------------- */

void doctor_numa(struct doctor *d)
{
	const struct dram_config *dram = d->configured ? d->settings.tiers.dram.config : NULL;
	enum topo_mode mode = dram != NULL ? (enum topo_mode)dram->numa : TOPO_NEAREST;
	struct topo_share shares[TOPO_NODES_MAX];
	struct err err = ERR_INIT;
	struct topology *topo;
	unsigned n;

	if (topo_open(&topo, &err) < 0) {
		doctor_say(d, DOCTOR_FAIL, "numa", "mount /sys", "%s", err.text);
		return;
	}
	n = topo_shares(topo, mode, MAX(doctor_dram_bytes(d), (uint64_t)GIB(1)), shares,
			TOPO_NODES_MAX);
	if (mode == TOPO_OFF)
		doctor_say(d, DOCTOR_OK, "numa", "", "off by the configuration");
	else if (!topo->numa || n == 0)
		doctor_say(d, DOCTOR_OK, "numa", "",
			   "%u %s and one node with memory: nothing is bound", topo->cpus,
			   PLURAL(topo->cpus, "CPU", "CPUs"));
	else
		doctor_say(d, DOCTOR_OK, "numa", "", "%u CPUs, %u nodes: dram lies on %u of them",
			   topo->cpus, topo->node_count, n);
	topo_close(topo);
}

/* ---- descriptors, kernel -------------------------------------------------------------------- */

void doctor_descriptors(struct doctor *d)
{
	static const char mend[] = "LimitNOFILE=65536 in the unit, or ulimit -Hn 65536";
	uint64_t most = d->configured ? d->settings.max_clients : 512;
	struct nofile_shares shares;
	struct err err = ERR_INIT;
	struct nofile n;
	int rc;

	nofile_raise();
	rc = nofile_read(&n, &err);
	if (rc == 0)
		rc = nofile_divide(&n, 0, CONNECTION_FDS, &shares, &err);
	if (rc == 0)
		shares.clients -= server_kept(shares.clients);
	if (rc == 0 && n.limit < NOFILE_LEAST)
		rc = err_set(&err, EMFILE, "%" PRIu64 ", tierd needs %u at least", n.limit,
			     NOFILE_LEAST);
	if (rc < 0)
		doctor_say(d, DOCTOR_FAIL, "descriptors", mend, "%s", err.text);
	else if (shares.clients < most)
		doctor_say(d, DOCTOR_WARN, "descriptors", mend,
			   "%" PRIu64 ": room for %" PRIu64 " %s, not max_clients: %" PRIu64,
			   n.limit, shares.clients, PLURAL(shares.clients, "client", "clients"),
			   most);
	else
		doctor_say(d, DOCTOR_OK, "descriptors", "",
			   "%" PRIu64 ": room for max_clients: %" PRIu64, n.limit, most);
}

/* What a client is known by, tried on ourselves. */
static int try_identity(bool *ret_by_socket, struct err *err)
{
	int ends[2], fd = -1, rc;
	socklen_t bytes = sizeof(fd);
	struct peer peer;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return err_set(err, errno, "socketpair: %s", strerror(errno));
	rc = greet_identify(ends[0], &peer, err);
	if (rc == 0)
		close(peer.pid_fd);
	*ret_by_socket = getsockopt(ends[0], SOL_SOCKET, SO_PEERPIDFD, &fd, &bytes) == 0;
	if (fd >= 0)
		close(fd);
	close(ends[0]);
	close(ends[1]);
	return rc;
}

void doctor_kernel(struct doctor *d)
{
	static const char mend[] = "Linux 5.10 or newer, and a seccomp profile that allows "
				   "pidfd_open";
	struct err err = ERR_INIT;
	struct utsname u;
	bool by_socket = false;

	uname(&u);
	if (try_identity(&by_socket, &err) < 0)
		doctor_say(d, DOCTOR_FAIL, "kernel", mend, "Linux %s: %s", u.release, err.text);
	else
		doctor_say(d, DOCTOR_OK, "kernel", "", "Linux %s; clients are known by %s",
			   u.release,
			   by_socket ? "SO_PEERPIDFD" : "pidfd_open and their start time");
}
