/* axolotl: the YAML of `axolotl train`, with FSDP2 through accelerate.
 *
 * Keys: axolotl 0.13 (src/axolotl/utils/schemas/config.py, training.py, fsdp.py). In fsdp_config
 * they have no prefix. Precision is accelerate's: one dtype for parameters and reduction. */
#include <string.h>

#include "frameworks/targets/shared.h"

static const struct export_rule rules[] = {
	{KNOB_STRATEGY, IN_FILE, ZERO_AS_FSDP, "FSDP2 is the nearest"},
	{KNOB_RUNTIME, FIXED, "pytorch-ddp *>pytorch-fsdp2", "axolotl's FSDP1 is deprecated"},
	{KNOB_RESHARD_AFTER_FORWARD, IN_FILE, "true false *>true",
		"axolotl takes true or false, no group size"},
	FSDP2_PREFETCH,
	FSDP2_FORWARD,
	FSDP2_LIMITER,
	{KNOB_ACTIVATION_CHECKPOINTING, IN_FILE, "none full *>full",
		"axolotl checkpoints every block whole"},
	ATTENTION_FLASH,
	MASTER_FP32,
	REDUCE_AS_PARAMETERS,
	TORCH_ADAMW,
	FSDP_OFFLOAD,
	{KNOB_SEQUENCE_PARALLEL, FIXED, "*>false", "tp_plan=\"auto\" cuts no sequence"},
	LOSS_OF_TRANSFORMERS,
	OUTSIDE_BUT_LOSS,
};

static const char *tensor_ranks(struct exporting *exporting)
{
	int64_t ranks = exporting->plan->mesh.tensor;

	return ranks > 1 ? arena_printf(exporting->arena, "%lld", (long long)ranks) : NULL;
}

#define LIGER_PLUGIN "axolotl.integrations.liger.LigerPlugin"

static const char *liger_plugin(struct exporting *exporting)
{
	return value_liger(exporting) != NULL ? LIGER_PLUGIN : NULL;
}

#define FSDP(name) "fsdp_config." name

