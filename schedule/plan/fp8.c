#include "schedule/plan/plan.h"

const struct fp8_rules *fp8_rules_of(enum fp8_recipe recipe)
{
	static const struct fp8_rules usual = {16, 1, 0, false};
	/* Scales: four bytes for 128 elements; one for 32, or for 16. */
	static const struct fp8_rules rules[] = {[FP8_BLOCKWISE] = {16, 1, 32, true},
		[FP8_MXFP8] = {32, 1, 32, true},
		[FP8_NVFP4] = {32, 2, 16, true}};

	return rules[recipe].multiple > 0 ? &rules[recipe] : &usual;
}

int64_t fp8_bytes(const struct plan *plan, int64_t elements)
{
	return elements / fp8_rules_of(plan->fp8)->per_byte;
}

bool fp8_is_of_block(const struct plan *plan, enum module_kind kind)
{
	static const bool of_block[MODULE_KIND_COUNT] = {
		[MODULE_QKV] = true,
		[MODULE_QUERY_DOWN] = true,
		[MODULE_QUERY] = true,
		[MODULE_KEY] = true,
		[MODULE_VALUE] = true,
		[MODULE_KV_DOWN] = true,
		[MODULE_KV_UP] = true,
		[MODULE_ATTENTION_OUTPUT] = true,
		[MODULE_GATE] = true,
		[MODULE_UP] = true,
		[MODULE_GATE_UP] = true,
		[MODULE_DOWN] = true,
		[MODULE_SHARED_GATE] = true,
		[MODULE_SHARED_UP] = true,
		[MODULE_SHARED_DOWN] = true,
		[MODULE_NEXT_PROJECTION] = true,
	};
	bool of_experts = module_kind_is_of_experts(kind);
	return of_block[kind] || (of_experts && runtime_of(plan->runtime)->keeps_fp8_copies);
}

bool fp8_converts(const struct plan *plan, const struct model *model, int module)
{
	enum module_kind kind = model->modules[module].kind;
	int64_t multiple = fp8_rules_of(plan->fp8)->multiple, out, in;
	return plan->fp8 != FP8_OFF && fp8_is_of_block(plan, kind) &&
	       module_linear_shape(&model->architecture, kind, &out, &in) && out % multiple == 0 &&
	       in % multiple == 0;
}

bool fp8_shares_input(const struct plan *plan, const struct model *model, int module)
{
	enum module_kind kind = model->modules[module].kind;
	bool is_up = kind == MODULE_UP || kind == MODULE_SHARED_UP || kind == MODULE_EXPERTS_UP;
	bool second = kind == MODULE_KEY || kind == MODULE_VALUE ||
		      (is_up && architecture_is_gated(&model->architecture));
	return second && (plan->compile || runtime_of(plan->runtime)->keeps_fp8_copies);
}

bool fp8_is_gathered(const struct plan *plan)
{
	bool is_cast = runtime_of(plan->runtime)->keeps_fp8_copies ? plan->fp8 != FP8_OFF
								   : plan->fp8 == FP8_TENSORWISE;
	return is_cast && plan->mesh.tensor > 1 && plan->sequence_parallel &&
	       plan->runtime != RUNTIME_SHARDPLAN;
}

bool fp8_is_read_by_adapter(const struct plan *plan, const struct model *model, int module)
{
	return model->modules[module].adapter >= 0 && !plan->async_tensor;
}

int64_t fp8_gathered_bytes(const struct plan *plan, int64_t elements, bool is_input)
{
	int64_t orders = is_input || !fp8_rules_of(plan->fp8)->both_orders ? 1 : 2;
	int64_t usual = elements * dtype_bytes(plan->param_dtype);

	return fp8_is_gathered(plan) ? min_i64(usual, orders * fp8_bytes(plan, elements)) : usual;
}

bool fp8_gathers_weights(const struct plan *plan)
{
	return plan->fp8_param_gather && plan->fp8 != FP8_MXFP8;
}

double fp8_weight_width(const struct plan *plan)
{
	return fp8_gathers_weights(plan) ? 1 / (double)fp8_rules_of(plan->fp8)->per_byte
					 : (double)dtype_bytes(plan->param_dtype);
}

bool fp8_is_row_parallel(enum module_kind kind)
{
	return kind == MODULE_ATTENTION_OUTPUT || kind == MODULE_DOWN || kind == MODULE_SHARED_DOWN;
}

