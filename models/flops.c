/* What leaves compute and move. Everything is in tables by kind: a linear leaf is one matrix
 * product forward and two backward, an element-wise one is a number of passes over a width. */
#include "models/flops.h"

#include <math.h>

#include "models/widths.h"

const char *const attention_kind_names[] = {[ATTENTION_FLASH] = "flash",
	[ATTENTION_EAGER] = "eager",
	[ATTENTION_FLASH1] = "flash1",
	[ATTENTION_FLASH2] = "flash2",
	[ATTENTION_FLASH3] = "flash3",
	NULL};

/* Elements read and written per token and element of `width`, and launches, by pass: once by fused
 * kernels, once as eager PyTorch runs them, operation by operation (docs/models.md counts them).
 * The residual addition belongs to ATTENTION_OUTPUT and DOWN: two reads, one write; backward adds
 * the gradients of the two branches. */
struct passes {
	double forward, backward;
	int forward_kernels, backward_kernels;
};
struct traffic {
	enum width width;
	struct passes fused, eager;
};

/* LayerNorm is one kernel in PyTorch too; its backward reads x and dy again for the weight. RMSNorm
 * is written in fp32 pieces: cast, square, mean, scale, cast, weight. */
#define LAYER_NORM                                                                                 \
	{                                                                                          \
		2, 5, 1, 2                                                                         \
	}
#define RMS_NORM_EAGER                                                                             \
	{                                                                                          \
		18, 36, 6, 12                                                                      \
	}
/* Of gated activations, which read two tensors, and of the plain ones. */
#define GATED                                                                                      \
	{3, 5, 1, 1},                                                                              \
	{                                                                                          \
		5, 9, 2, 4                                                                         \
	}
#define PLAIN                                                                                      \
	{2, 3, 1, 1},                                                                              \
	{                                                                                          \
		2, 3, 1, 1                                                                         \
	}

static const struct traffic traffic[MODULE_KIND_COUNT] = {
	/* backward: read, then add to rows */
	[MODULE_EMBEDDING] = {WIDTH_EMBEDDING, {2, 3, 1, 1}, {2, 3, 1, 3}},
	[MODULE_POSITION_EMBEDDING] = {WIDTH_STREAM, {3, 1, 1, 1}, {3, 1, 2, 2}},
	[MODULE_EMBEDDING_NORM] = {WIDTH_STREAM, LAYER_NORM, LAYER_NORM},
	[MODULE_NORM] = {WIDTH_STREAM, LAYER_NORM, LAYER_NORM},
	[MODULE_QUERY_DOWN_NORM] = {WIDTH_QUERY_RANK, LAYER_NORM, RMS_NORM_EAGER},
	[MODULE_KV_DOWN_NORM] = {WIDTH_KV_RANK, LAYER_NORM, RMS_NORM_EAGER},
	/* Latent attention: k is put together from its two parts. */
	[MODULE_KV_UP] = {WIDTH_QUERY, {2, 2, 1, 1}, {2, 2, 1, 1}},
	[MODULE_QUERY_NORM] = {WIDTH_QUERY, LAYER_NORM, RMS_NORM_EAGER},
	[MODULE_KEY_NORM] = {WIDTH_KEY, LAYER_NORM, RMS_NORM_EAGER},
	[MODULE_ATTENTION_OUTPUT] = {WIDTH_STREAM, {3, 3, 1, 1}, {3, 3, 1, 1}},
	[MODULE_DOWN] = {WIDTH_STREAM, {3, 3, 1, 1}, {3, 3, 1, 1}},
	/* Scores over the experts, the k best, the order of tokens by expert; then the copy of each
	 * token to its experts (add_dispatch). */
	[MODULE_ROUTER] = {WIDTH_EXPERTS, {4, 4, 6, 4}, {4, 4, 6, 4}},
	/* The products' results, weighted and added to the residual stream. */
	[MODULE_EXPERTS_DOWN] = {WIDTH_SENT_HIDDEN, {3, 6, 3, 3}, {3, 6, 3, 3}},
	/* What is projected is put together before. */
	[MODULE_NEXT_PROJECTION] = {WIDTH_TWO_HIDDEN, {2, 2, 1, 1}, {2, 2, 1, 1}},
	[MODULE_SHARED_DOWN] = {WIDTH_STREAM, {3, 3, 1, 1}, {3, 3, 1, 1}},
	[MODULE_SHARED_WEIGHT] = {WIDTH_ROUTER_HIDDEN, {2, 4, 2, 3}, {2, 4, 2, 3}},
};
static const struct passes rms_norm_eager = RMS_NORM_EAGER;
/* Of activations, by whose MLP it is. */
static const struct {
	enum module_kind kind;
	struct traffic gated, plain;
} activations[] = {
	{MODULE_ACTIVATION, {WIDTH_FFN, GATED}, {WIDTH_FFN, PLAIN}},
	{MODULE_EXPERTS_ACTIVATION, {WIDTH_ROUTED_FFN, GATED}, {WIDTH_ROUTED_FFN, PLAIN}},
	{MODULE_SHARED_ACTIVATION, {WIDTH_SHARED_FFN, GATED}, {WIDTH_SHARED_FFN, PLAIN}},
};
static const struct traffic dispatch_traffic = {WIDTH_SENT_HIDDEN, {2, 3, 1, 1}, {2, 3, 1, 1}};
/* What came from other ranks is sorted by expert, and back. */
static const struct traffic sort_traffic = {WIDTH_ROUTED_HIDDEN, {4, 6, 2, 2}, {4, 6, 2, 2}};
static const struct traffic rope_traffic = {WIDTH_ROTATED, {2, 2, 1, 1}, {10, 10, 8, 8}};

