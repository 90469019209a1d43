/* The tensors that forward keeps for backward, as a table of (leaf, tensor, size, condition). */
#include "models/activations.h"

#include "models/widths.h"

static const char *const role_names[] = {
#define X(suffix, name) [TENSOR_##suffix] = name,
	TENSOR_ROLES(X)
#undef X
};

/* What an element of a saved tensor is. */
enum element {
	ELEMENT_COMPUTE,
	ELEMENT_INPUT, /* of a linear layer of a block */
	ELEMENT_FP32,
	ELEMENT_INT64,
	ELEMENT_PROBABILITY,
	ELEMENT_MASK
};

struct request {
	const struct architecture *architecture;
	const struct activation_rules *rules;
	struct row_counts rows;
	int64_t seq_len;
	bool sends_rows;
};

static bool norm_unfused(const struct request *r)
{
	return r->rules->norm_unfused;
}

static bool flash(const struct request *r)
{
	return attention_is_flash(r->rules->attention);
}

static bool projection_keeps_input(const struct request *r)
{
	return r->rules->projection_keeps_input;
}

/* cuDNN's kernels read q, k and v where they are, in the result of one projection. */
static bool keeps_projection(const struct request *r)
{
	return projection_keeps_input(r) && r->rules->attention == ATTENTION_FLASH3;
}

/* So what is rotated is kept beside it; and queries of groups are a copy. */
static bool copies_query(const struct request *r)
{
	const struct architecture *a = r->architecture;

	return keeps_projection(r) && (a->positions == POSITIONS_ROPE || a->kv_heads < a->heads);
}

static bool copies_key(const struct request *r)
{
	return keeps_projection(r) && r->architecture->positions == POSITIONS_ROPE;
}

/* q is a part of the tensor that k and v were copied out of. */
static bool keeps_query_whole(const struct request *r)
{
	return r->rules->keeps_products_whole &&
	       r->architecture->kv_heads == r->architecture->heads;
}

static bool keeps_query_alone(const struct request *r)
{
	return !keeps_query_whole(r);
}

static bool attention_keeps_result(const struct request *r)
{
	bool shared = r->rules->attention == ATTENTION_FLASH3 && !r->rules->fp8_inputs;

	return !projection_keeps_input(r) || (flash(r) && !shared);
}

static bool dropout(const struct request *r)
{
	return r->rules->dropout;
}

/* Flash never has them; selective checkpointing computes them again. */
static bool keeps_probabilities(const struct request *r)
{
	return r->rules->attention == ATTENTION_EAGER && !r->rules->drop_attention;
}

static bool keeps_activated_gate(const struct request *r)
{
	return r->rules->keeps_activated_gate && architecture_is_gated(r->architecture);
}

static bool gated(const struct request *r)
{
	return architecture_is_gated(r->architecture);
}

static bool has_adapters(const struct request *r)
{
	return r->architecture->trainable.rank > 0;
}

static bool has_experts(const struct request *r)
{
	return r->architecture->experts > 0;
}

/* Beside what the router reads, which stays in the compute dtype. */
static bool keeps_cast_input(const struct request *r)
{
	return r->rules->fp8_inputs;
}

/* Ranks hold experts of one another's tokens. */
static bool sends_rows(const struct request *r)
{
	return r->sends_rows;
}

static bool keeps_experts(const struct request *r)
{
	return !r->sends_rows;
}

static bool routes_in_fp32(const struct request *r)
{
	return r->rules->routes_in_fp32;
}

static bool weighs_results(const struct request *r)
{
	return !r->rules->weighs_activations && !routes_in_fp32(r);
}

static bool has_fp32_results(const struct request *r)
{
	return has_experts(r) && routes_in_fp32(r);
}

/* Fused with the weights only where it is gated. */
static bool weighs_apart(const struct request *r)
{
	return r->rules->weighs_activations && !architecture_is_gated(r->architecture);
}

static bool sorts_rows(const struct request *r)
{
	return r->rules->keeps_row_order;
}

static bool keeps_picked_rows(const struct request *r)
{
	return r->rules->keeps_picked_rows;
}

