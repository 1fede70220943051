/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening an nvme path: what is refused and why, what the kernel may refuse without harm, and the
 * devices and file systems that differ. Mounts and loop devices need root and live in a mount
 * namespace of the test's own; without it those tests say that they are skipped.
 */
#define _GNU_SOURCE
#include "tests/unit/nvme_rig.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

static void refused(struct rig *rig, int code, const char *part)
{
	struct err err = ERR_INIT;
	int r = rig_try(rig, &err);

	ck_assert_msg(r == -code, "%d instead of %d: %s", r, -code, err.text);
	ck_assert_int_eq(err.code, -code);
	ck_assert_msg(strstr(err.text, part) != NULL, "no \"%s\" in: %s", part, err.text);
	ck_assert_ptr_null(rig->tier);
}

static void refused_path(const char *path, int code, const char *part)
{
	struct rig rig;
	char *own;

	rig_init(&rig);
	own = rig.config.path.path;
	rig.config.path.path = strdup(path);
	refused(&rig, code, part);
	if (path[0] != '\0')
		refused(&rig, code, path);
	free(rig.config.path.path);
	rig.config.path.path = own;
	rig_end(&rig);
}

static void make_file(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	close(fd);
}

START_TEST(paths_that_cannot_be_used_are_refused_with_the_reason)
{
	char cwd[2048], path[4096];

	ck_assert_ptr_nonnull(getcwd(cwd, sizeof(cwd)));
	refused_path("relative/folder", EINVAL, "must be absolute");
	refused_path("", EINVAL, "must be absolute");
	refused_path("/nonexistent/folder", ENOENT, "does not exist");
	refused_path("/dev/null", ENOTDIR, "folder or a block device is needed");
	snprintf(path, sizeof(path), "%s/check_nvme_open.file", cwd);
	make_file(path);
	refused_path(path, ENOTDIR, "a regular file");
	ck_assert_int_eq(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/check_nvme_open.link", cwd);
	unlink(path);
	ck_assert_int_eq(symlink("/nonexistent/folder", path), 0);
	refused_path(path, ENOENT, "symbolic link to nothing");
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_TEST(a_link_to_a_folder_is_that_folder)
{
	struct rig rig;
	char *own, *link;

	rig_init(&rig);
	own = rig.config.path.path;
	ck_assert_int_gt(asprintf(&link, "%s.link", own), 0);
	ck_assert_int_eq(symlink(own, link), 0);
	rig.config.path.path = link;
	rig_start(&rig);
	rig_round_trip(&rig);
	rig_stop(&rig);
	ck_assert_int_eq(unlink(link), 0);
	free(link);
	rig.config.path.path = own;
	rig_end(&rig);
}
END_TEST

START_TEST(sizes_that_cannot_be_are_refused_with_both_numbers)
{
	struct rig rig;

	rig_init(&rig);
	rig.config.path.size.bytes = MIB(1) - 1;
	refused(&rig, EINVAL, "less than one block");
	rig.config.path.size.bytes = 1ull << 60;
	refused(&rig, ENOSPC, "1152921504606846976 wanted");
	rig.config.path.size.bytes = MIB(8);
	rig.config.options.block_bytes = 4097;
	refused(&rig, EINVAL, "multiple of 4KiB");
	rig.config.options.block_bytes = MIB(1);
	rig.config.options.queue_depth = 0;
	refused(&rig, EINVAL, "queue_depth 0");
	rig_end(&rig);
}
END_TEST

static int no_fallocate(uint64_t offset, uint64_t bytes)
{
	return -EOPNOTSUPP;
}

static int full_after_two(uint64_t offset, uint64_t bytes)
{
	return offset >= GIB(2) ? -ENOSPC : 0;
}

START_TEST(without_fallocate_the_file_is_sparse_and_works)
{
	struct rig rig;

	rig_init(&rig);
	nvme_refusals.fallocate = no_fallocate;
	rig_start(&rig);
	nvme_refusals.fallocate = NULL;
	ck_assert_ptr_nonnull(strstr(rig.tier->base.chosen, "space not reserved"));
	rig_round_trip(&rig);
	rig_end(&rig);
}
END_TEST

static int no_tmpfile(void)
{
	return -EOPNOTSUPP;
}

START_TEST(without_o_tmpfile_the_name_is_gone_at_once)
{
	struct rig rig;

	rig_init(&rig);
	nvme_refusals.tmpfile = no_tmpfile;
	rig_start(&rig);
	nvme_refusals.tmpfile = NULL;
	/* While the tier is open: an empty folder can be removed, and the file lives on. */
	ck_assert_int_eq(rmdir(rig.folder), 0);
	rig_round_trip(&rig);
	ck_assert_int_eq(mkdir(rig.folder, 0700), 0);
	rig_end(&rig);
}
END_TEST

START_TEST(a_signal_ends_a_reservation)
{
	sigset_t term, was;
	struct rig rig;

	rig_init(&rig);
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	ck_assert_int_eq(sigprocmask(SIG_BLOCK, &term, &was), 0);
	ck_assert_int_eq(raise(SIGTERM), 0);
	refused(&rig, EINTR, "a signal ended the reservation");
	ck_assert_int_eq(sigwaitinfo(&term, NULL), SIGTERM);
	ck_assert_int_eq(sigprocmask(SIG_SETMASK, &was, NULL), 0);
	rig_end(&rig);
}
END_TEST

static void killed(struct rig *rig)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		rig_start(rig);
		raise(SIGKILL);
	}
	CHILD(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
}

START_TEST(a_killed_owner_leaves_nothing)
{
	for (int i = 0; i < 5; i++)
		rig_in_child(killed, false); /* ends with the folder's rmdir() */
}
END_TEST

static uint64_t free_bytes(const char *path)
{
	struct statvfs v;

	ck_assert_int_eq(statvfs(path, &v), 0);
	return (uint64_t)v.f_bfree * v.f_frsize;
}

START_TEST(a_disk_that_fills_during_reservation_gets_everything_back)
{
	uint64_t before;
	struct rig rig;

	rig_init(&rig);
	before = free_bytes(rig.folder);
	if (before < GIB(8)) {
		rig_skip("needs 8 GiB of free space");
	} else {
		rig.config.path.size.bytes = GIB(3);
		nvme_refusals.fallocate = full_after_two;
		refused(&rig, ENOSPC, "after 2147483648 bytes");
		nvme_refusals.fallocate = NULL;
		/* Others write meanwhile: most of the 2 GiB is a proof. */
		ck_assert_uint_gt(free_bytes(rig.folder) + GIB(1), before);
	}
	rig_end(&rig); /* removes the folder, which must be empty */
}
END_TEST

static void not_ours(struct rig *rig)
{
	struct err err = ERR_INIT;

	CHILD(chmod(rig->folder, 0500) == 0);
	CHILD(rig_try(rig, &err) == -EACCES);
	CHILD(strstr(err.text, rig->config.path.path) != NULL);
	CHILD(chmod(rig->folder, 0700) == 0);
}

START_TEST(a_folder_that_cannot_be_written_is_refused)
{
	rig_in_child(not_ours, true);
}
END_TEST

/* Mounts: the test's process is Check's child, so the namespace ends with it. */

static bool own_mounts(void)
{
	return geteuid() == 0 && unshare(CLONE_NEWNS) == 0 &&
	       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static bool mount_on(struct rig *rig, const char *type, const char *options)
{
	rig_init(rig);
	if (own_mounts() && mount("tierd-test", rig->folder, type, 0, options) == 0)
		return true;
	rig_skip("no %s can be mounted here: %s", type, strerror(errno));
	rig_end(rig);
	return false;
}

static void unmount(struct rig *rig)
{
	if (rig->tier != NULL)
		rig_stop(rig);
	ck_assert_int_eq(umount(rig->folder), 0);
	rig_end(rig);
}

START_TEST(ramfs_takes_no_direct_io)
{
	struct rig rig;

	if (!mount_on(&rig, "ramfs", NULL))
		return;
	rig.config.options.direct = NVME_DIRECT_REQUIRE;
	refused(&rig, EOPNOTSUPP, "ramfs takes no direct I/O");
	rig.config.path.size = (struct config_bytes){ 0, 500 };
	refused(&rig, EINVAL, "% of an unknown size");
	rig.config.path.size = (struct config_bytes){ MIB(16), 0 };
	rig.config.options.direct = NVME_DIRECT_TRY;
	rig_start(&rig);
	ck_assert_ptr_nonnull(strstr(rig.tier->base.chosen, "buffered"));
	rig_round_trip(&rig);
	unmount(&rig);
}
END_TEST

START_TEST(tmpfs_takes_anything_and_is_given_4_kib)
{
	struct rig rig;

	if (!mount_on(&rig, "tmpfs", "size=64m"))
		return;
	rig.config.path.size = (struct config_bytes){ 0, 500 };
	rig_start(&rig);
	ck_assert_uint_eq(rig.tier->base.bytes, ALIGN_DOWN(MIB(64) / 1000 * 500, GRANULE));
	if (strstr(rig.tier->base.chosen, "direct") != NULL)
		ck_assert_ptr_nonnull(strstr(rig.tier->base.chosen, "unit 4096"));
	rig_round_trip(&rig);
	unmount(&rig);
}
END_TEST

START_TEST(a_read_only_mount_is_refused)
{
	struct rig rig;

	if (!mount_on(&rig, "tmpfs", "size=64m,ro"))
		return;
	refused(&rig, EROFS, rig.config.path.path);
	unmount(&rig);
}
END_TEST

/* A file that another program fills the disk with. */
static int hog(const char *folder, uint64_t bytes)
{
	int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fallocate(fd, 0, 0, (off_t)bytes), 0);
	return fd;
}

START_TEST(a_full_disk_fails_the_write_and_recovers)
{
	struct xfer x;
	struct rig rig;
	int fd;

	if (!mount_on(&rig, "tmpfs", "size=32m"))
		return;
	rig.config.path.size.bytes = MIB(16);
	nvme_refusals.fallocate = no_fallocate;
	rig_start(&rig);
	nvme_refusals.fallocate = NULL;
	rig_round_trip(&rig);
	fd = hog(rig.folder, free_bytes(rig.folder));
	x = rig_xfer(XFER_WRITE, MIB(8), rig.host, MIB(1));
	rig_run(&rig, &x, 1, NULL);
	ck_assert_int_eq(x.result, -ENOSPC);
	ck_assert_str_eq(x.cause, "nvme0: write of 1048576 bytes at 0x800000, from byte 0 on: "
				  "ENOSPC");
	close(fd);
	rig_run(&rig, &x, 1, NULL);
	ck_assert_int_eq(x.result, 0);
	rig_round_trip(&rig);
	unmount(&rig);
}
END_TEST

START_TEST(more_than_is_free_is_refused)
{
	struct rig rig;

	if (!mount_on(&rig, "tmpfs", "size=32m"))
		return;
	rig.config.path.size.bytes = MIB(33);
	refused(&rig, ENOSPC, "33554432 bytes free");
	unmount(&rig);
}
END_TEST

/* A loop device over a file without a name, gone with its last descriptor; -1 where there is none.
 */
static int make_loop(struct rig *rig, uint32_t sector, char *ret_path)
{
	struct loop_config config = { .block_size = sector, .info.lo_flags = LO_FLAGS_AUTOCLEAR };
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), fd = -1, number;
	int file = open(rig->folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	ck_assert_int_ge(file, 0);
	ck_assert_int_eq(ftruncate(file, MIB(64)), 0);
	config.fd = (unsigned)file;
	/* Another process may take the number first. */
	for (int tries = 0; control >= 0 && fd < 0 && tries < 20; tries++) {
		number = ioctl(control, LOOP_CTL_GET_FREE);
		sprintf(ret_path, "/dev/loop%d", number);
		fd = open(ret_path, O_RDWR | O_CLOEXEC);
		if (fd >= 0 && ioctl(fd, LOOP_CONFIGURE, &config) < 0) {
			close(fd);
			fd = -1;
		}
	}
	close(control);
	close(file);
	return fd;
}

static bool loop_rig(struct rig *rig, uint32_t sector, int *ret_fd)
{
	char path[64];

	rig_init(rig);
	*ret_fd = make_loop(rig, sector, path);
	if (*ret_fd < 0) {
		rig_skip("no loop device can be had: %s", strerror(errno));
		rig_end(rig);
		return false;
	}
	free(rig->config.path.path);
	rig->config.path.path = strdup(path);
	rig->config.path.size.bytes = MIB(16);
	return true;
}

static void loop_end(struct rig *rig, int fd)
{
	if (rig->tier != NULL)
		rig_stop(rig);
	close(fd);
	rig_end(rig);
}

START_TEST(a_device_with_4096_byte_sectors_is_addressed_by_them)
{
	struct nvme *n;
	struct rig rig;
	int fd;

	if (!loop_rig(&rig, 4096, &fd))
		return;
	rig.config.options.direct = NVME_DIRECT_REQUIRE;
	rig_start(&rig);
	n = (struct nvme *)rig.tier;
	ck_assert(n->file.direct && n->file.device);
	ck_assert_uint_eq(n->file.unit, 4096);
	rig_round_trip(&rig);
	loop_end(&rig, fd);
}
END_TEST

static bool mount_ext4(struct rig *rig, uint32_t sector, int *ret_fd)
{
	char device[64], command[192];

	rig_init(rig);
	*ret_fd = make_loop(rig, sector, device);
	snprintf(command, sizeof(command),
		 "PATH=$PATH:/usr/sbin:/sbin mkfs.ext4 -q -F %s >/dev/null 2>&1", device);
	if (*ret_fd >= 0 && own_mounts() && system(command) == 0 &&
	    mount(device, rig->folder, "ext4", 0, NULL) == 0)
		return true;
	rig_skip("no ext4 on a loop device can be had: %s", strerror(errno));
	if (*ret_fd >= 0)
		close(*ret_fd);
	rig_end(rig);
	return false;
}

static void every_length_comes_back(struct rig *rig)
{
	static const uint64_t lengths[] = { 1, 511, 512, 513, 4095, 4096, 4097, MIB(1) - 1 };
	unsigned char *at = rig->host, *back = rig->host + MIB(1);
	uint32_t crc;

	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		rig_fill(at, lengths[i], i);
		ck_assert_int_eq(rig_write(rig, MIB(1) + i * GRANULE, at, lengths[i], &crc), 0);
		ck_assert_int_eq(rig_read(rig, MIB(1) + i * GRANULE, back, lengths[i], crc), 0);
		ck_assert_int_eq(memcmp(at, back, lengths[i]), 0);
	}
}

