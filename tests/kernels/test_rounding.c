/* Stochastic rounding: every table rounds as the reference does, to the bit, from any element on;
 * the expected value is kept, so updates that nearest rounding would lose arrive on average; and
 * special values stay what they are. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/common/bf16.h"
#include "problem.h"
#include "tests/kernels/reference/reference.h"

enum { N = 203, MANY = 4096, STEPS = 1600 };

struct states {
	uint16_t w[N], m[N], v[N];
	float g[N];
};

static void fill(struct states *s)
{
	memset(s, 0, sizeof(*s)); /* padding is compared too */
	for (int i = 0; i < N; i++) {
		s->w[i] = bf16_from_float(sinf((float)i));
		s->m[i] = bf16_from_float(0.01f * cosf((float)i));
		s->v[i] = bf16_from_float(1e-4f * (float)(i % 7));
		s->g[i] = 0.3f * sinf((float)(5 * i));
	}
}

static void adamw(const struct kernels *kernels, struct states *s, struct rounding rounding)
{
	struct kernel_context context = {0};
	struct adamw a = third_adamw(N);

	a.w = s->w, a.m = s->m, a.v = s->v, a.g = s->g;
	a.dtype = DTYPE_BF16;
	a.rounding = rounding;
	kernels->adamw(&context, &a);
}

static void sgd(const struct kernels *kernels, uint16_t *w, const float *g, int64_t n, float lr,
	struct rounding rounding)
{
	struct kernel_context context = {0};

	kernels->sgd(&context, &(struct sgd){.n = n,
				       .w = w,
				       .g = g,
				       .lr = lr,
				       .gradient_scale = 1,
				       .dtype = DTYPE_BF16,
				       .rounding = rounding});
}

/* The tables must agree on weights, and on both moments, which have random bits of their own. */
static void test_tables_agree(void **state)
{
	static const int64_t firsts[] = {
		0, 1, 2, 33, ((int64_t)1 << 33) - 7, ((int64_t)1 << 40) + 5};

	(void)state;
	for (const struct kernels *const *table = kernels_all(); *table; table++)
		for (int i = 0; i < 6; i++) {
			struct rounding rounding = {{1, 2}, {3, 4}, firsts[i]};
			struct states expected, got;

			fill(&expected);
			fill(&got);
			for (int step = 0; step < 3; step++) {
				rounding.stream[1]++;
				adamw(kernels_reference(), &expected, rounding);
				adamw(*table, &got, rounding);
				sgd(kernels_reference(), expected.w, expected.g, N, 0.01f,
					rounding);
				sgd(*table, got.w, got.g, N, 0.01f, rounding);
			}
			assert_memory_equal(&expected, &got, sizeof(got));
		}
}

/* Whatever names the stream changes the bits. */
static void test_every_key_counts(void **state)
{
	struct rounding rounding = {{1, 2}, {3, 4}, 5};
	struct states plain, other;

	(void)state;
	fill(&plain);
	adamw(kernels_cpu(), &plain, rounding);
	for (int i = 0; i < 6; i++) {
		struct rounding changed = rounding;

		changed.key[0] += i == 0;
		changed.key[1] += i == 1;
		changed.stream[0] += i == 2;
		changed.stream[1] += i == 3;
		changed.first += i == 4 ? 1 : i == 5 ? (int64_t)1 << 33 : 0;
		fill(&other);
		adamw(kernels_cpu(), &other, changed);
		assert_memory_not_equal(plain.w, other.w, sizeof(other.w));
		assert_memory_not_equal(plain.m, other.m, sizeof(other.m));
		assert_memory_not_equal(plain.v, other.v, sizeof(other.v));
	}
}

/* Where MANY weights of 1 end after updates of `update` units in the last place, in such units. */
static double moved(const struct kernels *kernels, double update, int steps)
{
	static uint16_t w[MANY];
	static float g[MANY];
	double sum = 0;

	for (int i = 0; i < MANY; i++) {
		w[i] = bf16_from_float(1);
		g[i] = -1;
	}
	for (int step = 0; step < steps; step++)
		sgd(kernels, w, g, MANY, (float)(update * 0x1p-7),
			(struct rounding){{7, 8}, {9, (uint32_t)step}, 0});
	for (int i = 0; i < MANY; i++)
		sum += (bf16_to_float(w[i]) - 1) * 0x1p7;
	return sum / MANY;
}

/* One rounding of x moves by its fraction on average: the mean of MANY has a standard deviation of
 * sqrt(f (1 - f) / MANY) <= 0.008 units; 5 of those are allowed. */
static void test_expected_value_is_kept(void **state)
{
	(void)state;
	for (int i = 0; i <= 16; i++)
		assert_true(fabs(moved(kernels_cpu(), i / 16.0, 1) - i / 16.0) <= 0.04);
	assert_true(fabs(moved(kernels_cpu(), 0.001, 1) - 0.001) <= 0.0025);
	assert_true(moved(kernels_cpu(), 0, 1) == 0 && moved(kernels_cpu(), 1, 1) == 1);
}

/* 1600 updates of 1/16 unit add up to 100 units: the mean of MANY sums, of which each has a
 * variance of 1600 (1/16) (15/16), is within 5 standard deviations (0.76). To nearest they are all
 * lost. */
static void test_small_updates_add_up(void **state)
{
	uint16_t nearest = bf16_from_float(1);

	(void)state;
	assert_true(fabs(moved(kernels_cpu(), 1.0 / 16, STEPS) - 100) <= 0.76);
	for (int step = 0; step < STEPS; step++)
		nearest = bf16_from_float(bf16_to_float(nearest) + 0x1p-7f / 16);
	assert_true(bf16_to_float(nearest) == 1);
}

/* A number that bf16 has is never moved; NaN and infinities stay; the largest may overflow only. */
static void test_special_values(void **state)
{
	static const float values[] = {0, -0.0f, 1, -1, 0x1p-126f, 0x1p-133f, INFINITY, -INFINITY,
		0x1.fep127f, -0x1.fep127f};

	(void)state;
	for (uint32_t random = 0; random < 0x20000; random += 0x3ff) {
		for (int i = 0; i < 10; i++)
			assert_int_equal(
				bf16_by_chance(values[i], random), bf16_from_float(values[i]));
		assert_true(isnan(bf16_to_float(bf16_by_chance(NAN, random))));
	}
	for (const struct kernels *const *table = kernels_all(); *table; table++) {
		uint16_t w[5] = {0x3f80, 0x7fff, 0x3f80, 0x3f80, 0x7f81};
		float g[5] = {-INFINITY, 1, NAN, INFINITY, 1};

		sgd(*table, w, g, 5, 1e-3f, (struct rounding){{0}, {0}, 3});
		assert_int_equal(w[0], 0x7f80);
		assert_int_equal(w[3], 0xff80);
		for (int i = 1; i < 5; i += i == 2 ? 2 : 1)
			assert_true(isnan(bf16_to_float(w[i])));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tables_agree),
		cmocka_unit_test(test_every_key_counts),
		cmocka_unit_test(test_expected_value_is_kept),
		cmocka_unit_test(test_small_updates_add_up),
		cmocka_unit_test(test_special_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
