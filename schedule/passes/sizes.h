/* Private to passes: bytes of the tensors that ranges, the loss and backward work with, and of what
 * ranks exchange. All are of one micro-batch and one rank. */
#ifndef SCHEDULE_SIZES_H
#define SCHEDULE_SIZES_H

#include "schedule/passes/step.h"

/* Tensors that a range saves, or that are computed again. Ranges before it must have been filled.
 */
int64_t range_saved_bytes(const struct step *step, int range);
/* Tensors of a range that selective checkpointing keeps. */
int64_t range_kept_bytes(const struct step *step, int range);
/* Gradients of the outputs of its leaves, which the weight part of backward reads. */
int64_t range_output_gradient_bytes(const struct step *step, int range);
int64_t residual_bytes(const struct step *step);
/* The bytes that one rank sends to the next stage. */
int64_t message_bytes(const struct step *step);
int64_t tokens_bytes(const struct step *step);
int64_t logits_bytes(const struct step *step);
/* The bytes needed to compute the loss, beside the logits. */
int64_t loss_work_bytes(const struct step *step);

/* --- payloads of exchanges (the full size, as in struct op) --- */

/* The residual stream of all tensor ranks. */
int64_t exchanged_tokens_bytes(const struct step *step);
/* One figure for each token in the loss, of which a part of the vocabulary has LOSS_PARTS. */
int64_t exchanged_adapter_bytes(const struct step *step);
int64_t exchanged_loss_bytes(const struct step *step);
enum { LOSS_PARTS = 3 };
/* Keys and values of all context ranks. */
int64_t exchanged_keys_bytes(const struct step *step);
/* A ring of context ranks: keys and values of one rank; their gradients; the results of rounds
 * until they are merged. */
int64_t key_block_bytes(const struct step *step);
int64_t ring_sums_bytes(const struct step *step);
int64_t ring_results_bytes(const struct step *step);
/* All-to-all over context ranks: the input of attention, or its result, for all heads of the rank's
 * tokens. */
int64_t exchanged_heads_bytes(const struct step *step, bool of_input);
/* The bytes sent at once: in forward (of_input) the input; in backward the gradient of the result.
 * Our own runtime also sends input and result again, which it does not keep. */
int64_t cut_heads_bytes(const struct step *step, bool of_input);
/* The bytes that attention sends back to the ranks from which its tokens came. */
int64_t left_keys_bytes(const struct step *step, bool is_back);
/* Rows of experts: those that a rank sends; those that come to the fullest rank from others; those
 * that ranks gather, or tokens; what comes back; what there is memory for of what leaves. */
int64_t sent_rows_bytes(const struct step *step);
int64_t arrived_rows_bytes(const struct step *step);
int64_t gathered_rows_bytes(const struct step *step);
int64_t returned_rows_bytes(const struct step *step);
int64_t row_room_bytes(const struct step *step);
/* The routing weights of `bytes` bytes of rows; the number of rows for each expert. */
int64_t row_weights_bytes(const struct step *step, int64_t bytes);
int64_t row_counts_bytes(const struct step *step);

/* The tensors that backward works with: all of them, and three parts of these: the gradient of the
 * residual stream, the widest gradient inside a block, and what the weighed sum of experts' results
 * needs in fp32. */
struct backward_work {
	int64_t all, residual, widest, results;
};
struct backward_work backward_work_of(const struct step *step);

/* --- parameters --- */

/* Elements of the parameters of a range. */
int64_t range_parameters(const struct step *step, int range);
/* The parameters among them of a tied embedding. Backward reaches the head first and leaves its
 * gradient, to which that of the embedding is added, so the embedding's buffer lives for one
 * operation only. */
int64_t range_tied_parameters(const struct step *step, int range);
/* Bytes of all parameters of a unit, unsharded. */
int64_t unit_whole_bytes(const struct step *step, int unit);
/* Do tensor ranks have equal parameters of this leaf, and each only a part of their gradient? */
bool leaf_is_partial(const struct step *step, int module);
/* Elements of such parameters, trained ones, in the buckets of the stage. */
int64_t partial_parameters(const struct step *step);

/* Asynchronous tensor parallelism: on which side of a block's product tokens are exchanged, so that
 * the product can run beside the exchange. */
enum side { SIDE_NONE, SIDE_INPUT, SIDE_OUTPUT };
enum side leaf_side(const struct step *step, int leaf);

#endif
