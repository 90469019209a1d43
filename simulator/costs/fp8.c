#include "simulator/costs/fp8.h"

/* The cast of one operand: bytes read and written for each element of two bytes, and kernels. */
struct cast {
	double bytes, kernels;
};

struct casts {
	struct cast input, normed, weight; /* for forward; `normed`: an input written by a norm */
	struct cast gradient;              /* dY, for both products of backward */
	struct cast weight_again, input_again; /* the weight for dX, the input for dW */
	struct cast scaled;                    /* the result of a product in backward */
	/* Operands that tensor ranks gather, of which a rank casts its own rows: dY, and the result
	 * of a norm. */
	struct cast rows, normed_rows;
	struct cast turned; /* a gathered operand, for dW */
};

/* Compiled: the largest element is found in a pass (2 bytes; two kernels), scaling, clamping and
 * casting are another (2 + 1). Scales of the first pass serve backward's transposed copies, and
 * both copies of dY are written by one kernel, which reads it for each (pytorch issue 133242). What
 * was gathered in fp8 lies by rows; dW reads its columns (float8_ops.py, preprocess_addmm). */
static const struct casts compiled_tensorwise = {
	.input = {5, 3},
	.normed = {5, 3},
	.weight = {5, 3},
	.gradient = {8, 3},
	.weight_again = {3, 1},
	.input_again = {3, 1},
	.rows = {5, 3},
	.normed_rows = {5, 3},
	.turned = {2, 1},
};
/* Rows are read once where they lie along memory; along the other dimension twice, the weight's
 * after a transposed copy (torchao/testing/training/roofline_utils.py). Each copy has scales of its
 * own. Backward accumulates slowly, for which the kernel by rows is too slow: that of tensors takes
 * ones for scales, and a pass scales what it made (float8_ops.py, addmm_float8_unwrapped). */
static const struct casts compiled_rowwise = {
	.input = {3, 1},
	.normed = {3, 1},
	.weight = {3, 1},
	.gradient = {8, 3},
	.weight_again = {7, 2},
	.input_again = {5, 2},
	.scaled = {4, 1},
};
/* Eager (float8_utils.py, float8_training_tensor.py): abs (2 + 2), max (2), to fp32 (2 + 4), times
 * the scale (4 + 4), clamp (4 + 4), cast (4 + 1), and six kernels of one element or row; backward
 * casts dY twice and copies three operands (1 + 1). */
static const struct casts eager = {
	.input = {33, 12},
	.normed = {33, 12},
	.weight = {33, 12},
	.gradient = {68, 25},
	.weight_again = {35, 13},
	.input_again = {35, 13},
	.rows = {33, 12},
	.normed_rows = {33, 12},
	.turned = {2, 1},
};
/* Transformer Engine: one kernel reads once and writes both orders (2 + 1 + 1); the largest element
 * is found in a pass before (2; two kernels). With the scale of the last steps a norm writes fp8
 * itself, with that of the tensor it finds the largest (extensions/normalization.cpp). */
static const struct casts engine_delayed = {
	.input = {4, 1},
	.weight = {4, 1},
	.gradient = {4, 1},
	.rows = {3, 1},
	.turned = {2, 1},
};
static const struct casts engine_tensorwise = {
	.input = {6, 3},
	.normed = {4, 2},
	.weight = {6, 3},
	.gradient = {6, 3},
	.rows = {5, 3},
	.normed_rows = {3, 2},
	.turned = {2, 1},
};
/* Blackwell's products read columns, too: there is no other order
 * (nvte_is_non_tn_fp8_gemm_supported). */
static const struct casts blackwell_delayed = {
	.input = {3, 1},
	.weight = {3, 1},
	.gradient = {3, 1},
	.rows = {3, 1},
};
static const struct casts blackwell_tensorwise = {
	.input = {5, 3},
	.normed = {3, 2},
	.weight = {5, 3},
	.gradient = {5, 3},
	.rows = {5, 3},
	.normed_rows = {3, 2},
};

/* Ours (kernels/cuda/fp8.c): one kernel finds the largest element, one casts; for each product
 * anew, so twice for dY. A third puts zeros where the largest of both operands will be. */
