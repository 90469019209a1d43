/* Hugging Face accelerate: the YAML of `accelerate config`, for FSDP2 and FSDP1, and TRL, whose
 * command line takes the same file.
 *
 * Keys: accelerate 1.15 (src/accelerate/commands/config/config_args.py and commands/launch.py);
 * what they do: FullyShardedDataParallelPlugin in utils/dataclasses.py. num_processes counts all
 * nodes. Mixed precision reduces in its own dtype (set_mixed_precision). FSDP2's embedding and
 * head are units of their own there. */
#include <string.h>

#include "frameworks/targets/shared.h"

#define ACCELERATE_BESIDE                                                                          \
	ATTENTION_BESIDE, {"optimizer", SAYS_BESIDE, NULL, "the optimizer given to prepare()"},    \
		{"seq_len", SAYS_BESIDE, NULL, "tokens in a sequence, of the data set"},           \
		{"micro_batch", SAYS_BESIDE, NULL, "DataLoader(batch_size=...)"},                  \
		{"grad_accum", SAYS_BESIDE, NULL, "Accelerator(gradient_accumulation_steps=...)"}, \
		{"sync_each_micro_batch", SAYS_BESIDE, NULL,                                       \
			"GradientAccumulationPlugin(sync_each_batch=...)"},                        \
	{                                                                                          \
		"clip", SAYS_BESIDE, NULL, "accelerator.clip_grad_norm_(parameters, ...)"          \
	}
#define TRL_BESIDE                                                                                 \
	{"attention", SAYS_BESIDE, NULL, "--attn_implementation flash_attention_2 or eager"},      \
		{"optimizer", SAYS_BESIDE, NULL, "--optim adamw_torch_fused or adamw_torch"},      \
		{"seq_len", SAYS_BESIDE, NULL, "--max_length ..."},                                \
		{"micro_batch", SAYS_BESIDE, NULL, "--per_device_train_batch_size ..."},           \
		{"grad_accum", SAYS_BESIDE, NULL, "--gradient_accumulation_steps ..."},            \
		{"sync_each_micro_batch", SAYS_BESIDE, NULL,                                       \
			"accelerator_config.gradient_accumulation_kwargs.sync_each_batch=..."},    \
	{                                                                                          \
		"clip", SAYS_BESIDE, NULL, "--max_grad_norm ..."                                   \
	}
#define ACCELERATE_DTYPES                                                                          \
	{"param_dtype", SAYS_KEY, NULL, NULL}, MASTER_ALWAYS_FP32,                                 \
	{                                                                                          \
		"reduce_dtype", SAYS_ALWAYS, "*>@param_dtype",                                     \
			"mixed_precision sets the dtype of parameters and of the reduction alike"  \
	}

#define ACCELERATE_FSDP2                                                                           \
	{"strategy", SAYS_KEY, ZERO_AS_FSDP, "FSDP2 is the nearest"},                              \
		{"shard_group", SAYS_KEY, NULL, NULL},                                             \
		{"runtime", SAYS_ALWAYS, "pytorch-ddp *>pytorch-fsdp2",                            \
			"this is accelerate's FSDP2"},                                             \
		{"reshard_after_forward", SAYS_KEY, "true false *>true",                           \
			"accelerate takes true or false, group sizes only in code"},               \
		{"wrap", SAYS_KEY, NULL, NULL}, FSDP2_ALWAYS,                                      \
		{"activation_checkpointing", SAYS_KEY, "none full *>full",                         \
			"accelerate checkpoints every block whole"},                               \
		{"compile", SAYS_KEY, NULL, NULL}, ACCELERATE_DTYPES,                              \
	{                                                                                          \
		"cpu_offload", SAYS_KEY, "none parameters *>parameters",                           \
			"FSDP moves parameters, gradients and optimizer state together"            \
	}

static const struct export_rule fsdp2_rules[] = {
	ACCELERATE_FSDP2,
	ACCELERATE_BESIDE,
	LOSS_BESIDE,
	ENVIRONMENT_BESIDE,
	{NULL, SAYS_KEY, NULL, NULL},
};

static const struct export_rule trl_rules[] = {
	ACCELERATE_FSDP2,
	TRL_BESIDE,
	LOSS_BESIDE,
	ENVIRONMENT_BESIDE,
	{NULL, SAYS_KEY, NULL, NULL},
};

