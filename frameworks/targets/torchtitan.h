/* Private to torchtitan's targets: pipelines and context ranks in its words. Sources as in
 * torchtitan.c, and torchtitan/distributed/pipeline_parallel.py, where 0.2.2, 0.3.0 and main split
 * alike. */
#ifndef FRAMEWORKS_TARGETS_TORCHTITAN_H
#define FRAMEWORKS_TARGETS_TORCHTITAN_H

#include "frameworks/targets/shared.h"

bool titan_is_pipelined(const struct exporting *exporting);
/* Sets when gradients are reduced, and removes what a version cannot divide into stages. */
void titan_adapt_stages(struct exporting *exporting, struct plan *plan);

/* Keys and values rotate up to 0.2, and are gathered since. */
void titan_adapt_context(struct exporting *exporting, struct plan *plan);

/* --- values of keys; NULL: nothing is written --------------------------------------------------
 */

const char *titan_schedule(struct exporting *exporting);
const char *titan_rotation(struct exporting *exporting);
/* How rows reach expert ranks. NULL: through all-to-all. */
const char *titan_comm_backend(struct exporting *exporting);
/* Sequences of a micro-batch, and micro-batches of a step. */
const char *titan_micro_batch(struct exporting *exporting);
const char *titan_micro_batches(struct exporting *exporting);
/* Sequences of a rank that go through the pipeline together; without one, a micro-batch. */
const char *titan_local_batch(struct exporting *exporting);
/* Blocks that embedding and head count as, where they are not one each. */
const char *titan_embedding(struct exporting *exporting);
const char *titan_head(struct exporting *exporting);
/* Blocks of a stage, which make the number of stages; of more than two on a rank. */
const char *titan_stage(struct exporting *exporting);

/* Asynchronous tensor parallelism, which the shipped configuration of 405B has. */
const char *titan_async(struct exporting *exporting);

/* The keys; `when` of a micro-batch in sequences, and of micro-batches beside one in tokens. Since
 * then compilation says how tensor ranks exchange. */
#define TITAN_STAGES(in_sequences, in_tokens)                                                      \
	{"parallelism.pipeline_parallel_microbatch_size", KEY_READ, NO_KNOB, NULL, in_sequences,   \
		titan_micro_batch},                                                                \
		{"parallelism.num_pp_microbatches", KEY_READ, NO_KNOB, NULL, in_tokens,            \
			titan_micro_batches},                                                      \
		{"parallelism.pipeline_parallel_schedule", KEY_READ, KNOB_PIPELINE_SCHEDULE,       \
			"1F1B>1f1b GPipe>gpipe Interleaved1F1B>interleaved "                       \
			"InterleavedZeroBubble>zb-h1 ZBVZeroBubble>zbv DualPipeV>dualpipev",       \
			0, titan_schedule},                                                        \
		{"parallelism.pipeline_parallel_layers_per_stage", KEY_READ, KNOB_VIRTUAL_STAGES,  \
			NULL, 0, titan_stage},                                                     \
		{"parallelism.pipeline_parallel_first_stage_less_layers", KEY_READ,                \
			KNOB_LAYERS_PER_STAGE, NULL, 0, titan_embedding},                          \
		{"parallelism.pipeline_parallel_last_stage_less_layers", KEY_READ, NO_KNOB, NULL,  \
			0, titan_head},                                                            \
		{"parallelism.enable_async_tensor_parallel", KEY_READ, KNOB_ASYNC_TENSOR, NULL,    \
			in_sequences, titan_async},                                                \
		ROW("compile.enable_async_tensor_parallel", KEY_READ, KNOB_ASYNC_TENSOR, NULL,     \
			in_tokens, titan_async)

/* Conversion to float8 by the file, up to 0.2. */
void titan_adapt_float8(struct exporting *exporting, struct plan *plan);
const char *titan_converter(struct exporting *exporting);
const char *titan_recipe(struct exporting *exporting);
const char *titan_filtered(struct exporting *exporting);
const char *titan_gathers(struct exporting *exporting);
const char *titan_mx_recipe(struct exporting *exporting);
const char *titan_mx_filtered(struct exporting *exporting);
#define FLOAT8 "quantize.linear.float8"
#define MX     "quantize.linear.mx"
#define TITAN_COMM_BACKEND                                                                         \
	{                                                                                          \
		"parallelism.expert_parallel_comm_backend", KEY_READ, KNOB_EXPERT_DISPATCH, NULL,  \
			AS_STRING, titan_comm_backend                                              \
	}
#define TITAN_FLOAT8                                                                               \
	{"model.converters[]", KEY_READ, NO_KNOB, NULL, AS_STRING, titan_converter},               \
		{FLOAT8 ".recipe_name", KEY_READ, KNOB_FP8, NULL, AS_STRING, titan_recipe},        \
		{FLOAT8 ".enable_fsdp_float8_all_gather", KEY_READ, KNOB_FP8_PARAM_GATHER, NULL,   \
			0, titan_gathers},                                                         \
		{FLOAT8 ".precompute_float8_dynamic_scale_for_fsdp", KEY_READ, NO_KNOB, NULL, 0,   \
			titan_gathers},                                                            \
		{FLOAT8 ".filter_fqns[]", KEY_READ, NO_KNOB, NULL, AS_STRING, titan_filtered},     \
		{MX ".recipe_name", KEY_READ, KNOB_FP8, NULL, AS_STRING, titan_mx_recipe},         \
		ROW(MX ".filter_fqns[]", KEY_READ, NO_KNOB, NULL, AS_STRING, titan_mx_filtered)

/* Notes stages that these keys cannot make. */
void titan_note_stages(struct exporting *exporting);
/* Does the plan have stages that no key makes? */
bool titan_leaves_stages(const struct exporting *exporting);

/* --- import ------------------------------------------------------------------------------------
 */

/* For more than one pipeline rank; `layers` of the model, 0: not known. */
bool titan_finish_stages(
	struct importing *importing, int64_t layers, int64_t ranks, struct error *error);
/* Does nothing without tensor ranks, as it then has no effect. */
bool titan_finish_async(struct importing *importing, int64_t tensor, struct error *error);
/* The converters of a file, and of one in Python. */
void titan_finish_converters(struct importing *importing);
void titan_finish_float8(struct importing *importing);
bool titan_finish_exchanges(struct importing *importing, struct error *error);
/* Where a file says the sequences of a rank: as it was called until May 2025, or since. */
const char *titan_local_path(const struct importing *importing);
/* Sets micro-batches, from the sequences of a rank or directly. */
bool titan_finish_micro_batches(struct importing *importing, struct error *error);

#endif