/* The score matrix of eager attention, a*s elements per token: forward scales, masks and normalises
 * it (three reads, three writes); backward undoes softmax (two reads, a write) and the scale. */
static const struct traffic eager_traffic = {WIDTH_HEADS, {6, 5, 5, 6}, {6, 5, 5, 6}};
static const struct traffic flash_traffic = {WIDTH_NONE, {0, 0, 1, 3}, {0, 0, 1, 3}};

/* What eager PyTorch does in fp32 inside of a half-precision model is counted in elements of two
 * bytes; an fp32 model needs no casts and moves half as many elements. */
static double elements_of(const struct passes *p, enum pass pass, bool halved)
{
	return (pass == PASS_FORWARD ? p->forward : p->backward) / (halved ? 2 : 1);
}

static void add_traffic(struct module_work *work, const struct traffic *t, enum pass pass,
	double elements_per_width, const struct architecture *a, int element_bytes)
{
	double bytes = (double)architecture_width(a, t->width) * elements_per_width * element_bytes;
	bool wide = element_bytes >= 4;
	double fused = elements_of(&t->fused, pass, false);
	double eager = elements_of(&t->eager, pass, wide);
	bool forward = pass == PASS_FORWARD;

	work->memory_bytes += fused * bytes;
	work->eager_bytes += (eager > fused ? eager : fused) * bytes;
	work->kernels += forward ? t->fused.forward_kernels : t->fused.backward_kernels;
	work->eager_kernels += forward ? t->eager.forward_kernels : t->eager.backward_kernels;
}

/* The leaf's own entry; a norm over the hidden size is what the architecture says. */
static void add_leaf(struct module_work *work, enum module_kind kind, enum pass pass,
	const struct row_counts *rows, const struct architecture *a, int element_bytes)
{
	struct traffic t = traffic[kind];

	if ((kind == MODULE_NORM || kind == MODULE_EMBEDDING_NORM) && a->norm == NORM_RMSNORM)
		t.eager = rms_norm_eager;
	add_traffic(work, &t, pass, (double)rows_of_width(rows, t.width), a, element_bytes);
}

static void add_gemm(struct module_work *work, int64_t m, int64_t n, int64_t k, int64_t count)
{
	work->gemms[work->n_gemms++] = (struct gemm_shape){m, n, k, count};
	work->kernels++;
	work->eager_kernels++;
}

/* What backward makes at a leaf: the gradient of its input, unless it is the last that backward
 * comes to, and of its weight, unless that is frozen. */
struct wanted {
	bool input, weight;
};

static bool has_input_part(enum pass pass)
{
	return pass != PASS_BACKWARD_WEIGHT;
}

static bool has_weight_part(enum pass pass)
{
	return pass == PASS_BACKWARD || pass == PASS_BACKWARD_WEIGHT;
}

/* Y[T,out] = X[T,in] W^T; backward dX = dY W and dW = dY^T X. `count` of them. */
static void add_linear(struct module_work *work, enum pass pass, struct wanted wanted,
	int64_t tokens, int64_t out, int64_t in, int64_t count)
{
	if (pass == PASS_FORWARD) {
		add_gemm(work, tokens, out, in, count);
		return;
	}
	if (wanted.input && has_input_part(pass))
		add_gemm(work, tokens, in, out, count);
	if (wanted.weight && has_weight_part(pass))
		add_gemm(work, out, in, tokens, count);
}

/* Y += s U B^T with U = X A^T; backward dU = s dY B, dB = s dY^T U, dA = dU^T X, dX += dU A. peft
 * multiplies by s and adds: five passes over Y, and three over dY and dX each. */
