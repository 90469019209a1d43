/* Refuses plans: what a runtime cannot honour, what does not go with the machine or the model, and
 * options that would do nothing. */
#include <stdio.h>
#include <string.h>

#include "schedule/resolve/resolve.h"

/* --- knobs ---------------------------------------------------------------------------------------
 */

static bool refuse(const struct plan *plan, const char *option, const char *value,
	const char *advice, struct error *error)
{
	return error_set(error, EXIT_CODE_USAGE, "--%s %s: runtime %s cannot do that; %s", option,
		value, runtime_names[plan->runtime], advice);
}

static const char *advice_on_strategy(enum strategy strategy)
{
	/* FSDP shards the same states under other names. */
	static const char *const stages[] = {[1] = "use --runtime deepspeed",
		[2] = "use --runtime deepspeed, or SHARD_GRAD_OP of this one",
		[3] = "use --runtime deepspeed, or FULL_SHARD of this one"};
	int stage = strategy_stage(strategy);

	return stage > 0                       ? stages[stage]
	       : strategy == STRATEGY_NO_SHARD ? "use --runtime pytorch-ddp"
					       : "use --runtime pytorch-fsdp2";
}

/* Each knob of the table must have a value that the runtime honours. Offload is checked elsewhere,
 * because it must meet other conditions too. */
static bool check_runtime(const struct plan *plan, struct error *error)
{
	for (int i = 0; i < KNOB_IN_MESH; i++) {
		enum knob_id id = (enum knob_id)i;
		struct arena arena = {0};
		if (id == KNOB_CPU_OFFLOAD || knob_is_honoured(id, plan))
			continue;
		refuse(plan, knob_option(id, &arena), knob_typed(id, plan, &arena),
			id == KNOB_STRATEGY ? advice_on_strategy(plan->strategy)
					    : knob_table[id].refusal,
			error);
		arena_finish(&arena);
		return false;
	}
	return true;
}

static bool check_dtype(const char *option, enum dtype dtype, const struct plan *plan,
	const struct device *device, struct error *error)
{
	bool ours = plan->runtime == RUNTIME_SHARDPLAN && device->kind == DEVICE_CPU;
	if (ours && dtype == DTYPE_FP16)
		return error_set(error, EXIT_CODE_USAGE,
			"--%s fp16: our CPU kernels compute in fp32 and bf16; use one of these",
			option);
	return true;
}

/* Refuses dtypes that our kernels do not mix. */
static bool check_cpu_dtypes(
	const struct plan *plan, const struct device *device, struct error *error)
{
	if (plan->runtime != RUNTIME_SHARDPLAN || device->kind != DEVICE_CPU)
		return true;
	if (plan->reduce_dtype != DTYPE_FP32 && plan->param_dtype == DTYPE_FP32)
		return error_set(error, EXIT_CODE_USAGE,
			"--reduce-dtype %s: "
			"our CPU kernels reduce gradients of fp32 parameters in fp32; "
			"use fp32, or --param-dtype bf16",
			dtype_name(plan->reduce_dtype));
	return true;
}

static bool check_dtypes(
	const struct plan *plan, const struct topology *topology, struct error *error)
{
	const struct device *device = &topology->device;
	if (plan->allocator != ALLOCATOR_SEGMENTS &&
		(device->kind != DEVICE_GPU || !knob_is_honoured(KNOB_ALLOCATOR, plan)))
		return refuse(plan, "allocator", knob_name(KNOB_ALLOCATOR, (int)plan->allocator),
			knob_table[KNOB_ALLOCATOR].refusal, error);
	if (!check_dtype("param-dtype", plan->param_dtype, plan, device, error) ||
		!check_dtype("master-dtype", plan->master_dtype, plan, device, error) ||
		!check_dtype("reduce-dtype", plan->reduce_dtype, plan, device, error))
		return false;
	if (!check_cpu_dtypes(plan, device, error))
		return false;
	if (device->kind == DEVICE_GPU && device_peak_flops(device, plan->param_dtype) <= 0)
		return error_set(error, EXIT_CODE_USAGE,
			"--param-dtype %s: %s has no %s units; use %s",
			dtype_name(plan->param_dtype), device->name, dtype_name(plan->param_dtype),
			dtype_name(plan_default_dtype(topology)));
	return true;
}

