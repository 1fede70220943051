/* SPDX-License-Identifier: Apache-2.0
 *
 * From a path in the configuration to a descriptor with reserved space. Whatever cannot be used is
 * refused here, with the path and the reason, and nothing stays behind.
 */
#define _GNU_SOURCE
#include "tiers/nvme_inside.h"

#include <blkid/blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/check.h"
#include "base/heap.h"
#include "base/log.h"

#define RESERVE_STEP GIB(1)
#define RESERVE_SAY  GIB(64) /* a line of progress each */

static unsigned long long ull(uint64_t n)
{
	return n;
}

/* File systems by the number that statfs() tells. Those above the gap are for data; a `memory` one
 * holds in DRAM what tierd wants to get rid of, which is worth a word. */
static const struct known_fs {
	unsigned long magic;
	const char *name;
	bool memory;
} known_fs[] = {
	{ EXT4_SUPER_MAGIC, "ext4", false },
	{ XFS_SUPER_MAGIC, "xfs", false },
	{ BTRFS_SUPER_MAGIC, "btrfs", false },
	{ F2FS_SUPER_MAGIC, "f2fs", false },
	{ OVERLAYFS_SUPER_MAGIC, "overlay", false },
	{ NFS_SUPER_MAGIC, "nfs", false },
	{ FUSE_SUPER_MAGIC, "fuse", false },
	{ 0x2fc12fc1, "zfs", false },
	{ 0xca451a4e, "bcachefs", false },
	{ TMPFS_MAGIC, "tmpfs", true },
	{ RAMFS_MAGIC, "ramfs", true },
};

static void name_fs(unsigned long magic, char *to, size_t room)
{
	for (size_t i = 0; i < ARRAY_SIZE(known_fs); i++) {
		if (known_fs[i].magic == magic) {
			snprintf(to, room, "%s", known_fs[i].name);
			return;
		}
	}
	snprintf(to, room, "fs 0x%lx", magic);
}

static bool fs_in_memory(unsigned long magic)
{
	for (size_t i = 0; i < ARRAY_SIZE(known_fs); i++)
		if (known_fs[i].magic == magic)
			return known_fs[i].memory;
	return false;
}

/* What `size` means where `room` bytes are there; 0: not known. */
static int wanted_bytes(const struct nvme_config *c, uint64_t room, bool device, uint64_t *ret,
			struct err *err)
{
	const char *path = c->path.path;
	uint64_t bytes = c->path.size.bytes;

	if (c->path.size.permille != 0 && room == 0)
		return err_set(err, EINVAL, "%s: size in %% of an unknown size; give bytes", path);
	if (c->path.size.permille != 0)
		bytes = room / 1000 * c->path.size.permille;
	bytes = ALIGN_DOWN(bytes, GRANULE);
	if (bytes < c->options.block_bytes)
		return err_set(err, EINVAL, "%s: size %llu is less than one block of %llu bytes",
			       path, ull(bytes), ull(c->options.block_bytes));
	if (room > 0 && bytes > room)
		return err_set(err, device ? EINVAL : ENOSPC, /* which others may free */
			       "%s: size %llu wanted, %llu bytes %s", path, ull(bytes), ull(room),
			       device ? "on the device" : "free");
	*ret = bytes;
	return 0;
}

/* Folders */

/* For file systems without O_TMPFILE: the name lives for the time between two system calls. */
static int create_and_unlink(const char *folder)
{
	char name[4096];
	uint64_t random;
	int fd;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	if ((size_t)snprintf(name, sizeof(name), "%s/.tierd-%016llx", folder, ull(random)) >=
	    sizeof(name))
		return -ENAMETOOLONG;
	fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (unlink(name) < 0) {
		int r = -errno;

		close(fd);
		return r;
	}
	return fd;
}

