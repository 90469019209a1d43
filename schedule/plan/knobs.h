/* struct plan: every knob of a training step, their named values and their order. */
#ifndef SCHEDULE_PLAN_KNOBS_H
#define SCHEDULE_PLAN_KNOBS_H

#include "base/base.h"
#include "models/models.h"
#include "schedule/plan/graphs.h"
#include "schedule/plan/libraries.h"
#include "schedule/plan/recompute.h"
#include "schedule/plan/values.h"

/* --- the values ------------------------------------------------------------------------------- */

/* X(enumerator, name): the named values of one knob, from 0 on. knobs.c has its row. */
#define PREFETCH_VALUES(X)                                                                         \
	X(PREFETCH_NONE, "none")                                                                   \
	X(PREFETCH_PRE, "pre")                                                                     \
	X(PREFETCH_POST, "post")
/* How the training script computes the loss: in the logits' dtype; in fp32 inside of the loss; from
 * fp32 logits that the model returns; operation by operation over parts of the vocabulary, as
 * tensor parallel frameworks do; in one kernel; together with the head, piece by piece. */
#define LOSS_VALUES(X)                                                                             \
	X(LOSS_NATIVE, "native")                                                                   \
	X(LOSS_UPCAST, "upcast")                                                                   \
	X(LOSS_FLOAT, "float")                                                                     \
	X(LOSS_PARALLEL, "parallel")                                                               \
	X(LOSS_FUSED, "fused")                                                                     \
	X(LOSS_FUSED_LINEAR, "fused-linear")
/* How gradients are summed up over sequences, micro-batches and ranks: in fp32, in one declared
 * tree over the ranks; or exactly, as 64-bit multiples of 2^-GRADIENT_QUANTUM_BITS of each
 * sequence, so that bits depend on neither micro-batches nor ranks (docs/reproducible.md). */
#define GRADIENT_SUMS_VALUES(X)                                                                    \
	X(SUMS_TREE, "tree")                                                                       \
	X(SUMS_EXACT, "exact")
enum { GRADIENT_QUANTUM_BITS = 52 };
#define GELU_VALUES(X)                                                                             \
	X(GELU_IN_KERNEL, "kernel")                                                                \
	X(GELU_IN_PRODUCT, "product")
#define OPTIMIZER_VALUES(X)                                                                        \
	X(OPTIMIZER_ADAMW_FUSED, "adamw-fused")                                                    \
	X(OPTIMIZER_ADAMW_FOREACH, "adamw-foreach")                                                \
	X(OPTIMIZER_ADAMW, "adamw")                                                                \
	X(OPTIMIZER_SGD, "sgd")

#define ENUMERATOR(enumerator, name) enumerator,
enum prefetch { PREFETCH_VALUES(ENUMERATOR) };
enum loss_kind { LOSS_VALUES(ENUMERATOR) LOSS_COUNT };
enum gradient_sums { GRADIENT_SUMS_VALUES(ENUMERATOR) };
enum gelu_place { GELU_VALUES(ENUMERATOR) };
enum optimizer { OPTIMIZER_VALUES(ENUMERATOR) };
enum activation_offload { ACTIVATION_OFFLOAD_VALUES(ENUMERATOR) };
#undef ENUMERATOR

/* --- the plan --------------------------------------------------------------------------------- */

/* A step is one flat list: more micro-batches than this are a typing error. */
enum { PLAN_MAX_GRAD_ACCUM = 16384 };