/* Checks groups of `group` ranks; 0 or less means that there are none. */
static bool check_reshard_group(const struct plan *plan, int64_t group, struct error *error)
{
	const char *value = plan->reshard_after_forward.text;
	int64_t shard = plan->mesh.shard;
	if (group > 0 && !runtime_of(plan->runtime)->has_reshard_group)
		return refuse(plan, "reshard-after-forward", value, "use true or false", error);
	if (group > 0 && (!strategy_reshards(plan->strategy) || group == 1 || group >= shard ||
				 shard % group != 0))
		return error_set(error, EXIT_CODE_USAGE,
			"--reshard-after-forward %.60s: expected a proper divisor (not 1) "
			"of the shard group of %lld, with FULL_SHARD or HYBRID_SHARD",
			value, (long long)shard);
	return true;
}

static bool check_reshard(const struct plan *plan, struct error *error)
{
	const struct rows *rows = &plan->reshard_after_forward;
	const char *value = rows->text;
	if (plan_reshards_root(plan) && !runtime_of(plan->runtime)->reshards_root)
		return refuse(plan, "reshard-after-forward", value, "use true", error);
	for (int32_t place = 0; place < rows->n || place == 0; place++)
		if (!check_reshard_group(plan, plan_reshard_group_at(plan, place), error))
			return false;
	if (rows->n > 0 && !runtime_of(plan->runtime)->reshards_per_unit)
		return refuse(plan, "reshard-after-forward", value, "use one value", error);
	if ((plan_reshard_group(plan) != 0) != strategy_reshards(plan->strategy))
		return error_set(error, EXIT_CODE_USAGE,
			"--reshard-after-forward %.60s: contradicts %s; use %s", value,
			strategy_names[plan->strategy],
			plan->strategy == STRATEGY_FULL_SHARD           ? "SHARD_GRAD_OP"
			: plan->strategy == STRATEGY_HYBRID_SHARD       ? "HYBRID_SHARD_ZERO2"
			: plan->strategy == STRATEGY_SHARD_GRAD_OP      ? "FULL_SHARD"
			: plan->strategy == STRATEGY_HYBRID_SHARD_ZERO2 ? "HYBRID_SHARD"
			: strategy_reshards(plan->strategy)             ? "true"
									: "false");
	return true;
}

static bool check_zero(const struct plan *plan, struct error *error)
{
	const struct zero_rules *zero = runtime_of(plan->runtime)->zero;
	bool each;
	if (plan->grad_accum > 1 && plan_syncs(plan, &each) && plan->sync_each_micro_batch != each)
		return error_set(error, EXIT_CODE_USAGE,
			"--sync-each-micro-batch %s: %s of runtime %s reduces gradients %s; use %s",
			each ? "off" : "on", strategy_names[plan->strategy],
			runtime_names[plan->runtime],
			each ? "in every micro-batch" : "in the last micro-batch only",
			each ? "on" : "off");
	if (zero != NULL && zero->fp32_gradients && !zero->adds_at_once &&
		plan->reduce_dtype != DTYPE_FP32)
		return refuse(plan, "reduce-dtype", dtype_name(plan->reduce_dtype),
			"it accumulates and reduces in fp32; use fp32", error);
	if (plan_reduces_masters(plan) && plan->reduce_dtype != plan->master_dtype)
		return error_set(error, EXIT_CODE_USAGE,
			"--reduce-dtype %s: runtime %s reduces gradients in --master-dtype; use %s",
			dtype_name(plan->reduce_dtype), runtime_names[plan->runtime],
			dtype_name(plan->master_dtype));
	return true;
}

