/* The exact sum: independent of order and partition to the bit, right to the last bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/common/exact_sum.h"

static uint64_t state;

static uint64_t next_random(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* Any finite double: all exponents, subnormals and both signs. */
static double any_double(void)
{
	double value;

	do {
		uint64_t bits = next_random();
		memcpy(&value, &bits, sizeof(value));
	} while (!isfinite(value));
	return value;
}

static float any_float(void)
{
	float value;

	do {
		uint32_t bits = (uint32_t)next_random();
		memcpy(&value, &bits, sizeof(value));
	} while (!isfinite(value));
	return value;
}

static struct exact_sum sum_one_by_one(const double *x, int64_t n)
{
	struct exact_sum sum = {0};

	for (int64_t i = 0; i < n; i++)
		exact_sum_add(&sum, x[i]);
	exact_sum_normalise(&sum);
	return sum;
}

static void assert_same(const struct exact_sum *a, const struct exact_sum *b)
{
	assert_memory_equal(a->limbs, b->limbs, sizeof(a->limbs));
}

static void swap_some(double *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		int64_t j = (int64_t)(next_random() % (uint64_t)n);
		double value = x[i];
		x[i] = x[j];
		x[j] = value;
	}
}

/* Adds x in a random partition, each part by a random door, merged in a random direction. */
static struct exact_sum sum_in_parts(const double *x, int64_t n)
{
	struct exact_sum sum = {0};

	for (int64_t first = 0; first < n;) {
		int64_t count = 1 + (int64_t)(next_random() % (uint64_t)(n - first));
		struct exact_sum part = {0};

		if (next_random() % 2)
			exact_sum_add_doubles(&part, x + first, count);
		else
			part = sum_one_by_one(x + first, count);
		if (next_random() % 2) {
			exact_sum_merge(&sum, &part);
		} else {
			exact_sum_merge(&part, &sum);
			sum = part;
		}
		first += count;
	}
	exact_sum_normalise(&sum);
	return sum;
}

static void fill(double *x, int n, int kind)
{
	for (int i = 0; i < n; i++) {
		double wide = any_double(), narrow = (double)any_float();
		const double kinds[] = {wide, narrow * narrow,
			1e-6 * (double)(next_random() % 1000), i % 2 ? -x[i - 1] : wide};
		x[i] = kinds[kind];
	}
}

static void test_any_partition(void **unused)
{
	enum { N = 700 };
	double x[N];

	(void)unused;
	state = 1;
	for (int round = 0; round < 100000; round++) {
		/* Short sums mostly: a long one costs the same as fifty. */
		int n = round % 50 == 0 ? N : 1 + (int)(next_random() % 24);
		struct exact_sum whole, parts;

		fill(x, n, round / 50 % 4);
		whole = sum_one_by_one(x, n);
		swap_some(x, n);
		parts = sum_in_parts(x, n);
		assert_same(&whole, &parts);
	}
}

/* Ranks add their normalised limbs by an integer all-reduce. */
static void test_sum_of_limbs(void **unused)
{
	enum { RANKS = 64, EACH = 40 };
	struct exact_sum total = {0}, whole = {0};

	(void)unused;
	state = 2;
	for (int rank = 0; rank < RANKS; rank++) {
		struct exact_sum own = {0};

		for (int i = 0; i < EACH; i++) {
			double value = any_double() * 0x1p-100;
			exact_sum_add(&own, value);
			exact_sum_add(&whole, value);
		}
		exact_sum_normalise(&own);
		for (int i = 0; i < EXACT_SUM_LIMBS; i++)
			total.limbs[i] += own.limbs[i];
	}
	assert_true(exact_sum_value(&total) == exact_sum_value(&whole));
	exact_sum_normalise(&total);
	exact_sum_normalise(&whole);
	assert_same(&total, &whole);
}

static void test_squares(void **unused)
{
	enum { N = 1000 };
	float x[N];
	double squares[N];

	(void)unused;
	state = 3;
	for (int round = 0; round < 200; round++) {
		struct exact_sum fast = {0}, slow;

		for (int i = 0; i < N; i++) {
			x[i] = round % 2 ? any_float() : 1e-4f * (float)(next_random() % 1000);
			squares[i] = (double)x[i] * (double)x[i];
		}
		exact_sum_add_squares(&fast, x, N - round);
		exact_sum_normalise(&fast);
		slow = sum_one_by_one(squares, N - round);
		assert_same(&fast, &slow);
	}
}

