/* SPDX-License-Identifier: Apache-2.0
 *
 * io_uring, the paths of nvme, and GPUs.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/plural.h"
#ifdef HAVE_CUDA
#include "tiers/gpu_inside.h"
#endif
#include "tiers/nvme_inside.h"
#include "tools/tierctl/doctor.h"
#include "tools/tierctl/text.h"

/* ---- nvme ----------------------------------------------------------------------------------- */

void doctor_io_uring(struct doctor *d)
{
	static const char mend[] =
		"sysctl kernel.io_uring_disabled=0; in a container a seccomp profile that allows "
		"io_uring_setup, io_uring_enter and io_uring_register";
	bool wanted = d->configured && settings_nvme_options(&d->settings) != NULL;
	struct err err = ERR_INIT;

	if (nvme_ring_probe(&err) == 0)
		doctor_say(d, DOCTOR_OK, "io_uring", "", "there, and a request came back");
	else
		doctor_say(d, wanted ? DOCTOR_FAIL : DOCTOR_WARN, "io_uring", mend, "%s%s",
			   err.text, wanted ? "" : "; only an nvme tier needs it");
}

static const char mend_path[] =
	"an existing folder that tierd's user may write, by its unit too (ReadWritePaths=), and "
	"that has room, or an empty block device";

/* By a probe that asks for one block: whether anything can be had there, of whatever kind. */
static int try_block(const struct doctor *d, const struct nvme_path *path, struct err *err)
{
	const struct nvme_options *o = settings_nvme_options(&d->settings);
	struct nvme_config config = { .path = *path, .options = *o };
	struct nvme_file file;
	int rc;

	config.path.size = (struct config_bytes){ .bytes = o->block_bytes };
	config.options.direct = NVME_DIRECT_OFF;
	rc = nvme_file_probe(&config, &file, err);
	if (rc == 0)
		nvme_file_close(&file);
	return rc;
}

static bool may_be_used(struct doctor *d, const struct nvme_path *path)
{
	struct err err = ERR_INIT;

	if (try_block(d, path, &err) == 0)
		return true;
	doctor_say(d, DOCTOR_FAIL, "path", mend_path, "%s", err.text);
	return false;
}

/* The daemon has the room of its folders, and its devices for itself; whether the path is one of
 * them is not known: it may have been started by another configuration. Nor is it said that who
 * asks is its user. */
static void beside_daemon(struct doctor *d, const struct nvme_path *path)
{
	struct err err = ERR_INIT;
	int rc = try_block(d, path, &err);

	if (rc == 0 || rc == -EBUSY || rc == -ENOSPC)
		doctor_say(d, DOCTOR_OK, "path", "",
			   "%s: it is there; its room was not tried, as the daemon that runs may "
			   "have it",
			   path->path);
	else
		doctor_say(d, rc == -EACCES || rc == -EPERM ? DOCTOR_WARN : DOCTOR_FAIL, "path",
			   mend_path, "%s", err.text);
}

static void direct_of(struct doctor *d, const struct nvme_path *path)
{
	const struct nvme_options *o = settings_nvme_options(&d->settings);
	struct nvme_config config = { .path = *path, .options = *o };
	struct err err = ERR_INIT;
	struct nvme_file file;

	config.path.size = (struct config_bytes){ .bytes = o->block_bytes };
	if (nvme_file_probe(&config, &file, &err) < 0)
		doctor_say(d, DOCTOR_FAIL, "direct I/O",
			   "a folder on a file system with direct I/O, an empty block device, or "
			   "direct: try",
			   "%s", err.text);
	else if (file.direct && !file.in_memory)
		doctor_say(d, DOCTOR_OK, "direct I/O", "", "%s: %s, in units of %" PRIu32 " bytes",
			   path->path, file.kind, file.unit);
	else if (file.in_memory)
		doctor_say(d, DOCTOR_WARN, "direct I/O", "a folder on a disk",
			   "%s: %s keeps its bytes in memory: this saves none", path->path,
			   file.kind);
	else if (o->direct == NVME_DIRECT_OFF)
		doctor_say(d, DOCTOR_OK, "direct I/O", "", "%s: %s, off by the configuration",
			   path->path, file.kind);
	else
		doctor_say(d, DOCTOR_WARN, "direct I/O",
			   "a folder on ext4, xfs or another file system of a disk",
			   "%s: %s takes none: buffered, through the page cache", path->path,
			   file.kind);
	if (err.text[0] == '\0')
		nvme_file_close(&file);
}

