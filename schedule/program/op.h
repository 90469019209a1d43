/* The operations of a schedule, declared by one table, OP_KINDS. The simulator prices an operation
 * by its class, the executor runs it by its row in compute/operations.c; collectives are those of
 * transports/. */
#ifndef SCHEDULE_OP_H
#define SCHEDULE_OP_H

#include "base/base.h"

/* X(suffix, name). Streams of a rank, named as FSDP2 names them. */
#define STREAMS(X)                                                                                 \
	X(COMPUTE, "compute")                                                                      \
	X(GATHER_COPY_IN, "gather_copy_in") /* FSDP1's pre_unshard */                              \
	X(GATHER, "gather")                 /* FSDP1's unshard */                                  \
	X(REDUCE, "reduce")                 /* FSDP1's post_backward */                            \
	X(REPLICATE, "replicate")           /* hybrid: all-reduce over the replica group */        \
	X(TENSOR, "tensor")                 /* tokens between tensor ranks */                      \
	X(PEER, "peer")                     /* the same, chunk by chunk beside products */         \
	X(CONTEXT, "context")               /* keys and values between context ranks */            \
	X(EXPERT, "expert")                 /* rows to experts of other ranks, and back */         \
	X(COPY_IN, "copy_in")               /* host to device */                                   \
	X(COPY_OUT, "copy_out")             /* device to host */                                   \
	X(HOST, "host") /* host memory and cores: carried out by the issuing thread, which waits   \
			 */                                                                        \
	X(SEND, "send") /* messages to other stages of a pipeline */                               \
	X(RECEIVE, "receive") /* and from them */                                                  \
	/* messages with the rank before, where they do not wait for those with the rank behind */ \
	X(SEND_BACK, "send_back")                                                                  \
	X(RECEIVE_BACK, "receive_back")

enum stream {
#define X(suffix, name) STREAM_##suffix,
	STREAMS(X)
#undef X
		STREAM_COUNT
};

/* The cost of an operation: COMPUTE by its modules, TRAFFIC by bytes of device memory moved (of
 * host memory on the host stream), COLLECTIVE by payload and group, COPY by bytes over the host
 * link, MESSAGE by bytes over the link to another stage, MARK nothing. */
enum op_class {
	OP_CLASS_COMPUTE,
	OP_CLASS_TRAFFIC,
	OP_CLASS_COLLECTIVE,
	OP_CLASS_COPY,
	OP_CLASS_MESSAGE,
	OP_CLASS_MARK
};

/* X(suffix, name, class) */
#define OP_KINDS(X)                                                                                \
	X(CAST_PARAMETERS, "cast_parameters", TRAFFIC) /* shard -> low-precision shard */          \
	X(ALL_GATHER, "all_gather", COLLECTIVE)                                                    \
	X(COPY_OUT, "copy_out", TRAFFIC) /* FSDP2: gathered buffer -> parameters */                \
	X(RESHARD, "reshard", MARK)      /* frees the unsharded parameters */                      \
	X(FORWARD, "forward", COMPUTE)                                                             \
	X(LOSS, "loss", COMPUTE) /* softmax cross entropy, both passes */                          \
	X(RECOMPUTE, "recompute", COMPUTE)                                                         \
	X(BACKWARD, "backward", COMPUTE)                                                           \
	/* or in two parts: the first makes dX, the second dW */                                   \
	X(BACKWARD_INPUT, "backward_input", COMPUTE)                                               \
	X(BACKWARD_WEIGHT, "backward_weight", COMPUTE)                                             \
	X(FLATTEN_GRADIENTS, "flatten_gradients", TRAFFIC) /* FSDP1 */                             \
	X(CAST_GRADIENTS, "cast_gradients", TRAFFIC) /* to the reduce dtype / into the bucket */   \
	X(REDUCE_SCATTER, "reduce_scatter", COLLECTIVE)                                            \
	X(ALL_REDUCE, "all_reduce", COLLECTIVE)                                                    \
	X(ADD_SUM, "add_sum", TRAFFIC) /* what tensor ranks have summed, to the residual stream */ \
	X(ALL_TO_ALL, "all_to_all", COLLECTIVE)                                                    \
	X(SEND_RECV, "send_recv", COLLECTIVE) /* to the next rank of the group, from the one       \
						 before */                                         \
	X(ACCUMULATE_GRADIENTS, "accumulate_gradients", TRAFFIC) /* into the sharded gradient */   \
	X(GRADIENT_NORM, "gradient_norm", TRAFFIC)               /* local sum of squares */        \
	X(END_BACKWARD, "end_backward", MARK) /* FSDP2: compute has waited for the reductions */   \
	X(CLIP_GRADIENTS, "clip_gradients", TRAFFIC)                                               \
	X(OPTIMIZER, "optimizer", TRAFFIC)                                                         \
	X(COPY_H2D, "copy_h2d", COPY)                                                              \
	X(COPY_D2H, "copy_d2h", COPY)                                                              \
	X(END_COPIES, "end_copies", MARK) /* compute has waited for copies of activations */       \
	X(SEND, "send", MESSAGE)          /* to one rank of another class */                       \
	X(RECV, "recv", MESSAGE)          /* from one */

