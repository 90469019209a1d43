/* Private to passes: how many bytes a range, the loss and backward need; what a leaf is to the
 * ranks that divide it. */
#ifndef SCHEDULE_SIZES_H
#define SCHEDULE_SIZES_H

#include "schedule/passes/step.h"

/* Of the tensors that a range saves, or that are computed again; ranges before it are filled. */
int64_t range_saved_bytes(const struct step *step, int range);
/* Of what selective checkpointing keeps of a range. */
int64_t range_kept_bytes(const struct step *step, int range);
/* Of the gradients of what its leaves return, that the weight part of backward reads. */
int64_t range_output_gradient_bytes(const struct step *step, int range);
int64_t residual_bytes(const struct step *step);
/* What one rank sends to the next stage. */
int64_t message_bytes(const struct step *step);
int64_t tokens_bytes(const struct step *step);
int64_t logits_bytes(const struct step *step);
/* Payloads of what ranks exchange that divide the model: the residual stream of all tensor ranks;
 * one figure a token in the loss; keys and values of all context ranks. */
int64_t exchanged_tokens_bytes(const struct step *step);
int64_t exchanged_loss_bytes(const struct step *step);
enum { LOSS_PARTS = 3 }; /* such figures, of a part of the vocabulary */
int64_t exchanged_keys_bytes(const struct step *step);
/* A ring: keys and values of one rank; their gradients; results of rounds until they are merged. */
int64_t key_block_bytes(const struct step *step);
int64_t ring_sums_bytes(const struct step *step);
int64_t ring_results_bytes(const struct step *step);
/* Heads of all of a rank's tokens: what attention reads, or its result. */
int64_t exchanged_heads_bytes(const struct step *step, bool of_input);
/* The same in backward where not of forward: results and their gradients; ours sends beside them
 * what forward had sent, rather than keep what had come. */
int64_t cut_heads_bytes(const struct step *step, bool of_input);
/* What attention, backward or not, leaves for the ranks that its tokens came from. */
int64_t left_keys_bytes(const struct step *step, bool is_back);
/* Rows that a rank sends to experts; that come from other expert ranks, and that its own get, of
 * the fullest rank; what as many bytes of rows are weighed with; how many for each. */
int64_t sent_rows_bytes(const struct step *step);
int64_t arrived_rows_bytes(const struct step *step);
int64_t received_rows_bytes(const struct step *step);
int64_t row_room_bytes(const struct step *step); /* there is memory for so many that come */
int64_t row_weights_bytes(const struct step *step, int64_t bytes);
int64_t row_counts_bytes(const struct step *step);
/* Beyond the logits. */
int64_t loss_work_bytes(const struct step *step);

/* The whole of what backward works with, and two parts of it: the residual stream's gradient and
 * the widest gradient inside a block. */
struct backward_work {
	int64_t all, residual, widest;
};
struct backward_work backward_work_of(const struct step *step);

/* Elements. */
int64_t range_parameters(const struct step *step, int range);
/* Of a tied weight, backward meets the head first. The embedding's own part is added to what is
 * there: it lives for one operation only. Elements of the range that are such. */
int64_t range_tied_parameters(const struct step *step, int range);
/* Bytes of all of the unit's parameters, whole. */
int64_t unit_whole_bytes(const struct step *step, int unit);
/* Do tensor ranks have its parameters alike, and each a part of their gradient? */
bool leaf_is_partial(const struct step *step, int module);
/* Of the stage's buckets, trained parameters of which this is so. */
int64_t partial_parameters(const struct step *step);

/* Asynchronous tensor parallelism: on which side of a block's product tokens are exchanged, beside
 * which it may be computed. */
enum side { SIDE_NONE, SIDE_INPUT, SIDE_OUTPUT };
enum side leaf_side(const struct step *step, int leaf);

#endif
