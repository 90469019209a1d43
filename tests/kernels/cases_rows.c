/* Norms, embedding, cross entropy: kernels that work row by row. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "tests/kernels/cases.h"
#include "tests/kernels/problem.h"

/* dims: rows width stride, of two gradients side by side */
static void make_swiglu_backward(struct problem *p)
{
	int64_t elements = p->dim[0] * p->dim[1];

	make_output(p, 0, p->dim[0] * p->dim[2], -1, 1, 1e-6);
	for (int slot = 1; slot < 4; slot++)
		make_input(p, slot, elements, -9, 9);
	p->bytes = traffic(p, 5.0 * (double)elements);
}

static void call_swiglu_backward(struct problem *p)
{
	enum dtype dtype = p->kernel_case->dtype;
	void *gradients = p->buffer[0].data;

	p->kernels->swiglu_backward(
		p->context, &(struct swiglu_backward){.rows = p->dim[0],
				    .width = p->dim[1],
				    .stride = p->dim[2],
				    .dy = p->buffer[1].data,
				    .gate = p->buffer[2].data,
				    .up = p->buffer[3].data,
				    .dgate = gradients,
				    .dup = element_at(dtype, gradients, p->dim[1]),
				    .dtype = dtype});
}

static bool centred(const struct problem *p)
{
	return p->dim[2] & 1;
}

/* dims: rows width, flags (1 layernorm, 2 no bias, 4 accumulate dx, 8 accumulate parameters) */
static void make_norm(struct problem *p)
{
	int64_t rows = p->dim[0], width = p->dim[1];

	make_input(p, 0, rows * width, -2, 3);
	make_input(p, 1, width, 0.5, 1.5);
	make_input(p, 2, width, -1, 1);
	make_output(p, 3, rows * width, 0, 1, 2e-6);
	make_output_as(p, DTYPE_FP32, 4, rows, 0, 1, 2e-6);
	make_output_as(p, DTYPE_FP32, 5, rows, 0, 1, 2e-6);
	p->bytes = traffic(p, 2.0 * (double)(rows * width));
}

static void call_norm(struct problem *p)
{
	struct norm n = {
		.rows = p->dim[0],
		.width = p->dim[1],
		.epsilon = 1e-5f,
		.x = p->buffer[0].data,
		.weight = p->buffer[1].data,
		.bias = p->dim[2] & 2 ? NULL : p->buffer[2].data,
		.y = p->buffer[3].data,
		.mean = p->buffer[4].data,
		.rstd = p->buffer[5].data,
		.dtype = p->kernel_case->dtype,
	};

	(centred(p) ? p->kernels->layernorm : p->kernels->rmsnorm)(p->context, &n);
}

static void make_norm_backward(struct problem *p)
{
	int64_t rows = p->dim[0], width = p->dim[1];

	make_input(p, 0, rows * width, -2, 3);
	make_input(p, 1, width, 0.5, 1.5);
	make_input_as(p, DTYPE_FP32, 2, rows, 0.4, 0.6);
	make_input_as(p, DTYPE_FP32, 3, rows, 0.6, 0.8);
	make_input(p, 4, rows * width, -1, 1);
	make_output(p, 5, rows * width, -1, 1, 5e-6);
	make_output_as(p, gradient_dtype(p), 6, width, -1, 1, 1e-5);
	make_output_as(p, gradient_dtype(p), 7, width, -1, 1, 1e-5);
	p->bytes = traffic(p, (p->dim[2] & 4 ? 4.0 : 3.0) * (double)(rows * width));
}

static void call_norm_backward(struct problem *p)
{
	struct norm_backward n = {
		.rows = p->dim[0],
		.width = p->dim[1],
		.x = p->buffer[0].data,
		.weight = p->buffer[1].data,
		.mean = p->buffer[2].data,
		.rstd = p->buffer[3].data,
		.dy = p->buffer[4].data,
		.dx = p->buffer[5].data,
		.dweight = p->buffer[6].data,
		.dbias = p->dim[2] & 2 ? NULL : p->buffer[7].data,
		.accumulate_dx = p->dim[2] & 4,
		.accumulate_parameters = p->dim[2] & 8,
		.dtype = p->kernel_case->dtype,
		.gradient_dtype = gradient_dtype(p),
	};

	(centred(p) ? p->kernels->layernorm_backward : p->kernels->rmsnorm_backward)(
		p->context, &n);
}

