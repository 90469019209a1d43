/* Private to passes: one action becomes one operation. For every kind there is a function that
 * names its buffers: in lower_compute.c, lower_parameters.c, lower_gradients.c, lower_buckets.c,
 * lower_leaves.c, lower_tokens.c, lower_activations.c and lower_update.c. */
#ifndef SCHEDULE_LOWER_H
#define SCHEDULE_LOWER_H

#include "schedule/passes/sizes.h"

enum { NORM_SCALAR_BYTES_EXACT = 576, NORM_SCALAR_BYTES = 4 };

/* Units that hold parameters of a module: all are in [first, end); end 0: there is none. */
struct holders {
	int first, end;
};

/* The modules that a unit's parameters are in. */
struct reach {
	int first_module, end_module; /* 0, 0: not looked at so far */
	bool in_order;                /* of its slices */
};

/* Buffers of a unit that are alive; -1: none. */
struct live {
	int unsharded;     /* what compute reads parameters from */
	int gathered;      /* what they are copied out of */
	int staged;        /* the shard's copy on the device */
	int low_precision; /* the cast shard, on its way into a gather */
	int resharded;     /* the part of a smaller group */
	int gradient;      /* of the whole unit: ours, FSDP1's flat one, FSDP2's accumulator */
	int reducing;      /* what is on its way through a reduction */
	int partial;       /* what earlier micro-batches have reduced over the shard group */
	int gradient_shard, host_gradient;
	struct numbers range_gradients; /* per-parameter gradients, one buffer a range */
};

/* Tensors of one micro-batch between its forward and its backward; -1: none. */
struct flight {
	int *saved;     /* per range: activations, what checkpointing drops, or recomputed ones */
	int *results;   /* per range: what selective checkpointing keeps */
	int *outputs;   /* per range: gradients that the weight part of backward reads */
	int *copies;    /* per range: cached low-precision weights */
	int *residuals; /* input of block l, input of the head */
	int tokens, logits, backward_work;
	int stage_work;                  /* ours, in a pipeline: backward_work is the message */
	int gathered[2];                 /* tokens of all tensor ranks: a gradient, an input */
	int partial;                     /* that tensor ranks have yet to add up */
	int keys, partial_keys;          /* of all context ranks; gradients of them */
	int received;                    /* the gradient of what the stage returned */
	int *rows;                       /* per range: for its experts */
	int rows_leaving, rows_returned; /* on their way back; gradients that have come back */
};

struct lowering {
	struct step *step;
	const struct action *at;
	struct op op;
	struct numbers takes, gives, uses;
	struct numbers users; /* by buffer: the last operation that uses it */

	struct live *units;
	struct reach *reaches;   /* by unit */
	struct holders *holders; /* by module; NULL: not looked for yet */
	bool has_frozen;         /* units */
	struct flight *flights;
	struct backward_work work;
	int *range_gradients;   /* buckets, per range */
	int collector;          /* ZeRO with whole parameters */
	int implicit_gathered;  /* FSDP2: what the next copy-out releases */
	int input_in_flight;    /* FSDP2: of the last reduction */
	int scalars;            /* of the gradient norm */
	struct numbers leaving; /* activations that are being copied out */
	struct numbers blocks;  /* of keys, of a ring's rounds: the last one may be under way */
	int results, sums;      /* of a ring: of its rounds; gradients of keys that have come, */
	int found;              /* and those that the last round has found, to go there */
	int *handed; /* by stage of the rank and micro-batch: what its next pass takes over */
	struct numbers shared; /* buffers that the flights of both stages have */
};

void op_use(struct lowering *l, int buffer); /* nothing for -1, and once only */
/* One of very many that are all different: no search for it among them. */
void op_use_another(struct lowering *l, int buffer);
void op_take(struct lowering *l, int buffer);
/* The buffer becomes -1. Of a shared one it is the second time that counts. */
void op_give(struct lowering *l, int *buffer);
/* A new buffer of the compute stream's pool, or of the operation's; taken and used. */
int op_take_new(
	struct lowering *l, enum buffer_role role, int unit, int64_t bytes, enum dtype dtype);
int op_take_on(struct lowering *l, enum buffer_role role, enum stream pool, int unit, int64_t bytes,
	enum dtype dtype);
/* The operation and a buffer of it belong to the leaves of a range. */
void op_set_range(struct lowering *l, int range);
void buffer_set_range(struct lowering *l, int buffer, int range);
struct flight *flight_of(struct lowering *l);
struct live *live_of(struct lowering *l);
int64_t compute_bytes(const struct lowering *l);
int64_t reduce_bytes(const struct lowering *l);
int64_t master_bytes(const struct lowering *l);

/* Elements of the gradient that the range's backward leaves behind. What it only adds to the
 * gradient of a tied weight is a buffer of that operation alone. */
int64_t op_take_gradient_elements(struct lowering *l, int range, enum dtype dtype);
/* The saved tensors of the range, its own first, then those of earlier ranges of its slot. */
void op_use_slot(struct lowering *l);
/* An exchange belongs to the leaves of its range, and is of no unit: no parameters move. */
void op_set_exchange(struct lowering *l, int group, int64_t bytes);
/* Of the residual stream; at the end of a stage what has come. */
void op_use_stream_gradient(struct lowering *l);
/* Of forward, where the range ends. */
void op_give_dropped(struct lowering *l);
/* Attention in rounds: what a round computes with, takes and gives. */
void op_use_round(struct lowering *l);
/* Behind attention in rounds: gradients of the rank's own keys have come home. */
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