static const struct config_key keys[] = {
	{"#", KEY_PLAIN, NO_KNOB,
		"The name of the plan; axolotl wants a Hugging Face name or folder, and datasets."},
	{"base_model", KEY_READ, NO_KNOB, NULL, AS_STRING, value_model},
	{"sequence_len", KEY_COUNT, KNOB_SEQ_LEN},
	{"micro_batch_size", KEY_COUNT, KNOB_MICRO_BATCH},
	{"gradient_accumulation_steps", KEY_COUNT, KNOB_GRAD_ACCUM},
	{"accelerator_config.gradient_accumulation_kwargs.sync_each_batch", KEY_SWITCH,
		KNOB_SYNC_EACH_MICRO_BATCH, NULL, IF_ACCUMULATED},
	{"bf16", KEY_READ, KNOB_PARAM_DTYPE, "true>bf16 false>fp16 false>fp32"},
	{"fp16", KEY_READ, KNOB_PARAM_DTYPE, "true>fp16 false>bf16 false>fp32"},
	{"deepspeed*", KEY_READ, NO_KNOB, NULL, ONLY_READ},
	{"bfloat16", KEY_READ, NO_KNOB},
	{"float16", KEY_READ, NO_KNOB},
	{"optimizer", KEY_WORD, KNOB_OPTIMIZER,
		"adamw_torch_fused>adamw-fused adamw_torch>adamw-foreach adamw_hf>adamw-foreach "
		"sgd"},
	{"max_grad_norm", KEY_NUMBER, KNOB_CLIP},
	{"attn_implementation", KEY_WORD, KNOB_ATTENTION,
		"flash_attention_2>flash flash*>flash eager sdpa>flash flex*>flash"},
	{"flash_attention", KEY_WORD, KNOB_ATTENTION, "true>flash false>eager", ONLY_READ},
	{"torch_compile", KEY_WORD, KNOB_COMPILE, "true>on false>off"},
	{"plugins[]", KEY_READ, KNOB_LIGER, NULL, 0, liger_plugin},
	{"liger_rms_norm", KEY_READ, NO_KNOB, NULL, 0, value_liger_model},
	{"liger_rope", KEY_READ, NO_KNOB, NULL, 0, value_liger_model},
	{"liger_glu_activation", KEY_READ, NO_KNOB, NULL, 0, value_liger_model},
	{"liger_swiglu", KEY_READ, NO_KNOB, NULL, ONLY_READ},
	{"liger_fused_linear_cross_entropy", KEY_READ, KNOB_LOSS, NULL, 0, value_liger_loss},
	{"fsdp_version", KEY_READ, NO_KNOB, NULL, IF_SHARDED, value_fsdp_version},
	{FSDP("reshard_after_forward"), KEY_READ, KNOB_RESHARD_AFTER_FORWARD, NULL, IF_SHARDED},
	{FSDP("auto_wrap_policy"), KEY_READ, KNOB_WRAP, NULL, IF_SHARDED, value_wrap_policy},
	{FSDP("min_num_params"), KEY_READ, NO_KNOB, NULL, IF_SHARDED, value_wrap_least},
	{FSDP("transformer_layer_cls_to_wrap"), KEY_READ, NO_KNOB, NULL, IF_SHARDED,
		value_wrap_class},
	{FSDP("offload_params"), KEY_READ, KNOB_CPU_OFFLOAD, PARAMETERS_OR_NONE, IF_SHARDED},
	{FSDP("cpu_ram_efficient_loading"), KEY_PLAIN, NO_KNOB, "true", IF_SHARDED},
	{FSDP("state_dict_type"), KEY_PLAIN, NO_KNOB, "SHARDED_STATE_DICT", IF_SHARDED},
	{FSDP("activation_checkpointing"), KEY_READ, KNOB_ACTIVATION_CHECKPOINTING, FULL_OR_NONE,
		IF_SHARDED},
	{"dp_replicate_size", KEY_READ, NO_KNOB, NULL, IF_HYBRID, value_replicas},
	{"dp_shard_size", KEY_READ, KNOB_SHARD_GROUP, NULL, IF_SHARDED},
	{"gradient_checkpointing", KEY_READ, KNOB_ACTIVATION_CHECKPOINTING, FULL_OR_NONE,
		IF_REPLICATED},
	{"activation_offloading", KEY_READ, NO_KNOB, NULL, ONLY_READ},
	{"tensor_parallel_size", KEY_READ, KNOB_TENSOR, NULL, IF_SHARDED, tensor_ranks},
	{"context_parallel_size", KEY_ONE, NO_KNOB},
	{"expert_parallel_size", KEY_ONE, NO_KNOB},
	{NULL},
};
static const char unpriced[] = "adapter fp8* plugins* liger_*";
static const char plain[] =
	"accelerator_config.* fsdp_config.* load_in_* sample_packing datasets* dataset_* "
	"output_dir num_epochs max_steps lr_scheduler* learning_rate weight_decay warmup_* tf32 "
	"logging_steps save* eval* val_set_size special_tokens* seed wandb_*";

/* --- import -------------------------------------------------------------------------------- */

static bool any_true(const struct importing *importing, const char *const *paths)
{
	for (; *paths != NULL; paths++) {
		if (import_is(importing, *paths, "true") || import_is(importing, *paths, "full"))
			return true;
	}
	return false;
}

/* bf16: auto means bf16 where the GPU has it. */
static void finish_dtype(struct importing *importing)
{
	static const char *const bf16[] = {"bf16", "bfloat16", NULL};
	static const char *const fp16[] = {"fp16", "float16", NULL};
	bool half = any_true(importing, fp16);
	const struct node *node = import_find(importing, "bf16");
	bool automatic = node != NULL && node->text != NULL && strcmp(node->text, "auto") == 0;
	const char *dtype = any_true(importing, bf16) || automatic ? "bf16"
			    : half                                 ? "fp16"
								   : "fp32";
	const char *path = half ? "fp16" : node != NULL ? "bf16" : NULL;

	import_set(importing, KNOB_PARAM_DTYPE, dtype, path);
	import_set(importing, KNOB_REDUCE_DTYPE, dtype, NULL);
	import_set(importing, KNOB_MASTER_DTYPE, "fp32", NULL);
}

