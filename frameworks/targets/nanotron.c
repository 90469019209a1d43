/* nanotron: the parts of its YAML that a plan knows. ZeRO stage 0 or 1, no FSDP.
 *
 * Keys: nanotron (src/nanotron/config/config.py, parallelism_config.py). */
#include <string.h>

#include "frameworks/targets/shared.h"

static const struct export_rule rules[] = {
	{KNOB_RUNTIME, FIXED},
	{KNOB_PREFETCH, FIXED, "*>pre", "nothing is gathered unit by unit"},
	{KNOB_FORWARD_PREFETCH, FIXED, "*>false", "nothing is gathered unit by unit"},
	{KNOB_LIMIT_ALL_GATHERS, FIXED, "*>false", "nothing is gathered unit by unit"},
	{KNOB_RESHARD_AFTER_FORWARD, FIXED},
	{KNOB_ACTIVATION_CHECKPOINTING, IN_FILE, "none full *>full",
		"recompute_layer is of every layer whole"},
	{KNOB_ATTENTION, FIXED, "*>flash", "nanotron's Llama has flash attention alone"},
	{KNOB_COMPILE, FIXED, "*>false", "nanotron does not compile"},
	{KNOB_MASTER_DTYPE, FIXED, "*>fp32", "accumulate_grad_in_fp32 keeps fp32 parameters"},
	{KNOB_REDUCE_DTYPE, FIXED, "*>fp32", "accumulate_grad_in_fp32 reduces in fp32"},
	{KNOB_OPTIMIZER, IN_FILE, "adamw-fused adamw-foreach *>adamw-foreach",
		"torch_adam_is_fused: true or false"},
	{KNOB_CPU_OFFLOAD, FIXED, "*>none", "nanotron has no offload"},
	{KNOB_SYNC_EACH_MICRO_BATCH, FIXED, "*>false",
		"nanotron reduces after the last micro-batch"},
	{KNOB_WRAP, IN_FILE},
	{KNOB_PIPELINE_SCHEDULE, IN_FILE, "1f1b gpipe *>1f1b", "pp_engine is 1f1b or afab"},
	{KNOB_VIRTUAL_STAGES, FIXED},
	{KNOB_LAYERS_PER_STAGE, ELSEWHERE, NULL, "get_block_compute_costs of the model"},
	OUTSIDE_OF_FILES,
};

static void adapt(struct exporting *exporting, struct plan *plan)
{
	if (plan->strategy != STRATEGY_NO_SHARD)
		export_change(exporting, plan, KNOB_STRATEGY, "ZERO_1",
			"nanotron shards optimizer state alone: stage 1");
	export_change(exporting, plan, KNOB_RUNTIME, "nanotron", "this is nanotron");
	if (plan->virtual_stages > 1) {
		export_add_note(exporting, "virtual_stages", false, "a rank has one stage");
		plan->virtual_stages = 0;
	}
	/* Its asynchronous layers assert that the variable is 1 (parallel/tensor_parallel/). */
	if (plan->mesh.tensor > 1 && !plan->serial_tensor)
		export_note_elsewhere(exporting, "serial_tensor",
			"off: the environment: CUDA_DEVICE_MAX_CONNECTIONS=1");
}

/* --- keys ----------------------------------------------------------------------------------- */

#define DATA        "parallelism.dp"
#define STAGES      "parallelism.pp"
#define TENSOR      "parallelism.tp"
#define ENGINE      "parallelism.pp_engine"
#define TENSOR_MODE "parallelism.tp_mode"
#define BESIDE      "parallelism.tp_linear_async_communication"

static const char *clip(struct exporting *exporting)
{
	return exporting->plan->clip > 0 ? export_knob(exporting->plan, KNOB_CLIP, exporting->arena)
					 : "null";
}

static const char *data_ranks(struct exporting *exporting)
{
	return arena_printf(
		exporting->arena, "%lld", (long long)plan_data_parallel(exporting->plan));
}

static const char *engine(struct exporting *exporting)
{
	return exporting->plan->pipeline_schedule == PIPELINE_GPIPE ? "afab" : "1f1b";
}

static const char *tensor_mode(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;

	return plan->mesh.tensor == 1 || plan->sequence_parallel ? "REDUCE_SCATTER" : "ALL_REDUCE";
}

/* Backward's exchanges run beside its products. */
static const char *beside(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;

	return plan->mesh.tensor > 1 && !plan->serial_tensor ? "true" : "false";
}

