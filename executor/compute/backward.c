/* Computes backward of leaves, last to first. Gradients of parameters start the unit's gradient or
 * are added to it. The gradient of the residual stream is in D_RESIDUAL throughout. */
#include "executor/compute/leaf.h"

#include "schedule/plan/plan.h"

static const struct architecture *architecture_of(const struct leaf *leaf)
{
	return &leaf->compute->model->architecture;
}

/* Gradients of q, k and v. They are columns of one matrix for a fused projection, and for three
 * projections whose input gradient is one product; else three matrices, one after the other. */
struct qkv_gradients {
	void *q, *k, *v;
	int64_t q_stride, kv_stride;
};

static struct qkv_gradients qkv_gradients(const struct leaf *leaf)
{
	const struct architecture *a = architecture_of(leaf);
	int64_t q = a->heads * a->head_dim, kv = a->kv_heads * a->head_dim;
	bool joined =
		a->fused_qkv || leaf_joined_with(leaf, leaf_siblings(leaf)->of[MODULE_QUERY]).n > 0;
	int64_t rows = joined ? 1 : leaf->compute->tokens;
	void *base = operand_work(leaf, TENSOR_D_QKV);

	if (base == NULL)
		return (struct qkv_gradients){0};
	return (struct qkv_gradients){.q = base,
		.k = compute_at(leaf->compute, base, rows * q),
		.v = compute_at(leaf->compute, base, rows * (q + kv)),
		.q_stride = joined ? q + 2 * kv : q,
		.kv_stride = joined ? q + 2 * kv : kv};
}

/* Gradients of gate and up: side by side for one product, else one matrix after the other. */
struct mlp_gradients {
	void *gate, *up;
	int64_t stride;
};

static struct mlp_gradients mlp_gradients(const struct leaf *leaf)
{
	const struct joined joined = leaf_joined_with(leaf, leaf_siblings(leaf)->of[MODULE_UP]);
	int64_t width = architecture_of(leaf)->ffn;
	struct mlp_gradients d = {.gate = operand_work(leaf, TENSOR_D_GATE)};

	d.up = joined.n > 0 ? compute_at(leaf->compute, d.gate, width)
			    : operand_work(leaf, TENSOR_D_UP);
	d.stride = joined.n > 0 ? joined.width : width;
	return d;
}

/* Are partial sums those of tensor ranks? Without them they are sums of keys, of context ranks. */
static bool sums_tokens(const struct leaf *leaf)
{
	return leaf->compute->schedule->plan.mesh.tensor > 1;
}

/* Returns where leaves that read a norm write dx. For column-parallel leaves it is a part of a
 * sum. */
static void *norm_gradient(const struct leaf *leaf)
{
	void *part = sums_tokens(leaf) ? operand_part(leaf) : NULL;

	return part != NULL ? part : operand_work(leaf, TENSOR_D_NORM);
}

/* Returns the same after tensor ranks have summed it. */
static const void *summed_norm_gradient(const struct leaf *leaf)
{
	const void *sum = sums_tokens(leaf) ? operand_sum(leaf) : NULL;

	return sum != NULL ? sum : operand_work(leaf, TENSOR_D_NORM);
}

static void *output_gradient(const struct leaf *leaf, enum module_kind kind)
{
	if (kind == MODULE_HEAD)
		return operand_role(leaf, BUFFER_LOGITS);
	if (kind == MODULE_UP && architecture_of(leaf)->mlp != MLP_SWIGLU)
		return operand_work(leaf, TENSOR_D_UP);
	if (kind == MODULE_UP || kind == MODULE_GATE) {
		struct mlp_gradients d = mlp_gradients(leaf);

		return kind == MODULE_UP ? d.up : d.gate;
	}
	struct qkv_gradients d = qkv_gradients(leaf);
	return kind == MODULE_KEY ? d.k : kind == MODULE_VALUE ? d.v : d.q;
}

/* Computes backward of leaves that read a norm. The last of them in the block comes first and
 * starts dx, and the others add to it. Where their dx is one product, [dy dy ...] times all
 * weights, the leaf that comes last computes it. */