/* Else they are the tokens of the residual stream, which the router keeps. */
static bool keeps_gathered_tokens(const struct request *r)
{
	return keeps_picked_rows(r) && sends_rows(r);
}

/* ReLU needs its result only, which is the input of the next product. */
static bool keeps_up(const struct request *r)
{
	return r->architecture->mlp != MLP_RELU;
}

static bool keeps_gate_and_up(const struct request *r)
{
	return r->rules->keeps_products_whole && architecture_is_gated(r->architecture);
}

static bool keeps_gate_alone(const struct request *r)
{
	return !keeps_gate_and_up(r);
}

static bool keeps_up_alone(const struct request *r)
{
	return keeps_up(r) && !keeps_gate_and_up(r);
}

/* Side by side, attention and MLP are added to the residual stream in one go. */
static bool adds_twice(const struct request *r)
{
	return r->architecture->block != BLOCK_PARALLEL &&
	       r->architecture->block != BLOCK_PARALLEL_NORMS;
}

/* In the order in which a leaf produces them. A width is elements per token. */
static const struct saved {
	enum module_kind kind;
	enum tensor_role role;
	enum width width;
	enum element element;
	bool (*when)(const struct request *); /* NULL = always */
} saved[] = {
	{MODULE_NORM, TENSOR_NORM_UPCAST, WIDTH_STREAM, ELEMENT_FP32, norm_unfused},
	{MODULE_NORM, TENSOR_NORM_STATISTICS, WIDTH_STREAM_STATISTICS, ELEMENT_FP32, NULL},
	{MODULE_NORM, TENSOR_NORM_OUT, WIDTH_INPUT, ELEMENT_INPUT, NULL},
	{MODULE_EMBEDDING_NORM, TENSOR_NORM_UPCAST, WIDTH_STREAM, ELEMENT_FP32, norm_unfused},
	{MODULE_EMBEDDING_NORM, TENSOR_NORM_STATISTICS, WIDTH_STREAM_STATISTICS, ELEMENT_FP32,
		NULL},
	{MODULE_EMBEDDING_NORM, TENSOR_NORM_OUT, WIDTH_STREAM, ELEMENT_COMPUTE, NULL},
	{MODULE_EMBEDDING, TENSOR_DROPOUT_MASK, WIDTH_STREAM, ELEMENT_MASK, dropout},
	/* A narrower embedding is the input of its projection. */
	{MODULE_EMBEDDING_PROJECTION, TENSOR_NORM_OUT, WIDTH_EMBEDDING, ELEMENT_COMPUTE, NULL},
	/* What a block of prediction looked up, and what it adds to. */
	{MODULE_NEXT_PROJECTION, TENSOR_RESIDUAL_MIDDLE, WIDTH_TWO_HIDDEN, ELEMENT_COMPUTE, NULL},
	{MODULE_HEAD_PROJECTION, TENSOR_NORM_OUT, WIDTH_EMBEDDING, ELEMENT_COMPUTE, NULL},
	{MODULE_QUERY_DOWN, TENSOR_LATENT, WIDTH_QUERY_RANK, ELEMENT_COMPUTE, NULL},
	{MODULE_QUERY_DOWN_NORM, TENSOR_NORM_UPCAST, WIDTH_QUERY_RANK, ELEMENT_FP32, norm_unfused},
	{MODULE_QUERY_DOWN_NORM, TENSOR_NORM_STATISTICS, WIDTH_NORM_STATISTICS, ELEMENT_FP32, NULL},
	{MODULE_QUERY_DOWN_NORM, TENSOR_NORM_OUT, WIDTH_QUERY_RANK, ELEMENT_INPUT, NULL},
	{MODULE_KV_DOWN, TENSOR_LATENT, WIDTH_KV_DOWN, ELEMENT_COMPUTE, NULL},
	{MODULE_KV_DOWN_NORM, TENSOR_NORM_UPCAST, WIDTH_KV_RANK, ELEMENT_FP32, norm_unfused},
	{MODULE_KV_DOWN_NORM, TENSOR_NORM_STATISTICS, WIDTH_NORM_STATISTICS, ELEMENT_FP32, NULL},
	{MODULE_KV_DOWN_NORM, TENSOR_NORM_OUT, WIDTH_KV_RANK, ELEMENT_INPUT, NULL},
	/* v stays inside of the projection's result, k is put together in a tensor of its own. */
	{MODULE_KV_UP, TENSOR_VALUE, WIDTH_KV_UP, ELEMENT_COMPUTE, NULL},
	{MODULE_KV_UP, TENSOR_KEY, WIDTH_KEY, ELEMENT_COMPUTE, NULL},
	{MODULE_QKV, TENSOR_QKV, WIDTH_QKV, ELEMENT_COMPUTE, NULL},
	{MODULE_QKV, TENSOR_QUERY, WIDTH_QUERY, ELEMENT_COMPUTE, copies_query},
	{MODULE_QKV, TENSOR_KEY, WIDTH_KEY, ELEMENT_COMPUTE, copies_key},
	{MODULE_QUERY, TENSOR_QUERY, WIDTH_QUERY, ELEMENT_COMPUTE, keeps_query_alone},
	{MODULE_QUERY, TENSOR_QKV, WIDTH_QKV, ELEMENT_COMPUTE, keeps_query_whole},
	{MODULE_KEY, TENSOR_KEY, WIDTH_KEY, ELEMENT_COMPUTE, NULL},
	{MODULE_VALUE, TENSOR_VALUE, WIDTH_VALUE, ELEMENT_COMPUTE, NULL},
	{MODULE_VALUE, TENSOR_QUERY, WIDTH_QUERY, ELEMENT_COMPUTE, copies_query},
	{MODULE_VALUE, TENSOR_KEY, WIDTH_KEY, ELEMENT_COMPUTE, copies_key},
	{MODULE_QUERY_NORM, TENSOR_NORM_UPCAST, WIDTH_QUERY, ELEMENT_FP32, norm_unfused},
	{MODULE_QUERY_NORM, TENSOR_QK_NORM_STATISTICS, WIDTH_QUERY_STATISTICS, ELEMENT_FP32, NULL},
	{MODULE_QUERY_NORM, TENSOR_QK_NORM_OUT, WIDTH_QUERY, ELEMENT_COMPUTE, NULL},
	{MODULE_KEY_NORM, TENSOR_NORM_UPCAST, WIDTH_KEY, ELEMENT_FP32, norm_unfused},
	{MODULE_KEY_NORM, TENSOR_QK_NORM_STATISTICS, WIDTH_KEY_STATISTICS, ELEMENT_FP32, NULL},
	{MODULE_KEY_NORM, TENSOR_QK_NORM_OUT, WIDTH_KEY, ELEMENT_COMPUTE, NULL},
	{MODULE_ATTENTION_CORE, TENSOR_ATTENTION_OUT, WIDTH_ATTENTION, ELEMENT_COMPUTE,
		attention_keeps_result},
	{MODULE_ATTENTION_CORE, TENSOR_LOG_SUM_EXP, WIDTH_HEADS, ELEMENT_FP32, flash},
	{MODULE_ATTENTION_CORE, TENSOR_PROBABILITIES, WIDTH_HEADS, ELEMENT_PROBABILITY,
		keeps_probabilities},
	{MODULE_ATTENTION_OUTPUT, TENSOR_ATTENTION_COPY, WIDTH_ATTENTION, ELEMENT_INPUT,
		projection_keeps_input},
	{MODULE_ATTENTION_OUTPUT, TENSOR_DROPOUT_MASK, WIDTH_STREAM, ELEMENT_MASK, dropout},
	{MODULE_ATTENTION_OUTPUT, TENSOR_RESIDUAL_MIDDLE, WIDTH_STREAM, ELEMENT_COMPUTE,
		adds_twice},
	{MODULE_GATE, TENSOR_GATE, WIDTH_FFN, ELEMENT_COMPUTE, keeps_gate_alone},
	{MODULE_GATE, TENSOR_GATE, WIDTH_GATE_UP, ELEMENT_COMPUTE, keeps_gate_and_up},
	{MODULE_UP, TENSOR_UP, WIDTH_FFN, ELEMENT_COMPUTE, keeps_up_alone},
	{MODULE_GATE_UP, TENSOR_GATE, WIDTH_FFN, ELEMENT_COMPUTE, NULL},
	{MODULE_GATE_UP, TENSOR_UP, WIDTH_FFN, ELEMENT_COMPUTE, NULL},
	{MODULE_ACTIVATION, TENSOR_ACTIVATED_GATE, WIDTH_FFN, ELEMENT_COMPUTE,
		keeps_activated_gate},
	{MODULE_ACTIVATION, TENSOR_PRODUCT, WIDTH_FFN, ELEMENT_INPUT, NULL},
	{MODULE_DOWN, TENSOR_DROPOUT_MASK, WIDTH_STREAM, ELEMENT_MASK, dropout},
	/* Every token stands k times in the input and in the result of the experts. What they get
	 * from other ranks too is kept where they compute. */
	{MODULE_ROUTER, TENSOR_ROUTER_INPUT, WIDTH_ROUTER_HIDDEN, ELEMENT_FP32, routes_in_fp32},
	{MODULE_ROUTER, TENSOR_ROUTER_PROBABILITIES, WIDTH_EXPERTS, ELEMENT_FP32, NULL},
	{MODULE_ROUTER, TENSOR_ROW_ORDER, WIDTH_EXPERTS, ELEMENT_INT64, sorts_rows},
	{MODULE_ROUTER, TENSOR_DISPATCHED, WIDTH_GATHERED_HIDDEN, ELEMENT_COMPUTE,
		keeps_gathered_tokens},
	{MODULE_ROUTER, TENSOR_DISPATCHED, WIDTH_ROUTED_HIDDEN, ELEMENT_COMPUTE, keeps_picked_rows},
	{MODULE_ROUTER, TENSOR_DISPATCHED, WIDTH_SENT_HIDDEN, ELEMENT_INPUT, keeps_experts},
	{MODULE_EXPERTS_UP, TENSOR_DISPATCHED, WIDTH_ROUTED_HIDDEN, ELEMENT_INPUT, sends_rows},
	{MODULE_EXPERTS_GATE, TENSOR_GATE, WIDTH_ROUTED_FFN, ELEMENT_COMPUTE, NULL},
	{MODULE_EXPERTS_UP, TENSOR_UP, WIDTH_ROUTED_FFN, ELEMENT_COMPUTE, keeps_up},
	{MODULE_EXPERTS_ACTIVATION, TENSOR_ACTIVATED_GATE, WIDTH_ROUTED_FFN, ELEMENT_COMPUTE,
		keeps_activated_gate},
	{MODULE_EXPERTS_ACTIVATION, TENSOR_ACTIVATED_GATE, WIDTH_ROUTED_FFN, ELEMENT_COMPUTE,
		weighs_apart},
	{MODULE_EXPERTS_ACTIVATION, TENSOR_PRODUCT, WIDTH_ROUTED_FFN, ELEMENT_INPUT, NULL},
	{MODULE_EXPERTS_DOWN, TENSOR_EXPERT_OUT, WIDTH_SENT_HIDDEN, ELEMENT_COMPUTE,
		weighs_results},
	{MODULE_EXPERTS_DOWN, TENSOR_EXPERT_OUT, WIDTH_SENT_HIDDEN, ELEMENT_FP32, routes_in_fp32},
	{MODULE_SHARED_UP, TENSOR_NORM_OUT, WIDTH_INPUT, ELEMENT_INPUT, keeps_cast_input},
	{MODULE_SHARED_GATE, TENSOR_GATE, WIDTH_SHARED_FFN, ELEMENT_COMPUTE, NULL},
	{MODULE_SHARED_UP, TENSOR_UP, WIDTH_SHARED_FFN, ELEMENT_COMPUTE, keeps_up},
	{MODULE_SHARED_ACTIVATION, TENSOR_ACTIVATED_GATE, WIDTH_SHARED_FFN, ELEMENT_COMPUTE,
		keeps_activated_gate},
	{MODULE_SHARED_ACTIVATION, TENSOR_PRODUCT, WIDTH_SHARED_FFN, ELEMENT_INPUT, NULL},
	/* The scalar weighs the shared expert's result, which backward needs for its gradient. */
	{MODULE_SHARED_WEIGHT, TENSOR_EXPERT_OUT, WIDTH_ROUTER_HIDDEN, ELEMENT_COMPUTE, NULL},
};

