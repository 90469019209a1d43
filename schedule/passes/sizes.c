/* Finds the sizes of tensors from the model's formulas (models/activations.h). */
#include "schedule/passes/sizes.h"

static int64_t tokens_of(const struct step *step)
{
	return model_tokens(step->model, step->plan->micro_batch, step->plan->seq_len);
}

/* --- activations ---------------------------------------------------------------------------------
 */

static int64_t modules_saved_bytes(const struct step *step, int first, int end)
{
	return model_saved_bytes(step->model, first, end, &step->rules, step->plan->micro_batch,
		step->plan->seq_len);
}

static bool keeps(const struct step *step, int module)
{
	return plan_selective_keeps(step->plan, step->model, module);
}

/* Returns the bytes that the range's leaves save and selective checkpointing computes again. */
static int64_t dropped_bytes(const struct step *step, const struct range *range)
{
	int64_t dropped = 0;
	for (int m = range->first_module; m < range->end_module; m++)
		if (!keeps(step, m))
			dropped += modules_saved_bytes(step, m, m + 1);
	return dropped;
}

/* Blocks repeat, so one range often saves what another does. */
static bool saves_alike(const struct step *step, int range, int other)
{
	const struct range *one = &step->ranges[range], *two = &step->ranges[other];
	int n = one->end_module - one->first_module;
	if (two->end_module - two->first_module != n ||
		range_checkpointing(step, range) != range_checkpointing(step, other))
		return false;
	for (int i = 0; i < n; i++)
		if (!model_leaves_are_alike(
			    step->model, one->first_module + i, two->first_module + i))
			return false;
	return true;
}

int64_t range_saved_bytes(const struct step *step, int range)
{
	const struct range *r = &step->ranges[range];
	if (range > 0 && saves_alike(step, range, range - 1))
		return step->ranges[range - 1].saved_bytes;
	if (range_checkpointing(step, range) == CHECKPOINTING_SELECTIVE)
		return dropped_bytes(step, r);
	return modules_saved_bytes(step, r->first_module, r->end_module);
}

/* Eager PyTorch keeps the product of DOWN although backward does not read it: of all tokens, before
 * tensor ranks sum it up. torch.compile drops what the backward graph has no use for. Ours is the
 * input of the next block. */
static int64_t result_bytes(const struct step *step, int module)
{
	bool needed_only = step->method.needed_tensors_only || step->method.recomputes_modules ||
			   step->plan->compile;
	if (needed_only || step->model->modules[module].kind != MODULE_DOWN)
		return modules_saved_bytes(step, module, module + 1);
	return exchanged_tokens_bytes(step);
}

int64_t range_kept_bytes(const struct step *step, int range)
{
	int64_t kept = 0;
	for (int m = step->ranges[range].first_module; m < step->ranges[range].end_module; m++)
		if (keeps(step, m))
			kept += result_bytes(step, m);
	return kept;
}

int64_t range_output_gradient_bytes(const struct step *step, int range)
{
	return model_output_gradient_bytes(step->model, step->ranges[range].first_module,
		step->ranges[range].end_module, &step->rules, step->plan->micro_batch,
		step->plan->seq_len);
}

int64_t residual_bytes(const struct step *step)
{
	return model_residual_bytes(
		step->model, &step->rules, step->plan->micro_batch, step->plan->seq_len);
}

int64_t message_bytes(const struct step *step)
{
	int64_t parts = step->plan->scatter_gather ? step->plan->mesh.tensor : 1;
	return residual_bytes(step) / parts;
}

/* A batch has inputs and targets, which are windows of seq_len + 1 tokens, and a mask that says
 * which pairs of tokens attend, of those that the rank has with all of the sequence. */
int64_t tokens_bytes(const struct step *step)
{
	int64_t own = step->plan->seq_len / step->plan->mesh.context;
	bool apart = runtime_of(step->plan->runtime)->chunk_has_window;
	int64_t windows = apart && step->plan->mesh.context > 1 ? 2 : 1;
	int64_t row = (own + windows) * dtype_bytes(DTYPE_INT32);
	if (runtime_of(step->plan->runtime)->batch_has_mask)
		row += own * step->plan->seq_len;
	return step->plan->micro_batch * row;
}