static const struct config_key keys[] = {
	{"#", KEY_PLAIN, NO_KNOB,
		"A part: general, model.model_config, tokenizer, data_stages and the learning rate "
		"are yours."},
	{DATA, KEY_READ, KEY_GPUS, NULL, 0, data_ranks},
	{STAGES, KEY_COUNT, KNOB_PIPELINE},
	{TENSOR, KEY_COUNT, KNOB_TENSOR},
	{ENGINE, KEY_READ, KNOB_PIPELINE_SCHEDULE, "1f1b afab>gpipe", 0, engine},
	{TENSOR_MODE, KEY_READ, KNOB_SEQUENCE_PARALLEL, "REDUCE_SCATTER>on ALL_REDUCE>off", 0,
		tensor_mode},
	{BESIDE, KEY_READ, KNOB_SERIAL_TENSOR, "true>off false>on", 0, beside},
	{"parallelism.tp_recompute_allgather", KEY_WORD, KNOB_KEEP_GATHERED, "true>off false>on"},
	{"parallelism.recompute_layer", KEY_WORD, KNOB_ACTIVATION_CHECKPOINTING, FULL_OR_NONE},
	{"parallelism.expert_parallel_size", KEY_ONE, NO_KNOB, "1"},
	{"parallelism.context_parallel_size", KEY_ONE, NO_KNOB},
	{"model.dtype", KEY_WORD, KNOB_PARAM_DTYPE, TORCH_DTYPES},
	{"optimizer.zero_stage", KEY_READ, KNOB_STRATEGY, NULL, 0, value_zero_stage},
	{"optimizer.accumulate_grad_in_fp32", KEY_READ, NO_KNOB, "true"},
	{"optimizer.clip_grad", KEY_NUMBER, KNOB_CLIP, NULL, EVEN_IF_LEFT, clip},
	{"optimizer.optimizer_factory.name", KEY_PLAIN, NO_KNOB, "adamW"},
	{"optimizer.optimizer_factory.torch_adam_is_fused", KEY_WORD, KNOB_OPTIMIZER,
		"true>adamw-fused false>adamw-foreach"},
	{"optimizer.optimizer_factory.adam_beta1", KEY_PLAIN, NO_KNOB, "0.9"},
	{"optimizer.optimizer_factory.adam_beta2", KEY_PLAIN, NO_KNOB, "0.95"},
	{"optimizer.optimizer_factory.adam_eps", KEY_PLAIN, NO_KNOB, "1e-8"},
	{"optimizer.weight_decay", KEY_PLAIN, NO_KNOB, "0.1"},
	{"tokens.micro_batch_size", KEY_COUNT, KNOB_MICRO_BATCH},
	{"tokens.batch_accumulation_per_replica", KEY_COUNT, KNOB_GRAD_ACCUM},
	{"tokens.sequence_length", KEY_COUNT, KNOB_SEQ_LEN},
	{NULL},
};
static const char plain[] =
	"parallelism.* tokens.* optimizer.* model.* general.* checkpoints.* data_stages* "
	"tokenizer.* logging.* metrics_logging* profiler* lighteval* s3_upload*";

/* --- import -------------------------------------------------------------------------------- */

#define MODEL(name) "model.model_config." name

/* Without words the engine is afab, and tensor ranks sum all, with nothing beside it. */
static bool finish_ranks(struct importing *importing, struct error *error)
{
	int64_t data, stages, tensor;

	if (!import_count(importing, DATA, &data, 0, error) ||
		!import_count(importing, STAGES, &stages, 1, error) ||
		!import_count(importing, TENSOR, &tensor, 1, error) ||
		(stages > 1 && !import_key(importing, ENGINE, "gpipe", error)) ||
		(tensor > 1 && (!import_key(importing, TENSOR_MODE, "off", error) ||
				       !import_key(importing, BESIDE, "on", error))))
		return false;
	if (data > 0)
		import_set_count(importing, KEY_GPUS, data * stages * tensor, DATA);
	return true;
}

static bool finish(struct importing *importing, struct error *error)
{
	struct import_shape *shape = &importing->imported->shape;
	const char *stage = import_text(importing, "optimizer.zero_stage", "0");
	bool fp32;

	if (strcmp(stage, "0") != 0 && strcmp(stage, "1") != 0)
		return import_fail(importing, "optimizer.zero_stage", error,
			"expected 0 or 1, got \"%.40s\"", stage);
	if (!import_switch(importing, "optimizer.accumulate_grad_in_fp32", &fp32, true, error) ||
		!import_count(importing, MODEL("num_hidden_layers"), &shape->layers, 0, error) ||
		!import_count(importing, MODEL("hidden_size"), &shape->hidden, 0, error) ||
		!import_count(importing, MODEL("num_attention_heads"), &shape->heads, 0, error) ||
		!import_count(
			importing, MODEL("num_key_value_heads"), &shape->kv_heads, 0, error) ||
		!finish_ranks(importing, error) ||
		!import_count(importing, MODEL("intermediate_size"), &shape->ffn, 0, error))
		return false;
	if (!fp32)
		import_note(
			importing, "optimizer.accumulate_grad_in_fp32", "false: predicted as true");
	import_set(importing, KNOB_STRATEGY, strcmp(stage, "1") == 0 ? "ZERO_1" : "NO_SHARD",
		"optimizer.zero_stage");
	import_set(importing, KNOB_RUNTIME, "nanotron", NULL);
	import_set(importing, KNOB_MASTER_DTYPE, "fp32", NULL);
	import_set(importing, KNOB_REDUCE_DTYPE, "fp32", NULL);
	import_set(importing, KNOB_SYNC_EACH_MICRO_BATCH, "off", NULL);
	return true;
}

static int recognizes(const struct source *source)
{
	return source_has(source, "parallelism.dp") || source_has(source, "optimizer.zero_stage")
		       ? 12
		       : 0;
}

static const struct config_format format = {recognizes, keys, plain, NULL, finish};

const struct export_target export_nanotron = {
	.name = "nanotron",
	.title = "nanotron with ZeRO-1",
	.file = "nanotron.yaml",
	.program = "nanotron",
	.versions = "main",
	.syntax = SYNTAX_YAML,
	.adapt = adapt,
	.has_own_ddp = true,
	.wraps = "block",
	.rules = rules,
	.launch = TORCHRUN "run_train.py --config-file %f",
	.format = &format,
};
