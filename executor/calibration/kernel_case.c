#include "executor/calibration/kernel_case.h"

#include <math.h>

#include "executor/calibration/bench.h"

#define X(kernel, ...)                                                                             \
	void run_##kernel(void *kernel_case)                                                       \
	{                                                                                          \
		const struct kernel_case *c = kernel_case;                                         \
		c->bench->kernels->kernel(&c->bench->context, __VA_ARGS__);                        \
	}
KERNEL_RUNS(X)
#undef X

struct attention_backward attention_case(enum dtype dtype, int64_t sequences, int64_t length,
	int64_t heads, int64_t head_dim, char *base, int64_t step)
{
	int64_t width = heads * head_dim;

	return (struct attention_backward){.forward = {.sequences = sequences,
						   .length = length,
						   .heads = heads,
						   .kv_heads = heads,
						   .head_dim = head_dim,
						   .dtype = dtype,
						   .scale = 1 / sqrtf((float)head_dim),
						   .q = base,
						   .k = base + step,
						   .v = base + 2 * step,
						   .q_stride = width,
						   .k_stride = width,
						   .v_stride = width,
						   .out = base + 3 * step,
						   .out_stride = width,
						   .lse = (float *)(base + 8 * step)},
		.dout = base + 4 * step,
		.dout_stride = width,
		.dq = base + 5 * step,
		.dk = base + 6 * step,
		.dv = base + 7 * step,
		.dq_stride = width,
		.dk_stride = width,
		.dv_stride = width};
}
