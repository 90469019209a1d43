/* llm-foundry and Composer: the YAML of scripts/train/train.py, with FSDP1.
 *
 * Keys: Composer (composer/utils/parallelism.py: FSDPConfig) and llm-foundry
 * (llmfoundry/utils/config_utils.py: TrainConfig). Composer takes misspelt fsdp_config keys in
 * silence. mixed_precision: DEFAULT reduces in fp32, PURE in the compute dtype, FULL is fp32
 * (composer/distributed/mosaic_parallelism.py). FSDP reduces after every micro-batch there, and
 * refuses CPU offload. */
#include <string.h>

#include "frameworks/targets/shared.h"

static const struct export_rule rules[] = {
	{"strategy", SAYS_KEY, ZERO_AS_FSDP, "FSDP1 is the nearest"},
	{"runtime", SAYS_ALWAYS, "*>pytorch-fsdp1", "this is Composer's FSDP1"},
	{"shard_group", SAYS_KEY, NULL, NULL},
	{"reshard_after_forward", SAYS_KEY, "true false *>true", "FSDP1 knows no group sizes"},
	{"wrap", SAYS_KEY, NULL, NULL},
	{"prefetch", SAYS_KEY, NULL, NULL},
	{"forward_prefetch", SAYS_KEY, NULL, NULL},
	{"limit_all_gathers", SAYS_KEY, NULL, NULL},
	{"activation_checkpointing", SAYS_KEY, "none full *>full",
		"Composer checkpoints every block whole"},
	{"attention", SAYS_BESIDE, NULL, "model.attn_config.attn_impl: flash or torch"},
	{"compile", SAYS_KEY, NULL, NULL},
	{"param_dtype", SAYS_KEY, NULL, NULL},
	MASTER_ALWAYS_FP32,
	{"reduce_dtype", SAYS_KEY, "fp32 *>@param_dtype",
		"mixed_precision reduces in fp32 or in the dtype of parameters"},
	{"optimizer", SAYS_ALWAYS, "*>adamw",
		"decoupled_adamw updates one parameter after the other"},
	{"cpu_offload", SAYS_ALWAYS, "*>none", "Composer refuses CPU offload"},
	{"seq_len", SAYS_KEY, NULL, NULL},
	{"micro_batch", SAYS_KEY, NULL, NULL},
	{"grad_accum", SAYS_KEY, NULL, NULL},
	{"sync_each_micro_batch", SAYS_ALWAYS, "*>true",
		"Composer reduces after every micro-batch"},
	{"clip", SAYS_KEY, NULL, NULL},
	LOSS_BESIDE,
	ENVIRONMENT_BESIDE,
	{NULL, SAYS_KEY, NULL, NULL},
};

/* PyTorch 2.6's FSDP1 carries NO_SHARD out itself: there is no DDP here. */
static void write_fsdp(const struct exporting *exporting, struct writer *writer)
{
	static const char *const prefetches[] = {"NONE", "BACKWARD_PRE", "BACKWARD_POST"};
	const struct plan *plan = exporting->plan;

	writer_begin_map(writer, "fsdp_config");
	writer_string(writer, "sharding_strategy",
		plan->strategy == STRATEGY_HYBRID_SHARD_ZERO2 ? "_HYBRID_SHARD_ZERO2"
							      : strategy_names[plan->strategy]);
	if (export_is_hybrid(exporting)) {
		writer_int(writer, "data_parallel_replicate_degree", plan->mesh.replicate);
		writer_int(writer, "data_parallel_shard_degree", plan->mesh.shard);
	}
	writer_string(writer, "mixed_precision",
		plan->param_dtype == DTYPE_FP32    ? "FULL"
		: plan->reduce_dtype == DTYPE_FP32 ? "DEFAULT"
						   : "PURE");
	writer_string(writer, "backward_prefetch", prefetches[plan->prefetch]);
	writer_bool(writer, "forward_prefetch", plan->forward_prefetch);
	writer_bool(writer, "limit_all_gathers", plan->limit_all_gathers);
	writer_bool(writer, "activation_checkpointing", export_checkpoints(exporting));
	writer_bool(writer, "activation_checkpointing_reentrant", false);
	writer_bool(writer, "activation_cpu_offload", false);
	writer_bool(writer, "sync_module_states", true);
	writer_bool(writer, "use_orig_params", true);
	writer_string(writer, "state_dict_type", "sharded");
	writer_end_map(writer);
}

