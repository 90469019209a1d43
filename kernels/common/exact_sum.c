/* The exact sum. Large arrays first go through extract_level: adding and subtracting a large
 * constant cuts every value at one binary place, without rounding, so that the cut-off high parts
 * can be summed exactly in double; what is left goes down to the next level (Rump 2008,
 * "extraction"). */
#include "kernels/common/exact_sum.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum {
	DIGIT_BITS = 32,
	LOWEST_BIT = -1088, /* digit 0 has weight 2^LOWEST_BIT */
	NAN_COUNT = EXACT_SUM_DIGITS,
	PLUS_INFINITY_COUNT,
	MINUS_INFINITY_COUNT,
	PENDING, /* additions since the last normalise */
	BLOCK = 256,
	/* A level keeps 40 bits, and 2^8 values of a block add 8 more: below the 53 of a double. */
	LEVEL_BITS = 40,
	LEVELS = 4,
};

static const int64_t DIGIT_MASK = ((int64_t)1 << DIGIT_BITS) - 1;
/* Each addition moves a digit by less than 2^32 and a merge by twice that. */
static const int64_t MOST_PENDING = (int64_t)1 << 28;

void exact_sum_normalise(struct exact_sum *sum)
{
	int64_t carry = 0;

	for (int i = 0; i < EXACT_SUM_DIGITS; i++) {
		int64_t digit = sum->limbs[i] + carry;

		carry = 0;
		if (i < EXACT_SUM_DIGITS - 1) {
			/* Floor, so that digits are in [0, 2^32) and the sign is in the top one. */
			carry = digit >> DIGIT_BITS;
			digit &= DIGIT_MASK;
		}
		sum->limbs[i] = digit;
	}
	sum->limbs[PENDING] = 0;
}

static void add_pending(struct exact_sum *sum, int64_t count)
{
	sum->limbs[PENDING] += count;
	if (sum->limbs[PENDING] >= MOST_PENDING)
		exact_sum_normalise(sum);
}

static void add_special(struct exact_sum *sum, double value)
{
	if (isnan(value))
		sum->limbs[NAN_COUNT]++;
	else
		sum->limbs[value > 0 ? PLUS_INFINITY_COUNT : MINUS_INFINITY_COUNT]++;
}

void exact_sum_add(struct exact_sum *sum, double value)
{
	uint64_t bits, low, high, significand;
	int exponent, place, shift;
	int64_t sign;

	memcpy(&bits, &value, sizeof(bits));
	exponent = (int)(bits >> 52 & 0x7ff);
	significand = bits & (((uint64_t)1 << 52) - 1);
	if (exponent == 0x7ff) {
		add_special(sum, value);
		return;
	}
	if (exponent > 0)
		significand |= (uint64_t)1 << 52;
	else
		exponent = 1; /* subnormal */
	place = exponent - 1075 - LOWEST_BIT;
	shift = place % DIGIT_BITS;
	sign = bits >> 63 ? -1 : 1;

	/* significand * 2^shift spans at most three digits: 53 + 31 bits. */
	low = (significand & (uint64_t)DIGIT_MASK) << shift;
	high = ((significand >> DIGIT_BITS) << shift) + (low >> DIGIT_BITS);
	place /= DIGIT_BITS;
	sum->limbs[place] += sign * (int64_t)(low & (uint64_t)DIGIT_MASK);
	sum->limbs[place + 1] += sign * (int64_t)(high & (uint64_t)DIGIT_MASK);
	sum->limbs[place + 2] += sign * (int64_t)(high >> DIGIT_BITS);
	add_pending(sum, 1);
}

/* Cuts every value at the place that `big`'s last bit marks; returns the exact sum of the high
 * parts and leaves the low ones. big = 1.5 * 2^(p+52) makes fl(big + x) - big a multiple of 2^p. */
