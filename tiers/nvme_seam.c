/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/nvme_inside.h"

#include "base/check.h"

struct nvme_refusals nvme_refusals;

void nvme_seam_init(struct nvme_seam *seam, const struct fault_config *config)
{
	seam->faults.config = config->presence.present ? config : NULL;
	seam->faults.calls = 0;
}

int nvme_seam_pass(struct nvme_seam *seam, uint8_t op, void *buffer, uint64_t bytes, int result,
		   uint64_t *ret_delay_ns)
{
	struct fault_decision d;

	*ret_delay_ns = 0;
	if (nvme_refusals.completion != NULL && result >= 0) {
		int r = nvme_refusals.completion(op, bytes);

		result = r != 0 ? r : result;
	}
	if (seam->faults.config == NULL)
		return result;
	d = fault_decide(&seam->faults, op != XFER_READ, bytes);
	*ret_delay_ns = d.delay_ns;
	/* A real failure is not covered up by an invented one. */
	if (result < 0)
		return result;
	switch (d.kind) {
	case FAULT_NONE:
		return result;
	case FAULT_ERROR:
		return d.error;
	case FAULT_SHORT:
		ASSERT(d.bytes < bytes);
		return MIN(result, (int)d.bytes);
	case FAULT_CORRUPT:
		ASSERT(d.where < bytes && op == XFER_READ);
		((unsigned char *)buffer)[d.where] ^= 0x10;
		return result;
	}
	ASSERT(!"a kind of fault that does not exist");
	return result;
}
