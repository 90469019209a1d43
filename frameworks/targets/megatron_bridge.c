/* Megatron-Bridge: YAML that is merged over a recipe's ConfigContainer, and the whole of one that a
 * run has saved; NeMo's older YAML is read too.
 *
 * Keys: Megatron-Bridge 0.3.1 (training/config.py, training/mixed_precision.py,
 * models/gpt_provider.py; merged in training/utils/omegaconf_utils.py) and Megatron-Core 0.16.1
 * (transformer_config.py, model_parallel_config.py, distributed_data_parallel_config.py,
 * optimizer_config.py). NeMo 1's: examples/nlp/language_modeling/conf/megatron_gpt_config.yaml.
 * mixed_precision decides over ddp.grad_reduce_in_fp32. */
#include <string.h>
#include <strings.h>

#include "frameworks/targets/megatron.h"

#define MODEL(name) "model." name
#define DDP(name)   "ddp." name
#define MIXED(name) "mixed_precision." name

static const struct export_rule rules[] = {
	MEGATRON_RUNTIME,
	{KNOB_ATTENTION, ELSEWHERE, NULL,
		"model.attention_backend = AttnBackend.flash or .unfused in the recipe"},
	MEGATRON_COMMON,
	{KNOB_MASTER_DTYPE, FIXED, "*>fp32", "the optimizer keeps fp32 parameters"},
	{KNOB_REDUCE_DTYPE, FIXED, "*>fp32", "bf16_mixed and fp16_mixed reduce in fp32"},
	MEGATRON_ADAM,
	OUTSIDE_BUT_LOSS,
};

/* --- keys ----------------------------------------------------------------------------------- */

/* A recipe may have the contrary: nothing is left to it. */
static const char *yes_or_no(bool is_so)
{
	return is_so ? "true" : "false";
}

static const char *cuts_sequence(struct exporting *exporting)
{
	return yes_or_no(exporting->plan->sequence_parallel);
}

/* A recipe may have no `comm_overlap` whose switch could be off. */
#define TP_OVERLAP "comm_overlap.tp_comm_overlap"
#define EP_OVERLAP "comm_overlap.overlap_moe_expert_parallel_comm"
/* Many recipes have it. It excludes EP_OVERLAP (transformer_config.py). */
#define SHARED_OVERLAP MODEL("moe_shared_expert_overlap")

static const char *exchanges_beside(struct exporting *exporting)
{
	return exporting->plan->async_tensor ? "true" : NULL;
}

static const char *shared_waits(struct exporting *exporting)
{
	return exporting->plan->expert_overlap ? "false" : NULL;
}

static const char *chunks(struct exporting *exporting)
{
	const char *number = megatron_virtual_stages(exporting);

	return number != NULL ? number : "null";
}

static const char *or_null(const char *value)
{
	return value != NULL ? value : "null";
}

static const char *layout(struct exporting *exporting)
{
	return or_null(megatron_layout(exporting));
}

static const char *granularity(struct exporting *exporting)
{
	return or_null(megatron_granularity(exporting));
}

static const char *method(struct exporting *exporting)
{
	return or_null(megatron_recompute_method(exporting));
}

static const char *pieces(struct exporting *exporting)
{
	return or_null(megatron_recompute_layers(exporting));
}

/* A recipe may name others. */
static const char *modules(struct exporting *exporting)
{
	const char *named = megatron_modules(exporting);
	bool selective = plan_checkpoints(exporting->plan, CHECKPOINTING_SELECTIVE);

	return named == NULL && selective ? recompute_module_names[RECOMPUTE_CORE_ATTN] : named;
}

/* In the words of 0.3, which later releases take too. A recipe may have some. */
static const char *graphs(struct exporting *exporting)
{
	const char *words = megatron_graphs(exporting);

	return words == NULL ? "none" : strcmp(words, "full_iteration") == 0 ? "local" : words;
}

static const char *graph_scope(struct exporting *exporting)
{
	return megatron_words(exporting, &exporting->plan->cuda_graph_scope);
}

