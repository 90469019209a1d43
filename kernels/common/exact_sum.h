/* A sum of doubles without rounding: the same bits in any order and any partition.
 *
 * A fixed-point number wide enough for every double (Kulisch 1971, "superaccumulator"): digits of
 * 32 bits, each in an int64_t with room for 2^31 carries. A gradient norm over any sharding, or a
 * loss over any number of ranks, is hence one number, rounded once. */
#ifndef KERNELS_EXACT_SUM_H
#define KERNELS_EXACT_SUM_H

#include <stdint.h>

enum { EXACT_SUM_DIGITS = 68, EXACT_SUM_LIMBS = EXACT_SUM_DIGITS + 4 };

/* Zeroed = empty. Ranks combine sums by exact_sum_normalise, then adding limb by limb (an
 * all-reduce of EXACT_SUM_LIMBS int64_t), then exact_sum_value. Digit i weighs 2^(32 i - 1088); the
 * last four limbs count NaN, +inf, -inf and the additions since the last normalise. */
struct exact_sum {
	int64_t limbs[EXACT_SUM_LIMBS];
};

void exact_sum_add(struct exact_sum *sum, double value);
/* += x[i]^2 and (twice) += x[i]; squares of fp32 are exact in double. */
void exact_sum_add_squares(struct exact_sum *sum, const float *x, int64_t n);
void exact_sum_add_doubles(struct exact_sum *sum, const double *x, int64_t n);
void exact_sum_add_floats(struct exact_sum *sum, const float *x, int64_t n);
void exact_sum_merge(struct exact_sum *sum, const struct exact_sum *other);
/* Propagates carries: equal values then have equal limbs (all digits in [0, 2^32), sign on top). */
void exact_sum_normalise(struct exact_sum *sum);
/* Rounded to the nearest double, ties to even; inf on overflow, NaN as IEEE would say. */
double exact_sum_value(const struct exact_sum *sum);
/* The factor that scales a gradient whose squares sum to `squares` to a norm of at most `most`. */
double exact_sum_clip_factor(const struct exact_sum *squares, double most);

#endif
