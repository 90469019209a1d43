/* What the files of this room share: one leaf of an operation, its operands, and what carries
 * operations out. */
#ifndef EXECUTOR_COMPUTE_LEAF_H
#define EXECUTOR_COMPUTE_LEAF_H

#include "executor/compute/compute.h"

/* One leaf of one operation. */
struct leaf {
	struct compute *compute;
	const struct op *op;
	int module;
};

/* Element i of tokens or activations; NULL stays NULL. */
void *compute_at(const struct compute *compute, const void *activations, int64_t i);

/* --- operands.c: addresses, or NULL with compute->error set --- */
void *operand_parameter(const struct leaf *leaf, int parameter);
void *operand_gradient(const struct leaf *leaf, int parameter);
void *operand_saved(const struct leaf *leaf, int module, enum tensor_role role);
void *operand_work(const struct leaf *leaf, enum tensor_role role);
/* Tensor ranks: what they have summed before the operation, and what it leaves them to sum, or to
 * put together; NULL: nothing. */
void *operand_sum(const struct leaf *leaf);
/* Several of these, from 0 on; NULL behind the last. */
void *operand_sum_at(const struct leaf *leaf, int i);
void *operand_part(const struct leaf *leaf);
/* Of the residual stream, of all tokens. */
void *operand_stream_gradient(const struct leaf *leaf);
void *operand_residual_in(const struct leaf *leaf);
void *operand_residual_out(const struct leaf *leaf);
/* The one that is written, else the one that is read: for leaves that add to it. */
void *operand_residual_stream(const struct leaf *leaf);
void *operand_role(const struct leaf *leaf, enum buffer_role role);
/* What a rank gives in an exchange of tokens. */
void *operand_exchanged(struct compute *compute, int op);
/* Rows of experts that the operation takes, or that were there; and by their place among what it
 * uses. */
void *operand_rows(const struct leaf *leaf, bool taken);
void *operand_at(const struct leaf *leaf, int use);
/* What has come from other context ranks; what is put together for them. */
void *operand_keys(const struct leaf *leaf);
void *operand_sent(const struct leaf *leaf);
/* Memory for so many bytes of copies in fp8. */
void *operand_fp8_copies(const struct leaf *leaf, int64_t bytes);
/* The i-th parameter of the leaf but its adapter's, or the tied one of a HEAD; -1 when there is
 * none.
 */
int leaf_parameter(const struct leaf *leaf, int i);
const struct module *leaf_module(const struct leaf *leaf);
const struct siblings *leaf_siblings(const struct leaf *leaf);
/* What a norm or a projection reads. */
void *operand_input(const struct leaf *leaf);
bool leaf_trains(const struct leaf *leaf, int parameter); /* false for -1 */
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
/* The head with its loss, chunk by chunk, in backward (plan_chunks_head). */
void backward_chunked_head(const struct leaf *leaf);

/* --- products.c --- */
/* Products of a projection: y = x W^T and dx = dy W for all tokens of the micro-batch, dW = dy^T x
 * for so many rows. */
struct gemm leaf_product(const struct leaf *leaf, void *y);
struct gemm leaf_input_gradient(const struct leaf *leaf, const void *dy, void *dx);
struct gemm leaf_weight_gradient(
	const struct leaf *leaf, const void *dy, const void *x, int64_t rows);
int64_t leaf_stride(const struct leaf *leaf, int64_t out);
/* A product of a projection, in fp8 where the plan has it so (schedule/plan/fp8.h); of gradients A
 * is dy. */
void leaf_multiply(const struct leaf *leaf, const struct gemm *gemm, enum pass pass);
bool leaf_in_fp8(const struct leaf *leaf);
/* Of a projection: gradients of its parameters; these, and dx (= | +=) dy W. */
void leaf_parameter_gradients(const struct leaf *leaf, const void *dy);
void leaf_project_backward(const struct leaf *leaf, const void *dy, void *dx, bool accumulate);
/* Those whose dx is one product with that of a module. */
struct joined leaf_joined_with(const struct leaf *leaf, int module);

/* --- adapters.c: `base` is y = x W^T, `to_input` dx = dy W, which came before --- */
void *leaf_compress(const struct leaf *leaf, const struct gemm *base);
void leaf_adapt(const struct leaf *leaf, const struct gemm *base);
void leaf_adapter_backward(const struct leaf *leaf, const struct gemm *to_input);

/* --- experts.c --- */
void experts_init(struct compute *compute);
void forward_router(const struct leaf *leaf);
void forward_experts_projection(const struct leaf *leaf);
void forward_experts_activation(const struct leaf *leaf);
void forward_experts_down(const struct leaf *leaf);
void backward_router(const struct leaf *leaf);
void backward_experts_projection(const struct leaf *leaf);
void backward_experts_activation(const struct leaf *leaf);
void backward_experts_down(const struct leaf *leaf);

/* --- attention.c --- */
struct attention leaf_attention(const struct leaf *leaf);
/* Where q, k and v are. */
void leaf_find_qkv(const struct leaf *leaf, struct attention *attention);
void leaf_rope(const struct leaf *leaf, void *x, int64_t heads, int64_t stride, bool inverse);

/* --- context.c: attention over the tokens of all context ranks --- */

/* The position in its sequence of a token of the rank's micro-batch. */
int64_t compute_position(const struct compute *compute, int64_t token);
/* What the rank gives in an exchange, put together where it lies. */
void *context_given(const struct leaf *leaf);
void context_attention(const struct leaf *leaf, const struct attention *attention);
void context_attention_backward(const struct leaf *leaf, const struct attention_backward *backward);
/* Before the first step: which round of a ring an operation is. */
void context_find_rounds(struct compute *compute);
/* Queries and keys are turned by who makes them, before they are sent. */
bool context_turns_at_once(const struct compute *compute);
/* What came for the projection behind attention, to where it reads it. */
void context_take_results(const struct leaf *leaf);
/* Do gradients come from other ranks before the leaf's backward? They are taken to where that reads
 * them: dq, dk and dv of `gradients`. */
bool context_returns_gradients(const struct leaf *leaf);
void context_take_gradients(const struct leaf *leaf, const struct attention_backward *gradients);

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

/* --- tables.c --- */
void backward_embedding(const struct leaf *leaf);
void backward_position_embedding(const struct leaf *leaf);

/* --- loss.c --- */
void compute_loss(struct compute *compute, const struct op *op);
/* Losses of so many tokens from the `first` of the micro-batch on, which are added up; their logits
 * become gradients. */
void leaf_loss(const struct leaf *leaf, void *logits, float *losses, int64_t first, int64_t rows);
/* What the loss needs of the logits of the rank's part of the vocabulary, whose other parts come
 * from the other tensor ranks. */
void leaf_loss_part(const struct leaf *leaf, void *logits, float *part);

/* --- optimizer.c --- */
bool compute_norm_is_finite(const struct compute *compute, struct error *error);
void compute_norm(struct compute *compute, const struct op *op);
void compute_clip(struct compute *compute, const struct op *op);
void compute_update(struct compute *compute, const struct op *op);
/* Of this step, for the device. */
void compute_factors(const struct compute *compute, struct device_scalars *scalars);

#endif
