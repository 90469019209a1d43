/* What leaves compute and move. Everything is in tables by kind: a linear leaf is one matrix
 * product forward and two backward, an element-wise one is a number of passes over a width. */
#include "models/flops.h"

#include "models/widths.h"

const char *const attention_kind_names[] = {
	[ATTENTION_FLASH] = "flash", [ATTENTION_EAGER] = "eager", NULL};

/* Elements that a fused implementation reads and writes, per token and element of `width`, and its
 * launches, by pass. The residual addition belongs to ATTENTION_OUTPUT and DOWN: two reads, one
 * write. Backward moves twice as much. */
static const struct traffic {
	enum width width;
	double forward, backward;
	int forward_kernels, backward_kernels;
} traffic[MODULE_KIND_COUNT] = {
	[MODULE_EMBEDDING] = {WIDTH_HIDDEN, 2, 3, 1, 1}, /* backward: read, then add to rows */
	[MODULE_POSITION_EMBEDDING] = {WIDTH_HIDDEN, 3, 1, 1, 1},
	[MODULE_NORM] = {WIDTH_HIDDEN, 2, 4, 1, 2},
	[MODULE_QUERY_NORM] = {WIDTH_QUERY, 2, 4, 1, 2},
	[MODULE_KEY_NORM] = {WIDTH_KEY, 2, 4, 1, 2},
	[MODULE_ATTENTION_OUTPUT] = {WIDTH_HIDDEN, 3, 6, 1, 1},
	[MODULE_DOWN] = {WIDTH_HIDDEN, 3, 6, 1, 1},
};
static const struct traffic swiglu_traffic = {WIDTH_FFN, 3, 6, 1, 1};
static const struct traffic gelu_traffic = {WIDTH_FFN, 2, 4, 1, 1};
static const struct traffic rope_traffic = {WIDTH_ROTATED, 2, 4, 1, 1};

/* The score matrix of eager attention, a*s elements per token: forward scales, masks and normalises
 * it (three reads, three writes); backward undoes softmax (two reads, a write) and the scale. */
static const struct traffic eager_traffic = {WIDTH_HEADS, 6, 5, 5, 6};
static const struct traffic flash_traffic = {WIDTH_NONE, 0, 0, 1, 3};

static void add_traffic(struct module_work *work, const struct traffic *t, enum pass pass,
	double elements_per_width, const struct architecture *a, int element_bytes)
{
	double width = (double)architecture_width(a, t->width) * elements_per_width;

	work->memory_bytes +=
		(pass == PASS_FORWARD ? t->forward : t->backward) * width * element_bytes;
	work->kernels += pass == PASS_FORWARD ? t->forward_kernels : t->backward_kernels;
}

static void add_gemm(struct module_work *work, int64_t m, int64_t n, int64_t k)
{
	work->gemms[work->n_gemms++] = (struct gemm_shape){m, n, k, 1};
	work->kernels++;
}

/* Y[T,out] = X[T,in] W^T; backward dX = dY W and dW = dY^T X. */
static void add_linear(
	struct module_work *work, enum pass pass, int64_t tokens, int64_t out, int64_t in)
{
	if (pass == PASS_FORWARD) {
		add_gemm(work, tokens, out, in);
	} else {
		add_gemm(work, tokens, in, out);
		add_gemm(work, out, in, tokens);
	}
}

static void add_core(struct module_work *work, const struct architecture *a, enum pass pass,
	double tokens, double seq_len, int element_bytes, enum attention_kind attention)
{
	/* The products QK^T and PV over the full square of positions. */
	double square = 4.0 * tokens * seq_len * (double)architecture_width(a, WIDTH_QUERY);

	if (a->positions == POSITIONS_ROPE)
		add_traffic(work, &rope_traffic, pass, tokens, a, element_bytes);
	if (attention == ATTENTION_FLASH) {
		/* Only the causal half; backward computes the scores again, 5 products for 2. */
		work->attention_flops = square / 2 * (pass == PASS_FORWARD ? 1 : 2.5);
		add_traffic(work, &flash_traffic, pass, 0, a, element_bytes);
	} else {
		work->attention_flops = square * (pass == PASS_FORWARD ? 1 : 2);
		add_traffic(work, &eager_traffic, pass, tokens * seq_len, a, element_bytes);
	}
}

void model_module_work(const struct model *model, int module, enum pass pass, int64_t sequences,
	int64_t seq_len, int element_bytes, enum attention_kind attention, struct module_work *work)
{
	const struct architecture *a = &model->architecture;
	const struct module *m = &model->modules[module];
	int64_t tokens = saturated_mul(sequences, seq_len);
	int64_t out, in;

	*work = (struct module_work){0};
	if (m->kind == MODULE_ATTENTION_CORE)
		add_core(work, a, pass, (double)tokens, (double)seq_len, element_bytes, attention);
	if (m->kind == MODULE_ACTIVATION)
		add_traffic(work, a->mlp == MLP_SWIGLU ? &swiglu_traffic : &gelu_traffic, pass,
			(double)tokens, a, element_bytes);
	if (module_linear_shape(a, m->kind, &out, &in)) {
		add_linear(work, pass, tokens, out, in);
		/* A bias is added inside of the product; its gradient is a sum of its own. */
		if (pass == PASS_BACKWARD && m->n_parameters == 2)
			work->kernels++;
	}
	add_traffic(work, &traffic[m->kind], pass, (double)tokens, a, element_bytes);
}

/* The full square of positions, forward and backward, per token: 3 * 4 * L * a*d * s. */
static double attention_per_token(const struct model *model, int64_t seq_len)
{
	const struct architecture *a = &model->architecture;

	return 12.0 * (double)a->layers * (double)architecture_width(a, WIDTH_QUERY) *
	       (double)seq_len;
}

double model_flops_6n(const struct model *model)
{
	return 6.0 * (double)model->active_parameter_count;
}

double model_flops_per_token(const struct model *model, int64_t seq_len)
{
	return model_flops_6n(model) + attention_per_token(model, seq_len);
}

double model_flops_causal(const struct model *model, int64_t seq_len)
{
	return model_flops_6n(model) + attention_per_token(model, seq_len) / 2;
}
