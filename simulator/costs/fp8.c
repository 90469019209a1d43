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
	/* Of the bytes of `input`, `normed` and `gradient`, and of `rows`, those of the other
	 * order, for dW. */
	double other, other_of_rows;
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
	.other = 1,
};
static const struct casts engine_tensorwise = {
	.input = {6, 3},
	.normed = {4, 2},
	.weight = {6, 3},
	.gradient = {6, 3},
	.rows = {5, 3},
	.normed_rows = {3, 2},
	.turned = {2, 1},
	.other = 1,
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

/* Blocks of 128, both orders from one kernel. Transformer Engine's own table of a 5B model's
 * products on H200 (docs, gemm_profiling.rst, d0067d0d) has 20.3 ms with a scale a tensor, of
 * which 3.5 are casts, and 22.9 ms with blocks. With products as below the casts of blocks take as
 * long as 7.5 bytes an element would, though they move four. Gathered columns lie rank by rank, and
 * are put in order. */
static const struct casts engine_blockwise = {
	.input = {7.5, 1},
	.normed = {7.5, 1},
	.weight = {7.5, 1},
	.gradient = {7.5, 1},
	.rows = {7.5, 1},
	.normed_rows = {7.5, 1},
	.turned = {2, 1},
	.other = 1.875,
	.other_of_rows = 1.875,
};
/* Both orders and their scales (2 + 1 + 1 + 2/32); the norm before writes bf16, unless cuDNN's is
 * asked for. The same table has 1.8 ms of casts on B300, or 4.7 bytes an element. */
static const struct casts engine_mxfp8 = {
	.input = {4.0625, 1},
	.normed = {4.0625, 1},
	.weight = {4.0625, 1},
	.gradient = {4.0625, 1},
	.rows = {4.0625, 1},
	.normed_rows = {4.0625, 1},
	.other = 1.03125,
	.other_of_rows = 1.03125,
};
/* The largest element is found before, of what is summed over tokens after its transform (2 bytes;
 * two kernels); then both orders and their scales (2 + 1/2 + 1/2 + 2/16). The same table has 1.48
 * times the casts of mxfp8. Gathered columns lie rank by rank, and a gathered weight by rows: both
 * are put in order. */
static const struct casts engine_nvfp4 = {
	.input = {6, 3},
	.normed = {6, 3},
	.weight = {6, 3},
	.gradient = {6, 3},
	.rows = {6, 3},
	.normed_rows = {6, 3},
	.turned = {1.125, 1},
	.other = 0.5625,
	.other_of_rows = 0.5625,
};
/* torchao (moe_training/mxfp8_linear.py, 36027d8): one order at a time, by kernels of its own,
 * compiled or not (2 + 1 + 1/32), each followed by one that puts scales in the order of cuBLAS. */
static const struct casts torchao_mxfp8 = {
	.input = {3.03125, 2},
	.normed = {3.03125, 2},
	.weight = {3.03125, 2},
	.gradient = {6.0625, 4},
	.weight_again = {3.03125, 2},
	.input_again = {3.03125, 2},
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

/* Beside products with a scale a tensor. Hopper adds sums of 128 up in fp32: at large sizes 1.75
 * times bf16 (NVIDIA, cuBLAS 12.9), where a scale a tensor makes 1.9 of it in the table above.
 * Blackwell's take 7.16 ms there, 6.81 with a scale a tensor, 3.76 in fp4, whose peak is twice that
 * of fp8 on B200 and three times on B300. Products lose as much more at their depth. */
static const struct rate {
	double of_fp8, peak, half_k;
} rates[] = {
	[FP8_OFF] = {1, 1, 1},
	[FP8_TENSORWISE] = {1, 1, 1},
	[FP8_ROWWISE] = {1, 1, 1},
	[FP8_DELAYED] = {1, 1, 1},
	[FP8_BLOCKWISE] = {0.92, 1, 1},
	[FP8_MXFP8] = {0.95, 1, 1},
	[FP8_NVFP4] = {1.86, 3, 2},
};

double fp8_peak(const struct plan *plan)
{
	return rates[plan->fp8].peak;
}

struct machine fp8_machine(const struct machine *machine, const struct plan *plan)
{
	const struct rate *rate = &rates[plan->fp8];
	struct machine low = machine_in_fp8(machine);

	low.gemm_flops *= rate->of_fp8;
	low.peak_flops *= rate->peak;
	low.gemm_half_k *= rate->half_k;
	return low;
}

static const struct casts *casts_of(const struct plan *plan, enum device_generation generation)
{
	static const struct casts *const engine[2][COUNT_OF(rates)] = {
		{[FP8_TENSORWISE] = &engine_tensorwise,
			[FP8_DELAYED] = &engine_delayed,
			[FP8_BLOCKWISE] = &engine_blockwise},
		{[FP8_TENSORWISE] = &blackwell_tensorwise,
			[FP8_DELAYED] = &blackwell_delayed,
			[FP8_MXFP8] = &engine_mxfp8,
			[FP8_NVFP4] = &engine_nvfp4}};

	if (plan->runtime == RUNTIME_SHARDPLAN)
		return &own;
	if (runtime_of(plan->runtime)->keeps_fp8_copies)
		return engine[generation == GENERATION_BLACKWELL][plan->fp8];
	if (plan->fp8 == FP8_MXFP8)
		return &torchao_mxfp8;
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
	return fp8_gathers_weights(plan) && !runtime_of(plan->runtime)->keeps_fp8_copies;
}

/* A rank's leaf in fp8, and its operands: elements of what it reads, of what it writes and of its
 * weight. */
struct leaf {
	enum module_kind kind;
	double in, out, weight;
	bool is_row, gathers; /* row-parallel; do tensor ranks gather one of its operands? */
	double part;          /* of such an operand, which the rank casts itself */
	double inputs;        /* 0: the leaf before it has cast them */
	bool frozen, adapted; /* there is no dW; an adapter reads the input as the norm wrote it */
};

static struct leaf leaf_of(const struct plan *plan, const struct model *model, int module,
	const struct gemm_shape *product)
{
	enum module_kind kind = model->modules[module].kind;
	double matrices = (double)product->count; /* of experts, each with its own rows */
	double rows = (double)product->m * matrices;

	return (struct leaf){.kind = kind,
		.in = rows * (double)product->k,
		.out = rows * (double)product->n,
		.weight = matrices * (double)product->n * (double)product->k,
		.is_row = fp8_is_row_parallel(kind),
		.gathers = fp8_is_gathered(plan) && !module_kind_is_of_experts(kind) &&
			   !fp8_is_read_by_adapter(plan, model, module),
		.part = 1 / (double)plan->mesh.tensor,
		.inputs = fp8_shares_input(plan, model, module) ? 0 : 1,
		.frozen = model->modules[module].weight_frozen,
		.adapted = model->modules[module].adapter >= 0};
}

/* Adds the casts of a weight for forward. Copies that are kept serve all micro-batches. A weight
 * kept in fp8 is transposed once a step, if products need both orders; a frozen one never. */
static void add_weight(struct fp8_casts *sum, const struct plan *plan, const struct casts *casts,
	const struct leaf *leaf)
{
	bool keeps = runtime_of(plan->runtime)->keeps_fp8_copies;

	if (!torch_gathers_fp8(plan) && !(leaf->frozen && plan->fp8_param_gather))
		add(sum, fp8_gathers_weights(plan) ? &casts->turned : &casts->weight, leaf->weight,
			keeps ? 1 / (double)plan->grad_accum : 1);
}

/* Without dW no operand is cast in its order. */
static void leave_other_order(
	struct fp8_casts *sum, const struct leaf *leaf, double bytes, double elements)
{
	sum->bytes -= leaf->frozen ? bytes * elements : 0;
}

/* Megatron-Core copies what experts read into rows that are padded to a multiple of 16 for each
 * expert, and what they return back (experts.py, Fp8Padding); gradients the other way. */
static void add_padding(struct fp8_casts *sum, const struct leaf *leaf)
{
	static const struct cast padding = {4, 1};

	if (!module_kind_is_of_experts(leaf->kind))
		return;
	if (leaf->kind == MODULE_EXPERTS_DOWN)
		add(sum, &padding, leaf->out, 1);
	else
		add(sum, &padding, leaf->in, leaf->inputs);
}

/* Does a norm write the leaf's input for it alone? A router reads what a mixture's layers do. */
static bool follows_norm(const struct leaf *leaf)
{
	return !leaf->is_row && !leaf->adapted && !module_kind_is_of_experts(leaf->kind) &&
	       leaf->kind != MODULE_SHARED_GATE && leaf->kind != MODULE_SHARED_UP;
}

static void cast_forward(struct fp8_casts *sum, const struct plan *plan, const struct casts *casts,
	const struct leaf *leaf)
{
	bool gathers = leaf->gathers && !leaf->is_row;
	double elements = leaf->inputs * leaf->in * (gathers ? leaf->part : 1);
	const struct cast *whole = follows_norm(leaf) ? &casts->normed : &casts->input;
	const struct cast *rows = follows_norm(leaf) ? &casts->normed_rows : &casts->rows;

	add(sum, gathers ? rows : whole, leaf->in * (gathers ? leaf->part : 1), leaf->inputs);
	leave_other_order(sum, leaf, gathers ? casts->other_of_rows : casts->other, elements);
	add_weight(sum, plan, casts, leaf);
	add_padding(sum, leaf);
}

static void cast_backward(struct fp8_casts *sum, const struct plan *plan, const struct casts *casts,
	const struct leaf *leaf, enum pass pass)
{
	bool gathers_gradient = leaf->gathers && leaf->is_row;
	double part = gathers_gradient ? leaf->part : 1;

	if (leaf->frozen)
		pass = PASS_BACKWARD_INPUT;
	add_gradient(sum, casts, leaf->out, part, pass, gathers_gradient);
	leave_other_order(sum, leaf, gathers_gradient ? casts->other_of_rows : casts->other,
		part * leaf->out);
	if (pass != PASS_BACKWARD_WEIGHT) {
		add(sum, torch_gathers_fp8(plan) ? &casts->turned : &casts->weight_again,
			leaf->weight, 1);
		add_padding(sum, leaf);
	}
	/* In compiled code, the gradients of other layers' inputs are scaled where they are
	 * read. */
	if (pass != PASS_BACKWARD_WEIGHT && leaf->kind == MODULE_ATTENTION_OUTPUT)
		add(sum, &casts->scaled, leaf->in, 1);
	if (pass != PASS_BACKWARD_INPUT) {
		add(sum, leaf->gathers && !leaf->is_row ? &casts->turned : &casts->input_again,
			leaf->in, leaf->inputs);
		add(sum, &casts->scaled, leaf->weight, 1);
	}
}

struct fp8_casts fp8_casts_of(const struct plan *plan, const struct model *model,
	enum device_generation generation, int module, const struct gemm_shape *product,
	enum pass pass)
{
	const struct casts *casts = casts_of(plan, generation);
	const struct leaf leaf = leaf_of(plan, model, module, product);
	struct fp8_casts sum = {0, 0};

	if (pass == PASS_FORWARD)
		cast_forward(&sum, plan, casts, &leaf);
	else
		cast_backward(&sum, plan, casts, &leaf, pass);
	return sum;
}
