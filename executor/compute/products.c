/* Products of projections, in fp8 where the plan says so. */
#include "executor/compute/leaf.h"

#include "schedule/plan/plan.h"

bool leaf_in_fp8(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;

	return fp8_converts(&c->schedule->plan, c->model, leaf->module);
}

void leaf_multiply(const struct leaf *leaf, const struct gemm *gemm, enum pass pass)
{
	const struct compute *c = leaf->compute;
	const struct device_kernels *device = c->kernels->device;
	bool by_rows = c->schedule->plan.fp8 == FP8_ROWWISE;

	if (device == NULL || !leaf_in_fp8(leaf)) {
		c->kernels->gemm(c->context, gemm);
		return;
	}
	const struct gemm_fp8 how = {
		.a = pass == PASS_FORWARD || by_rows ? FP8_E4M3 : FP8_E5M2,
		.b = FP8_E4M3,
		.by_rows = by_rows,
		.copies = operand_fp8_copies(leaf, fp8_product_bytes(gemm->m, gemm->n, gemm->k)),
	};
	if (how.copies != NULL)
		device->gemm_fp8(c->context, gemm, &how);
}
