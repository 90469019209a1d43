/* Products of a few rows of bf16. */
#include "kernels/cpu/thin.h"

THIN_GROUPS(DTYPE_BF16)

/* A as words [steps][m]; the last term of an odd number stands beside zero. */
static void gather(const struct gemm *g, uint32_t *to)
{
	int64_t row = g->transpose_a ? 1 : g->lda, term = g->transpose_a ? g->lda : 1;

	for (int64_t p = 0; p < g->k; p += 2)
		for (int64_t i = 0; i < g->m; i++) {
			const uint16_t *a = (const uint16_t *)g->a + i * row + p * term;

			*to++ = a[0] | (p + 1 < g->k ? (uint32_t)a[term] << 16 : 0);
		}
}

int64_t CPU(multiply_thin_bf16)(const struct gemm *g, float *workspace, int64_t floats)
{
	return multiply_groups(groups, g, workspace, floats, gather);
}