static int open_nameless(const char *folder, struct err *err)
{
	int fd = nvme_refusals.tmpfile != NULL ? nvme_refusals.tmpfile() : 0;

	/* O_EXCL: nobody can give it a name later. */
	if (fd == 0)
		fd = open(folder, O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	fd = fd == -1 ? -errno : fd;
	if (fd == -EOPNOTSUPP || fd == -EISDIR || fd == -EINVAL)
		fd = create_and_unlink(folder);
	if (fd < 0)
		return err_set(err, -fd, "%s: no file can be made in this folder: %s", folder,
			       strerror(-fd));
	return fd;
}

/* A signal that somebody blocked to read it later; waiting for a long reservation is the only place
 * of the start where it would not be seen. */
static bool asked_to_stop(void)
{
	sigset_t pending;

	return sigpending(&pending) == 0 &&
	       (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1);
}

static int reserve_step(int fd, uint64_t at, uint64_t bytes)
{
	int r;

	if (nvme_refusals.fallocate != NULL) {
		r = nvme_refusals.fallocate(at, bytes);
		if (r < 0)
			return r;
	}
	do {
		if (asked_to_stop())
			return -ECANCELED;
		r = fallocate(fd, 0, (off_t)at, (off_t)bytes) < 0 ? -errno : 0;
	} while (r == -EINTR);
	return r;
}

static int not_reserved(struct nvme_file *f, const char *path, int code, struct err *err)
{
	if (ftruncate(f->fd, (off_t)f->bytes) < 0)
		return err_set(err, errno, "%s: ftruncate to %llu bytes: %s", path, ull(f->bytes),
			       strerror(errno));
	log_warn(TIER,
		 "%s: space cannot be reserved on %s (fallocate: %s): the file is sparse, and a "
		 "full disk will show as failing writes",
		 path, f->kind, strerrorname_np(code));
	snprintf(f->space, sizeof(f->space), "not reserved");
	return 0;
}

static int reserve(struct nvme_file *f, const char *path, struct err *err)
{
	uint64_t at = 0;

	while (at < f->bytes) {
		uint64_t step = MIN(RESERVE_STEP, f->bytes - at);
		int r = reserve_step(f->fd, at, step);

		if (r == -EOPNOTSUPP || r == -ENOSYS)
			return not_reserved(f, path, -r, err);
		if (r == -ECANCELED)
			return err_set(err, EINTR, "%s: a signal ended the reservation", path);
		if (r < 0)
			return err_set(err, -r, "%s: reserving %llu bytes: %s after %llu bytes",
				       path, ull(f->bytes), strerror(-r), ull(at));
		at += step;
		if (at % RESERVE_SAY == 0 && at < f->bytes)
			log_info(TIER, "%s: %llu of %llu bytes reserved", path, ull(at),
				 ull(f->bytes));
	}
	snprintf(f->space, sizeof(f->space), "reserved");
	return 0;
}

/* btrfs would write each block to a new place and need room that fallocate did not reserve. */
static void no_copy_on_write(const struct nvme_file *f, unsigned long magic)
{
	int flags;

	if (magic != BTRFS_SUPER_MAGIC || ioctl(f->fd, FS_IOC_GETFLAGS, &flags) < 0)
		return;
	flags |= FS_NOCOW_FL;
	if (ioctl(f->fd, FS_IOC_SETFLAGS, &flags) < 0)
		log_warn(TIER, "a file on btrfs keeps copy-on-write: %m");
}

/* With no_reservation the file keeps the size of a block: that is for those who only look. */
static int open_folder(const struct nvme_config *c, struct nvme_file *f, bool no_reservation,
		       unsigned long *ret_magic, struct err *err)
{
	const char *path = c->path.path;
	struct statfs fs;
	int r;

	f->fd = open_nameless(path, err);
	if (f->fd < 0)
		return f->fd;
	if (fstatfs(f->fd, &fs) < 0)
		return err_set(err, errno, "%s: statfs: %s", path, strerror(errno));
	*ret_magic = (unsigned long)fs.f_type;
	name_fs(*ret_magic, f->kind, sizeof(f->kind));
	/* ramfs tells no sizes at all. Blocks are of f_frsize bytes; f_bsize, which may be larger,
	 * is how much a file system likes to be given at once. */
	f->room = fs.f_blocks == 0 ? 0 : (uint64_t)fs.f_bavail * (uint64_t)fs.f_frsize;
	log_info(TIER, "%s: %s, %llu bytes free", path, f->kind, ull(f->room));
	if (fs.f_blocks != 0 && f->room == 0)
		return err_set(err, ENOSPC, "%s: no space is free on this %s", path, f->kind);
	r = wanted_bytes(c, f->room, false, &f->bytes, err);
	if (r < 0)
		return r;
	f->in_memory = fs_in_memory(*ret_magic);
	if (no_reservation)
		return ftruncate(f->fd, (off_t)c->options.block_bytes) < 0
			       ? err_set(err, errno, "%s: ftruncate: %s", path, strerror(errno))
			       : 0;
	if (f->in_memory)
		log_warn(TIER, "%s: %s keeps its bytes in memory: this saves none", path, f->kind);
	no_copy_on_write(f, *ret_magic);
	return reserve(f, path, err);
}

/* Devices */

static int refuse_contents(blkid_probe probe, const char *path, struct err *err)
{
	const char *type = NULL;
	int r;

	blkid_probe_enable_superblocks(probe, 1);
	blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_TYPE);
	blkid_probe_enable_partitions(probe, 1);
	r = blkid_do_safeprobe(probe);
	if (r == 1)
		return 0;
	if (r == -2)
		return err_set(err, EEXIST,
			       "%s: the device holds several things at once; wipefs(8) lists and "
			       "removes them",
			       path);
	if (r != 0)
		return err_set(err, EIO, "%s: blkid cannot tell what the device holds", path);
	if (blkid_probe_lookup_value(probe, "TYPE", &type, NULL) < 0)
		blkid_probe_lookup_value(probe, "PTTYPE", &type, NULL);
	return err_set(err, EEXIST,
		       "%s: the device holds %s; only an empty one is taken (wipefs(8) empties it)",
		       path, type != NULL ? type : "something");
}

