/* Integer programmes over choices. From every group exactly one choice is
 * made; the objective is the largest of several sums, one term from each group; capacities limit
 * other sums; boxes of choices can be cut away.
 *
 *     minimise  max over rows r of (constant_r + sum over groups g of term_r[g][choice_g])
 *     such that, for every memory q, sum over g of bytes_q[g][choice_g] <= capacity_q
 *     and no cut holds all choices between its low and high
 *     and choice_0 <= choice_1, if they are ordered
 *
 * GLPK solves it where it is built in (0/1 variables, one for each choice), a branch and bound of
 * our own elsewhere; both give an optimum, not always the same one. */
#ifndef PLANNER_INTEGER_INTEGER_H
#define PLANNER_INTEGER_INTEGER_H

#include "base/base.h"

enum { PROGRAMME_GROUPS_MAX = 4, PROGRAMME_ROWS_MAX = 28, PROGRAMME_MEMORIES_MAX = 2 };

struct programme_row {
	double constant;
	const double *term[PROGRAMME_GROUPS_MAX];
};

struct programme_memory {
	int64_t capacity;
	const int64_t *bytes[PROGRAMME_GROUPS_MAX];
};

struct programme_cut {
	int low[PROGRAMME_GROUPS_MAX], high[PROGRAMME_GROUPS_MAX];
	bool doubtful; /* only one choice in it is sure: */
	int seen[PROGRAMME_GROUPS_MAX];
};

struct programme {
	int n_groups;
	int sizes[PROGRAMME_GROUPS_MAX];
	int n_rows; /* at least one */
	struct programme_row rows[PROGRAMME_ROWS_MAX];
	int n_memories; /* at least one */
	struct programme_memory memories[PROGRAMME_MEMORIES_MAX];
	bool ordered;
	double cutoff; /* branch and bound looks for nothing above it; 0: for everything */
	int n_cuts, cut_capacity;
	struct programme_cut *cuts; /* malloc'ed */
};

struct solution {
	bool feasible;
	int choice[PROGRAMME_GROUPS_MAX];
	double objective; /* of the choices, evaluated exactly */
	double bound;     /* no solution is below; a hair under the objective for rounding */
	int64_t nodes;    /* of branch and bound */
};

/* One that is sure takes the place of those inside it. */
void programme_cut(struct programme *programme, const struct programme_cut *cut);
/* Each doubtful cut becomes its one sure choice. */
void programme_shrink_doubtful(struct programme *programme);
void programme_finish(struct programme *programme);
double programme_objective(const struct programme *programme, const int *choice);
int64_t programme_bytes(const struct programme *programme, int memory, const int *choice);
/* In every memory. */
bool programme_has_room(const struct programme *programme, const int *choice);
/* By a cut, or out of order. */
bool programme_is_cut(const struct programme *programme, const int *choice);
/* By a cut that is not doubtful. */
bool programme_is_surely_cut(const struct programme *programme, const int *choice);

void programme_solve_bounding(const struct programme *programme, struct solution *solution);
/* False when GLPK is not built in, gave up or ran into an error: then nothing is known. */
bool programme_solve_glpk(const struct programme *programme, struct solution *solution);

#endif
