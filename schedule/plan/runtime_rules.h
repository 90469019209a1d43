/* Parts of the table of runtimes (runtimes.h). */
#ifndef SCHEDULE_RUNTIME_RULES_H
#define SCHEDULE_RUNTIME_RULES_H

#include "schedule/plan/knobs.h"

/* ZeRO as DeepSpeed, nanotron and InternEvo ship it: stages up to 2 keep all parameters in the
 * compute dtype on every rank and update fp32 shards. Bit s of a mask stands for stage s. */
struct zero_rules {
	unsigned reduces_late; /* after backward, not in it */
	unsigned overlaps;     /* reductions run beside compute; else compute waits for each */
	unsigned
		each_micro_batch; /* gradients are reduced in every micro-batch; else in the last */
	unsigned groups;          /* the shard group may be smaller than the world */
	bool fp32_gradients; /* accumulated in, and reduced from, a resident fp32 copy (nanotron) */
	/* Backward adds to the fp32 copies itself, and nothing else holds a gradient (Megatron-LM's
	 * fused accumulation). With shards gradients are reduce-scattered. */
	bool adds_at_once;
	/* Once a step, tensor ranks sum their parts of the gradients of parameters that all of them
	 * have; with `shares_biases` biases after a row-parallel product are among these. */
	bool sums_alike, shares_biases;
	bool copies_back;     /* a reduced bucket goes back into all its gradients, not the slice */
	bool copies_gathered; /* updated parameters are gathered in copies */
	bool doubles_norm; /* each parameter's part of the norm is taken of a copy in eight bytes */
	int64_t bucket_elements; /* a bucket closes before it would exceed this; 0: one for all */
	/* adds_at_once: a bucket closes when it has this many elements, or this many for each
	 * data-parallel rank. Without overlap (KNOB_OVERLAP) all gradients are one bucket. */
	int64_t filled_elements, filled_elements_a_rank;
	int64_t buffer_elements; /* of the buffer that collects gradients; 0: there is none */
	/* Stage 3, in elements of parameters: those coalesced in one prefetch; parameters below it
	 * are never partitioned; the most that are gathered at one time; those used again within it
	 * are kept. */
	int64_t prefetch_elements, persistent_elements, live_elements, reuse_elements;
	int64_t group_elements; /* the number that stage 3 updates at a time */
};

/* Attention by a ring of context ranks: the blocks of keys and values that it keeps meanwhile, and
 * the cost of merging the rounds. */
struct ring_rules {
	/* A block is copied before each round sends it on, and freed after its round; else it is
	 * sent from the buffer into which it was received. */
	bool copies_blocks;
	bool keeps_blocks; /* in forward all blocks live until the last round is over */
	/* Gradients of keys are sent in messages of their own, and once more to return to their
	 * rank; else they are sent beside the next block of keys, and backward begins with the last
	 * block of forward. `fp32_sums`: they are in fp32. */
	bool sends_sums_apart, fp32_sums;
	/* Backward's first round, on the rank's own block, keeps its gradients there. Those of
	 * other ranks are sent from the second round on, each round's in a buffer of its own. */
	bool keeps_own_sums;
	/* Bytes for each element of attention's result: partial results of forward, either those of
	 * all rounds (`keeps_results`) or those that one merge works with. */
	bool keeps_results;
	int result_bytes;
	/* An all-gather brings all blocks at once, for the same rounds. */
	bool gathers_blocks;
	/* torch.compile waits for each exchange where it is issued, before what follows. */
	bool waits_when_compiled;
	/* The cost of merging a round: bytes of memory traffic for each element of the result in
	 * forward, and of q, k and v in backward; and kernels. */
	struct merging {
		int forward_traffic, backward_traffic, kernels;
	} eager, fused;
};

/* Additional copies of a runtime's modules: elements read and written for each element of
 * attention's result, or of an activation, and launches; in forward and in backward. */
struct copies {
	double elements[2];
	int launches[2];
};

/* Experts on several ranks. With no rule set it is torchtitan's; the rules describe Megatron-Core's
 * MoELayer and our own. */
struct expert_rules {
	/* A rank routes its tokens of the residual stream. Ranks that divide an expert gather its
	 * rows from one another, and the number of rows of each (MoEAlltoAllTokenDispatcher). */
	bool routes_stream;
	/* So it is where whole experts are on several ranks (torchtitan), else ranks share out the
	 * rows of the same tokens. */
	bool routes_stream_of_whole;
	/* Rows are weighed between the products of an expert, and ordered by a sort of all rows. */
	bool weighs_activations;
	bool routes_in_fp32; /* models/activations.h */
	bool drops_rows;     /* KNOB_CAPACITY_FACTOR */
	bool adds_by_index;  /* rows are added up by PyTorch's index_put (costs/experts.c) */
	/* PyTorch operations around the products: the clamp of a gated activation; and for each
	 * element of the last product its weighed bias, with launches for each expert
	 * (simulator/costs/experts.c). */
	struct copies clamp, bias;
	/* Our own: without KNOB_EXPERT_LOAD buffers have room for all rows that may come. */
	bool keeps_room;
};

#endif
