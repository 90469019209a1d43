/* Values that are more than a name: strategies, runtimes, rows, the wrap policy, the mesh. */
#ifndef SCHEDULE_VALUES_H
#define SCHEDULE_VALUES_H

#include "base/base.h"

/* X(suffix, name, shards parameters, reshards after forward, replicates over nodes by default,
 * stage of ZeRO; 0: not called so) */
#define STRATEGIES(X)                                                                              \
	X(NO_SHARD, "NO_SHARD", false, false, false, 0)                                            \
	X(SHARD_GRAD_OP, "SHARD_GRAD_OP", true, false, false, 0)                                   \
	X(FULL_SHARD, "FULL_SHARD", true, true, false, 0)                                          \
	X(HYBRID_SHARD, "HYBRID_SHARD", true, true, true, 0)                                       \
	X(HYBRID_SHARD_ZERO2, "HYBRID_SHARD_ZERO2", true, false, true, 0)                          \
	X(ZERO_1, "ZERO_1", true, false, false, 1) /* optimizer state and master copy */           \
	X(ZERO_2, "ZERO_2", true, false, false, 2) /* and gradients */                             \
	X(ZERO_3, "ZERO_3", true, true, false, 3)  /* and parameters */

enum strategy {
#define X(suffix, name, shards, reshards, hybrid, stage) STRATEGY_##suffix,
	STRATEGIES(X)
#undef X
		STRATEGY_COUNT
};

enum checkpointing { CHECKPOINTING_NONE, CHECKPOINTING_SELECTIVE, CHECKPOINTING_FULL };
enum offload { OFFLOAD_NONE, OFFLOAD_OPTIMIZER, OFFLOAD_PARAMETERS, OFFLOAD_ALL };
enum wrap_kind { WRAP_BLOCK, WRAP_BLOCKS, WRAP_SIZE, WRAP_MODEL };

/* The modules that become one unit: "block", "blocks:K", "size:N", "model"; "+embedding",
 * "+head". */
struct wrap_policy {
	const char *text; /* as it was typed */
	enum wrap_kind kind;
	int64_t argument;     /* K or N, else 0 */
	bool embedding, head; /* wrapped apart: the token embedding; final norm and head */
};

/* X(suffix, name); runtimes.c says what each does. */
#define RUNTIMES(X)                                                                                \
	X(PYTORCH_FSDP1, "pytorch-fsdp1")                                                          \
	X(PYTORCH_FSDP2, "pytorch-fsdp2")                                                          \
	X(PYTORCH_DDP, "pytorch-ddp")                                                              \
	X(SHARDPLAN, "shardplan")                                                                  \
	X(DEEPSPEED, "deepspeed")                                                                  \
	X(NANOTRON, "nanotron")                                                                    \
	X(INTERNEVO, "internevo")                                                                  \
	X(MEGATRON, "megatron")

enum runtime_kind {
#define X(suffix, name) RUNTIME_##suffix,
	RUNTIMES(X)
#undef X
		RUNTIME_COUNT
};

/* What of a block waits for backward in host memory: inputs of checkpointed blocks; or all that
 * autograd has saved (torch.autograd.graph.save_on_cpu). */
#define ACTIVATION_OFFLOAD_VALUES(X)                                                               \
	X(ACTIVATIONS_STAY, "none")                                                                \
	X(ACTIVATIONS_CHECKPOINTS, "checkpoints")                                                  \
	X(ACTIVATIONS_ALL, "all")

/* X(enumerator, name): scales of linear layers: of a tensor; of a row; of a tensor, from earlier
 * steps; of 128 elements, or 128 x 128 of a weight; of 32, and of 16 of four bits, on Blackwell. */
#define FP8_VALUES(X)                                                                              \
	X(FP8_OFF, "off")                                                                          \
	X(FP8_TENSORWISE, "tensorwise")                                                            \
	X(FP8_ROWWISE, "rowwise")                                                                  \
	X(FP8_DELAYED, "delayed")                                                                  \
	X(FP8_BLOCKWISE, "blockwise")                                                              \
	X(FP8_MXFP8, "mxfp8")                                                                      \
	X(FP8_NVFP4, "nvfp4")

enum fp8_recipe {
#define X(enumerator, name) enumerator,
	FP8_VALUES(X)
#undef X
};

