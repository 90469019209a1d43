/* Private to the targets of Megatron-LM: shared by them. */
#ifndef FRAMEWORKS_TARGETS_MEGATRON_H
#define FRAMEWORKS_TARGETS_MEGATRON_H

#include "frameworks/targets/shared.h"

#define MEGATRON_COMMON                                                                            \
	{KNOB_PREFETCH, FIXED, "*>pre", "the next layer is always gathered early"},                \
		{KNOB_FORWARD_PREFETCH, FIXED, "*>false",                                          \
			"there is no option for it; it gathers ahead by itself"},                  \
		{KNOB_LIMIT_ALL_GATHERS, FIXED, "*>false", "there is no rate limiter"},            \
		{KNOB_ACTIVATION_CHECKPOINTING, IN_FILE, "none selective full *>full",             \
			"one granularity for all layers here"},                                    \
		{KNOB_RECOMPUTE_MODULES, IN_FILE}, ATTENTION_FLASH,                                \
		{KNOB_COMPILE, FIXED, "*>false", "Megatron-LM does not compile the model"},        \
		{KNOB_CPU_OFFLOAD, FIXED, "*>none",                                                \
			"Megatron-LM's offload has conditions of its own"},                        \
		{KNOB_WRAP, IN_FILE}, {KNOB_GRAD_ACCUM, IN_FILE},                                  \
		ROW(KNOB_SYNC_EACH_MICRO_BATCH, FIXED)
#define MEGATRON_ADAM                                                                              \
	ROW(KNOB_OPTIMIZER, IN_FILE, "adamw-fused sgd *>adamw-fused", "Megatron-LM's Adam is fused")
#define TRAINING_KEYS                                                                              \
	{"seq-length", KEY_COUNT, KNOB_SEQ_LEN},                                                   \
		{"micro-batch-size", KEY_COUNT, KNOB_MICRO_BATCH},                                 \
		{"global-batch-size", KEY_COUNT, KNOB_GLOBAL_BATCH},                               \
		{"clip-grad", KEY_NUMBER, KNOB_CLIP},                                              \
		{"optimizer", KEY_WORD, KNOB_OPTIMIZER, "adam>adamw-fused sgd"},                   \
		{"attention-backend", KEY_WORD, KNOB_ATTENTION,                                    \
			"flash fused>flash auto>flash unfused>eager local>eager"},                 \
		{"use-flash-attn", KEY_WORD, KNOB_ATTENTION, "true>flash", ONLY_READ},             \
		{"bf16", KEY_READ, KNOB_PARAM_DTYPE, "true>bf16", IF_BF16},                        \
		{"fp16", KEY_READ, KNOB_PARAM_DTYPE, "true>fp16", IF_FP16},                        \
		{"recompute-granularity", KEY_WORD, KNOB_ACTIVATION_CHECKPOINTING,                 \
			"full selective", 0, megatron_granularity},                                \
		{"recompute-activations", KEY_WORD, KNOB_ACTIVATION_CHECKPOINTING,                 \
			"true>selective", ONLY_READ},                                              \
		{"recompute-method", KEY_PLAIN, NO_KNOB, NULL, 0, megatron_recompute_method},      \
		{"recompute-num-layers", KEY_PLAIN, NO_KNOB, NULL, 0, megatron_recompute_layers},  \
		{"recompute-modules", KEY_READ, KNOB_RECOMPUTE_MODULES, NULL, 0,                   \
			megatron_modules},                                                         \
		ROW("moe-layer-recompute", KEY_READ, KNOB_RECOMPUTE_MODULES, NULL, ONLY_READ)
#define MEGATRON_LOAD                                                                              \
	ROW(KNOB_EXPERT_LOAD, ELSEWHERE, NULL,                                                     \
		"what the router makes of the data is measured, not set")

#define MEGATRON_MESSAGES                                                                          \
	ROW(KNOB_SCATTER_GATHER, FIXED, "*>false",                                                 \
		"stages send whole messages since 2023, whatever its option says")

/* Rules of targets whose plans have the runtime megatron. */
#define MEGATRON_RUNTIME                                                                           \
	{KNOB_RUNTIME, FIXED}, {KNOB_RESHARD_AFTER_FORWARD, FIXED},                                \
		{KNOB_LOSS, IN_FILE, "parallel upcast fused *>parallel",                           \
			"the loss of models whose vocabulary is cut over tensor ranks"},           \
		{KNOB_LAYERS_PER_STAGE, IN_FILE},                                                  \
		{KNOB_PIPELINE_SCHEDULE, IN_FILE, "1f1b interleaved *>1f1b",                       \
			"several stages a rank are interleaved there"},                            \
		{KNOB_ACTIVATION_OFFLOAD, FIXED, "*>none", "saved tensors stay on the GPU"},       \
		{KNOB_FP8, IN_FILE, "off tensorwise delayed rowwise>tensorwise",                   \
			"Transformer Engine has no scale a row"},                                  \
		{KNOB_FP8_PARAM_GATHER, IN_FILE}, MEGATRON_LOAD, MEGATRON_MESSAGES

extern const char megatron_plain[];

/* Values of keys that words cannot give. */
const char *megatron_granularity(struct exporting *exporting);
const char *megatron_recompute_method(struct exporting *exporting);
const char *megatron_recompute_layers(struct exporting *exporting);
const char *megatron_modules(struct exporting *exporting);
/* The names of a set with blanks between them; NULL: there are none. */
const char *megatron_words(struct exporting *exporting, const struct name_set *set);
/* megatron_graphs.c: what captures CUDA graphs, parts of a block that it captures, the generator of
 * random numbers that this needs, and that no NaN is looked for, which waits for the device. NULL:
 * the file leaves it out. */
