/* Order statistics of plain numbers. */
#ifndef BASE_SORTED_H
#define BASE_SORTED_H

#include <stdint.h>

/* In place, ascending; no NaN among them. */
void sort_numbers(double *values, int64_t n);

/* The share q (0 to 1) of sorted numbers is at or below it: linear between the two nearest ranks
 * (Hyndman and Fan's definition 7, that of NumPy and R). 0 for none. */
double quantile(const double *sorted, int64_t n, double q);

#endif
