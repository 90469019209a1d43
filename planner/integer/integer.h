/* Integer programmes over choices, and one over counts. Exactly one choice is made in every group.
 * The objective is the largest of several sums, to which each group adds one term; capacities limit
 * other sums.
 *
 *     minimise  max over rows r of (constant_r + sum over groups g of term_r[g][choice_g])
 *     such that, for every memory q, sum over g of bytes_q[g][choice_g] <= capacity_q
 *     and choice_0 <= choice_1, if they are ordered
 *
 * Our own branch and bound solves it on any thread. GLPK, where it is built in, solves one
 * programme at a time, with a 0/1 variable for each choice. Both find an optimum, not always the
 * same one. */
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

struct programme {
	int n_groups;
	int sizes[PROGRAMME_GROUPS_MAX];
	int n_rows; /* at least one */
	struct programme_row rows[PROGRAMME_ROWS_MAX];
	int n_memories; /* at least one */
	struct programme_memory memories[PROGRAMME_MEMORIES_MAX];
	bool ordered;
};

struct solution {
	bool feasible;
	int choice[PROGRAMME_GROUPS_MAX];
	double objective; /* of `choice`, by programme_objective */
	double bound;     /* a lower bound of all solutions, just below `objective` for rounding */
	int64_t nodes;    /* visited by branch and bound */
};

/* The objective of a choice. */
double programme_objective(const struct programme *programme, const int *choice);
/* Does the choice respect every capacity? Does it respect `ordered`? */
bool programme_has_room(const struct programme *programme, const int *choice);
bool programme_is_ordered(const struct programme *programme, const int *choice);

void programme_solve_bounding(const struct programme *programme, struct solution *solution);
/* False: GLPK is not built in, gave up, or failed; then `solution` says nothing. */
bool programme_solve_glpk(const struct programme *programme, struct solution *solution);

/* --- blocks of a pipeline ----------------------------------------------------------------------
 *
 * Equal blocks are shared out over stages; chunk c is the stages c * ranks .. (c + 1) * ranks - 1.
 * A micro-batch passes the chunks one after the other, each at the pace of its slowest stage:
 *
 *     minimise  sum over chunks of (max over stages s of the chunk of (blocks_s * block + own_s))
 *     such that sum over s of blocks_s = blocks, blocks_s >= 1 (0 at both ends),
 *     and, for every rank r, sum over its stages of blocks_s <= most_r
 *
 * Solved exactly by trying every number of blocks for the first and the last chunk; with GLPK as a
 * mixed integer programme. */
struct sharing {
	int blocks, ranks, chunks;
	double block;       /* s of one block */
	double first, last; /* s: own_s of the first and of the last stage; other stages have 0 */
	const int *rank;    /* [stages] the rank of each */
	const int *most;    /* [ranks] the most blocks of each */
};

/* The objective, s, of stages[stages] blocks. */
double sharing_seconds(const struct sharing *sharing, const int *stages);
/* Among the optimal solutions, that with the most even chunks; of equal stages the first ones have
 * a block more. False: there is no solution. */
bool sharing_solve(const struct sharing *sharing, int *stages, double *seconds);
/* False as in programme_solve_glpk. *feasible: there is a solution. */
bool sharing_solve_glpk(const struct sharing *sharing, bool *feasible, double *seconds);

#endif
