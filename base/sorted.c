#include "base/sorted.h"

#include <stdlib.h>

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

void sort_numbers(double *values, int64_t n)
{
	if (n > 1)
		qsort(values, (size_t)n, sizeof(*values), compare);
}

double quantile(const double *sorted, int64_t n, double q)
{
	double place = q * (double)(n - 1);
	int64_t below = (int64_t)place;

	if (n <= 0)
		return 0;
	if (below + 1 >= n)
		return sorted[n - 1];
	return sorted[below] + (place - (double)below) * (sorted[below + 1] - sorted[below]);
}