static const char *looks_for_nan(struct exporting *exporting)
{
	return megatron_leaves_nan(exporting) != NULL ? "false" : NULL;
}

static const char *fuses_loss(struct exporting *exporting)
{
	return yes_or_no(exporting->plan->loss != LOSS_PARALLEL);
}

static const char *loss_kernel(struct exporting *exporting)
{
	return exporting->plan->loss == LOSS_FUSED ? "te" : "native";
}

static const char *dropout(struct exporting *exporting)
{
	return exporting->plan->dropout ? "0.1" : "0.0";
}

static const char *distributed(struct exporting *exporting)
{
	return yes_or_no(exporting->plan->strategy == STRATEGY_ZERO_1);
}

static const char *instances(struct exporting *exporting)
{
	return exporting->plan->strategy == STRATEGY_ZERO_1 ? value_replicas(exporting) : NULL;
}

static const char *overlaps_reductions(struct exporting *exporting)
{
	return yes_or_no(exporting->plan->overlap != OVERLAP_NONE);
}

/* Recipes of models that have such modules train them. */
static const char *predicts_next(struct exporting *exporting)
{
	const struct architecture *model = &exporting->model->architecture;
	bool usual = model->family == FAMILY_DEEPSEEK_V3 || model->family == FAMILY_GLM4_MOE;

	if (model->mtp_layers == 0)
		return usual ? "null" : NULL;
	return arena_printf(exporting->arena, "%lld", (long long)model->mtp_layers);
}

/* Some models' recipes have it, some have not. */
static const char *permutes(struct exporting *exporting)
{
	return exporting->model->architecture.experts > 0
		       ? yes_or_no(!exporting->plan->unfused_permute)
		       : NULL;
}

static const char *overlaps_gathers(struct exporting *exporting)
{
	return yes_or_no(megatron_overlaps_gathers(exporting->plan));
}

static const char *precision(struct exporting *exporting)
{
	static const char *const names[DTYPE_COUNT] = {
		[DTYPE_BF16] = "bf16_mixed", [DTYPE_FP16] = "fp16_mixed"};
	enum fp8_recipe fp8 = exporting->plan->fp8;

	return fp8 != FP8_OFF ? megatron_precision(fp8)
			      : or_null(names[exporting->plan->param_dtype]);
}

static void adapt(struct exporting *exporting, struct plan *plan)
{
	megatron_adapt_core(exporting, plan);
	megatron_note_trained(exporting, plan);
	if (plan->fp8 == FP8_OFF)
		return;
	if (plan->fp8 == FP8_TENSORWISE)
		export_note_elsewhere(exporting, "fp8",
			"mixed_precision.first_last_layers_bf16 = False in the recipe");
	if (plan->strategy == STRATEGY_NO_SHARD)
		export_change(exporting, plan, KNOB_FP8, "off",
			"its recipes of fp8 need the distributed optimizer");
	else if (megatron_precision_keeps(plan->fp8))
		export_change(exporting, plan, KNOB_FP8_PARAM_GATHER, "true",
			"its recipes of fp8 keep weights in fp8");
	else
		export_change(exporting, plan, KNOB_FP8_PARAM_GATHER, "false",
			"its recipe of blocks keeps weights in bf16");
}

