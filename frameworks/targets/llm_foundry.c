/* llm-foundry and Composer: the YAML of scripts/train/train.py, with FSDP1.
 *
 * Keys: Composer (composer/utils/parallelism.py: FSDPConfig) and llm-foundry
 * (llmfoundry/utils/config_utils.py: TrainConfig, models/mpt/configuration_mpt.py: MPTConfig).
 * Composer takes misspelt fsdp_config keys in silence. mixed_precision: DEFAULT reduces in fp32,
 * PURE in the compute dtype, FULL is fp32 (composer/distributed/mosaic_parallelism.py). FSDP
 * reduces after every micro-batch there, and refuses CPU offload. */
#include <string.h>

#include "frameworks/targets/shared.h"

static const struct export_rule rules[] = {
	{KNOB_STRATEGY, IN_FILE, ZERO_AS_FSDP, "FSDP1 is the nearest"},
	{KNOB_RUNTIME, FIXED, "*>pytorch-fsdp1", "this is Composer's FSDP1"},
	FSDP1_RESHARD,
	{KNOB_ACTIVATION_CHECKPOINTING, IN_FILE, "none full *>full",
		"Composer checkpoints every block whole"},
	{KNOB_ATTENTION, ELSEWHERE, NULL, "model.attn_config.attn_impl: flash or torch"},
	MASTER_FP32,
	{KNOB_REDUCE_DTYPE, IN_FILE, "fp32 *>@param_dtype",
		"mixed_precision reduces in fp32 or in the dtype of parameters"},
	{KNOB_OPTIMIZER, FIXED, "*>adamw", "decoupled_adamw updates one parameter after the other"},
	{KNOB_CPU_OFFLOAD, FIXED, "*>none", "Composer refuses CPU offload"},
	{KNOB_SYNC_EACH_MICRO_BATCH, FIXED, "*>true", "Composer reduces after every micro-batch"},
	{KNOB_WRAP, IN_FILE},
	{KNOB_GRAD_ACCUM, IN_FILE},
	OUTSIDE_OF_FILES,
};

/* --- keys: PyTorch 2.6's FSDP1 carries NO_SHARD out itself, there is no DDP here -------------- */

static const char *mixed_precision(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;

	return plan->param_dtype == DTYPE_FP32    ? "FULL"
	       : plan->reduce_dtype == DTYPE_FP32 ? "DEFAULT"
						  : "PURE";
}

#define FSDP(name) "fsdp_config." name