const char *megatron_graphs(struct exporting *exporting);
const char *megatron_graph_scopes(struct exporting *exporting);
const char *megatron_rng_tracker(struct exporting *exporting);
const char *megatron_leaves_nan(struct exporting *exporting);

/* Adapts a plan to the distributed optimizer, for Megatron-LM and Megatron-Bridge. */
void megatron_adapt_core(struct exporting *exporting, struct plan *plan);
/* The number of chunks of each rank, for interleaved stages without a layout; else NULL. */
const char *megatron_virtual_stages(struct exporting *exporting);
/* The layout of listed stages: Et*7
 * t*8
 * t*7L. NULL: none are listed. */
const char *megatron_layout(struct exporting *exporting);
/* How context ranks exchange keys and values. */
const char *megatron_context_method(struct exporting *exporting);
/* A switch that the file has or leaves out: "true" or NULL. */
static inline const char *megatron_if_true(bool is_so)
{
	return is_so ? "true" : NULL;
}
/* Linear layers in fp8, or in fp4, which has keys of its own: format, recipe, and whether weights
 * are gathered so; those in mxfp8 are, in the buffer of gradients. */
const char *megatron_fp8_format(struct exporting *exporting);
const char *megatron_fp8_recipe(struct exporting *exporting);
const char *megatron_gathers_fp8(struct exporting *exporting);
const char *megatron_fp4_format(struct exporting *exporting);
const char *megatron_fp4_recipe(struct exporting *exporting);
const char *megatron_gathers_fp4(struct exporting *exporting);
const char *megatron_gathers_in_gradients(struct exporting *exporting);
/* Expert ranks; of a plan that has some: ranks that cut an expert, and rows of each. */
const char *megatron_experts(struct exporting *exporting);
const char *megatron_expert_tensor(struct exporting *exporting);
const char *megatron_capacity(struct exporting *exporting);
const char *megatron_pads(struct exporting *exporting);
/* For a model with experts: how rows are sent to them, also beside another micro-batch; that all
 * experts are one product; that one kernel puts rows in order. */
const char *megatron_dispatcher(struct exporting *exporting);
const char *megatron_deepep(struct exporting *exporting);
const char *megatron_rows_beside(struct exporting *exporting);
const char *megatron_grouped(struct exporting *exporting);
const char *megatron_permute(struct exporting *exporting);
const char *megatron_router_dtype(struct exporting *exporting);
/* Adapters beside Megatron-Core's layers: their rank, alpha, and the layers. NULL: none. */
const char *megatron_adapter_rank(struct exporting *exporting);
const char *megatron_adapter_alpha(struct exporting *exporting);
const char *megatron_adapted(struct exporting *exporting);
void megatron_note_trained(struct exporting *exporting, const struct plan *plan);
bool megatron_finish_adapters(struct importing *importing, struct error *error);
/* The names of keys by which megatron_core.c reads both files. */
struct megatron_names {
	const char *pipeline, *chunks, *chunk_blocks, *first, *last, *layout, *instances;
	const char *counts_embedding, *counts_loss, *next;
	const char *context, *context_method;
	const char *attention_dropout, *hidden_dropout;
	double dropout; /* if the file does not say */
	const char *graphs, *graph_modules, *graph_scope, *local_graphs, *external_graphs;
	const char *granularity, *method, *pieces, *modules, *experts_again;
	const char *tensor, *experts, *expert, *expert_tensor, *capacity, *pads, *dispatcher,
		*backend, *grouped, *permute, *rows_beside;
	bool has_recipe; /* which says what the file does not */
};
/* `text` without a character, in `arena`. */
const char *megatron_without(struct arena *arena, const char *text, char unwanted);
/* Linear layers in fp8 or fp4 (megatron_fp8.c). */
void megatron_finish_fp8(struct importing *importing);
/* The same of Megatron-Bridge (has_recipe), or of NeMo 1. */
bool megatron_finish_mixed_precision(
	struct importing *importing, bool has_recipe, struct error *error);
/* What Megatron-Bridge calls it, and whether it then keeps weights so. */
const char *megatron_precision(enum fp8_recipe recipe);
bool megatron_precision_keeps(enum fp8_recipe recipe);
/* What is computed again: blocks in full, or modules of them. */
bool megatron_finish_recomputation(
	struct importing *importing, const struct megatron_names *names, struct error *error);
/* Stages, as a layout, as the ends say or all alike. */
bool megatron_finish_stages(
	struct importing *importing, const struct megatron_names *names, struct error *error);
/* What is captured as CUDA graphs. */
bool megatron_finish_graphs(
	struct importing *importing, const struct megatron_names *names, struct error *error);
/* Expert ranks, and how rows are sent. */
bool megatron_finish_experts(
	struct importing *importing, const struct megatron_names *names, struct error *error);
/* Sets stages, context ranks, experts, groups of the distributed optimizer, dropout and
 * recomputation. */
bool megatron_finish_core(
	struct importing *importing, const struct megatron_names *names, struct error *error);

/* --- megatron_model.c --- */
void megatron_write_model(struct exporting *exporting);
/* Needs the shape; what it spells out becomes the model, if it is one that is known here. */
bool megatron_read_model(struct importing *importing, struct error *error);

/* The file; `torch`: for --use-torch-fsdp2, which has conditions of its own. */
void megatron_write(struct exporting *exporting, bool torch);
/* The model's sizes, the number of ranks, and defaults of the framework. */
bool megatron_finish(struct importing *importing, struct error *error);

/* Are gathers overlapped? Without a distributed optimizer nothing is gathered. */
bool megatron_overlaps_gathers(const struct plan *plan);

#endif
