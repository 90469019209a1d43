/* DeepSpeed's ds_config.json read back, and its short form within accelerate's YAML. Sources:
 * deepspeed_write.c. */
#include <string.h>

#include "frameworks/targets/shared.h"

#define ZERO(name) "zero_optimization." name

static const struct import_key keys[] = {
	{"train_micro_batch_size_per_gpu", IMPORT_COUNT, "micro-batch", NULL},
	{"gradient_accumulation_steps", IMPORT_COUNT, "grad-accum", NULL},
	{"train_batch_size", IMPORT_COUNT, "global-batch", NULL},
	{"gradient_clipping", IMPORT_NUMBER, "clip", NULL},
	{"communication_data_type", IMPORT_WORD, "reduce-dtype", "fp32 fp16 bf16"},
	{"bf16.enabled", IMPORT_READ, NULL, NULL},
	{"bfloat16.enabled", IMPORT_READ, NULL, NULL},
	{"fp16.enabled", IMPORT_READ, NULL, NULL},
	{"optimizer.type", IMPORT_READ, NULL, NULL},
	{"optimizer.params.torch_adam", IMPORT_READ, NULL, NULL},
	{ZERO("stage"), IMPORT_READ, NULL, NULL},
	{ZERO("offload_optimizer.device"), IMPORT_READ, NULL, NULL},
	{ZERO("offload_param.device"), IMPORT_READ, NULL, NULL},
	{ZERO("cpu_offload"), IMPORT_READ, NULL, NULL},
	{ZERO("mics_shard_size"), IMPORT_READ, NULL, NULL},
	{ZERO("zero_hpz_partition_size"), IMPORT_READ, NULL, NULL},
	{ZERO("overlap_comm"), IMPORT_READ, NULL, NULL},
	{ZERO("zero_quantized_*"), IMPORT_READ, NULL, NULL},
	{ZERO("reduce_bucket_size"), IMPORT_READ, NULL, NULL},
	{ZERO("allgather_bucket_size"), IMPORT_READ, NULL, NULL},
	{ZERO("stage3_prefetch_bucket_size"), IMPORT_READ, NULL, NULL},
	{ZERO("stage3_param_persistence_threshold"), IMPORT_READ, NULL, NULL},
	{ZERO("stage3_max_live_parameters"), IMPORT_READ, NULL, NULL},
	{ZERO("stage3_max_reuse_distance"), IMPORT_READ, NULL, NULL},
	{ZERO("sub_group_size"), IMPORT_READ, NULL, NULL},
	{ZERO("offload_*"), IMPORT_PLAIN, NULL, NULL},
	{ZERO("zenflow*"), IMPORT_UNPRICED, NULL, NULL},
	{ZERO("contiguous_gradients"), IMPORT_PLAIN, NULL, NULL},
	{ZERO("reduce_scatter"), IMPORT_PLAIN, NULL, NULL},
	{ZERO("allgather_partitions"), IMPORT_PLAIN, NULL, NULL},
	{ZERO("stage3_gather_*"), IMPORT_PLAIN, NULL, NULL},
	{ZERO("gather_16bit_weights_on_model_save"), IMPORT_PLAIN, NULL, NULL},
	{ZERO("max_live_parameters"), IMPORT_READ, NULL, NULL},
	{ZERO("max_reuse_distance"), IMPORT_READ, NULL, NULL},
	{ZERO("prefetch_bucket_size"), IMPORT_READ, NULL, NULL},
	{ZERO("param_persistence_threshold"), IMPORT_READ, NULL, NULL},
	{ZERO("mics_hierarchical_params_gather"), IMPORT_PLAIN, NULL, NULL},
	{ZERO("round_robin_gradients"), IMPORT_PLAIN, NULL, NULL},
	{ZERO("load_from_fp32_weights"), IMPORT_PLAIN, NULL, NULL},
	{ZERO("elastic_checkpoint"), IMPORT_PLAIN, NULL, NULL},
	{ZERO("ignore_unused_parameters"), IMPORT_PLAIN, NULL, NULL},
	{ZERO("log_trace_cache_warnings"), IMPORT_PLAIN, NULL, NULL},
	{"bf16.*", IMPORT_PLAIN, NULL, NULL},
	{"fp16.*", IMPORT_PLAIN, NULL, NULL},
	{"optimizer.*", IMPORT_PLAIN, NULL, NULL},
	{"scheduler.*", IMPORT_PLAIN, NULL, NULL},
	{"steps_per_print", IMPORT_PLAIN, NULL, NULL},
	{"prescale_gradients", IMPORT_PLAIN, NULL, NULL},
	{"wall_clock_breakdown", IMPORT_PLAIN, NULL, NULL},
	{"zero_allow_untested_optimizer", IMPORT_PLAIN, NULL, NULL},
	{"zero_force_ds_cpu_optimizer", IMPORT_PLAIN, NULL, NULL},
	{"activation_checkpointing.*", IMPORT_UNPRICED, NULL, NULL},
	{"flops_profiler.*", IMPORT_PLAIN, NULL, NULL},
	{"tensorboard.*", IMPORT_PLAIN, NULL, NULL},
	{"wandb.*", IMPORT_PLAIN, NULL, NULL},
	{"comms_logger.*", IMPORT_PLAIN, NULL, NULL},
	{NULL, IMPORT_PLAIN, NULL, NULL},
};

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
	static const char *const nearest[] = {
		"NO_SHARD", "SHARD_GRAD_OP", "SHARD_GRAD_OP", "FULL_SHARD"};
	bool known = export_has(runtime_names, "deepspeed");

	if (stage == 0 || !known)
		import_set(
			importing, "runtime", stage == 0 ? "pytorch-ddp" : "pytorch-fsdp2", NULL);
	else
		import_set(importing, "runtime", "deepspeed", NULL);
	import_set(importing, "strategy", known ? names[stage] : nearest[stage], path);
	import_set(importing, "sync-each-micro-batch", stage < 2 ? "off" : "on", NULL);
}

