/* Bias and its gradient. */
#include "kernels/cpu/cpu.h"

void CPU(bias_add)(
	struct kernel_context *context, float *y, const float *bias, int64_t rows, int64_t width)
{
	(void)context;
	for (int64_t i = 0; i < rows; i++, y += width) {
		for (int64_t j = 0; j < width; j += LANES) {
			int64_t rest = width - j;
			store_some(y + j, load_some(y + j, rest) + load_some(bias + j, rest), rest);
		}
	}
}

/* Four vectors of columns at a time keep their sums in registers all the way down. */
void CPU(bias_backward)(struct kernel_context *context, float *dbias, const float *dy, int64_t rows,
	int64_t width, bool accumulate)
{
	int64_t j = 0;

	(void)context;
	for (; j + 4 * LANES <= width; j += 4 * LANES) {
		vec sum[4] = {0};

		for (int v = 0; v < 4 && accumulate; v++)
			sum[v] = load(dbias + j + v * LANES);
		for (int64_t i = 0; i < rows; i++) {
			for (int v = 0; v < 4; v++)
				sum[v] += load(dy + i * width + j + v * LANES);
		}
		for (int v = 0; v < 4; v++)
			store(dbias + j + v * LANES, sum[v]);
	}
	for (; j < width; j += LANES) {
		vec sum = accumulate ? load_some(dbias + j, width - j) : (vec){0};

		for (int64_t i = 0; i < rows; i++)
			sum += load_some(dy + i * width + j, width - j);
		store_some(dbias + j, sum, width - j);
	}
}