/* Rows of a table of `limit` that the ids name, each counted once. */
static int64_t rows_named(const struct problem *p, int64_t limit)
{
	char *named = calloc((size_t)limit + 1, 1);
	int64_t rows = 0;

	if (!named)
		abort();
	for (int64_t i = 0; i < p->dim[0]; i++)
		named[p->ids[i]] = 1;
	for (int64_t i = 0; i < limit; i++)
		rows += named[i];
	free(named);
	return rows;
}

static int64_t position_rows(const struct problem *p)
{
	if (!(p->dim[4] & 1))
		return 0;
	return p->dim[0] < p->dim[2] ? p->dim[0] : p->dim[2];
}

/* dims: tokens width length vocabulary, flags (1 positions, 2 accumulate, 4 one more id between two
 * sequences, 8 no gradient of the table), how many ids occur (0: any; they lie apart) */
static int64_t distinct_ids(const struct problem *p)
{
	return p->dim[5] > 0 ? p->dim[5] : p->dim[3];
}

static void make_tokens(struct problem *p)
{
	make_ids(p, p->dim[0] + p->dim[0] / p->dim[2] + 1, distinct_ids(p), false);
	for (int64_t i = 0; i < p->n_ids; i++)
		p->ids[i] = (int32_t)(p->ids[i] * (p->dim[3] / distinct_ids(p)));
}

static void make_embedding(struct problem *p)
{
	make_input(p, 0, p->dim[3] * p->dim[1], -1, 1);
	make_input(p, 1, p->dim[2] * p->dim[1], -1, 1);
	make_output(p, 2, p->dim[0] * p->dim[1], -1, 1, 1e-7);
	make_tokens(p);
	p->bytes = traffic(
		p, (double)((p->dim[0] + rows_named(p, p->dim[3]) + position_rows(p)) * p->dim[1]));
}

static void call_embedding(struct problem *p)
{
	p->kernels->embedding(
		p->context, &(struct embedding){
				    .tokens = p->dim[0],
				    .width = p->dim[1],
				    .length = p->dim[2],
				    .vocabulary = p->dim[3],
				    .ids_stride = p->dim[4] & 4 ? p->dim[2] + 1 : 0,
				    .ids = p->ids,
				    .table = p->buffer[0].data,
				    .positions = p->dim[4] & 1 ? p->buffer[1].data : NULL,
				    .out = p->buffer[2].data,
				    .dtype = p->kernel_case->dtype,
			    });
}

/* Without accumulation all of both tables is written; with it, only the rows that the ids name are
 * added to. */
static double gradient_traffic(const struct problem *p)
{
	int64_t all = p->dim[3] + (p->dim[4] & 1 ? p->dim[2] + 3 : 0);
	int64_t rows = p->dim[4] & 2 ? 2 * (rows_named(p, p->dim[3]) + position_rows(p)) : all;

	return (double)(rows * p->dim[1] * dtype_bytes(gradient_dtype(p)));
}

/* A row is the sum of n tokens in any order, and rows without tokens make the mean small. */
static double sum_tolerance(const struct problem *p)
{
	int64_t ids = distinct_ids(p), rows = ids < p->dim[0] ? ids : p->dim[0];
	double n = (double)p->dim[0] / (double)rows;

	return 1e-6 * (1.0 + sqrt(n) / 8.0) * sqrt((double)p->dim[3] / (double)rows);
}

static void make_embedding_backward(struct problem *p)
{
	double tolerance = sum_tolerance(p);

	make_input(p, 0, p->dim[0] * p->dim[1], -1, 1);
	make_output_as(p, gradient_dtype(p), 1, p->dim[3] * p->dim[1], -1, 1, tolerance);
	make_output_as(p, gradient_dtype(p), 2, (p->dim[2] + 3) * p->dim[1], -1, 1, tolerance);
	make_tokens(p);
	p->bytes = traffic(p, (double)(p->dim[0] * p->dim[1])) + gradient_traffic(p);
}