static const struct casts own = {
	.input = {5, 2.5},
	.normed = {5, 2.5},
	.weight = {5, 2.5},
	.gradient = {10, 5},
	.weight_again = {5, 2.5},
	.input_again = {5, 2.5},
};

static const struct casts *casts_of(const struct plan *plan, enum device_generation generation)
{
	static const struct casts *const engine[2][2] = {
		{&engine_tensorwise, &engine_delayed}, {&blackwell_tensorwise, &blackwell_delayed}};

	if (plan->runtime == RUNTIME_SHARDPLAN)
		return &own;
	if (runtime_of(plan->runtime)->keeps_fp8_copies)
		return engine[generation == GENERATION_BLACKWELL][plan->fp8 == FP8_DELAYED];
	if (!plan->compile)
		return &eager;
	return plan->fp8 == FP8_ROWWISE ? &compiled_rowwise : &compiled_tensorwise;
}

static void add(struct fp8_casts *sum, const struct cast *cast, double elements, double times)
{
	sum->bytes += times * cast->bytes * elements;
	sum->kernels += times * cast->kernels;
}

/* Adds the casts of dY for both products. */
static void add_gradient(struct fp8_casts *sum, const struct casts *casts, double elements,
	double part, enum pass pass, bool is_gathered)
{
	if (pass != PASS_BACKWARD_WEIGHT)
		add(sum, is_gathered ? &casts->rows : &casts->gradient, elements * part, 1);
	if (pass != PASS_BACKWARD_INPUT && is_gathered)
		add(sum, &casts->turned, elements, 1);
}

/* FSDP2 gathers weights in fp8, in the order that the product of forward reads and that of backward
 * does not (float8_ops.py, preprocess_addmm). */
static bool torch_gathers_fp8(const struct plan *plan)
{
	return plan->fp8_param_gather && !runtime_of(plan->runtime)->keeps_fp8_copies;
}

/* Adds the casts of a weight for forward. A weight kept in fp8 is transposed once a step, if
 * products need both orders. */
static void add_weight(struct fp8_casts *sum, const struct plan *plan, const struct casts *casts,
	double elements, double times)
{
	if (!torch_gathers_fp8(plan))
		add(sum, plan->fp8_param_gather ? &casts->turned : &casts->weight, elements, times);
}

struct fp8_casts fp8_casts_of(const struct plan *plan, const struct model *model,
	enum device_generation generation, int module, const struct gemm_shape *product,
	enum pass pass)
{
	const struct casts *casts = casts_of(plan, generation);
	double tokens = (double)product->m, out = (double)product->n, in = (double)product->k;
	/* Copies of weights serve all micro-batches. */
	double weights =
		runtime_of(plan->runtime)->keeps_fp8_copies ? 1 / (double)plan->grad_accum : 1;
	double inputs = fp8_shares_input(plan, model, module) ? 0 : 1;
	/* Operands are cast before they are gathered, so each rank casts its own part. */
	double part = 1 / (double)plan->mesh.tensor;
	enum module_kind kind = model->modules[module].kind;
	bool is_row = fp8_is_row_parallel(kind), gathers = fp8_is_gathered(plan);
	struct fp8_casts sum = {0, 0};

	if (pass == PASS_FORWARD) {
		const struct cast *whole = is_row ? &casts->input : &casts->normed;

		if (gathers && !is_row)
			add(&sum, &casts->normed_rows, tokens * in * part, inputs);
		else
			add(&sum, whole, tokens * in, inputs);
		add_weight(&sum, plan, casts, out * in, weights);
		return sum;
	}
	add_gradient(
		&sum, casts, tokens * out, gathers && is_row ? part : 1, pass, gathers && is_row);
	if (pass != PASS_BACKWARD_WEIGHT)
		add(&sum, torch_gathers_fp8(plan) ? &casts->turned : &casts->weight_again, out * in,
			1);
	/* In compiled code, the gradients of other layers' inputs are scaled where they are
	 * read. */
	if (pass != PASS_BACKWARD_WEIGHT && kind == MODULE_ATTENTION_OUTPUT)
		add(&sum, &casts->scaled, tokens * in, 1);
	if (pass != PASS_BACKWARD_INPUT) {
		add(&sum, gathers && !is_row ? &casts->turned : &casts->input_again, tokens * in,
			inputs);
		add(&sum, &casts->scaled, out * in, 1);
	}
	return sum;
}