static const struct config_key keys[] = {
	{"#", KEY_PLAIN, NO_KNOB,
		"A part: model, tokenizer, train_loader, scheduler and max_duration are yours."},
	{"max_seq_len", KEY_COUNT, KNOB_SEQ_LEN},
	{"global_train_batch_size", KEY_COUNT, KNOB_GLOBAL_BATCH},
	{"device_train_microbatch_size", KEY_COUNT, KNOB_MICRO_BATCH},
	{"precision", KEY_WORD, KNOB_PARAM_DTYPE,
		"amp_bf16>bf16 amp_fp16>fp16 fp32 amp_fp8>bf16 bf16"},
	{"compile_config.mode", KEY_READ, KNOB_COMPILE, "default>on", IF_COMPILED},
	{"compile_config*", KEY_READ, NO_KNOB},
	{"optimizer.name", KEY_PLAIN, NO_KNOB, "decoupled_adamw"},
	{"optimizer.lr", KEY_PLAIN, NO_KNOB, "3e-4"},
	{"optimizer.betas[]", KEY_PLAIN, NO_KNOB, "0.9"},
	{"optimizer.betas[]", KEY_PLAIN, NO_KNOB, "0.95"},
	{"optimizer.eps", KEY_PLAIN, NO_KNOB, "1e-8"},
	{"optimizer.weight_decay", KEY_PLAIN, NO_KNOB, "0"},
	{"algorithms.gradient_clipping.clipping_type", KEY_PLAIN, NO_KNOB, "norm", IF_CLIPPED},
	{"algorithms.gradient_clipping.clipping_threshold", KEY_NUMBER, KNOB_CLIP, NULL,
		IF_CLIPPED},
	{"model.attn_config.attn_impl", KEY_WORD, KNOB_ATTENTION, "flash torch>eager triton>flash",
		ONLY_READ},
	{"model.pretrained_model_name_or_path", KEY_READ, NO_KNOB},
	{FSDP("sharding_strategy"), KEY_READ, KNOB_STRATEGY,
		"_HYBRID_SHARD_ZERO2>HYBRID_SHARD_ZERO2"},
	{FSDP("data_parallel_replicate_degree"), KEY_READ, NO_KNOB, NULL, IF_HYBRID,
		value_replicas},
	{FSDP("data_parallel_shard_degree"), KEY_READ, KNOB_SHARD_GROUP, NULL, IF_HYBRID},
	{FSDP("mixed_precision"), KEY_READ, NO_KNOB, NULL, 0, mixed_precision},
	{FSDP("backward_prefetch"), KEY_READ, KNOB_PREFETCH,
		"BACKWARD_PRE>pre BACKWARD_POST>post NONE>none", EXACT_CASE},
	{FSDP("forward_prefetch"), KEY_READ, KNOB_FORWARD_PREFETCH},
	{FSDP("limit_all_gathers"), KEY_READ, KNOB_LIMIT_ALL_GATHERS},
	{FSDP("activation_checkpointing"), KEY_READ, KNOB_ACTIVATION_CHECKPOINTING, FULL_OR_NONE},
	{FSDP("activation_checkpointing_reentrant"), KEY_PLAIN, NO_KNOB, "false"},
	{FSDP("activation_cpu_offload"), KEY_READ, NO_KNOB, "false"},
	{FSDP("cpu_offload"), KEY_READ, NO_KNOB},
	{FSDP("sync_module_states"), KEY_PLAIN, NO_KNOB, "true"},
	{FSDP("use_orig_params"), KEY_PLAIN, NO_KNOB, "true"},
	{FSDP("state_dict_type"), KEY_PLAIN, NO_KNOB, "sharded"},
	{NULL},
};
static const char unpriced[] = "algorithms.* " FSDP("backward_prefetch_limit") " " FSDP(
	"forward_prefetch_limit") " " FSDP("keep_low_precision_grads") " " FSDP("te_*");
static const char plain[] =
	"model.* " FSDP("auto_wrap") " " FSDP("load_monolith_rank0_only") " " FSDP(
		"sharded_ckpt_prefix_dir") " " FSDP("verbose") " variables.* run_name tokenizer.* "
							       "train_loader.* eval_* scheduler.* "
							       "optimizer.* max_duration seed "
							       "device_eval_batch_size "
							       "progress_bar log_to_console "
							       "console_log_interval callbacks.* "
							       "loggers.* save_* load_*";

/* --- import -------------------------------------------------------------------------------- */

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
	import_set(importing, KNOB_PARAM_DTYPE, strcmp(text, "FULL") == 0 ? "fp32" : dtype,
		"precision");
	import_set(importing, KNOB_REDUCE_DTYPE, strcmp(text, "PURE") == 0 ? dtype : "fp32", path);
	import_set(importing, KNOB_MASTER_DTYPE, "fp32", NULL);
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

/* "alibi": true ... */
static const char *switch_of(struct importing *importing, const char *path)
{
	return import_is(importing, path, "true") ? "true" : "false";
}

/* llm-foundry's own model, with the defaults of its MPTConfig where they differ from Hugging
 * Face's: learned positions, biases. */