static int check_empty(int fd, const char *path, struct err *err)
{
	blkid_probe probe = blkid_new_probe();
	int r;

	if (probe == NULL)
		return err_set(err, ENOMEM, "%s: no memory", path);
	if (blkid_probe_set_device(probe, fd, 0, 0) < 0)
		r = err_set(err, EIO, "%s: blkid cannot read the device", path);
	else
		r = refuse_contents(probe, path, err);
	blkid_free_probe(probe);
	return r;
}

/* What stands beside another share was claimed with the first one, and an own claim would be
 * refused as anybody's. */
static int open_claimed(const char *path, int *ret_fd, struct err *err)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return err_set(err, errno, "%s: the device cannot be opened for writing: %s", path,
			       strerror(errno));
	*ret_fd = fd;
	return 0;
}

static int claim_device(const char *path, int *ret_fd, struct err *err)
{
	/* O_EXCL on a device: nobody has mounted it or claims it, and nobody can from now on. */
	int fd = open(path, O_RDWR | O_EXCL | O_CLOEXEC);

	if (fd < 0 && errno == EBUSY)
		return err_set(err, EBUSY,
			       "%s: the device is in use (mounted, part of another device, or held "
			       "by another tierd)",
			       path);
	if (fd < 0)
		return err_set(err, errno, "%s: the device cannot be opened for writing: %s", path,
			       strerror(errno));
	*ret_fd = fd;
	/* udev and systemd keep off a locked device. */
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return err_set(err, EBUSY, "%s: another process has locked the device", path);
	return 0;
}

static int open_device(const struct nvme_config *c, struct nvme_file *f, struct err *err)
{
	const char *path = c->path.path;
	uint64_t bytes = 0, start = c->path.start_bytes;
	int r = start > 0 ? open_claimed(path, &f->fd, err) : claim_device(path, &f->fd, err);

	if (r < 0)
		return r;
	if (ioctl(f->fd, BLKGETSIZE64, &bytes) < 0)
		return err_set(err, errno, "%s: the device tells no size: %s", path,
			       strerror(errno));
	log_info(TIER, "%s: device of %llu bytes", path, ull(bytes));
	if (bytes <= 2 * NVME_DEVICE_EDGE + start)
		return err_set(err, EINVAL, "%s: a device of %llu bytes is too small", path,
			       ull(bytes));
	r = start > 0 ? 0 : check_empty(f->fd, path, err);
	if (r < 0)
		return r;
	f->device = true;
	f->start = NVME_DEVICE_EDGE + start;
	snprintf(f->kind, sizeof(f->kind), "device");
	snprintf(f->space, sizeof(f->space), "its own");
	return wanted_bytes(c, bytes - 2 * NVME_DEVICE_EDGE - start, true, &f->bytes, err);
}

/* Direct I/O */

#define TRIAL_BYTES (2 * GRANULE) /* of memory to read into, at a multiple of it */

/* Whether a read of `unit` bytes at an odd multiple of `unit` works: in offset, length and memory.
 */
static bool try_unit(const struct nvme_file *f, uint32_t unit, unsigned char *memory)
{
	ssize_t r;

	/* The tier has one block at least, which is one GRANULE or more. */
	if (unit < GRANULE)
		r = pread(f->fd, memory + unit, unit, (off_t)(f->start + unit));
	else
		r = pread(f->fd, memory + GRANULE, GRANULE, (off_t)f->start);
	return r == (ssize_t)unit;
}