struct plan {
	enum strategy strategy;
	struct mesh mesh;
	struct rows reshard_after_forward; /* RESHARD_..., or a group size, by unit (rows.h) */
	struct wrap_policy wrap;
	enum prefetch prefetch; /* backward */
	bool forward_prefetch, limit_all_gathers;
	struct rows activation_checkpointing; /* enum checkpointing */
	struct name_set recompute_modules;    /* of blocks that are so selectively */
	enum attention_kind attention;
	enum loss_kind loss;
	bool compile;
	bool liger; /* fused kernels for norms, RoPE and gated MLPs, where nothing is compiled */
	enum dtype param_dtype, reduce_dtype; /* of the compute copy; of gradients on their way */
	enum dtype master_dtype;              /* of the sharded parameters and the optimizer */
	enum fp8_recipe fp8;                  /* of linear layers (fp8.h) */
	bool fp8_param_gather;                /* their weights are gathered in fp8 (fp8.h) */
	enum gradient_sums gradient_sums;
	enum gelu_place gelu; /* on GPUs; in a product it is rounded otherwise */
	enum optimizer optimizer;
	struct rows cpu_offload; /* enum offload, never OFFLOAD_ALL */
	enum runtime_kind runtime;
	struct libraries libraries;
	enum allocator_kind allocator;
	int64_t seq_len;
	int64_t document_len;       /* tokens that attention keeps together; 0: all of a sequence */
	int64_t micro_batch;        /* sequences per rank and forward pass */
	int64_t grad_accum;         /* micro-batches per step */
	int64_t global_batch;       /* sequences per step, of all data-parallel ranks */
	bool sync_each_micro_batch; /* reduce gradients after every micro-batch */
	bool late_all_reduce;       /* hybrid: over the replicas only after the last one */
	enum activation_offload activation_offload;
	enum overlap overlap;
	enum context_method context_method; /* of several context ranks */
	bool dropout;       /* of attention, residual stream and embedding: its masks are kept */
	bool keep_gathered; /* sequence parallel: a layer's gathered input stays for backward */
	bool sequence_parallel; /* the residual stream's tokens are cut over the tensor ranks */
	enum pipeline_schedule pipeline_schedule;
	int64_t virtual_stages;       /* of each pipeline rank; 0: as few as the schedule has */
	struct rows layers_per_stage; /* by stage, the first one first; no text: even */
	int64_t expert_tensor;  /* with expert ranks: those that each expert is cut over; else 0 */
	double expert_load;     /* and rows that the fullest rank gets over the mean; else 0 */
	double capacity_factor; /* or of every expert: more are dropped, fewer are padded; else 0 */
	enum expert_dispatch expert_dispatch;
	bool expert_overlap;  /* rows travel beside a pass of another micro-batch */
	bool unfused_permute; /* PyTorch's kernels put rows in the order of experts */
	bool async_tensor;    /* tensor ranks exchange beside the products next to it, in chunks */
	bool serial_tensor;   /* and in backward not even beside dX and dW */
	struct name_set cuda_graph_scope; /* what is launched as CUDA graphs */
	bool scatter_gather;              /* each tensor rank sends its part of a stage's output */
	double clip;                      /* gradient norm; 0 = no clipping */
	double loader_rate; /* tokens/s of a rank's data loader; 0 = it is never waited for */
	struct trainable trainable; /* of the model, which was built for it */
};

/* --- the knobs -------------------------------------------------------------------------------- */

/* In the order of plan files, where the last ones are in the mesh. */
enum knob_id {
	KNOB_STRATEGY,
	KNOB_RESHARD_AFTER_FORWARD,
	KNOB_WRAP,
	KNOB_PREFETCH,
	KNOB_FORWARD_PREFETCH,
	KNOB_LIMIT_ALL_GATHERS,
	KNOB_ACTIVATION_CHECKPOINTING,
	KNOB_ATTENTION,
	KNOB_LOSS,
	KNOB_COMPILE,
	KNOB_PARAM_DTYPE,
	KNOB_MASTER_DTYPE,
	KNOB_REDUCE_DTYPE,
	KNOB_GRADIENT_SUMS,
	KNOB_GELU,
	KNOB_OPTIMIZER,
	KNOB_CPU_OFFLOAD,
	KNOB_RUNTIME,
	KNOB_LIBRARIES,
	KNOB_ALLOCATOR,
	KNOB_SEQ_LEN,
	KNOB_MICRO_BATCH,
	KNOB_GRAD_ACCUM,
	KNOB_GLOBAL_BATCH,
	KNOB_SYNC_EACH_MICRO_BATCH,
	KNOB_CLIP,
	KNOB_LOADER_RATE,
	KNOB_LATE_ALL_REDUCE,
	KNOB_TRAINABLE,
	KNOB_ACTIVATION_OFFLOAD,
	KNOB_SEQUENCE_PARALLEL,
	KNOB_PIPELINE_SCHEDULE,
	KNOB_VIRTUAL_STAGES,
	KNOB_LAYERS_PER_STAGE,
	KNOB_EXPERT_TENSOR,
	KNOB_EXPERT_LOAD,
	KNOB_OVERLAP,
	KNOB_DROPOUT,
	KNOB_KEEP_GATHERED,
	KNOB_CONTEXT_METHOD,
	KNOB_CAPACITY_FACTOR,
	KNOB_FP8,
	KNOB_SCATTER_GATHER,
	KNOB_ASYNC_TENSOR,
	KNOB_SERIAL_TENSOR,
	KNOB_FP8_PARAM_GATHER,
	KNOB_CUDA_GRAPH_SCOPE,
	KNOB_EXPERT_DISPATCH,
	KNOB_EXPERT_OVERLAP,
	KNOB_UNFUSED_PERMUTE,
	KNOB_RECOMPUTE_MODULES,
	KNOB_LIGER,
	KNOB_DOCUMENT_LEN,
	KNOB_IN_MESH,
	KNOB_SHARD_GROUP = KNOB_IN_MESH,
	KNOB_TENSOR,
	KNOB_CONTEXT,
	KNOB_PIPELINE,
	KNOB_EXPERT,
	KNOB_COUNT
};

#endif