/* --- exchanges -----------------------------------------------------------------------------------
 */

int64_t exchanged_tokens_bytes(const struct step *step)
{
	return tokens_of(step) * step->model->architecture.hidden *
	       dtype_bytes(step->plan->param_dtype);
}

int64_t exchanged_adapter_bytes(const struct step *step)
{
	return tokens_of(step) * step->model->architecture.trainable.rank *
	       dtype_bytes(step->plan->param_dtype);
}

int64_t exchanged_loss_bytes(const struct step *step)
{
	return tokens_of(step) * dtype_bytes(DTYPE_FP32);
}

int64_t exchanged_keys_bytes(const struct step *step)
{
	const struct architecture *a = &step->model->architecture;
	int64_t widths = a->kv_heads * a->head_dim * 2;
	if (a->kv_rank > 0)
		widths = a->kv_rank + a->rope_dim;
	return step->plan->micro_batch * step->plan->seq_len * widths *
	       dtype_bytes(step->plan->param_dtype);
}

/* Returns how many elements of values, and of attention's result, a token has on the rank. */
static int64_t value_width(const struct architecture *a)
{
	return a->value_dim > 0 ? a->heads * a->value_dim : a->kv_heads * a->head_dim;
}

static int64_t result_width(const struct architecture *a)
{
	return a->heads * (a->value_dim > 0 ? a->value_dim : a->head_dim);
}

static int64_t of_tokens(const struct step *step, int64_t width)
{
	return tokens_of(step) * width * dtype_bytes(step->plan->param_dtype);
}

int64_t key_block_bytes(const struct step *step)
{
	const struct architecture *a = &step->model->architecture;
	int64_t keys = plan_key_heads(step->plan, step->model) * a->head_dim;
	return of_tokens(step, keys + (a->value_dim > 0 ? value_width(a) : keys));
}

int64_t ring_sums_bytes(const struct step *step)
{
	int64_t bytes = key_block_bytes(step);
	if (runtime_of(step->plan->runtime)->ring->fp32_sums)
		bytes = bytes / dtype_bytes(step->plan->param_dtype) * dtype_bytes(DTYPE_FP32);
	return bytes;
}

int64_t ring_results_bytes(const struct step *step)
{
	const struct ring_rules *ring = runtime_of(step->plan->runtime)->ring;
	int64_t all = ring->keeps_results ? step->plan->mesh.context : 1;
	return all * ring->result_bytes * tokens_of(step) *
	       result_width(&step->model->architecture);
}

int64_t exchanged_heads_bytes(const struct step *step, bool of_input)
{
	const struct architecture *a = &step->model->architecture;
	int64_t input = (a->heads + a->kv_heads) * a->head_dim + value_width(a);
	return of_tokens(step, of_input ? input : result_width(a));
}

int64_t cut_heads_bytes(const struct step *step, bool of_input)
{
	bool again = step->method.adds_in_compute && !of_input;
	return exchanged_heads_bytes(step, of_input || again) +
	       (again ? 2 * exchanged_heads_bytes(step, false) : 0);
}

int64_t left_keys_bytes(const struct step *step, bool is_back)
{
	return step->plan->context_method == CONTEXT_ALL_TO_ALL
		       ? exchanged_heads_bytes(step, is_back)
		       : exchanged_keys_bytes(step);
}

static int64_t rows_bytes(const struct step *step, int64_t rows)
{
	return rows * step->model->architecture.hidden * dtype_bytes(step->plan->param_dtype);
}

static struct row_counts rows_of(const struct step *step)
{
	return model_rows(step->model, step->plan->micro_batch, step->plan->seq_len);
}

int64_t sent_rows_bytes(const struct step *step)
{
	return rows_bytes(step, rows_of(step).sent);
}

int64_t arrived_rows_bytes(const struct step *step)
{
	return rows_bytes(step, rows_of(step).arrived);
}

int64_t gathered_rows_bytes(const struct step *step)
{
	struct row_counts rows = rows_of(step);
	return rows_bytes(
		step, step->model->division.gathers_tokens ? rows.gathered : rows.received);
}

