/* Hugging Face accelerate: the YAML of `accelerate config`, for FSDP2 and FSDP1, and TRL, whose
 * command line takes the same file.
 *
 * Keys: accelerate 1.15 (src/accelerate/commands/config/config_args.py and commands/launch.py);
 * what they do: FullyShardedDataParallelPlugin in utils/dataclasses.py. num_processes counts all
 * nodes. Mixed precision reduces in its own dtype (set_mixed_precision). FSDP2's embedding and
 * head are units of their own there. FSDP1's strategy is fsdp_sharding_strategy: the launcher sets
 * its variable in any case, and reshard_after_forward counts only without it. FSDP is for
 * accelerators alone (state.py): on CPUs every rank would keep the whole model. parallelism_config
 * (parallelism_config.py) is for FSDP2 (launch.py, _validate_launch_command); tensor ranks follow
 * the tp_plan that Transformers gives a model, which cuts no sequence. */
#include <string.h>

#include "frameworks/targets/shared.h"

#define ACCELERATE_ELSEWHERE                                                                       \
	ATTENTION_IN_SCRIPT,                                                                       \
		{KNOB_OPTIMIZER, ELSEWHERE, NULL, "the optimizer given to prepare()"},             \
		{KNOB_SEQ_LEN, ELSEWHERE, NULL, "tokens in a sequence, of the data set"},          \
		{KNOB_MICRO_BATCH, ELSEWHERE, NULL, "DataLoader(batch_size=...)"},                 \
		{KNOB_GRAD_ACCUM, ELSEWHERE, NULL,                                                 \
			"Accelerator(gradient_accumulation_steps=...)"},                           \
		{KNOB_SYNC_EACH_MICRO_BATCH, ELSEWHERE, NULL,                                      \
			"GradientAccumulationPlugin(sync_each_batch=...)"},                        \
		ROW(KNOB_CLIP, ELSEWHERE, NULL, "accelerator.clip_grad_norm_(parameters, ...)")
#define CHECKPOINTING                                                                              \
	ROW(KNOB_ACTIVATION_CHECKPOINTING, IN_FILE, "none full *>full",                            \
		"accelerate checkpoints every block whole")
#define REDUCTION                                                                                  \
	ROW(KNOB_REDUCE_DTYPE, FIXED, "*>@param_dtype",                                            \
		"mixed_precision sets the dtype of parameters and of the reduction alike")

#define ACCELERATE_FSDP2                                                                           \
	{KNOB_STRATEGY, IN_FILE, ZERO_AS_FSDP, "FSDP2 is the nearest"},                            \
		{KNOB_RUNTIME, FIXED, "pytorch-ddp *>pytorch-fsdp2",                               \
			"this is accelerate's FSDP2"},                                             \
		{KNOB_RESHARD_AFTER_FORWARD, IN_FILE, "true false *>true",                         \
			"accelerate takes true or false, group sizes only in code"},               \
		FSDP2_PREFETCH, FSDP2_FORWARD, FSDP2_LIMITER, CHECKPOINTING, MASTER_FP32,          \
		REDUCTION, FSDP_OFFLOAD,                                                           \
		{KNOB_CONTEXT_METHOD, IN_FILE, "all-gather ring *>all-gather",                     \
			"accelerate takes allgather or alltoall, torch's rotations"},              \
		ROW(KNOB_SEQUENCE_PARALLEL, FIXED, "*>false", "tp_plan=\"auto\" cuts no sequence")

static const struct export_rule fsdp2_rules[] = {
	ACCELERATE_FSDP2, ACCELERATE_ELSEWHERE, LIGER_IN_SCRIPT, OUTSIDE_OF_FILES};