/* Offload needs a shard that can stay away from the device, and a link whose speed is known. */
static bool check_offload(
	const struct plan *plan, const struct topology *topology, struct error *error)
{
	const struct runtime *runtime = runtime_of(plan->runtime);
	unsigned offloads = knob_values(KNOB_CPU_OFFLOAD, plan->runtime);
	const struct host *host = &topology->host;
	bool gpu = topology->device.kind == DEVICE_GPU;
	for (int o = OFFLOAD_OPTIMIZER; o <= OFFLOAD_PARAMETERS; o++)
		if (plan_offloads(plan, (enum offload)o) && !(offloads >> o & 1))
			return refuse(plan, "cpu-offload", plan->cpu_offload.text,
				offloads == 1u << OFFLOAD_NONE      ? "use none"
				: offloads >> OFFLOAD_OPTIMIZER & 1 ? "use optimizer or none"
								    : "use parameters or none",
				error);
	if (plan_offloads_any(plan) && plan_layout(plan) == LAYOUT_PARTITIONED)
		return refuse(plan, "cpu-offload", plan->cpu_offload.text,
			"with ZERO_3 it is not priced yet; use ZERO_1 or ZERO_2", error);
	if (plan_offloads(plan, OFFLOAD_PARAMETERS) && !strategy_shards(plan->strategy))
		return error_set(error, EXIT_CODE_USAGE,
			"--cpu-offload %.60s: NO_SHARD keeps whole parameters on the device; "
			"use optimizer, or a strategy that shards",
			plan->cpu_offload.text);
	if (plan_offloads_any(plan) && plan->grad_accum > 1 && plan->sync_each_micro_batch &&
		!runtime->accumulates_on_host)
		return refuse(plan, "cpu-offload", plan->cpu_offload.text,
			"it does not add gradients on the host; use --sync-each-micro-batch off",
			error);
	if (plan_offloads_any(plan) && gpu &&
		(host->pcie_bandwidth <= 0 || host->memory_bandwidth <= 0))
		return error_set(error, EXIT_CODE_USAGE,
			"--cpu-offload %.60s: %s does not say how fast its host is; "
			"add host.pcie_bandwidth and host.memory_bandwidth",
			plan->cpu_offload.text, topology->name);
	return true;
}

/* Activation offload needs such a link too. */
static bool check_activations(
	const struct plan *plan, const struct topology *topology, struct error *error)
{
	const char *name = knob_name(KNOB_ACTIVATION_OFFLOAD, (int)plan->activation_offload);
	if (plan->activation_offload == ACTIVATIONS_STAY)
		return true;
	if (!trainable_is_all(&plan->trainable))
		return error_set(error, EXIT_CODE_USAGE,
			"--activation-offload %s: "
			"with frozen parameters it is not modelled; use none, or --trainable all",
			name);
	if (topology->device.kind != DEVICE_GPU || topology->host.pcie_bandwidth > 0)
		return true;
	return error_set(error, EXIT_CODE_USAGE,
		"--activation-offload %s: "
		"%s does not say how fast its host is; add host.pcie_bandwidth",
		name, topology->name);
}

/* Refuses what a runtime honours only together with other knobs. */
static bool check_knobs(const struct plan *plan, struct error *error)
{
	if (!check_runtime(plan, error) || !check_zero(plan, error))
		return false;
	if (plan->gradient_sums == SUMS_EXACT &&
		(plan->param_dtype != DTYPE_FP32 || plan->reduce_dtype != DTYPE_FP32))
		return refuse(plan, "gradient-sums", "exact",
			knob_table[KNOB_GRADIENT_SUMS].refusal, error);
	if (plan->gelu == GELU_IN_PRODUCT && plan->gradient_sums == SUMS_EXACT)
		return refuse(plan, "gelu", "product", knob_table[KNOB_GELU].refusal, error);
	if (plan->late_all_reduce &&
		(!strategy_is_hybrid(plan->strategy) || plan->mesh.replicate == 1 ||
			plan->grad_accum == 1 || !plan->sync_each_micro_batch))
		return error_set(error, EXIT_CODE_USAGE,
			"--late-all-reduce on: expected a hybrid strategy with replicas, "
			"several micro-batches and --sync-each-micro-batch on; leave it out");
	return check_reshard(plan, error);
}

