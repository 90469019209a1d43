/* The arithmetic of a rank: operations of a schedule as calls of the kernel table.
 *
 * operations.c dispatches operations, forward.c and backward.c hold one function per kind of leaf,
 * operands.c finds tensors, optimizer.c ends the step. Layouts: docs/schedule.md. With the table of
 * kernels_null everything runs but the arithmetic. */
#ifndef EXECUTOR_COMPUTE_H
#define EXECUTOR_COMPUTE_H

#include "executor/compute/data.h"
#include "executor/compute/random.h"
#include "executor/devices/devices.h"
#include "executor/job/job.h"
#include "executor/memory/memory.h"
#include "kernels/kernels.h"

/* Where a parameter lies: element `offset` of its unit. */
struct location {
	int unit;
	int64_t offset;
};

/* The leaves of one block (or, for layer -1, those outside of blocks) by kind; -1 = none. A block
 * has two norms. */
struct siblings {
	int of[MODULE_KIND_COUNT];
	int second_norm;
};

/* What a leaf saves lies in the buffer of its range: under selective checkpointing one of what is
 * kept, and one of what is computed again. */
struct saved_tensors {
	bool split;        /* the block is checkpointed selectively */
	bool kept;         /* of a split one; else true */
	int64_t starts[2]; /* bytes of all leaves before this one, in model order: [kept] */
	int n;
	struct tensor tensors[MODULE_TENSORS_MAX];
};

struct compute {
	/* Set by the caller. */
	const struct schedule *schedule;
	const struct program *program;
	struct buffers *buffers;
	const struct kernels *kernels;
	/* For the interpreter's thread and for the communication thread; on a device, with the
	 * workspace of the compute stream and with that of the others. */
	struct kernel_context *context, *background;
	/* Where the arithmetic is a device's; NULL: this machine's processors. The host's own
	 * operations then have kernels of their own. */
	struct device_cuda *device;
	const struct kernels *host_kernels;
	struct kernel_context *host_context;
	struct data *data;
	struct training training;
	struct fault fault;
	bool any_rounding; /* bits need not be those of other plans: an epilogue may compute GELU */
	int rank;          /* of all */
	int place, ranks;  /* among those that share out the sequences of a micro-batch */
	int tensor_place;  /* among those that cut what they compute */
	int64_t step;      /* from 0 */
	/* Results of the step. */
	struct exact_sum loss;  /* of the losses of this rank's tokens */
	double gradient_norm;   /* over all parameters, before clipping */
	int64_t gradient_bytes; /* of the shards that the optimizer read */
	/* private */
	struct arena arena;
	const struct model *model;
	enum dtype dtype, gradient_dtype; /* of parameters and activations; of gradients */
	/* Of a micro-batch. A context rank has two chunks of each sequence, from its two ends,
	 * which count as sequences here, of `chunks` in all; else 0. */
	int64_t sequences, seq_len, tokens, logits_stride;
	int64_t chunks;
	int *rounds;     /* a ring of context ranks: which one each operation is; [n_ops] */
	int32_t *window; /* context ranks: [seq_len of the plan + 1] */
	int64_t stream_tokens, first_token; /* of these the rank has on the residual stream */
	struct location *locations;         /* [n_parameters] */
	struct siblings *siblings;          /* [layers + 1]; [0] = layer -1 */
	struct saved_tensors *saved;        /* [n_modules] */
	/* [n_parameters]: the unit's gradient was taken, and this parameter's part of it holds
	 * nothing yet: the first term is written over what lies there. */
	bool *fresh;
	struct tensor work[BACKWARD_TENSORS_MAX];
	int n_work;
	int64_t work_bytes;             /* of these; a scratch for exact sums follows */
	int expert_ranks, expert_place; /* those that share out experts; 1: the rank has all */
	struct routes *routes;          /* of a mixture of experts (routes.h); NULL: it is none */
	int32_t *row_counts;            /* what other ranks have for the rank's experts */
	int64_t *row_splits;            /* of an exchange: elements for each rank, and of each */
	float *losses;                  /* [tokens], where the schedule declares no loss_work */
	struct exact_sum *scalars;      /* norm_scalars of this step; NULL = consumed */
	struct exact_sum on_host;       /* a copy of them, where they lie on a device */
	bool norm_on_device;            /* the norm is in the device's scalars */
	int gelu_done;                  /* the activation that its projection has computed; -1 */
	bool rehearsal;
	bool warm_up; /* the device's own operations only */
	/* Exact sums of gradients: a term too large for them, in this step. */
	bool overflow;
	struct error error; /* the first thing that went wrong in an operand */
};

/* EXIT_CODE_USAGE for what these kernels cannot do (ALiBi, eager attention, other dtypes). */
bool compute_open(struct compute *compute, struct error *error);
void compute_close(struct compute *compute);

/* `data` is a struct compute: the run function of a struct backend. */
bool compute_run(void *data, int op, struct error *error);

/* Of the same: where lies what the rank gives in an exchange of tokens. */
void *compute_exchanged(void *data, int op);

/* Around an exchange of rows of experts: what is sent is put together, and how much goes to whom,
 * and comes; what came is added up. */
struct row_exchange {
	const void *input;
	void *output;
	/* Elements for each of the ranks, and of each; NULL: equal parts of what the operation says
	 */
	const int64_t *sends, *receives;
};
bool compute_begin_rows(void *data, int op, struct row_exchange *exchange, struct error *error);
bool compute_end_rows(void *data, int op, const struct row_exchange *exchange, struct error *error);

/* Around the operations of a step. A device tells the loss and the norm at the end only:
 * EXIT_CODE_FAULT for a norm that is not finite. */
bool compute_begin_step(struct compute *compute, int64_t step, struct error *error);
bool compute_end_step(struct compute *compute, struct error *error);

/* Bytes of pinned memory that the device's tokens pass through. */
int64_t compute_staging_bytes(const struct schedule *schedule);

/* By executor_job.kernels: NULL or "cpu" is the fastest; NULL for an unknown name. */
const struct kernels *executor_kernels(const char *name);

/* A table that does nothing: the `null` device, and (with a real prepare_gemm in place of gemm) the
 * rehearsal that prepares every shape. */
extern const struct kernels kernels_null;
extern const struct device_kernels device_kernels_null;

/* The update of a step, of no arrays yet. */
struct adamw optimizer_adamw(const struct training *training, int64_t step);

#endif
