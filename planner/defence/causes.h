/* Private to defence/: in what one plan spends more time than another. */
#ifndef PLANNER_DEFENCE_CAUSES_H
#define PLANNER_DEFENCE_CAUSES_H

#include "planner/defence/defence.h"

struct cause {
	const char *what;    /* "of all-gather exposed on NVLink" */
	const char *briefly; /* "exposed all-gather" */
	double more, before; /* s: what the other plan spends more; what the chosen one spends */
	const char *measure; /* the measurement that would show how long it really takes */
};

enum { CAUSE_COUNT = COLLECTIVES_OF_STEPS + 6 };

extern const char *const cause_collectives[]; /* by enum collective_kind */
/* The name of the link that a collective uses. */
const char *cause_link(const struct question *question, bool over_network);

/* In what `other` spends more time than `chosen` on the same tokens, the largest first. */
void causes_find(const struct question *question, const struct contender *chosen,
	const struct contender *other, struct arena *arena, struct cause causes[CAUSE_COUNT]);

#endif
