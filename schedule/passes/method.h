/* Private to passes: how a runtime trains under a strategy, as a table of choices. Passes read it
 * and never ask which runtime it is. */
#ifndef SCHEDULE_METHOD_H
#define SCHEDULE_METHOD_H

#include "schedule/plan/plan.h"
#include "schedule/program/program.h"

/* When parameters are gathered. */
enum gathers {
	GATHERS_NEVER,     /* every rank keeps all of them (DDP) */
	GATHERS_BY_HOOK,   /* in the hooks of units (FSDP, our own runtime) */
	GATHERS_BY_TRACE,  /* in the recorded order of leaves (DeepSpeed's ZeRO-3) */
	GATHERS_AT_END,    /* after the optimizer (ZeRO-1, ZeRO-2) */
	GATHERS_BY_BUCKET, /* bucket by bucket in the next step's first forward (Megatron-LM) */
	GATHERS_BUCKETS_AT_END, /* bucket by bucket after the optimizer (the same with experts) */
};

/* In which portions gradients are reduced. */
enum reduces { REDUCES_UNITS, REDUCES_BUCKETS, REDUCES_PARTITIONS };

/* What backward writes: one gradient for a unit, to which its leaves add in place; or one for each
 * range of leaves, in the compute dtype. */
enum gradients { GRADIENT_OF_UNIT, GRADIENT_OF_RANGE };

/* What happens to a bucket of gradients. */
enum buckets {
	BUCKETS_COPIED_BACK, /* DDP: copied in, reduced in place, copied back */
	BUCKETS_CUT,         /* DeepSpeed, InternEvo: the rank keeps its slice */
	BUCKETS_ADDED_UP,    /* nanotron: added to a resident fp32 copy, which is reduced */
};

/* Where compute reads parameters from. */
enum weights { WEIGHTS_OF_UNIT, WEIGHTS_OF_BUCKETS, WEIGHTS_WHOLE, WEIGHTS_WHOLE_BUCKETS };

struct method {
	enum gathers gathers;
	enum reduces reduces;
	enum gradients gradients;
	enum weights weights;
	bool shards; /* parameters or their optimizer state are sharded */
	bool casts;  /* the compute dtype is not the master dtype */

	/* units */
	bool keeps_units;  /* every rank has all parameters between steps */
	bool casts_shard;  /* the shard is cast to the compute dtype before it is gathered */
	bool copies_out;   /* what was gathered is copied to the parameters (FSDP2) */
	bool stages_again; /* offload: backward copies the shard in once more */
	bool flattens, divides, recomputes_by_unit;
	enum stream flattens_on; /* the stream that makes flat gradients */
	bool update_per_unit, delays_post_backward, has_limiter;
	bool waits_for_messages;  /* the host waits for them before it issues more compute */
	bool limits_gradients;    /* at most two await their reduction; also limits copies */
	bool reshards_always;     /* after every backward, also where no gradient is reduced */
	bool two_communicators;   /* one to gather, one to reduce */
	bool one_communicator;    /* one thread carries out all collectives */
	bool needed_tensors_only; /* only what backward reads is saved or computed again */
	bool keeps_work;          /* all tensors of a block's backward live until it ends */
	bool keeps_losses;        /* the loss of every token has a place */
	bool adds_in_compute;     /* the next compute adds the sums of tensor ranks */
	bool chunks_head;         /* plan_chunks_head */
	bool recomputes_to_end;   /* checkpointing computes the result of the block again, too */
	bool recomputes_modules;  /* selective checkpointing goes by module */
	bool norm_is_exact, measures_norm;
	bool sums_alike, shares_biases;
	bool own_copy_streams, keeps_host_gradient;
	bool host_update_is_fused; /* the host's Adam is one fused kernel */

	/* buckets and partitions */
	enum buckets buckets;
	bool reduces_late;     /* after backward, not in it */
	bool overlaps;         /* reductions run beside compute; else compute waits for each */
	bool adds_at_once;     /* BUCKETS_ADDED_UP: backward itself adds to the fp32 copy */
	bool scatters;         /* buckets are reduce-scattered: a rank needs only its slice */
	bool adds_in_hook;     /* BUCKETS_ADDED_UP: gradients pass through DDP's own buckets */
	bool copies_back;      /* all of a reduced bucket is copied back, not only the slice */
	bool copies_gradients; /* the optimizer copies them to the master dtype first */
	/* Elements of a bucket, of the buffer that gradients are collected in (0: there is none),
	 * and of what the optimizer updates at a time. */
	int64_t bucket_elements, collector_elements, group_elements;
	/* ZeRO-3, elements of parameters (plan/runtimes.h). */
	int64_t prefetch_elements, persistent_elements, live_elements, reuse_elements;
};

struct method method_of(const struct plan *plan, const struct topology *topology);

#endif