static void write_optimizer(const struct plan *plan, struct writer *writer)
{
	writer_begin_map(writer, "optimizer");
	writer_string(writer, "name", "decoupled_adamw");
	writer_number(writer, "lr", 3e-4);
	writer_begin_list(writer, "betas");
	writer_number(writer, NULL, 0.9);
	writer_number(writer, NULL, 0.95);
	writer_end_list(writer);
	writer_number(writer, "eps", 1e-8);
	writer_number(writer, "weight_decay", 0.0);
	writer_end_map(writer);
	if (plan->clip <= 0)
		return;
	writer_begin_map(writer, "algorithms");
	writer_begin_map(writer, "gradient_clipping");
	writer_string(writer, "clipping_type", "norm");
	writer_number(writer, "clipping_threshold", plan->clip);
	writer_end_map(writer);
	writer_end_map(writer);
}

static void write_file(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;
	struct writer writer;

	export_header(exporting);
	writer_init(&writer, exporting->text, WRITER_YAML);
	writer_comment(&writer,
		"A part: model, tokenizer, train_loader, scheduler and max_duration are yours.");
	writer_int(&writer, "max_seq_len", plan->seq_len);
	writer_int(&writer, "global_train_batch_size", plan->global_batch);
	writer_int(&writer, "device_train_microbatch_size", plan->micro_batch);
	writer_string(&writer, "precision",
		plan->param_dtype == DTYPE_BF16   ? "amp_bf16"
		: plan->param_dtype == DTYPE_FP16 ? "amp_fp16"
						  : "fp32");
	if (plan->compile) {
		writer_begin_map(&writer, "compile_config");
		writer_string(&writer, "mode", "default");
		writer_end_map(&writer);
	}
	write_optimizer(plan, &writer);
	write_fsdp(exporting, &writer);
	writer_finish(&writer);
}

/* --- import -------------------------------------------------------------------------------- */

#define FSDP(name) "fsdp_config." name