static const struct export_rule trl_rules[] = {
	ACCELERATE_FSDP2,
	{KNOB_ATTENTION, ELSEWHERE, NULL, "--attn_implementation flash_attention_2 or eager"},
	{KNOB_OPTIMIZER, ELSEWHERE, NULL, "--optim adamw_torch_fused or adamw_torch"},
	{KNOB_SEQ_LEN, ELSEWHERE, NULL, "--max_length ..."},
	{KNOB_MICRO_BATCH, ELSEWHERE, NULL, "--per_device_train_batch_size ..."},
	{KNOB_GRAD_ACCUM, ELSEWHERE, NULL, "--gradient_accumulation_steps ..."},
	{KNOB_SYNC_EACH_MICRO_BATCH, ELSEWHERE, NULL,
		"accelerator_config.gradient_accumulation_kwargs.sync_each_batch=..."},
	{KNOB_CLIP, ELSEWHERE, NULL, "--max_grad_norm ..."},
	LIGER_IN_SCRIPT,
	OUTSIDE_OF_FILES,
};

static const struct export_rule fsdp1_rules[] = {
	{KNOB_STRATEGY, IN_FILE, ZERO_AS_FSDP, "FSDP1 is the nearest"},
	{KNOB_RUNTIME, FIXED, "pytorch-ddp pytorch-fsdp1 *>pytorch-fsdp1",
		"this is accelerate's FSDP1"},
	{KNOB_SHARD_GROUP, FIXED, "*>@node", "accelerate's FSDP1 shards inside each node"},
	FSDP1_RESHARD,
	{KNOB_LIMIT_ALL_GATHERS, FIXED, "*>true",
		"on unless code says limit_all_gathers=False: the file has no key for it"},
	CHECKPOINTING,
	MASTER_FP32,
	REDUCTION,
	FSDP_OFFLOAD,
	ACCELERATE_ELSEWHERE,
	LIGER_IN_SCRIPT,
	OUTSIDE_OF_FILES,
};

/* fsdp_config has the key, DDP has no fsdp_config. */
static void adapt(struct exporting *exporting, struct plan *plan)
{
	const char *value = export_knob(plan, KNOB_ACTIVATION_CHECKPOINTING, exporting->arena);

	if (plan->strategy == STRATEGY_NO_SHARD && strcmp(value, "none") != 0)
		export_note_elsewhere(exporting, "activation_checkpointing",
			"%s: model.gradient_checkpointing_enable()", value);
}

static const char *refuses_fsdp1(const struct plan *plan)
{
	return plan->mesh.tensor * plan->mesh.context == 1
		       ? NULL
		       : "FSDP1 has no tensor or context ranks; use --to accelerate";
}

static void write_file(struct exporting *exporting)
{
	const struct mesh *mesh = &exporting->plan->mesh;

	if (!export_is_sharded(exporting))
		value_wrap_class(exporting); /* a note where it is not known */
	if (mesh->tensor > 1)
		export_note_elsewhere(exporting, "tensor",
			"%lld: from_pretrained(tp_plan=\"auto\", "
			"device_mesh=accelerator.torch_device_mesh[\"tp\"])",
			(long long)mesh->tensor);
	if (mesh->context > 1)
		export_note_elsewhere(exporting, "context",
			"%lld: with accelerator.maybe_context_parallel(...)",
			(long long)mesh->context);
	export_write(exporting);
}

/* Of TRL's command line; without the words it clips to 1. */
static const char *started_with(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;

	return plan->clip == 1 ? ""
			       : arena_printf(exporting->arena, " --max_grad_norm %s",
					 export_knob(plan, KNOB_CLIP, exporting->arena));
}

/* --- keys ----------------------------------------------------------------------------------- */

static const char *distributed_type(struct exporting *exporting)
{
	return export_is_sharded(exporting) ? "FSDP" : "MULTI_GPU";
}

/* Without it all ranks are one shard group. */
static const char *size(struct exporting *exporting, int64_t ranks, bool always)
{
	const struct plan *plan = exporting->plan;
	bool divides = plan->mesh.tensor * plan->mesh.context > 1;

	return divides || (always && export_is_hybrid(exporting))
		       ? arena_printf(exporting->arena, "%lld", (long long)ranks)
		       : NULL;
}

