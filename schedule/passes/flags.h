/* Private to passes: what an action says of itself beside its kind. */
#ifndef SCHEDULE_FLAGS_H
#define SCHEDULE_FLAGS_H

enum action_flag {
	IN_BACKWARD = 1 << 0,    /* of a backward pass */
	SYNCHRONISES = 1 << 1,   /* gradients of this micro-batch are reduced */
	FIRST = 1 << 2,          /* of several that share a buffer */
	LAST = 1 << 3,           /* likewise */
	IS_PRESENT = 1 << 4,     /* LIMIT: the unit is gathered already */
	READS_SHARD = 1 << 5,    /* the shard has to be there before this action */
	DROPS = 1 << 6,          /* nothing uses what is made */
	FROM_PART = 1 << 7,      /* GATHER: over the smaller group that the unit was resharded to */
	KEEPS_PART = 1 << 8,     /* RESHARD: to a smaller group */
	RELEASES_INPUT = 1 << 9, /* RESHARD: of the reduction before */
	IN_PLACE = 1 << 10,      /* the reduced gradient is the shard already */
	REDUCED_HERE = 1 << 11, /* with no other rank: compute has written what was to be reduced */
	IS_PARTIAL = 1 << 12,   /* SCATTER: its result waits for those of later micro-batches */
	OF_INPUT = 1 << 13,     /* SAVE, FETCH: the block's input, not what its ranges save.
				 * GATHER_TOKENS: the layer's input, not its gradient;
				 * DISPATCH_ROWS, COMBINE_ROWS: of forward, not gradients;
				 * ROTATE_KEYS: no gradients beside them;
				 * CUT_HEADS, JOIN_HEADS: of forward, not of gradients */
	LEAVES_SUM = 1 << 14,   /* compute: partial sums that tensor ranks add up behind it */
	LEAVES_KEYS = 1 << 15,  /* BACKWARD: likewise of keys and values, context ranks */
	LEAVES_ROWS = 1 << 16,  /* compute: rows that go back to the ranks they came from */
	KEEPS_ROWS = 1 << 17,   /* FORWARD: what came in is there until it is computed again */
	INPUT_PART = 1 << 18,   /* of the input part of a backward pass, */
	WEIGHT_PART = 1 << 19,  /* of its weight part */
	BESIDE = 1 << 20,       /* GATHER_TOKENS: beside dX of its layer; parts of its range;
				 * SCATTER_TOKENS: beside the product that makes the sums, which
				 * ADD_SUM adds up then; FORWARD, RECOMPUTE: such a product */
	IN_ROUNDS = 1 << 21,    /* compute: of one block of keys; what is under way is for the next
				 * round */
	ENDS_ROUNDS = 1 << 22,  /* likewise: there is no next one */
	OF_WEIGHTS = 1 << 23,   /* rows: what each is weighed with, not the rows themselves */
};

#endif
