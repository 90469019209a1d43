/* Element-wise kernels on flat arrays. */
#include <stddef.h>

#include "tests/kernels/cases.h"
#include "tests/kernels/problem.h"

static enum dtype type(const struct problem *p)
{
	return p->kernel_case->dtype;
}

/* dims: n, variant */
static void *flat(const struct problem *p, int slot)
{
	return p->buffer[slot].data;
}

/* Output 0 and inputs 1..3, ranging over both tails of the activations. */
static void make_flat(struct problem *p)
{
	make_output(p, 0, p->dim[0], -1, 1, 1e-6);
	for (int slot = 1; slot < 4; slot++)
		make_input(p, slot, p->dim[0], -9, 9);
	p->bytes = traffic(p, 2.0 * (double)p->dim[0]);
}

static enum gelu gelu_kind(const struct problem *p)
{
	return p->dim[1] ? GELU_ERF : GELU_TANH;
}

static void call_gelu(struct problem *p)
{
	p->kernels->gelu(p->context, type(p), gelu_kind(p), flat(p, 0), flat(p, 1), p->dim[0]);
}

static void make_two_inputs(struct problem *p)
{
	make_flat(p);
	p->bytes = traffic(p, 3.0 * (double)p->dim[0]);
}

/* In the far tails the exponential is of a large rounded argument, and the slope's terms cancel
 * near its zero: both keep fewer digits. */
static void make_gelu(struct problem *p)
{
	make_flat(p);
	if (type(p) == DTYPE_FP32)
		p->buffer[0].tolerance = 4e-6;
}

static void make_gelu_backward(struct problem *p)
{
	make_two_inputs(p);
	if (type(p) == DTYPE_FP32)
		p->buffer[0].tolerance = 4e-6;
}

static void call_gelu_backward(struct problem *p)
{
	p->kernels->gelu_backward(
		p->context, type(p), gelu_kind(p), flat(p, 0), flat(p, 1), flat(p, 2), p->dim[0]);
}

static void call_swiglu(struct problem *p)
{
	p->kernels->swiglu(p->context, type(p), flat(p, 0), flat(p, 1), flat(p, 2), p->dim[0]);
}

static void make_swiglu_backward(struct problem *p)
{
	make_flat(p);
	make_output(p, 4, p->dim[0], -1, 1, 1e-6);
	p->bytes = traffic(p, 5.0 * (double)p->dim[0]);
}

static void call_swiglu_backward(struct problem *p)
{
	p->kernels->swiglu_backward(p->context, &(struct swiglu_backward){.rows = 1,
							.width = p->dim[0],
							.stride = p->dim[0],
							.dy = flat(p, 1),
							.gate = flat(p, 2),
							.up = flat(p, 3),
							.dgate = flat(p, 0),
							.dup = flat(p, 4),
							.dtype = type(p)});
}

static void call_add(struct problem *p)
{
	p->kernels->add(p->context, type(p), flat(p, 0), p->dim[1] ? flat(p, 0) : flat(p, 2),
		flat(p, 1), p->dim[0]);
}

/* dims: n, += or =; output 0 and input 1 of the other type */
static void make_two_types(struct problem *p)
{
	make_output_as(p, gradient_dtype(p), 0, p->dim[0], -1, 1, 1e-6);
	make_input(p, 1, p->dim[0], -9, 9);
	p->bytes = traffic(p, (double)p->dim[0]) +
		   (double)(dtype_bytes(gradient_dtype(p)) * p->dim[0] * (p->dim[1] ? 2 : 1));
}

static void call_two_types(struct problem *p)
{
	(p->dim[1] ? p->kernels->accumulate : p->kernels->convert)(
		p->context, gradient_dtype(p), flat(p, 0), type(p), flat(p, 1), p->dim[0]);
}

static void call_scale(struct problem *p)
{
	p->kernels->scale(p->context, flat(p, 0), 0.999f, p->dim[0]);
}

static void make_one(struct problem *p)
{
	make_flat(p);
	p->bytes = traffic(p, (double)p->dim[0]);
}

static void call_zero(struct problem *p)
{
	p->kernels->zero(p->context, type(p), flat(p, 0), p->dim[0]);
}

static void call_copy(struct problem *p)
{
	p->kernels->copy(p->context, type(p), flat(p, 0), flat(p, 1), p->dim[0]);
}

static void make_adamw(struct problem *p)
{
	make_output(p, 0, p->dim[0], -1, 1, 1e-7);
	make_output(p, 1, p->dim[0], -0.1, 0.1, 1e-7);
	make_output(p, 2, p->dim[0], 0, 0.01, 1e-7);
	make_input_as(p, DTYPE_FP32, 3, p->dim[0], -1, 1);
	p->bytes = (type(p) == DTYPE_BF16 ? 16.0 : 28.0) * (double)p->dim[0];
}

/* The rounding is that of a run that begins at an odd element of its tensor. */
static struct rounding rounding(const struct problem *p)
{
	return (struct rounding){{20, 22}, {3, 9}, p->first + 4097};
}

static void call_adamw(struct problem *p)
{
	struct adamw a = third_adamw(p->dim[0]);

	a.w = flat(p, 0), a.m = flat(p, 1), a.v = flat(p, 2), a.g = flat(p, 3);
	a.gradient_scale = 0.75f;
	a.dtype = type(p);
	a.rounding = rounding(p);
	p->kernels->adamw(p->context, &a);
}