static void backward_projection(const struct leaf *leaf)
{
	enum module_kind kind = leaf_module(leaf)->kind;
	bool more = kind == MODULE_GATE || kind == MODULE_KEY || kind == MODULE_QUERY;
	const struct joined joined = leaf_joined_with(leaf, leaf->module);
	const void *dy = output_gradient(leaf, kind);

	if (joined.n == 0) {
		leaf_project_backward(leaf, dy, norm_gradient(leaf), more);
		return;
	}
	leaf_parameter_gradients(leaf, dy);
	if (leaf->module > joined.first)
		return;
	struct gemm gemm = leaf_input_gradient(leaf, dy, norm_gradient(leaf));
	gemm.k = joined.width;
	leaf->compute->kernels->gemm(leaf->compute->context, &gemm);
}

/* Computes the gradient of the activation in the epilogue of the projection after it. This rounds
 * once and not twice, so only where bits may differ from those of other plans. */
static bool backward_of_both(const struct leaf *leaf)
{
	struct compute *c = leaf->compute;
	const struct device_kernels *device = c->kernels->device;
	const struct architecture *a = architecture_of(leaf);
	const struct siblings *s = leaf_siblings(leaf);
	int activation = s->of[MODULE_ACTIVATION];
	const void *up = operand_saved(leaf, s->of[MODULE_UP], TENSOR_UP);

	if (device == NULL || !c->any_rounding || leaf_in_fp8(leaf) ||
		leaf_module(leaf)->adapter >= 0 || activation < leaf->op->first_module ||
		a->mlp == MLP_SWIGLU || !a->gelu_tanh || up == NULL)
		return false;
	const struct gemm gemm = leaf_input_gradient(
		leaf, operand_work(leaf, TENSOR_D_RESIDUAL), operand_work(leaf, TENSOR_D_UP));

	if (!device->gemm_epilogue(c->context, &gemm, &(struct gemm_epilogue){.gelu_input = up}))
		return false;
	c->gelu_done = activation;
	return true;
}

static void backward_head(const struct leaf *leaf)
{
	if (plan_chunks_head(&leaf->compute->schedule->plan))
		backward_chunked_head(leaf);
	else
		backward_projection(leaf);
}

static void backward_down(const struct leaf *leaf)
{
	const void *dy = operand_stream_gradient(leaf);

	if (backward_of_both(leaf))
		leaf_parameter_gradients(leaf, dy);
	else
		leaf_project_backward(leaf, dy, operand_work(leaf, TENSOR_D_PRODUCT), false);
}

static void backward_swiglu(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	const struct siblings *s = leaf_siblings(leaf);
	struct mlp_gradients d = mlp_gradients(leaf);

	c->kernels->swiglu_backward(
		c->context, &(struct swiglu_backward){.rows = c->tokens,
				    .width = architecture_of(leaf)->ffn,
				    .stride = d.stride,
				    .dy = operand_work(leaf, TENSOR_D_PRODUCT),
				    .gate = operand_saved(leaf, s->of[MODULE_GATE], TENSOR_GATE),
				    .up = operand_saved(leaf, s->of[MODULE_UP], TENSOR_UP),
				    .dgate = d.gate,
				    .dup = d.up,
				    .dtype = c->dtype});
}

static void backward_activation(const struct leaf *leaf)
{
	struct compute *c = leaf->compute;
	const struct architecture *a = architecture_of(leaf);

	if (c->gelu_done == leaf->module)
		c->gelu_done = -1;
	else if (a->mlp == MLP_SWIGLU)
		backward_swiglu(leaf);
	else
		c->kernels->gelu_backward(c->context, c->dtype, a->gelu_tanh ? GELU_TANH : GELU_ERF,
			operand_work(leaf, TENSOR_D_UP), operand_work(leaf, TENSOR_D_PRODUCT),
			operand_saved(leaf, leaf_siblings(leaf)->of[MODULE_UP], TENSOR_UP),
			c->tokens * a->ffn);
}

