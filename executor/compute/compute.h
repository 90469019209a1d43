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

/* The place of a parameter: element `offset` of its unit. */
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

/* The tensors that a leaf saves lie in a buffer of its range. Under selective checkpointing a range
 * has two: one for tensors that are kept, one for those that are computed again. */
struct saved_tensors {
	bool split;        /* the block is checkpointed selectively, so there are two buffers */
	bool kept;         /* the tensors of this leaf are kept; true when not split */
	int64_t starts[2]; /* by `kept`: bytes of all leaves before this one, in model order */
	int n;
	struct tensor tensors[MODULE_TENSORS_MAX];
};

struct compute {
	/* Set by the caller. */
	const struct schedule *schedule;
	const struct program *program;
	struct buffers *buffers;
	const struct kernels *kernels;
	/* One for the interpreter's thread, one for the communication thread. On a device: with the
	 * workspace of the compute stream, and with that of all other streams. */
	struct kernel_context *context, *background;
	/* NULL: this machine's processors compute. Else the device does, and operations of the host
	 * stream have the kernels and the context below. */
	struct device_cuda *device;
	const struct kernels *host_kernels;
	struct kernel_context *host_context;
	struct data *data;
	struct training training;
	struct fault fault;
	bool any_rounding; /* bits may differ from other plans': an epilogue may compute GELU */
	int rank;          /* in the world */
	int place, ranks;  /* among the ranks that share out the sequences of a micro-batch */
	int tensor_place;  /* among the tensor ranks */
	int64_t step;      /* from 0 */
	/* Results of the step. */
	struct exact_sum loss;  /* sum of the losses of this rank's tokens */
	double gradient_norm;   /* over all parameters, before clipping */
	int64_t gradient_bytes; /* bytes of gradients that the optimizer read */
	/* private */
	struct arena arena;
	const struct model *model;
	enum dtype dtype, gradient_dtype; /* of parameters and activations; of gradients */
	/* Sizes of a micro-batch. With context ranks each has two of the `chunks` that a sequence
	 * is cut into, from its two ends; they count as sequences here. Else `chunks` is 0. */
	int64_t sequences, seq_len, tokens, logits_stride;
	int64_t chunks;
	int *rounds;     /* [n_ops] a ring of context ranks: the round that an operation is of */
	int32_t *window; /* [seq_len of the plan + 1] with context ranks */
	int64_t stream_tokens, first_token; /* the tokens that the rank's residual stream has */
	struct location *locations;         /* [n_parameters] */
	struct siblings *siblings;          /* [layers + 1]; [0] = layer -1 */
	struct saved_tensors *saved;        /* [n_modules] */
	/* [n_parameters] The gradient has no term yet: the first one overwrites the buffer, all
	 * later ones are added. */
	bool *fresh;
	struct tensor work[BACKWARD_TENSORS_MAX];
	int n_work;
	int64_t work_bytes;             /* of `work`; a scratch for exact sums follows */
	int expert_ranks, expert_place; /* ranks that share out experts; 1: this one has all */
	struct routes *routes;          /* of a mixture of experts (routes.h); NULL: none */
	int32_t *row_counts;            /* rows that other ranks have for this one's experts */
	int64_t *row_splits;            /* of an exchange: elements to and from each rank */
	float *losses;                  /* [tokens], where the schedule declares no loss_work */
	struct exact_sum *scalars;      /* norm_scalars of this step; NULL = consumed */
	struct exact_sum on_host;       /* a copy of them, where they lie on a device */
	bool norm_on_device;            /* the norm is in the device's scalars */
	int gelu_done; /* the activation leaf that its projection has computed already; -1 */
	bool rehearsal;
	bool warm_up;       /* only the device's own operations are run */
	bool overflow;      /* a gradient of this step was too large for exact sums */
	struct error error; /* the first thing that went wrong in an operand */
};

/* EXIT_CODE_USAGE for what these kernels cannot do (ALiBi, eager attention, other dtypes). */
bool compute_open(struct compute *compute, struct error *error);
void compute_close(struct compute *compute);

/* `data` is a struct compute: the run function of a struct backend. */
bool compute_run(void *data, int op, struct error *error);

/* For struct backend: the address of the rank's input to an exchange of tokens. */
void *compute_exchanged(void *data, int op);

/* An exchange of rows between expert ranks. */
struct row_exchange {
	const void *input;
	void *output;
	/* [ranks] Elements that go to each rank, and that come from each. NULL: equal parts, as the
	 * operation says. */
	const int64_t *sends, *receives;
};
/* Before the exchange: copies the rows to send together. After it: adds up the rows that were
 * received. */
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

/* A table of kernels that do nothing: for the `null` device, and (with a real prepare_gemm in place
 * of gemm) for the rehearsal that prepares every shape. */
extern const struct kernels kernels_null;
extern const struct device_kernels device_kernels_null;

/* The constants of a step's update; the caller adds the arrays. */
struct adamw optimizer_adamw(const struct training *training, int64_t step);

#endif
