/* DeepSpeed: ds_config.json, and the short form within accelerate's YAML.
 *
 * Keys: DeepSpeed 0.19 (deepspeed/runtime/config.py, constants.py, zero/config.py,
 * zero/offload_config.py; unknown keys below zero_optimization are errors there). Buckets are
 * counted in elements. JSON has no comments: what cannot be said goes to stderr.
 *
 * HYBRID_SHARD is MiCS (mics_shard_size: every state in the small group); resharding to groups is
 * ZeRO++'s hpZ (zero_hpz_partition_size: a second copy of the parameters in the small group).
 * Neither is in the deepspeed runtime: both stand for FSDP2's nearest. */
#include <string.h>

#include "frameworks/targets/shared.h"

#define DEEPSPEED_FIXED                                                                            \
	{"wrap", SAYS_KEY, NULL, NULL},                                                            \
		{"prefetch", SAYS_ALWAYS, "*>pre",                                                 \
			"DeepSpeed prefetches from the trace of a step"},                          \
		{"forward_prefetch", SAYS_ALWAYS, "*>false",                                       \
			"DeepSpeed prefetches from the trace of a step, forward too"},             \
		{"limit_all_gathers", SAYS_ALWAYS, "*>false",                                      \
			"stage3_max_live_parameters is DeepSpeed's limit"},                        \
		{"activation_checkpointing", SAYS_BESIDE, NULL,                                    \
			"model.gradient_checkpointing_enable()"},                                  \
		ATTENTION_BESIDE, {"compile", SAYS_BESIDE, NULL, "engine.compile()"},              \
		{"param_dtype", SAYS_KEY, NULL, NULL},                                             \
		{"master_dtype", SAYS_ALWAYS, "*>fp32",                                            \
			"DeepSpeed's bf16 and fp16 keep fp32 parameters"},                         \
		{"seq_len", SAYS_BESIDE, NULL, "tokens in a sequence, of the data set"},           \
		{"strategy", SAYS_KEY, NULL, NULL}, {"runtime", SAYS_KEY, NULL, NULL},             \
		{"sync_each_micro_batch", SAYS_ALWAYS, NULL, NULL},                                \
		{"grad_accum", SAYS_KEY, NULL, NULL},                                              \
	{                                                                                          \
		"clip", SAYS_KEY, NULL, NULL                                                       \
	}

static const struct export_rule rules[] = {
	DEEPSPEED_FIXED,
	{"shard_group", SAYS_KEY, NULL, NULL},
	{"reshard_after_forward", SAYS_KEY, NULL, NULL},
	{"reduce_dtype", SAYS_KEY, NULL, NULL},
	{"optimizer", SAYS_KEY, "adamw-fused adamw-foreach sgd *>adamw-foreach",
		"AdamW is DeepSpeed's fused one, or PyTorch's with torch_adam"},
	{"cpu_offload", SAYS_KEY, "none optimizer parameters *>parameters",
		"DeepSpeed offloads all of a kind"},
	{"micro_batch", SAYS_KEY, NULL, NULL},
	LOSS_BESIDE,
	ENVIRONMENT_BESIDE,
	{NULL, SAYS_KEY, NULL, NULL},
};

static const struct export_rule accelerate_rules[] = {
	DEEPSPEED_FIXED,
	{"reshard_after_forward", SAYS_ALWAYS, "true false *>true",
		"hpZ needs a file of its own: --to deepspeed"},
	{"reduce_dtype", SAYS_ALWAYS, "*>@param_dtype",
		"communication_data_type needs a file of its own: --to deepspeed"},
	{"optimizer", SAYS_BESIDE, NULL, "the optimizer given to prepare()"},
	{"cpu_offload", SAYS_KEY, "none optimizer parameters *>parameters",
		"DeepSpeed offloads all of a kind"},
	{"micro_batch", SAYS_BESIDE, NULL, "DataLoader(batch_size=...)"},
	LOSS_BESIDE,
	ENVIRONMENT_BESIDE,
	{NULL, SAYS_KEY, NULL, NULL},
};

/* Stage 1 reduces after the last micro-batch; 2 and 3 after each (DeepSpeed's engine.py). */
static void adapt_synchronisation(struct exporting *exporting, struct plan *plan)
{
	int stage = export_zero_stage(plan);

	if (plan->grad_accum > 1)
		export_change(exporting, plan, "sync_each_micro_batch",
			stage < 2 ? "false" : "true",
			stage < 2 ? "stages 0 and 1 reduce after the last micro-batch"
				  : "stages 2 and 3 reduce after every micro-batch");
}

static void adapt_offload(struct exporting *exporting, struct plan *plan)
{
	if (plan_offloads_any(plan) && export_zero_stage(plan) == 0)
		export_change(exporting, plan, "cpu_offload", "none", "stage 0 has no offload");
	else if (plan_offloads_any(plan) && export_zero_stage(plan) < 3)
		export_change(exporting, plan, "cpu_offload", "optimizer",
			"stages below 3 offload the optimizer alone");
}

