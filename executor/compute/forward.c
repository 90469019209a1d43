/* Computes leaves forward: one function per kind, behind one table. */
#include "executor/compute/leaf.h"

static const struct architecture *architecture_of(const struct leaf *leaf)
{
	return &leaf->compute->model->architecture;
}

/* Computes a product with its epilogue in one kernel. False when the device has no such kernel, or
 * there is no device. */
static bool multiply_in_one(
	const struct compute *c, const struct gemm *gemm, const struct gemm_epilogue *epilogue)
{
	const struct device_kernels *device = c->kernels->device;

	return device != NULL && device->gemm_epilogue(c->context, gemm, epilogue);
}

static const void *bias_of(const struct leaf *leaf)
{
	int bias = leaf_parameter(leaf, 1);

	return bias >= 0 ? operand_parameter(leaf, bias) : NULL;
}

/* Computes y = [residual +] x W^T [+ bias]. */
static void project_base(const struct leaf *leaf, void *y, const void *residual)
{
	const struct compute *c = leaf->compute;
	struct gemm gemm = leaf_product(leaf, y);
	const struct gemm_epilogue epilogue = {.addend = residual, .bias = bias_of(leaf)};

	if ((residual != NULL || epilogue.bias != NULL) && !leaf_in_fp8(leaf) &&
		multiply_in_one(c, &gemm, &epilogue))
		return;
	if (residual != NULL)
		c->kernels->copy(c->context, c->dtype, y, residual, gemm.m * gemm.n);
	gemm.accumulate = residual != NULL;
	leaf_multiply(leaf, &gemm, PASS_FORWARD);
	if (epilogue.bias != NULL)
		c->kernels->bias_add(c->context, c->dtype, y, epilogue.bias, gemm.m, gemm.n);
}

static void project_onto(const struct leaf *leaf, void *y, const void *residual)
{
	const struct gemm base = leaf_product(leaf, y);

	project_base(leaf, y, residual);
	leaf_adapt(leaf, &base);
}

/* A row-parallel layer: `part` is this rank's part of a sum over the tensor ranks. Residual and
 * bias, which every rank has, must be added once, so they go to y. */
static void project_part(const struct leaf *leaf, void *y, const void *residual, void *part)
{
	const struct compute *c = leaf->compute;
	const void *bias = bias_of(leaf);
	int64_t width = architecture_of(leaf)->hidden;
	struct gemm product = leaf_product(leaf, part);

	c->kernels->copy(c->context, c->dtype, y, residual, c->stream_tokens * width);
	if (bias != NULL)
		c->kernels->bias_add(c->context, c->dtype, y, bias, c->stream_tokens, width);
	c->kernels->gemm(c->context, &product);
}

/* Computes y = residual + x W^T, on the residual stream. */
static void project_to_stream(const struct leaf *leaf, void *y, const void *residual)
{
	void *part = operand_part(leaf);

	if (part != NULL)
		project_part(leaf, y, residual, part);
	else
		project_onto(leaf, y, residual);
}

/* Adds the sum that tensor ranks have made after a row-parallel layer to the residual stream that
 * the first leaf after it reads. */
static void add_sum(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	const void *sum = operand_sum(leaf);
	void *stream;

	/* Attention in rounds keeps its results so far in such a buffer, and they are no sum. */
	if (sum == NULL || leaf_module(leaf)->kind == MODULE_ATTENTION_CORE)
		return;
	stream = leaf_module(leaf)->kind == MODULE_NORM ? operand_input(leaf)
							: operand_residual_stream(leaf);
	if (stream != NULL)
		c->kernels->add(c->context, c->dtype, stream, stream, sum,
			c->stream_tokens * architecture_of(leaf)->hidden);
}

static void project(const struct leaf *leaf, void *y)
{
	project_onto(leaf, y, NULL);
}