static bool check_prediction(
	const struct plan *plan, const struct model *model, struct error *error)
{
	return model_whole(model)->architecture.mtp_layers == 0 ||
	       runtime_of(plan->runtime)->predicts_next ||
	       error_set(error, EXIT_CODE_USAGE,
		       "--mtp-layers: runtime %s trains no modules of multi-token prediction; "
		       "use --runtime megatron, or leave it out",
		       runtime_names[plan->runtime]);
}

/* The model must have the adapters and the frozen parameters of the plan. */
static bool check_trainable(const struct plan *plan, const struct model *model, struct error *error)
{
	const struct trainable *trainable = &plan->trainable;
	const struct knob *knob = &knob_table[KNOB_TRAINABLE];
	const char *value = trainable->text != NULL ? trainable->text : knob->field.decoded->zero;
	char typed[61];
	snprintf(typed, sizeof(typed), "%.60s", value);
	if (!trainable_equal(trainable, &model->architecture.trainable))
		return error_set(error, EXIT_CODE_USAGE,
			"--trainable %s: the model was built for another one; give both the same",
			typed);
	if (trainable_is_all(trainable))
		return true;
	if (trainable_names_layers(trainable) && plan->runtime != RUNTIME_MEGATRON)
		return error_set(error, EXIT_CODE_USAGE,
			"--trainable %s: Megatron-Core alone has such layers; "
			"name projections (q_proj,v_proj), or use --runtime megatron",
			typed);
	if (plan_offloads_any(plan))
		return error_set(error, EXIT_CODE_USAGE,
			"--trainable %s: "
			"offload of a model with frozen parameters is not modelled; "
			"use --cpu-offload none",
			typed);
	return true;
}

/* --- fp8 -----------------------------------------------------------------------------------------
 */

static bool refuse_fp8(const struct plan *plan, const char *reason, struct error *error)
{
	return error_set(error, EXIT_CODE_USAGE, "--fp8 %s: %s; use off",
		knob_name(KNOB_FP8, (int)plan->fp8), reason);
}

static bool fits_fp8(const struct plan *plan, int64_t size)
{
	return size % fp8_rules_of(plan->fp8)->multiple == 0;
}

/* Returns what a tensor rank has of the dimension: whole heads, or a part of an MLP's width. */
static int64_t part_of(const struct plan *plan, const struct architecture *a, enum module_kind kind,
	int64_t out, int64_t in)
{
	bool down = kind == MODULE_DOWN || kind == MODULE_SHARED_DOWN;
	bool up = kind == MODULE_UP || kind == MODULE_GATE || kind == MODULE_GATE_UP ||
		  kind == MODULE_SHARED_UP || kind == MODULE_SHARED_GATE;
	if (module_kind_is_of_experts(kind))
		return a->expert_ffn / plan_expert_tensor(plan);
	if (plan->mesh.tensor == 1 || !(up || down))
		return plan->mesh.tensor == 1 ? out : a->head_dim;
	return (up ? out : in) / plan->mesh.tensor;
}

/* Checks the sizes of a leaf. If they do not fit, torchao leaves the leaf as it is, and Transformer
 * Engine ends. */
static bool check_fp8_leaf(const struct plan *plan, const struct architecture *a,
	enum module_kind kind, bool *converts, struct error *error)
{
	int64_t out, in;
	char reason[128];
	if (!fp8_is_of_block(plan, kind) || !module_linear_shape(a, kind, &out, &in))
		return true;
	bool whole = fits_fp8(plan, out) && fits_fp8(plan, in);
	bool fits = fits_fp8(plan, part_of(plan, a, kind, out, in));
	*converts = *converts || whole;
	if (whole ? fits : !runtime_of(plan->runtime)->keeps_fp8_copies)
		return true;
	snprintf(reason, sizeof(reason), "%s of %.40s is not a multiple of %lld%s",
		module_kind_name(kind), a->name, (long long)fp8_rules_of(plan->fp8)->multiple,
		whole ? " on each of the tensor ranks" : "");
	return refuse_fp8(plan, reason, error);
}