static const struct config_key keys[] = {
	{"#", KEY_PLAIN, NO_KNOB,
		"Over a recipe of this model: "
		"what it is, data, tokenizer and checkpoints are the recipe's."},
	{MODEL("seq_length"), KEY_COUNT, KNOB_SEQ_LEN},
	{MODEL("tensor_model_parallel_size"), KEY_COUNT, KNOB_TENSOR},
	{MODEL("sequence_parallel"), KEY_READ, KNOB_SEQUENCE_PARALLEL, NULL, 0, cuts_sequence},
	{MODEL("pipeline_model_parallel_size"), KEY_COUNT, KNOB_PIPELINE},
	{MODEL("virtual_pipeline_model_parallel_size"), KEY_READ, KNOB_VIRTUAL_STAGES, NULL, 0,
		chunks},
	{MODEL("account_for_embedding_in_pipeline_split"), KEY_READ, KNOB_LAYERS_PER_STAGE, NULL,
		ONLY_READ},
	{MODEL("account_for_loss_in_pipeline_split"), KEY_READ, KNOB_LAYERS_PER_STAGE, NULL,
		ONLY_READ},
	{MODEL("num_layers_in_first_pipeline_stage"), KEY_READ, KNOB_LAYERS_PER_STAGE, NULL,
		ONLY_READ},
	{MODEL("num_layers_in_last_pipeline_stage"), KEY_READ, KNOB_LAYERS_PER_STAGE, NULL,
		ONLY_READ},
	{MODEL("pipeline_model_parallel_layout"), KEY_READ, KNOB_LAYERS_PER_STAGE, NULL, 0, layout},
	{MODEL("context_parallel_size"), KEY_COUNT, KNOB_CONTEXT},
	{MODEL("cp_comm_type"), KEY_READ, KNOB_CONTEXT_METHOD, NULL, 0, megatron_context_method},
	{MODEL("expert_model_parallel_size"), KEY_COUNT, KNOB_EXPERT, NULL, 0, megatron_experts},
	{MODEL("expert_tensor_parallel_size"), KEY_READ, KNOB_EXPERT_TENSOR, NULL, 0,
		megatron_expert_tensor},
	{MODEL("moe_expert_capacity_factor"), KEY_READ, KNOB_CAPACITY_FACTOR, NULL, 0,
		megatron_capacity},
	{MODEL("moe_pad_expert_input_to_capacity"), KEY_READ, KNOB_CAPACITY_FACTOR, NULL, 0,
		megatron_pads},
	{MODEL("moe_token_dispatcher_type"), KEY_READ, KNOB_EXPERT_DISPATCH, NULL, 0,
		megatron_dispatcher},
	{MODEL("moe_enable_deepep"), KEY_READ, KNOB_EXPERT_DISPATCH, NULL, 0, megatron_deepep},
	{MODEL("moe_flex_dispatcher_backend"), KEY_READ, KNOB_EXPERT_DISPATCH, NULL, ONLY_READ},
	{SHARED_OVERLAP, KEY_READ, NO_KNOB, NULL, 0, shared_waits},
	{MODEL("mtp_num_layers"), KEY_READ, KEY_MTP_LAYERS, NULL, 0, predicts_next},
	{MODEL("moe_grouped_gemm"), KEY_READ, NO_KNOB, NULL, 0, megatron_grouped},
	{MODEL("moe_permute_fusion"), KEY_READ, KNOB_UNFUSED_PERMUTE, NULL, 0, permutes},
	{MODEL("moe_router_dtype"), KEY_PLAIN, NO_KNOB, NULL, 0, megatron_router_dtype},
	{MODEL("recompute_granularity"), KEY_WORD, KNOB_ACTIVATION_CHECKPOINTING, "full selective",
		0, granularity},
	{MODEL("recompute_method"), KEY_PLAIN, NO_KNOB, NULL, 0, method},
	{MODEL("recompute_num_layers"), KEY_PLAIN, NO_KNOB, NULL, 0, pieces},
	{MODEL("recompute_modules[]"), KEY_READ, KNOB_RECOMPUTE_MODULES, NULL, 0, modules},
	{MODEL("moe_layer_recompute"), KEY_READ, KNOB_RECOMPUTE_MODULES, NULL, ONLY_READ},
	{MODEL("attention_backend"), KEY_WORD, KNOB_ATTENTION,
		"flash fused>flash auto>flash unfused>eager local>eager", ONLY_READ},
	{MODEL("cross_entropy_loss_fusion"), KEY_READ, KNOB_LOSS, NULL, 0, fuses_loss},
	{MODEL("cross_entropy_fusion_impl"), KEY_READ, KNOB_LOSS, NULL, 0, loss_kernel},
	{MODEL("cuda_graph_impl"), KEY_READ, KNOB_CUDA_GRAPH_SCOPE, NULL, 0, graphs},
	{MODEL("cuda_graph_scope[]"), KEY_READ, KNOB_CUDA_GRAPH_SCOPE, NULL, 0, graph_scope},
	{MODEL("cuda_graph_modules[]"), KEY_READ, KNOB_CUDA_GRAPH_SCOPE, NULL, ONLY_READ},
	{MODEL("enable_cuda_graph"), KEY_READ, KNOB_CUDA_GRAPH_SCOPE, NULL, ONLY_READ},
	{MODEL("external_cuda_graph"), KEY_READ, KNOB_CUDA_GRAPH_SCOPE, NULL, ONLY_READ},
	{MODEL("use_te_rng_tracker"), KEY_PLAIN, NO_KNOB, NULL, 0, megatron_rng_tracker},
	{MODEL("attention_dropout"), KEY_READ, KNOB_DROPOUT, NULL, 0, dropout},
	{MODEL("hidden_dropout"), KEY_READ, KNOB_DROPOUT, NULL, 0, dropout},
	{"train.micro_batch_size", KEY_COUNT, KNOB_MICRO_BATCH},
	{"train.global_batch_size", KEY_COUNT, KNOB_GLOBAL_BATCH},
	{"peft.dim", KEY_READ, KNOB_TRAINABLE, NULL, 0, megatron_adapter_rank},
	{"peft.alpha", KEY_READ, KNOB_TRAINABLE, NULL, 0, megatron_adapter_alpha},
	{"peft.target_modules[]", KEY_READ, KNOB_TRAINABLE, NULL, 0, megatron_adapted},
	{"peft._target_", KEY_READ, KNOB_TRAINABLE, NULL, ONLY_READ},
	{"optimizer.optimizer", KEY_WORD, KNOB_OPTIMIZER, "adam>adamw-fused sgd"},
	{"optimizer.clip_grad", KEY_NUMBER, KNOB_CLIP, NULL, EVEN_IF_LEFT},
	{"optimizer.use_distributed_optimizer", KEY_READ, KNOB_STRATEGY, NULL, 0, distributed},
	{TP_OVERLAP, KEY_READ, KNOB_ASYNC_TENSOR, NULL, 0, exchanges_beside},
	{EP_OVERLAP, KEY_READ, KNOB_EXPERT_OVERLAP, NULL, 0, megatron_rows_beside},
	{DDP("use_distributed_optimizer"), KEY_READ, KNOB_STRATEGY, NULL, 0, distributed},
	{DDP("num_distributed_optimizer_instances"), KEY_READ, KNOB_SHARD_GROUP, NULL, 0,
		instances},
	{DDP("overlap_grad_reduce"), KEY_READ, KNOB_OVERLAP, NULL, 0, overlaps_reductions},
	{DDP("overlap_param_gather"), KEY_READ, KNOB_OVERLAP, NULL, 0, overlaps_gathers},
	{DDP("check_for_nan_in_grad"), KEY_PLAIN, NO_KNOB, NULL, 0, looks_for_nan},
	{"rng.te_rng_tracker", KEY_PLAIN, NO_KNOB, NULL, 0, megatron_rng_tracker},
	{"rerun_state_machine.check_for_nan_in_loss", KEY_PLAIN, NO_KNOB, NULL, 0, looks_for_nan},
	{"mixed_precision", KEY_READ, KNOB_PARAM_DTYPE, NULL, 0, precision},
	{MIXED("fp8"), KEY_READ, KNOB_FP8, NULL, ONLY_READ},
	{MIXED("fp8_recipe"), KEY_READ, KNOB_FP8, NULL, ONLY_READ},
	{MIXED("fp8_param_gather"), KEY_READ, KNOB_FP8_PARAM_GATHER, NULL, ONLY_READ},
	{MIXED("fp4"), KEY_READ, KNOB_FP8, NULL, ONLY_READ},
	{MIXED("fp4_recipe"), KEY_READ, KNOB_FP8, NULL, ONLY_READ},
	{MIXED("fp4_param_gather"), KEY_READ, KNOB_FP8_PARAM_GATHER, NULL, ONLY_READ},
	/* Of NeMo 1. */
	{MODEL("encoder_seq_length"), KEY_COUNT, KNOB_SEQ_LEN, NULL, ONLY_READ},
	{MODEL("micro_batch_size"), KEY_COUNT, KNOB_MICRO_BATCH, NULL, ONLY_READ},
	{MODEL("global_batch_size"), KEY_COUNT, KNOB_GLOBAL_BATCH, NULL, ONLY_READ},
	{MODEL("fp8"), KEY_READ, KNOB_FP8, NULL, ONLY_READ},
	{MODEL("optim.grad_sync_dtype"), KEY_READ, KNOB_REDUCE_DTYPE, NULL, ONLY_READ},
	{"trainer.gradient_clip_val", KEY_NUMBER, KNOB_CLIP, NULL, ONLY_READ},
	{NULL},
};
static const char unpriced[] =
	"model.fp8* model.fp4* "
	"model.defer_embedding_wgrad_compute optimizer.optimizer_cpu_offload "
	"ddp.use_megatron_fsdp ddp.bucket_size "
	"comm_overlap.delay_wgrad_compute";