#if __LDBL_MANT_DIG__ == 113
typedef long double quad;
#else
__extension__ typedef __float128 quad;
#endif

/* Sums that 113-bit arithmetic holds exactly must round as it does. */
static void test_rounding(void **unused)
{
	(void)unused;
	state = 4;
	for (int round = 0; round < 100000; round++) {
		struct exact_sum sum = {0};
		quad exact = 0;

		for (int i = 0; i < 8; i++) {
			double value =
				ldexp((double)(int64_t)next_random(), (int)(next_random() % 40));
			exact_sum_add(&sum, value);
			exact += value;
		}
		assert_true(exact_sum_value(&sum) == (double)exact);
	}
}

struct known {
	double terms[4], expected;
};

static void test_known_sums(void **unused)
{
	static const struct known known[] = {
		{{0}, 0.0},
		{{1e308, 1e308, -1e308, -1e308}, 0.0},
		{{1e308, 1e308, -1e308}, 1e308},
		{{0x1p1023, 0x1p1023}, INFINITY},
		{{-0x1p1023, -0x1p1023}, -INFINITY},
		{{0x1p-1074, 0x1p-1074}, 0x1p-1073},
		{{0x1p-1074, -0x1p-1074, -0x1p-1074}, -0x1p-1074},
		{{0x1p1000, 0x1p-1074, -0x1p1000}, 0x1p-1074},
		{{1.0, 0x1p-53}, 1.0},                      /* a tie goes to even */
		{{1.0 + 0x1p-52, 0x1p-53}, 1.0 + 0x1p-51},  /* and up when that is even */
		{{1.0, 0x1p-53, 0x1p-1074}, 1.0 + 0x1p-52}, /* above the tie by the least */
		{{-1.0, -0x1p-53, 0x1p-1074}, -1.0},
		{{0x1p-1022, -0x1p-1074}, 0x1p-1022 - 0x1p-1074},
		{{INFINITY, 1.0, -1e308}, INFINITY},
		{{-INFINITY, 1.0}, -INFINITY},
	};

	(void)unused;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		struct exact_sum one = {0}, all = {0};

		for (int j = 0; j < 4; j++)
			exact_sum_add(&one, known[i].terms[j]);
		exact_sum_add_doubles(&all, known[i].terms, 4);
		assert_true(exact_sum_value(&one) == known[i].expected);
		assert_true(exact_sum_value(&all) == known[i].expected);
	}
}

static void test_not_a_number(void **unused)
{
	struct exact_sum sum = {0}, other = {0};
	float x[3] = {1.0f, NAN, 2.0f};

	(void)unused;
	exact_sum_add_squares(&sum, x, 3);
	assert_true(isnan(exact_sum_value(&sum)));
	exact_sum_add(&other, 1.0);
	exact_sum_merge(&other, &sum);
	assert_true(isnan(exact_sum_value(&other)));
	memset(&sum, 0, sizeof(sum));
	exact_sum_add(&sum, INFINITY);
	exact_sum_add(&sum, -INFINITY);
	assert_true(isnan(exact_sum_value(&sum)));
}

/* 2^29 additions pass the point where carries must be propagated. */
static void test_many_carries(void **unused)
{
	struct exact_sum sum = {0};
	const double value = 0x1.fffffffffffffp0;
	const int64_t n = (int64_t)1 << 29;

	(void)unused;
	for (int64_t i = 0; i < n; i++)
		exact_sum_add(&sum, value);
	assert_true(exact_sum_value(&sum) == value * 0x1p29);
}

/* Negative control: a plain double sum does depend on the order, so these inputs can tell. */
static void test_a_plain_sum_differs(void **unused)
{
	enum { N = 1000 };
	double x[N], forward = 0.0, backward = 0.0;

	(void)unused;
	state = 5;
	fill(x, N, 2);
	for (int i = 0; i < N; i++)
		x[i] *= 1.1;
	for (int i = 0; i < N; i++) {
		forward += x[i];
		backward += x[N - 1 - i];
	}
	assert_true(forward != backward);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_partition),
		cmocka_unit_test(test_sum_of_limbs),
		cmocka_unit_test(test_squares),
		cmocka_unit_test(test_rounding),
		cmocka_unit_test(test_known_sums),
		cmocka_unit_test(test_not_a_number),
		cmocka_unit_test(test_many_carries),
		cmocka_unit_test(test_a_plain_sum_differs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