static void backward_attention_output(const struct leaf *leaf)
{
	leaf_project_backward(leaf, operand_stream_gradient(leaf),
		operand_work(leaf, TENSOR_D_ATTENTION_OUT), false);
}

/* Returns where the core of attention writes its gradients. */
static struct attention_backward gradients_of(const struct leaf *leaf)
{
	struct qkv_gradients d = qkv_gradients(leaf);

	return (struct attention_backward){.dq = d.q,
		.dk = d.k,
		.dv = d.v,
		.dq_stride = d.q_stride,
		.dk_stride = d.kv_stride,
		.dv_stride = d.kv_stride};
}

static void backward_attention_core(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	struct attention_backward backward = gradients_of(leaf);
	const struct attention *forward = &backward.forward;

	backward.forward = leaf_attention(leaf);
	backward.dout = operand_work(leaf, TENSOR_D_ATTENTION_OUT);
	backward.dout_stride = forward->out_stride;
	if (c->chunks > 0) {
		context_attention_backward(leaf, &backward);
		return;
	}
	c->kernels->attention_backward(c->context, &backward);
	leaf_rope(leaf, backward.dq, forward->heads, backward.dq_stride, true);
	leaf_rope(leaf, backward.dk, forward->kv_heads, backward.dk_stride, true);
}

/* Returns where kernels write the gradient of a frozen norm: to a place that no operand needs any
 * more. */
static void *gradient_or_scratch(const struct leaf *leaf, int parameter, bool *more)
{
	if (leaf_trains(leaf, parameter))
		return gradient_begin(leaf, parameter, more);
	*more = false;
	return operand_work(leaf, TENSOR_D_ATTENTION_OUT);
}

static void end_gradient(const struct leaf *leaf, int parameter)
{
	if (leaf_trains(leaf, parameter))
		gradient_end(leaf, parameter);
}

static void head_norm_backward(const struct leaf *leaf, void *d, enum module_kind kind,
	enum tensor_role role, int64_t heads)
{
	const struct compute *c = leaf->compute;
	const struct siblings *s = leaf_siblings(leaf);
	int weight = leaf_parameter(leaf, 0);
	int64_t width = architecture_of(leaf)->head_dim, parts = gradient_parts(c);
	int64_t rows = c->tokens * heads / parts;
	const void *x = operand_saved(leaf, s->of[kind], role);
	const float *rstd = operand_saved(leaf, leaf->module, TENSOR_QK_NORM_STATISTICS);

	for (int64_t i = 0; i < parts && d != NULL && x != NULL && rstd != NULL; i++) {
		void *part = compute_at(c, d, i * rows * width);
		bool more;
		void *dweight = gradient_or_scratch(leaf, weight, &more);

		c->kernels->rmsnorm_backward(
			c->context, &(struct norm_backward){.rows = rows,
					    .width = width,
					    .dy = part,
					    .x = compute_at(c, x, i * rows * width),
					    .weight = operand_parameter(leaf, weight),
					    .rstd = rstd + i * rows,
					    .dx = part,
					    .dweight = dweight,
					    .accumulate_parameters = more,
					    .dtype = c->dtype,
					    .gradient_dtype = c->gradient_dtype});
		end_gradient(leaf, weight);
	}
}

static void backward_query_norm(const struct leaf *leaf)
{
	head_norm_backward(leaf, qkv_gradients(leaf).q, MODULE_QUERY, TENSOR_QUERY,
		architecture_of(leaf)->heads);
}

static void backward_key_norm(const struct leaf *leaf)
{
	head_norm_backward(leaf, qkv_gradients(leaf).k, MODULE_KEY, TENSOR_KEY,
		architecture_of(leaf)->kv_heads);
}

