/* One-dimensional search, and medians. */
#include "fit.h"

#include <math.h>
#include <stdlib.h>

#include "base/sorted.h"

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

double median_of(double *values, int n)
{
	sort_numbers(values, n);
	return quantile(values, n, 0.5);
}
