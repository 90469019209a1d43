/* Matrix products, bias, attention, rotary embedding. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/problem.h"
#include "tests/kernels/reference/reference.h"

/* dims: m n k, flags (1 transpose a, 2 transpose b, 4 accumulate, 8 padded rows, 16 rows
 * of 64) */
static struct gemm gemm_of(const struct problem *p)
{
	int64_t m = p->dim[0], n = p->dim[1], k = p->dim[2], padding = p->dim[3] & 8 ? 5 : 0;
	int64_t row = p->dim[3] & 16 ? 64 : 1;

	return (struct gemm){
		.m = m,
		.n = n,
		.k = k,
		.transpose_a = p->dim[3] & 1,
		.transpose_b = p->dim[3] & 2,
		.accumulate = p->dim[3] & 4,
		.lda = round_up(p->dim[3] & 1 ? m : k, row) + padding,
		.ldb = round_up(p->dim[3] & 2 ? k : n, row) + padding,
		.ldc = round_up(n, row) + padding,
		.a = p->buffer[0].data,
		.b = p->buffer[1].data,
		.c = p->buffer[2].data,
		.dtype = p->kernel_case->dtype,
		.c_dtype = gradient_dtype(p),
	};
}

static void make_gemm(struct problem *p)
{
	struct gemm g = gemm_of(p);

	make_input(p, 0, g.lda * (g.transpose_a ? g.k : g.m), -1, 1);
	make_input(p, 1, g.ldb * (g.transpose_b ? g.n : g.k), -1, 1);
	make_output_as(p, g.c_dtype, 2, g.ldc * g.m, -1, 1, 4e-6);
	p->flops = 2.0 * (double)g.m * (double)g.n * (double)g.k;
}

static void call_gemm(struct problem *p)
{
	struct gemm g = gemm_of(p);

	p->kernels->gemm(p->context, &g);
}

static void make_bias(struct problem *p)
{
	make_output(p, 0, p->dim[0] * p->dim[1], -1, 1, 1e-7);
	make_input(p, 1, p->dim[1], -1, 1);
	p->bytes = traffic(p, 2.0 * (double)(p->dim[0] * p->dim[1]));
}

static void call_bias(struct problem *p)
{
	p->kernels->bias_add(p->context, p->kernel_case->dtype, p->buffer[0].data,
		p->buffer[1].data, p->dim[0], p->dim[1]);
}

static void make_bias_backward(struct problem *p)
{
	make_input(p, 0, p->dim[0] * p->dim[1], -1, 1);
	make_output_as(p, gradient_dtype(p), 1, p->dim[1], -1, 1, 2e-6);
	p->bytes = traffic(p, (double)(p->dim[0] * p->dim[1]));
}

static void call_bias_backward(struct problem *p)
{
	p->kernels->bias_backward(p->context, gradient_dtype(p), p->buffer[1].data,
		p->kernel_case->dtype, p->buffer[0].data, p->dim[0], p->dim[1], p->dim[2] != 0);
}

/* dims: sequences length heads kv_heads head_dim, padding of the rows */
static struct attention problem_attention(const struct problem *p)
{
	int64_t width = p->dim[2] * p->dim[4], kv_width = p->dim[3] * p->dim[4];

	return (struct attention){
		.sequences = p->dim[0],
		.length = p->dim[1],
		.heads = p->dim[2],
		.kv_heads = p->dim[3],
		.head_dim = p->dim[4],
		.scale = 1.0f / sqrtf((float)p->dim[4]),
		.q = p->buffer[0].data,
		.k = p->buffer[1].data,
		.v = p->buffer[2].data,
		.out = p->buffer[3].data,
		.lse = p->buffer[4].data,
		.q_stride = width + p->dim[5],
		.k_stride = kv_width + 2 * p->dim[5],
		.v_stride = kv_width + 3 * p->dim[5],
		.out_stride = width + p->dim[5],
		.dtype = p->kernel_case->dtype,
	};
}

/* Causal: a query meets (length + 1) / 2 keys on average, two products of 2 head_dim FLOPs each. */
static double attention_flops(const struct problem *p)
{
	double pairs = (double)(p->dim[0] * p->dim[1]) * (double)(p->dim[1] + 1) / 2.0;

	return 4.0 * pairs * (double)(p->dim[2] * p->dim[4]);
}

