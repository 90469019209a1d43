/* nanotron: the parts of its YAML that a plan knows. ZeRO stage 0 or 1, no FSDP.
 *
 * Keys: nanotron (src/nanotron/config/config.py, parallelism_config.py). */
#include <string.h>

#include "frameworks/targets/shared.h"

static const struct export_rule rules[] = {
	{"strategy", SAYS_KEY, "NO_SHARD *", NULL},
	{"runtime", SAYS_ALWAYS, NULL, NULL},
	{"wrap", SAYS_KEY, NULL, NULL},
	{"prefetch", SAYS_ALWAYS, "*>pre", "nothing is gathered unit by unit"},
	{"forward_prefetch", SAYS_ALWAYS, "*>false", "nothing is gathered unit by unit"},
	{"limit_all_gathers", SAYS_ALWAYS, "*>false", "nothing is gathered unit by unit"},
	{"reshard_after_forward", SAYS_ALWAYS, NULL, NULL},
	{"activation_checkpointing", SAYS_KEY, "none full *>full",
		"recompute_layer is of every layer whole"},
	{"attention", SAYS_ALWAYS, "*>flash", "nanotron's Llama has flash attention alone"},
	{"compile", SAYS_ALWAYS, "*>false", "nanotron does not compile"},
	{"param_dtype", SAYS_KEY, NULL, NULL},
	{"master_dtype", SAYS_ALWAYS, "*>fp32", "accumulate_grad_in_fp32 keeps fp32 parameters"},
	{"reduce_dtype", SAYS_ALWAYS, "*>fp32", "accumulate_grad_in_fp32 reduces in fp32"},
	{"optimizer", SAYS_KEY, "adamw-fused adamw-foreach *>adamw-foreach",
		"torch_adam_is_fused: true or false"},
	{"cpu_offload", SAYS_ALWAYS, "*>none", "nanotron has no offload"},
	{"seq_len", SAYS_KEY, NULL, NULL},
	{"micro_batch", SAYS_KEY, NULL, NULL},
	{"grad_accum", SAYS_KEY, NULL, NULL},
	{"sync_each_micro_batch", SAYS_ALWAYS, "*>false",
		"nanotron reduces after the last micro-batch"},
	{"clip", SAYS_KEY, NULL, NULL},
	LOSS_BESIDE,
	ENVIRONMENT_BESIDE,
	{NULL, SAYS_KEY, NULL, NULL},
};

static void adapt(struct exporting *exporting, struct plan *plan)
{
	bool known = export_has(runtime_names, "nanotron");

	if (plan->strategy != STRATEGY_NO_SHARD)
		export_change(exporting, plan, "strategy", known ? "ZERO_1" : "SHARD_GRAD_OP",
			"nanotron shards optimizer state alone: stage 1");
	export_change(exporting, plan, "runtime",
		known                                 ? "nanotron"
		: plan->strategy == STRATEGY_NO_SHARD ? "pytorch-ddp"
						      : "pytorch-fsdp2",
		"this is nanotron");
}

static void write_parallelism(const struct exporting *exporting, struct writer *writer)
{
	writer_begin_map(writer, "parallelism");
	writer_int(writer, "dp", topology_devices(exporting->topology));
	writer_int(writer, "pp", 1);
	writer_int(writer, "tp", 1);
	writer_string(writer, "pp_engine", "1f1b");
	writer_string(writer, "tp_mode", "REDUCE_SCATTER");
	writer_bool(writer, "tp_linear_async_communication", false);
	writer_bool(writer, "recompute_layer", export_checkpoints(exporting));
	writer_int(writer, "expert_parallel_size", 1);
	writer_end_map(writer);
}

static void write_optimizer(const struct plan *plan, struct writer *writer)
{
	writer_begin_map(writer, "optimizer");
	writer_int(writer, "zero_stage", plan->strategy == STRATEGY_NO_SHARD ? 0 : 1);
	writer_bool(writer, "accumulate_grad_in_fp32", true);
	if (plan->clip > 0)
		writer_number(writer, "clip_grad", plan->clip);
	else
		writer_string(writer, "clip_grad", NULL);
	writer_begin_map(writer, "optimizer_factory");
	writer_string(writer, "name", "adamW");
	writer_bool(writer, "torch_adam_is_fused", plan->optimizer == OPTIMIZER_ADAMW_FUSED);
	writer_number(writer, "adam_beta1", 0.9);
	writer_number(writer, "adam_beta2", 0.95);
	writer_number(writer, "adam_eps", 1e-8);
	writer_end_map(writer);
	writer_number(writer, "weight_decay", 0.1);
	writer_end_map(writer);
}

static void write_file(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;
	struct writer writer;

	export_header(exporting);
	writer_init(&writer, exporting->text, WRITER_YAML);
	writer_comment(&writer,
		"A part: general, model.model_config, tokenizer, data_stages and the "
		"learning rate are yours.");
	write_parallelism(exporting, &writer);
	writer_begin_map(&writer, "model");
	writer_string(&writer, "dtype", export_torch_dtype(plan->param_dtype));
	writer_end_map(&writer);
	write_optimizer(plan, &writer);
	writer_begin_map(&writer, "tokens");
	writer_int(&writer, "micro_batch_size", plan->micro_batch);
	writer_int(&writer, "batch_accumulation_per_replica", plan->grad_accum);
	writer_int(&writer, "sequence_length", plan->seq_len);
	writer_end_map(&writer);
	writer_finish(&writer);
}