/* Windows hold seq_len + 1 tokens: inputs, shifted by one the targets. */
static void forward_embedding(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	const struct architecture *a = architecture_of(leaf);
	const int32_t *tokens = (const int32_t *)operand_role(leaf, BUFFER_TOKENS);
	const void *table = operand_parameter(leaf, leaf_parameter(leaf, 0));
	void *out = operand_residual_out(leaf), *part = operand_part(leaf);

	if (out == NULL)
		return;
	/* Each tensor rank looks up the words that it has; their sum is the embedding. */
	if (part != NULL) {
		c->kernels->zero(c->context, c->dtype, out, c->stream_tokens * a->hidden);
		out = part;
	}
	c->kernels->embedding(c->context, &(struct embedding){.tokens = c->tokens,
						  .width = a->hidden,
						  .length = c->seq_len,
						  .vocabulary = a->vocab,
						  .ids_stride = c->seq_len + 1,
						  .ids = tokens,
						  .table = table,
						  .out = out,
						  .of_part = part != NULL,
						  .dtype = c->dtype});
}

/* Adds positions to the rank's tokens of the residual stream, which may begin and end inside of a
 * sequence. */
static void add_positions(
	const struct compute *c, void *residual, const void *positions, int64_t width)
{
	for (int64_t i = 0, n; i < c->stream_tokens; i += n) {
		int64_t at = compute_position(c, c->first_token + i);
		void *row = compute_at(c, residual, i * width);

		n = min_i64(c->seq_len - at % c->seq_len, c->stream_tokens - i);
		c->kernels->add(c->context, c->dtype, row, row,
			compute_at(c, positions, at * width), n * width);
	}
}

/* This is a leaf of its own, because the token embedding may be in another unit. The bits are those
 * of adding both at once. */
static void forward_position_embedding(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	int64_t width = architecture_of(leaf)->hidden;
	const void *positions = operand_parameter(leaf, leaf_parameter(leaf, 0));
	void *residual = operand_residual_stream(leaf);

	/* To bias_add a sequence is one row, and all positions together are the bias. */
	if (residual != NULL && c->stream_tokens == c->tokens && c->chunks == 0)
		c->kernels->bias_add(c->context, c->dtype, residual, positions, c->sequences,
			c->seq_len * width);
	else if (residual != NULL)
		add_positions(c, residual, positions, width);
}

static void forward_norm(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	const struct architecture *a = architecture_of(leaf);
	float *statistics = operand_saved(leaf, leaf->module, TENSOR_NORM_STATISTICS);
	int bias = leaf_parameter(leaf, 1);
	struct norm norm = {.rows = c->stream_tokens,
		.width = a->hidden,
		.epsilon = (float)a->norm_epsilon,
		.x = operand_input(leaf),
		.weight = operand_parameter(leaf, leaf_parameter(leaf, 0)),
		.y = operand_saved(leaf, leaf->module, TENSOR_NORM_OUT),
		.rstd = statistics,
		.dtype = c->dtype};

	if (a->norm == NORM_RMSNORM) {
		c->kernels->rmsnorm(c->context, &norm);
		return;
	}
	norm.bias = bias >= 0 ? operand_parameter(leaf, bias) : NULL;
	norm.mean = statistics;
	norm.rstd = statistics != NULL ? statistics + c->stream_tokens : NULL;
	c->kernels->layernorm(c->context, &norm);
}

/* Does the attention core turn (RoPE) what this leaf makes? With context ranks only queries: keys
 * are gathered as they are and then turned together with those of other ranks. */
static bool core_turns(const struct leaf *leaf)
{
	enum module_kind kind = leaf_module(leaf)->kind;

	return leaf->compute->chunks == 0 || kind == MODULE_QUERY || kind == MODULE_QUERY_NORM;
}

/* The attention core turns queries and keys in place. The leaf that makes them does so itself where
 * only they are computed again and not the core, and where they are sent to other ranks. */
static void turn(const struct leaf *leaf, void *x, int64_t heads, int64_t stride)
{
	const struct compute *c = leaf->compute;
	int core = leaf_siblings(leaf)->of[MODULE_ATTENTION_CORE];
	const struct saved_tensors *attention = &c->saved[core];
	bool again = leaf->op->kind == OP_RECOMPUTE && attention->split && attention->kept;

	if ((again && core_turns(leaf)) || context_turns_at_once(c))
		leaf_rope(leaf, x, heads, stride, false);
}