static const struct export_rule fsdp1_rules[] = {
	{"strategy", SAYS_KEY, ZERO_AS_FSDP, "FSDP1 is the nearest"},
	{"runtime", SAYS_ALWAYS, "pytorch-ddp pytorch-fsdp1 *>pytorch-fsdp1",
		"this is accelerate's FSDP1"},
	{"shard_group", SAYS_ALWAYS, "*>@node", "accelerate's FSDP1 shards inside each node"},
	{"reshard_after_forward", SAYS_KEY, "true false *>true", "FSDP1 knows no group sizes"},
	{"wrap", SAYS_KEY, NULL, NULL},
	{"prefetch", SAYS_KEY, NULL, NULL},
	{"forward_prefetch", SAYS_KEY, NULL, NULL},
	{"limit_all_gathers", SAYS_ALWAYS, "*>true",
		"on unless code says limit_all_gathers=False: the file has no key for it"},
	{"activation_checkpointing", SAYS_KEY, "none full *>full",
		"accelerate checkpoints every block whole"},
	{"compile", SAYS_KEY, NULL, NULL},
	ACCELERATE_DTYPES,
	{"cpu_offload", SAYS_KEY, "none parameters *>parameters",
		"FSDP moves parameters, gradients and optimizer state together"},
	ACCELERATE_BESIDE,
	LOSS_BESIDE,
	ENVIRONMENT_BESIDE,
	{NULL, SAYS_KEY, NULL, NULL},
};

/* fsdp_config has the key, DDP has no fsdp_config. */
static void adapt(struct exporting *exporting, struct plan *plan)
{
	const char *value = export_knob(plan, "activation_checkpointing", exporting->arena);

	if (plan->strategy == STRATEGY_NO_SHARD && strcmp(value, "none") != 0)
		export_add_note(exporting, "activation_checkpointing", SAYS_BESIDE,
			"%s: model.gradient_checkpointing_enable()", value);
}

static void write_machine(const struct exporting *exporting, struct writer *writer)
{
	const struct topology *topology = exporting->topology;
	enum dtype dtype = exporting->plan->param_dtype;

	writer_string(writer, "compute_environment", "LOCAL_MACHINE");
	writer_string(writer, "distributed_type",
		export_is_sharded(exporting)          ? "FSDP"
		: topology->device.kind == DEVICE_CPU ? "MULTI_CPU"
						      : "MULTI_GPU");
	writer_string(writer, "mixed_precision",
		dtype == DTYPE_BF16   ? "bf16"
		: dtype == DTYPE_FP16 ? "fp16"
				      : "no");
	writer_int(writer, "num_machines", topology->nodes);
	writer_int(writer, "num_processes", topology_devices(topology));
	writer_comment(writer, "On every machine its own number and the address of the first.");
	writer_int(writer, "machine_rank", 0);
	if (topology->nodes > 1) {
		writer_string(writer, "main_process_ip", "127.0.0.1");
		writer_int(writer, "main_process_port", 29500);
	}
	writer_string(writer, "rdzv_backend", "static");
	writer_bool(writer, "same_network", true);
	writer_string(writer, "main_training_function", "main");
	writer_bool(writer, "use_cpu", topology->device.kind == DEVICE_CPU);
	if (exporting->plan->compile) {
		writer_begin_map(writer, "dynamo_config");
		writer_string(writer, "dynamo_backend", "INDUCTOR");
		writer_end_map(writer);
	}
}

static void write_wrap(struct exporting *exporting, const char *block, struct writer *writer)
{
	int64_t least = export_min_parameters(exporting);

	writer_string(writer, "fsdp_auto_wrap_policy",
		least > 0                        ? "SIZE_BASED_WRAP"
		: export_wraps_blocks(exporting) ? "TRANSFORMER_BASED_WRAP"
						 : "NO_WRAP");
	if (least > 0)
		writer_int(writer, "fsdp_min_num_params", least);
	else if (export_wraps_blocks(exporting) && block != NULL)
		writer_string(writer, "fsdp_transformer_layer_cls_to_wrap", block);
}

static void write_fsdp1_keys(const struct exporting *exporting, struct writer *writer)
{
	static const char *const prefetches[] = {"NO_PREFETCH", "BACKWARD_PRE", "BACKWARD_POST"};
	const struct plan *plan = exporting->plan;

	writer_string(writer, "fsdp_reshard_after_forward", strategy_names[plan->strategy]);
	writer_string(writer, "fsdp_backward_prefetch", prefetches[plan->prefetch]);
	writer_bool(writer, "fsdp_forward_prefetch", plan->forward_prefetch);
	writer_bool(writer, "fsdp_use_orig_params", true);
	writer_bool(writer, "fsdp_sync_module_states", true);
}