/* MiCS and hpZ stand for FSDP2's groups. */
static bool set_groups(struct importing *importing, struct error *error)
{
	int64_t mics, hpz;

	if (!import_count(importing, ZERO("mics_shard_size"), &mics, 0, error) ||
		!import_count(importing, ZERO("zero_hpz_partition_size"), &hpz, 1, error))
		return false;
	if (mics > 0) {
		import_set(importing, "strategy", "HYBRID_SHARD", ZERO("mics_shard_size"));
		import_set_count(importing, "shard-group", mics, ZERO("mics_shard_size"));
		import_set(importing, "runtime", "pytorch-fsdp2", NULL);
		import_note(importing, ZERO("mics_shard_size"),
			"MiCS is predicted as HYBRID_SHARD of FSDP2");
	} else if (hpz > 1) {
		import_set(importing, "strategy", "FULL_SHARD", ZERO("stage"));
		import_set_count(
			importing, "reshard-after-forward", hpz, ZERO("zero_hpz_partition_size"));
		import_set(importing, "runtime", "pytorch-fsdp2", NULL);
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
	import_set(importing, "cpu-offload",
		optimizer && parameters ? "parameters"
		: optimizer             ? "optimizer"
		: parameters            ? "parameters"
					: "none",
		optimizer    ? optimizer_path
		: parameters ? parameters_path
			     : NULL);
	return true;
}

static bool set_dtypes(struct importing *importing, struct error *error)
{
	static const char *const paths[] = {"bf16.enabled", "bfloat16.enabled", "fp16.enabled"};
	static const char *const dtypes[] = {"bf16", "bf16", "fp16"};
	bool said = false;

	for (int i = 0; i < COUNT_OF(paths); i++) {
		bool on;
		if (import_is(importing, paths[i], "auto"))
			continue;
		if (!import_switch(importing, paths[i], &on, false, error))
			return false;
		if (!on)
			continue;
		import_set(importing, "param-dtype", dtypes[i], paths[i]);
		said = true;
	}
	bool automatic = import_find(importing, "bf16.enabled") != NULL && !said;
	if (!said && !automatic)
		import_set(importing, "param-dtype", "fp32", NULL);
	import_set(importing, "master-dtype", "fp32", NULL);
	return true;
}

static const char *setting_of(const struct importing *importing, const char *option)
{
	const struct imported *imported = importing->imported;

	for (int i = 0; i < imported->n_settings; i++) {
		if (strcmp(imported->settings[i].option, option) == 0)
			return imported->settings[i].value;
	}
	return NULL;
}

/* Unless told otherwise DeepSpeed reduces in the dtype of the parameters. */
static void set_reduction(struct importing *importing)
{
	const char *dtype = setting_of(importing, "param-dtype");

	if (!import_was_set(importing, "reduce-dtype") && dtype != NULL)
		import_set(importing, "reduce-dtype", dtype, NULL);
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
	import_set(importing, "optimizer",
		sgd     ? "sgd"
		: torch ? "adamw-foreach"
			: "adamw-fused",
		"optimizer.type");
}

/* train_batch_size = micro-batch x accumulation x ranks: three of them tell the ranks. */
static void set_ranks(struct importing *importing)
{
	const char *texts[] = {setting_of(importing, "global-batch"),
		setting_of(importing, "micro-batch"), setting_of(importing, "grad-accum")};
	int64_t numbers[3], product;

	for (int i = 0; i < 3; i++) {
		if (texts[i] == NULL || !parse_int(texts[i], &numbers[i]))
			return;
	}
	if (checked_mul(numbers[1], numbers[2], &product) && numbers[0] % product == 0)
		import_set_count(importing, "gpus", numbers[0] / product, "train_batch_size");
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
				"%.40s: predicted with DeepSpeed's default of %g elements", text,
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
	set_reduction(importing);
	set_optimizer(importing);
	set_ranks(importing);
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

/* --- accelerate's short form ----------------------------------------------------------------- */

#define SHORT(name) "deepspeed_config." name

static const struct import_key accelerate_keys[] = {
	{"num_processes", IMPORT_COUNT, "gpus", NULL},
	{"mixed_precision", IMPORT_WORD, "param-dtype", "no>fp32 fp32 bf16 fp16 fp8>bf16"},
	{SHORT("gradient_accumulation_steps"), IMPORT_COUNT, "grad-accum", NULL},
	{SHORT("gradient_clipping"), IMPORT_NUMBER, "clip", NULL},
	{SHORT("zero_stage"), IMPORT_READ, NULL, NULL},
	{SHORT("offload_optimizer_device"), IMPORT_READ, NULL, NULL},
	{SHORT("offload_param_device"), IMPORT_READ, NULL, NULL},
	{SHORT("deepspeed_config_file"), IMPORT_READ, NULL, NULL},
	{SHORT("zero3_*"), IMPORT_PLAIN, NULL, NULL},
	{SHORT("deepspeed_*"), IMPORT_PLAIN, NULL, NULL},
	{SHORT("offload_*"), IMPORT_PLAIN, NULL, NULL},
	{"distributed_type", IMPORT_PLAIN, NULL, NULL},
	{"compute_environment", IMPORT_PLAIN, NULL, NULL},
	{"num_machines", IMPORT_PLAIN, NULL, NULL},
	{"machine_rank", IMPORT_PLAIN, NULL, NULL},
	{"main_*", IMPORT_PLAIN, NULL, NULL},
	{"rdzv_backend", IMPORT_PLAIN, NULL, NULL},
	{"same_network", IMPORT_PLAIN, NULL, NULL},
	{"debug", IMPORT_PLAIN, NULL, NULL},
	{"downcast_bf16", IMPORT_PLAIN, NULL, NULL},
	{"enable_cpu_affinity", IMPORT_PLAIN, NULL, NULL},
	{"gpu_ids", IMPORT_PLAIN, NULL, NULL},
	{"use_cpu", IMPORT_PLAIN, NULL, NULL},
	{"tpu_*", IMPORT_PLAIN, NULL, NULL},
	{NULL, IMPORT_PLAIN, NULL, NULL},
};

static bool finish_accelerate(struct importing *importing, struct error *error)
{
	int stage = 0;

	if (import_find(importing, SHORT("deepspeed_config_file")) != NULL)
		return import_fail(importing, SHORT("deepspeed_config_file"), error,
			"the settings are in that file; import it instead");
	if (!stage_of(importing, SHORT("zero_stage"), &stage, error))
		return false;
	set_stage(importing, SHORT("zero_stage"), stage);
	if (!import_was_set(importing, "param-dtype"))
		import_set(importing, "param-dtype", "fp32", NULL);
	import_set(importing, "master-dtype", "fp32", NULL);
	set_reduction(importing);
	return set_offload(
		importing, SHORT("offload_optimizer_device"), SHORT("offload_param_device"), error);
}

static int recognizes_accelerate(const struct source *source)
{
	return source_has(source, SHORT("*")) ? 15 : 0;
}

const struct import_format import_deepspeed = {recognizes, keys, finish};
const struct import_format import_accelerate_deepspeed = {
	recognizes_accelerate, accelerate_keys, finish_accelerate};
