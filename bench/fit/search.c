/* One-dimensional search, and medians. */
#include "fit.h"

#include <math.h>
#include <stdlib.h>

double search_least(double (*f)(double x, void *context), void *context, double low, double high)
{
	const double golden = 0.6180339887498949;
	double a = high - golden * (high - low), b = low + golden * (high - low);
	double fa = f(a, context), fb = f(b, context);

	while (high - low > 1e-3 * fabs(high)) {
		if (fa <= fb) {
			high = b;
			b = a;
			fb = fa;
			a = high - golden * (high - low);
			fa = f(a, context);
		} else {
			low = a;
			a = b;
			fa = fb;
			b = low + golden * (high - low);
			fb = f(b, context);
		}
	}
	return (low + high) / 2;
}

static int ascending(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

double median_of(double *values, int n)
{
	if (n == 0)
		return 0;
	qsort(values, (size_t)n, sizeof(*values), ascending);
	return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}