static void write_fsdp(
	struct exporting *exporting, const char *block, bool fsdp2, struct writer *writer)
{
	const struct plan *plan = exporting->plan;

	writer_begin_map(writer, "fsdp_config");
	writer_int(writer, "fsdp_version", fsdp2 ? 2 : 1);
	if (fsdp2)
		writer_bool(writer, "fsdp_reshard_after_forward",
			strcmp(plan->reshard_after_forward, "false") != 0);
	else
		write_fsdp1_keys(exporting, writer);
	write_wrap(exporting, block, writer);
	writer_string(writer, "fsdp_state_dict_type", "SHARDED_STATE_DICT");
	writer_bool(writer, "fsdp_offload_params", plan_offloads_any(plan));
	writer_bool(writer, "fsdp_cpu_ram_efficient_loading", true);
	writer_bool(writer, "fsdp_activation_checkpointing", export_checkpoints(exporting));
	writer_end_map(writer);
}

static void write_mesh(const struct exporting *exporting, struct writer *writer)
{
	const struct mesh *mesh = &exporting->plan->mesh;

	writer_begin_map(writer, "parallelism_config");
	writer_int(writer, "parallelism_config_dp_replicate_size", mesh->replicate);
	writer_int(writer, "parallelism_config_dp_shard_size", mesh->shard);
	writer_end_map(writer);
}

static void write_file(struct exporting *exporting, bool fsdp2)
{
	const char *block = export_wraps_blocks(exporting) ? export_class(exporting) : NULL;
	struct writer writer;

	export_header(exporting);
	writer_init(&writer, exporting->text, WRITER_YAML);
	write_machine(exporting, &writer);
	if (export_is_sharded(exporting))
		write_fsdp(exporting, block, fsdp2, &writer);
	if (fsdp2 && export_is_hybrid(exporting))
		write_mesh(exporting, &writer);
	writer_finish(&writer);
}

static void write_fsdp2_file(struct exporting *exporting)
{
	write_file(exporting, true);
}

static void write_fsdp1_file(struct exporting *exporting)
{
	write_file(exporting, false);
}

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

static const struct import_key keys[] = {
	{"num_processes", IMPORT_COUNT, "gpus", NULL},
	{"mixed_precision", IMPORT_WORD, "param-dtype", "no>fp32 fp32 bf16 fp16 fp8>bf16"},
	{"distributed_type", IMPORT_READ, NULL, NULL},
	{"fsdp_config.fsdp_version", IMPORT_READ, NULL, NULL},
	{"fsdp_config.fsdp_reshard_after_forward", IMPORT_READ, NULL, NULL},
	{"fsdp_config.fsdp_sharding_strategy", IMPORT_READ, NULL, NULL},
	{"fsdp_config.fsdp_auto_wrap_policy", IMPORT_READ, NULL, NULL},
	{"fsdp_config.fsdp_transformer_layer_cls_to_wrap*", IMPORT_READ, NULL, NULL},
	{"fsdp_config.fsdp_min_num_params", IMPORT_READ, NULL, NULL},
	{"fsdp_config.fsdp_backward_prefetch*", IMPORT_READ, NULL, NULL},
	{"fsdp_config.fsdp_forward_prefetch", IMPORT_READ, NULL, NULL},
	{"fsdp_config.fsdp_offload_params", IMPORT_READ, NULL, NULL},
	{"fsdp_config.fsdp_activation_checkpointing", IMPORT_READ, NULL, NULL},
	{"fsdp_config.fsdp_ignored_modules", IMPORT_UNPRICED, NULL, NULL},
	{"fsdp_config.fsdp_state_dict_type", IMPORT_PLAIN, NULL, NULL},
	{"fsdp_config.fsdp_use_orig_params", IMPORT_PLAIN, NULL, NULL},
	{"fsdp_config.fsdp_sync_module_states", IMPORT_PLAIN, NULL, NULL},
	{"fsdp_config.fsdp_cpu_ram_efficient_loading", IMPORT_PLAIN, NULL, NULL},
	{"parallelism_config.parallelism_config_dp_replicate_size", IMPORT_READ, NULL, NULL},
	{"parallelism_config.parallelism_config_dp_shard_size", IMPORT_READ, NULL, NULL},
	{"parallelism_config.parallelism_config_tp_size", IMPORT_ONE, NULL, NULL},
	{"parallelism_config.parallelism_config_cp_size", IMPORT_ONE, NULL, NULL},
	{"parallelism_config.parallelism_config_sp_size", IMPORT_ONE, NULL, NULL},
	{"parallelism_config.parallelism_config_cp_*", IMPORT_PLAIN, NULL, NULL},
	{"parallelism_config.parallelism_config_sp_*", IMPORT_PLAIN, NULL, NULL},
	{"dynamo_config.dynamo_backend", IMPORT_WORD, "compile", "no>off *>on"},
	{"dynamo_config.*", IMPORT_PLAIN, NULL, NULL},
	{"dynamo_backend", IMPORT_WORD, "compile", "no>off *>on"},
	{"fp8_config.*", IMPORT_UNPRICED, NULL, NULL},
	{"use_cpu", IMPORT_PLAIN, NULL, NULL},
	{"compute_environment", IMPORT_PLAIN, NULL, NULL},
	{"num_machines", IMPORT_PLAIN, NULL, NULL},
	{"machine_rank", IMPORT_PLAIN, NULL, NULL},
	{"main_process_*", IMPORT_PLAIN, NULL, NULL},
	{"main_training_function", IMPORT_PLAIN, NULL, NULL},
	{"rdzv_backend", IMPORT_PLAIN, NULL, NULL},
	{"same_network", IMPORT_PLAIN, NULL, NULL},
	{"gpu_ids", IMPORT_PLAIN, NULL, NULL},
	{"debug", IMPORT_PLAIN, NULL, NULL},
	{"downcast_bf16", IMPORT_PLAIN, NULL, NULL},
	{"enable_cpu_affinity", IMPORT_PLAIN, NULL, NULL},
	{"tpu_*", IMPORT_PLAIN, NULL, NULL},
	{"mpirun_config.*", IMPORT_PLAIN, NULL, NULL},
	{"command_file", IMPORT_PLAIN, NULL, NULL},
	{"commands*", IMPORT_PLAIN, NULL, NULL},
	{NULL, IMPORT_PLAIN, NULL, NULL},
};