enum op_kind {
#define X(suffix, name, class) OP_##suffix,
	OP_KINDS(X)
#undef X
		OP_KIND_COUNT
};

struct op;
/* A collective of tokens, rows, keys or values between the ranks that divide the model: it belongs
 * to the leaves of a range, and to no unit. */
bool op_exchanges(const struct op *op);
/* A whole backward, or its input part or weight part. */
bool op_kind_is_backward(enum op_kind kind);
const char *op_kind_name(enum op_kind kind);
enum op_class op_kind_class(enum op_kind kind);
const char *stream_name(enum stream stream);

/* The contents of messages: activations to the next stage, or gradients of them to the stage
 * before. */
enum direction { DIRECTION_FORWARD, DIRECTION_BACKWARD };
extern const char *const direction_names[];

/* Together with the micro-batch and the group this tells messages between two classes apart. */
struct message {
	int peer;  /* the class at the other end */
	int chunk; /* virtual stages: which of the sender's stages it comes from, from 0 */
	enum direction direction;
};

/* A run of program->indices. */
struct slice {
	int first, count;
};

struct op {
	enum op_kind kind : 8; /* a pipeline has hundreds of thousands of operations */
	enum stream stream : 8;
	enum dtype dtype : 8;         /* of the payload */
	int unit;                     /* -1: none or all */
	int micro_batch;              /* -1: belongs to the step */
	int group;                    /* collectives and messages; else -1 */
	int layer;                    /* compute inside a block, copies beside it; else -1 */
	int first_module, end_module; /* compute: leaves in [first, end) of model->modules */
	int cause;                    /* unit whose hook issued this gather early; -1: its own */
	struct message message;       /* SEND and RECV; else 0 */
	int rounds;                   /* of attention that this one operation computes; 0 means 1 */
	/* COLLECTIVE: the full payload, which is the gathered output, the input of a reduction, the
	 * buffer of an all-reduce; of an all-to-all what the fullest rank sends or gets in all, its
	 * own part included; of a send-receive what each rank sends. TRAFFIC: bytes of memory read
	 * plus written. COPY, MESSAGE: bytes moved. Else 0. */
	int64_t bytes;
	/* Operations that must have finished before this one starts / before the host issues it.
	 * i >= 0: operation i of this step; i < 0: operation n_ops + i of the step before. */
	struct slice waits, host_waits;
	/* Buffers: taken when issued; given back when the stream passes this operation; read or
	 * written by it (operands, in the order that docs/schedule.md lists per kind). */
	struct slice takes, gives, uses;
};

static inline int op_rounds(const struct op *op)
{
	return op->rounds > 1 ? op->rounds : 1;
}

#endif