/* Alive while backward walks through a block. Each part starts after what every part shares. */
enum part { PART_SHARED, PART_ATTENTION, PART_MLP, PART_RESULTS, PART_COUNT };

static const struct backward {
	enum part part;
	enum tensor_role role;
	enum width width;
	bool (*when)(const struct request *);
	enum element element;
} backward[] = {
	{PART_SHARED, TENSOR_D_RESIDUAL, WIDTH_STREAM, NULL},
	{PART_SHARED, TENSOR_D_NORM, WIDTH_HIDDEN, NULL},
	{PART_SHARED, TENSOR_D_ADAPTER, WIDTH_ADAPTER, has_adapters},
	{PART_ATTENTION, TENSOR_D_ATTENTION_OUT, WIDTH_ATTENTION, NULL},
	{PART_ATTENTION, TENSOR_D_QKV, WIDTH_QKV, NULL},
	{PART_MLP, TENSOR_D_PRODUCT, WIDTH_WIDEST_FFN, NULL},
	{PART_MLP, TENSOR_D_GATE, WIDTH_WIDEST_FFN, gated},
	{PART_MLP, TENSOR_D_UP, WIDTH_WIDEST_FFN, NULL},
	{PART_MLP, TENSOR_D_DISPATCHED, WIDTH_ROUTED_HIDDEN, has_experts},
	/* The gradient of the weighed results, of the results, and what sums up to the weights'. */
	{PART_RESULTS, TENSOR_D_EXPERT_OUT, WIDTH_SENT_HIDDEN, has_fp32_results, ELEMENT_FP32},
	{PART_RESULTS, TENSOR_D_EXPERT_OUT, WIDTH_SENT_HIDDEN, has_fp32_results, ELEMENT_FP32},
	{PART_RESULTS, TENSOR_D_EXPERT_OUT, WIDTH_SENT_HIDDEN, has_fp32_results, ELEMENT_FP32},
};
_Static_assert(COUNT_OF(backward) <= BACKWARD_TENSORS_MAX, "the caller's array holds them all");

