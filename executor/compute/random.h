/* Counter-based random numbers: a number is a function of (seed, what it is for, index), so any
 * rank can make exactly those that it needs, in any order and any sharding. */
#ifndef EXECUTOR_COMPUTE_RANDOM_H
#define EXECUTOR_COMPUTE_RANDOM_H

#include <stdint.h>

#include "kernels/kernels.h"

/* out[i] = element first + i of the stream (seed, tensor): N(0, deviation), by Box-Muller in double
 * rounded once. Elements 4j .. 4j + 3 come from one Philox block. */
void random_normal_fill(
	int64_t seed, int64_t tensor, int64_t first, int64_t n, double deviation, float *out);

/* The place of element i in permutation number `round` of 0..n-1, which is a bijection for each
 * (seed, round). n >= 1, 0 <= i < n. */
int64_t random_permute(int64_t seed, int64_t round, int64_t n, int64_t i);

/* For the elements of a tensor from `first` on, in step `step` (modulo 2^32): the same on any rank
 * holds them, in any sharding, and after a resume. */
struct rounding random_rounding(int64_t seed, int64_t tensor, int64_t step, int64_t first);

#endif
