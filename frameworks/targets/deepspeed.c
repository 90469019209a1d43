/* DeepSpeed: ds_config.json, and the short form within accelerate's YAML.
 *
 * Keys: DeepSpeed 0.19.8 and 0.19.4 (deepspeed/runtime/config.py, constants.py, zero/config.py,
 * zero/offload_config.py; unknown keys below zero_optimization are errors there). Buckets are
 * counted in elements. JSON has no comments: what cannot be expressed goes to stderr.
 *
 * HYBRID_SHARD is MiCS (mics_shard_size: every state in the small group; 0.19.8 refuses it, 0.19.4
 * has it); resharding to groups is
 * ZeRO++'s hpZ (zero_hpz_partition_size: a second copy of the parameters in the small group).
 * Neither is in the deepspeed runtime: both stand for FSDP2's nearest. */
#include <string.h>

#include "frameworks/targets/shared.h"

#define DEEPSPEED_COMMON                                                                           \
	{KNOB_PREFETCH, FIXED, "*>pre", "DeepSpeed prefetches from the trace of a step"},          \
		{KNOB_FORWARD_PREFETCH, FIXED, "*>false",                                          \
			"DeepSpeed prefetches from the trace of a step, forward too"},             \
		{KNOB_LIMIT_ALL_GATHERS, FIXED, "*>false",                                         \
			"stage3_max_live_parameters is DeepSpeed's limit"},                        \
		{KNOB_ACTIVATION_CHECKPOINTING, ELSEWHERE, NULL,                                   \
			"model.gradient_checkpointing_enable()"},                                  \
		ATTENTION_IN_SCRIPT, {KNOB_COMPILE, ELSEWHERE, NULL, "engine.compile()"},          \
		{KNOB_MASTER_DTYPE, FIXED, "*>fp32",                                               \
			"DeepSpeed's bf16 and fp16 keep fp32 parameters"},                         \
		{KNOB_SEQ_LEN, ELSEWHERE, NULL, "tokens in a sequence, of the data set"},          \
		{KNOB_RUNTIME, IN_FILE}, {KNOB_WRAP, IN_FILE},                                     \
		ROW(KNOB_SYNC_EACH_MICRO_BATCH, FIXED)
#define DEEPSPEED_OFFLOAD                                                                          \
	ROW(KNOB_CPU_OFFLOAD, IN_FILE, "none optimizer parameters *>parameters",                   \
		"DeepSpeed offloads all of a kind")

static const struct export_rule rules[] = {
	DEEPSPEED_COMMON,
	{KNOB_RESHARD_AFTER_FORWARD, IN_FILE},
	{KNOB_ACTIVATION_OFFLOAD, IN_FILE, "none *>checkpoints",
		"cpu_checkpointing moves checkpoints alone"},
	{KNOB_OPTIMIZER, IN_FILE, "adamw-fused adamw-foreach sgd *>adamw-foreach",
		"AdamW is DeepSpeed's fused one, or PyTorch's with torch_adam"},
	DEEPSPEED_OFFLOAD,
	LIGER_IN_SCRIPT,
	OUTSIDE_OF_FILES,
};

static const struct export_rule accelerate_rules[] = {
	DEEPSPEED_COMMON,
	{KNOB_RESHARD_AFTER_FORWARD, FIXED, "true false *>true",
		"hpZ needs a file of its own: --to deepspeed"},
	{KNOB_REDUCE_DTYPE, FIXED, "*>@param_dtype",
		"communication_data_type needs a file of its own: --to deepspeed"},
	{KNOB_OPTIMIZER, ELSEWHERE, NULL, "the optimizer given to prepare()"},
	DEEPSPEED_OFFLOAD,
	{KNOB_MICRO_BATCH, ELSEWHERE, NULL, "DataLoader(batch_size=...)"},
	LIGER_IN_SCRIPT,
	OUTSIDE_OF_FILES,
};

