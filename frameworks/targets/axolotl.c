/* axolotl: the YAML of `axolotl train`, with FSDP2 through accelerate.
 *
 * Keys: axolotl 0.13 (src/axolotl/utils/schemas/config.py, training.py, fsdp.py). In fsdp_config
 * they have no prefix. Precision is accelerate's: one dtype for parameters and reduction. */
#include <string.h>

#include "frameworks/targets/shared.h"

static const struct export_rule rules[] = {
	{"strategy", SAYS_KEY, ZERO_AS_FSDP, "FSDP2 is the nearest"},
	{"shard_group", SAYS_KEY, NULL, NULL},
	{"runtime", SAYS_ALWAYS, "pytorch-ddp *>pytorch-fsdp2", "axolotl's FSDP1 is deprecated"},
	{"reshard_after_forward", SAYS_KEY, "true false *>true",
		"axolotl takes true or false, no group size"},
	{"wrap", SAYS_KEY, NULL, NULL},
	FSDP2_ALWAYS,
	{"activation_checkpointing", SAYS_KEY, "none full *>full",
		"axolotl checkpoints every block whole"},
	ATTENTION_KEY,
	{"compile", SAYS_KEY, NULL, NULL},
	{"param_dtype", SAYS_KEY, NULL, NULL},
	MASTER_ALWAYS_FP32,
	{"reduce_dtype", SAYS_ALWAYS, "*>@param_dtype",
		"bf16 and fp16 set the dtype of parameters and of the reduction alike"},
	{"optimizer", SAYS_KEY, "adamw-fused adamw-foreach sgd *>adamw-foreach",
		"adamw_torch is PyTorch's foreach implementation"},
	{"cpu_offload", SAYS_KEY, "none parameters *>parameters",
		"FSDP moves parameters, gradients and optimizer state together"},
	{"seq_len", SAYS_KEY, NULL, NULL},
	{"micro_batch", SAYS_KEY, NULL, NULL},
	{"grad_accum", SAYS_KEY, NULL, NULL},
	{"sync_each_micro_batch", SAYS_KEY, NULL, NULL},
	{"clip", SAYS_KEY, NULL, NULL},
	LOSS_BESIDE,
	ENVIRONMENT_BESIDE,
	{NULL, SAYS_KEY, NULL, NULL},
};

static void write_fsdp(struct exporting *exporting, const char *block, struct writer *writer)
{
	const struct plan *plan = exporting->plan;
	int64_t least = export_min_parameters(exporting);

	writer_int(writer, "fsdp_version", 2);
	writer_begin_map(writer, "fsdp_config");
	writer_bool(
		writer, "reshard_after_forward", strcmp(plan->reshard_after_forward, "false") != 0);
	writer_string(writer, "auto_wrap_policy",
		least > 0 ? "SIZE_BASED_WRAP" : "TRANSFORMER_BASED_WRAP");
	if (least > 0)
		writer_int(writer, "min_num_params", least);
	else if (block != NULL)
		writer_string(writer, "transformer_layer_cls_to_wrap", block);
	writer_bool(writer, "offload_params", plan_offloads_any(plan));
	writer_bool(writer, "cpu_ram_efficient_loading", true);
	writer_string(writer, "state_dict_type", "SHARDED_STATE_DICT");
	writer_bool(writer, "activation_checkpointing", export_checkpoints(exporting));
	writer_end_map(writer);
	if (export_is_hybrid(exporting))
		writer_int(writer, "dp_replicate_size", plan->mesh.replicate);
	writer_int(writer, "dp_shard_size", plan->mesh.shard);
}

static void write_training(const struct plan *plan, struct writer *writer)
{
	static const char *const optimizers[] = {
		"adamw_torch_fused", "adamw_torch", "adamw_torch", "sgd"};

	writer_int(writer, "sequence_len", plan->seq_len);
	writer_int(writer, "micro_batch_size", plan->micro_batch);
	writer_int(writer, "gradient_accumulation_steps", plan->grad_accum);
	if (plan->grad_accum > 1) {
		writer_begin_map(writer, "accelerator_config");
		writer_begin_map(writer, "gradient_accumulation_kwargs");
		writer_bool(writer, "sync_each_batch", plan->sync_each_micro_batch);
		writer_end_map(writer);
		writer_end_map(writer);
	}
	writer_bool(writer, "bf16", plan->param_dtype == DTYPE_BF16);
	writer_bool(writer, "fp16", plan->param_dtype == DTYPE_FP16);
	writer_string(writer, "optimizer", optimizers[plan->optimizer]);
	writer_number(writer, "max_grad_norm", plan->clip);
	writer_string(writer, "attn_implementation",
		plan->attention == ATTENTION_EAGER ? "eager" : "flash_attention_2");
	writer_bool(writer, "torch_compile", plan->compile);
}

