/* Orders of pipeline schedules, the places of stages, and the split of blocks over stages: pure
 * functions of a few numbers. Orders equal torch.distributed.pipelining 2.15.0 and Megatron-Core
 * d98e8a6 (tests/schedule/golden/pipeline). */
#ifndef SCHEDULE_PIPELINE_H
#define SCHEDULE_PIPELINE_H

#include "schedule/plan/plan.h"

enum pipeline_pass {
	PIPELINE_FORWARD,
	PIPELINE_BACKWARD,       /* of inputs and weights */
	PIPELINE_BACKWARD_INPUT, /* dX, which the stage before waits for */
	PIPELINE_BACKWARD_WEIGHT /* dW, for which nobody waits */
};

struct pipeline_slot {
	enum pipeline_pass pass;
	int chunk; /* which of the rank's stages, 0..chunks-1 */
	int micro_batch;
	/* Computed together with the next slot: a forward, then a backward of another stage or
	 * micro-batch, neither of which waits for the other. */
	bool with_next;
};

/* The quantities on which the order depends. Letters in formulas: p ranks, v chunks, m
 * micro-batches, g group, k a rank, 0..p-1. */
struct pipeline {
	enum pipeline_schedule schedule;
	int ranks;
	int chunks; /* stages on each rank */
	int micro_batches;
	/* Interleaved: micro-batches that a chunk takes before the next one has its turn; 0 is
	 * torch's, m / max(1, m / p), which zb-h1 always has. Megatron's default is p
	 * (microbatch_group_size_per_vp_stage). The last group may be smaller. */
	int group;
	/* Interleaved, or one rank: one more forward before the first backward, and then each
	 * forward together with the backward behind it (Megatron's
	 * overlap_moe_expert_parallel_comm). Overlap of point-to-point messages changes no order.
	 */
	bool pairs;
};

/* --- places --------------------------------------------------------------------------------------
 */

/* Stages run 0..p*v-1, embedding on the first, head on the last. In a loop, chunk c of rank k is
 * stage c*p + k; zbv and dualpipev lay a V: chunk 0 is stage k, chunk 1 is stage 2p-1-k, so that
 * rank 0 has both ends. */
int pipeline_stage(const struct pipeline *pipeline, int rank, int chunk);
void pipeline_place(const struct pipeline *pipeline, int stage, int *rank, int *chunk);

/* Is backward in two parts there? */
bool pipeline_splits_backward(enum pipeline_schedule schedule);

/* Are receives posted as torch.distributed.pipelining does, ahead of the passes that wait for them
 * (pipeline_receives)? Else a rank asks for a message when it needs it. */
bool pipeline_receives_early(const struct pipeline *pipeline);

/* --- orders --------------------------------------------------------------------------------------
 */

/* False with EXIT_CODE_USAGE where there is no such order; the message names the option and the
 * nearest values that do. All counts are positive. What each needs:
 *
 * gpipe, 1f1b  v = 1 (torch's 1f1b: m >= p too)
 * interleaved  v >= 2; g >= p, and m a multiple of g or p and more beyond one; g = 0: m a multiple
 *              of max(1, m / p)
 * zb-h1        m a multiple of max(1, m / p)
 * zbv          v = 2
 * dualpipev    v = 2, m >= 2p
 *
 * Whether there are blocks for so many stages is for the split to say. */
bool pipeline_check(const struct pipeline *pipeline, bool torch, struct error *error);

/* The slots of a rank in the order in which it computes them; returns their number. The pipeline
 * has passed pipeline_check. The slots live as long as the arena.
 *
 * gpipe        all forwards, then all backwards (Huang et al. 1811.06965)
 * 1f1b         min(m, p-1-k) forwards, then a forward and a backward by turns
 *              (Narayanan et al. 2104.04473)
 * interleaved  the same over chunks, in groups of g: min(mv, 2(p-1-k) + (v-1)g) forwards first
 * zb-h1        min(mv, p-1-k + (v-1)g) forwards first; dW of a backward comes k backwards later
 *              (Qi et al. 2401.10241; torch's ScheduleInterleavedZeroBubble)
 * zbv          Qi et al. 2401.10241 section 6, torch's ScheduleZBVZeroBubble
 * dualpipev    github.com/deepseek-ai/DualPipe, torch's ScheduleDualPipeV */
int pipeline_order(const struct pipeline *pipeline, int rank, struct arena *arena,
	struct pipeline_slot **slots);

/* Where backward is split, receives are posted before they are needed, in an order that all ranks
 * share. This says before which slot of its rank each one is posted. */
struct pipeline_receive {
	int before; /* slot of the rank */
	bool is_backward;
	int chunk, micro_batch; /* of the pass that begins with the message */
};
int pipeline_receives(const struct pipeline *pipeline, int rank, struct arena *arena,
	struct pipeline_receive **receives);

/* The most forwards in these slots whose backward (dW, where it is split) has not ended: 1f1b
 * min(m, p-k), gpipe m, interleaved min(mv, 2(p-1-k) + (v-1)g + 1), and 1 more with pairs, zb-h1
 * min(mv, p + (v-1)g), zbv 2p from m = 2p-1 on, dualpipev 2p+1. Each is one micro-batch of one
 * stage. */
int pipeline_in_flight(const struct pipeline_slot *slots, int n);

/* --- splits --------------------------------------------------------------------------------------
 */

/* Each writes how many blocks every stage has, into stages[0..n_stages-1]. `embedding` and `head`
 * are the blocks that the embedding, and the final norm with the head, count as. Where they fail,
 * it is with EXIT_CODE_USAGE and the nearest values that do. */
struct pipeline_split {
	int blocks;
	int ranks, chunks; /* stages are their product */
	int embedding, head;
};

/* torchtitan's (both count as 1 by default): even, the first stages have one more; none is empty.
 * (torchtitan/distributed/pipeline_parallel.py, _generate_llm_fqn_per_model_part) */
bool pipeline_split_even(const struct pipeline_split *split, int *stages, struct error *error);

/* nanotron's: each stage ends with the block that takes the costs so far beyond its share of all;
 * embedding and final norm cost nothing (src/nanotron/models/base.py, build_model). `block`,
 * `head`: costs, exact in a double. No stage is empty, and the head is on the last one, or it
 * fails. */
bool pipeline_split_by_cost(const struct pipeline_split *split, double block, double head,
	int *stages, struct error *error);

/* Do n counts of --layers-per-stage give one for every stage and sum to all blocks? Only the ends
 * may have none. */
bool pipeline_split_listed(
	const struct pipeline_split *split, const int *listed, int n, struct error *error);

/* --- of a plan -----------------------------------------------------------------------------------
 */

struct pipeline plan_pipeline(const struct plan *plan);

/* The blocks of every stage (ranks x chunks of them), as the plan lists them or as its runtime
 * divides the model. EXIT_CODE_USAGE: it cannot. */
bool plan_split(
	const struct plan *plan, const struct model *model, int *stages, struct error *error);

/* The blocks of `model` (which other axes may divide) that a rank of the pipeline holds; the model
 * itself when the pipeline has one rank. *chunks (in the arena) says for each of these blocks which
 * of the rank's stages it belongs to. */
const struct model *plan_stage(const struct plan *plan, const struct model *model, int rank,
	struct arena *arena, const int **chunks);

#endif