/* Stage 1 reduces after the last micro-batch; 2 and 3 after each (DeepSpeed's engine.py). */
static void adapt_synchronisation(struct exporting *exporting, struct plan *plan)
{
	int stage = export_zero_stage(plan);

	if (plan->grad_accum > 1)
		export_change(exporting, plan, KNOB_SYNC_EACH_MICRO_BATCH,
			stage < 2 ? "false" : "true",
			stage < 2 ? "stages 0 and 1 reduce after the last micro-batch"
				  : "stages 2 and 3 reduce after every micro-batch");
}

static void adapt_offload(struct exporting *exporting, struct plan *plan)
{
	if (plan_offloads_any(plan) && export_zero_stage(plan) == 0)
		export_change(exporting, plan, KNOB_CPU_OFFLOAD, "none", "stage 0 has no offload");
	else if (plan_offloads_any(plan) && export_zero_stage(plan) < 3)
		export_change(exporting, plan, KNOB_CPU_OFFLOAD, "optimizer",
			"stages below 3 offload the optimizer alone");
}

/* What Transformers' switch does; DeepSpeed has none of its own that chooses within a block. */
static void adapt_checkpointing(struct exporting *exporting, struct plan *plan)
{
	const char *value = export_knob(plan, KNOB_ACTIVATION_CHECKPOINTING, exporting->arena);

	if (strcmp(value, "none") != 0)
		export_change(exporting, plan, KNOB_ACTIVATION_CHECKPOINTING, "full",
			"gradient_checkpointing_enable() checkpoints every block whole");
}

/* One group size for all units; runs of several become plain resharding. */
static bool is_hpz(const struct plan *plan)
{
	return plan->reshard_after_forward.n == 0 && plan->reshard_after_forward.all > 0;
}

static void flatten(struct exporting *exporting, struct plan *plan, const char *why)
{
	if (strategy_is_hybrid(plan->strategy))
		export_change(exporting, plan, KNOB_STRATEGY,
			plan->strategy == STRATEGY_HYBRID_SHARD ? "FULL_SHARD" : "SHARD_GRAD_OP",
			why);
}

static void adapt(struct exporting *exporting, struct plan *plan)
{
	static const char *const stages[] = {"NO_SHARD", "ZERO_1", "ZERO_2", "ZERO_3"};
	static const char mics[] = "MiCS is predicted as FSDP2's hybrid";

	if (exporting->version == 0)
		flatten(exporting, plan, "DeepSpeed has dropped MiCS; --for-version 0.19.4 has it");
	if (strategy_reshards(plan->strategy) && !is_hpz(plan))
		export_change(exporting, plan, KNOB_RESHARD_AFTER_FORWARD, "true",
			"DeepSpeed has no choice per unit");
	if (plan->strategy == STRATEGY_HYBRID_SHARD_ZERO2)
		export_change(exporting, plan, KNOB_STRATEGY, "HYBRID_SHARD",
			"MiCS is the nearest: stage 3 in groups");
	if (plan->strategy == STRATEGY_NO_SHARD) {
		export_change(exporting, plan, KNOB_RUNTIME, "pytorch-ddp",
			"stage 0 is predicted as DDP");
	} else if (plan->strategy == STRATEGY_HYBRID_SHARD) {
		export_change(exporting, plan, KNOB_RUNTIME, "pytorch-fsdp2", mics);
		export_change(exporting, plan, KNOB_RESHARD_AFTER_FORWARD, "true",
			"MiCS has no groups within its groups");
	} else if (plan_offloads(plan, OFFLOAD_PARAMETERS) && export_zero_stage(plan) == 3) {
		export_change(exporting, plan, KNOB_STRATEGY, "FULL_SHARD", "stage 3");
		export_change(exporting, plan, KNOB_RUNTIME, "pytorch-fsdp2",
			"its parameter offload is predicted as FSDP2's");
	} else if (is_hpz(plan)) {
		export_change(exporting, plan, KNOB_RUNTIME, "pytorch-fsdp2",
			"hpZ is predicted as FSDP2's resharding to groups");
	} else {
		export_change(exporting, plan, KNOB_STRATEGY, stages[export_zero_stage(plan)],
			"DeepSpeed's own stages");
		export_change(exporting, plan, KNOB_RUNTIME, "deepspeed", "this is DeepSpeed");
	}
	adapt_synchronisation(exporting, plan);
	adapt_checkpointing(exporting, plan);
	adapt_offload(exporting, plan);
}

