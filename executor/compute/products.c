/* Computes the products of projections, forward and backward, in fp8 where the plan says so. */
#include "executor/compute/leaf.h"

#include "schedule/plan/plan.h"

static const struct architecture *architecture_of(const struct leaf *leaf)
{
	return &leaf->compute->model->architecture;
}

bool leaf_in_fp8(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;

	return fp8_converts(&c->schedule->plan, c->model, leaf->module);
}

void leaf_multiply(const struct leaf *leaf, const struct gemm *gemm, enum pass pass)
{
	const struct compute *c = leaf->compute;
	const struct device_kernels *device = c->kernels->device;
	bool by_rows = c->schedule->plan.fp8 == FP8_ROWWISE;

	if (device == NULL || !leaf_in_fp8(leaf)) {
		c->kernels->gemm(c->context, gemm);
		return;
	}
	const struct gemm_fp8 how = {
		.a = pass == PASS_FORWARD || by_rows ? FP8_E4M3 : FP8_E5M2,
		.b = FP8_E4M3,
		.by_rows = by_rows,
		.copies = operand_fp8_copies(leaf, fp8_product_bytes(gemm->m, gemm->n, gemm->k)),
	};
	if (how.copies != NULL)
		device->gemm_fp8(c->context, gemm, &how);
}

/* Returns how many elements lie between rows of what a projection of width `out` writes. */
static int64_t leaf_stride(const struct leaf *leaf, int64_t out)
{
	return leaf_module(leaf)->kind == MODULE_HEAD ? leaf->compute->logits_stride : out;
}

struct gemm leaf_product(const struct leaf *leaf, void *y)
{
	const struct compute *c = leaf->compute;
	int64_t out, in;

	module_linear_shape(architecture_of(leaf), leaf_module(leaf)->kind, &out, &in);
	return (struct gemm){.m = c->tokens,
		.n = out,
		.k = in,
		.a = operand_input(leaf),
		.lda = in,
		.b = operand_parameter(leaf, leaf_parameter(leaf, 0)),
		.ldb = in,
		.transpose_b = true,
		.c = y,
		.ldc = leaf_stride(leaf, out),
		.dtype = c->dtype,
		.c_dtype = c->dtype};
}

/* --- gradients --- */

/* Computes dbias (= | +=) column sums of dy, for the rows of `product`. */
static void bias_gradient(const struct leaf *leaf, int bias, const struct gemm *product)
{
	const struct compute *c = leaf->compute;
	bool more;
	void *dbias = gradient_begin(leaf, bias, &more);

	c->kernels->bias_backward(c->context, c->gradient_dtype, dbias, c->dtype, product->a,
		product->k, product->m, more);
	gradient_end(leaf, bias);
}

/* Returns where an epilogue writes sums that are added to others; NULL where there is no such
 * place. Sums in bf16 would be rounded once more on the way. */
static float *more_sums(const struct compute *c)
{
	return c->device != NULL && c->gradient_dtype == DTYPE_FP32 ? c->device->bias_sums : NULL;
}

/* Computes the gradients of weight and bias at once, on the way out of the product. The epilogue
 * writes the first sums to their place and later ones beside it, from where they are added. Returns
 * false if nothing was done. */
static bool gradients_in_one(const struct leaf *leaf, int weight, int bias, struct gemm product)
{
	const struct compute *c = leaf->compute;
	const struct device_kernels *device = c->kernels->device;

	void *sums = operand_gradient(leaf, bias), *written = c->fresh[bias] ? sums : more_sums(c);

	if (device == NULL || compute_sums_exactly(c) || written == NULL)
		return false;
	const struct gemm_epilogue epilogue = {.dbias = written};
	product.c = operand_gradient(leaf, weight);
	product.accumulate = !c->fresh[weight];
	if (!device->gemm_epilogue(c->context, &product, &epilogue))
		return false;
	if (written != sums)
		c->kernels->add(c->context, DTYPE_FP32, sums, sums, written, product.m);
	c->fresh[weight] = c->fresh[bias] = false;
	return true;
}

/* Computes dW (= | +=) dy^T x and dbias (= | +=) column sums of dy, for some rows of the
 * micro-batch. */
