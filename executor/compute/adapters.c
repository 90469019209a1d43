/* Computes adapters beside projections (LoRA), forward and backward. */
#include "executor/compute/leaf.h"

static const struct architecture *architecture_of(const struct leaf *leaf)
{
	return &leaf->compute->model->architecture;
}

/* y *= alpha / r of the adapters, in place. */
static void scale(const struct leaf *leaf, void *y, int64_t n)
{
	const struct compute *c = leaf->compute;
	const struct trainable *t = &architecture_of(leaf)->trainable;
	double factor = t->alpha / (double)t->rank;

	if (c->dtype == DTYPE_FP32 && factor != 1)
		c->kernels->scale(c->context, y, (float)factor, n);
	/* compute_open has checked that the factor is a power of two. */
	for (; c->dtype != DTYPE_FP32 && factor > 1; factor /= 2)
		c->kernels->add(c->context, c->dtype, y, y, y, n);
}

/* Computes u = alpha/r x A^T, which is kept. */
void *leaf_compress(const struct leaf *leaf, const struct gemm *base)
{
	const struct compute *c = leaf->compute;
	int64_t rank = architecture_of(leaf)->trainable.rank;
	struct gemm down = *base;

	down.n = down.ldc = rank;
	down.b = operand_parameter(leaf, leaf_module(leaf)->adapter);
	down.c = operand_saved(leaf, leaf->module, TENSOR_ADAPTER);
	down.accumulate = false;
	c->kernels->gemm(c->context, &down);
	scale(leaf, down.c, down.m * rank);
	return down.c;
}

/* Computes y += u B^T. */
void leaf_adapt(const struct leaf *leaf, const struct gemm *base)
{
	const struct compute *c = leaf->compute;
	int adapter = leaf_module(leaf)->adapter;
	struct gemm up = *base;

	if (adapter < 0)
		return;
	up.k = up.lda = up.ldb = architecture_of(leaf)->trainable.rank;
	up.a = leaf_compress(leaf, base);
	up.b = operand_parameter(leaf, adapter + 1);
	up.accumulate = true;
	c->kernels->gemm(c->context, &up);
}

/* --- backward --- */

/* Computes d (=
 * +=) a^T b of a parameter [m, n], part by part of the micro-batch. */
static void adapter_gradient(
	const struct leaf *leaf, int parameter, const void *a, int64_t lda, const void *b)
{
	const struct compute *c = leaf->compute;
	const struct parameter *p = &c->model->parameters[parameter];
	int64_t parts = gradient_parts(c), rows = c->tokens / parts, n = p->shape[1];

	for (int64_t i = 0; i < parts && a != NULL && b != NULL; i++) {
		struct gemm gemm = {.m = p->shape[0],
			.n = n,
			.k = rows,
			.a = compute_at(c, a, i * rows * lda),
			.lda = lda,
			.transpose_a = true,
			.b = compute_at(c, b, i * rows * n),
			.ldb = n,
			.ldc = n,
			.dtype = c->dtype,
			.c_dtype = c->gradient_dtype};

		gemm.c = gradient_begin(leaf, parameter, &gemm.accumulate);
		c->kernels->gemm(c->context, &gemm);
		gradient_end(leaf, parameter);
	}
}

/* With u = alpha/r x A^T, which forward kept: dB = dy^T u, du = alpha/r dy B, dA = du^T x and dx +=
 * du A. `to_input` is the product dx = dy W, which came before. */
void leaf_adapter_backward(const struct leaf *leaf, const struct gemm *to_input)
{
	const struct compute *c = leaf->compute;
	int64_t rank = architecture_of(leaf)->trainable.rank;
	int adapter = leaf_module(leaf)->adapter;
	struct gemm up = *to_input, down = *to_input;

	if (adapter < 0)
		return;
	up.n = up.ldb = up.ldc = down.k = down.lda = rank;
	up.b = operand_parameter(leaf, adapter + 1);
	up.c = operand_work(leaf, TENSOR_D_ADAPTER);
	up.accumulate = false;
	down.a = up.c;
	down.b = operand_parameter(leaf, adapter);
	down.accumulate = true;
	adapter_gradient(leaf, adapter + 1, to_input->a, to_input->lda,
		operand_saved(leaf, leaf->module, TENSOR_ADAPTER));
	c->kernels->gemm(c->context, &up);
	scale(leaf, up.c, up.m * rank);
	adapter_gradient(leaf, adapter, up.c, rank, operand_input(leaf));
	c->kernels->gemm(c->context, &down);
}
