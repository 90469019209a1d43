/* Integer programmes: what choices cost, and cuts. */
#include "planner/integer/integer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool contains(const struct programme *programme, const struct programme_cut *a,
	const struct programme_cut *b)
{
	for (int g = 0; g < programme->n_groups; g++)
		if (a->low[g] > b->low[g] || a->high[g] < b->high[g])
			return false;
	return true;
}

void programme_cut(struct programme *programme, const struct programme_cut *cut)
{
	int kept = 0;
	for (int c = 0; c < programme->n_cuts; c++)
		if (cut->doubtful || !contains(programme, cut, &programme->cuts[c]))
			programme->cuts[kept++] = programme->cuts[c];
	programme->n_cuts = kept;
	programme->cuts = array_grow(programme->cuts, &programme->cut_capacity,
		programme->n_cuts + 1, sizeof(*programme->cuts));
	programme->cuts[programme->n_cuts++] = *cut;
}

void programme_shrink_doubtful(struct programme *programme)
{
	for (int c = 0; c < programme->n_cuts; c++) {
		struct programme_cut *cut = &programme->cuts[c];
		if (cut->doubtful) {
			memcpy(cut->low, cut->seen, sizeof(cut->low));
			memcpy(cut->high, cut->seen, sizeof(cut->high));
		}
		cut->doubtful = false;
	}
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

int64_t programme_bytes(const struct programme *programme, int memory, const int *choice)
{
	int64_t sum = 0;
	for (int g = 0; g < programme->n_groups; g++)
		sum += programme->memories[memory].bytes[g][choice[g]];
	return sum;
}

bool programme_has_room(const struct programme *programme, const int *choice)
{
	for (int q = 0; q < programme->n_memories; q++)
		if (programme_bytes(programme, q, choice) > programme->memories[q].capacity)
			return false;
	return true;
}

static bool is_inside(
	const struct programme *programme, const struct programme_cut *cut, const int *choice)
{
	for (int g = 0; g < programme->n_groups; g++)
		if (choice[g] < cut->low[g] || choice[g] > cut->high[g])
			return false;
	return true;
}

static bool is_cut(const struct programme *programme, const int *choice, bool doubtful)
{
	for (int c = 0; c < programme->n_cuts; c++) {
		const struct programme_cut *cut = &programme->cuts[c];
		if ((doubtful || !cut->doubtful) && is_inside(programme, cut, choice))
			return true;
	}
	return false;
}

bool programme_is_surely_cut(const struct programme *programme, const int *choice)
{
	return is_cut(programme, choice, false);
}

bool programme_is_cut(const struct programme *programme, const int *choice)
{
	return (programme->ordered && choice[0] > choice[1]) || is_cut(programme, choice, true);
}
