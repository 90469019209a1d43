/* What the host hands to the kernels of fp8.cuh; see launches.h. */
#ifndef KERNELS_CUDA_LAUNCHES_FP8_H
#define KERNELS_CUDA_LAUNCHES_FP8_H

#include <stdint.h>

enum { CUDA_FP8_TILE = 64 }; /* rows and columns of a block */

/* x is [rows, columns] in bf16, `stride` elements from row to row; y the same in fp8 without gaps,
 * or transposed. Largest elements (bits of absolute values, from 0 on) and what undoes the scales:
 * of each row of y, or one of all. */
struct fp8_launch {
	const void *x;
	void *y;
	int32_t *largest;
	float *undo;
	int64_t rows, columns, stride;
	int32_t transpose, by_rows, format; /* enum fp8_format */
	int32_t vector;
};

#endif