static void turn_fused(const struct leaf *leaf, void *qkv)
{
	const struct architecture *a = architecture_of(leaf);
	int64_t d = a->head_dim, width = (a->heads + 2 * a->kv_heads) * d;

	if (!context_turns_at_once(leaf->compute))
		return;
	turn(leaf, qkv, a->heads, width);
	turn(leaf, compute_at(leaf->compute, qkv, a->heads * d), a->kv_heads, width);
}

/* Normalises over head_dim, for every token and head. */
static void forward_head_norm(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	const struct architecture *a = architecture_of(leaf);
	bool query = leaf_module(leaf)->kind == MODULE_QUERY_NORM;

	int64_t heads = query ? a->heads : a->kv_heads;
	void *normalised = operand_saved(leaf, leaf->module, TENSOR_QK_NORM_OUT);

	c->kernels->rmsnorm(c->context,
		&(struct norm){.rows = c->tokens * heads,
			.width = a->head_dim,
			.epsilon = (float)a->norm_epsilon,
			.x = operand_input(leaf),
			.weight = operand_parameter(leaf, leaf_parameter(leaf, 0)),
			.y = normalised,
			.rstd = operand_saved(leaf, leaf->module, TENSOR_QK_NORM_STATISTICS),
			.dtype = c->dtype});
	turn(leaf, normalised, heads, heads * a->head_dim);
}

/* Says where a projection with a tensor of its own writes. */
static const enum tensor_role projected[MODULE_KIND_COUNT] = {
	[MODULE_QKV] = TENSOR_QKV,
	[MODULE_QUERY] = TENSOR_QUERY,
	[MODULE_KEY] = TENSOR_KEY,
	[MODULE_VALUE] = TENSOR_VALUE,
	[MODULE_GATE] = TENSOR_GATE,
};

static void forward_projection(const struct leaf *leaf)
{
	const struct architecture *a = architecture_of(leaf);
	enum module_kind kind = leaf_module(leaf)->kind;
	void *y = operand_saved(leaf, leaf->module, projected[kind]);
	int64_t heads = kind == MODULE_QUERY ? a->heads : a->kv_heads;

	project(leaf, y);
	if ((kind == MODULE_QUERY || kind == MODULE_KEY) && !a->qk_norm)
		turn(leaf, y, heads, heads * a->head_dim);
	else if (kind == MODULE_QKV)
		turn_fused(leaf, y);
}

static void forward_attention_core(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	struct attention attention = leaf_attention(leaf);

	if (!context_turns_at_once(c))
		leaf_rope(leaf, (void *)attention.q, attention.heads, attention.q_stride, false);
	if (c->chunks > 0) {
		context_attention(leaf, &attention);
		return;
	}
	leaf_rope(leaf, (void *)attention.k, attention.kv_heads, attention.k_stride, false);
	c->kernels->attention(c->context, &attention);
}

static void forward_attention_output(const struct leaf *leaf)
{
	context_take_results(leaf);
	project_to_stream(leaf, operand_saved(leaf, leaf->module, TENSOR_RESIDUAL_MIDDLE),
		operand_residual_in(leaf));
}

/* Returns the activation that this projection may compute in its epilogue, or -1 for none. Where
 * checkpointing computes the activation again by itself, there is none, because that would round
 * differently. */
static int activation_to_fuse(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	const struct architecture *a = architecture_of(leaf);
	int activation = leaf_siblings(leaf)->of[MODULE_ACTIVATION];
	bool here = activation > leaf->module && activation < leaf->op->end_module;

	return c->any_rounding && here && leaf_module(leaf)->adapter < 0 && !leaf_in_fp8(leaf) &&
			       a->mlp != MLP_SWIGLU && a->gelu_tanh && !c->saved[activation].split
		       ? activation
		       : -1;
}