/* Works on the rows of one part of the micro-batch. */
static void norm_part(const struct leaf *leaf, const struct norm_backward *whole, int64_t rows,
	int64_t first, int weight, int bias)
{
	const struct compute *c = leaf->compute;
	struct norm_backward norm = *whole;

	norm.rows = rows;
	norm.dy = compute_at(c, norm.dy, first * norm.width);
	norm.x = compute_at(c, norm.x, first * norm.width);
	norm.dx = compute_at(c, norm.dx, first * norm.width);
	norm.rstd += first;
	/* Weight and bias get their terms together. */
	norm.dweight = gradient_or_scratch(leaf, weight, &norm.accumulate_parameters);
	if (norm.mean == NULL) {
		c->kernels->rmsnorm_backward(c->context, &norm);
	} else {
		norm.mean += first;
		if (leaf_trains(leaf, bias))
			norm.dbias = gradient_begin(leaf, bias, &norm.accumulate_parameters);
		c->kernels->layernorm_backward(c->context, &norm);
	}
	end_gradient(leaf, weight);
	if (norm.dbias != NULL)
		gradient_end(leaf, bias);
}

/* Adds to the gradient of the residual stream; the final norm is where that begins. */
static void backward_norm(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	const struct architecture *a = architecture_of(leaf);
	const float *statistics = operand_saved(leaf, leaf->module, TENSOR_NORM_STATISTICS);
	bool centred = a->norm != NORM_RMSNORM;
	int weight = leaf_parameter(leaf, 0), bias = leaf_parameter(leaf, 1);
	int64_t parts = gradient_parts(c), rows = c->stream_tokens / parts;
	struct norm_backward norm = {.width = a->hidden,
		.dy = summed_norm_gradient(leaf),
		.x = operand_input(leaf),
		.weight = operand_parameter(leaf, weight),
		.mean = centred ? statistics : NULL,
		.rstd = statistics,
		.dx = operand_work(leaf, TENSOR_D_RESIDUAL),
		.accumulate_dx = leaf_module(leaf)->layer >= 0,
		.dtype = c->dtype,
		.gradient_dtype = c->gradient_dtype};

	if (statistics == NULL || norm.dy == NULL || norm.x == NULL || norm.dx == NULL)
		return;
	if (centred)
		norm.rstd = statistics + c->stream_tokens;
	for (int64_t i = 0; i < parts; i++)
		norm_part(leaf, &norm, rows, i * rows, weight, bias);
}

static void (*const backward_leaf[MODULE_KIND_COUNT])(const struct leaf *) = {
	[MODULE_EMBEDDING] = backward_embedding,
	[MODULE_POSITION_EMBEDDING] = backward_position_embedding,
	[MODULE_NORM] = backward_norm,
	[MODULE_QKV] = backward_projection,
	[MODULE_QUERY] = backward_projection,
	[MODULE_KEY] = backward_projection,
	[MODULE_VALUE] = backward_projection,
	[MODULE_QUERY_NORM] = backward_query_norm,
	[MODULE_KEY_NORM] = backward_key_norm,
	[MODULE_ATTENTION_CORE] = backward_attention_core,
	[MODULE_ATTENTION_OUTPUT] = backward_attention_output,
	[MODULE_GATE] = backward_projection,
	[MODULE_UP] = backward_projection,
	[MODULE_ACTIVATION] = backward_activation,
	[MODULE_DOWN] = backward_down,
	[MODULE_ROUTER] = backward_router,
	[MODULE_EXPERTS_GATE] = backward_experts_projection,
	[MODULE_EXPERTS_UP] = backward_experts_projection,
	[MODULE_EXPERTS_ACTIVATION] = backward_experts_activation,
	[MODULE_EXPERTS_DOWN] = backward_experts_down,
	[MODULE_HEAD] = backward_head,
};

static void take_gradients(const struct leaf *leaf)
{
	if (!context_returns_gradients(leaf))
		return;
	const struct attention_backward gradients = gradients_of(leaf);
	context_take_gradients(leaf, &gradients);
}

void backward_leaves(struct compute *compute, const struct op *op)
{
	take_gradients(&(struct leaf){.compute = compute, .op = op, .module = op->end_module - 1});
	for (int m = op->end_module - 1; m >= op->first_module; m--) {
		enum module_kind kind = compute->model->modules[m].kind;

		if (backward_leaf[kind] != NULL && model_goes_back(compute->model, m))
			backward_leaf[kind](
				&(struct leaf){.compute = compute, .op = op, .module = m});
	}
}
