/* Private to defence/: where one plan spends more time than another. */
#ifndef PLANNER_DEFENCE_CAUSES_H
#define PLANNER_DEFENCE_CAUSES_H

#include "planner/defence/defence.h"

struct cause {
	const char *what;    /* "of all-gather exposed on NVLink" */
	double more, before; /* s; `before`: the chosen plan's */
	const char *measure; /* what would tell how long it really takes */
};

enum { CAUSE_COUNT = COLLECTIVES_OF_STEPS + 6 };

extern const char *const cause_collectives[]; /* by enum collective_kind */
const char *cause_link(const struct question *question, bool over_network);

/* What `other` spends more than `chosen`, over the same tokens, largest first. */
void causes_find(const struct question *question, const struct contender *chosen,
	const struct contender *other, struct arena *arena, struct cause causes[CAUSE_COUNT]);

#endif