/* One group size for all units; runs of several become plain resharding. */
static bool is_hpz(const struct plan *plan)
{
	int64_t group;

	return parse_int(plan->reshard_after_forward, &group);
}

static void adapt(struct exporting *exporting, struct plan *plan)
{
	static const char *const stages[] = {"NO_SHARD", "ZERO_1", "ZERO_2", "ZERO_3"};
	static const char mics[] = "MiCS is predicted as FSDP2's hybrid";

	if (strategy_reshards(plan->strategy) && !is_hpz(plan))
		export_change(exporting, plan, "reshard_after_forward", "true",
			"DeepSpeed has no choice per unit");
	if (plan->strategy == STRATEGY_HYBRID_SHARD_ZERO2)
		export_change(exporting, plan, "strategy", "HYBRID_SHARD",
			"MiCS is the nearest: stage 3 in groups");
	if (plan->strategy == STRATEGY_NO_SHARD) {
		export_change(
			exporting, plan, "runtime", "pytorch-ddp", "stage 0 is predicted as DDP");
	} else if (plan->strategy == STRATEGY_HYBRID_SHARD) {
		export_change(exporting, plan, "runtime", "pytorch-fsdp2", mics);
		export_change(exporting, plan, "reshard_after_forward", "true",
			"MiCS has no groups within its groups");
	} else if (is_hpz(plan)) {
		export_change(exporting, plan, "runtime", "pytorch-fsdp2",
			"hpZ is predicted as FSDP2's resharding to groups");
	} else {
		export_change(exporting, plan, "strategy", stages[export_zero_stage(plan)],
			"DeepSpeed's own stages");
		export_change(exporting, plan, "runtime",
			export_has(runtime_names, "deepspeed") ? "deepspeed" : "pytorch-fsdp2",
			"this is DeepSpeed");
	}
	adapt_synchronisation(exporting, plan);
	adapt_offload(exporting, plan);
}

/* The short form has neither MiCS nor hpZ. */
static void adapt_accelerate(struct exporting *exporting, struct plan *plan)
{
	if (strategy_is_hybrid(plan->strategy))
		export_change(exporting, plan, "strategy",
			plan->strategy == STRATEGY_HYBRID_SHARD ? "FULL_SHARD" : "SHARD_GRAD_OP",
			"MiCS needs a file of its own: --to deepspeed");
	if (plan_reshard_group(plan) > 0)
		export_change(exporting, plan, "reshard_after_forward", "true",
			"hpZ needs a file of its own: --to deepspeed");
	adapt(exporting, plan);
}

/* --- writing -------------------------------------------------------------------------------- */

static void write_optimizer(const struct plan *plan, struct writer *writer)
{
	writer_begin_map(writer, "optimizer");
	writer_string(writer, "type", plan->optimizer == OPTIMIZER_SGD ? "SGD" : "AdamW");
	writer_begin_map(writer, "params");
	writer_number(writer, "lr", 3e-4);
	if (plan->optimizer != OPTIMIZER_SGD) {
		writer_begin_list(writer, "betas");
		writer_number(writer, NULL, 0.9);
		writer_number(writer, NULL, 0.95);
		writer_end_list(writer);
		writer_number(writer, "eps", 1e-8);
	}
	writer_number(writer, "weight_decay", 0.1);
	if (plan->optimizer == OPTIMIZER_ADAMW_FOREACH)
		writer_bool(writer, "torch_adam", true);
	writer_end_map(writer);
	writer_end_map(writer);
}

static void write_offload(const struct plan *plan, struct writer *writer)
{
	static const char *const keys[] = {"offload_optimizer", "offload_param"};
	bool parameters = plan_offloads(plan, OFFLOAD_PARAMETERS);
	const bool wanted[] = {plan_offloads_any(plan), parameters};

	for (int i = 0; i < COUNT_OF(keys); i++) {
		if (!wanted[i])
			continue;
		writer_begin_map(writer, keys[i]);
		writer_string(writer, "device", "cpu");
		writer_bool(writer, "pin_memory", true);
		writer_end_map(writer);
	}
}

/* DeepSpeed's own defaults, spelled out: the runtime's prediction is of these. */
static void write_stage3(const struct plan *plan, struct writer *writer)
{
	int64_t group = is_hpz(plan) ? plan_reshard_group(plan) : 0;

	writer_int(writer, "stage3_prefetch_bucket_size", 50000000);
	writer_int(writer, "stage3_param_persistence_threshold", 100000);
	writer_int(writer, "stage3_max_live_parameters", 1000000000);
	writer_int(writer, "stage3_max_reuse_distance", 1000000000);
	writer_bool(writer, "stage3_gather_16bit_weights_on_model_save", true);
	if (strategy_is_hybrid(plan->strategy)) {
		writer_int(writer, "mics_shard_size", plan->mesh.shard);
		writer_bool(writer, "mics_hierarchical_params_gather", false);
	}
	if (group > 0)
		writer_int(writer, "zero_hpz_partition_size", group);
}