static void call_embedding_backward(struct problem *p)
{
	p->kernels->embedding_backward(
		p->context, &(struct embedding_backward){
				    .tokens = p->dim[0],
				    .width = p->dim[1],
				    .length = p->dim[2],
				    .vocabulary = p->dim[3],
				    .position_rows = p->dim[2] + 3,
				    .ids_stride = p->dim[4] & 4 ? p->dim[2] + 1 : 0,
				    .ids = p->dim[4] & 8 ? NULL : p->ids,
				    .dout = p->buffer[0].data,
				    .dtable = p->dim[4] & 8 ? NULL : p->buffer[1].data,
				    .dpositions = p->dim[4] & 1 ? p->buffer[2].data : NULL,
				    .accumulate_table = p->dim[4] & 2,
				    .accumulate_positions = p->dim[4] & 2,
				    .dtype = p->kernel_case->dtype,
				    .gradient_dtype = gradient_dtype(p),
			    });
}

/* dims: tokens vocabulary, padding of the rows, keep logits, tokens of a window (one more lies
 * between the targets of two of them) */
static void make_cross_entropy(struct problem *p)
{
	make_output(p, 0, p->dim[0] * (p->dim[1] + p->dim[2]), -8, 8, 2e-6);
	make_output_as(p, DTYPE_FP32, 1, p->dim[0], 0, 1, 1e-6);
	make_ids(p, 2 * p->dim[0], p->dim[1], true);
	p->bytes = traffic(p, (p->dim[3] ? 1.0 : 2.0) * (double)(p->dim[0] * p->dim[1]));
}

static void call_cross_entropy(struct problem *p)
{
	p->kernels->cross_entropy(p->context, &(struct cross_entropy){
						      .tokens = p->dim[0],
						      .vocabulary = p->dim[1],
						      .stride = p->dim[1] + p->dim[2],
						      .length = p->dim[4],
						      .targets_stride = p->dim[4] + 1,
						      .logits = p->buffer[0].data,
						      .targets = p->ids,
						      .losses = p->buffer[1].data,
						      .scale = 0.125f,
						      .keep_logits = p->dim[3],
						      .dtype = p->kernel_case->dtype,
					      });
}

/* dims: n, kind (0 sum of squares, 1 sum); the rounded sum as high and low fp32 */
static void make_sum(struct problem *p)
{
	make_input(p, 0, p->dim[0], -1, 1);
	make_output(p, 1, 2, 0, 0, 1e-7);
	p->bytes = 4.0 * (double)p->dim[0];
}

static void call_sum(struct problem *p)
{
	struct exact_sum sum = {0};
	float *x = p->buffer[0].data, *y = p->buffer[1].data;
	double value;

	if (p->dim[1])
		p->kernels->sum(p->context, &sum, x, p->dim[0]);
	else
		p->kernels->sum_squares(p->context, &sum, x, p->dim[0]);
	value = exact_sum_value(&sum);
	y[0] = (float)value;
	y[1] = (float)(value - (double)y[0]);
}

static const int64_t swiglu_shapes[][MOST_DIMS] = {
	{1, 1, 2}, {3, 7, 14}, {5, 8, 17}, {17, 33, 66}, {9, 64, 128}, {4, 40, 96}, {-1}};
static const int64_t sum_shapes[][MOST_DIMS] = {
	{0, 0}, {1, 0}, {3, 1}, {255, 0}, {257, 1}, {1000, 0}, {4099, 1}, {-1}};
/* Rows of one warp, of a block with 1, 2 and 4 packs a thread, and longer ones. */
static const int64_t layernorm_shapes[][MOST_DIMS] = {{1, 1, 1}, {3, 7, 1}, {7, 3, 13}, {17, 33, 3},
	{33, 17, 1}, {5, 64, 5}, {2, 65, 9}, {40, 100, 15}, {9, 257, 1}, {13, 768, 5},
	{6, 1600, 13}, {3, 2049, 1}, {5, 4096, 5}, {3, 8190, 9}, {2, 8200, 5}, {3, 16408, 1}, {-1}};
static const int64_t rmsnorm_shapes[][MOST_DIMS] = {{1, 1, 0}, {3, 7, 0}, {7, 3, 12}, {17, 33, 0},
	{33, 17, 0}, {5, 64, 4}, {2, 65, 8}, {40, 100, 12}, {9, 257, 0}, {13, 768, 4},
	{6, 1600, 12}, {3, 2049, 0}, {5, 4096, 4}, {3, 8190, 8}, {2, 8200, 4}, {3, 16408, 0}, {-1}};
static const int64_t embedding_shapes[][MOST_DIMS] = {{1, 1, 1, 1, 0}, {7, 3, 7, 5, 1},
	{33, 17, 11, 9, 3}, {34, 65, 17, 100, 2}, {100, 33, 50, 7, 1}, {40, 9, 7, 100, 5},
	{300, 200, 50, 400, 1}, {70, 1104, 9, 20, 5}, {41, 248, 41, 3, 0}, {-1}};
