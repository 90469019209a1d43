/* Where the experts of a token are: formulas beside tokens that are drawn at random. */
#include "support.h"

#include <math.h>

enum { TOKENS = 20000, MOST = 512 };

/* Chooses `k` of `n` numbers, without any twice, into the front of `of`. */
static void choose(uint64_t *state, int64_t *of, int64_t n, int64_t k)
{
	for (int64_t i = 0; i < k; i++) {
		int64_t j = i + random_below(state, n - i), other = of[i];

		of[i] = of[j];
		of[j] = other;
	}
}

/* Places with one of the experts of a random token. */
static int places_of_token(const struct architecture *a, int64_t places, uint64_t *state)
{
	int64_t groups = a->expert_groups > 0 ? a->expert_groups : 1;
	int64_t chosen = a->expert_groups > 0 ? a->groups_per_token : 1, each = a->experts / groups;
	int64_t group[MOST], pool[MOST], n = 0;
	bool hit[MOST] = {false};
	int hits = 0;

	for (int64_t g = 0; g < groups; g++)
		group[g] = g;
	choose(state, group, groups, chosen);
	for (int64_t g = 0; g < chosen; g++)
		for (int64_t e = 0; e < each; e++)
			pool[n++] = group[g] * each + e;
	choose(state, pool, n, a->experts_per_token);
	for (int64_t i = 0; i < a->experts_per_token; i++)
		hit[pool[i] * places / a->experts] = true;
	for (int64_t p = 0; p < places; p++)
		hits += hit[p];
	return hits;
}

static void test_places(void **state)
{
	static const struct {
		int64_t experts, per_token, groups, chosen, places;
	} rows[] = {{256, 8, 8, 4, 8}, {256, 8, 8, 4, 64}, {256, 8, 8, 4, 4}, {256, 8, 8, 4, 2},
		{256, 8, 0, 0, 64}, {256, 8, 0, 0, 8}, {160, 6, 8, 3, 8}, {128, 4, 0, 0, 8},
		{8, 2, 0, 0, 8}, {8, 2, 0, 0, 2}, {64, 8, 4, 2, 1}};
	uint64_t seed = 7;
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		const struct architecture a = {.experts = rows[i].experts,
			.experts_per_token = rows[i].per_token,
			.expert_groups = rows[i].groups,
			.groups_per_token = rows[i].chosen};
		double sum = 0;

		for (int t = 0; t < TOKENS; t++)
			sum += places_of_token(&a, rows[i].places, &seed);
		double expected = architecture_expert_places(&a, (double)rows[i].places);
		if (!(fabs(expected / (sum / TOKENS) - 1) < 0.01))
			fail_msg("row %d: %.4f, drawn %.4f", i, expected, sum / TOKENS);
	}
}

/* Each expert a place of its own: as many as a token meets. */
static void test_ends(void **state)
{
	const struct architecture a = {
		.experts = 256, .experts_per_token = 8, .expert_groups = 8, .groups_per_token = 4};
	(void)state;
	assert_true(fabs(architecture_expert_places(&a, 256) - 8) < 1e-9);
	assert_true(fabs(architecture_expert_places(&a, 1) - 1) < 1e-9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
