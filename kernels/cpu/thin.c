/* Products of a few rows of fp32. */
#include "kernels/cpu/thin.h"

THIN_GROUPS(DTYPE_FP32)

/* A as words [steps][m]. */
static void gather(const struct gemm *g, uint32_t *to)
{
	int64_t row = g->transpose_a ? 1 : g->lda, term = g->transpose_a ? g->lda : 1;

	for (int64_t p = 0; p < g->k; p++)
		for (int64_t i = 0; i < g->m; i++)
			memcpy(to++, (const float *)g->a + i * row + p * term, sizeof(*to));
}

int64_t CPU(multiply_thin)(const struct gemm *g, float *workspace, int64_t floats)
{
	return multiply_groups(groups, g, workspace, floats, gather);
}