#define KEY(name) "fsdp_config.fsdp_" name

static bool finish_dtypes(struct importing *importing)
{
	const char *type = import_text(importing, "mixed_precision", "no");
	bool said = import_find(importing, "mixed_precision") != NULL;
	const char *path = said ? "mixed_precision" : NULL;
	const char *dtype = strcmp(type, "no") == 0 || strcmp(type, "fp32") == 0 ? "fp32"
			    : strcmp(type, "fp16") == 0                          ? "fp16"
										 : "bf16";

	if (strcmp(type, "fp8") == 0)
		import_note(importing, path, "fp8: is predicted as bf16");
	import_set(importing, "param-dtype", dtype, path);
	import_set(importing, "reduce-dtype", dtype, path);
	import_set(importing, "master-dtype", "fp32", NULL);
	return true;
}

static bool finish_fsdp1(struct importing *importing, struct error *error)
{
	static const char *const words[] = {"NO_PREFETCH", "none", "BACKWARD_PRE", "pre",
		"BACKWARD_POST", "post", "1", "pre", "2", "post"};
	const char *strategy = import_find(importing, KEY("sharding_strategy")) != NULL
				       ? KEY("sharding_strategy")
				       : KEY("reshard_after_forward");
	const char *prefetch = import_text(importing, KEY("backward_prefetch*"), "NO_PREFETCH");
	const char *value = NULL;
	bool forward;

	for (int i = 0; i < COUNT_OF(words); i += 2) {
		if (strcmp(prefetch, words[i]) == 0)
			value = words[i + 1];
	}
	if (value == NULL)
		return import_fail(importing, KEY("backward_prefetch*"), error,
			"expected BACKWARD_PRE, BACKWARD_POST or NO_PREFETCH, got \"%.60s\"",
			prefetch);
	if (!import_fsdp1_strategy(importing, strategy, "FULL_SHARD", error) ||
		!import_switch(importing, KEY("forward_prefetch"), &forward, false, error))
		return false;
	bool said = import_find(importing, KEY("backward_prefetch*")) != NULL;
	import_set(importing, "runtime", "pytorch-fsdp1", NULL);
	import_set(importing, "prefetch", value, said ? KEY("backward_prefetch") : NULL);
	import_set(importing, "forward-prefetch", forward ? "on" : "off",
		import_find(importing, KEY("forward_prefetch")) ? KEY("forward_prefetch") : NULL);
	import_set(importing, "limit-all-gathers", "on", NULL);
	return true;
}