/* The short form has neither MiCS nor hpZ. */
static void adapt_accelerate(struct exporting *exporting, struct plan *plan)
{
	flatten(exporting, plan, "DeepSpeed's groups need a file of its own");
	if (plan_reshard_group(plan) > 0)
		export_change(exporting, plan, KNOB_RESHARD_AFTER_FORWARD, "true",
			"hpZ needs a file of its own: --to deepspeed");
	adapt(exporting, plan);
}

/* --- keys ----------------------------------------------------------------------------------- */

static const char *hpz(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;

	return is_hpz(plan) && plan_reshard_group(plan) > 0 ? plan->reshard_after_forward.text
							    : NULL;
}

static const char *torch_adam(struct exporting *exporting)
{
	return exporting->plan->optimizer == OPTIMIZER_ADAMW_FOREACH ? "true" : NULL;
}

/* Of deepspeed.checkpointing.checkpoint(), which the model must call. */
static const char *cpu_checkpointing(struct exporting *exporting)
{
	return exporting->plan->activation_offload != ACTIVATIONS_STAY ? "true" : NULL;
}

#define ZERO(name)        "zero_optimization." name
#define OPTIMIZER_DEVICE  "cpu>optimizer cpu>parameters none"
#define PARAMETERS_DEVICE "none>optimizer cpu>parameters none"

/* Sizes and switches of the stages are DeepSpeed's own defaults, spelled out: the runtime's
 * prediction is of these. */
