/* Integer programmes: evaluation, cuts, and branch and bound. */
#include "planner/integer.h"

#include <math.h>
#include <stdlib.h>

/* Sums in another order than the caller's; GLPK stops within 1e-7 of its optimum. */
#define ROUNDING 1e-6

void programme_cut(struct programme *programme, const struct programme_cut *cut)
{
	programme->cuts = array_grow(programme->cuts, &programme->cut_capacity,
		programme->n_cuts + 1, sizeof(*programme->cuts));
	programme->cuts[programme->n_cuts++] = *cut;
}

void programme_finish(struct programme *programme)
{
	free(programme->cuts);
	programme->cuts = NULL;
	programme->n_cuts = programme->cut_capacity = 0;
}

double programme_objective(const struct programme *programme, const int *choice)
{
	double most = -INFINITY;
	for (int r = 0; r < programme->n_rows; r++) {
		const struct programme_row *row = &programme->rows[r];
		double sum = row->constant;
		for (int g = 0; g < programme->n_groups; g++)
			sum += row->term[g][choice[g]];
		most = fmax(most, sum);
	}
	return most;
}

int64_t programme_bytes(const struct programme *programme, const int *choice)
{
	int64_t sum = 0;
	for (int g = 0; g < programme->n_groups; g++)
		sum += programme->bytes[g][choice[g]];
	return sum;
}

bool programme_is_cut(const struct programme *programme, const int *choice)
{
	if (programme->ordered && choice[0] > choice[1])
		return true;
	for (int c = 0; c < programme->n_cuts; c++) {
		const struct programme_cut *cut = &programme->cuts[c];
		bool inside = true;
		for (int g = 0; g < programme->n_groups && inside; g++)
			inside = cut->low[g] <= choice[g] && choice[g] <= cut->high[g];
		if (inside)
			return true;
	}
	return false;
}

/* --- branch and bound ----------------------------------------------------------------------------
 */

struct branching {
	const struct programme *programme;
	/* Of the groups from g on: the least that each row and the memory still grow by. */
	double least_term[PROGRAMME_ROWS_MAX][PROGRAMME_GROUPS_MAX + 1];
	int64_t least_bytes[PROGRAMME_GROUPS_MAX + 1];
	int choice[PROGRAMME_GROUPS_MAX];
	struct solution *best;
};

static void find_least(struct branching *b)
{
	const struct programme *p = b->programme;
	b->least_bytes[p->n_groups] = 0;
	for (int r = 0; r < p->n_rows; r++)
		b->least_term[r][p->n_groups] = 0;
	for (int g = p->n_groups - 1; g >= 0; g--) {
		int64_t bytes = INT64_MAX;
		for (int i = 0; i < p->sizes[g]; i++)
			bytes = min_i64(bytes, p->bytes[g][i]);
		b->least_bytes[g] = bytes + b->least_bytes[g + 1];
		for (int r = 0; r < p->n_rows; r++) {
			double least = INFINITY;
			for (int i = 0; i < p->sizes[g]; i++)
				least = fmin(least, p->rows[r].term[g][i]);
			b->least_term[r][g] = least + b->least_term[r][g + 1];
		}
	}
}

static void accept(struct branching *b)
{
	double objective = programme_objective(b->programme, b->choice);
	if ((b->best->feasible && objective >= b->best->objective) ||
		programme_is_cut(b->programme, b->choice))
		return;
	b->best->feasible = true;
	b->best->objective = objective;
	for (int g = 0; g < b->programme->n_groups; g++)
		b->best->choice[g] = b->choice[g];
}

/* Below this node no solution is better than the best so far, or none has room. */
static bool is_hopeless(const struct branching *b, int group, const double *sums, int64_t bytes)
{
	double bound = -INFINITY;
	if (bytes + b->least_bytes[group] > b->programme->capacity)
		return true;
	for (int r = 0; r < b->programme->n_rows; r++)
		bound = fmax(bound, sums[r] + b->least_term[r][group]);
	return b->best->feasible && bound * (1 - ROUNDING) > b->best->objective;
}

static void branch(struct branching *b, int group, const double *sums, int64_t bytes)
{
	const struct programme *p = b->programme;
	if (is_hopeless(b, group, sums, bytes))
		return;
	if (group == p->n_groups) {
		accept(b);
		return;
	}
	int first = p->ordered && group == 1 ? b->choice[0] : 0;
	for (int i = first; i < p->sizes[group]; i++) {
		double with[PROGRAMME_ROWS_MAX];
		for (int r = 0; r < p->n_rows; r++)
			with[r] = sums[r] + p->rows[r].term[group][i];
		b->choice[group] = i;
		branch(b, group + 1, with, bytes + p->bytes[group][i]);
	}
}

void programme_solve_bounding(const struct programme *programme, struct solution *solution)
{
	struct branching b = {.programme = programme, .best = solution};
	double sums[PROGRAMME_ROWS_MAX];
	*solution = (struct solution){0};
	for (int r = 0; r < programme->n_rows; r++)
		sums[r] = programme->rows[r].constant;
	find_least(&b);
	branch(&b, 0, sums, 0);
	solution->bound = solution->objective * (1 - ROUNDING);
}

void programme_solve(const struct programme *programme, struct solution *solution)
{
	if (!programme_solve_glpk(programme, solution))
		programme_solve_bounding(programme, solution);
}
