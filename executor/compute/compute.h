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
	int rank, ranks;
	int64_t step; /* from 0 */
	/* Results of the step. */
	struct exact_sum loss;  /* of the losses of this rank's tokens */
	double gradient_norm;   /* over all parameters, before clipping */
	int64_t gradient_bytes; /* of the shards that the optimizer read */
	/* private */
	struct arena arena;
	const struct model *model;
	enum dtype dtype, gradient_dtype; /* of parameters and activations; of gradients */
	int64_t sequences, seq_len, tokens, logits_stride; /* of a micro-batch */
	struct location *locations;                        /* [n_parameters] */
	struct siblings *siblings;                         /* [layers + 1]; [0] = layer -1 */
	struct saved_tensors *saved;                       /* [n_modules] */
	/* [n_parameters]: the unit's gradient was taken, and this parameter's part of it holds
	 * nothing yet: the first term is written over what lies there. */
	bool *fresh;
	struct tensor work[BACKWARD_TENSORS_MAX];
	int n_work;
	int64_t work_bytes;        /* of these; a scratch for exact sums follows */
	float *losses;             /* [tokens], where the schedule declares no loss_work */
	struct exact_sum *scalars; /* norm_scalars of this step; NULL = consumed */
	struct exact_sum on_host;  /* a copy of them, where they lie on a device */
	bool norm_on_device;       /* the norm is in the device's scalars */
	int gelu_done;             /* the activation that its projection has computed; -1 */
	bool rehearsal;
	/* Exact sums of gradients: a term too large for them, in this step. */
	bool overflow;
	struct error error; /* the first thing that went wrong in an operand */
};

/* One leaf of one operation. */
struct leaf {
	struct compute *compute;
	const struct op *op;
	int module;
};

/* EXIT_CODE_USAGE for what these kernels cannot do (ALiBi, eager attention, other dtypes). */
bool compute_open(struct compute *compute, struct error *error);
void compute_close(struct compute *compute);

/* `data` is a struct compute: the run function of a struct backend. */
bool compute_run(void *data, int op, struct error *error);

/* Around the operations of a step. A device tells the loss and the norm at the end only:
 * EXIT_CODE_FAULT for a norm that is not finite. */
bool compute_begin_step(struct compute *compute, int64_t step, struct error *error);
bool compute_end_step(struct compute *compute, struct error *error);

/* Bytes of pinned memory that the device's tokens pass through. */
int64_t compute_staging_bytes(const struct schedule *schedule);

/* Element i of tokens or activations; NULL stays NULL. */
void *compute_at(const struct compute *compute, const void *activations, int64_t i);

/* By executor_job.kernels: NULL or "cpu" is the fastest; NULL for an unknown name. */
const struct kernels *executor_kernels(const char *name);

/* A table that does nothing: the `null` device, and (with a real prepare_gemm in place of gemm) the
 * rehearsal that prepares every shape. */
extern const struct kernels kernels_null;
extern const struct device_kernels device_kernels_null;

/* --- operands.c: addresses, or NULL with compute->error set --- */
void *operand_parameter(const struct leaf *leaf, int parameter);
void *operand_gradient(const struct leaf *leaf, int parameter);
void *operand_saved(const struct leaf *leaf, int module, enum tensor_role role);
void *operand_work(const struct leaf *leaf, enum tensor_role role);
void *operand_residual_in(const struct leaf *leaf);
void *operand_residual_out(const struct leaf *leaf);
/* The one that is written, else the one that is read: for leaves that add to it. */
void *operand_residual_stream(const struct leaf *leaf);
void *operand_role(const struct leaf *leaf, enum buffer_role role);
/* The i-th parameter of the leaf, or the tied one of a HEAD; -1 when there is none. */
int leaf_parameter(const struct leaf *leaf, int i);
const struct module *leaf_module(const struct leaf *leaf);
const struct siblings *leaf_siblings(const struct leaf *leaf);
/* What a norm or a projection reads. */
void *operand_input(const struct leaf *leaf);
void operands_init(struct compute *compute);

/* Enqueued on the operation's stream where a device carries it out. */
void compute_move(
	struct compute *compute, const struct op *op, void *to, const void *from, int64_t bytes);
static inline bool compute_on_device(const struct compute *compute, const struct op *op)
{
	return compute->device != NULL && op->stream != STREAM_HOST;
}

/* --- forward.c, backward.c: leaves [first_module, end_module) of the operation --- */
void forward_leaves(struct compute *compute, const struct op *op);
void backward_leaves(struct compute *compute, const struct op *op);
struct attention leaf_attention(const struct leaf *leaf);
int64_t leaf_stride(const struct leaf *leaf, int64_t out);
void leaf_rope(const struct leaf *leaf, void *x, int64_t heads, int64_t stride, bool inverse);

/* --- exact_sums.c: gradients as sums of 64-bit multiples of 2^-GRADIENT_QUANTUM_BITS ---
 *
 * What contracts over tokens is then computed sequence by sequence into a scratch, and added up in
 * integers, whose order is free: the bits depend on neither micro-batch nor number of ranks. */
bool compute_sums_exactly(const struct compute *compute);
/* Pieces of the micro-batch that gradients are computed in: its sequences, or all in one. */
int64_t gradient_parts(const struct compute *compute);
/* Where this leaf's gradient of a parameter goes: the unit's, or a scratch. `more`: terms lie there
 * already, to be added to; else what lies there means nothing. */
void *gradient_begin(const struct leaf *leaf, int parameter, bool *more);
/* Adds the scratch to the unit's gradient. */
void gradient_end(const struct leaf *leaf, int parameter);
/* Sums of this rank become fp32, in the front half of the buffer. */
void gradient_round(struct compute *compute, int buffer);
/* sum[0..n) += more. */
void gradient_add(int64_t *sum, const int64_t *more, int64_t n);

/* --- optimizer.c --- the first is the update of a step, of no arrays yet */
struct adamw optimizer_adamw(const struct training *training, int64_t step);
bool compute_norm_is_finite(const struct compute *compute, struct error *error);
void compute_norm(struct compute *compute, const struct op *op);
void compute_clip(struct compute *compute, const struct op *op);
void compute_update(struct compute *compute, const struct op *op);
/* Of this step, for the device. */
void compute_factors(const struct compute *compute, struct device_scalars *scalars);

#endif
