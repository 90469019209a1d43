/* Arithmetic that cannot overflow silently. Counts and bytes are int64_t everywhere: up to 10^14
 * parameters and 10^6 ranks. */
#ifndef BASE_CHECKED_H
#define BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

static inline bool checked_add(int64_t a, int64_t b, int64_t *result)
{
	return !__builtin_add_overflow(a, b, result);
}

static inline bool checked_mul(int64_t a, int64_t b, int64_t *result)
{
	return !__builtin_mul_overflow(a, b, result);
}

/* a / b rounded up; a >= 0, b > 0. */
static inline int64_t ceil_div(int64_t a, int64_t b)
{
	return a / b + (a % b != 0);
}

/* The least multiple of b that is >= a; a >= 0, b > 0. The caller knows that it fits. */
static inline int64_t round_up(int64_t a, int64_t b)
{
	return ceil_div(a, b) * b;
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

#endif