const char *tensor_role_name(enum tensor_role role)
{
	return role_names[role];
}

static struct request make_request(const struct model *model, const struct activation_rules *rules,
	int64_t sequences, int64_t seq_len)
{
	struct row_counts rows = model_rows(model, sequences, seq_len);

	rows.received = rows.room;
	return (struct request){
		.architecture = &model->architecture,
		.rules = rules,
		.rows = rows,
		.seq_len = seq_len,
		.sends_rows = division_sends_rows(&model->division),
	};
}

/* Bytes per element. A softmax in fp32 keeps its result and the cast to a narrower dtype, dropout
 * its mask and what it returns. */
static int64_t element_bytes(const struct activation_rules *rules, enum element element)
{
	int64_t compute = dtype_bytes(rules->dtype);

	if (element == ELEMENT_FP32)
		return 4;
	if (element == ELEMENT_INT64)
		return 8;
	if (element == ELEMENT_MASK)
		return 1;
	if (element != ELEMENT_PROBABILITY)
		return compute;
	if (rules->softmax_fp32 && compute < 4)
		compute += 4;
	return rules->dropout ? compute + 1 + dtype_bytes(rules->dtype) : compute;
}

/* Inputs of linear layers may be kept as these read them, with their scales. */
static int64_t elements_bytes(
	const struct activation_rules *rules, enum element element, int64_t elements)
{
	int64_t scales = rules->fp8_scaled > 0 ? elements / rules->fp8_scaled : 0;

	if (element == ELEMENT_INPUT && rules->fp8_inputs)
		return elements / rules->fp8_per_byte + scales;
	return saturated_mul(elements, element_bytes(rules, element));
}