int64_t returned_rows_bytes(const struct step *step)
{
	struct row_counts rows = rows_of(step);
	return rows_bytes(step, step->model->division.gathers_tokens ? rows.routed : rows.sent);
}

int64_t row_room_bytes(const struct step *step)
{
	struct row_counts rows = rows_of(step);
	return rows_bytes(step, step->model->division.gathers_tokens ? rows.gathered : rows.room);
}

int64_t row_weights_bytes(const struct step *step, int64_t bytes)
{
	return bytes / rows_bytes(step, 1) * dtype_bytes(DTYPE_FP32);
}

/* Returns in how many pieces a micro-batch keeps its rows apart. Exact sums are made sequence by
 * sequence, and a context rank has two chunks of each sequence. */
static int64_t row_parts(const struct step *step)
{
	const struct plan *plan = step->plan;
	bool apart = plan->gradient_sums == SUMS_EXACT;
	return apart ? plan->micro_batch * (plan->mesh.context > 1 ? 2 : 1) : 1;
}

/* Returns the bytes of one rank's counts, or of those of all ranks that have all experts
 * together. */
int64_t row_counts_bytes(const struct step *step)
{
	int all = step->group_expert_all;
	int64_t ranks = all >= 0 ? step->schedule->groups[all].size : 1;
	return ranks * step->model->architecture.experts * row_parts(step) *
	       dtype_bytes(DTYPE_INT64);
}

/* --- loss ----------------------------------------------------------------------------------------
 */

static int64_t chunk_rows(const struct step *step)
{
	return plan_head_chunk_rows(step->plan, step->topology->device.kind, tokens_of(step));
}

/* Returns how many logits exist at a time. Computed together with the head they come in pieces of
 * as many elements as the residual stream has (Liger's chunks). Ours come in chunks of rows,
 * followed by the losses of these. */
static int64_t logits_of(const struct step *step)
{
	const struct architecture *a = &step->model->architecture;
	int64_t row = plan_logits_stride(step->plan, a->vocab);
	bool pieces = step->plan->loss == LOSS_FUSED_LINEAR;
	if (step->method.chunks_head)
		return chunk_rows(step) * row;
	return tokens_of(step) * architecture_losses(a) * (pieces ? min_i64(row, a->hidden) : row);
}

int64_t logits_bytes(const struct step *step)
{
	int64_t losses = step->method.chunks_head ? chunk_rows(step) : 0;
	return logits_of(step) * dtype_bytes(step->plan->param_dtype) +
	       losses * dtype_bytes(DTYPE_FP32);
}

int64_t loss_work_bytes(const struct step *step)
{
	bool keeps = step->method.keeps_losses && !step->method.chunks_head;
	int64_t losses = keeps ? tokens_of(step) : 0;
	return logits_of(step) * plan_loss_bytes(step->plan, step->topology->device.generation) +
	       losses * dtype_bytes(DTYPE_FP32);
}

/* --- backward ------------------------------------------------------------------------------------
 */

int64_t range_parameters(const struct step *step, int range)
{
	int64_t total = 0;
	for (int m = step->ranges[range].first_module; m < step->ranges[range].end_module; m++)
		total += model_trained_elements(step->model, m);
	return total;
}

int64_t range_tied_parameters(const struct step *step, int range)
{
	const struct range *r = &step->ranges[range];
	const struct module *head = &step->model->modules[step->model->n_modules - 1];
	if (head->tied_parameter < 0)
		return 0;
	const struct parameter *tied = &step->model->parameters[head->tied_parameter];
	bool inside =
		tied->trainable && tied->module >= r->first_module && tied->module < r->end_module;
	return inside && step->model->n_modules > r->end_module ? tied->elements : 0;
}

/* Exact sums need the fp32 gradients of one leaf's parameters for one sequence, before these are
 * added up. */
static int64_t gradient_scratch_bytes(const struct model *model)
{
	int64_t most = 0;
	for (int m = 0; m < model->n_modules; m++)
		most = max_i64(most, model_trained_elements(model, m));
	return most * dtype_bytes(DTYPE_FP32);
}