static bool check_fp8_model(const struct plan *plan, const struct model *model, struct error *error)
{
	char reason[96];
	bool converts = false;
	int multiple = (int)fp8_rules_of(plan->fp8)->multiple;
	for (int m = 0; m < model->n_modules; m++)
		if (!check_fp8_leaf(
			    plan, &model->architecture, model->modules[m].kind, &converts, error))
			return false;
	snprintf(reason, sizeof(reason),
		"no linear layer of a block has sizes that are multiples of %d", multiple);
	if (!converts)
		return refuse_fp8(plan, reason, error);
	snprintf(reason, sizeof(reason), "a micro-batch's tokens are not a multiple of %d",
		multiple);
	return fits_fp8(plan, plan->micro_batch * plan->seq_len / plan->mesh.context) ||
	       refuse_fp8(plan, reason, error);
}

/* Transformer Engine computes blocks of 128 on Hopper, and through mxfp8 on Blackwell; mxfp8 and
 * fp4 on GPUs of capability 10 alone (quantization.py, d0067d0d). Those of capability 12, with
 * GDDR7, have a twelfth of the matrix units in each multiprocessor. */
static bool check_fp8_blocks(
	const struct plan *plan, const struct device *device, struct error *error)
{
	static const double most = 5e12; /* FLOP/s in bf16 */
	bool is_small = device->bf16_flops < most * (double)device->multiprocessors;
	bool is_blackwell = device->generation == GENERATION_BLACKWELL;
	bool is_micro = plan->fp8 == FP8_MXFP8 || plan->fp8 == FP8_NVFP4;
	const char *needs = is_micro && (!is_blackwell || is_small)
				    ? "B200, B300 or a later GPU of data centres"
			    : plan->fp8 == FP8_BLOCKWISE && device->generation != GENERATION_HOPPER
				    ? "a Hopper GPU"
				    : NULL;
	return needs == NULL ||
	       error_set(error, EXIT_CODE_USAGE,
		       "--fp8 %s: it needs %s, which %.60s is not; use %s",
		       knob_name(KNOB_FP8, (int)plan->fp8), needs, device->name,
		       plan->fp8 == FP8_BLOCKWISE && is_blackwell && !is_small ? "mxfp8"
									       : "tensorwise");
}

static bool check_fp8_parameters(const struct plan *plan, struct error *error)
{
	const char *why =
		plan->fp8 == FP8_OFF ? "no weight is multiplied in fp8; give --fp8, or leave it out"
		: plan->strategy == STRATEGY_NO_SHARD && trainable_is_all(&plan->trainable)
			? "nothing is gathered; use a --strategy that shards"
		: plan->fp8 != FP8_TENSORWISE && !runtime_of(plan->runtime)->keeps_fp8_copies
			? "torchao gathers with a scale a tensor; use --fp8 tensorwise"
			: NULL;
	return !plan->fp8_param_gather || why == NULL ||
	       error_set(error, EXIT_CODE_USAGE, "--fp8-param-gather on: %s", why);
}

static bool check_fp8(const struct plan *plan, const struct model *model,
	const struct topology *topology, struct error *error)
{
	char reason[128];
	if (!check_fp8_parameters(plan, error))
		return false;
	if (plan->fp8 == FP8_OFF)
		return true;
	snprintf(reason, sizeof(reason), "%.60s has no fp8 units", topology->device.name);
	if (topology->device.kind != DEVICE_GPU ||
		device_peak_flops(&topology->device, DTYPE_FP8) <= 0)
		return refuse_fp8(plan, reason, error);
	if (!check_fp8_blocks(plan, &topology->device, error))
		return false;
	if (plan->param_dtype != DTYPE_BF16)
		return refuse_fp8(
			plan, "products have results in bf16, not in --param-dtype", error);
	if (!trainable_is_all(&plan->trainable) && !runtime_of(plan->runtime)->keeps_fp8_copies)
		return refuse_fp8(plan,
			"with frozen parameters it is modelled for runtime megatron alone", error);
	return check_fp8_model(plan, model, error);
}

/* --- model and machine ---------------------------------------------------------------------------
 */