/* --- import -------------------------------------------------------------------------------- */

static const struct megatron_names names = {
	.pipeline = MODEL("pipeline_model_parallel_size"),
	.chunks = MODEL("virtual_pipeline_model_parallel_size"),
	.chunk_blocks = MODEL("num_layers_per_virtual_pipeline_stage"),
	.first = MODEL("num_layers_in_first_pipeline_stage"),
	.last = MODEL("num_layers_in_last_pipeline_stage"),
	.layout = MODEL("pipeline_model_parallel_layout"),
	.counts_embedding = MODEL("account_for_embedding_in_pipeline_split"),
	.counts_loss = MODEL("account_for_loss_in_pipeline_split"),
	.instances = DDP("num_distributed_optimizer_instances"),
	.context = MODEL("context_parallel_size"),
	.context_method = MODEL("cp_comm_type"),
	.attention_dropout = MODEL("attention_dropout"),
	.hidden_dropout = MODEL("hidden_dropout"),
	.granularity = MODEL("recompute_granularity"),
	.method = MODEL("recompute_method"),
	.pieces = MODEL("recompute_num_layers"),
	.modules = MODEL("recompute_modules"),
	.next = MODEL("mtp_num_layers"),
	.experts_again = MODEL("moe_layer_recompute"),
	.graphs = MODEL("cuda_graph_impl"),
	.graph_modules = MODEL("cuda_graph_modules"),
	.graph_scope = MODEL("cuda_graph_scope"),
	.local_graphs = MODEL("enable_cuda_graph"),
	.external_graphs = MODEL("external_cuda_graph"),
	.tensor = MODEL("tensor_model_parallel_size"),
	.experts = MODEL("num_moe_experts"),
	.expert = MODEL("expert_model_parallel_size"),
	.expert_tensor = MODEL("expert_tensor_parallel_size"),
	.capacity = MODEL("moe_expert_capacity_factor"),
	.pads = MODEL("moe_pad_expert_input_to_capacity"),
	.dispatcher = MODEL("moe_token_dispatcher_type"),
	.backend = MODEL("moe_flex_dispatcher_backend"),
	.grouped = MODEL("moe_grouped_gemm"),
	.permute = MODEL("moe_permute_fusion"),
	.rows_beside = EP_OVERLAP,
	.has_recipe = true,
};

