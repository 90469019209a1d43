/* Private to passes: how a runtime trains under a strategy, as a table of choices. Passes read it
 * and never ask which runtime it is. */
#ifndef SCHEDULE_METHOD_H
#define SCHEDULE_METHOD_H

#include "schedule/plan/plan.h"
#include "schedule/program/program.h"

/* When whole parameters are made. */
enum gathers {
	GATHERS_NEVER,          /* every rank has them (DDP) */
	GATHERS_BY_HOOK,        /* in the hooks of units (FSDP, ours) */
	GATHERS_BY_TRACE,       /* in the recorded order of leaves (DeepSpeed's ZeRO-3) */
	GATHERS_AT_END,         /* after the optimizer (ZeRO with whole parameters) */
	GATHERS_BY_BUCKET,      /* in the next step's first forward (Megatron-LM), */
	GATHERS_BUCKETS_AT_END, /* or after the optimizer, experts over other ranks */
};

/* In what portions gradients are reduced. */
enum reduces { REDUCES_UNITS, REDUCES_BUCKETS, REDUCES_PARTITIONS };

/* What backward writes: one gradient a unit, added to in place; or one a range, in the compute
 * dtype. */
enum gradients { GRADIENT_OF_UNIT, GRADIENT_OF_RANGE };

/* What becomes of a bucket. */
enum buckets {
	BUCKETS_COPIED_BACK, /* DDP: copied in, reduced in place, copied back */
	BUCKETS_CUT,         /* DeepSpeed, InternEvo: the rank keeps its slice */
	BUCKETS_ADDED_UP,    /* nanotron: added to a resident fp32 copy, which is reduced */
};

/* What compute reads. */
enum weights { WEIGHTS_OF_UNIT, WEIGHTS_OF_BUCKETS, WEIGHTS_WHOLE, WEIGHTS_WHOLE_BUCKETS };

struct method {
	enum gathers gathers;
	enum reduces reduces;
	enum gradients gradients;
	enum weights weights;
	bool shards; /* parameters or their optimizer state */
	bool casts;  /* the compute dtype is not the master dtype */

	/* units */
	bool keeps_units; /* every rank has all parameters between steps */
	bool casts_shard, copies_out, stages_again, flattens, divides, recomputes_by_unit;
	enum stream flattens_on; /* flat gradients */
	bool update_per_unit, delays_post_backward, has_limiter;
	bool waits_for_messages;   /* the host, before it issues compute again */
	bool reshards_always;      /* after every backward, whatever becomes of the gradient */
	bool two_communicators;    /* one to gather, one to reduce */
	bool one_communicator;     /* one thread carries out all collectives */
	bool needed_tensors_only;  /* nothing is saved or computed again that backward does not read
				    */
	bool keeps_work;           /* all tensors of a block's backward, until it ends */
	bool keeps_losses;         /* one a token */
	bool adds_in_compute;      /* sums of tensor ranks, in the next compute */
	bool chunks_head;          /* plan_chunks_head */
	bool recomputes_to_end;    /* what a block returns, too */
	bool recomputes_attention; /* selective checkpointing: nothing else */
	bool norm_is_exact, measures_norm;
	bool sums_alike, shares_biases;
	bool own_copy_streams, keeps_host_gradient;
	bool host_update_is_fused; /* the host has an Adam of its own */

	/* buckets and partitions */
	enum buckets buckets;
	bool reduces_late;     /* after backward, not in it */
	bool overlaps;         /* reductions run beside compute, which else waits for each */
	bool adds_at_once;     /* BUCKETS_ADDED_UP: backward itself does */
	bool scatters;         /* and each rank needs its slice alone */
	bool adds_in_hook;     /* BUCKETS_ADDED_UP: by way of DDP's own buckets */
	bool copies_back;      /* a reduced bucket goes back whole, not the slice alone */
	bool copies_gradients; /* the optimizer has them copied to the master dtype */
	/* Elements: of a bucket, of the buffer that gradients are collected in (0: none), and of
	 * what the optimizer updates at a time. */
	int64_t bucket_elements, collector_elements, group_elements;
	/* ZeRO-3, elements of parameters (plan/runtimes.h). */
	int64_t prefetch_elements, persistent_elements, live_elements, reuse_elements;
};

struct method method_of(const struct plan *plan, const struct topology *topology);

#endif
