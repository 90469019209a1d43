/* Private to passes: what an action says of itself beside its kind. */
#ifndef SCHEDULE_FLAGS_H
#define SCHEDULE_FLAGS_H

enum action_flag {
	IN_BACKWARD = 1 << 0,    /* part of a backward pass */
	SYNCHRONISES = 1 << 1,   /* the gradients of this micro-batch are reduced */
	FIRST = 1 << 2,          /* the first of several that share a buffer */
	LAST = 1 << 3,           /* the last of them */
	IS_PRESENT = 1 << 4,     /* LIMIT: the unit is gathered already */
	READS_SHARD = 1 << 5,    /* the shard has to be there before this action */
	DROPS = 1 << 6,          /* nothing uses what is made */
	FROM_PART = 1 << 7,      /* GATHER: over the smaller group that the unit was resharded to */
	KEEPS_PART = 1 << 8,     /* RESHARD: to a smaller group */
	RELEASES_INPUT = 1 << 9, /* RESHARD: frees the input of the reduction before */
	IN_PLACE = 1 << 10,      /* the reduced gradient is the shard already */
	REDUCED_HERE = 1 << 11,  /* the group has one rank: what compute wrote is the reduced sum */
	IS_PARTIAL = 1 << 12,    /* SCATTER: later micro-batches are added before replicas reduce */
	/* SAVE, FETCH: the input of the block, not what its ranges save. GATHER_TOKENS: the input
	 * of the layer, not its gradient. DISPATCH_ROWS, COMBINE_ROWS, CUT_HEADS, JOIN_HEADS: part
	 * of forward, so no gradients. ROTATE_KEYS: no gradients go with the keys. */
	OF_INPUT = 1 << 13,
	LEAVES_SUM = 1 << 14,  /* compute: leaves partial sums, which tensor ranks then add up */
	LEAVES_KEYS = 1 << 15, /* BACKWARD: leaves partial gradients of keys, for context ranks */
	LEAVES_ROWS = 1 << 16, /* compute: leaves rows that go back to the ranks they came from */
	INPUT_PART = 1 << 18,  /* the input part of a backward pass */
	WEIGHT_PART = 1 << 19, /* the weight part */
	/* GATHER_TOKENS: runs beside the product that makes dX of its layer, or in chunks beside
	 * those of its range. FORWARD, RECOMPUTE: a product beside which its sums are exchanged.
	 * SCATTER_TOKENS: that exchange, which ADD_SUM completes. */
	BESIDE = 1 << 20,
	IN_ROUNDS = 1 << 21,   /* compute: uses one block of keys while the next one is moved */
	ENDS_ROUNDS = 1 << 22, /* the last of these: no block follows */
	OF_WEIGHTS = 1 << 23,  /* moves the routing weights of rows, not the rows */
	/* Part of a forward and a backward pass that are computed together: waits for its own
	 * micro-batch alone. */
	PAIRED = 1 << 24,
};

#endif