static bool finish_shape(struct importing *importing, struct error *error)
{
	struct import_shape *shape = &importing->imported->shape;

	return import_count(importing, MODEL("num_layers"), &shape->layers, 0, error) &&
	       import_count(importing, MODEL("hidden_size"), &shape->hidden, 0, error) &&
	       import_count(importing, MODEL("num_attention_heads"), &shape->heads, 0, error) &&
	       import_count(importing, MODEL("num_query_groups"), &shape->kv_heads, 0, error) &&
	       import_count(importing, MODEL("ffn_hidden_size"), &shape->ffn, 0, error);
}

/* NeMo 1 says them; a recipe is started with them. */
static bool finish_ranks(struct importing *importing, struct error *error)
{
	int64_t nodes, devices, ranks;

	if (!import_count(importing, "trainer.num_nodes", &nodes, 1, error) ||
		!import_count(importing, "trainer.devices", &devices, 0, error))
		return false;
	if (devices > 0 && checked_mul(nodes, devices, &ranks))
		import_set_count(importing, KEY_GPUS, ranks, "trainer.devices");
	return true;
}

/* A recipe has a switch, NeMo 1 a dtype. `path`: where the file says that it is not fp32. */
static bool reduces_in_fp32(
	struct importing *importing, bool *is_so, const char **path, struct error *error)
{
	static const char dtype[] = MODEL("optim.grad_sync_dtype");
	static const char high[] = MIXED("grad_reduce_in_fp32");
	bool named_low = strstr(import_text(importing, dtype, "fp32"), "16") != NULL;