static const char *replicas(struct exporting *exporting)
{
	return size(exporting, exporting->plan->mesh.replicate, true);
}

static const char *shards(struct exporting *exporting)
{
	return size(exporting, exporting->plan->mesh.shard, true);
}

static const char *tensor_ranks(struct exporting *exporting)
{
	return size(exporting, exporting->plan->mesh.tensor, false);
}

static const char *context_ranks(struct exporting *exporting)
{
	return size(exporting, exporting->plan->mesh.context, false);
}

static const char *strategy_of_context(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;

	return plan->mesh.context == 1                ? NULL
	       : plan->context_method == CONTEXT_RING ? "alltoall"
						      : "allgather";
}

#define KEY(name)  "fsdp_config.fsdp_" name
#define MESH(name) "parallelism_config.parallelism_config_" name

static const struct config_key keys[] = {
	{"compute_environment", KEY_PLAIN, NO_KNOB, "LOCAL_MACHINE"},
	{"distributed_type", KEY_READ, NO_KNOB, NULL, 0, distributed_type},
	{"mixed_precision", KEY_WORD, KNOB_PARAM_DTYPE, "no>fp32 fp32 bf16 fp16 fp8>bf16"},
	{"num_machines", KEY_PLAIN, NO_KNOB, NULL, 0, value_nodes},
	{"num_processes", KEY_COUNT, KEY_GPUS},
	{"machine_rank", KEY_PLAIN, NO_KNOB, "0"},
	{"rdzv_backend", KEY_PLAIN, NO_KNOB, "static"},
	{"same_network", KEY_PLAIN, NO_KNOB, "true"},
	{"main_training_function", KEY_PLAIN, NO_KNOB, "main"},
	{"use_cpu", KEY_PLAIN, NO_KNOB, "false"},
	{"dynamo_config.dynamo_backend", KEY_WORD, KNOB_COMPILE, "INDUCTOR>on no>off *>on",
		IF_COMPILED},
	{"dynamo_backend", KEY_WORD, KNOB_COMPILE, "no>off *>on", ONLY_READ},
	{KEY("version"), KEY_READ, NO_KNOB, NULL, IF_SHARDED, value_fsdp_version},
	{KEY("reshard_after_forward"), KEY_READ, KNOB_RESHARD_AFTER_FORWARD, NULL,
		IF_SHARDED | IF_FSDP2, value_reshards},
	{KEY("sharding_strategy"), KEY_READ, KNOB_STRATEGY, NULL, IF_SHARDED | IF_FSDP1},
	{KEY("backward_prefetch*"), KEY_READ, KNOB_PREFETCH,
		"BACKWARD_PRE>pre BACKWARD_POST>post NO_PREFETCH>none 1>pre 2>post",
		IF_SHARDED | IF_FSDP1 | EXACT_CASE},
	{KEY("forward_prefetch"), KEY_READ, KNOB_FORWARD_PREFETCH, NULL, IF_SHARDED | IF_FSDP1},
	{KEY("use_orig_params"), KEY_PLAIN, NO_KNOB, "true", IF_SHARDED | IF_FSDP1},
	{KEY("sync_module_states"), KEY_PLAIN, NO_KNOB, "true", IF_SHARDED | IF_FSDP1},
	{KEY("auto_wrap_policy"), KEY_READ, KNOB_WRAP, NULL, IF_SHARDED, value_wrap_policy},
	{KEY("min_num_params"), KEY_READ, NO_KNOB, NULL, IF_SHARDED, value_wrap_least},
	{KEY("transformer_layer_cls_to_wrap*"), KEY_READ, NO_KNOB, NULL, IF_SHARDED,
		value_wrap_class},
	{KEY("state_dict_type"), KEY_PLAIN, NO_KNOB, "SHARDED_STATE_DICT", IF_SHARDED},
	{KEY("offload_params"), KEY_READ, KNOB_CPU_OFFLOAD, PARAMETERS_OR_NONE, IF_SHARDED},
	{KEY("cpu_ram_efficient_loading"), KEY_PLAIN, NO_KNOB, "true", IF_SHARDED},
	{KEY("activation_checkpointing"), KEY_READ, KNOB_ACTIVATION_CHECKPOINTING, FULL_OR_NONE,
		IF_SHARDED},
	{MESH("dp_replicate_size"), KEY_READ, NO_KNOB, NULL, IF_SHARDED | IF_FSDP2, replicas},
	{MESH("dp_shard_size"), KEY_READ, KNOB_SHARD_GROUP, NULL, IF_SHARDED | IF_FSDP2, shards},
	{MESH("tp_size"), KEY_READ, KNOB_TENSOR, NULL, IF_SHARDED | IF_FSDP2, tensor_ranks},
	{MESH("cp_size"), KEY_READ, KNOB_CONTEXT, NULL, IF_SHARDED | IF_FSDP2, context_ranks},
	{MESH("cp_comm_strategy"), KEY_READ, KNOB_CONTEXT_METHOD, NULL, IF_SHARDED | IF_FSDP2,
		strategy_of_context},
	{MESH("sp_size"), KEY_ONE, NO_KNOB},
	{NULL},
};
static const char unpriced[] = KEY("ignored_modules") " fp8_config.*";
static const char plain[] = MESH("cp_*") " " MESH(
	"sp_*") " dynamo_config.* main_process_* gpu_ids debug downcast_bf16 enable_cpu_affinity "
		"tpu_* mpirun_config.* command_file commands*";

