/* Philox against its published answers; streams are the same whoever draws from them. */
#include "support.h"

#include <math.h>
#include <stdlib.h>

#include "executor/compute/random.h"
#include "kernels/plain/plain.h"

/* kat_vectors of the Random123 library (Salmon et al.), philox4x32 with 10 rounds. */
static void philox_known_answers(void **state)
{
	static const struct {
		uint32_t counter[4], key[2], out[4];
	} answers[] = {
		{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff},
			{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
			{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	};
	uint32_t out[4];

	(void)state;
	for (int i = 0; i < COUNT_OF(answers); i++) {
		philox4x32(answers[i].counter, answers[i].key, out);
		assert_memory_equal(out, answers[i].out, sizeof(out));
	}
}

enum { DRAWS = 40000 };

static void normals_are_normal(void **state)
{
	float *x = malloc(DRAWS * sizeof(*x));
	double mean = 0, square = 0, fourth = 0;

	(void)state;
	random_normal_fill(7, 3, 0, DRAWS, 2, x);
	for (int i = 0; i < DRAWS; i++) {
		double z = x[i] / 2;

		mean += z / DRAWS;
		square += z * z / DRAWS;
		fourth += z * z * z * z / DRAWS;
	}
	/* Five standard errors of each moment: 1, sqrt(2) and sqrt(96) over sqrt(DRAWS). */
	assert_true(fabs(mean) < 5 / sqrt(DRAWS));
	assert_true(fabs(square - 1) < 5 * sqrt(2.0 / DRAWS));
	assert_true(fabs(fourth - 3) < 5 * sqrt(96.0 / DRAWS));
	free(x);
}

static void elements_do_not_depend_on_the_shard(void **state)
{
	float whole[257], part[257];

	(void)state;
	random_normal_fill(11, 5, 0, 257, 0.02, whole);
	for (int first = 0; first < 257; first += 13)
		for (int n = 1; first + n <= 257; n += 29) {
			random_normal_fill(11, 5, first, n, 0.02, part);
			assert_memory_equal(part, whole + first, (size_t)n * sizeof(float));
		}
	random_normal_fill(11, 6, 0, 257, 0.02, part);
	assert_memory_not_equal(part, whole, sizeof(whole));
	random_normal_fill(12, 5, 0, 257, 0.02, part);
	assert_memory_not_equal(part, whole, sizeof(whole));
}

static void permutations_are_bijections(void **state)
{
	static const int64_t lengths[] = {1, 2, 3, 4, 5, 16, 17, 255, 1000, 4097};
	bool seen[4097];
	int moved = 0;

	(void)state;
	for (int l = 0; l < COUNT_OF(lengths); l++) {
		int64_t n = lengths[l];

		memset(seen, 0, sizeof(seen));
		for (int64_t i = 0; i < n; i++) {
			int64_t to = random_permute(42, l, n, i);

			assert_in_range(to, 0, n - 1);
			assert_false(seen[to]);
			seen[to] = true;
			moved += to != i;
		}
	}
	assert_true(moved > 5000);
}

static void permutations_differ_by_seed_and_round(void **state)
{
	int same_seed = 0, same_round = 0;

	(void)state;
	for (int64_t i = 0; i < 1000; i++) {
		same_seed += random_permute(1, 0, 1000, i) == random_permute(2, 0, 1000, i);
		same_round += random_permute(1, 0, 1000, i) == random_permute(1, 1, 1000, i);
	}
	/* One coincidence is expected. */
	assert_in_range(same_seed, 0, 10);
	assert_in_range(same_round, 0, 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(philox_known_answers),
		cmocka_unit_test(normals_are_normal),
		cmocka_unit_test(elements_do_not_depend_on_the_shard),
		cmocka_unit_test(permutations_are_bijections),
		cmocka_unit_test(permutations_differ_by_seed_and_round),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