static int64_t rows_of(const struct request *r, enum width width)
{
	if (width == WIDTH_INPUT)
		return r->rules->keeps_gathered_input || has_adapters(r) ? r->rows.tokens
									 : r->rows.stream;
	return rows_of_width(&r->rows, width);
}

/* All blocks have experts, or some have the dense width. */
static int64_t widest_ffn(const struct request *r)
{
	const struct architecture *a = r->architecture;
	int64_t routed = saturated_add(saturated_mul(r->rows.received, a->expert_ffn),
		saturated_mul(r->rows.tokens, a->shared_ffn));
	bool dense = a->experts == 0 || a->dense_layers > 0 || a->moe_every > 1;

	return max_i64(routed, dense ? saturated_mul(r->rows.tokens, a->ffn) : 0);
}

static int64_t tensor_bytes(const struct request *r, enum width width, enum element element)
{
	int64_t per_token = architecture_width(r->architecture, width);

	if (width == WIDTH_WIDEST_FFN)
		return elements_bytes(r->rules, element, widest_ffn(r));

	/* A row of probabilities is as long as the sequence. */
	if (element == ELEMENT_PROBABILITY)
		per_token = saturated_mul(per_token, r->seq_len);
	return elements_bytes(r->rules, element, saturated_mul(per_token, rows_of(r, width)));
}