/* --- import -------------------------------------------------------------------------------- */

static bool is_version_2(const struct source *source)
{
	const struct node *version = source_find(source, "fsdp_config.fsdp_version");

	if (version == NULL)
		version = source_find(source, "fsdp_config.version");
	return version != NULL && version->kind == NODE_SCALAR && strcmp(version->text, "2") == 0;
}

static int recognizes(const struct source *source)
{
	const struct node *type = source_find(source, "distributed_type");

	if (source_has(source, "deepspeed_config.*"))
		return 0;
	return type != NULL ? 10 : source_has(source, "fsdp_config.fsdp_*") ? 6 : 0;
}

static int recognizes_fsdp2(const struct source *source)
{
	bool ddp = !source_has(source, "fsdp_config.*");
	int sure = recognizes(source);

	return sure > 0 && (ddp || is_version_2(source)) ? sure + 1 : 0;
}

static void finish_dtypes(struct importing *importing)
{
	const char *path = "mixed_precision";

	if (import_is(importing, path, "fp8"))
		import_note(importing, path, "fp8: is predicted as bf16");
	if (import_value(importing, KNOB_PARAM_DTYPE) == NULL)
		import_set(importing, KNOB_PARAM_DTYPE, "fp32", path);
	import_set(importing, KNOB_REDUCE_DTYPE, import_value(importing, KNOB_PARAM_DTYPE), path);
	import_set(importing, KNOB_MASTER_DTYPE, "fp32", NULL);
}

/* `accelerate config` writes FSDP1's choice where `accelerate launch` does not look. */
static void note_reshard(struct importing *importing)
{
	static const char path[] = KEY("reshard_after_forward");

	if (import_find(importing, path) == NULL ||
		import_find(importing, KEY("sharding_strategy")) != NULL ||
		import_is(importing, path, "FULL_SHARD") || import_is(importing, path, "1"))
		return;
	import_note(importing, path,
		"%.40s: accelerate runs FULL_SHARD; "
		"FSDP1 takes its strategy from fsdp_sharding_strategy alone",
		import_text(importing, path, "unset"));
}