/* Tied weights must be gathered together, so neither end can be wrapped apart. */
static bool check_wrap(const struct plan *plan, const struct model *model, struct error *error)
{
	const struct wrap_policy *wrap = &plan->wrap;
	if ((wrap->embedding || wrap->head) && model->architecture.tied_head)
		return error_set(error, EXIT_CODE_USAGE,
			"--wrap %.60s: the head of %s is tied to its token embedding, "
			"both must be in the root; use %.*s",
			wrap->text, model->architecture.name, (int)strcspn(wrap->text, "+"),
			wrap->text);
	return true;
}

/* Writes for example " x tensor 8". */
static const char *other_axes(const struct plan *plan, char text[96])
{
	int n = 0;
	for (int i = 0; i < KNOBS_OF_AXES; i++) {
		int64_t size = knob_get(knobs_of_axes[i], plan).number;
		if (size > 1)
			n += snprintf(text + n, (size_t)(96 - n), " x %s %lld",
				knob_table[knobs_of_axes[i]].field.name, (long long)size);
	}
	return text;
}

static bool check_mesh(
	const struct plan *plan, const struct topology *topology, struct error *error)
{
	const struct mesh *mesh = &plan->mesh;
	int64_t ranks;
	if (!checked_mul(mesh->replicate, mesh->shard, &ranks) ||
		!checked_mul(ranks, mesh->tensor, &ranks) ||
		!checked_mul(ranks, mesh->context, &ranks) ||
		!checked_mul(ranks, mesh->pipeline, &ranks) || ranks != topology_devices(topology))
		return error_set(error, EXIT_CODE_USAGE,
			"mesh: replicate %lld x shard %lld%s is not the topology's %lld devices",
			(long long)mesh->replicate, (long long)mesh->shard,
			other_axes(plan, (char[96]){0}), (long long)topology_devices(topology));
	if (plan->strategy == STRATEGY_NO_SHARD
			? mesh->shard != 1
			: !strategy_is_hybrid(plan->strategy) && !plan_has_zero_groups(plan) &&
				  mesh->replicate != 1)
		return error_set(error, EXIT_CODE_USAGE, "mesh: %s with replicate %lld, shard %lld",
			strategy_names[plan->strategy], (long long)mesh->replicate,
			(long long)mesh->shard);
	return true;
}

/* ": 4194304 tokens are 1024 of 4096", where that is a batch that is trained with. */
static const char *tokens_in_sequences(const struct plan *plan, char text[80])
{
	enum { PUBLISHED_MOST = 1 << 28 }; /* tokens in a step, and some room */
	text[0] = '\0';
	if (plan->global_batch <= PUBLISHED_MOST && plan->global_batch >= plan->seq_len)
		snprintf(text, 80, ": %lld tokens are %lld of %lld", (long long)plan->global_batch,
			(long long)ceil_div(plan->global_batch, plan->seq_len),
			(long long)plan->seq_len);
	return text;
}

/* Refuses sizes that would overflow further on: the logits and the loss take up to 16 bytes an
 * element. */
static bool check_batch(const struct plan *plan, const struct model *model, struct error *error)
{
	const int64_t most = (INT64_C(1) << 50) / (16 * model->architecture.vocab);
	int64_t product, tokens;
	char meant[80];
	if (plan->seq_len > model->architecture.context)
		return error_set(error, EXIT_CODE_USAGE,
			"--seq-len %lld: %s has a context of %lld tokens", (long long)plan->seq_len,
			model->architecture.name, (long long)model->architecture.context);
	if (plan->seq_len > most)
		return error_set(error, EXIT_CODE_USAGE,
			"--seq-len %lld: the logits of one sequence would not fit any machine; "
			"use at most %lld",
			(long long)plan->seq_len, (long long)most);
	if (!checked_mul(plan->micro_batch, plan->seq_len, &tokens) || tokens > most)
		return error_set(error, EXIT_CODE_USAGE,
			"--micro-batch %lld: "
			"the logits of %lld tokens each would not fit any machine; "
			"use at most %lld",
			(long long)plan->micro_batch, (long long)plan->seq_len,
			(long long)(most / plan->seq_len));
	if (plan->grad_accum > PLAN_MAX_GRAD_ACCUM)
		return error_set(error, EXIT_CODE_USAGE,
			"--grad-accum %lld: expected at most %d micro-batches in a step; "
			"use a larger --micro-batch; --global-batch counts sequences, not tokens%s",
			(long long)plan->grad_accum, PLAN_MAX_GRAD_ACCUM,
			tokens_in_sequences(plan, meant));
	if (!checked_mul(plan->micro_batch, plan->grad_accum, &product) ||
		!checked_mul(product, plan_data_parallel(plan), &product) ||
		product != plan->global_batch)
		return error_set(error, EXIT_CODE_USAGE,
			"global_batch %lld: is not micro_batch %lld x grad_accum %lld x %lld ranks",
			(long long)plan->global_batch, (long long)plan->micro_batch,
			(long long)plan->grad_accum, (long long)plan_data_parallel(plan));
	return true;
}

