/* Integer programmes over choices, and one over counts. From every group exactly one choice is
 * made; the objective is the largest of several sums, one term from each group; capacities limit
 * other sums.
 *
 *     minimise  max over rows r of (constant_r + sum over groups g of term_r[g][choice_g])
 *     such that, for every memory q, sum over g of bytes_q[g][choice_g] <= capacity_q
 *     and choice_0 <= choice_1, if they are ordered
 *
 * A branch and bound of our own solves it on any thread; GLPK does where it is built in, one
 * programme at a time (0/1 variables, one for each choice). Both give an optimum, not always the
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
	double objective; /* of the choices, evaluated exactly */
	double bound;     /* no solution is below; a hair under the objective for rounding */
	int64_t nodes;    /* of branch and bound */
};

double programme_objective(const struct programme *programme, const int *choice);
int64_t programme_bytes(const struct programme *programme, int memory, const int *choice);
/* In every memory. */
bool programme_has_room(const struct programme *programme, const int *choice);
bool programme_is_ordered(const struct programme *programme, const int *choice);

void programme_solve_bounding(const struct programme *programme, struct solution *solution);
/* False when GLPK is not built in, gave up or ran into an error: then nothing is known. */
bool programme_solve_glpk(const struct programme *programme, struct solution *solution);

/* --- blocks of a pipeline ----------------------------------------------------------------------
 *
 * Blocks, all alike, are shared out over stages, of which chunk c has c * ranks .. (c + 1) * ranks
 * - 1. A micro-batch passes the chunks one after the other, each at the pace of its slowest stage:
 *
 *     minimise  sum over chunks of (max over stages s of the chunk of (blocks_s * block + own_s))
 *     such that sum over s of blocks_s = blocks, blocks_s >= 1 (0 at both ends),
 *     and, for every rank r, sum over its stages of blocks_s <= most_r
 *
 * Solved exactly by trying what the first and the last chunk may take; by GLPK as a mixed integer
 * programme. */
struct sharing {
	int blocks, ranks, chunks;
	double block;       /* s */
	double first, last; /* s: own_s of the first and of the last stage; of others it is 0 */
	const int *rank;    /* of each stage */
	const int *most;    /* of each rank */
};

/* s of so many blocks a stage. */
double sharing_seconds(const struct sharing *sharing, const int *stages);
/* Of the best ones that with the most even chunks; of alike stages the first have a block more.
 * False: there is none. */
bool sharing_solve(const struct sharing *sharing, int *stages, double *seconds);
/* As programme_solve_glpk; *feasible: there is one. */
bool sharing_solve_glpk(const struct sharing *sharing, bool *feasible, double *seconds);

#endif
