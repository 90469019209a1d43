/* Private to levers/: levers that are no knob left open. */
#ifndef PLANNER_LEVERS_BESIDE_H
#define PLANNER_LEVERS_BESIDE_H

#include "planner/levers/levers.h"

enum { BESIDE_MOST = 3 };

/* Finds the gain of each lever alone beside the chosen plan, if it has room. */
bool beside_find(const struct question *question, const struct candidate *chosen,
	struct arena *arena, struct lever found[BESIDE_MOST], int *n, struct error *error);

/* The question with those of the answer's levers; what is typed for them, a space before each. Not
 * what another lever of the question does already. */
const char *beside_pull(
	const struct answer *answer, struct arena *arena, struct question *question);

/* elsewhere.c: a good plan of another framework, or one whose rows reach experts in another way,
 * where it is clearly faster than the chosen one and the question leaves that open; else `*found`
 * is NULL. */
bool elsewhere_find(const struct question *question, const struct candidate *chosen,
	struct arena *arena, struct lever **found, struct error *error);

#endif