bool plan_check(const struct plan *plan, const struct model *model, const struct topology *topology,
	struct error *error)
{
	return check_mesh(plan, topology, error) && plan_check_axes(plan, model, error) &&
	       check_batch(plan, model, error) && check_dtypes(plan, topology, error) &&
	       plan_check_kernels(plan, model, &topology->device, error) &&
	       check_wrap(plan, model, error) && check_knobs(plan, error) &&
	       plan_check_exchanges(plan, model, topology, error) &&
	       plan_check_recompute(plan, model, error) && plan_check_graphs(plan, model, error) &&
	       check_fp8(plan, model, topology, error) && check_offload(plan, topology, error) &&
	       check_activations(plan, topology, error) &&
	       libraries_check(plan, model, topology, error) &&
	       check_trainable(plan, model, error) && check_prediction(plan, model, error) &&
	       plan_check_rows(plan, model, error);
}

/* --- options that would do nothing ---------------------------------------------------------------
 */

static bool is_idle(const char *option, const char *value, const struct plan *plan,
	const char *reason, struct error *error)
{
	return error_set(error, EXIT_CODE_USAGE, "--%s %.60s: %s of runtime %s %s; leave it out",
		option, value, strategy_names[plan->strategy], runtime_names[plan->runtime],
		reason);
}

bool plan_honours(const struct question *question, const struct plan *plan, struct error *error)
{
	enum layout_kind layout = plan_layout(plan);
	bool wraps = question_gives(question, KNOB_WRAP) && strcmp(plan->wrap.text, "block") != 0;
	bool prefetches = question_gives(question, KNOB_PREFETCH) && plan->prefetch != PREFETCH_PRE;
	if (layout == LAYOUT_WHOLE && wraps)
		return is_idle("wrap", plan->wrap.text, plan,
			"has gradient buckets instead of units", error);
	if (layout == LAYOUT_PARTITIONED && wraps)
		return is_idle("wrap", plan->wrap.text, plan,
			"makes every module with parameters a unit", error);
	if (layout == LAYOUT_WHOLE && prefetches)
		return is_idle("prefetch", knob_name(KNOB_PREFETCH, (int)plan->prefetch), plan,
			"gathers nothing in backward", error);
	if (plan->strategy == STRATEGY_NO_SHARD && plan->forward_prefetch)
		return is_idle("forward-prefetch", "on", plan, "gathers nothing", error);
	if (plan->activation_offload == ACTIVATIONS_CHECKPOINTS &&
		!plan_checkpoints(plan, CHECKPOINTING_FULL) &&
		!plan_checkpoints(plan, CHECKPOINTING_SELECTIVE))
		return error_set(error, EXIT_CODE_USAGE,
			"--activation-offload checkpoints: "
			"no block is checkpointed; use all, or --activation-checkpointing full");
	if (question_gives(question, KNOB_RECOMPUTE_MODULES) &&
		question->asked.recompute_modules.of != 0 &&
		!plan_checkpoints(plan, CHECKPOINTING_SELECTIVE))
		return plan_recomputes_nothing(&question->asked.recompute_modules, error);
	return true;
}