/* --- import -------------------------------------------------------------------------------- */

static const struct import_key keys[] = {
	{"parallelism.dp", IMPORT_COUNT, "gpus", NULL},
	{"parallelism.pp", IMPORT_ONE, NULL, NULL},
	{"parallelism.tp", IMPORT_ONE, NULL, NULL},
	{"parallelism.expert_parallel_size", IMPORT_ONE, NULL, NULL},
	{"parallelism.context_parallel_size", IMPORT_ONE, NULL, NULL},
	{"parallelism.recompute_layer", IMPORT_WORD, "activation-checkpointing",
		"true>full false>none"},
	{"parallelism.*", IMPORT_PLAIN, NULL, NULL},
	{"tokens.micro_batch_size", IMPORT_COUNT, "micro-batch", NULL},
	{"tokens.batch_accumulation_per_replica", IMPORT_COUNT, "grad-accum", NULL},
	{"tokens.sequence_length", IMPORT_COUNT, "seq-len", NULL},
	{"tokens.*", IMPORT_PLAIN, NULL, NULL},
	{"optimizer.zero_stage", IMPORT_READ, NULL, NULL},
	{"optimizer.accumulate_grad_in_fp32", IMPORT_READ, NULL, NULL},
	{"optimizer.clip_grad", IMPORT_NUMBER, "clip", NULL},
	{"optimizer.optimizer_factory.torch_adam_is_fused", IMPORT_WORD, "optimizer",
		"true>adamw-fused false>adamw-foreach"},
	{"optimizer.*", IMPORT_PLAIN, NULL, NULL},
	{"model.dtype", IMPORT_WORD, "param-dtype", "bfloat16>bf16 float16>fp16 float32>fp32"},
	{"model.*", IMPORT_PLAIN, NULL, NULL},
	{"general.*", IMPORT_PLAIN, NULL, NULL},
	{"checkpoints.*", IMPORT_PLAIN, NULL, NULL},
	{"data_stages*", IMPORT_PLAIN, NULL, NULL},
	{"tokenizer.*", IMPORT_PLAIN, NULL, NULL},
	{"logging.*", IMPORT_PLAIN, NULL, NULL},
	{"metrics_logging*", IMPORT_PLAIN, NULL, NULL},
	{"profiler*", IMPORT_PLAIN, NULL, NULL},
	{"lighteval*", IMPORT_PLAIN, NULL, NULL},
	{"s3_upload*", IMPORT_PLAIN, NULL, NULL},
	{NULL, IMPORT_PLAIN, NULL, NULL},
};

#define MODEL(name) "model.model_config." name

static bool finish(struct importing *importing, struct error *error)
{
	struct import_shape *shape = &importing->imported->shape;
	const char *stage = import_text(importing, "optimizer.zero_stage", "0");
	bool known = export_has(runtime_names, "nanotron"), fp32;

	if (strcmp(stage, "0") != 0 && strcmp(stage, "1") != 0)
		return import_fail(importing, "optimizer.zero_stage", error,
			"expected 0 or 1, got \"%.40s\"", stage);
	if (!import_switch(importing, "optimizer.accumulate_grad_in_fp32", &fp32, true, error) ||
		!import_count(importing, MODEL("num_hidden_layers"), &shape->layers, 0, error) ||
		!import_count(importing, MODEL("hidden_size"), &shape->hidden, 0, error) ||
		!import_count(importing, MODEL("num_attention_heads"), &shape->heads, 0, error) ||
		!import_count(
			importing, MODEL("num_key_value_heads"), &shape->kv_heads, 0, error) ||
		!import_count(importing, MODEL("intermediate_size"), &shape->ffn, 0, error))
		return false;
	if (!fp32)
		import_note(
			importing, "optimizer.accumulate_grad_in_fp32", "false: predicted as true");
	bool zero = strcmp(stage, "1") == 0;
	import_set(importing, "strategy",
		!zero   ? "NO_SHARD"
		: known ? "ZERO_1"
			: "SHARD_GRAD_OP",
		"optimizer.zero_stage");
	import_set(importing, "runtime",
		known  ? "nanotron"
		: zero ? "pytorch-fsdp2"
		       : "pytorch-ddp",
		NULL);
	import_set(importing, "master-dtype", "fp32", NULL);
	import_set(importing, "reduce-dtype", "fp32", NULL);
	import_set(importing, "sync-each-micro-batch", "off", NULL);
	return true;
}

static int recognizes(const struct source *source)
{
	return source_has(source, "parallelism.dp") || source_has(source, "optimizer.zero_stage")
		       ? 12
		       : 0;
}

static const struct import_format import = {recognizes, keys, finish};

const struct export_target export_nanotron = {
	.name = "nanotron",
	.title = "nanotron with ZeRO-1",
	.file = "nanotron.yaml",
	.source = "nanotron (2411b022, 2026-04-07)",
	.syntax = SYNTAX_YAML,
	.adapt = adapt,
	.has_own_ddp = true,
	.wraps = "block",
	.rules = rules,
	.launch = "torchrun --nnodes %n --nproc-per-node %g run_train.py --config-file %f",
	.write = write_file,
	.import = &import,
};
