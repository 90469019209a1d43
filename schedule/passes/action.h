/* Private to passes: what happens in a step, before it is an operation. */
#ifndef SCHEDULE_ACTION_H
#define SCHEDULE_ACTION_H

#include "schedule/passes/flags.h"
#include "schedule/program/program.h"

/* X(suffix): places where hooks run. Passes replace them by actions; lowering skips the rest. */
#define MARKS(X)                                                                                   \
	X(PASS_BEGINS) /* a forward or backward pass of a micro-batch through a stage */           \
	X(PASS_ENDS)                                                                               \
	X(HAND_OVER) /* to the next stage of the same rank, without a message */                   \
	X(TAKE_OVER) /* from it; or what was received early */                                     \
	X(PRE_FORWARD)                                                                             \
	X(POST_FORWARD)                                                                            \
	X(PRE_RECOMPUTE)                                                                           \
	X(POST_RECOMPUTE)                                                                          \
	X(PRE_BACKWARD)                                                                            \
	X(RANGE_DONE)    /* after the backward of a range */                                       \
	X(UNIT_DONE)     /* after the backward of a unit: its gradients are complete, */           \
	X(POST_BACKWARD) /* its parameters are no longer needed, */                                \
	X(REDUCE)        /* and its gradient may leave */                                          \
	X(BACKWARD_DONE)                                                                           \
	X(GRADIENT_DONE) /* a unit's reduced gradient is where the optimizer expects it */         \
	X(LIMIT)         /* the host may wait here for buffers to be freed */

/* X(suffix, kind of operation, stream, what it leaves behind, what it waits for...). Where passes
 * choose the stream, the usual one. waits.c says what the last two mean: enum result, enum need. */