static const struct config_key keys[] = {
	{"train_batch_size", KEY_COUNT, KNOB_GLOBAL_BATCH},
	{"train_micro_batch_size_per_gpu", KEY_COUNT, KNOB_MICRO_BATCH},
	{"gradient_accumulation_steps", KEY_COUNT, KNOB_GRAD_ACCUM},
	{"gradient_clipping", KEY_NUMBER, KNOB_CLIP},
	{"bf16.enabled", KEY_READ, KNOB_PARAM_DTYPE, "true>bf16", IF_BF16},
	{"bfloat16.enabled", KEY_READ, NO_KNOB},
	{"fp16.enabled", KEY_READ, KNOB_PARAM_DTYPE, "true>fp16", IF_FP16},
	{"communication_data_type", KEY_WORD, KNOB_REDUCE_DTYPE, "fp32 fp16 bf16"},
	{"optimizer.type", KEY_READ, KNOB_OPTIMIZER,
		"SGD>sgd AdamW>adamw-fused AdamW>adamw-foreach"},
	{"pipeline.stages", KEY_ONE, NO_KNOB},
	{"tensor_parallel.autotp_size", KEY_ONE, NO_KNOB},
	{"sequence_parallel_size", KEY_ONE, NO_KNOB},
	{"optimizer.params.lr", KEY_PLAIN, NO_KNOB, "3e-4"},
	{"optimizer.params.betas[]", KEY_PLAIN, NO_KNOB, "0.9", IF_ADAM},
	{"optimizer.params.betas[]", KEY_PLAIN, NO_KNOB, "0.95", IF_ADAM},
	{"optimizer.params.eps", KEY_PLAIN, NO_KNOB, "1e-8", IF_ADAM},
	{"optimizer.params.weight_decay", KEY_PLAIN, NO_KNOB, "0.1"},
	{"optimizer.params.torch_adam", KEY_READ, NO_KNOB, NULL, 0, torch_adam},
	{ZERO("stage"), KEY_READ, KNOB_STRATEGY, NULL, 0, value_zero_stage},
	{ZERO("overlap_comm"), KEY_READ, NO_KNOB, "false", IF_ZERO_1_2},
	{ZERO("overlap_comm"), KEY_READ, NO_KNOB, "true", IF_ZERO_3},
	{ZERO("contiguous_gradients"), KEY_PLAIN, NO_KNOB, "true", IF_ZERO},
	{ZERO("reduce_scatter"), KEY_PLAIN, NO_KNOB, "true", IF_ZERO},
	{ZERO("reduce_bucket_size"), KEY_READ, NO_KNOB, "500000000", IF_ZERO},
	{ZERO("allgather_partitions"), KEY_PLAIN, NO_KNOB, "true", IF_ZERO_1_2},
	{ZERO("allgather_bucket_size"), KEY_READ, NO_KNOB, "500000000", IF_ZERO_1_2},
	{ZERO("stage3_prefetch_bucket_size"), KEY_READ, NO_KNOB, "50000000", IF_ZERO_3},
	{ZERO("stage3_param_persistence_threshold"), KEY_READ, NO_KNOB, "100000", IF_ZERO_3},
	{ZERO("stage3_max_live_parameters"), KEY_READ, NO_KNOB, "1000000000", IF_ZERO_3},
	{ZERO("stage3_max_reuse_distance"), KEY_READ, NO_KNOB, "1000000000", IF_ZERO_3},
	{ZERO("stage3_gather_16bit_weights_on_model_save"), KEY_PLAIN, NO_KNOB, "true", IF_ZERO_3},
	{ZERO("mics_shard_size"), KEY_READ, KNOB_SHARD_GROUP, NULL, IF_HYBRID | IF_ZERO_3},
	{ZERO("mics_hierarchical_params_gather"), KEY_PLAIN, NO_KNOB, "false",
		IF_HYBRID | IF_ZERO_3},
	{ZERO("zero_hpz_partition_size"), KEY_READ, KNOB_RESHARD_AFTER_FORWARD, NULL, IF_ZERO_3,
		hpz},
	{ZERO("offload_optimizer.device"), KEY_READ, KNOB_CPU_OFFLOAD, OPTIMIZER_DEVICE,
		IF_OFFLOADED},
	{ZERO("offload_optimizer.pin_memory"), KEY_PLAIN, NO_KNOB, "true", IF_OFFLOADED},
	{ZERO("offload_param.device"), KEY_READ, KNOB_CPU_OFFLOAD, PARAMETERS_DEVICE,
		IF_PARAMETERS_OFFLOADED},
	{ZERO("offload_param.pin_memory"), KEY_PLAIN, NO_KNOB, "true", IF_PARAMETERS_OFFLOADED},
	{"activation_checkpointing.cpu_checkpointing", KEY_WORD, KNOB_ACTIVATION_OFFLOAD,
		"true>checkpoints false>none", 0, cpu_checkpointing},
	{NULL},
};
static const char unpriced[] = "zero_optimization.zenflow* activation_checkpointing.*";
/* What `finish` judges, and what has no consequence. */
static const char plain[] =
	"zero_optimization.cpu_offload zero_optimization.zero_quantized_* "
	"zero_optimization.sub_group_size zero_optimization.max_live_parameters "
	"zero_optimization.max_reuse_distance zero_optimization.prefetch_bucket_size "
	"zero_optimization.param_persistence_threshold zero_optimization.offload_* "
	"zero_optimization.stage3_gather_* "
	"zero_optimization.gather_16bit_weights_on_model_save "
	"zero_optimization.round_robin_gradients zero_optimization.load_from_fp32_weights "
	"zero_optimization.elastic_checkpoint zero_optimization.ignore_unused_parameters "
	"zero_optimization.log_trace_cache_warnings bf16.* fp16.* optimizer.* scheduler.* "
	"steps_per_print prescale_gradients wall_clock_breakdown zero_allow_untested_optimizer "
	"zero_force_ds_cpu_optimizer flops_profiler.* tensorboard.* wandb.* comms_logger.*";