/* Also: ids that occur once, often, all alike; several tiles, pieces and digits. */
static const int64_t embedding_backward_shapes[][MOST_DIMS] = {{1, 1, 1, 1, 0}, {7, 3, 7, 5, 1},
	{33, 17, 11, 9, 3}, {34, 65, 17, 100, 2}, {100, 33, 50, 7, 1}, {70, 1040, 33, 4, 3},
	{3000, 9, 50, 700, 1, 2}, {2500, 8, 2500, 600, 2, 1}, {2049, 16, 5, 300000, 1, 40},
	{700, 3, 900, 700, 3}, {3000, 4, 70, 900, 5}, {64, 40, 16, 5, 9}, {50, 8, 20, 5, 11},
	{256, 12, 8, 30, 3}, {200, 16, 8, 1000, 1}, {-1}};
static const int64_t loss_shapes[][MOST_DIMS] = {{1, 1, 0, 0}, {3, 7, 1, 0}, {17, 33, 0, 1},
	{33, 17, 15, 0, 11}, {9, 1000, 3, 0, 1}, {5, 5003, 0, 1}, {4, 50257, 0, 0},
	{6, 50257, 47, 0, 3}, {3, 60000, 8, 0}, {3, 60001, 0, 0}, {-1}};

const struct kernel_case row_cases[] = {
	{"swiglu_backward in rows", make_swiglu_backward, call_swiglu_backward, swiglu_shapes,
		{2048, 4096, 8192}},
	{"swiglu_backward in rows bf16", make_swiglu_backward, call_swiglu_backward, swiglu_shapes,
		{2048, 4096, 8192}, DTYPE_BF16},
	{"layernorm", make_norm, call_norm, layernorm_shapes, {1024, 1024, 1}},
	{"layernorm bf16", make_norm, call_norm, layernorm_shapes, {1024, 1024, 1}, DTYPE_BF16},
	{"layernorm_backward", make_norm_backward, call_norm_backward, layernorm_shapes,
		{1024, 1024, 1}},
	{"layernorm_backward bf16", make_norm_backward, call_norm_backward, layernorm_shapes,
		{1024, 1024, 1}, DTYPE_BF16, DTYPE_BF16},
	{"layernorm_backward bf16 to fp32", make_norm_backward, call_norm_backward,
		layernorm_shapes, {1024, 1024, 1}, DTYPE_BF16},
	{"rmsnorm", make_norm, call_norm, rmsnorm_shapes, {1024, 1024, 0}},
	{"rmsnorm bf16", make_norm, call_norm, rmsnorm_shapes, {1024, 1024, 0}, DTYPE_BF16},
	{"rmsnorm_backward", make_norm_backward, call_norm_backward, rmsnorm_shapes,
		{1024, 1024, 0}},
	{"rmsnorm_backward bf16", make_norm_backward, call_norm_backward, rmsnorm_shapes,
		{1024, 1024, 0}, DTYPE_BF16, DTYPE_BF16},
	{"embedding", make_embedding, call_embedding, embedding_shapes,
		{1024, 1024, 1024, 4096, 1}},
	{"embedding bf16", make_embedding, call_embedding, embedding_shapes,
		{1024, 1024, 1024, 4096, 1}, DTYPE_BF16},
	{"embedding_backward", make_embedding_backward, call_embedding_backward,
		embedding_backward_shapes, {1024, 1024, 1024, 4096, 2}},
	{"embedding_backward bf16", make_embedding_backward, call_embedding_backward,
		embedding_backward_shapes, {1024, 1024, 1024, 4096, 2}, DTYPE_BF16, DTYPE_BF16},
	{"embedding_backward bf16 to fp32", make_embedding_backward, call_embedding_backward,
		embedding_backward_shapes, {1024, 1024, 1024, 4096, 2}, DTYPE_BF16},
	{"cross_entropy", make_cross_entropy, call_cross_entropy, loss_shapes, {256, 50304, 0, 0}},
	{"cross_entropy bf16", make_cross_entropy, call_cross_entropy, loss_shapes,
		{256, 50304, 0, 0}, DTYPE_BF16},
	{"sum", make_sum, call_sum, sum_shapes, {1 << 24, 0}},
	{NULL},
};