static bool finish_sharded(struct importing *importing, struct error *error)
{
	int64_t replicate, shard, tensor;
	bool reshards, hybrid, outside;

	if (!import_count(importing, "tensor_parallel_size", &tensor, 1, error))
		return false;
	importing->beside_data = tensor;
	if (tensor > 1) {
		import_set_count(importing, KNOB_TENSOR, tensor, "tensor_parallel_size");
		import_set(importing, KNOB_SEQUENCE_PARALLEL, "off", NULL);
	}
	if (!import_count(importing, "dp_replicate_size", &replicate, 1, error) ||
		!import_count(importing, "dp_shard_size", &shard, 0, error) ||
		!import_mesh(importing, replicate, shard, "dp_shard_size", &hybrid, error) ||
		!import_switch(importing, FSDP("reshard_after_forward"), &reshards, true, error) ||
		!import_wrap(importing, FSDP("auto_wrap_policy"), FSDP("min_num_params"),
			"TRANSFORMER_BASED_WRAP", error))
		return false;
	import_fsdp2_strategy(importing, reshards, hybrid, FSDP("reshard_after_forward"));
	if (!import_key(importing, FSDP("offload_params"), "none", error) ||
		!import_key(importing, FSDP("activation_checkpointing"), "none", error) ||
		!import_switch(importing, "gradient_checkpointing", &outside, false, error))
		return false;
	if (outside)
		import_set(
			importing, KNOB_ACTIVATION_CHECKPOINTING, "full", "gradient_checkpointing");
	return true;
}

/* Keys that are not said are off. */
static void finish_liger(struct importing *importing)
{
	static const char *const known[] = {LIGER_PLUGIN, NULL};
	const char *model = import_is(importing, "liger_rms_norm", "true") ? "liger_rms_norm"
									   : "liger_glu_activation";
	bool any = import_names(importing, "plugins[]", known) != 0;
	bool loss = import_is(importing, "liger_fused_linear_cross_entropy", "true");

	import_set(importing, KNOB_LIGER, any && import_is(importing, model, "true") ? "on" : "off",
		model);
	import_set(importing, KNOB_LOSS, any && loss ? "fused-linear" : "upcast",
		"liger_fused_linear_cross_entropy");
}

static bool finish(struct importing *importing, struct error *error)
{
	const char *version = import_text(
		importing, "fsdp_version", import_text(importing, "fsdp_config.fsdp_version", "1"));

	if (!import_shards_itself(importing, error))
		return false;
	importing->imported->model = import_text(importing, "base_model", NULL);
	import_activation_offload(importing, "activation_offloading",
		import_is(importing, "gradient_checkpointing", "true") ||
			import_is(importing, FSDP("activation_checkpointing"), "true"));
	if (import_is(importing, "activation_offloading", "disk"))
		import_note(importing, "activation_offloading", "to a disk is not predicted");
	finish_dtype(importing);
	finish_liger(importing);
	import_set_default(importing, KNOB_SYNC_EACH_MICRO_BATCH, "off"); /* the Trainer's */
	import_set_default(importing, KNOB_CLIP, "1");
	if (source_has(importing->source, "load_in_*"))
		import_note(importing, "load_in_*", "quantized weights are not predicted");
	if (!source_has(importing->source, "fsdp_config.*")) {
		import_set(importing, KNOB_RUNTIME, "pytorch-ddp", NULL);
		import_set(importing, KNOB_STRATEGY, "NO_SHARD", NULL);
		import_set(importing, KNOB_ACTIVATION_CHECKPOINTING,
			import_is(importing, "gradient_checkpointing", "true") ? "full" : "none",
			"gradient_checkpointing");
		return true;
	}
	if (!finish_sharded(importing, error))
		return false;
	if (strcmp(version, "2") != 0) {
		import_set(importing, KNOB_RUNTIME, "pytorch-fsdp1", NULL);
		import_note(importing, "fsdp_version",
			"FSDP1, which axolotl is about to drop; fsdp_version: 2 is its successor");
	}
	return true;
}

static int recognizes(const struct source *source)
{
	return source_has(source, "base_model") ? 12 : 0;
}

static const struct config_format format = {recognizes, keys, plain, unpriced, finish};

const struct export_target export_axolotl = {
	.name = "axolotl",
	.title = "axolotl with FSDP2",
	.file = "axolotl.yaml",
	.program = "axolotl",
	.versions = "0.19.0",
	.syntax = SYNTAX_YAML,
	.refuses = fsdp2_refuses,
	.gpus_only = true,
	.wraps = "block size:*",
	.wraps_apart = true,
	.clips = true,
	.rules = rules,
	.launch = "axolotl train %f --launcher torchrun -- --nnodes=%n --nproc-per-node=%g"
		  "%[ --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29500%]",
	.format = &format,
};
