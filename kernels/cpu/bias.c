/* Bias and its gradient. */
#include "kernels/cpu/cpu.h"

INLINE void bias_add(const enum dtype dtype, void *y, const void *bias, int64_t rows, int64_t width)
{
	for (int64_t i = 0; i < rows; i++) {
		for (int64_t j = 0; j < width; j += LANES) {
			int64_t rest = width - j, at = i * width + j;
			store_as(dtype, y, at,
				load_as(dtype, y, at, rest) + load_as(dtype, bias, j, rest), rest);
		}
	}
}

void CPU(bias_add)(struct kernel_context *context, enum dtype dtype, void *y, const void *bias,
	int64_t rows, int64_t width)
{
	(void)context;
	BY_DTYPE(bias_add, dtype, y, bias, rows, width);
}

/* Four vectors of columns at a time keep their sums in registers all the way down. An fp32 gradient
 * starts at what it is to be added to, a bf16 one is added to at the end: one rounding. */
INLINE void bias_backward_2(const enum dtype dy_dtype, const enum dtype dtype, void *dbias,
	const void *dy, int64_t rows, int64_t width, bool accumulate)
{
	const bool first = dtype == DTYPE_FP32;

	for (int64_t j = 0; j < width; j += 4 * LANES) {
		int count = width - j >= 4 * LANES ? 4 : (int)((width - j + LANES - 1) / LANES);
		vec sum[4] = {0};

		for (int v = 0; v < count && accumulate && first; v++) {
			int64_t at = j + v * LANES;
			sum[v] = load_as(dtype, dbias, at, width - at);
		}
		if (width - j >= 4 * LANES) {
			for (int64_t i = 0; i < rows; i++)
				for (int v = 0; v < 4; v++)
					sum[v] += load_as(
						dy_dtype, dy, i * width + j + v * LANES, LANES);
		} else {
			for (int64_t i = 0; i < rows; i++)
				for (int v = 0; v < count; v++) {
					int64_t at = j + v * LANES;
					sum[v] += load_as(dy_dtype, dy, i * width + at, width - at);
				}
		}
		for (int v = 0; v < count; v++) {
			int64_t at = j + v * LANES;
			if (accumulate && !first)
				sum[v] += load_as(dtype, dbias, at, width - at);
			store_as(dtype, dbias, at, sum[v], width - at);
		}
	}
}

void CPU(bias_backward)(struct kernel_context *context, enum dtype dbias_dtype, void *dbias,
	enum dtype dy_dtype, const void *dy, int64_t rows, int64_t width, bool accumulate)
{
	(void)context;
	BY_DTYPES(bias_backward, dbias_dtype, dy_dtype, dbias, dy, rows, width, accumulate);
}