#define SHORT(name) "deepspeed_config." name

static const struct config_key accelerate_keys[] = {
	{"compute_environment", KEY_PLAIN, NO_KNOB, "LOCAL_MACHINE"},
	{"distributed_type", KEY_PLAIN, NO_KNOB, "DEEPSPEED"},
	{"mixed_precision", KEY_WORD, KNOB_PARAM_DTYPE, "no>fp32 fp32 bf16 fp16 fp8>bf16"},
	{"num_machines", KEY_PLAIN, NO_KNOB, NULL, 0, value_nodes},
	{"num_processes", KEY_COUNT, KEY_GPUS},
	{"machine_rank", KEY_PLAIN, NO_KNOB, "0"},
	{"rdzv_backend", KEY_PLAIN, NO_KNOB, "static"},
	{"same_network", KEY_PLAIN, NO_KNOB, "true"},
	{SHORT("deepspeed_multinode_launcher"), KEY_PLAIN, NO_KNOB, "standard"},
	{SHORT("gradient_accumulation_steps"), KEY_COUNT, KNOB_GRAD_ACCUM},
	{SHORT("gradient_clipping"), KEY_NUMBER, KNOB_CLIP},
	{SHORT("offload_optimizer_device"), KEY_READ, KNOB_CPU_OFFLOAD, OPTIMIZER_DEVICE},
	{SHORT("offload_param_device"), KEY_READ, KNOB_CPU_OFFLOAD, PARAMETERS_DEVICE},
	{SHORT("zero3_init_flag"), KEY_PLAIN, NO_KNOB, "true", IF_ZERO_3},
	{SHORT("zero3_init_flag"), KEY_PLAIN, NO_KNOB, "false", IF_ZERO_1_2},
	{SHORT("zero3_init_flag"), KEY_PLAIN, NO_KNOB, "false", IF_REPLICATED},
	{SHORT("zero3_save_16bit_model"), KEY_PLAIN, NO_KNOB, "true", IF_ZERO_3},
	{SHORT("zero_stage"), KEY_READ, KNOB_STRATEGY, NULL, 0, value_zero_stage},
	{SHORT("deepspeed_config_file"), KEY_READ, NO_KNOB},
	{NULL},
};
static const char accelerate_plain[] = SHORT("zero3_*") " " SHORT("deepspeed_*") " " SHORT(
	"offload_*") " "
		     "main_* debug downcast_bf16 enable_cpu_affinity gpu_ids use_cpu tpu_*";

/* --- import --------------------------------------------------------------------------------- */

static bool stage_of(
	const struct importing *importing, const char *path, int *stage, struct error *error)
{
	const char *text = import_text(importing, path, "0");

	if (strlen(text) != 1 || text[0] < '0' || text[0] > '3')
		return import_fail(
			importing, path, error, "expected 0, 1, 2 or 3, got \"%.40s\"", text);
	*stage = text[0] - '0';
	return true;
}

static void set_stage(struct importing *importing, const char *path, int stage)
{
	static const char *const names[] = {"NO_SHARD", "ZERO_1", "ZERO_2", "ZERO_3"};

	import_set(importing, KNOB_RUNTIME, stage == 0 ? "pytorch-ddp" : "deepspeed", NULL);
	import_set(importing, KNOB_STRATEGY, names[stage], path);
	import_set(importing, KNOB_SYNC_EACH_MICRO_BATCH, stage < 2 ? "off" : "on", NULL);
}

