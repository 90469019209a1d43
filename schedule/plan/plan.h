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
int64_t plan_ranks(const struct plan *plan);
/* Ranks that states are sharded over: context ranks hold different tokens of the same sequences,
 * and shard what they have alike. And those that gradients are reduced over. */
int64_t plan_shard_ranks(const struct plan *plan);  /* shard * context */
int64_t plan_reduce_ranks(const struct plan *plan); /* replicate * shard * context */
/* Ranks that an expert is cut over; those that hold the same experts, and reduce their gradients;
 * and those of them that their states are sharded over. */
int64_t plan_expert_tensor(const struct plan *plan);
int64_t plan_expert_reduce_ranks(const struct plan *plan); /* replicate * shard * context * tensor /
							      (expert * expert_tensor) */
int64_t plan_expert_shard_ranks(const struct plan *plan);
/* Ranks of one replica, of whose rows of context and tensor ranks expert ranks are taken. */
int64_t plan_expert_domain(const struct plan *plan);
/* Places of a rank: among those that cut its part of the model; among those that share out the
 * sequences of a micro-batch; and, within its shard group, among those that share out states. */
int64_t plan_tensor_place(const struct plan *plan, int64_t rank);
int64_t plan_expert_place(const struct plan *plan, int64_t rank);
/* Among those that have different parts of the model, where these are tensor or expert ranks. */
int64_t plan_part_place(const struct plan *plan, int64_t rank);
int64_t plan_data_place(const struct plan *plan, int64_t rank);
int64_t plan_shard_place(const struct plan *plan, int64_t rank);
/* What attention over context ranks goes by where nobody says. */
enum context_method plan_usual_context_method(const struct plan *plan);
/* Rounds that the core of attention is computed in, over the keys of one rank after the other. */
int64_t plan_attention_rounds(const struct plan *plan);
/* How its ranks divide the model. */
struct division plan_division(const struct plan *plan);
bool plan_divides_alike(const struct plan *a, const struct plan *b);
/* No rank has the whole model, stages of a pipeline included. */
bool plan_divides(const struct plan *plan);
/* What one rank has of the model: the model itself where nothing divides it, or where it is that
 * part already. Else from `arena`. The plan must have passed plan_check. */
const struct model *plan_model(
	const struct plan *plan, const struct model *model, struct arena *arena);
/* Seconds that the data loader takes for one step; 0: it has no rate. */
double plan_loader_time(const struct plan *plan);
/* Size of the group that parameters are resharded to after forward: 0 = not resharded, -1 = the
 * whole shard group, k = groups of k. Of the first unit that is resharded. */
int64_t plan_reshard_group(const struct plan *plan);
/* Bytes per logit while the loss is computed, beside the logits (docs/runtimes.md). */
int64_t plan_loss_bytes(const struct plan *plan, enum device_generation generation);

/* Are logits computed in backward, chunk by chunk together with their loss and gradients? */
bool plan_chunks_head(const struct plan *plan);
/* Then, of `rows` rows: how many chunks, and the first row of chunk i (of chunk `chunks`: the end).
 * On CPUs a chunk is what a product sums up at a time (kernels/cpu/gemm.c), so that the gradient of
 * the head has the bits of one product over all rows. */
int64_t plan_head_chunks(const struct plan *plan, enum device_kind device, int64_t rows);
int64_t plan_head_chunk_at(const struct plan *plan, int64_t rows, int64_t chunks, int64_t i);
/* Rows of the largest chunk of a micro-batch of so many, or of one of its sequences. */
int64_t plan_head_chunk_rows(const struct plan *plan, enum device_kind device, int64_t tokens);

/* Elements from one token's logits to the next one's: the vocabulary, or more (docs/runtimes.md).
 */
int64_t plan_logits_stride(const struct plan *plan, int64_t vocab);
/* Of gradients while they are reduced, and of the shard that they end in, until the optimizer reads
 * it: what the plan says, or 64 bits for exact sums. */
enum dtype plan_gradient_dtype(const struct plan *plan);
enum dtype plan_gradient_shard_dtype(const struct plan *plan);
/* Of what the norm, clipping and the optimizer read: exact sums are rounded to it in place. */
enum dtype plan_optimizer_gradient_dtype(const struct plan *plan);
/* Does the strategy fix when gradients are reduced, and does it so in each micro-batch? */
bool plan_syncs(const struct plan *plan, bool *each);
/* How parameters lie: of the runtime, and for ZeRO of the stage. */
enum layout_kind plan_layout(const struct plan *plan);
/* What saved tensors look like where nothing is checkpointed (rows.h: of one block). */
struct activation_rules plan_activation_rules(
	const struct plan *plan, enum device_generation generation);

/* The `plan:` map of a plan file and its inverse. */
bool plan_read(struct arena *arena, const struct node *map, struct plan *plan, struct error *error);
void plan_write(const struct plan *plan, struct writer *writer);
/* "TP 8 x CP 2 x ": the axes that divide the model, to stand before the strategy's name. */
void plan_add_axes(const struct plan *plan, struct text *text);
/* ", interleaved of 4 stages a rank, layers 1x4+7x5"; nothing without a pipeline. */
void plan_add_order(const struct plan *plan, struct text *text);
/* "gradients reduced once": of several micro-batches, in which gradients are reduced. */
const char *plan_reduction(const struct plan *plan);
/* One line for people: "FULL_SHARD, wrap block, prefetch pre, ...", only what distinguishes plans.
 */
void plan_summary(const struct plan *plan, struct text *text);

/* What parameters are computed in where nobody says: the best that the device has units for. */
enum dtype plan_default_dtype(const struct topology *topology);

/* May the shard group be smaller than all ranks? InternEvo's groups, DeepSpeed's MiCS: ZeRO over
 * fewer ranks than there are. */
bool plan_has_zero_groups(const struct plan *plan);

#endif