START_TEST(a_file_is_addressed_by_the_sectors_below_its_file_system)
{
	static const uint32_t sectors[] = { 4096, 512 };

	for (unsigned i = 0; i < ARRAY_SIZE(sectors); i++) {
		const struct nvme *n;
		struct rig rig;
		int fd;

		if (!mount_ext4(&rig, sectors[i], &fd))
			return;
		rig.config.options.direct = NVME_DIRECT_REQUIRE;
		rig.config.path.size.bytes = MIB(16);
		rig_start(&rig);
		n = (struct nvme *)rig.tier;
		ck_assert(n->file.direct && !n->file.device);
		ck_assert_uint_eq(n->file.unit, sectors[i]);
		every_length_comes_back(&rig);
		rig_stop(&rig);
		ck_assert_int_eq(umount(rig.folder), 0);
		loop_end(&rig, fd);
	}
}
END_TEST

START_TEST(a_device_is_taken_once_and_its_ends_stay_as_they_were)
{
	unsigned char edge[GRANULE];
	struct nvme_config second;
	struct tier *tier = NULL;
	struct err err = ERR_INIT;
	struct rig rig;
	int fd;

	if (!loop_rig(&rig, 512, &fd))
		return;
	rig.config.path.size = (struct config_bytes){ 0, 1000 };
	rig_start(&rig);
	second = rig.config;
	ck_assert_int_eq(nvme_ops.open(&second, 0, NULL, &tier, &err), -EBUSY);
	ck_assert_ptr_nonnull(strstr(err.text, "in use"));
	ck_assert_uint_eq(rig.tier->base.bytes,
			  ALIGN_DOWN((MIB(64) - 2 * NVME_DEVICE_EDGE) / 1000 * 1000, GRANULE));
	/* Bytes at the very start and end that would look like somebody's file system. */
	memset(rig.host, 0xef, MIB(1));
	for (uint64_t at = 0; at + MIB(1) <= rig.tier->base.bytes; at += MIB(1)) {
		struct xfer x = rig_xfer(XFER_WRITE, at, rig.host, MIB(1));

		rig_run(&rig, &x, 1, NULL);
		ck_assert_int_eq(x.result, 0);
	}
	rig_stop(&rig);
	ck_assert_int_eq(pread(fd, edge, sizeof(edge), 0), sizeof(edge));
	ck_assert(rig_all(edge, sizeof(edge), 0));
	ck_assert_int_eq(pread(fd, edge, sizeof(edge), (off_t)(MIB(64) - sizeof(edge))),
			 sizeof(edge));
	ck_assert(rig_all(edge, sizeof(edge), 0));
	/* Free again, and still empty in blkid's eyes. */
	rig_start(&rig);
	loop_end(&rig, fd);
}
END_TEST