static const struct import_key keys[] = {
	{"max_seq_len", IMPORT_COUNT, "seq-len", NULL},
	{"global_train_batch_size", IMPORT_COUNT, "global-batch", NULL},
	{"device_train_microbatch_size", IMPORT_COUNT, "micro-batch", NULL},
	{"algorithms.gradient_clipping.clipping_threshold", IMPORT_NUMBER, "clip", NULL},
	{"algorithms.gradient_clipping.clipping_type", IMPORT_PLAIN, NULL, NULL},
	{"algorithms.*", IMPORT_UNPRICED, NULL, NULL},
	{"precision", IMPORT_WORD, "param-dtype",
		"amp_bf16>bf16 amp_fp16>fp16 fp32 amp_fp8>bf16 bf16"},
	{"model.attn_config.attn_impl", IMPORT_WORD, "attention", "flash torch>eager triton>flash"},
	{"model.name", IMPORT_PLAIN, NULL, NULL},
	{"model.pretrained_model_name_or_path", IMPORT_READ, NULL, NULL},
	{"model.*", IMPORT_PLAIN, NULL, NULL},
	{"compile_config*", IMPORT_READ, NULL, NULL},
	{FSDP("sharding_strategy"), IMPORT_READ, NULL, NULL},
	{FSDP("data_parallel_shard_degree"), IMPORT_READ, NULL, NULL},
	{FSDP("data_parallel_replicate_degree"), IMPORT_READ, NULL, NULL},
	{FSDP("mixed_precision"), IMPORT_READ, NULL, NULL},
	{FSDP("backward_prefetch"), IMPORT_READ, NULL, NULL},
	{FSDP("forward_prefetch"), IMPORT_READ, NULL, NULL},
	{FSDP("limit_all_gathers"), IMPORT_READ, NULL, NULL},
	{FSDP("activation_checkpointing"), IMPORT_READ, NULL, NULL},
	{FSDP("activation_cpu_offload"), IMPORT_READ, NULL, NULL},
	{FSDP("cpu_offload"), IMPORT_READ, NULL, NULL},
	{FSDP("backward_prefetch_limit"), IMPORT_UNPRICED, NULL, NULL},
	{FSDP("forward_prefetch_limit"), IMPORT_UNPRICED, NULL, NULL},
	{FSDP("keep_low_precision_grads"), IMPORT_UNPRICED, NULL, NULL},
	{FSDP("activation_checkpointing_reentrant"), IMPORT_PLAIN, NULL, NULL},
	{FSDP("auto_wrap"), IMPORT_PLAIN, NULL, NULL},
	{FSDP("state_dict_type"), IMPORT_PLAIN, NULL, NULL},
	{FSDP("sync_module_states"), IMPORT_PLAIN, NULL, NULL},
	{FSDP("use_orig_params"), IMPORT_PLAIN, NULL, NULL},
	{FSDP("load_monolith_rank0_only"), IMPORT_PLAIN, NULL, NULL},
	{FSDP("sharded_ckpt_prefix_dir"), IMPORT_PLAIN, NULL, NULL},
	{FSDP("te_*"), IMPORT_UNPRICED, NULL, NULL},
	{FSDP("verbose"), IMPORT_PLAIN, NULL, NULL},
	{"variables.*", IMPORT_PLAIN, NULL, NULL},
	{"run_name", IMPORT_PLAIN, NULL, NULL},
	{"tokenizer.*", IMPORT_PLAIN, NULL, NULL},
	{"train_loader.*", IMPORT_PLAIN, NULL, NULL},
	{"eval_*", IMPORT_PLAIN, NULL, NULL},
	{"scheduler.*", IMPORT_PLAIN, NULL, NULL},
	{"optimizer.*", IMPORT_PLAIN, NULL, NULL},
	{"max_duration", IMPORT_PLAIN, NULL, NULL},
	{"seed", IMPORT_PLAIN, NULL, NULL},
	{"device_eval_batch_size", IMPORT_PLAIN, NULL, NULL},
	{"progress_bar", IMPORT_PLAIN, NULL, NULL},
	{"log_to_console", IMPORT_PLAIN, NULL, NULL},
	{"console_log_interval", IMPORT_PLAIN, NULL, NULL},
	{"callbacks.*", IMPORT_PLAIN, NULL, NULL},
	{"loggers.*", IMPORT_PLAIN, NULL, NULL},
	{"save_*", IMPORT_PLAIN, NULL, NULL},
	{"load_*", IMPORT_PLAIN, NULL, NULL},
	{NULL, IMPORT_PLAIN, NULL, NULL},
};

static bool finish_prefetch(struct importing *importing, struct error *error)
{
	const char *path = FSDP("backward_prefetch");
	const char *text = import_text(importing, path, "BACKWARD_POST"); /* Composer's default */
	const char *value = strcmp(text, "BACKWARD_PRE") == 0    ? "pre"
			    : strcmp(text, "BACKWARD_POST") == 0 ? "post"
			    : strcmp(text, "NONE") == 0          ? "none"
								 : NULL;
	bool forward, limit;

	if (value == NULL)
		return import_fail(importing, path, error,
			"expected BACKWARD_PRE, BACKWARD_POST or NONE, got \"%.40s\"", text);
	if (!import_switch(importing, FSDP("forward_prefetch"), &forward, false, error) ||
		!import_switch(importing, FSDP("limit_all_gathers"), &limit, true, error))
		return false;
	import_set(importing, "prefetch", value, path);
	import_set(importing, "forward-prefetch", forward ? "on" : "off", FSDP("forward_prefetch"));
	import_set(importing, "limit-all-gathers", limit ? "on" : "off", FSDP("limit_all_gathers"));
	return true;
}

