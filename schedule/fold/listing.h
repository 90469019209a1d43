/* Private to fold: the numbers that the whole list would have. */
#ifndef SCHEDULE_FOLD_LISTING_H
#define SCHEDULE_FOLD_LISTING_H

#include "schedule/fold/folding.h"

/* Each of these has numbers of its own, which go on with the blocks. */
enum space { UNITS, LAYERS, MODULES, RESIDENTS };
enum { SPACE_COUNT = RESIDENTS + 1 };

struct numbering {
	int *first;       /* per number of the shorter list: that of the whole one */
	int by[RUNS_MAX]; /* per run: how many a repeated group has */
	int n;            /* of the whole step */
};

struct listing_work {
	const struct folding *f;
	struct numbering spaces[SPACE_COUNT];
	/* Buffers that operations take, by where it happens first: the number of the first; how
	 * many there are in an iteration of its lap, and in a micro-batch. */
	int *taken, *taken_in_lap;
	int taken_in_micro_batch;
	struct unfolding *unfolding;
	int n_numbers, capacity;
};

/* A number that an operation names: its own, that of the unit whose hook issued it, of the i-th
 * buffer that it takes, or that buffer. */
struct named {
	enum { OF_OP, OF_CAUSE, OF_TAKEN, OF_USED } what;
	enum space space;
	int i;
};

bool listing_find_spaces(struct listing_work *w);
/* Finds the name in the iterations of the lap round it. False when the list does not say. */
bool listing_name(const struct listing_work *w, int op, struct named named, struct going *going);

#endif