static bool finish_fsdp1(struct importing *importing, struct error *error)
{
	if (!import_fsdp1_strategy(importing, KEY("sharding_strategy"), "FULL_SHARD", error))
		return false;
	note_reshard(importing);
	import_set(importing, KNOB_RUNTIME, "pytorch-fsdp1", NULL);
	if (!import_key(importing, KEY("backward_prefetch*"), "none", error) ||
		!import_key(importing, KEY("forward_prefetch"), "off", error))
		return false;
	import_set(importing, KNOB_LIMIT_ALL_GATHERS, "on", NULL);
	return true;
}

/* Ranks that divide the model. */
static bool finish_axes(struct importing *importing, struct error *error)
{
	static const char tensor_path[] = MESH("tp_size"), context_path[] = MESH("cp_size");
	static const char method_path[] = MESH("cp_comm_strategy");
	int64_t tensor, context;

	if (!import_count(importing, tensor_path, &tensor, 1, error) ||
		!import_count(importing, context_path, &context, 1, error))
		return false;
	importing->beside_data = tensor * context;
	if (tensor > 1) {
		import_set_count(importing, KNOB_TENSOR, tensor, tensor_path);
		import_set(importing, KNOB_SEQUENCE_PARALLEL, "off", NULL);
	}
	if (context == 1)
		return true;
	import_set_count(importing, KNOB_CONTEXT, context, context_path);
	import_set(importing, KNOB_CONTEXT_METHOD,
		import_is(importing, method_path, "alltoall") ? "ring" : "all-gather",
		import_find(importing, method_path) != NULL ? method_path : NULL);
	return true;
}

static bool finish_fsdp2(struct importing *importing, struct error *error)
{
	static const char path[] = MESH("dp_replicate_size");
	static const char shards[] = MESH("dp_shard_size");
	int64_t replicate, shard;
	bool reshards, hybrid;

	if (!import_switch(importing, KEY("reshard_after_forward"), &reshards, true, error) ||
		!import_count(importing, path, &replicate, 1, error) ||
		!import_count(importing, shards, &shard, 0, error) ||
		!finish_axes(importing, error))
		return false;
	if (replicate > 1 && shard == 1)
		return import_fail(importing, path, error,
			"replicating without sharding, expected dp_shard_size above 1; "
			"use distributed_type MULTI_GPU");
	if (!import_mesh(importing, replicate, replicate == 1 && shard == 1 ? 0 : shard, path,
		    &hybrid, error))
		return false;
	import_fsdp2_strategy(importing, reshards, hybrid,
		import_find(importing, KEY("reshard_after_forward")) ? KEY("reshard_after_forward")
								     : NULL);
	if (import_find(importing, KEY("forward_prefetch")) != NULL)
		return import_fail(importing, KEY("forward_prefetch"), error,
			"FSDP2 refuses it in accelerate; remove it or use fsdp_version 1");
	if (import_find(importing, KEY("backward_prefetch*")) != NULL)
		import_note(importing, KEY("backward_prefetch"),
			"ignored by FSDP2, which always prefetches");
	return true;
}

static bool finish_sharded(struct importing *importing, struct error *error)
{
	bool fsdp2 = is_version_2(importing->source);

	if (!(fsdp2 ? finish_fsdp2(importing, error) : finish_fsdp1(importing, error)) ||
		!import_wrap(importing, KEY("auto_wrap_policy"), KEY("min_num_params"), "NO_WRAP",
			error) ||
		!import_key(importing, KEY("offload_params"), "none", error) ||
		!import_key(importing, KEY("activation_checkpointing"), "none", error))
		return false;
	if (import_is(importing, KEY("auto_wrap_policy"), "NO_WRAP") ||
		import_find(importing, KEY("auto_wrap_policy")) == NULL)
		import_note(importing, KEY("auto_wrap_policy"),
			"nothing is wrapped: the whole model is gathered at once");
	return true;
}

