/* The reference kernels: loops that follow the formulas, sums in double, no tiling. The judge of
 * every other table. */
#ifndef TESTS_KERNELS_REFERENCE_REFERENCE_H
#define TESTS_KERNELS_REFERENCE_REFERENCE_H

#include "kernels/common/common.h"
#include "kernels/common/device.h"

const struct kernels *kernels_reference(void);

void reference_gemm(struct kernel_context *, const struct gemm *);
#define X(name, parameters) void reference_##name parameters;
KERNELS(X)
#undef X
/* Computes AdamW with factors of another step than the struct's. */
void reference_adamw_with(const struct adamw *, struct adamw_factors);

/* --- fp8 --- */

/* The number of a code, and the code of the number that is nearest to x. */
double reference_fp8_value(uint8_t code, enum fp8_format format);
uint8_t reference_fp8_round(float x, enum fp8_format format);
/* An operand in bf16, [rows, k] or as it is stored `across` [k, rows], and its copy: codes[rows, k]
 * and what undoes the scale of each row. */
struct reference_operand {
	const void *x;
	int64_t rows, k, stride;
	bool across, by_rows;
	enum fp8_format format;
};
void reference_fp8_copy(const struct reference_operand *, uint8_t *codes, float *undo);
void reference_gemm_fp8(const struct gemm *, const struct gemm_fp8 *);

#endif