/* Places a tensor at `*end`, which moves behind it. */
static void place(const struct request *r, enum tensor_role role, int64_t bytes,
	struct tensor *tensor, int64_t *end)
{
	int64_t alignment = max_i64(r->rules->alignment, 1);

	*tensor = (struct tensor){.role = role, .offset = *end, .bytes = bytes};
	*end = saturated_add(*end, round_up(bytes, alignment));
}

/* The input of a projection, saved for the gradient of its weight alone. Flash attention reads its
 * own result too. */
static bool is_dropped(const struct request *r, const struct module *module, enum tensor_role role)
{
	if (role == TENSOR_ATTENTION_COPY)
		return r->rules->drops_unread && !module_reads_input(module) &&
		       attention_keeps_result(r);
	if (!r->rules->drops_unread || !module->unread)
		return false;
	return role == TENSOR_NORM_OUT || role == TENSOR_PRODUCT ||
	       (role == TENSOR_ATTENTION_OUT && !flash(r));
}

static bool feeds_router(const struct model *model, int module)
{
	int next = module + 1;

	while (next < model->n_modules && !module_kind_is_leaf(model->modules[next].kind))
		next++;
	return next < model->n_modules && model->modules[next].kind == MODULE_ROUTER;
}

/* Does a layer in the compute dtype read it: the head or a router what the norm returns, or an
 * adapter? */
static bool is_read_uncast(const struct request *r, const struct model *model, int module)
{
	const struct module *m = &model->modules[module];

	return has_adapters(r) ||
	       (m->kind == MODULE_NORM && (m->layer < 0 || feeds_router(model, module)));
}

/* Routers that read the stream's tokens need no others, unless shared experts do. */
static enum width width_of(const struct model *model, int module, const struct saved *row)
{
	bool routed = row->width == WIDTH_INPUT && model->division.routes_stream &&
		      model->architecture.shared_ffn == 0 && feeds_router(model, module);

	return routed ? WIDTH_STREAM : row->width;
}

int model_saved_tensors(const struct model *model, int module, const struct activation_rules *rules,
	int64_t sequences, int64_t seq_len, struct tensor tensors[MODULE_TENSORS_MAX],
	int64_t *bytes)
{
	struct request r = make_request(model, rules, sequences, seq_len);
	const struct module *m = &model->modules[module];
	int n = 0;

	*bytes = 0;
	for (int i = 0; i < COUNT_OF(saved); i++) {
		const struct saved *s = &saved[i];

		if (s->kind != m->kind || (s->when != NULL && !s->when(&r)) ||
			is_dropped(&r, m, s->role))
			continue;
		bool uncast = s->element == ELEMENT_INPUT && is_read_uncast(&r, model, module);
		enum width width = width_of(model, module, s);
		place(&r, s->role, tensor_bytes(&r, width, uncast ? ELEMENT_COMPUTE : s->element),
			&tensors[n++], bytes);
	}
	if (m->adapter >= 0)
		place(&r, TENSOR_ADAPTER, tensor_bytes(&r, WIDTH_ADAPTER, ELEMENT_COMPUTE),
			&tensors[n++], bytes);
	return n;
}