static void forward_up(const struct leaf *leaf)
{
	struct compute *c = leaf->compute;
	void *up = operand_saved(leaf, leaf->module, TENSOR_UP);
	int activation = activation_to_fuse(leaf);

	if (activation >= 0) {
		const struct gemm gemm =
			leaf_product(leaf, operand_saved(leaf, activation, TENSOR_PRODUCT));
		const struct gemm_epilogue epilogue = {.bias = bias_of(leaf), .before_gelu = up};

		c->gelu_done = multiply_in_one(c, &gemm, &epilogue) ? activation : -1;
		if (c->gelu_done >= 0)
			return;
	}
	project(leaf, up);
}

static void forward_activation(const struct leaf *leaf)
{
	struct compute *c = leaf->compute;
	const struct architecture *a = architecture_of(leaf);
	const struct siblings *s = leaf_siblings(leaf);
	void *product = operand_saved(leaf, leaf->module, TENSOR_PRODUCT);
	const void *up = operand_saved(leaf, s->of[MODULE_UP], TENSOR_UP);
	int64_t n = c->tokens * a->ffn;

	if (c->gelu_done == leaf->module) {
		c->gelu_done = -1;
		return;
	}
	if (a->mlp == MLP_SWIGLU)
		c->kernels->swiglu(c->context, c->dtype, product,
			operand_saved(leaf, s->of[MODULE_GATE], TENSOR_GATE), up, n);
	else
		c->kernels->gelu(
			c->context, c->dtype, a->gelu_tanh ? GELU_TANH : GELU_ERF, product, up, n);
}

/* A recomputation needs only the tensor that its adapter saves. */
static void forward_down(const struct leaf *leaf)
{
	const struct siblings *s = leaf_siblings(leaf);

	if (leaf->op->kind == OP_RECOMPUTE) {
		const struct gemm base = leaf_product(leaf, NULL);

		leaf_compress(leaf, &base);
		return;
	}
	project_to_stream(leaf, operand_residual_out(leaf),
		operand_saved(leaf, s->of[MODULE_ATTENTION_OUTPUT], TENSOR_RESIDUAL_MIDDLE));
}

static void forward_head(const struct leaf *leaf)
{
	void *logits, *part = operand_part(leaf);

	if (plan_chunks_head(&leaf->compute->schedule->plan))
		return;
	logits = operand_role(leaf, BUFFER_LOGITS);
	project(leaf, logits);
	if (part != NULL)
		leaf_loss_part(leaf, logits, part);
}

/* Containers have no entry: they do nothing themselves. */
static void (*const forward_leaf[MODULE_KIND_COUNT])(const struct leaf *) = {
	[MODULE_EMBEDDING] = forward_embedding,
	[MODULE_POSITION_EMBEDDING] = forward_position_embedding,
	[MODULE_NORM] = forward_norm,
	[MODULE_QKV] = forward_projection,
	[MODULE_QUERY] = forward_projection,
	[MODULE_KEY] = forward_projection,
	[MODULE_VALUE] = forward_projection,
	[MODULE_QUERY_NORM] = forward_head_norm,
	[MODULE_KEY_NORM] = forward_head_norm,
	[MODULE_ATTENTION_CORE] = forward_attention_core,
	[MODULE_ATTENTION_OUTPUT] = forward_attention_output,
	[MODULE_GATE] = forward_projection,
	[MODULE_UP] = forward_up,
	[MODULE_ACTIVATION] = forward_activation,
	[MODULE_DOWN] = forward_down,
	[MODULE_ROUTER] = forward_router,
	[MODULE_EXPERTS_GATE] = forward_experts_projection,
	[MODULE_EXPERTS_UP] = forward_experts_projection,
	[MODULE_EXPERTS_ACTIVATION] = forward_experts_activation,
	[MODULE_EXPERTS_DOWN] = forward_experts_down,
	[MODULE_HEAD] = forward_head,
};

void forward_leaves(struct compute *compute, const struct op *op)
{
	add_sum(&(struct leaf){.compute = compute, .op = op, .module = op->first_module});
	for (int m = op->first_module; m < op->end_module; m++) {
		enum module_kind kind = compute->model->modules[m].kind;

		if (forward_leaf[kind] != NULL)
			forward_leaf[kind](
				&(struct leaf){.compute = compute, .op = op, .module = m});
	}
}