static void write_file(struct exporting *exporting)
{
	bool sharded = export_is_sharded(exporting), blocks = export_wraps_blocks(exporting);
	const char *block = sharded && blocks ? export_class(exporting) : NULL;
	struct writer writer;

	export_header(exporting);
	writer_init(&writer, exporting->text, WRITER_YAML);
	writer_comment(&writer,
		"The name of the plan; axolotl wants a Hugging Face name or folder, "
		"and datasets.");
	writer_string(&writer, "base_model", exporting->model->architecture.name);
	write_training(exporting->plan, &writer);
	if (sharded)
		write_fsdp(exporting, block, &writer);
	else
		writer_bool(&writer, "gradient_checkpointing", export_checkpoints(exporting));
	writer_finish(&writer);
}

/* --- import -------------------------------------------------------------------------------- */

static const struct import_key keys[] = {
	{"micro_batch_size", IMPORT_COUNT, "micro-batch", NULL},
	{"gradient_accumulation_steps", IMPORT_COUNT, "grad-accum", NULL},
	{"sequence_len", IMPORT_COUNT, "seq-len", NULL},
	{"max_grad_norm", IMPORT_NUMBER, "clip", NULL},
	{"optimizer", IMPORT_WORD, "optimizer",
		"adamw_torch_fused>adamw-fused adamw_torch>adamw-foreach "
		"adamw_hf>adamw-foreach sgd"},
	{"attn_implementation", IMPORT_WORD, "attention",
		"flash*>flash eager sdpa>flash flex*>flash"},
	{"flash_attention", IMPORT_WORD, "attention", "true>flash false>eager"},
	{"torch_compile", IMPORT_WORD, "compile", "true>on false>off"},
	{"accelerator_config.gradient_accumulation_kwargs.sync_each_batch", IMPORT_SWITCH,
		"sync-each-micro-batch", NULL},
	{"accelerator_config.*", IMPORT_PLAIN, NULL, NULL},
	{"base_model", IMPORT_READ, NULL, NULL},
	{"bf16", IMPORT_READ, NULL, NULL},
	{"fp16", IMPORT_READ, NULL, NULL},
	{"bfloat16", IMPORT_READ, NULL, NULL},
	{"float16", IMPORT_READ, NULL, NULL},
	{"fsdp_version", IMPORT_READ, NULL, NULL},
	{"fsdp_config.reshard_after_forward", IMPORT_READ, NULL, NULL},
	{"fsdp_config.auto_wrap_policy", IMPORT_READ, NULL, NULL},
	{"fsdp_config.transformer_layer_cls_to_wrap", IMPORT_READ, NULL, NULL},
	{"fsdp_config.min_num_params", IMPORT_READ, NULL, NULL},
	{"fsdp_config.offload_params", IMPORT_READ, NULL, NULL},
	{"fsdp_config.activation_checkpointing", IMPORT_READ, NULL, NULL},
	{"fsdp_config.mixed_precision_policy", IMPORT_READ, NULL, NULL},
	{"fsdp_config.fsdp_version", IMPORT_READ, NULL, NULL},
	{"fsdp_config.*", IMPORT_PLAIN, NULL, NULL},
	{"gradient_checkpointing", IMPORT_READ, NULL, NULL},
	{"dp_shard_size", IMPORT_READ, NULL, NULL},
	{"dp_replicate_size", IMPORT_READ, NULL, NULL},
	{"tensor_parallel_size", IMPORT_ONE, NULL, NULL},
	{"context_parallel_size", IMPORT_ONE, NULL, NULL},
	{"expert_parallel_size", IMPORT_ONE, NULL, NULL},
	{"adapter", IMPORT_UNPRICED, NULL, NULL},
	{"load_in_*", IMPORT_READ, NULL, NULL},
	{"deepspeed*", IMPORT_UNPRICED, NULL, NULL},
	{"fp8*", IMPORT_UNPRICED, NULL, NULL},
	{"plugins*", IMPORT_UNPRICED, NULL, NULL},
	{"sample_packing", IMPORT_PLAIN, NULL, NULL},
	{"datasets*", IMPORT_PLAIN, NULL, NULL},
	{"dataset_*", IMPORT_PLAIN, NULL, NULL},
	{"output_dir", IMPORT_PLAIN, NULL, NULL},
	{"num_epochs", IMPORT_PLAIN, NULL, NULL},
	{"max_steps", IMPORT_PLAIN, NULL, NULL},
	{"lr_scheduler*", IMPORT_PLAIN, NULL, NULL},
	{"learning_rate", IMPORT_PLAIN, NULL, NULL},
	{"weight_decay", IMPORT_PLAIN, NULL, NULL},
	{"warmup_*", IMPORT_PLAIN, NULL, NULL},
	{"tf32", IMPORT_PLAIN, NULL, NULL},
	{"logging_steps", IMPORT_PLAIN, NULL, NULL},
	{"save*", IMPORT_PLAIN, NULL, NULL},
	{"eval*", IMPORT_PLAIN, NULL, NULL},
	{"val_set_size", IMPORT_PLAIN, NULL, NULL},
	{"special_tokens*", IMPORT_PLAIN, NULL, NULL},
	{"seed", IMPORT_PLAIN, NULL, NULL},
	{"wandb_*", IMPORT_PLAIN, NULL, NULL},
	{NULL, IMPORT_PLAIN, NULL, NULL},
};

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

	import_set(importing, "param-dtype", dtype, path);
	import_set(importing, "reduce-dtype", dtype, NULL);
	import_set(importing, "master-dtype", "fp32", NULL);
}