/* What the device addresses: asked for where the kernel tells it, else tried. */
static uint32_t find_unit(const struct nvme_file *f, unsigned char *memory)
{
	struct statx sx;
	int sector = 0;

	if (statx(f->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) == 0 &&
	    (sx.stx_mask & STATX_DIOALIGN) != 0)
		return MAX(MAX(sx.stx_dio_offset_align, sx.stx_dio_mem_align), 512u) *
		       (sx.stx_dio_offset_align != 0);
	if (f->device && ioctl(f->fd, BLKSSZGET, &sector) == 0)
		return (uint32_t)sector;
	return try_unit(f, 512, memory) ? 512 : GRANULE;
}

static int set_direct(struct nvme_file *f, unsigned long magic, unsigned char *memory,
		      const char **ret_why)
{
	int flags = fcntl(f->fd, F_GETFL);
	uint32_t unit;

	if (flags < 0 || fcntl(f->fd, F_SETFL, flags | O_DIRECT) < 0) {
		*ret_why = strerrorname_np(errno);
		return -EOPNOTSUPP;
	}
	/* tmpfs takes direct I/O of any alignment, which says nothing about a disk. */
	unit = fs_in_memory(magic) ? GRANULE : find_unit(f, memory);
	if (unit >= 512 && unit <= GRANULE && (unit & (unit - 1)) == 0 &&
	    try_unit(f, unit, memory)) {
		f->unit = unit;
		f->direct = true;
		return 0;
	}
	*ret_why = unit > GRANULE ? "its blocks are larger than 4KiB" : "reads by it fail";
	return fcntl(f->fd, F_SETFL, flags) < 0 ? -errno : -EOPNOTSUPP;
}

static int choose_direct(const struct nvme_config *c, struct nvme_file *f, unsigned long magic,
			 struct err *err)
{
	const char *why = "";
	unsigned char *memory;
	int r;

	f->unit = 1;
	if (c->options.direct == NVME_DIRECT_OFF)
		return 0;
	memory = heap_aligned_zeros(TRIAL_BYTES, TRIAL_BYTES);
	if (memory == NULL)
		return err_set(err, ENOMEM, "%s: no memory to try direct I/O", c->path.path);
	r = set_direct(f, magic, memory, &why);
	heap_free(memory);
	if (r == 0)
		return 0;
	if (c->options.direct == NVME_DIRECT_REQUIRE)
		return err_set(err, EOPNOTSUPP,
			       "%s: %s takes no direct I/O (%s), which direct: require asks for",
			       c->path.path, f->kind, why);
	log_warn(TIER, "%s: %s takes no direct I/O (%s): buffered, through the page cache",
		 c->path.path, f->kind, why);
	return 0;
}

/* Paths */

static int look_at(const char *path, struct stat *ret, struct err *err)
{
	struct stat link;

	if (path == NULL || path[0] != '/')
		return err_set(err, EINVAL, "%s: the path must be absolute",
			       path != NULL ? path : "(none)");
	if (stat(path, ret) == 0)
		return 0;
	if (errno == ENOENT && lstat(path, &link) == 0 && S_ISLNK(link.st_mode))
		return err_set(err, ENOENT, "%s: a symbolic link to nothing", path);
	if (errno == ENOENT)
		return err_set(err, ENOENT,
			       "%s: does not exist; make the folder, or mount what belongs there",
			       path);
	return err_set(err, errno, "%s: %s", path, strerror(errno));
}

static int file_open(const struct nvme_config *config, bool no_reservation, struct nvme_file *ret,
		     struct err *err)
{
	struct nvme_file f = { .fd = -1 };
	unsigned long magic = 0;
	struct stat st;
	int r = look_at(config->path.path, &st, err);

	if (r < 0)
		return r;
	if (S_ISDIR(st.st_mode))
		r = open_folder(config, &f, no_reservation, &magic, err);
	else if (S_ISBLK(st.st_mode))
		r = open_device(config, &f, err);
	else
		return err_set(
			err, ENOTDIR, "%s: %s; an existing folder or a block device is needed",
			config->path.path, S_ISREG(st.st_mode) ? "a regular file" : "not a folder");
	if (r == 0)
		r = choose_direct(config, &f, magic, err);
	if (r < 0) {
		nvme_file_close(&f);
		return r;
	}
	*ret = f;
	return 0;
}

int nvme_file_open(const struct nvme_config *config, struct nvme_file *ret, struct err *err)
{
	return file_open(config, false, ret, err);
}

int nvme_file_probe(const struct nvme_config *config, struct nvme_file *ret, struct err *err)
{
	return file_open(config, true, ret, err);
}

void nvme_file_close(struct nvme_file *file)
{
	/* The file has no name and goes with its last descriptor; so do the claim and the lock. */
	if (file->fd >= 0)
		close(file->fd);
	file->fd = -1;
}