/* X(enumerator, name): what runs beside compute of Megatron-LM's DDP: reductions in backward
 * (--overlap-grad-reduce) and gathers in forward (--overlap-param-gather); without the first all is
 * one bucket. */
#define OVERLAP_VALUES(X)                                                                          \
	X(OVERLAP_ALL, "all")                                                                      \
	X(OVERLAP_GRADIENTS, "gradients")                                                          \
	X(OVERLAP_NONE, "none")

enum overlap {
#define X(enumerator, name) enumerator,
	OVERLAP_VALUES(X)
#undef X
};

/* X(suffix, name): in which order a pipeline rank takes its micro-batches; pipeline/pipeline.h says
 * each. */
#define PIPELINE_SCHEDULES(X)                                                                      \
	X(1F1B, "1f1b")                                                                            \
	X(GPIPE, "gpipe")                                                                          \
	X(INTERLEAVED, "interleaved")                                                              \
	X(ZB_H1, "zb-h1")                                                                          \
	X(ZBV, "zbv")                                                                              \
	X(DUALPIPEV, "dualpipev")

enum pipeline_schedule {
#define X(suffix, name) PIPELINE_##suffix,
	PIPELINE_SCHEDULES(X)
#undef X
		PIPELINE_SCHEDULE_COUNT
};

/* How attention gets the keys and values of other context ranks: all of them are gathered; or they
 * come round by round from the neighbour, beside attention over those that have arrived; or the
 * tokens of all ranks come for a part of the heads (2309.14509). */
#define CONTEXT_METHODS(X)                                                                         \
	X(ALL_GATHER, "all-gather")                                                                \
	X(RING, "ring")                                                                            \
	X(ALL_TO_ALL, "all-to-all")

enum context_method {
#define X(suffix, name) CONTEXT_##suffix,
	CONTEXT_METHODS(X)
#undef X
};

/* How rows reach experts of other ranks and come back: a copy for each expert of a token, through
 * NCCL; or one to each node, which its ranks hand on to each rank with experts of the token,
 * through the kernels of DeepEP (github.com/deepseek-ai/DeepEP). */
#define EXPERT_DISPATCHES(X)                                                                       \
	X(ALL_TO_ALL, "all-to-all")                                                                \
	X(DEEPEP, "deepep")

enum expert_dispatch {
#define X(suffix, name) DISPATCH_##suffix,
	EXPERT_DISPATCHES(X)
#undef X
};

/* PyTorch's caching allocator: segments as large as the request, or PYTORCH_CUDA_ALLOC_CONF's
 * expandable_segments:True. */
#define ALLOCATOR_VALUES(X)                                                                        \
	X(ALLOCATOR_SEGMENTS, "segments")                                                          \
	X(ALLOCATOR_EXPANDABLE, "expandable")

enum allocator_kind {
#define X(enumerator, name) enumerator,
	ALLOCATOR_VALUES(X)
#undef X
};

/* One value for all blocks or units, or one each: "full", "8xfull+24xnone". */
struct rows {
	const char *text;  /* in normal form in a plan that plan_resolve made */
	int32_t all;       /* where n is 0 */
	int32_t n;         /* values in `of` */
	const int32_t *of; /* by block or unit (rows.h) */
};

/* Named axes. Ranks are row-major over {pipeline, replicate, shard, context, tensor}, the last one
 * innermost: tensor ranks are neighbours. `expert` regroups the ranks of shard x context x tensor
 * (NO_SHARD: replicate x context x tensor) and is no factor of the world. */
struct mesh {
	int64_t replicate, shard, tensor, pipeline, context, expert;
};

extern const char *const strategy_names[];
extern const char *const runtime_names[];
extern const char *const pipeline_schedule_names[];
extern const char *const context_method_names[], *const expert_dispatch_names[];
extern const char *const checkpointing_names[];
extern const char *const offload_names[];

bool strategy_shards(enum strategy strategy);
bool strategy_reshards(enum strategy strategy);
bool strategy_is_hybrid(enum strategy strategy);
int strategy_stage(enum strategy strategy);
/* ZeRO-1 and -2: every rank has all parameters in the compute dtype between steps. */
bool strategy_keeps_parameters(enum strategy strategy);

#endif
