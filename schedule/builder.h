/* Private to schedule/: the state while a schedule is built. build.c drives; gather.c, forward.c,
 * backward.c, reduce.c, optimizer.c and ddp.c emit operations through emit.c. */
#ifndef SCHEDULE_BUILDER_H
#define SCHEDULE_BUILDER_H

#include "schedule/schedule.h"

enum { NORM_SCALAR_BYTES_EXACT = 576, NORM_SCALAR_BYTES = 4 };

/* An operation of this step or of an earlier one; op < 0: none. */
struct ref {
	int step, op;
};

/* Operations of forward order at module granularity: unit boundaries, and runs of leaves between
 * them. Backward walks the same list in reverse. */
enum event_kind { EVENT_ENTER, EVENT_RANGE, EVENT_EXIT };
struct event {
	enum event_kind kind;
	int unit;
	int first_module, end_module, layer; /* RANGE */
	int slot; /* RANGE: -1 embeddings, l block l, L final norm and head */
	bool first_of_slot, last_of_slot;
};

struct unit_state {
	int unsharded;     /* buffer that compute reads parameters from; -1 = not gathered */
	int gathered;      /* FSDP2: buffer before copy-out; -1 */
	int low_precision; /* FSDP1/2: cast shard on its way into a gather; -1 */
	int resharded;     /* FSDP2, reshard to a group: -1 */
	struct ref ready;  /* the operation after which compute may read `unsharded` */
	bool prefetched;
	bool backward_began; /* in this micro-batch: nothing left to prefetch for */
	int parameter_shard, optimizer_state; /* resident */
	int gradient_shard;
	int gradient;     /* whole-unit gradient (shardplan; FSDP1's flat; FSDP2's accumulator) */
	int reduce_input; /* on its way into a reduction */
	int *range_gradients, n_range_gradients; /* per-parameter gradients, one buffer a range */
	int range_capacity;
	struct ref reduced; /* the last operation that wrote gradient_shard */
	int pre_forward_index, post_forward_index; /* position in the hook orders; -1 */
};

struct list {
	int *items;
	int n, capacity;
};

struct builder {
	struct arena *arena;
	struct schedule *schedule;
	const struct plan *plan;
	const struct model *model;
	const struct topology *topology;
	const struct runtime *runtime;
	struct activation_rules rules;
	bool shards, casts;    /* parameters are sharded; compute dtype is not the master dtype */
	int64_t reshard_group; /* as plan_reshard_group */
	int group_gather, group_reduce, group_replicate, group_reshard; /* -1: none */

	/* the walk */
	struct event *events;
	int n_events;
	int *pre_order, *post_order, n_order; /* units in forward hook order */
	struct unit_state *units;
	int n_units;

	/* the step that is being emitted */
	int step, micro_batch;
	bool last_micro_batch, synchronise;
	struct ref last_on_stream[STREAM_COUNT];
	int n_ops, op_capacity;
	struct op *ops;
	struct list indices;
	int n_buffers, buffer_capacity;
	struct buffer *buffers;
	int n_resident;
	int kernel_workspace; /* resident buffer, -1 */

	/* the operation that is being emitted */
	struct op op;
	struct list waits, host_waits, takes, gives, uses;
	struct list pending_host_waits; /* limiter waits that the next operation inherits */

	/* per micro-batch */
	int *residuals; /* [layers + 1]: input of block l, input of the head; -1 */
	int *saved;     /* per event: activations, forward_work or recomputed buffer; -1 */
	int tokens, logits, backward_work;
	int *copies;              /* DDP, per event: cached low-precision weights; -1 */
	int *range_gradients;     /* DDP, per event; -1 */
	int *owner_events;        /* DDP, per parameter */
	struct ref copied_out;    /* FSDP2: the last copy-out, */
	struct ref gathers_after; /* and the one that later gathers wait for */
	int implicit_gathered; /* FSDP2: unit whose gathered buffer the next copy-out releases; -1
				*/
	struct ref reduce_in_flight; /* FSDP2: the last reduction, */
	int reduce_input_in_flight;  /* and its input; -1 */
	bool in_backward;
	int delayed_post_backward; /* FSDP1 with forward prefetch: unit; -1 */
	struct ref optimizer;      /* the last OPTIMIZER operation */