/* accelerate raises for others. */
static bool check_version(struct importing *importing, struct error *error)
{
	const char *version = import_text(importing, KEY("version"), "1");

	return strcmp(version, "1") == 0 || strcmp(version, "2") == 0 ||
	       import_fail(
		       importing, KEY("version"), error, "expected 1 or 2, got \"%.40s\"", version);
}

static bool finish(struct importing *importing, struct error *error)
{
	const char *type = import_text(importing, "distributed_type", "FSDP");

	if (!check_version(importing, error))
		return false;
	/* GradientAccumulationPlugin(sync_each_batch=False): accumulate() is no_sync(). */
	import_set(importing, KNOB_SYNC_EACH_MICRO_BATCH, "off", NULL);
	import_set_default(importing, KNOB_COMPILE, "off");
	finish_dtypes(importing);
	if (strcmp(type, "FSDP") == 0)
		return finish_sharded(importing, error);
	if (strncmp(type, "MULTI_", 6) != 0)
		return import_fail(importing, "distributed_type", error,
			"expected FSDP, DEEPSPEED or MULTI_GPU, got \"%.40s\", which is not "
			"predicted",
			type);
	import_set(importing, KNOB_RUNTIME, "pytorch-ddp", "distributed_type");
	import_set(importing, KNOB_STRATEGY, "NO_SHARD", "distributed_type");
	return true;
}

static const struct config_format fsdp2_format = {
	recognizes_fsdp2, keys, plain, unpriced, finish, "fsdp_config.", "fsdp_"};
static const struct config_format fsdp1_format = {
	recognizes, keys, plain, unpriced, finish, "fsdp_config.", "fsdp_"};
static const struct config_format trl_format = {
	NULL, keys, plain, unpriced, finish, "fsdp_config.", "fsdp_"};

const struct export_target export_accelerate_fsdp2 = {
	.name = "accelerate",
	.title = "accelerate with FSDP2",
	.file = "accelerate.yaml",
	.program = "accelerate",
	.versions = "1.15.0",
	.syntax = SYNTAX_YAML,
	.adapt = adapt,
	.refuses = fsdp2_refuses,
	.gpus_only = true,
	.wraps = "block model size:*",
	.wraps_apart = true,
	.tail = TAIL_STAYS,
	.rules = fsdp2_rules,
	.launch = "accelerate launch --config_file %f " ACCELERATE_NODES "train.py",
	.write = write_file,
	.format = &fsdp2_format,
};

const struct export_target export_accelerate_fsdp1 = {
	.name = "accelerate-fsdp1",
	.title = "accelerate with FSDP1",
	.file = "accelerate-fsdp1.yaml",
	.program = "accelerate",
	.versions = "1.15.0",
	.syntax = SYNTAX_YAML,
	.adapt = adapt,
	.refuses = refuses_fsdp1,
	.gpus_only = true,
	.wraps = "block model size:*",
	.rules = fsdp1_rules,
	.launch = "accelerate launch --config_file %f " ACCELERATE_NODES "train.py",
	.write = write_file,
	.format = &fsdp1_format,
};

const struct export_target export_trl = {
	.name = "trl",
	.title = "TRL with accelerate and FSDP2",
	.file = "trl-accelerate.yaml",
	.program = "accelerate",
	.versions = "1.15.0",
	.syntax = SYNTAX_YAML,
	.adapt = adapt,
	.refuses = fsdp2_refuses,
	.gpus_only = true,
	.wraps = "block model size:*",
	.wraps_apart = true,
	.tail = TAIL_STAYS,
	.clips = true,
	.rules = trl_rules,
	.launch = "trl sft --accelerate_config %f " ACCELERATE_NODES
		  "--per_device_train_batch_size %b "
		  "--gradient_accumulation_steps %a --max_length %s%x",
	.started_with = started_with,
	.write = write_file,
	.format = &trl_format,
};