/* Only stage 3 partitions parameters, and its offload stands for FSDP2's. */
static void set_parameter_offload(struct importing *importing, const char *path)
{
	bool sharded = strcmp(import_value(importing, KNOB_STRATEGY), "ZERO_3") == 0;

	if (!sharded && strcmp(import_value(importing, KNOB_RUNTIME), "pytorch-fsdp2") != 0) {
		import_note(importing, path, "only stage 3 offloads parameters: ignored");
		return;
	}
	if (sharded)
		import_set(importing, KNOB_STRATEGY, "FULL_SHARD", path);
	import_set(importing, KNOB_RUNTIME, "pytorch-fsdp2", path);
	import_set(importing, KNOB_CPU_OFFLOAD, "parameters", path);
	import_note(importing, path, "is predicted as the CPU offload of FSDP2");
}

/* MiCS and hpZ stand for FSDP2's groups. */
static bool set_groups(struct importing *importing, struct error *error)
{
	int64_t mics, hpz;

	if (!import_count(importing, ZERO("mics_shard_size"), &mics, 0, error) ||
		!import_count(importing, ZERO("zero_hpz_partition_size"), &hpz, 1, error))
		return false;
	if (mics > 0) {
		import_set(importing, KNOB_STRATEGY, "HYBRID_SHARD", ZERO("mics_shard_size"));
		import_set_count(importing, KNOB_SHARD_GROUP, mics, ZERO("mics_shard_size"));
		import_set(importing, KNOB_RUNTIME, "pytorch-fsdp2", NULL);
		import_note(importing, ZERO("mics_shard_size"),
			"MiCS is predicted as HYBRID_SHARD of FSDP2");
	} else if (hpz > 1) {
		import_set(importing, KNOB_STRATEGY, "FULL_SHARD", ZERO("stage"));
		import_set_count(importing, KNOB_RESHARD_AFTER_FORWARD, hpz,
			ZERO("zero_hpz_partition_size"));
		import_set(importing, KNOB_RUNTIME, "pytorch-fsdp2", NULL);
		import_note(importing, ZERO("zero_hpz_partition_size"),
			"hpZ is predicted as FSDP2's resharding to groups");
	}
	return true;
}

static bool is_cpu(struct importing *importing, const char *path, bool *cpu, struct error *error)
{
	const char *device = import_text(importing, path, "none");

	*cpu = strcmp(device, "none") != 0;
	if (strcmp(device, "nvme") == 0)
		import_note(importing, path, "nvme: is predicted as cpu");
	else if (*cpu && strcmp(device, "cpu") != 0)
		return import_fail(importing, path, error,
			"expected none, cpu or nvme, got \"%.40s\"", device);
	return true;
}

static bool set_offload(struct importing *importing, const char *optimizer_path,
	const char *parameters_path, struct error *error)
{
	bool optimizer, parameters;

	if (!is_cpu(importing, optimizer_path, &optimizer, error) ||
		!is_cpu(importing, parameters_path, &parameters, error))
		return false;
	optimizer = optimizer || import_is(importing, ZERO("cpu_offload"), "true");
	import_set(importing, KNOB_CPU_OFFLOAD, optimizer ? "optimizer" : "none",
		optimizer ? optimizer_path : NULL);
	if (parameters)
		set_parameter_offload(importing, parameters_path);
	return true;
}

static bool set_dtypes(struct importing *importing, struct error *error)
{
	static const char *const paths[] = {"bf16.enabled", "bfloat16.enabled", "fp16.enabled"};
	static const char *const dtypes[] = {"bf16", "bf16", "fp16"};
	bool given = false;

	for (int i = 0; i < COUNT_OF(paths); i++) {
		bool on;
		if (import_is(importing, paths[i], "auto"))
			continue;
		if (!import_switch(importing, paths[i], &on, false, error))
			return false;
		if (!on)
			continue;
		if (given && i == COUNT_OF(paths) - 1)
			return import_fail(importing, paths[i], error,
				"DeepSpeed stops when bf16 is on too; expected one of both");
		import_set(importing, KNOB_PARAM_DTYPE, dtypes[i], paths[i]);
		given = true;
	}
	bool automatic = import_find(importing, "bf16.enabled") != NULL && !given;
	if (!given && !automatic)
		import_set(importing, KNOB_PARAM_DTYPE, "fp32", NULL);
	import_set(importing, KNOB_MASTER_DTYPE, "fp32", NULL);
	return true;
}

