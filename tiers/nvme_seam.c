/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/nvme_inside.h"

#include "base/check.h"

struct nvme_refusals nvme_refusals;

void nvme_seam_init(struct nvme_seam *seam, const struct fault_config *config)
{
	seam->faults.config = config->presence.present ? config : NULL;
	seam->faults.calls = 0;
}

/* What the kernel says, or a test in its place. */
static int real_result(uint8_t op, uint64_t bytes, int result)
{
	int r = 0;

	if (nvme_refusals.completion != NULL && result >= 0)
		r = nvme_refusals.completion(op, bytes);
	return r != 0 ? r : result;
}

int nvme_seam_pass(struct nvme_seam *seam, uint8_t op, void *buffer, uint64_t bytes, int result,
		   struct fault_decision *ret)
{
	result = real_result(op, bytes, result);
	*ret = (struct fault_decision){ .kind = FAULT_NONE };
	if (seam->faults.config == NULL)
		return result;
	*ret = fault_decide(&seam->faults, op, op == XFER_SYNC ? 0 : bytes);
	/* A real failure is not covered up by an invented one. */
	if (result < 0)
		return result;
	if (ret->error < 0)
		return ret->error;
	if (ret->kind == FAULT_SHORT_READ || ret->kind == FAULT_SHORT_WRITE)
		return MIN(result, (int)ret->bytes);
	if (ret->kind == FAULT_CORRUPT)
		((unsigned char *)buffer)[ret->where] ^= 0x10;
	return result;
}