static void write_zero(const struct plan *plan, struct writer *writer)
{
	int stage = export_zero_stage(plan);

	writer_begin_map(writer, "zero_optimization");
	writer_int(writer, "stage", stage);
	if (stage > 0) {
		writer_bool(writer, "overlap_comm", stage == 3);
		writer_bool(writer, "contiguous_gradients", true);
		writer_bool(writer, "reduce_scatter", true);
		writer_int(writer, "reduce_bucket_size", 500000000);
	}
	if (stage == 1 || stage == 2) {
		writer_bool(writer, "allgather_partitions", true);
		writer_int(writer, "allgather_bucket_size", 500000000);
	}
	if (stage == 3)
		write_stage3(plan, writer);
	write_offload(plan, writer);
	writer_end_map(writer);
}

static void write_precision(const struct plan *plan, struct writer *writer)
{
	static const char *const keys[] = {"bf16", "fp16"};
	const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_FP16};

	for (int i = 0; i < COUNT_OF(keys); i++) {
		if (plan->param_dtype != dtypes[i])
			continue;
		writer_begin_map(writer, keys[i]);
		writer_bool(writer, "enabled", true);
		writer_end_map(writer);
	}
	writer_string(writer, "communication_data_type", dtype_name(plan->reduce_dtype));
}

static void write_json(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;
	struct writer writer;

	writer_init(&writer, exporting->text, WRITER_JSON);
	writer_int(&writer, "train_batch_size", plan->global_batch);
	writer_int(&writer, "train_micro_batch_size_per_gpu", plan->micro_batch);
	writer_int(&writer, "gradient_accumulation_steps", plan->grad_accum);
	writer_number(&writer, "gradient_clipping", plan->clip);
	write_precision(plan, &writer);
	write_optimizer(plan, &writer);
	write_zero(plan, &writer);
	writer_finish(&writer);
}

static void write_short(const struct plan *plan, struct writer *writer)
{
	int stage = export_zero_stage(plan);
	bool optimizer = plan_offloads_any(plan);
	bool parameters = plan_offloads(plan, OFFLOAD_PARAMETERS);

	writer_begin_map(writer, "deepspeed_config");
	writer_string(writer, "deepspeed_multinode_launcher", "standard");
	writer_int(writer, "gradient_accumulation_steps", plan->grad_accum);
	writer_number(writer, "gradient_clipping", plan->clip);
	writer_string(writer, "offload_optimizer_device", optimizer ? "cpu" : "none");
	writer_string(writer, "offload_param_device", parameters ? "cpu" : "none");
	writer_bool(writer, "zero3_init_flag", stage == 3);
	if (stage == 3)
		writer_bool(writer, "zero3_save_16bit_model", true);
	writer_int(writer, "zero_stage", stage);
	writer_end_map(writer);
}

static void write_accelerate(struct exporting *exporting)
{
	const struct topology *topology = exporting->topology;
	enum dtype dtype = exporting->plan->param_dtype;
	struct writer writer;

	export_header(exporting);
	writer_init(&writer, exporting->text, WRITER_YAML);
	writer_string(&writer, "compute_environment", "LOCAL_MACHINE");
	writer_string(&writer, "distributed_type", "DEEPSPEED");
	writer_string(&writer, "mixed_precision",
		dtype == DTYPE_BF16   ? "bf16"
		: dtype == DTYPE_FP16 ? "fp16"
				      : "no");
	writer_int(&writer, "num_machines", topology->nodes);
	writer_int(&writer, "num_processes", topology_devices(topology));
	writer_int(&writer, "machine_rank", 0);
	writer_string(&writer, "rdzv_backend", "static");
	writer_bool(&writer, "same_network", true);
	write_short(exporting->plan, &writer);
	writer_finish(&writer);
}

const struct export_target export_deepspeed = {
	.name = "deepspeed",
	.title = "DeepSpeed ZeRO",
	.file = "ds_config.json",
	.source = "DeepSpeed 0.19 (edaa7221, 2026-08-22)",
	.syntax = SYNTAX_JSON,
	.adapt = adapt,
	.has_own_ddp = true,
	.wraps = "block",
	.rules = rules,
	.launch = "deepspeed --num_nodes %n --num_gpus %g train.py --deepspeed_config %f",
	.write = write_json,
	.import = &import_deepspeed,
};

const struct export_target export_accelerate_deepspeed = {
	.name = "accelerate-deepspeed",
	.title = "Hugging Face accelerate with DeepSpeed ZeRO",
	.file = "accelerate-deepspeed.yaml",
	.source = "accelerate 1.15 (16cb6eb8, 2026-07-24)",
	.syntax = SYNTAX_YAML,
	.adapt = adapt_accelerate,
	.has_own_ddp = true,
	.wraps = "block",
	.rules = accelerate_rules,
	.launch = "accelerate launch --config_file %f train.py",
	.write = write_accelerate,
	.import = &import_accelerate_deepspeed,
};