/* What paths want of their file systems: several may be of one, and none sees what others want. */
struct wants {
	unsigned n;
	struct {
		dev_t on;
		uint64_t bytes;
	} of[STATS_DEVICES]; /* no engine has more */
};

/* Whether it has room beside those before it, and what it wants is counted. */
static int fits_beside(const struct nvme_path *path, const struct nvme_file *file, struct wants *w,
		       struct err *err)
{
	uint64_t before = 0, bytes = file->bytes, room = file->room;
	struct stat st;

	if (room == 0 || fstat(file->fd, &st) < 0)
		return 0;
	for (unsigned i = 0; i < w->n; i++)
		before += w->of[i].on == st.st_dev ? w->of[i].bytes : 0;
	if (path->size.permille > 0) /* of what those before leave */
		bytes = (room - MIN(room, before)) / 1000 * path->size.permille;
	ASSERT(w->n < STATS_DEVICES);
	w->of[w->n].on = st.st_dev;
	w->of[w->n++].bytes = bytes;
	if (before + bytes <= room)
		return 0;
	return err_set(err, ENOSPC,
		       "%s: size %" PRIu64 " wanted, %" PRIu64 " bytes free, of which paths before "
		       "it on this file system want %" PRIu64,
		       path->path, bytes, room, before);
}

static void space_of(struct doctor *d, const struct nvme_path *path, struct wants *w)
{
	const struct nvme_options *o = settings_nvme_options(&d->settings);
	struct nvme_config config = { .path = *path, .options = *o };
	struct err err = ERR_INIT;
	struct nvme_file file;
	char bytes[TEXT_ROOM];
	int rc;

	/* Of the space alone. */
	config.options.direct = NVME_DIRECT_OFF;
	rc = nvme_file_probe(&config, &file, &err);
	if (rc == 0) {
		rc = fits_beside(path, &file, w, &err);
		nvme_file_close(&file);
	}
	if (rc < 0)
		doctor_say(d, DOCTOR_FAIL, "space", "a smaller `size`, or room on the disk", "%s",
			   err.text);
	else
		doctor_say(d, DOCTOR_OK, "space", "", "%s: %s are there", path->path,
			   text_bytes(file.bytes, bytes));
}

/* As they come to be one after the other; not known where one of them is not. */
static uint64_t sum_of(const struct wants *w, size_t paths)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < w->n; i++)
		sum += ALIGN_DOWN(w->of[i].bytes, (uint64_t)GRANULE);
	return w->n == paths ? sum : 0;
}

void doctor_paths(struct doctor *d)
{
	const struct nvme_path *paths = d->settings.tiers.nvme.paths.items;
	struct wants wants = { 0 };

	if (!d->configured || settings_nvme_options(&d->settings) == NULL) {
		doctor_say(d, DOCTOR_OK, "nvme", "", "%s",
			   d->configured ? "no path is configured"
					 : "no path is known without a configuration");
		return;
	}
	for (size_t i = 0; i < d->settings.tiers.nvme.paths.count; i++) {
		if (d->served) {
			beside_daemon(d, &paths[i]);
		} else if (may_be_used(d, &paths[i])) {
			direct_of(d, &paths[i]);
			space_of(d, &paths[i], &wants);
		}
	}
	d->nvme_bytes = sum_of(&wants, d->settings.tiers.nvme.paths.count);
}