int64_t model_saved_bytes(const struct model *model, int first, int end,
	const struct activation_rules *rules, int64_t sequences, int64_t seq_len)
{
	struct tensor tensors[MODULE_TENSORS_MAX];
	int64_t total = 0, bytes;

	for (int i = first; i < end; i++) {
		model_saved_tensors(model, i, rules, sequences, seq_len, tensors, &bytes);
		total = saturated_add(total, bytes);
	}
	return total;
}

/* Leaves with weights that are no linear ones, by what they write. */
static const struct {
	enum module_kind kind;
	enum width width;
} norms[] = {
	{MODULE_NORM, WIDTH_STREAM},
	{MODULE_EMBEDDING_NORM, WIDTH_STREAM},
	{MODULE_QUERY_DOWN_NORM, WIDTH_QUERY_RANK},
	{MODULE_KV_DOWN_NORM, WIDTH_KV_RANK},
	{MODULE_QUERY_NORM, WIDTH_QUERY},
	{MODULE_KEY_NORM, WIDTH_KEY},
};

/* Side by side, attention and MLP get one and the same gradient. */
static bool shares_gradient(const struct request *r, enum module_kind kind)
{
	return kind == MODULE_HEAD || (kind == MODULE_ATTENTION_OUTPUT && !adds_twice(r));
}

static int64_t output_gradient_bytes(const struct request *r, enum module_kind kind)
{
	int64_t out, in, compute = dtype_bytes(r->rules->dtype);
	int64_t rows = module_kind_is_of_experts(kind) ? r->rows.received : r->rows.tokens;

	if (shares_gradient(r, kind))
		return 0;
	if (module_linear_shape(r->architecture, kind, &out, &in))
		return saturated_mul(saturated_mul(rows, out), compute);
	for (int i = 0; i < COUNT_OF(norms); i++)
		if (norms[i].kind == kind)
			return tensor_bytes(r, norms[i].width, ELEMENT_COMPUTE);
	return 0;
}

int64_t model_output_gradient_bytes(const struct model *model, int first, int end,
	const struct activation_rules *rules, int64_t sequences, int64_t seq_len)
{
	struct request r = make_request(model, rules, sequences, seq_len);
	int64_t total = 0;

	for (int i = first; i < end; i++)
		total = saturated_add(
			total, round_up(output_gradient_bytes(&r, model->modules[i].kind),
				       max_i64(rules->alignment, 1)));
	return total;
}

int64_t model_residual_bytes(const struct model *model, const struct activation_rules *rules,
	int64_t sequences, int64_t seq_len)
{
	struct request r = make_request(model, rules, sequences, seq_len);

	return tensor_bytes(&r, WIDTH_STREAM, ELEMENT_COMPUTE);
}

int model_backward_tensors(const struct model *model, const struct activation_rules *rules,
	int64_t sequences, int64_t seq_len, struct tensor tensors[BACKWARD_TENSORS_MAX],
	int64_t *bytes)
{
	struct request r = make_request(model, rules, sequences, seq_len);
	int64_t ends[PART_COUNT] = {0};
	int n = 0;

	for (int i = 0; i < COUNT_OF(backward); i++) {
		const struct backward *b = &backward[i];
		int64_t *end = &ends[b->part];

		if (b->when != NULL && !b->when(&r))
			continue;
		*end = max_i64(*end, ends[PART_SHARED]);
		place(&r, b->role, tensor_bytes(&r, b->width, b->element), &tensors[n++], end);
	}
	*bytes = 0;
	for (int part = 0; part < PART_COUNT; part++)
		*bytes = max_i64(*bytes, ends[part]);
	return n;
}
