/* Private to passes: what happens in a step, before it is an operation. */
#ifndef SCHEDULE_ACTION_H
#define SCHEDULE_ACTION_H

#include "schedule/program/program.h"

/* X(suffix): places where hooks run. Passes replace them by actions; lowering skips the rest. */
#define MARKS(X)                                                                                   \
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

/* X(suffix, kind of operation, stream). Where passes choose the stream, the usual one. */
#define ACTIONS(X)                                                                                 \
	/* compute */                                                                              \
	X(FORWARD, FORWARD, COMPUTE)                                                               \
	X(LOSS, LOSS, COMPUTE)                                                                     \
	X(RECOMPUTE, RECOMPUTE, COMPUTE)                                                           \
	X(BACKWARD, BACKWARD, COMPUTE)                                                             \
	/* parameters of units */                                                                  \
	X(STAGE, COPY_H2D, GATHER_COPY_IN) /* offload: the shard comes in */                       \
	X(CAST_SHARD, CAST_PARAMETERS, GATHER_COPY_IN)                                             \
	X(COPY_WHOLE, CAST_PARAMETERS, GATHER_COPY_IN) /* NO_SHARD: a low-precision copy */        \
	X(GATHER, ALL_GATHER, GATHER)                                                              \
	X(COPY_OUT, COPY_OUT, COMPUTE) /* FSDP2 */                                                 \
	X(RESHARD, RESHARD, COMPUTE)                                                               \
	/* of ZeRO-3's leaves: one by itself, or several side by side */                           \
	X(GATHER_LEAF, ALL_GATHER, GATHER)                                                         \
	X(PACK_LEAVES, CAST_PARAMETERS, GATHER)                                                    \
	X(GATHER_LEAVES, ALL_GATHER, GATHER)                                                       \
	X(UNPACK_LEAF, COPY_OUT, GATHER)                                                           \
	X(RELEASE_LEAF, RESHARD, COMPUTE)                                                          \
	X(CAST_RANGE, CAST_PARAMETERS, COMPUTE) /* DDP's autocast */                               \
	/* gradients of units */                                                                   \
	X(FLATTEN, FLATTEN_GRADIENTS, COMPUTE)                                                     \
	X(KEEP_UNSHARDED, ACCUMULATE_GRADIENTS, COMPUTE)                                           \
	X(CAST_FLAT, CAST_GRADIENTS, REDUCE)                                                       \
	X(COPY_IN, CAST_GRADIENTS, COMPUTE)                                                        \
	X(SCATTER, REDUCE_SCATTER, REDUCE)                                                         \
	X(REDUCE_REPLICAS, ALL_REDUCE, REDUCE)                                                     \
	X(ACCUMULATE, ACCUMULATE_GRADIENTS, REDUCE)                                                \
	X(END_BACKWARD, END_BACKWARD, COMPUTE)                                                     \
	X(UNSTAGE, COPY_D2H, REDUCE) /* offload: the reduced gradient leaves */                    \
	X(ADD_ON_HOST, ACCUMULATE_GRADIENTS, HOST)                                                 \
	/* of buckets */                                                                           \
	X(FILL_BUCKET, CAST_GRADIENTS, COMPUTE)                                                    \
	X(EMPTY_BUCKET, ACCUMULATE_GRADIENTS, COMPUTE)                                             \
	X(COLLECT_RANGE, CAST_GRADIENTS, COMPUTE)                                                  \
	X(FLATTEN_BUCKET, CAST_GRADIENTS, COMPUTE)                                                 \
	X(ADD_IN_HOOK, CAST_GRADIENTS, COMPUTE)                                                    \
	X(REDUCE_BUCKET, ALL_REDUCE, REDUCE)                                                       \
	X(KEEP_SLICE, ACCUMULATE_GRADIENTS, COMPUTE)                                               \
	X(ADD_TO_COPIES, ACCUMULATE_GRADIENTS, COMPUTE)                                            \
	X(RELEASE_GRADIENTS, END_BACKWARD, COMPUTE)                                                \
	/* of ZeRO-3's leaves */                                                                   \
	X(COLLECT_LEAF, CAST_GRADIENTS, REDUCE)                                                    \
	X(CAST_COLLECTED, CAST_GRADIENTS, REDUCE)                                                  \
	X(SCATTER_COLLECTED, REDUCE_SCATTER, REDUCE)                                               \
	X(ADD_PARTITIONS, ACCUMULATE_GRADIENTS, REDUCE)                                            \
	X(END_PARTITIONS, END_BACKWARD, COMPUTE)                                                   \
	/* the end of the step */                                                                  \
	X(NORM, GRADIENT_NORM, COMPUTE)                                                            \
	X(REDUCE_NORM, ALL_REDUCE, REDUCE)                                                         \
	X(CLIP, CLIP_GRADIENTS, COMPUTE)                                                           \
	X(UPDATE, OPTIMIZER, COMPUTE)                                                              \
	X(RETURN_SHARD, COPY_H2D, GATHER_COPY_IN) /* offload: what the host has updated */         \
	X(STAGE_MASTER, COPY_H2D, COMPUTE)                                                         \
	X(CAST_WHOLE, CAST_PARAMETERS, COMPUTE)                                                    \
	X(GATHER_WHOLE, ALL_GATHER, GATHER)                                                        \
	X(CAST_LEAVES, CAST_PARAMETERS, COMPUTE)

enum action_kind {
#define X(suffix) ACTION_##suffix,
	MARKS(X)
#undef X
#define X(suffix, kind, stream) ACTION_##suffix,
		ACTIONS(X)
#undef X
			ACTION_KIND_COUNT
};

enum action_flag {
	IN_BACKWARD = 1 << 0,    /* of a backward pass */
	SYNCHRONISES = 1 << 1,   /* gradients of this micro-batch are reduced */
	FIRST = 1 << 2,          /* of several that share a buffer */
	LAST = 1 << 3,           /* likewise */
	IS_PRESENT = 1 << 4,     /* LIMIT: the unit is gathered already */
	READS_SHARD = 1 << 5,    /* the shard has to be there before this action */
	DROPS = 1 << 6,          /* nothing uses what is made */
	FROM_PART = 1 << 7,      /* GATHER: over the smaller group that the unit was resharded to */
	KEEPS_PART = 1 << 8,     /* RESHARD: to a smaller group */
	RELEASES_INPUT = 1 << 9, /* RESHARD: of the reduction before */
	IN_PLACE = 1 << 10,      /* the reduced gradient is the shard already */
	REDUCED_HERE = 1 << 11, /* with no other rank: compute has written what was to be reduced */
};

struct action {
	enum action_kind kind;
	enum stream stream;
	unsigned flags;
	int unit, range, micro_batch; /* -1: none */
	int flight;                   /* where the tensors of its micro-batch are; -1: none */
	int cause;                    /* unit whose hook issued it early; -1 */
	int first_module, end_module; /* RECOMPUTE: a part of its range */
	struct slice units;           /* of step->lists: several units at once */
};

struct action_list {
	struct action *items;
	int n, capacity;
};

#endif
