/* Plans: what follows from their knobs, and how they are checked, read and written. */
#ifndef SCHEDULE_PLAN_H
#define SCHEDULE_PLAN_H

#include "schedule/plan/fp8.h"
#include "schedule/plan/libraries.h"
#include "schedule/plan/question.h"
#include "schedule/plan/rows.h"
#include "schedule/plan/runtimes.h"
#include "schedule/plan/table.h"
#include "topologies/topologies.h"

extern const struct field mesh_fields[];

int64_t plan_data_parallel(const struct plan *plan); /* mesh.replicate * mesh.shard */
/* The plan with another batch, and the global batch that follows: sequences of a micro-batch,
 * micro-batches of a step. The second keeps the micro-batch. */
struct plan plan_with_batch(const struct plan *plan, int64_t micro_batch, int64_t grad_accum);
struct plan plan_with_micro_batches(const struct plan *plan, int64_t n);
int64_t plan_ranks(const struct plan *plan);

/* Tokens of one step and one device, as throughput counts them. */
double plan_tokens_per_rank(const struct plan *plan);
/* How many ranks parameters and optimizer states are sharded over, and how many gradients are
 * reduced over. Context ranks count: they hold different tokens, but the same parameters. */
int64_t plan_shard_ranks(const struct plan *plan);  /* shard * context */
int64_t plan_reduce_ranks(const struct plan *plan); /* replicate * shard * context */
/* The same of experts: how many ranks cut one expert; how many hold the same experts and reduce
 * their gradients, replicate * shard * context * tensor / (expert * expert_tensor); and how many of
 * these shard the states of experts. */
int64_t plan_expert_tensor(const struct plan *plan);
int64_t plan_expert_reduce_ranks(const struct plan *plan);
int64_t plan_expert_shard_ranks(const struct plan *plan);
/* Ranks of one replica of a stage, among which all experts are found. */
int64_t plan_expert_domain(const struct plan *plan);

/* The place of a rank, from 0: among its tensor ranks, among its expert ranks, among ranks with
 * different parts of the model (expert or tensor ranks), among those that share out the sequences
 * of a micro-batch, and within its shard group. */
int64_t plan_tensor_place(const struct plan *plan, int64_t rank);
int64_t plan_expert_place(const struct plan *plan, int64_t rank);
int64_t plan_part_place(const struct plan *plan, int64_t rank);
int64_t plan_data_place(const struct plan *plan, int64_t rank);
int64_t plan_shard_place(const struct plan *plan, int64_t rank);

/* The method of attention over context ranks that is taken where nobody says one. */
enum context_method plan_usual_context_method(
	const struct plan *plan, const struct architecture *architecture);
/* Can the runtime's kernels attend by this method (ring_sees_all)? */
bool plan_attends_by(const struct plan *plan, const struct architecture *architecture,
	enum context_method method);
/* How many rounds attention is computed in: one for the keys of each context rank, or 1. */
int64_t plan_attention_rounds(const struct plan *plan);
/* Kernels in a ring of context ranks see all that they hold. */
struct attending plan_attending(const struct plan *plan);
/* Tokens that attention keeps together: a document, or the whole sequence. */
int64_t plan_attended_len(const struct plan *plan);
/* How the plan's ranks divide the model. */
struct division plan_division(const struct plan *plan);
bool plan_divides_alike(const struct plan *a, const struct plan *b);
/* Has no rank the whole model? Stages of a pipeline count. */
bool plan_divides(const struct plan *plan);
/* The part of the model that one rank has, from `arena`; `model` itself when nothing divides it, or
 * when it is that part already. The plan must have passed plan_check. */
const struct model *plan_model(
	const struct plan *plan, const struct model *model, struct arena *arena);
/* Seconds that the data loader takes for one step; 0: the plan gives it no rate. */
double plan_loader_time(const struct plan *plan);
/* How the first unit that is resharded after forward is resharded: 0 = none is, -1 = to the whole
 * shard group, k = to groups of k. */
