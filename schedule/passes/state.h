/* Private to schedule/: the state while a schedule is built. */
#ifndef SCHEDULE_BUILD_STATE_H
#define SCHEDULE_BUILD_STATE_H

#include "schedule/program/program.h"

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
	int resharded;     /* reshard to a smaller group: -1 */
	int group_reshard; /* -1: none */
	struct ref ready;  /* the operation after which compute may read `unsharded` */
	int kept;          /* ours, ZeRO-1 and -2: `unsharded` between steps too, resident; -1 */
	/* resident: what gradients are accumulated in (nanotron), what they are reduced to (ZeRO-3)
	 */
	int kept_gradient, kept_gradient_shard;
	bool prefetched;
	bool backward_began; /* in this micro-batch: nothing left to prefetch for */
	int parameter_shard, optimizer_state; /* resident */
	int gradient_shard;
	/* CPU offload; -1 */
	int staged;                            /* the shard's copy on the device */
	int host_gradient, kept_host_gradient; /* kept: resident */
	int master_shard, host_low_precision;  /* resident */
	struct ref returned; /* the copy that brought back what the host had updated */
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

/* ZeRO-3 as DeepSpeed does it. */
struct zero3 {
	struct list trace;   /* units in the order of use in one micro-batch, */
	int position, queue; /* how far it has come, and prefetching */
	int64_t live;        /* gathered elements */
	struct list bucket;  /* units whose gradients are collected */
	int64_t bucket_elements;
	struct ref reductions[4];
	int n_reductions;
};

struct builder {
	struct arena *arena;
	struct schedule *schedule;
	const struct plan *plan;
	const struct model *model;
	const struct topology *topology;
	const struct runtime *runtime;
	struct activation_rules rules;
	bool shards, casts; /* parameters are sharded; compute dtype is not the master dtype */
	enum checkpointing *checkpointing;               /* per block */
	int group_gather, group_reduce, group_replicate; /* -1: none */

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
	int *residuals;       /* [layers + 1]: input of block l, input of the head; -1 */
	int64_t *saved_bytes; /* per event: of what its range saves; -1 = not computed yet */
	int *saved;           /* per event: activations, forward_work or recomputed buffer; -1 */
	int *results;         /* per event: what selective checkpointing keeps; -1 */
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

	/* ZeRO with whole parameters: resident buffer, the gather that filled it, and the buffer in
	 * which gradients are collected; -1 */
	int whole, collector;
	struct ref whole_ready;
	struct zero3 zero3;

	/* FSDP1's rate limiter: frees that have not been waited for, oldest first. Lives across
	 * steps. */
	struct ref *limiter;
	int n_limiter, limiter_capacity;
};

#endif