static bool finish_sharded(struct importing *importing, struct error *error)
{
	int64_t replicate, shard;
	bool reshards, hybrid, offload, checkpoints, outside;

	if (!import_count(importing, "dp_replicate_size", &replicate, 1, error) ||
		!import_count(importing, "dp_shard_size", &shard, 0, error) ||
		!import_mesh(importing, replicate, shard, "dp_shard_size", &hybrid, error) ||
		!import_switch(
			importing, "fsdp_config.reshard_after_forward", &reshards, true, error) ||
		!import_wrap(importing, "fsdp_config.auto_wrap_policy",
			"fsdp_config.transformer_layer_cls_to_wrap", "fsdp_config.min_num_params",
			"TRANSFORMER_BASED_WRAP", error) ||
		!import_switch(importing, "fsdp_config.offload_params", &offload, false, error) ||
		!import_switch(importing, "fsdp_config.activation_checkpointing", &checkpoints,
			false, error) ||
		!import_switch(importing, "gradient_checkpointing", &outside, false, error))
		return false;
	import_fsdp2_strategy(importing, reshards, hybrid, "fsdp_config.reshard_after_forward");
	import_set(importing, "cpu-offload", offload ? "parameters" : "none",
		"fsdp_config.offload_params");
	import_set(importing, "activation-checkpointing", checkpoints || outside ? "full" : "none",
		outside ? "gradient_checkpointing" : "fsdp_config.activation_checkpointing");
	return true;
}

static bool finish(struct importing *importing, struct error *error)
{
	const char *version = import_text(
		importing, "fsdp_version", import_text(importing, "fsdp_config.fsdp_version", "1"));

	importing->imported->model = import_text(importing, "base_model", NULL);
	finish_dtype(importing);
	if (source_has(importing->source, "load_in_*"))
		import_note(importing, "load_in_*", "quantized weights are not predicted");
	if (!source_has(importing->source, "fsdp_config.*")) {
		import_set(importing, "runtime", "pytorch-ddp", NULL);
		import_set(importing, "strategy", "NO_SHARD", NULL);
		import_set(importing, "activation-checkpointing",
			import_is(importing, "gradient_checkpointing", "true") ? "full" : "none",
			"gradient_checkpointing");
		return true;
	}
	if (!finish_sharded(importing, error))
		return false;
	if (strcmp(version, "2") != 0) {
		import_set(importing, "runtime", "pytorch-fsdp1", NULL);
		import_note(importing, "fsdp_version",
			"FSDP1, which axolotl is about to drop; fsdp_version: 2 is its successor");
	}
	return true;
}

static int recognizes(const struct source *source)
{
	return source_has(source, "base_model") ? 12 : 0;
}

static const struct import_format import = {recognizes, keys, finish};

const struct export_target export_axolotl = {
	.name = "axolotl",
	.title = "axolotl with FSDP2",
	.file = "axolotl.yaml",
	.source = "axolotl (067b021c, 2026-07-24)",
	.syntax = SYNTAX_YAML,
	.wraps = "block size:*",
	.wraps_apart = true,
	.rules = rules,
	.launch = "axolotl train %f --launcher torchrun -- --nnodes=%n --nproc-per-node=%g",
	.write = write_file,
	.import = &import,
};