static void weight_gradients(const struct leaf *leaf, const struct gemm *gemm)
{
	int weight = leaf_parameter(leaf, 0), bias = leaf_parameter(leaf, 1);
	bool trains_weight = leaf_trains(leaf, weight), trains_bias = leaf_trains(leaf, bias);
	struct gemm product = *gemm;

	if (trains_weight && trains_bias && !leaf_in_fp8(leaf) &&
		gradients_in_one(leaf, weight, bias, product))
		return;
	if (trains_weight) {
		product.c = gradient_begin(leaf, weight, &product.accumulate);
		leaf_multiply(leaf, &product, PASS_BACKWARD_WEIGHT);
		gradient_end(leaf, weight);
	}
	if (trains_bias)
		bias_gradient(leaf, bias, &product);
}

/* --- projections of one input --- */

/* Does the weight of the leaf behind this one lie right behind its own? */
static bool adjoins_next(const struct compute *c, int module)
{
	int weights[] = {c->model->modules[module].first_parameter,
		c->model->modules[module + 1].first_parameter};
	const struct location *a = &c->locations[weights[0]], *b = &c->locations[weights[1]];

	return a->unit == b->unit &&
	       a->offset + c->model->parameters[weights[0]].elements == b->offset;
}

/* Returns the projections whose dx is one product, because their weights lie one behind the other.
 * Which weights do depends on units, so they are joined only where bits need not equal those of
 * other plans. In fp8 each weight has its own scale, so none are joined. */
struct joined leaf_joined_with(const struct leaf *leaf, int module)
{
	const struct compute *c = leaf->compute;
	struct joined joined = {0};

	if (module < 0 || !c->any_rounding || c->schedule->plan.fp8 != FP8_OFF)
		return joined;
	joined = model_joined(c->model, module);
	for (int i = 0; i + 1 < joined.n; i++)
		if (!adjoins_next(c, joined.first + i))
			return (struct joined){0};
	return joined;
}

/* Returns how many elements lie between rows of the gradient of what a projection of width `out`
 * writes. */
static int64_t gradient_stride(const struct leaf *leaf, int64_t out)
{
	const struct joined joined = leaf_joined_with(leaf, leaf->module);

	return joined.n > 0 ? joined.width : leaf_stride(leaf, out);
}

struct gemm leaf_weight_gradient(
	const struct leaf *leaf, const void *dy, const void *x, int64_t rows)
{
	const struct compute *c = leaf->compute;
	int64_t out, in;

	module_linear_shape(architecture_of(leaf), leaf_module(leaf)->kind, &out, &in);
	return (struct gemm){.m = out,
		.n = in,
		.k = rows,
		.a = dy,
		.lda = gradient_stride(leaf, out),
		.transpose_a = true,
		.b = x,
		.ldb = in,
		.ldc = in,
		.dtype = c->dtype,
		.c_dtype = c->gradient_dtype};
}

/* Computes the gradients of a projection's parameters, part by part of the micro-batch. */
void leaf_parameter_gradients(const struct leaf *leaf, const void *dy)
{
	const struct compute *c = leaf->compute;
	int64_t out, in;

	if (leaf_module(leaf)->frozen)
		return;
	module_linear_shape(architecture_of(leaf), leaf_module(leaf)->kind, &out, &in);
	const void *x = operand_input(leaf);
	int64_t parts = gradient_parts(c), rows = c->tokens / parts;
	int64_t stride = gradient_stride(leaf, out);
	for (int64_t i = 0; i < parts && dy != NULL && x != NULL; i++) {
		const struct gemm product =
			leaf_weight_gradient(leaf, compute_at(c, dy, i * rows * stride),
				compute_at(c, x, i * rows * in), rows);

		weight_gradients(leaf, &product);
	}
}

struct gemm leaf_input_gradient(const struct leaf *leaf, const void *dy, void *dx)
{
	const struct compute *c = leaf->compute;
	int64_t out, in;

	module_linear_shape(architecture_of(leaf), leaf_module(leaf)->kind, &out, &in);
	return (struct gemm){.m = c->tokens,
		.n = in,
		.k = out,
		.a = dy,
		.lda = gradient_stride(leaf, out),
		.b = operand_parameter(leaf, leaf_parameter(leaf, 0)),
		.ldb = in,
		.c = dx,
		.ldc = in,
		.dtype = c->dtype,
		.c_dtype = c->dtype};
}

/* Computes the gradients of a projection's parameters, and dx (= | +=) dy W. */
void leaf_project_backward(const struct leaf *leaf, const void *dy, void *dx, bool accumulate)
{
	struct gemm gemm = leaf_input_gradient(leaf, dy, dx);

	gemm.accumulate = accumulate;
	leaf_parameter_gradients(leaf, dy);
	leaf_multiply(leaf, &gemm, PASS_BACKWARD_INPUT);
	leaf_adapter_backward(leaf, &gemm);
}