/* Counts copies of both operands, and for each of their rows a largest element and a scale. */
static int64_t product_bytes(int64_t m, int64_t n, int64_t k)
{
	return (m + n) * (k + 2 * dtype_bytes(DTYPE_FP32));
}

/* Our executor casts both operands of one product after the other. */
static int64_t own_bytes(int64_t tokens, int64_t out, int64_t in, enum pass pass)
{
	int64_t of_input = product_bytes(tokens, in, out),
		of_weight = product_bytes(out, in, tokens);

	return pass == PASS_FORWARD ? product_bytes(tokens, out, in) : max_i64(of_input, of_weight);
}

/* Counts the columns that are kept beside what is gathered. */
static int64_t gathered_elements(enum module_kind kind, int64_t x, int64_t dy, enum pass pass)
{
	bool is_row = fp8_is_row_parallel(kind);

	return pass == PASS_FORWARD ? (is_row ? x : 0) : is_row ? dy : 2 * dy + x;
}

/* Matrices that the rank's weight of a leaf is made of: one for each of its experts. */
static int64_t matrices_of(const struct architecture *a, enum module_kind kind)
{
	return module_kind_is_of_experts(kind) ? architecture_experts_held(a) : 1;
}

static int64_t leaf_bytes(
	const struct plan *plan, const struct model *model, int module, enum pass pass)
{
	const struct row_counts rows = model_rows(model, plan->micro_batch, plan->seq_len);
	enum module_kind kind = model->modules[module].kind;
	bool of_experts = module_kind_is_of_experts(kind);
	int64_t tokens = of_experts ? rows.room : rows.tokens, out, in;
	module_linear_shape(&model->architecture, kind, &out, &in);
	if (plan->runtime == RUNTIME_SHARDPLAN)
		return own_bytes(tokens, out, in, pass);
	int64_t x = tokens * in, w = out * in, dy = tokens * out;
	bool keeps = runtime_of(plan->runtime)->keeps_fp8_copies;
	bool of_weight = pass == PASS_BACKWARD_WEIGHT;
	if (keeps && fp8_is_gathered(plan) && !of_experts)
		return fp8_bytes(plan, gathered_elements(kind, x, dy, pass));
	int64_t operands = pass == PASS_FORWARD ? (keeps ? x : x + w)
			   : keeps              ? 2 * dy
			   : of_weight          ? dy + x
						: dy + w;
	if (pass == PASS_BACKWARD && !keeps)
		operands = dy + max_i64(w, dy + x);
	/* Eager casts scale and clamp in fp32, with two tensors beside the one that is read. */
	if (!keeps && !plan->compile)
		operands += 7 * max_i64(pass == PASS_FORWARD ? x : dy, of_weight ? x : w);
	return fp8_bytes(plan, operands);
}

int64_t fp8_work_bytes(
	const struct plan *plan, const struct model *model, int first, int end, enum pass pass)
{
	int64_t most = 0;
	for (int m = first; m < end && plan->fp8 != FP8_OFF; m++)
		if (fp8_converts(plan, model, m))
			most = max_i64(most, leaf_bytes(plan, model, m, pass));
	return most;
}

int64_t fp8_weight_bytes(
	const struct plan *plan, const struct model *model, enum device_generation generation)
{
	const struct fp8_rules *rules = fp8_rules_of(plan->fp8);
	bool both = generation != GENERATION_BLACKWELL || rules->both_orders;
	int64_t elements = 0, orders = both ? 2 : 1, out, in;
	int64_t scales = plan->fp8 == FP8_MXFP8 || plan->fp8 == FP8_NVFP4 ? orders : 0;
	orders -= plan->fp8_param_gather ? (fp8_gathers_weights(plan) ? 1 : 2) : 0;
	if (!runtime_of(plan->runtime)->keeps_fp8_copies)
		return 0;
	for (int m = 0; m < model->n_modules && plan->fp8 != FP8_OFF; m++)
		if (fp8_converts(plan, model, m) && module_linear_shape(&model->architecture,
							    model->modules[m].kind, &out, &in))
			elements += out * in *
				    matrices_of(&model->architecture, model->modules[m].kind);
	return orders * fp8_bytes(plan, elements) +
	       (scales > 0 ? scales * elements / rules->scaled : 0);
}