struct backward_work backward_work_of(const struct step *step)
{
	struct tensor tensors[BACKWARD_TENSORS_MAX];
	struct backward_work work = {0};
	int n = model_backward_tensors(step->model, &step->rules, step->plan->micro_batch,
		step->plan->seq_len, tensors, &work.all);
	for (int i = 0; i < n; i++) {
		if (tensors[i].role == TENSOR_D_RESIDUAL)
			work.residual = tensors[i].bytes;
		else if (tensors[i].role == TENSOR_D_EXPERT_OUT)
			work.results += tensors[i].bytes;
		else if (tensors[i].role == TENSOR_D_PRODUCT ||
			 tensors[i].role == TENSOR_D_ATTENTION_OUT)
			work.widest = max_i64(work.widest, tensors[i].bytes);
	}
	if (step->plan->gradient_sums == SUMS_EXACT)
		work.all += gradient_scratch_bytes(step->model);
	return work;
}

/* --- parts of gradients --------------------------------------------------------------------------
 */

int64_t unit_whole_bytes(const struct step *step, int unit)
{
	int64_t width = dtype_bytes(step->plan->param_dtype), low = step->units[unit].fp8_elements;
	return (step->units[unit].gathered - low) * width + fp8_bytes(step->plan, low);
}

bool leaf_is_partial(const struct step *step, int module)
{
	enum module_kind kind = step->model->modules[module].kind;
	bool of_stream = step->plan->sequence_parallel &&
			 module_is_on_stream(&step->model->division, kind) &&
			 !module_kind_is_of_experts(kind);
	return (of_stream || kind == MODULE_QUERY_NORM || kind == MODULE_KEY_NORM) &&
	       step->model->modules[module].n_parameters > 0;
}

/* Such a bias is added to the tokens that a rank has of the sum, so its gradient is a part. */
static bool is_partial_bias(const struct step *step, const struct parameter *parameter)
{
	enum module_kind kind = step->model->modules[parameter->module].kind;
	return step->plan->sequence_parallel && step->method.shares_biases &&
	       parameter->n_dims == 1 && (kind == MODULE_ATTENTION_OUTPUT || kind == MODULE_DOWN);
}

/* Megatron-LM adds positions before it cuts the tokens, so their gradient is whole. */
static int64_t partial_parameters_of(const struct step *step, int module)
{
	const struct module *m = &step->model->modules[module];
	bool all = leaf_is_partial(step, module) && m->kind != MODULE_POSITION_EMBEDDING;
	int64_t sum = 0;
	for (int i = 0; i < m->n_parameters; i++) {
		const struct parameter *p = &step->model->parameters[m->first_parameter + i];
		if (p->trainable && (all || is_partial_bias(step, p)))
			sum += p->elements;
	}
	return sum;
}

/* Plans with buckets are not folded, so every block is listed. */
int64_t partial_parameters(const struct step *step)
{
	int64_t sum = 0;
	for (int r = 0; r < step->n_ranges; r++)
		for (int m = step->ranges[r].first_module; m < step->ranges[r].end_module; m++)
			sum += partial_parameters_of(step, m);
	return sum;
}

enum side leaf_side(const struct step *step, int leaf)
{
	static const enum side sides[MODULE_KIND_COUNT] = {
		[MODULE_QKV] = SIDE_INPUT,
		[MODULE_QUERY_DOWN] = SIDE_INPUT,
		[MODULE_QUERY] = SIDE_INPUT,
		[MODULE_KEY] = SIDE_INPUT,
		[MODULE_VALUE] = SIDE_INPUT,
		[MODULE_KV_DOWN] = SIDE_INPUT,
		[MODULE_GATE] = SIDE_INPUT,
		[MODULE_UP] = SIDE_INPUT,
		[MODULE_GATE_UP] = SIDE_INPUT,
		[MODULE_ATTENTION_OUTPUT] = SIDE_OUTPUT,
		[MODULE_DOWN] = SIDE_OUTPUT,
	};
	return step->plan->async_tensor ? sides[step->model->modules[leaf].kind] : SIDE_NONE;
}