static double extract_level(double *x, double big)
{
	double sums[8] = {0};

	for (int i = 0; i < BLOCK; i += 8) {
		for (int lane = 0; lane < 8; lane++) {
			double high = (big + x[i + lane]) - big;

			sums[lane] += high;
			x[i + lane] -= high;
		}
	}
	return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
	       ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

static double block_maximum(const double *x)
{
	double top[8] = {0};

	for (int i = 0; i < BLOCK; i += 8) {
		for (int lane = 0; lane < 8; lane++) {
			double size = fabs(x[i + lane]);

			/* A NaN must win, or it would hide. */
			top[lane] = size <= top[lane] ? top[lane] : size;
		}
	}
	for (int lane = 1; lane < 8; lane++)
		top[0] = top[lane] <= top[0] ? top[0] : top[lane];
	return top[0];
}

static void add_each(struct exact_sum *sum, const double *x)
{
	for (int i = 0; i < BLOCK; i++) {
		if (x[i] != 0.0)
			exact_sum_add(sum, x[i]);
	}
}

/* Adds BLOCK values and spoils them. */
static void add_block(struct exact_sum *sum, double *x)
{
	for (int level = 0; level < LEVELS; level++) {
		double top = block_maximum(x);
		int exponent;

		if (top == 0.0)
			return;
		/* Out of the range in which `big` and its last bit are ordinary numbers. */
		if (!(top > 0x1p-900 && top < 0x1p900))
			break;
		frexp(top, &exponent);
		exact_sum_add(sum, extract_level(x, ldexp(1.5, exponent - LEVEL_BITS + 52)));
	}
	add_each(sum, x);
}

void exact_sum_add_squares(struct exact_sum *sum, const float *x, int64_t n)
{
	double block[BLOCK];

	for (int64_t i = 0; i < n; i += BLOCK) {
		int count = n - i < BLOCK ? (int)(n - i) : BLOCK;

		for (int j = 0; j < count; j++)
			block[j] = (double)x[i + j] * (double)x[i + j];
		memset(block + count, 0, (size_t)(BLOCK - count) * sizeof(double));
		add_block(sum, block);
	}
}

void exact_sum_add_doubles(struct exact_sum *sum, const double *x, int64_t n)
{
	double block[BLOCK];

	for (int64_t i = 0; i < n; i += BLOCK) {
		int count = n - i < BLOCK ? (int)(n - i) : BLOCK;

		memcpy(block, x + i, (size_t)count * sizeof(double));
		memset(block + count, 0, (size_t)(BLOCK - count) * sizeof(double));
		add_block(sum, block);
	}
}

void exact_sum_add_floats(struct exact_sum *sum, const float *x, int64_t n)
{
	double block[BLOCK];

	for (int64_t i = 0; i < n; i += BLOCK) {
		int count = n - i < BLOCK ? (int)(n - i) : BLOCK;

		for (int j = 0; j < count; j++)
			block[j] = x[i + j];
		exact_sum_add_doubles(sum, block, count);
	}
}

void exact_sum_merge(struct exact_sum *sum, const struct exact_sum *other)
{
	struct exact_sum copy = *other;

	exact_sum_normalise(&copy);
	exact_sum_normalise(sum);
	for (int i = 0; i < PENDING; i++)
		sum->limbs[i] += copy.limbs[i];
	exact_sum_normalise(sum);
}

/* Turns a normalised sum into its absolute value; true when it was negative. */
static bool make_positive(struct exact_sum *sum)
{
	if (sum->limbs[EXACT_SUM_DIGITS - 1] >= 0)
		return false;
	for (int i = 0; i < EXACT_SUM_DIGITS; i++)
		sum->limbs[i] = -sum->limbs[i];
	exact_sum_normalise(sum);
	return true;
}

/* The `count` <= 53 bits from bit `low` (of the whole number) upward. */
static uint64_t bits_at(const struct exact_sum *sum, int low, int count)
{
	uint64_t result = 0;

	for (int i = 0; i < count; i++) {
		int bit = low + i;
		uint64_t digit = (uint64_t)sum->limbs[bit / DIGIT_BITS];
		result |= (digit >> bit % DIGIT_BITS & 1) << i;
	}
	return result;
}

static bool any_below(const struct exact_sum *sum, int bit)
{
	for (int i = 0; i < bit / DIGIT_BITS; i++) {
		if (sum->limbs[i] != 0)
			return true;
	}
	return bits_at(sum, bit / DIGIT_BITS * DIGIT_BITS, bit % DIGIT_BITS) != 0;
}

/* Rounds a normalised positive sum to nearest, ties to even. */
static double round_positive(const struct exact_sum *sum)
{
	int digit = EXACT_SUM_DIGITS - 1, top, low;
	uint64_t bits;

	while (digit >= 0 && sum->limbs[digit] == 0)
		digit--;
	if (digit < 0)
		return 0.0;
	top = digit * DIGIT_BITS + 63 - __builtin_clzll((uint64_t)sum->limbs[digit]);
	low = top - 52;
	/* Everything is a multiple of 2^-1074, so below that no bit is set and none is rounded. */
	if (low < -1074 - LOWEST_BIT)
		low = -1074 - LOWEST_BIT;
	bits = bits_at(sum, low, top - low + 1);
	if (bits_at(sum, low - 1, 1) && ((bits & 1) || any_below(sum, low - 1)))
		bits++;
	return ldexp((double)bits, low + LOWEST_BIT);
}

double exact_sum_value(const struct exact_sum *sum)
{
	struct exact_sum copy = *sum;
	bool plus = sum->limbs[PLUS_INFINITY_COUNT] > 0,
	     minus = sum->limbs[MINUS_INFINITY_COUNT] > 0;

	if (sum->limbs[NAN_COUNT] > 0 || (plus && minus))
		return NAN;
	if (plus || minus)
		return plus ? INFINITY : -INFINITY;
	exact_sum_normalise(&copy);
	return make_positive(&copy) ? -round_positive(&copy) : round_positive(&copy);
}

double exact_sum_clip_factor(const struct exact_sum *squares, double most)
{
	return most / (sqrt(exact_sum_value(squares)) + 1e-6);
}
