/* Parts of the table of runtimes (runtimes.h). */
#ifndef SCHEDULE_RUNTIME_RULES_H
#define SCHEDULE_RUNTIME_RULES_H

#include "schedule/plan/knobs.h"

/* ZeRO as DeepSpeed, nanotron and InternEvo ship it: stages up to 2 keep all parameters in the
 * compute dtype on every rank and update fp32 shards. Bit s of a mask stands for stage s. */
struct zero_rules {
	unsigned reduces_late; /* after backward, not in it */
	unsigned overlaps;     /* reductions run beside compute, which else waits for each */
	unsigned
		each_micro_batch; /* gradients are reduced in every micro-batch; else in the last */
	unsigned groups;          /* the shard group may be smaller than the world */
	bool fp32_gradients; /* accumulated in, and reduced from, a resident fp32 copy (nanotron) */
	/* Backward adds to the fp32 copies itself: nothing else holds a gradient (Megatron-LM's
	 * fused accumulation). With shards they are reduce-scattered. */
	bool adds_at_once;
	/* Once a step tensor ranks add up the parts that they have of gradients of parameters that
	 * all of them have; among these are biases behind a row-parallel product. */
	bool sums_alike, shares_biases;
	bool copies_back;     /* a reduced bucket goes back into all its gradients, not the slice */
	bool copies_gathered; /* updated parameters are gathered in copies */
	int64_t bucket_elements; /* a bucket closes before it would exceed this; 0: one for all */
	/* adds_at_once: a bucket closes when it has these, or so many a data-parallel rank; all is
	 * one bucket where reductions are not overlapped (KNOB_OVERLAP). */
	int64_t filled_elements, filled_elements_a_rank;
	int64_t buffer_elements; /* of the buffer that gradients are collected in; 0: none */
	/* Stage 3, elements of parameters: coalesced in a prefetch; never partitioned; gathered at
	 * most at one time; kept when used again within. */
	int64_t prefetch_elements, persistent_elements, live_elements, reuse_elements;
	int64_t group_elements; /* stage 3 updates so many at a time */
};

/* Attention by a ring of context ranks: what it keeps meanwhile, of one block of keys and values,
 * and what it costs to merge the rounds. */
struct ring_rules {
	/* A block is copied before each round sends it on, and gone when its round is over; else
	 * sent from where it came to. */
	bool copies_blocks;
	bool keeps_blocks; /* forward: all of them until the last round is over */
	/* Gradients of keys go round by themselves, once more for the way home; else beside the
	 * next block of keys, backward beginning with what forward ended with. In fp32. */
	bool sends_sums_apart, fp32_sums;
	/* Backward's first round, of the rank's own block, keeps what it finds; gradients of others
	 * go round from the second on, each round's in a buffer of its own. */
	bool keeps_own_sums;
	/* Bytes an element of attention's result: forward's partial results, those of all rounds or
	 * what one merge works with. */
	bool keeps_results;
	int result_bytes;
	/* All-gather brings the same blocks at once, for the same rounds. */
	bool gathers_blocks;
	/* torch.compile waits for each exchange where it is issued, before what follows. */
	bool waits_when_compiled;
	/* Merging a round: bytes of memory traffic an element of the result in forward, of q, k and
	 * v in backward, and kernels. */
	struct merging {
		int forward_traffic, backward_traffic, kernels;
	} eager, fused;
};

/* What modules copy beside what all implementations do: elements read and written per element of
 * attention's result, or of an activation, and launches; in forward and in backward. */
struct copies {
	double elements[2];
	int launches[2];
};

/* Experts on several ranks. None of it: torchtitan's; else Megatron-Core's MoELayer. */
struct expert_rules {
	/* A rank routes its tokens of the residual stream; ranks that cut an expert gather its rows
	 * from one another, and how many each has (MoEAlltoAllTokenDispatcher). */
	bool routes_stream;
	/* Rows are weighed between an expert's products; their order is a sort over all. */
	bool weighs_activations;
	bool drops_rows; /* KNOB_CAPACITY_FACTOR */
	/* PyTorch's own operations around its products: the clamp of a gated activation; per
	 * element of the last product its weighed bias, launches of each expert (experts.c of
	 * costs). */
	struct copies clamp, bias;
	/* Ours: without KNOB_EXPERT_LOAD buffers hold all rows that may come. */
	bool keeps_room;
};

#endif