/* ---- GPUs ----------------------------------------------------------------------------------- */

#ifdef HAVE_CUDA

static const char mend_cuda[] =
	"an NVIDIA driver of CUDA 12.4 or newer; in a container its device files and libcuda.so.1 "
	"(--gpus); CUDA_VISIBLE_DEVICES hides none that is wanted";

static const struct gpu_config *gpus_wanted(const struct doctor *d)
{
	if (!d->configured || settings_backend(TIER_KIND_HBM, &d->settings.tiers.hbm) != &gpu_ops)
		return NULL;
	return d->settings.tiers.hbm.config;
}

static void one_gpu(struct doctor *d, const struct cuda *cuda, unsigned ordinal,
		    const struct gpu_config *wanted)
{
	char name[96] = "?", bytes[TEXT_ROOM];
	struct err err = ERR_INIT;
	struct gpu_size size = { 0 };
	CUdevice device;
	size_t total = 0;
	int rc = cuda_check(cuda, cuda->device_get(&device, (int)ordinal), &err, "cuDeviceGet");

	if (rc == 0)
		rc = cuda_check(cuda, cuda->device_get_name(name, sizeof(name), device), &err,
				"cuDeviceGetName");
	if (rc == 0)
		rc = cuda_check(cuda, cuda->device_total_mem(&total, device), &err,
				"cuDeviceTotalMem");
	if (rc == 0)
		rc = gpu_check_needs(cuda, device, name, &err);
	if (rc == 0 && wanted != NULL &&
	    gpu_decide_size(wanted, cuda, device, "hbm", &size, &err) < 0)
		doctor_say(d, DOCTOR_FAIL, "gpu", "another tiers.hbm.size or slab", "%u: %s",
			   ordinal, err.text);
	else if (rc < 0)
		doctor_say(d, wanted != NULL ? DOCTOR_FAIL : DOCTOR_WARN, "gpu", mend_cuda,
			   "%u: %s", ordinal, err.text);
	else
		doctor_say(d, DOCTOR_OK, "gpu", "", "%u: %s, %s, exports its memory by descriptor",
			   ordinal, name, text_bytes(total, bytes));
	if (size.slab_bytes > 0)
		size.bytes -= size.bytes % size.slab_bytes;
	if (size.bytes > 0)
		d->gpu_bytes = d->gpu_bytes > 0 ? MIN(d->gpu_bytes, size.bytes) : size.bytes;
}

void doctor_cuda(struct doctor *d)
{
	const struct gpu_config *wanted = gpus_wanted(d);
	static const struct gpu_config all;
	unsigned ordinals[GPUS_MAX];
	struct err err = ERR_INIT;
	const struct cuda *cuda;
	int n = cuda_open(&cuda, &err);

	if (n == 0)
		n = gpu_choose(wanted != NULL ? wanted : &all, cuda, ordinals, &err);
	if (n < 0) {
		doctor_say(d, wanted != NULL ? DOCTOR_FAIL : DOCTOR_OK, "cuda", mend_cuda, "%s%s",
			   err.text, wanted != NULL ? "" : "; `backend: cuda` is not configured");
		return;
	}
	doctor_say(d, DOCTOR_OK, "cuda", "", "%s, driver of CUDA %d.%d, %d %s%s", cuda->opened,
		   cuda->driver_version / 1000, cuda->driver_version % 1000 / 10, n,
		   PLURAL(n, "GPU", "GPUs"),
		   wanted != NULL ? " of the configuration" : "; none is configured");
	d->gpus = wanted != NULL ? (unsigned)n : 0;
	for (int i = 0; i < n; i++)
		one_gpu(d, cuda, ordinals[i], wanted);
}

#else

void doctor_cuda(struct doctor *d)
{
	doctor_say(d, DOCTOR_OK, "cuda", "",
		   "not in this build, which was configured without cuda.h");
}

#endif
