/* Shared by the files of this folder: one leaf of an operation, its operands, and its execution. */
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
/* With tensor ranks: the sum that they have made before the operation (the i-th one, if there are
 * several), and the part of a sum that the operation leaves to them. NULL: there is none. */
void *operand_sum(const struct leaf *leaf);
void *operand_sum_at(const struct leaf *leaf, int i);
void *operand_part(const struct leaf *leaf);
/* The gradient of the residual stream, for all tokens. */
void *operand_stream_gradient(const struct leaf *leaf);
void *operand_residual_in(const struct leaf *leaf);
void *operand_residual_out(const struct leaf *leaf);
/* The residual that the operation writes, or else the one that it reads: for leaves that add to it.
 */
void *operand_residual_stream(const struct leaf *leaf);
void *operand_role(const struct leaf *leaf, enum buffer_role role);
/* The rank's input to an exchange of tokens. */
void *operand_exchanged(struct compute *compute, int op);
/* Rows of experts: in the buffer that the operation takes, or in the one that was there before; and
 * in the buffer at that place among those that it uses. */
void *operand_rows(const struct leaf *leaf, bool taken);
void *operand_at(const struct leaf *leaf, int use);
/* Keys that have come from other context ranks; memory for those that are sent to them. */
void *operand_keys(const struct leaf *leaf);
void *operand_sent(const struct leaf *leaf);
/* Memory for copies of operands in fp8, at least that large. */
void *operand_fp8_copies(const struct leaf *leaf, int64_t bytes);
/* The i-th parameter of the leaf, its adapter's not counted; for a HEAD without a weight the tied
 * one. -1: there is none. */
int leaf_parameter(const struct leaf *leaf, int i);
const struct module *leaf_module(const struct leaf *leaf);
const struct siblings *leaf_siblings(const struct leaf *leaf);
/* The tensor that a norm or a projection reads. */
void *operand_input(const struct leaf *leaf);
bool leaf_trains(const struct leaf *leaf, int parameter); /* false for -1 */
void operands_init(struct compute *compute);
/* Copies; on a device it enqueues the copy on the operation's stream. */
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
 * for `rows` of them. */
struct gemm leaf_product(const struct leaf *leaf, void *y);
struct gemm leaf_input_gradient(const struct leaf *leaf, const void *dy, void *dx);
struct gemm leaf_weight_gradient(
	const struct leaf *leaf, const void *dy, const void *x, int64_t rows);
/* Computes a product of a projection, in fp8 where the plan says so (schedule/plan/fp8.h). For
 * gradients A is dy. */
void leaf_multiply(const struct leaf *leaf, const struct gemm *gemm, enum pass pass);
bool leaf_in_fp8(const struct leaf *leaf);
/* Gradients of a projection's parameters; the same and dx (= | +=) dy W. */
void leaf_parameter_gradients(const struct leaf *leaf, const void *dy);
void leaf_project_backward(const struct leaf *leaf, const void *dy, void *dx, bool accumulate);
/* The projections whose dx is one product together with that of `module`. */
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
/* Fills in the addresses and strides of q, k and v. */
void leaf_find_qkv(const struct leaf *leaf, struct attention *attention);
void leaf_rope(const struct leaf *leaf, void *x, int64_t heads, int64_t stride, bool inverse);

/* --- context.c: attention over the tokens of all context ranks --- */

/* The position in its sequence of a token of the rank's micro-batch. */
int64_t compute_position(const struct compute *compute, int64_t token);
/* Puts the rank's input to an exchange together, and returns its address. */
void *context_given(const struct leaf *leaf);
void context_attention(const struct leaf *leaf, const struct attention *attention);
void context_attention_backward(const struct leaf *leaf, const struct attention_backward *backward);
/* Finds, before the first step, which round of a ring each operation computes. */
void context_find_rounds(struct compute *compute);
/* Are queries and keys turned (RoPE) by the leaves that make them, before they are sent? Else by
 * the attention core. */
bool context_turns_at_once(const struct compute *compute);
/* Moves results of attention that came from other ranks to where the output projection reads them.
 */
void context_take_results(const struct leaf *leaf);
/* Do gradients come from other ranks before the leaf's backward? They are taken to where that reads
 * them: dq, dk and dv of `gradients`. */
bool context_returns_gradients(const struct leaf *leaf);
void context_take_gradients(const struct leaf *leaf, const struct attention_backward *gradients);

/* --- exact_sums.c: gradients as sums of 64-bit multiples of 2^-GRADIENT_QUANTUM_BITS ---
 *
 * Gradients that sum over tokens are then computed sequence by sequence into a scratch, and added
 * up as integers, whose order does not matter: the bits depend neither on the micro-batch nor on
 * the number of ranks. */
bool compute_sums_exactly(const struct compute *compute);
/* How many pieces of the micro-batch gradients are computed in: its sequences, or 1. */
int64_t gradient_parts(const struct compute *compute);
/* The place to which this leaf writes its gradient of a parameter: the unit's gradient, or a
 * scratch. *more: it must add to the terms there; else it overwrites. */
void *gradient_begin(const struct leaf *leaf, int parameter, bool *more);
/* Adds the scratch to the unit's gradient. */
void gradient_end(const struct leaf *leaf, int parameter);
/* Rounds the sums of this rank to fp32, in place: they take the front half of the buffer. */
void gradient_round(struct compute *compute, int buffer);
/* sum[0..n) += more. */
void gradient_add(int64_t *sum, const int64_t *more, int64_t n);

/* --- tables.c --- */
void backward_embedding(const struct leaf *leaf);
void backward_position_embedding(const struct leaf *leaf);

/* --- loss.c --- */
void compute_loss(struct compute *compute, const struct op *op);
/* Adds up the losses of `rows` tokens from the `first` of the micro-batch on, and overwrites their
 * logits with gradients. */
void leaf_loss(const struct leaf *leaf, void *logits, float *losses, int64_t first, int64_t rows);
/* Fills `part` with what the loss needs of this rank's part of the vocabulary; the other tensor
 * ranks do the same with theirs. */
void leaf_loss_part(const struct leaf *leaf, void *logits, float *part);

/* --- optimizer.c --- */
bool compute_norm_is_finite(const struct compute *compute, struct error *error);
void compute_norm(struct compute *compute, const struct op *op);
void compute_clip(struct compute *compute, const struct op *op);
void compute_update(struct compute *compute, const struct op *op);
/* The constants of this step's update, for the device. */
void compute_factors(const struct compute *compute, struct device_scalars *scalars);

#endif
