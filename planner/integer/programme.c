/* Integer programmes: what choices cost. */
#include "planner/integer/integer.h"

#include <math.h>

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

/* Returns the bytes that a choice needs of one memory. */
static int64_t programme_bytes(const struct programme *programme, int memory, const int *choice)
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

bool programme_is_ordered(const struct programme *programme, const int *choice)
{
	return !programme->ordered || choice[0] <= choice[1];
}