static void add_adapter(struct module_work *work, enum pass pass, struct wanted wanted,
	int64_t tokens, int64_t out, int64_t in, struct adapter_ranks rank, int element_bytes)
{
	double width = (double)tokens * element_bytes;

	if (pass == PASS_FORWARD) {
		add_gemm(work, tokens, rank.a, in, 1);
		add_gemm(work, tokens, out, rank.b, 1);
		work->eager_bytes += 5 * (double)out * width;
		work->eager_kernels += 2;
		return;
	}
	if (has_input_part(pass))
		add_gemm(work, tokens, rank.b, out, 1);
	if (has_weight_part(pass)) {
		add_gemm(work, out, rank.b, tokens, 1);
		add_gemm(work, rank.a, in, tokens, 1);
	}
	if (!has_input_part(pass))
		return;
	if (wanted.input)
		add_gemm(work, tokens, in, rank.a, 1);
	work->eager_bytes += (2 * (double)out + 3 * (double)in) * width;
	work->eager_kernels += 2;
}

/* Rows are spread evenly over the rank's experts: one product per expert that has rows, in one
 * launch. Rounded up to whole rows. */
static void add_experts(struct module_work *work, const struct architecture *a, enum pass pass,
	struct wanted wanted, int64_t routed, int64_t out, int64_t in)
{
	int64_t busy = min_i64(architecture_experts_held(a), routed);

	add_linear(work, pass, wanted, (routed + busy - 1) / max_i64(busy, 1), out, in, busy);
}

/* Of a token in a block that does not see all. */
static double seen_in_part(const struct architecture *a, double seq_len)
{
	double window = (double)a->attention_window, chunk = (double)a->attention_chunk;

	if (chunk > 0)
		return fmin(chunk, seq_len) / 2;
	return window > 0 && window < seq_len ? window - window * window / (2 * seq_len)
					      : seq_len / 2;
}

double architecture_seen(const struct architecture *a, int64_t seq_len)
{
	double whole = a->full_attention_every > 0 ? 1 / (double)a->full_attention_every : 0;

	return whole * (double)seq_len / 2 + (1 - whole) * seen_in_part(a, (double)seq_len);
}

/* `share`: of the square of positions that flash computes; causal attention needs a half. */
static void add_core(struct module_work *work, const struct architecture *a, enum pass pass,
	double tokens, double seq_len, int element_bytes, enum attention_kind attention,
	double share)
{
	/* The products QK^T and PV over the full square of positions. */
	double widths = (double)architecture_width(a, WIDTH_QUERY) +
			(double)architecture_width(a, WIDTH_ATTENTION);
	double square = 2.0 * tokens * seq_len * widths;

	if (a->positions == POSITIONS_ROPE)
		add_traffic(work, &rope_traffic, pass, tokens, a, element_bytes);
	if (attention_is_flash(attention)) {
		/* Backward computes the scores again, 5 products for 2. */
		work->attention_flops = square * share * (pass == PASS_FORWARD ? 1 : 2.5);
		add_traffic(work, &flash_traffic, pass, 0, a, element_bytes);
	} else {
		work->attention_flops = square * (pass == PASS_FORWARD ? 1 : 2);
		add_traffic(work, &eager_traffic, pass, tokens * seq_len, a, element_bytes);
	}
}

static void add_activation(struct module_work *work, const struct architecture *a,
	enum module_kind kind, enum pass pass, const struct row_counts *counts, int element_bytes)
{
	for (int i = 0; i < COUNT_OF(activations); i++) {
		const struct traffic *t =
			architecture_is_gated(a) ? &activations[i].gated : &activations[i].plain;

		double rows = (double)rows_of_width(counts, t->width);

		if (activations[i].kind != kind)
			continue;
		add_traffic(work, t, pass, rows, a, element_bytes);
		work->activations = rows * (double)architecture_width(a, t->width);
	}
}

/* A bias is added inside of the product; its gradient is a sum of its own over the output's. */
static void add_bias_gradient(struct module_work *work, double bytes)
{
	work->memory_bytes += bytes;
	work->eager_bytes += bytes;
	work->kernels++;
	work->eager_kernels++;
}

static void add_products(struct module_work *work, const struct model *model,
	const struct module *m, enum pass pass, const struct row_counts *counts, int element_bytes)
{
	const struct architecture *a = &model->architecture;
	bool of_experts = module_kind_is_of_experts(m->kind);
	bool routes = m->kind == MODULE_ROUTER || m->kind == MODULE_SHARED_WEIGHT;
	int64_t rows = of_experts                          ? counts->received
		       : routes                            ? counts->routed
		       : m->kind == MODULE_NEXT_PROJECTION ? counts->stream
							   : counts->tokens;
	const struct wanted wanted = {m - model->modules > model->first_trained, !m->weight_frozen};
	int64_t out, in;

	if (!module_linear_shape(a, m->kind, &out, &in))
		return;
	if (m->kind == MODULE_HEAD)
		rows = saturated_mul(rows, architecture_losses(a));
	if (of_experts)
		add_experts(work, a, pass, wanted, rows, out, in);
	else
		add_linear(work, pass, wanted, rows, out, in, 1);
	int n_own = work->n_gemms;
	if (m->adapter >= 0)
		add_adapter(work, pass, wanted, rows, model->parameters[m->adapter + 1].shape[0],
			in, architecture_adapter_ranks(a, m->kind), element_bytes);
	work->n_of_adapter = work->n_gemms - n_own;
	if (has_weight_part(pass) && module_trains_bias(model, m))
		add_bias_gradient(work, (double)rows * (double)out * element_bytes);
}