	*path = named_low ? dtype : high;
	return import_switch(importing, high, is_so, !named_low, error);
}

/* A name, or the fields that it stands for; recipes have bf16. */
static bool finish_dtypes(struct importing *importing, struct error *error)
{
	const struct node *node = import_find(importing, "mixed_precision");
	const char *name = import_text(importing, "mixed_precision", "");
	const char *trainer = import_text(importing, "trainer.precision", ""), *path;
	bool none = (node != NULL && import_is_unset(node)) || strncmp(trainer, "32", 2) == 0;
	bool bf16, fp16, high;

	if (!import_switch(importing, MIXED("fp16"), &fp16, false, error) ||
		!reduces_in_fp32(importing, &high, &path, error))
		return false;
	fp16 = fp16 || strncmp(name, "fp16", 4) == 0 || strncmp(trainer, "16", 2) == 0;
	if (!import_switch(importing, MIXED("bf16"), &bf16, !none && !fp16, error))
		return false;
	import_set(importing, KNOB_PARAM_DTYPE,
		bf16   ? "bf16"
		: fp16 ? "fp16"
		       : "fp32",
		import_find(importing, "mixed_precision") != NULL ? "mixed_precision" : NULL);
	import_set(importing, KNOB_REDUCE_DTYPE,
		high   ? "fp32"
		: bf16 ? "bf16"
		       : "fp16",
		high ? NULL : path);
	import_set(importing, KNOB_MASTER_DTYPE, "fp32", NULL);
	return true;
}

/* What a file leaves to a recipe is as recipes of pretraining have it (recipes/common.py); NeMo 1
 * has no recipe. */
static bool has_recipe(const struct importing *importing)
{
	return import_find(importing, MODEL("optim.name")) == NULL;
}

static bool finish_optimizer(struct importing *importing, struct error *error)
{
	static const char path[] = DDP("use_distributed_optimizer");
	static const char early[] = DDP("overlap_grad_reduce");
	bool recipe = has_recipe(importing);
	bool usual =
		recipe || strstr(import_text(importing, MODEL("optim.name"), ""), "distributed");
	bool shards, reductions, gathers;

	if (!import_switch(importing, path, &shards, usual, error) ||
		!import_switch(importing, early, &reductions, recipe, error) ||
		!import_switch(importing, DDP("overlap_param_gather"), &gathers, recipe, error))
		return false;
	import_set(importing, KNOB_STRATEGY, shards ? "ZERO_1" : "NO_SHARD",
		import_find(importing, path) != NULL ? path : NULL);
	import_set(importing, KNOB_OVERLAP,
		!reductions          ? "none"
		: gathers || !shards ? "all"
				     : "gradients",
		import_find(importing, early) != NULL ? early : NULL);
	return true;
}

