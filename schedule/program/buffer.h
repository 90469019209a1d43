/* Memory of a schedule: every byte belongs to a buffer with one take and one give per lifetime. */
#ifndef SCHEDULE_BUFFER_H
#define SCHEDULE_BUFFER_H

#include "base/base.h"
#include "schedule/program/op.h"

/* X(suffix, key). Everywhere in this order (docs/glossary.md). */
#define CATEGORIES(X)                                                                              \
	X(PARAMETERS, "parameters")                                                                \
	X(GRADIENTS, "gradients")                                                                  \
	X(OPTIMIZER_STATE, "optimizer_state")                                                      \
	X(ACTIVATIONS, "activations")                                                              \
	X(TEMPORARY_BUFFERS, "temporary_buffers")                                                  \
	X(COMMUNICATION_BUFFERS, "communication_buffers")                                          \
	X(RUNTIME_OVERHEAD, "runtime_overhead")

enum category {
#define X(suffix, key) CATEGORY_##suffix,
	CATEGORIES(X)
#undef X
		CATEGORY_COUNT
};

extern const char *const category_names[];

/* X(suffix, name, category): what a buffer holds. */
#define BUFFER_ROLES(X)                                                                            \
	X(PARAMETER_SHARD, "parameter_shard", PARAMETERS)                                          \
	X(LOW_PRECISION_SHARD, "low_precision_shard", PARAMETERS)                                  \
	X(STAGED_SHARD, "staged_shard", PARAMETERS)    /* offload: its copy on the device */       \
	X(MASTER_SHARD, "master_shard", PARAMETERS)    /* offload: what the host updates */        \
	X(UNSHARDED, "unsharded", PARAMETERS)          /* what compute reads */                    \
	X(RESHARDED, "resharded", PARAMETERS)          /* kept over a smaller group (FSDP2) */     \
	X(COMPUTE_COPY, "compute_copy", PARAMETERS)    /* unsharded low-precision copy */          \
	X(GATHERED, "gathered", COMMUNICATION_BUFFERS) /* FSDP2: as gathered, before copy-out */   \
	X(GRADIENT, "gradient", GRADIENTS)             /* unsharded, written by backward */        \
	X(FLAT_GRADIENT, "flat_gradient", GRADIENTS)                                               \
	X(GRADIENT_SHARD, "gradient_shard", GRADIENTS) /* reduced: the optimizer reads it */       \
	X(OPTIMIZER_STATE, "optimizer_state", OPTIMIZER_STATE) /* both moments */                  \
	X(REDUCE_INPUT, "reduce_input", COMMUNICATION_BUFFERS)                                     \
	X(REDUCE_OUTPUT, "reduce_output", COMMUNICATION_BUFFERS)                                   \
	X(RESIDUAL, "residual", ACTIVATIONS)       /* input of a block or of the head */           \
	X(ACTIVATIONS, "activations", ACTIVATIONS) /* saved tensors of a range of leaves */        \
	X(RECOMPUTED, "recomputed", ACTIVATIONS)   /* the same, made again in backward */          \
	/* gradients that the input part of backward leaves for the weight part */                 \
	X(OUTPUT_GRADIENTS, "output_gradients", ACTIVATIONS)                                       \
	X(FORWARD_WORK, "forward_work", TEMPORARY_BUFFERS)   /* what checkpointing drops */        \
	X(BACKWARD_WORK, "backward_work", TEMPORARY_BUFFERS) /* model_backward_tensors */          \
	X(LOGITS, "logits", TEMPORARY_BUFFERS)                                                     \
	X(LOSS_WORK, "loss_work", TEMPORARY_BUFFERS)                                               \
	X(KERNEL_WORKSPACE, "kernel_workspace", TEMPORARY_BUFFERS)                                 \
	X(OPTIMIZER_WORK, "optimizer_work", TEMPORARY_BUFFERS)                                     \
	X(TOKENS, "tokens", TEMPORARY_BUFFERS) /* int32 inputs and targets */                      \
	X(NORM_SCALARS, "norm_scalars", COMMUNICATION_BUFFERS)                                     \
	X(BUCKET, "bucket", COMMUNICATION_BUFFERS) /* DeepSpeed collects gradients in it */        \
	X(GATHERED_TOKENS, "gathered_tokens", COMMUNICATION_BUFFERS) /* of all tensor ranks */     \
	X(PARTIAL_SUMS, "partial_sums", COMMUNICATION_BUFFERS)       /* of one tensor rank each */ \
	X(ROWS, "rows", COMMUNICATION_BUFFERS) /* to and from experts of other ranks */            \
	X(RESIDUAL_GRADIENT, "residual_gradient", TEMPORARY_BUFFERS) /* between stages */

enum buffer_role {
#define X(suffix, name, category) BUFFER_##suffix,
	BUFFER_ROLES(X)
#undef X
		BUFFER_ROLE_COUNT
};

const char *buffer_role_name(enum buffer_role role);
enum category buffer_role_category(enum buffer_role role);

struct buffer {
	enum buffer_role role;
	enum stream pool; /* the stream whose allocator pool it comes from; STREAM_HOST: it lies in
			     host memory (pinned), not on the device */
	int unit;         /* -1: none */
	int layer;        /* -1: none */
	int first_module,
		end_module; /* saved tensors of these leaves; gradients of their parameters */
	enum dtype dtype;
	int64_t bytes;
	bool resident; /* lives between steps: never taken, never given */
	int times;     /* folded schedules: how many alike ones it stands for; 0: itself */
};

/* The second tier: CPU offload's buffers. */
static inline bool buffer_in_host(const struct buffer *buffer)
{
	return buffer->pool == STREAM_HOST;
}

#endif