	/* FSDP1's rate limiter: frees that have not been waited for, oldest first. Lives across
	 * steps. */
	struct ref *limiter;
	int n_limiter, limiter_capacity;
};

/* --- emit.c -------------------------------------------------------------------------------------
 */
void op_begin(struct builder *b, enum op_kind kind, enum stream stream, int unit);
void op_wait(struct builder *b, struct ref ref); /* nothing for no ref or the same stream */
void op_wait_stream(struct builder *b, enum stream stream); /* for all issued there so far */
void op_use(struct builder *b, int buffer);                 /* nothing for -1 */
void op_take(struct builder *b, int buffer);
void op_give(struct builder *b, int buffer);
struct ref op_end(struct builder *b);
struct ref no_ref(void);
/* The pool is the stream that the taking operation runs on. */
int buffer_new(struct builder *b, enum buffer_role role, enum stream pool, int unit, int64_t bytes,
	enum dtype dtype);
int buffer_resident(
	struct builder *b, enum buffer_role role, int unit, int64_t bytes, enum dtype dtype);
void list_add(struct list *list, int item);

/* --- walk.c -------------------------------------------------------------------------------------
 */
/* Fills events, hook orders. */
void build_walk(struct builder *b);

/* --- gather.c -----------------------------------------------------------------------------------
 */
void gather_pre_forward(struct builder *b, int unit);
void gather_post_forward(struct builder *b, int unit);
void gather_pre_backward(struct builder *b, int unit);
/* After the unit's backward: frees the parameters, then prefetches (BACKWARD_POST). */
void gather_post_backward(struct builder *b, int unit);
/* Recomputing a block needs all its units at once. */
void gather_for_recompute(struct builder *b, int unit);
/* Adds the buffer that holds a unit's parameters for compute to the operation, and the wait. */
void op_use_parameters(struct builder *b, int unit);

/* --- forward.c, backward.c ----------------------------------------------------------------------
 */
void op_set_range(struct builder *b, const struct event *event);
/* What the range's compute reads its parameters from. */
void op_use_weights(struct builder *b, int event);
/* A buffer for the saved tensors of a range; -1 when it saves nothing. */
int saved_new(struct builder *b, enum buffer_role role, const struct event *event);
/* The first range of the event's slot. */
int slot_begin(const struct builder *b, int event);
/* Adds the saved tensors of a range, its own first, then those of earlier ranges of its slot. */
void op_use_slot(struct builder *b, int event);
void forward_range(struct builder *b, int event);
void loss(struct builder *b);
void backward_event(struct builder *b, int event);

/* --- reduce.c -----------------------------------------------------------------------------------
 */
/* Buffers and traffic from the backward of a range to the unit's gradient. */
void gradient_take(struct builder *b, int unit, const struct event *range);
/* FSDP1's autograd split: the flat gradient of a unit. */
void gradient_flatten(struct builder *b, int unit);
void gradient_reduce(struct builder *b, int unit);
int64_t range_parameters(const struct builder *b, const struct event *range);
/* Elements of the gradient that the range's backward leaves behind. What it only adds to the
 * gradient of a tied weight is a buffer of that operation alone. */
int64_t gradient_elements(struct builder *b, const struct event *range, enum dtype dtype);

/* --- optimizer.c --------------------------------------------------------------------------------
 */
void optimizer_step(struct builder *b);
/* FSDP2, after every backward: compute waits for the last reduction, whose input is released. */
void end_backward(struct builder *b);
/* Bytes of device memory that one parameter's update moves. */
double optimizer_traffic(enum optimizer optimizer);

/* --- ddp.c --------------------------------------------------------------------------------------
 */
bool is_ddp(const struct builder *b);
void ddp_prepare(struct builder *b);
void ddp_pre_range(struct builder *b, int event); /* before its forward: the cached cast */
void ddp_use_weights(struct builder *b, int event);
void ddp_gradients(struct builder *b, int event);
void ddp_post_range(struct builder *b, int event); /* after its backward: full buckets leave */
void ddp_finish_backward(struct builder *b);
void ddp_use_gradients(struct builder *b);
void ddp_give_gradients(struct builder *b);

#endif