/* Unless told otherwise DeepSpeed reduces in the dtype of the parameters. */
static void set_reduction(struct importing *importing)
{
	const char *dtype = import_value(importing, KNOB_PARAM_DTYPE);

	if (dtype != NULL)
		import_set_default(importing, KNOB_REDUCE_DTYPE, dtype);
}

static void set_optimizer(struct importing *importing)
{
	const char *type = import_text(importing, "optimizer.type", NULL);

	if (type == NULL)
		return;
	bool torch = import_is(importing, "optimizer.params.torch_adam", "true");
	bool sgd = strcmp(type, "SGD") == 0;
	bool adam = strncmp(type, "Adam", 4) == 0;
	if (!sgd && !adam)
		import_note(importing, "optimizer.type", "%.40s: is predicted as AdamW", type);
	import_set(importing, KNOB_OPTIMIZER,
		sgd     ? "sgd"
		: torch ? "adamw-foreach"
			: "adamw-fused",
		"optimizer.type");
}

/* train_batch_size = micro-batch x accumulation x ranks: three of them tell the ranks. */
static void set_ranks(struct importing *importing)
{
	const char *texts[] = {import_value(importing, KNOB_GLOBAL_BATCH),
		import_value(importing, KNOB_MICRO_BATCH),
		import_value(importing, KNOB_GRAD_ACCUM)};
	int64_t numbers[3], product;

	for (int i = 0; i < 3; i++) {
		if (texts[i] == NULL || !parse_int(texts[i], &numbers[i]))
			return;
	}
	if (checked_mul(numbers[1], numbers[2], &product) && numbers[0] % product == 0)
		import_set_count(importing, KEY_GPUS, numbers[0] / product, "train_batch_size");
}

/* The block says how, and the script whether. */
static void note_checkpointing(struct importing *importing)
{
	static const char path[] = "activation_checkpointing*";

	if (source_has(importing->source, path))
		import_note(importing, path,
			"does not switch checkpointing on, the script does: "
			"add --activation-checkpointing full if yours does");
}

/* What the runtime's prediction takes as DeepSpeed ships it. */
static void note_sizes(struct importing *importing)
{
	static const struct {
		const char *path;
		double value;
	} defaults[] = {{ZERO("reduce_bucket_size"), 5e8}, {ZERO("allgather_bucket_size"), 5e8},
		{ZERO("stage3_prefetch_bucket_size"), 5e7}, {ZERO("prefetch_bucket_size"), 5e7},
		{ZERO("stage3_param_persistence_threshold"), 1e5},
		{ZERO("param_persistence_threshold"), 1e5},
		{ZERO("stage3_max_live_parameters"), 1e9}, {ZERO("max_live_parameters"), 1e9},
		{ZERO("stage3_max_reuse_distance"), 1e9}, {ZERO("max_reuse_distance"), 1e9},
		{ZERO("sub_group_size"), 1e9}};
	double number;

	for (int i = 0; i < COUNT_OF(defaults); i++) {
		const char *text = import_text(importing, defaults[i].path, NULL);
		if (text != NULL && (!parse_number(text, &number) || number != defaults[i].value))
			import_note(importing, defaults[i].path,
				"%.40s: predicted with DeepSpeed's default of %.0f elements", text,
				defaults[i].value);
	}
	if (import_is(importing, ZERO("zero_quantized_weights"), "true") ||
		import_is(importing, ZERO("zero_quantized_gradients"), "true"))
		import_note(importing, ZERO("zero_quantized_*"),
			"ZeRO++'s quantized communication is not predicted");
	const char *overlap = import_text(importing, ZERO("overlap_comm"), NULL);
	bool late = !import_is(importing, ZERO("stage"), "3");
	if (overlap != NULL && strcmp(overlap, late ? "false" : "true") != 0)
		import_note(importing, ZERO("overlap_comm"),
			"%.10s: predicted as DeepSpeed's default for the stage, %s", overlap,
			late ? "false" : "true");
}