static bool spell_model(struct importing *importing, struct error *error)
{
	static const char *const kinds[] = {"grouped_query_attention", "multiquery_attention"};
	int64_t layers, hidden, heads, vocab, context, ratio, kv;
	const char *kind = "multihead_attention";

	for (int i = 0; i < COUNT_OF(kinds); i++)
		kind = import_is(importing, "model.attn_config.attn_type", kinds[i]) ? kinds[i]
										     : kind;
	if (!import_count(importing, "model.n_layers", &layers, 24, error) ||
		!import_count(importing, "model.d_model", &hidden, 2048, error) ||
		!import_count(importing, "model.n_heads", &heads, 16, error) ||
		!import_count(importing, "model.vocab_size", &vocab, 50368, error) ||
		!import_count(importing, "model.max_seq_len", &context, 2048, error) ||
		!import_count(importing, "model.expansion_ratio", &ratio, 4, error) ||
		!import_count(importing, "model.attn_config.kv_n_heads", &kv, heads, error))
		return false;
	importing->imported->model = arena_printf(importing->arena,
		"{\"model_type\": \"mpt\", \"_name_or_path\": \"mpt_causal_lm\", \"n_layers\": "
		"%lld, \"d_model\": %lld, \"n_heads\": %lld, \"vocab_size\": %lld, "
		"\"max_seq_len\": %lld, \"expansion_ratio\": %lld, \"no_bias\": %s, "
		"\"attn_config\": {\"alibi\": %s, \"rope\": %s, \"attn_type\": \"%s\", "
		"\"kv_n_heads\": %lld}}",
		(long long)layers, (long long)hidden, (long long)heads, (long long)vocab,
		(long long)context, (long long)ratio, switch_of(importing, "model.no_bias"),
		switch_of(importing, "model.attn_config.alibi"),
		switch_of(importing, "model.attn_config.rope"), kind, (long long)kv);
	return true;
}

static bool finish(struct importing *importing, struct error *error)
{
	bool offload;

	importing->imported->model =
		import_text(importing, "model.pretrained_model_name_or_path", NULL);
	if (import_is(importing, "model.name", "mpt_causal_lm") && !spell_model(importing, error))
		return false;
	if (!import_fsdp1_strategy(importing, FSDP("sharding_strategy"), "FULL_SHARD", error) ||
		!finish_mesh(importing, error) ||
		!import_key(importing, FSDP("backward_prefetch"), "post", error) ||
		!import_key(importing, FSDP("forward_prefetch"), "off", error) ||
		!import_key(importing, FSDP("limit_all_gathers"), "on", error) ||
		!finish_dtypes(importing, error) ||
		!import_switch(importing, FSDP("cpu_offload"), &offload, false, error))
		return false;
	if (offload)
		return import_fail(importing, FSDP("cpu_offload"), error,
			"Composer refuses CPU offload, expected false");
	import_activation_offload(importing, FSDP("activation_cpu_offload"),
		import_is(importing, FSDP("activation_checkpointing"), "true"));
	import_set(importing, KNOB_RUNTIME, "pytorch-fsdp1", NULL);
	import_set(importing, KNOB_CPU_OFFLOAD, "none", NULL);
	import_set(importing, KNOB_WRAP, "block", NULL);
	if (!import_key(importing, FSDP("activation_checkpointing"), "none", error))
		return false;
	import_set(importing, KNOB_SYNC_EACH_MICRO_BATCH, "on", NULL);
	import_set(importing, KNOB_OPTIMIZER, "adamw", NULL);
	if (source_has(importing->source, "compile_config*"))
		import_set(importing, KNOB_COMPILE, "on", "compile_config*");
	return true;
}

static int recognizes(const struct source *source)
{
	return source_has(source, "device_train_microbatch_size") ||
			       source_has(source, "global_train_batch_size")
		       ? 12
		       : 0;
}

static const struct config_format format = {recognizes, keys, plain, unpriced, finish};

const struct export_target export_llm_foundry = {
	.name = "llm-foundry",
	.title = "llm-foundry with FSDP1",
	.file = "llm-foundry.yaml",
	.program = "Composer",
	.versions = "main",
	.syntax = SYNTAX_YAML,
	.has_own_ddp = true,
	.wraps = "block",
	.rules = rules,
	.launch = "composer --world_size %w "
		  "%[--node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port 29500 %]"
		  "train.py %f",
	.format = &format,
};