static bool finish_dtypes(struct importing *importing, struct error *error)
{
	const char *path = FSDP("mixed_precision");
	const char *text = import_text(importing, path, "DEFAULT");
	const char *precision = import_text(importing, "precision", "amp_bf16");
	const char *dtype =
		strstr(precision, "16") == NULL && strstr(precision, "fp8") == NULL     ? "fp32"
		: strstr(precision, "bf16") != NULL || strstr(precision, "fp8") != NULL ? "bf16"
											: "fp16";

	if (strcmp(text, "FULL") != 0 && strcmp(text, "PURE") != 0 && strcmp(text, "DEFAULT") != 0)
		return import_fail(importing, path, error,
			"expected PURE, DEFAULT or FULL, got \"%.40s\"", text);
	import_set(
		importing, "param-dtype", strcmp(text, "FULL") == 0 ? "fp32" : dtype, "precision");
	import_set(importing, "reduce-dtype", strcmp(text, "PURE") == 0 ? dtype : "fp32", path);
	import_set(importing, "master-dtype", "fp32", NULL);
	return true;
}

static bool finish_mesh(struct importing *importing, struct error *error)
{
	int64_t replicate, shard;
	bool hybrid;

	if (!import_count(
		    importing, FSDP("data_parallel_replicate_degree"), &replicate, 1, error) ||
		!import_count(importing, FSDP("data_parallel_shard_degree"), &shard, 0, error))
		return false;
	if (replicate == 1 && shard == 0)
		return true;
	return import_mesh(
		importing, replicate, shard, FSDP("data_parallel_shard_degree"), &hybrid, error);
}

static bool finish(struct importing *importing, struct error *error)
{
	struct import_shape *shape = &importing->imported->shape;
	bool checkpoints, offload;

	importing->imported->model =
		import_text(importing, "model.pretrained_model_name_or_path", NULL);
	if (!import_fsdp1_strategy(importing, FSDP("sharding_strategy"), "FULL_SHARD", error) ||
		!finish_mesh(importing, error) || !finish_prefetch(importing, error) ||
		!finish_dtypes(importing, error) ||
		!import_switch(
			importing, FSDP("activation_checkpointing"), &checkpoints, false, error) ||
		!import_switch(importing, FSDP("cpu_offload"), &offload, false, error) ||
		!import_count(importing, "model.n_layers", &shape->layers, 0, error) ||
		!import_count(importing, "model.d_model", &shape->hidden, 0, error) ||
		!import_count(importing, "model.n_heads", &shape->heads, 0, error))
		return false;
	if (offload)
		return import_fail(importing, FSDP("cpu_offload"), error,
			"Composer refuses CPU offload, expected false");
	if (import_is(importing, FSDP("activation_cpu_offload"), "true"))
		import_note(importing, FSDP("activation_cpu_offload"), "is not predicted");
	import_set(importing, "runtime", "pytorch-fsdp1", NULL);
	import_set(importing, "wrap", "block", NULL);
	import_set(importing, "activation-checkpointing", checkpoints ? "full" : "none",
		FSDP("activation_checkpointing"));
	import_set(importing, "sync-each-micro-batch", "on", NULL);
	import_set(importing, "optimizer", "adamw", NULL);
	if (source_has(importing->source, "compile_config*"))
		import_set(importing, "compile", "on", "compile_config*");
	return true;
}

static int recognizes(const struct source *source)
{
	return source_has(source, "device_train_microbatch_size") ||
			       source_has(source, "global_train_batch_size")
		       ? 12
		       : 0;
}

static const struct import_format import = {recognizes, keys, finish};

const struct export_target export_llm_foundry = {
	.name = "llm-foundry",
	.title = "llm-foundry and Composer with FSDP1",
	.file = "llm-foundry.yaml",
	.source = "Composer (64051888, 2026-04-29)",
	.syntax = SYNTAX_YAML,
	.has_own_ddp = true,
	.wraps = "block",
	.rules = rules,
	.launch = "composer --world_size %w train.py %f",
	.write = write_file,
	.import = &import,
};
