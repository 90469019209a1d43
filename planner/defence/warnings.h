/* Private to defence/: what an expert would say beside the answer, though nobody asked. */
#ifndef PLANNER_DEFENCE_WARNINGS_H
#define PLANNER_DEFENCE_WARNINGS_H

#include "schedule/plan/plan.h"

#include "planner/answer/answer.h"

/* Fills answer->warnings, the most important first; the rest of the answer is known. */
void warnings_find(const struct question *question, struct arena *arena, struct answer *answer);

#endif