static bool finish_loss(struct importing *importing, struct error *error)
{
	static const char path[] = MODEL("cross_entropy_loss_fusion");
	bool recipe = has_recipe(importing), fused;
	const char *kernel = import_text(
		importing, MODEL("cross_entropy_fusion_impl"), recipe ? "te" : "native");
	bool te = strcmp(kernel, "te") == 0;

	if (!import_switch(importing, path, &fused, recipe, error))
		return false;
	import_set(importing, KNOB_LOSS,
		!fused ? "parallel"
		: te   ? "fused"
		       : "upcast",
		import_find(importing, path) != NULL ? path : NULL);
	return true;
}

static bool finish_sequence(struct importing *importing, struct error *error)
{
	int64_t tensor;
	bool cuts, beside, shared;

	if (!import_count(importing, MODEL("tensor_model_parallel_size"), &tensor, 1, error) ||
		!import_switch(importing, MODEL("sequence_parallel"), &cuts, false, error) ||
		!import_switch(importing, TP_OVERLAP, &beside, false, error) ||
		!import_switch(importing, SHARED_OVERLAP, &shared, false, error))
		return false;
	if (shared)
		import_note(importing, SHARED_OVERLAP, "true: is not predicted");
	if (tensor > 1 && beside)
		import_set(importing, KNOB_ASYNC_TENSOR, "on", TP_OVERLAP);
	if (tensor > 1)
		import_set(importing, KNOB_SEQUENCE_PARALLEL, cuts ? "on" : "off",
			import_find(importing, MODEL("sequence_parallel")) != NULL
				? MODEL("sequence_parallel")
				: NULL);
	return true;
}

static bool finish(struct importing *importing, struct error *error)
{
	if (!finish_shape(importing, error) || !finish_ranks(importing, error) ||
		!finish_dtypes(importing, error) ||
		!megatron_finish_mixed_precision(importing, has_recipe(importing), error) ||
		!finish_optimizer(importing, error) || !finish_loss(importing, error) ||
		!finish_sequence(importing, error) || !megatron_finish_adapters(importing, error) ||
		!megatron_finish_core(importing, &names, error))
		return false;
	import_set(importing, KNOB_RUNTIME, "megatron", NULL);
	import_set(importing, KNOB_SYNC_EACH_MICRO_BATCH, "off", NULL);
	import_set(importing, KNOB_WRAP, "block", NULL);
	import_set_default(importing, KNOB_CLIP, "1");
	import_set_default(importing, KNOB_OPTIMIZER, "adamw-fused");
	import_set_default(importing, KNOB_ACTIVATION_CHECKPOINTING, "none");
	return true;
}

static int recognizes(const struct source *source)
{
	static const char *const paths[] = {MODEL("tensor_model_parallel_size"),
		MODEL("pipeline_model_parallel_size"), DDP("use_distributed_optimizer"),
		"model_config.tensor_model_parallel_size",
		"model_config.pipeline_model_parallel_size"};

	for (int i = 0; i < COUNT_OF(paths); i++)
		if (source_has(source, paths[i]))
			return 12;
	return 0;
}

/* Hundreds of keys are the model's and the data's. The second line of aliases is NeMo 1's. */
static const struct config_format format = {recognizes, keys, "model.moe_router_topk *", unpriced,
	finish,
	.aliases = "model_config.>model. train_config.>train. ddp_config.>ddp. "
		   "optimizer_config.>optimizer. "
		   "model.activations_checkpoint_>model.recompute_ "
		   "model.optim.overlap_grad_sync>ddp.overlap_grad_reduce "
		   "model.optim.overlap_param_sync>ddp.overlap_param_gather "
		   "model.ub_tp_comm_overlap>comm_overlap.tp_comm_overlap "
		   "model.fp8_params>mixed_precision.fp8_param_gather"};

const struct export_target export_megatron_bridge = {
	.name = "megatron-bridge",
	.title = "Megatron-Bridge: YAML overrides",
	.file = "megatron-bridge.yaml",
	.program = "Megatron-Bridge",
	.versions = "0.3.1",
	.syntax = SYNTAX_YAML,
	.adapt = adapt,
	.wraps = "block",
	.clips = true,
	.has_own_ddp = true,
	.rules = rules,
	.launch = TORCHRUN "pretrain.py --config-file %f",
	.format = &format,
};