static void make_attention(struct problem *p)
{
	struct attention a = problem_attention(p);
	int64_t rows = a.sequences * a.length;

	make_input(p, 0, rows * a.q_stride, -2, 2);
	make_input(p, 1, rows * a.k_stride, -2, 2);
	make_input(p, 2, rows * a.v_stride, -1, 1);
	make_output(p, 3, rows * a.out_stride, -1, 1, 5e-6);
	make_output_as(p, DTYPE_FP32, 4, rows * a.heads, -1, 1, 2e-6);
	p->flops = attention_flops(p);
}

static void call_attention(struct problem *p)
{
	struct attention a = problem_attention(p);

	p->kernels->attention(p->context, &a);
}

/* The reference's out and lse. Inputs depend on case and shape alone, so that the last results are
 * kept: a shape is asked for by every table, at every offset. */
static void reference_attention_of(struct problem *p)
{
	static struct {
		int64_t dim[MOST_DIMS];
		enum dtype dtype;
		void *saved[2];
	} last;
	struct attention a = problem_attention(p);
	bool known = last.saved[0] && last.dtype == p->kernel_case->dtype &&
		     memcmp(last.dim, p->dim, sizeof(last.dim)) == 0;

	if (!known)
		kernels_reference()->attention(p->context, &a);
	memcpy(last.dim, p->dim, sizeof(last.dim));
	last.dtype = p->kernel_case->dtype;
	for (int i = 0; i < 2; i++) {
		struct buffer *buffer = &p->buffer[3 + i];
		size_t bytes = (size_t)(buffer->count * dtype_bytes(buffer->dtype));

		if (known) {
			memcpy(buffer->data, last.saved[i], bytes);
			continue;
		}
		last.saved[i] = realloc(last.saved[i], bytes);
		if (!last.saved[i])
			abort();
		memcpy(last.saved[i], buffer->data, bytes);
	}
}

/* The saved out and lse come from the reference, so that both tables start alike. */
static void make_attention_backward(struct problem *p)
{
	struct attention a;
	int64_t rows = p->dim[0] * p->dim[1];

	make_attention(p);
	a = problem_attention(p);
	p->buffer[3].output = p->buffer[4].output = false;
	if (p->dim[1] > 300)
		p->kernels->attention(p->context, &a);
	else
		reference_attention_of(p);
	make_input(p, 5, rows * a.out_stride, -1, 1);
	make_output(p, 6, rows * a.q_stride, -1, 1, 1e-5);
	make_output(p, 7, rows * a.k_stride, -1, 1, 1e-5);
	make_output(p, 8, rows * a.v_stride, -1, 1, 1e-5);
	p->flops = 2.5 * attention_flops(p);
}

struct attention_backward problem_attention_backward(const struct problem *p)
{
	struct attention_backward b = {
		.forward = problem_attention(p),
		.dout = p->buffer[5].data,
		.dq = p->buffer[6].data,
		.dk = p->buffer[7].data,
		.dv = p->buffer[8].data,
	};

	b.dout_stride = b.forward.out_stride;
	b.dq_stride = b.forward.q_stride;
	b.dk_stride = b.forward.k_stride;
	b.dv_stride = b.forward.v_stride;
	return b;
}

static void call_attention_backward(struct problem *p)
{
	struct attention_backward b = problem_attention_backward(p);

	p->kernels->attention_backward(p->context, &b);
}

/* dims: tokens length heads head_dim, flags (1 inverse, 2 llama 3 scaling, 4 rows without padding)
 */
static int64_t rope_stride(const struct problem *p)
{
	return p->dim[2] * p->dim[3] + (p->dim[4] & 4 ? 0 : 3);
}

static void make_rope(struct problem *p)
{
	make_output(p, 0, p->dim[0] * rope_stride(p), -1, 1, 2e-7);
	p->bytes = traffic(p, 2.0 * (double)(p->dim[0] * p->dim[2] * p->dim[3]));
}

static void call_rope(struct problem *p)
{
	struct rope r = {
		.x = p->buffer[0].data,
		.tokens = p->dim[0],
		.length = p->dim[1],
		.heads = p->dim[2],
		.head_dim = p->dim[3],
		.stride = rope_stride(p),
		.theta = 10000.0,
		.inverse = p->dim[4] & 1,
		.scaling_factor = p->dim[4] & 2 ? 8.0 : 0.0,
		.low_frequency_factor = 1.0,
		.high_frequency_factor = 4.0,
		.original_length = 64.0,
		.dtype = p->kernel_case->dtype,
	};

	p->kernels->rope(p->context, &r);
}