static void make_sgd(struct problem *p)
{
	make_output(p, 0, p->dim[0], -1, 1, 1e-6);
	make_input_as(p, DTYPE_FP32, 1, p->dim[0], -9, 9);
	p->bytes = (type(p) == DTYPE_BF16 ? 8.0 : 12.0) * (double)p->dim[0];
}

static void call_sgd(struct problem *p)
{
	p->kernels->sgd(p->context, &(struct sgd){.n = p->dim[0],
					    .w = flat(p, 0),
					    .g = flat(p, 1),
					    .lr = 0.01f,
					    .weight_decay = 0.1f,
					    .gradient_scale = 0.5f,
					    .dtype = type(p),
					    .rounding = rounding(p)});
}

/* dims: n, number of sources, the source that is also the destination (-1 none) */
static void make_tree(struct problem *p)
{
	int64_t own = p->dim[2];

	if (own < 0)
		make_output(p, MOST_BUFFERS - 1, p->dim[0], -1, 1, 1e-7);
	for (int slot = 0; slot < p->dim[1]; slot++) {
		if (slot == own)
			make_output(p, slot, p->dim[0], -1, 1, 1e-7);
		else
			make_input(p, slot, p->dim[0], -1, 1);
	}
	p->bytes = traffic(p, (double)(p->dim[0] * (p->dim[1] + 1)));
}

static void call_tree(struct problem *p)
{
	const void *sources[MOST_BUFFERS];

	for (int slot = 0; slot < p->dim[1]; slot++)
		sources[slot] = flat(p, slot);
	p->kernels->tree_reduce(p->context, type(p),
		flat(p, p->dim[2] < 0 ? MOST_BUFFERS - 1 : (int)p->dim[2]), sources, (int)p->dim[1],
		p->dim[0]);
}

static const int64_t flat_shapes[][MOST_DIMS] = {
	{0}, {1}, {3, 1}, {7}, {17, 1}, {33}, {64, 1}, {100}, {1000, 1}, {4097}, {4099, 1}, {-1}};
static const int64_t tree_shapes[][MOST_DIMS] = {{5, 1, -1}, {7, 2, 0}, {17, 3, -1}, {33, 4, 3},
	{100, 5, 2}, {1025, 6, -1}, {3000, 7, 5}, {2048, 8, -1}, {1024, 11, -1}, {-1}};

const struct kernel_case flat_cases[] = {
	{"gelu", make_gelu, call_gelu, flat_shapes, {1 << 24, 0}},
	{"gelu bf16", make_gelu, call_gelu, flat_shapes, {1 << 24, 0}, DTYPE_BF16},
	{"gelu_backward", make_gelu_backward, call_gelu_backward, flat_shapes, {1 << 24, 0}},
	{"gelu_backward bf16", make_gelu_backward, call_gelu_backward, flat_shapes, {1 << 24, 0},
		DTYPE_BF16},
	{"swiglu", make_two_inputs, call_swiglu, flat_shapes, {1 << 24, 0}},
	{"swiglu bf16", make_two_inputs, call_swiglu, flat_shapes, {1 << 24, 0}, DTYPE_BF16},
	{"swiglu_backward", make_swiglu_backward, call_swiglu_backward, flat_shapes, {1 << 24, 0}},
	{"swiglu_backward bf16", make_swiglu_backward, call_swiglu_backward, flat_shapes,
		{1 << 24, 0}, DTYPE_BF16},
	{"add", make_two_inputs, call_add, flat_shapes, {1 << 24, 0}},
	{"add bf16", make_two_inputs, call_add, flat_shapes, {1 << 24, 0}, DTYPE_BF16},
	{"two types", make_two_types, call_two_types, flat_shapes, {1 << 24, 0}},
	{"two types bf16", make_two_types, call_two_types, flat_shapes, {1 << 24, 0}, DTYPE_BF16,
		DTYPE_BF16},
	{"two types bf16 to fp32", make_two_types, call_two_types, flat_shapes, {1 << 24, 0},
		DTYPE_BF16},
	{"two types fp32 to bf16", make_two_types, call_two_types, flat_shapes, {1 << 24, 0},
		DTYPE_FP32, DTYPE_BF16},
	{"scale", make_flat, call_scale, flat_shapes, {1 << 24, 0}},
	{"zero", make_one, call_zero, flat_shapes, {1 << 24, 0}},
	{"zero bf16", make_one, call_zero, flat_shapes, {1 << 24, 0}, DTYPE_BF16},
	{"copy", make_flat, call_copy, flat_shapes, {1 << 24, 0}},
	{"copy bf16", make_flat, call_copy, flat_shapes, {1 << 24, 0}, DTYPE_BF16},
	{"adamw", make_adamw, call_adamw, flat_shapes, {1 << 24, 0}},
	{"adamw bf16", make_adamw, call_adamw, flat_shapes, {1 << 24, 0}, DTYPE_BF16},
	{"sgd", make_sgd, call_sgd, flat_shapes, {1 << 24, 0}},
	{"sgd bf16", make_sgd, call_sgd, flat_shapes, {1 << 24, 0}, DTYPE_BF16},
	{"tree_reduce", make_tree, call_tree, tree_shapes, {1 << 22, 4, -1}},
	{"tree_reduce bf16", make_tree, call_tree, tree_shapes, {1 << 22, 4, -1}, DTYPE_BF16},
	{NULL},
};

const struct kernel_case *const case_lists[] = {matrix_cases, row_cases, flat_cases, NULL};