/* Shares of one device: the first claims it, the next one begins where that ends. */
START_TEST(shares_of_a_device_stand_side_by_side)
{
	struct rig rig, second;
	uint32_t crc;
	int fd;

	if (!loop_rig(&rig, 512, &fd))
		return;
	rig_init(&second);
	free(second.config.path.path);
	second.config.path = (struct nvme_path){ strdup(rig.config.path.path),
						 { .bytes = MIB(40) + KIB(4) },
						 MIB(16) };
	rig_start(&rig);
	refused(&second, EINVAL, "41943040 bytes on the device");
	second.config.path.size.bytes = MIB(40);
	rig_start(&second);
	/* The last block of one, the first of the other. */
	rig_fill(rig.host, MIB(1), 1);
	ck_assert_int_eq(rig_write(&rig, MIB(15), rig.host, MIB(1), &crc), 0);
	rig_fill(second.host, MIB(1), 2);
	ck_assert_int_eq(rig_write(&second, 0, second.host, MIB(1), &crc), 0);
	ck_assert_int_eq(pread(fd, second.host, MIB(1), (off_t)(NVME_DEVICE_EDGE + MIB(15))),
			 MIB(1));
	ck_assert_mem_eq(second.host, rig.host, MIB(1));
	rig_fill(rig.host, MIB(1), 2);
	ck_assert_int_eq(pread(fd, second.host, MIB(1), (off_t)(NVME_DEVICE_EDGE + MIB(16))),
			 MIB(1));
	ck_assert_mem_eq(second.host, rig.host, MIB(1));
	rig_stop(&second);
	rig_end(&second);
	loop_end(&rig, fd);
}
END_TEST