static const int64_t gemm_shapes[][MOST_DIMS] = {{1, 1, 1, 0}, {1, 1, 1, 7}, {3, 7, 17, 0},
	{7, 17, 33, 1}, {17, 33, 3, 2}, {33, 3, 7, 3}, {33, 65, 129, 12}, {64, 64, 64, 4},
	{31, 100, 257, 10}, {13, 31, 100, 9}, {100, 1, 50, 2}, {1, 100, 50, 3}, {12, 32, 16, 14},
	{25, 97, 513, 0}, {25, 97, 1030, 13}, {257, 193, 65, 1}, {61, 385, 40, 2},
	{1545, 35, 21, 0}, {5, 6, 0, 0}, {5, 6, 0, 4}, {20, 1027, 40, 18}, {20, 1029, 40, 20},
	{1027, 16, 40, 17}, {1030, 16, 40, 21}, {24, 48, 1031, 16}, {24, 48, 1031, 22},
	{7, 1025, 1025, 18}, {-1}};
static const int64_t row_shapes[][MOST_DIMS] = {{1, 1}, {3, 7, 1}, {7, 3}, {17, 33, 1}, {33, 17},
	{5, 64, 1}, {2, 65}, {64, 100, 1}, {9, 257}, {1, 0}, {-1}};
static const int64_t attention_shapes[][MOST_DIMS] = {{1, 1, 1, 1, 1, 0}, {1, 3, 1, 1, 7, 1},
	{2, 7, 3, 3, 17, 0}, {1, 17, 4, 2, 33, 5}, {3, 33, 2, 1, 8, 0}, {1, 100, 2, 2, 64, 3},
	{2, 97, 3, 1, 16, 0}, {1, 129, 2, 2, 80, 0}, {1, 290, 2, 1, 20, 2}, {1, 200, 1, 1, 130, 0},
	{-1}};
static const int64_t rope_shapes[][MOST_DIMS] = {{1, 1, 1, 2, 0}, {7, 7, 3, 6, 0},
	{34, 17, 2, 64, 1}, {33, 11, 5, 34, 2}, {128, 64, 2, 128, 3}, {34, 17, 2, 64, 4}, {-1}};

const struct kernel_case matrix_cases[] = {
	{"gemm", make_gemm, call_gemm, gemm_shapes, {1024, 1024, 1024, 0}},
	{"gemm bf16", make_gemm, call_gemm, gemm_shapes, {1024, 1024, 1024, 0}, DTYPE_BF16,
		DTYPE_BF16},
	{"gemm bf16 to fp32", make_gemm, call_gemm, gemm_shapes, {1024, 1024, 1024, 0}, DTYPE_BF16},
	{"bias_add", make_bias, call_bias, row_shapes, {1024, 4096}},
	{"bias_add bf16", make_bias, call_bias, row_shapes, {1024, 4096}, DTYPE_BF16},
	{"bias_backward", make_bias_backward, call_bias_backward, row_shapes, {1024, 4096}},
	{"bias_backward bf16", make_bias_backward, call_bias_backward, row_shapes, {1024, 4096},
		DTYPE_BF16, DTYPE_BF16},
	{"bias_backward bf16 to fp32", make_bias_backward, call_bias_backward, row_shapes,
		{1024, 4096}, DTYPE_BF16},
	{"attention", make_attention, call_attention, attention_shapes, {1, 2048, 4, 4, 64, 0}},
	{"attention bf16", make_attention, call_attention, attention_shapes, {1, 2048, 4, 4, 64, 0},
		DTYPE_BF16},
	{"attention_backward", make_attention_backward, call_attention_backward, attention_shapes,
		{1, 2048, 4, 4, 64, 0}},
	{"attention_backward bf16", make_attention_backward, call_attention_backward,
		attention_shapes, {1, 2048, 4, 4, 64, 0}, DTYPE_BF16},
	{"rope", make_rope, call_rope, rope_shapes, {2048, 2048, 8, 128, 0}},
	{"rope bf16", make_rope, call_rope, rope_shapes, {2048, 2048, 8, 128, 0}, DTYPE_BF16},
	{NULL},
};