#define ACTIONS(X)                                                                                 \
	/* compute */                                                                              \
	X(FORWARD, FORWARD, COMPUTE, NOTHING, WEIGHTS, EXCHANGED)                                  \
	X(LOSS, LOSS, COMPUTE, NOTHING, EXCHANGED)                                                 \
	X(RECOMPUTE, RECOMPUTE, COMPUTE, NOTHING, WEIGHTS, EXCHANGED)                              \
	X(BACKWARD, BACKWARD, COMPUTE, NOTHING, WEIGHTS, EXCHANGED, SENT_BEFORE, GRADIENTS_GONE)   \
	X(BACKWARD_INPUT, BACKWARD_INPUT, COMPUTE, NOTHING, WEIGHTS, EXCHANGED)                    \
	X(BACKWARD_WEIGHT, BACKWARD_WEIGHT, COMPUTE, NOTHING, SENT_BEFORE, INPUT)                  \
	/* activations: saved tensors leave and come back */                                       \
	X(SAVE, COPY_D2H, COPY_OUT, MOVED, COMPUTE, ROWS)                                          \
	X(FETCH, COPY_H2D, COPY_IN, MOVED, COMPUTE)                                                \
	X(END_COPIES, END_COPIES, COMPUTE, NOTHING, MOVED)                                         \
	/* tokens between tensor ranks: gathered for a column-parallel layer, summed behind a      \
	 * row-parallel one, in parts or whole; the loss's sums */                                 \
	X(GATHER_TOKENS, ALL_GATHER, TENSOR, GATHERED, COMPUTE, MESSAGE_IF_READ)                   \
	X(SCATTER_TOKENS, REDUCE_SCATTER, TENSOR, NOTHING, COMPUTE)                                \
	X(REDUCE_TOKENS, ALL_REDUCE, TENSOR, NOTHING, COMPUTE)                                     \
	X(ADD_SUM, ADD_SUM, COMPUTE, NOTHING, EXCHANGED)                                           \
	/* what an adapter makes between its two matrices, or its gradient */                      \
	X(GATHER_ADAPTER, ALL_GATHER, TENSOR, NOTHING, COMPUTE)                                    \
	X(SCATTER_ADAPTER, REDUCE_SCATTER, TENSOR, NOTHING, COMPUTE)                               \
	X(REDUCE_LOSS, ALL_REDUCE, TENSOR, NOTHING, COMPUTE)                                       \
	X(GATHER_LOSS, ALL_GATHER, TENSOR, NOTHING, COMPUTE)                                       \
	/* keys and values between context ranks; their gradients */                               \
	X(GATHER_KEYS, ALL_GATHER, CONTEXT, ROTATING, COMPUTE)                                     \
	X(SCATTER_KEYS, REDUCE_SCATTER, CONTEXT, NOTHING, COMPUTE)                                 \
	/* or in rounds: those behind the first, or before the last of backward; a block of them   \
	 * to the next rank, gradients of one alone */                                             \
	X(ROUND_FORWARD, FORWARD, COMPUTE, NOTHING, EXCHANGED)                                     \
	X(ROUND_RECOMPUTE, RECOMPUTE, COMPUTE, NOTHING, EXCHANGED)                                 \
	X(ROUND_BACKWARD, BACKWARD, COMPUTE, NOTHING, EXCHANGED)                                   \
	X(ROTATE_KEYS, SEND_RECV, CONTEXT, ROTATING, COMPUTE)                                      \
	X(ROTATE_SUMS, SEND_RECV, CONTEXT, NOTHING, COMPUTE)                                       \
	/* or a part of the heads for all tokens: the way there, and back */                       \
	X(CUT_HEADS, ALL_TO_ALL, CONTEXT, NOTHING, COMPUTE)                                        \
	X(JOIN_HEADS, ALL_TO_ALL, CONTEXT, NOTHING, COMPUTE)                                       \
	/* between stages of a pipeline */                                                         \
	X(SEND, SEND, SEND, SENT, COMPUTE, ROWS)                                                   \
	X(RECEIVE, RECV, RECEIVE, RECEIVED, COMPUTE)                                               \
	/* parts of a message, of all tensor ranks */                                              \
	X(GATHER_MESSAGE, ALL_GATHER, TENSOR, NOTHING, COMPUTE, MESSAGE)                           \
	/* how many rows ranks have for one another's experts; the rows, and what becomes of them; \
	 * between, those of all ranks that cut an expert */                                       \
	X(COUNT_ROWS, ALL_TO_ALL, EXPERT, NOTHING, COMPUTE)                                        \
	X(GATHER_COUNTS, ALL_GATHER, EXPERT, NOTHING, COMPUTE)                                     \
	X(DISPATCH_ROWS, ALL_TO_ALL, EXPERT, NOTHING, COMPUTE, MESSAGE_IF_READ)                    \
	X(GATHER_ROWS, ALL_GATHER, EXPERT, NOTHING, COMPUTE)                                       \
	X(SCATTER_ROWS, REDUCE_SCATTER, EXPERT, NOTHING, COMPUTE)                                  \
	X(COMBINE_ROWS, ALL_TO_ALL, EXPERT, NOTHING, COMPUTE)                                      \
	/* parameters of units; offload: the shard comes in */                                     \
	X(STAGE, COPY_H2D, GATHER_COPY_IN, PREPARED, BEGUN, RELEASED)                              \
	X(CAST_SHARD, CAST_PARAMETERS, GATHER_COPY_IN, PREPARED, BEGUN, RELEASED, PREPARED,        \
		COMPUTE_IF_KEPT)                                                                   \
	/* NO_SHARD: a low-precision copy */                                                       \
	X(COPY_WHOLE, CAST_PARAMETERS, GATHER_COPY_IN, READY, BEGUN, RELEASED)                     \
	X(GATHER, ALL_GATHER, GATHER, READY, PREPARED_OR_BEGUN, RELEASED, RETURNED,                \
		COMPUTE_IF_KEPT, PART)                                                             \
	X(COPY_OUT, COPY_OUT, COMPUTE, COPIED_OUT, READY) /* FSDP2 */                              \
	X(RESHARD, RESHARD, COMPUTE, RESHARDED, READY, INPUT_IN_FLIGHT)                            \
	/* of ZeRO-3's leaves: one by itself, or several side by side */                           \
	X(GATHER_LEAF, ALL_GATHER, GATHER, READY, BEGUN)                                           \
	X(PACK_LEAVES, CAST_PARAMETERS, GATHER, NOTHING, BEGUN, UPDATED)                           \
	X(GATHER_LEAVES, ALL_GATHER, GATHER, NOTHING, NOTHING)                                     \
	X(UNPACK_LEAF, COPY_OUT, GATHER, READY, COMPUTE_IF_KEPT)                                   \
	X(RELEASE_LEAF, RESHARD, COMPUTE, RESHARDED, READY)                                        \
	X(CAST_RANGE, CAST_PARAMETERS, COMPUTE, NOTHING, NOTHING) /* DDP's autocast */             \
	/* gradients of units */                                                                   \
	X(FLATTEN, FLATTEN_GRADIENTS, COMPUTE, NOTHING, COMPUTE)                                   \
	X(KEEP_UNSHARDED, ACCUMULATE_GRADIENTS, COMPUTE, NOTHING, NOTHING)                         \
	X(CAST_FLAT, CAST_GRADIENTS, REDUCE, NOTHING, COMPUTE, FLATTENED)                          \
	X(COPY_IN, CAST_GRADIENTS, COMPUTE, NOTHING, NOTHING)                                      \
	/* of leaves of which tensor ranks have other tokens, or other heads */                    \
	X(REDUCE_STREAM, ALL_REDUCE, REDUCE, REDUCED, COMPUTE)                                     \
	X(SCATTER, REDUCE_SCATTER, REDUCE, SCATTERED, COMPUTE, GRADIENTS_GONE, ADDED)              \
	/* FSDP2's partial_reduce_output */                                                        \
	X(KEEP_PARTIAL, ACCUMULATE_GRADIENTS, REDUCE, NOTHING, NOTHING)                            \
	X(ADD_PARTIAL, ACCUMULATE_GRADIENTS, REDUCE, NOTHING, NOTHING)                             \
	X(REDUCE_REPLICAS, ALL_REDUCE, REDUCE, REDUCED, COMPUTE, REDUCE)                           \
	X(ACCUMULATE, ACCUMULATE_GRADIENTS, REDUCE, ADDED, REDUCED)                                \
	X(END_BACKWARD, END_BACKWARD, COMPUTE, NOTHING, REDUCTIONS)                                \
	X(UNSTAGE, COPY_D2H, REDUCE, REDUCED, REDUCED) /* offload: the reduced gradient leaves */  \
	X(ADD_ON_HOST, ACCUMULATE_GRADIENTS, HOST, REDUCED, REDUCED)                               \
	/* of buckets */                                                                           \
	X(FILL_BUCKET, CAST_GRADIENTS, COMPUTE, NOTHING, REDUCED)                                  \
	X(EMPTY_BUCKET, ACCUMULATE_GRADIENTS, COMPUTE, REDUCED, REDUCED)                           \
	X(COLLECT_RANGE, CAST_GRADIENTS, COMPUTE, NOTHING, NOTHING)                                \
	X(FLATTEN_BUCKET, CAST_GRADIENTS, COMPUTE, NOTHING, REDUCE_IF_OVERLAPPED)                  \
	X(ADD_IN_HOOK, CAST_GRADIENTS, COMPUTE, NOTHING, NOTHING)                                  \
	X(REDUCE_BUCKET, ALL_REDUCE, REDUCE, REDUCED, COMPUTE)                                     \
	X(SCATTER_BUCKET, REDUCE_SCATTER, REDUCE, REDUCED, COMPUTE)                                \
	X(REDUCE_SLICE, ALL_REDUCE, REDUCE, REDUCED, COMPUTE, REDUCE)                              \
	X(KEEP_SLICE, ACCUMULATE_GRADIENTS, COMPUTE, REDUCED, REDUCED, COMPUTE)                    \
	X(ADD_TO_COPIES, ACCUMULATE_GRADIENTS, COMPUTE, NOTHING, NOTHING)                          \
	X(RELEASE_GRADIENTS, END_BACKWARD, COMPUTE, NOTHING, REDUCE)                               \
	/* of ZeRO-3's leaves */                                                                   \
	X(COLLECT_LEAF, CAST_GRADIENTS, REDUCE, NOTHING, COMPUTE)                                  \
	X(CAST_COLLECTED, CAST_GRADIENTS, REDUCE, NOTHING, NOTHING)                                \
	X(SCATTER_COLLECTED, REDUCE_SCATTER, REDUCE, NOTHING, NOTHING)                             \
	X(ADD_PARTITIONS, ACCUMULATE_GRADIENTS, REDUCE, NOTHING, NOTHING)                          \
	X(END_PARTITIONS, END_BACKWARD, COMPUTE, NOTHING, REDUCE)                                  \
	/* the end of the step */                                                                  \
	X(NORM, GRADIENT_NORM, COMPUTE, NOTHING, REDUCTIONS, COMPUTE_IF_SECOND)                    \
	X(REDUCE_ALIKE, ALL_REDUCE, REDUCE, NOTHING, COMPUTE, REDUCTIONS)                          \
	X(REDUCE_TABLE, ALL_REDUCE, REDUCE, NOTHING, COMPUTE, REDUCTIONS)                          \
	X(REDUCE_NORM, ALL_REDUCE, REDUCE, NOTHING, COMPUTE, HOST)                                 \
	X(REDUCE_NORM_PARTS, ALL_REDUCE, REDUCE, NOTHING, COMPUTE)                                 \
	X(REDUCE_NORM_STAGES, ALL_REDUCE, REDUCE, NOTHING, COMPUTE)                                \
	X(CLIP, CLIP_GRADIENTS, COMPUTE, NOTHING, REDUCE, COMPUTE)                                 \
	X(UPDATE, OPTIMIZER, COMPUTE, UPDATED, REDUCTIONS, COPIES)                                 \
	/* offload: what the host has updated */                                                   \
	X(RETURN_SHARD, COPY_H2D, GATHER_COPY_IN, RETURNED, HOST, GATHERS, COMPUTE)                \
	X(STAGE_MASTER, COPY_H2D, COMPUTE, NOTHING, HOST)                                          \
	X(CAST_WHOLE, CAST_PARAMETERS, COMPUTE, NOTHING, NOTHING)                                  \
	X(CAST_BUCKETS, CAST_PARAMETERS, COMPUTE, UPDATED, NOTHING)                                \
	X(GATHER_BUCKET, ALL_GATHER, GATHER, READY, BEGUN)                                         \
	X(GATHER_WHOLE, ALL_GATHER, GATHER, WHOLE, COMPUTE)                                        \
	X(CAST_LEAVES, CAST_PARAMETERS, COMPUTE, UPDATED, NOTHING)

enum action_kind {
#define X(suffix) ACTION_##suffix,
	MARKS(X)
#undef X
#define X(suffix, kind, stream, ...) ACTION_##suffix,
		ACTIONS(X)
#undef X
			ACTION_KIND_COUNT
};

struct action {
	enum action_kind kind;
	enum stream stream;
	unsigned flags;
	int unit, range, micro_batch; /* -1: none */
	int flight;                   /* where the tensors of its micro-batch are, which live as
					 long as those of other flights; -1: none */
	int chunk;                    /* which of the rank's stages */
	int cause;                    /* unit whose hook issued it early; -1 */
	int first_module, end_module; /* a part of its range; 0, 0: all of it */
	struct slice units;           /* of step->lists: several units at once */
};

/* A backward, or the part of it that makes the gradient of the input? */
bool action_makes_input(const struct action *action);

struct action_list {
	struct action *items;
	int n, capacity;
};

#endif