static bool finish_fsdp2(struct importing *importing, struct error *error)
{
	static const char path[] = "parallelism_config.parallelism_config_dp_replicate_size";
	static const char shards[] = "parallelism_config.parallelism_config_dp_shard_size";
	int64_t replicate, shard;
	bool reshards, hybrid;

	if (!import_switch(importing, KEY("reshard_after_forward"), &reshards, true, error) ||
		!import_count(importing, path, &replicate, 1, error) ||
		!import_count(importing, shards, &shard, 0, error))
		return false;
	if (replicate > 1 && shard == 1)
		return import_fail(importing, path, error,
			"replicating without sharding, expected dp_shard_size above 1; use "
			"distributed_type MULTI_GPU");
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
			"ignored by FSDP2, which always "
			"prefetches");
	return true;
}

static bool finish_sharded(struct importing *importing, struct error *error)
{
	bool offload, checkpoints, fsdp2 = is_version_2(importing->source);

	if (!(fsdp2 ? finish_fsdp2(importing, error) : finish_fsdp1(importing, error)) ||
		!import_wrap(importing, KEY("auto_wrap_policy"),
			KEY("transformer_layer_cls_to_wrap*"), KEY("min_num_params"), "NO_WRAP",
			error) ||
		!import_switch(importing, KEY("offload_params"), &offload, false, error) ||
		!import_switch(
			importing, KEY("activation_checkpointing"), &checkpoints, false, error))
		return false;
	import_set(
		importing, "cpu-offload", offload ? "parameters" : "none", KEY("offload_params"));
	import_set(importing, "activation-checkpointing", checkpoints ? "full" : "none",
		KEY("activation_checkpointing"));
	if (import_is(importing, KEY("auto_wrap_policy"), "NO_WRAP") ||
		import_find(importing, KEY("auto_wrap_policy")) == NULL)
		import_note(importing, KEY("auto_wrap_policy"),
			"nothing is wrapped: the whole model is gathered at once");
	return true;
}

static bool finish(struct importing *importing, struct error *error)
{
	const char *type = import_text(importing, "distributed_type", "FSDP");

	finish_dtypes(importing);
	if (strcmp(type, "FSDP") == 0)
		return finish_sharded(importing, error);
	if (strncmp(type, "MULTI_", 6) != 0)
		return import_fail(importing, "distributed_type", error,
			"expected FSDP, DEEPSPEED or MULTI_GPU, got \"%.40s\", which is not "
			"predicted",
			type);
	import_set(importing, "runtime", "pytorch-ddp", "distributed_type");
	import_set(importing, "strategy", "NO_SHARD", "distributed_type");
	return true;
}

static const struct import_format fsdp2_import = {
	recognizes_fsdp2, keys, finish, "fsdp_config.", "fsdp_"};
static const struct import_format fsdp1_import = {
	recognizes, keys, finish, "fsdp_config.", "fsdp_"};
static const struct import_format trl_import = {NULL, keys, finish, "fsdp_config.", "fsdp_"};

const struct export_target export_accelerate_fsdp2 = {
	.name = "accelerate",
	.title = "Hugging Face accelerate with FSDP2",
	.file = "accelerate.yaml",
	.source = "accelerate 1.15 (16cb6eb8, 2026-07-24)",
	.syntax = SYNTAX_YAML,
	.adapt = adapt,
	.wraps = "block model size:*",
	.wraps_apart = true,
	.rules = fsdp2_rules,
	.launch = "accelerate launch --config_file %f train.py",
	.write = write_fsdp2_file,
	.import = &fsdp2_import,
};

const struct export_target export_accelerate_fsdp1 = {
	.name = "accelerate-fsdp1",
	.title = "Hugging Face accelerate with FSDP1",
	.file = "accelerate-fsdp1.yaml",
	.source = "accelerate 1.15 (16cb6eb8, 2026-07-24)",
	.syntax = SYNTAX_YAML,
	.adapt = adapt,
	.wraps = "block model size:*",
	.rules = fsdp1_rules,
	.launch = "accelerate launch --config_file %f train.py",
	.write = write_fsdp1_file,
	.import = &fsdp1_import,
};

const struct export_target export_trl = {
	.name = "trl",
	.title = "TRL: its command line with an accelerate FSDP2 file",
	.file = "trl-accelerate.yaml",
	.source = "accelerate 1.15 (16cb6eb8, 2026-07-24)",
	.syntax = SYNTAX_YAML,
	.adapt = adapt,
	.wraps = "block model size:*",
	.wraps_apart = true,
	.rules = trl_rules,
	.launch = "trl sft --accelerate_config %f --per_device_train_batch_size %b "
		  "--gradient_accumulation_steps %a --max_length %s",
	.write = write_fsdp2_file,
	.import = &trl_import,
};
