/* Private to passes: one action becomes one operation. For every kind there is a function that
 * names its buffers: in lower_compute.c, lower_parameters.c, lower_gradients.c, lower_buckets.c,
 * lower_leaves.c, lower_tokens.c and lower_update.c, or beside the pass that adds the action. */
#ifndef SCHEDULE_LOWER_H
#define SCHEDULE_LOWER_H

#include "schedule/passes/sizes.h"

/* The squared norm of gradients: an exact sum (72 limbs of 8 bytes, struct exact_sum of kernels/),
 * or fp32. */
enum { NORM_SCALAR_BYTES_EXACT = 72 * 8, NORM_SCALAR_BYTES = 4 };

/* The units that hold parameters of a module are all in [first, end); end 0: there are none. */
struct holders {
	int first, end;
};

/* The modules that a unit's parameters are in. */
struct reach {
	int first_module, end_module; /* 0, 0: not found out yet */
	bool in_order;                /* its slices have the order of modules */
};

/* Buffers of a unit that are alive; -1: none. */
struct live {
	int unsharded;     /* compute reads the parameters from it */
	int gathered;      /* the output of the gather, which is copied to `unsharded` (FSDP2) */
	int staged;        /* offload: the shard's copy on the device */
	int low_precision; /* the cast shard, the input of the gather */
	int resharded;     /* the part that is kept over a smaller group */
	int gradient;      /* of the whole unit: ours, FSDP1's flat one, FSDP2's accumulator */
	int reducing;      /* the input of the reduction that is under way */
	int partial;       /* the sum over the shard group of earlier micro-batches */
	int gradient_shard, host_gradient;
	struct numbers range_gradients; /* gradients of parameters, one buffer for each range */
};

/* Tensors of one micro-batch between its forward and its backward; -1: none. */
struct flight {
	int *saved;     /* per range: activations, what checkpointing drops, or recomputed ones */
	int *results;   /* per range: what selective checkpointing keeps */
	int *outputs;   /* per range: gradients that the weight part of backward reads */
	int *copies;    /* per range: cached low-precision weights */
	int *residuals; /* [layers + 1] input of each block, then input of the head */
	int tokens, logits, backward_work;
	int stage_work;         /* our runtime in a pipeline, whose backward_work is the message */
	int gathered[2];        /* tokens of all tensor ranks: of a gradient, of an input */
	int partial;            /* sums that tensor ranks have yet to add up */
	int keys, partial_keys; /* keys of all context ranks; their gradients */
	int received;           /* the gradient of the stage's output, from the next stage */
	int *rows;              /* per range: the rows that its experts compute */
	int rows_leaving;       /* results of experts on their way back */
	int rows_returned;      /* gradients that have come back */
};

struct lowering {
	struct step *step;
	const struct action *at;
	struct op op;
	struct numbers takes, gives, uses;
	struct numbers users; /* [buffers] the last operation that uses it */

	struct live *units;
	struct reach *reaches;   /* [units] */
	struct holders *holders; /* [modules] NULL: not found out yet */
	bool has_frozen;         /* there are units of frozen parameters */
	struct flight *flights;
	struct backward_work work;
	int *range_gradients;   /* [ranges] where gradients are reduced in buckets */
	int collector;          /* ZeRO-1 and -2: the buffer that gradients are collected in */
	int implicit_gathered;  /* FSDP2: the gathered buffer that the next copy-out releases */
	int input_in_flight;    /* FSDP2: the input of the last reduction */
	int scalars;            /* of the gradient norm */
	struct numbers leaving; /* activations that are being copied out */
	/* Attention in rounds over a ring: blocks of keys, the last of which may be under way; the
	 * results of the rounds so far; gradients of keys that came from the rank before, and those
	 * that the last round has computed and that are added to them. */
	struct numbers blocks;
	int results, sums, found;
	int *handed; /* [stages of the rank x micro-batches] the buffer that its next pass takes */
	struct numbers shared; /* buffers that the flights of two stages share */
};

/* Adds a buffer to those that the operation uses, unless it is -1 or among them already. */
void op_use(struct lowering *l, int buffer);
/* The same without a check if it is already used, for callers that add very many. */
void op_use_another(struct lowering *l, int buffer);
void op_take(struct lowering *l, int buffer);
/* Gives the buffer back and sets *buffer to -1. A shared one goes when it is given a second time.
 */
void op_give(struct lowering *l, int *buffer);
/* Takes and uses a new buffer, from the pool of the compute stream or of `pool`. */
int op_take_new(
	struct lowering *l, enum buffer_role role, int unit, int64_t bytes, enum dtype dtype);
int op_take_on(struct lowering *l, enum buffer_role role, enum stream pool, int unit, int64_t bytes,
	enum dtype dtype);
/* Note that the operation, or a buffer, belongs to the leaves of a range. */
void op_set_range(struct lowering *l, int range);
void buffer_set_range(struct lowering *l, int buffer, int range);
struct flight *flight_of(struct lowering *l);
struct live *live_of(struct lowering *l);
int64_t compute_bytes(const struct lowering *l);
int64_t reduce_bytes(const struct lowering *l);
int64_t master_bytes(const struct lowering *l);

/* Takes the buffer of the gradient that the range's backward leaves behind, and returns its
 * elements. A part that is only added to the gradient of a tied weight lives as long as the
 * operation. */
int64_t op_take_gradient_elements(struct lowering *l, int range, enum dtype dtype);
/* Uses the saved tensors of the range, then those of earlier ranges of its slot. */
void op_use_slot(struct lowering *l);
/* Makes the operation an exchange of tokens: it belongs to the leaves of its range and to no unit.
 */
void op_set_exchange(struct lowering *l, int group, int64_t bytes);
/* Uses the gradient of the residual stream; at the end of a stage that is the received one. */
void op_use_stream_gradient(struct lowering *l);
/* Gives back, at the end of a forward range, what checkpointing drops. */
void op_give_dropped(struct lowering *l);
/* Uses, takes and gives what a round of attention computes with. */
void op_use_round(struct lowering *l);
/* After all rounds: the gradients of the rank's own keys have come back to it. */
void op_end_ring(struct lowering *l);
void op_take_unit_gradient(struct lowering *l);
void op_take_bucket_gradient(struct lowering *l);
void op_use_bucket_weights(struct lowering *l, int range, int copy);
void op_give_all_bucket_gradients(struct lowering *l);
void op_use_all_bucket_gradients(struct lowering *l);

void lower_gradient_done(struct live *live);
/* Between stages of one rank. */
void lower_hand_over(struct lowering *l);
void lower_take_over(struct lowering *l);

#define X(suffix, kind, stream, ...) void lower_##suffix(struct lowering *l);
ACTIONS(X)
#undef X

#endif