static bool finish(struct importing *importing, struct error *error)
{
	int stage = 0;

	if (!stage_of(importing, ZERO("stage"), &stage, error))
		return false;
	set_stage(importing, ZERO("stage"), stage);
	if (!set_groups(importing, error) ||
		!set_offload(importing, ZERO("offload_optimizer.device"),
			ZERO("offload_param.device"), error) ||
		!set_dtypes(importing, error))
		return false;
	import_set_default(importing, KNOB_CLIP, "1"); /* constants.py */
	set_reduction(importing);
	set_optimizer(importing);
	set_ranks(importing);
	note_checkpointing(importing);
	note_sizes(importing);
	return true;
}

static int recognizes(const struct source *source)
{
	return source_has(source, ZERO("stage")) ||
			       source_has(source, "train_micro_batch_size_per_gpu")
		       ? 9
		       : 0;
}

static bool finish_accelerate(struct importing *importing, struct error *error)
{
	int stage = 0;

	if (import_find(importing, SHORT("deepspeed_config_file")) != NULL)
		return import_fail(importing, SHORT("deepspeed_config_file"), error,
			"the settings are in that file; import it instead");
	if (!stage_of(importing, SHORT("zero_stage"), &stage, error))
		return false;
	set_stage(importing, SHORT("zero_stage"), stage);
	import_set_default(importing, KNOB_PARAM_DTYPE, "fp32");
	import_set(importing, KNOB_MASTER_DTYPE, "fp32", NULL);
	import_set_default(importing, KNOB_CLIP, "1"); /* accelerator.py's _prepare_deepspeed */
	set_reduction(importing);
	return set_offload(
		importing, SHORT("offload_optimizer_device"), SHORT("offload_param_device"), error);
}

static int recognizes_accelerate(const struct source *source)
{
	return source_has(source, SHORT("*")) ? 15 : 0;
}

static const struct config_format format = {recognizes, keys, plain, unpriced, finish};
static const struct config_format accelerate_format = {
	recognizes_accelerate, accelerate_keys, accelerate_plain, NULL, finish_accelerate};

const struct export_target export_deepspeed = {
	.name = "deepspeed",
	.title = "DeepSpeed ZeRO",
	.file = "ds_config.json",
	.program = "DeepSpeed",
	.versions = "0.19.8 0.19.4",
	.syntax = SYNTAX_JSON,
	.adapt = adapt,
	.has_own_ddp = true,
	.wraps = "block",
	.clips = true,
	.rules = rules,
	.launch = "deepspeed %[--hostfile hostfile %]--num_nodes %n --num_gpus %g train.py "
		  "--deepspeed_config %f",
	.format = &format,
};

const struct export_target export_accelerate_deepspeed = {
	.name = "accelerate-deepspeed",
	.title = "accelerate with DeepSpeed ZeRO",
	.file = "accelerate-deepspeed.yaml",
	.program = "accelerate",
	.versions = "1.15.0",
	.syntax = SYNTAX_YAML,
	.adapt = adapt_accelerate,
	.has_own_ddp = true,
	.wraps = "block",
	.clips = true,
	.rules = accelerate_rules,
	.launch = "accelerate launch --config_file %f " ACCELERATE_NODES "train.py",
	.format = &accelerate_format,
};