int64_t plan_reshard_group(const struct plan *plan);
/* Bytes per logit while the loss is computed, beside the logits (docs/runtimes.md). */
int64_t plan_loss_bytes(const struct plan *plan, enum device_generation generation);

/* Are logits computed in backward, chunk by chunk together with their loss and gradients? */
bool plan_chunks_head(const struct plan *plan);
/* How many chunks `rows` rows are cut into, and where chunk i begins (i == chunks: the end). On
 * CPUs a chunk is what a product sums up at a time (kernels/cpu/gemm.c), so that the gradient of
 * the head has the bits of one product over all rows. */
int64_t plan_head_chunks(const struct plan *plan, enum device_kind device, int64_t rows);
int64_t plan_head_chunk_at(const struct plan *plan, int64_t rows, int64_t chunks, int64_t i);
/* Rows of the largest chunk, when the logits of `tokens` tokens are cut into chunks. */
int64_t plan_head_chunk_rows(const struct plan *plan, enum device_kind device, int64_t tokens);

/* Elements from one token's logits to the next one's: the vocabulary, or more (docs/runtimes.md).
 */
int64_t plan_logits_stride(const struct plan *plan, int64_t vocab);
/* The dtype of gradients while they are reduced, and of the gradient shard until the optimizer
 * reads it: what the plan says, or INT64 for exact sums. */
enum dtype plan_gradient_dtype(const struct plan *plan);
enum dtype plan_gradient_shard_dtype(const struct plan *plan);
/* The dtype that norm, clipping and the optimizer read: exact sums are rounded to it in place. */
enum dtype plan_optimizer_gradient_dtype(const struct plan *plan);
/* Does the strategy fix when gradients are reduced? Then *each says: in each micro-batch, or once.
 */
bool plan_syncs(const struct plan *plan, bool *each);
/* How units lie in memory: the runtime's layout, or that of its ZeRO stage. */
enum layout_kind plan_layout(const struct plan *plan);
/* Is softmax of half-precision scores computed in fp32? Eager attention of PyTorch's operations. */
bool plan_softmax_in_fp32(const struct plan *plan);
/* Which tensors are saved where nothing is checkpointed (rows.h has it for one block). */
struct activation_rules plan_activation_rules(
	const struct plan *plan, enum device_generation generation);

/* The `plan:` map of a plan file and its inverse. */
bool plan_read(struct arena *arena, const struct node *map, struct plan *plan, struct error *error);
void plan_write(const struct plan *plan, struct writer *writer);
/* "TP 8 x CP 2 x ": the axes that divide the model, to stand before the strategy's name. */
void plan_add_axes(const struct plan *plan, struct text *text);
/* "TP 8 x HYBRID_SHARD/16": axes, strategy, and the size of a hybrid's shard group. */
void plan_add_name(const struct plan *plan, struct text *text);
/* ", interleaved of 4 stages a rank, layers 1x4+7x5"; nothing without a pipeline. */
void plan_add_order(const struct plan *plan, struct text *text);
/* In which micro-batches gradients are reduced, in words: "gradients reduced once". */
const char *plan_reduction(const struct plan *plan);
/* "2", with accumulation "2 x 4". Returns `buffer`. */
const char *format_micro_batch(char buffer[48], int64_t micro_batch, int64_t grad_accum);
/* One line for people: "FULL_SHARD, wrap block, prefetch pre, ...", only what distinguishes plans.
 */
void plan_summary(const struct plan *plan, struct text *text);

/* The dtype that is computed in where nobody says one: the best that the device has units for. */
enum dtype plan_default_dtype(const struct topology *topology);

/* Can the runtime run this ZeRO strategy over fewer ranks than there are (InternEvo's groups,
 * DeepSpeed's MiCS)? */
bool plan_has_zero_groups(const struct plan *plan);

/* Are gradients reduced in the dtype of the parameters that the optimizer updates (DDP)? */
bool plan_reduces_masters(const struct plan *plan);

#endif