static double share_seen(
	const struct model *model, int module, int64_t seq_len, struct attending attending)
{
	int64_t length = attending.document > 0 ? attending.document : seq_len;
	double seen = attending.windows ? architecture_seen(&model->architecture, length)
					: (double)length / 2;

	return module_sees_all(model, module) ? 1 : seen / (double)seq_len;
}

void model_module_work(const struct model *model, int module, enum pass pass, int64_t sequences,
	int64_t seq_len, int element_bytes, struct attending attending, struct module_work *work)
{
	const struct architecture *a = &model->architecture;
	const struct module *m = &model->modules[module];
	const struct row_counts rows = model_rows(model, sequences, seq_len);

	*work = (struct module_work){0};
	if (pass != PASS_FORWARD && !model_goes_back(model, module))
		return;
	add_products(work, model, m, pass, &rows, element_bytes);
	if (!has_input_part(pass))
		return;
	if (m->kind == MODULE_ATTENTION_CORE)
		add_core(work, a, pass, (double)rows.tokens, (double)seq_len, element_bytes,
			attending.kind, share_seen(model, module, seq_len, attending));
	add_activation(work, a, m->kind, pass, &rows, element_bytes);
	if (m->kind == MODULE_ROUTER && !model->division.gathers_tokens)
		add_traffic(work, &dispatch_traffic, pass, (double)rows.sent, a, element_bytes);
	if (m->kind == MODULE_EXPERTS_DOWN && division_sends_rows(&model->division) &&
		!model->division.gathers_tokens)
		add_traffic(work, &sort_traffic, pass, (double)rows.received, a, element_bytes);
	/* The dispatcher of gathered tokens adds up their results itself. */
	add_leaf(work,
		m->kind == MODULE_EXPERTS_DOWN && model->division.gathers_tokens ? MODULE_DOWN
										 : m->kind,
		pass, &rows, a, element_bytes);
}

/* The full square of positions, forward and backward, per token: 3 * 4 * L * a*d * s; an encoder's
 * decoder has two attentions. `causal_share`: of the square, where attention is causal. */
static double attention_per_token(const struct model *model, int64_t seq_len, double causal_share)
{
	const struct architecture *a = &model->architecture;
	double decoder = a->encoder_layers > 0 ? (double)(a->layers - a->encoder_layers) : 0;
	double causal = (double)(a->layers - a->encoder_layers);
	double widths = (double)architecture_width(a, WIDTH_QUERY) +
			(double)architecture_width(a, WIDTH_ATTENTION);

	return 6.0 * widths *
	       (causal * causal_share * 2 * architecture_seen(a, seq_len) +
		       ((double)a->encoder_layers + decoder) * (double)seq_len);
}

int64_t model_trained_elements(const struct model *model, int module)
{
	const struct module *m = &model->modules[module];
	int64_t total = 0;

	for (int p = m->first_parameter; p < m->first_parameter + m->n_parameters; p++)
		total += model->parameters[p].trainable ? model->parameters[p].elements : 0;
	if (m->kind == MODULE_HEAD && m->tied_parameter >= 0 &&
		model->parameters[m->tied_parameter].trainable)
		total += model->parameters[m->tied_parameter].elements;
	return total;
}

/* Of all parameters, those that are not in frozen leaves before the first trained one. */
static double reached_share(const struct model *model)
{
	int64_t reached = 0;

	for (int p = 0; p < model->n_parameters; p++)
		if (model->parameters[p].module >= model->first_trained)
			reached += model->parameters[p].elements;
	return (double)reached / (double)model->parameter_count;
}

double model_flops_6n(const struct model *model)
{
	double active = (double)model->active_parameter_count;
	double trained = (double)model->trained_count / (double)model->parameter_count;

	if (trainable_is_all(&model->architecture.trainable))
		return 6.0 * active;
	return 2.0 * active * (1 + reached_share(model) + trained);
}

double model_flops_per_token(const struct model *model, int64_t seq_len)
{
	return model_flops_6n(model) + attention_per_token(model, seq_len, 1);
}

double model_flops_causal(const struct model *model, int64_t seq_len)
{
	return model_flops_6n(model) + attention_per_token(model, seq_len, 0.5);
}