START_TEST(a_device_that_holds_something_is_refused_by_name)
{
	unsigned char block[4096] = { 0 };
	struct rig rig;
	int fd;

	if (!loop_rig(&rig, 512, &fd))
		return;
	/* A swap area: the shortest signature that blkid knows. */
	memcpy(block + 4086, "SWAPSPACE2", 10);
	block[1024] = 1;   /* version */
	block[1028] = 255; /* last page */
	ck_assert_int_eq(pwrite(fd, block, sizeof(block), 0), sizeof(block));
	refused(&rig, EEXIST, "holds swap");
	memset(block, 0, sizeof(block));
	ck_assert_int_eq(pwrite(fd, block, sizeof(block), 0), sizeof(block));
	rig_start(&rig);
	rig_round_trip(&rig);
	loop_end(&rig, fd);
}
END_TEST

UNIT_MAIN("nvme_open", paths_that_cannot_be_used_are_refused_with_the_reason,
	  a_link_to_a_folder_is_that_folder, sizes_that_cannot_be_are_refused_with_both_numbers,
	  without_fallocate_the_file_is_sparse_and_works,
	  without_o_tmpfile_the_name_is_gone_at_once, a_signal_ends_a_reservation,
	  a_killed_owner_leaves_nothing, a_disk_that_fills_during_reservation_gets_everything_back,
	  a_folder_that_cannot_be_written_is_refused, ramfs_takes_no_direct_io,
	  tmpfs_takes_anything_and_is_given_4_kib, a_read_only_mount_is_refused,
	  a_full_disk_fails_the_write_and_recovers, more_than_is_free_is_refused,
	  a_device_with_4096_byte_sectors_is_addressed_by_them,
	  a_file_is_addressed_by_the_sectors_below_its_file_system,
	  a_device_is_taken_once_and_its_ends_stay_as_they_were,
	  shares_of_a_device_stand_side_by_side, a_device_that_holds_something_is_refused_by_name)
