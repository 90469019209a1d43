/* Both solvers against enumeration, on random programmes. */
#include "support.h"

#include <math.h>

#include "planner/integer/integer.h"

enum { SIZE_MAX_ = 12, PROGRAMMES = 400 };

struct made {
	struct programme programme;
	double terms[PROGRAMME_ROWS_MAX][PROGRAMME_GROUPS_MAX][SIZE_MAX_];
	int64_t bytes[PROGRAMME_MEMORIES_MAX][PROGRAMME_GROUPS_MAX][SIZE_MAX_];
};

static void make_memory(struct made *made, int memory, uint64_t *state)
{
	struct programme *p = &made->programme;
	int64_t most = 0;
	for (int g = 0; g < p->n_groups; g++) {
		int64_t *bytes = made->bytes[memory][g];
		p->memories[memory].bytes[g] = bytes;
		for (int i = 0; i < p->sizes[g]; i++) {
			bytes[i] = random_below(state, INT64_C(1) << 36);
			most += bytes[i] / p->sizes[g];
		}
	}
	p->memories[memory].capacity = most / 2 + random_below(state, most + 1);
}

static void make_programme(struct made *made, uint64_t *state)
{
	struct programme *p = &made->programme;
	*made = (struct made){0};
	p->n_groups = 1 + (int)random_below(state, PROGRAMME_GROUPS_MAX);
	p->n_rows = 1 + (int)random_below(state, 5);
	for (int g = 0; g < p->n_groups; g++)
		p->sizes[g] = 1 + (int)random_below(state, SIZE_MAX_);
	p->n_memories = 1 + (int)random_below(state, PROGRAMME_MEMORIES_MAX);
	for (int q = 0; q < p->n_memories; q++)
		make_memory(made, q, state);
	for (int r = 0; r < p->n_rows; r++) {
		p->rows[r].constant = (double)random_below(state, 1000) / 1000;
		for (int g = 0; g < p->n_groups; g++) {
			p->rows[r].term[g] = made->terms[r][g];
			for (int i = 0; i < p->sizes[g]; i++)
				made->terms[r][g][i] = (double)random_below(state, 1000) / 700;
		}
	}
	p->ordered = p->n_groups > 1 && random_below(state, 2) == 0;
}

/* The least objective by trying everything; infinite when nothing is allowed. */
static double enumerate(const struct programme *p)
{
	double least = INFINITY;
	int choice[PROGRAMME_GROUPS_MAX] = {0};
	for (int g = 0; g < p->n_groups;) {
		if (programme_has_room(p, choice) && programme_is_ordered(p, choice))
			least = fmin(least, programme_objective(p, choice));
		for (g = 0; g < p->n_groups && ++choice[g] == p->sizes[g]; g++)
			choice[g] = 0;
	}
	return least;
}

static void judge(const struct programme *p, const struct solution *solution, double least)
{
	assert_int_equal(solution->feasible, isfinite(least) != 0);
	if (!solution->feasible)
		return;
	assert_true(programme_has_room(p, solution->choice));
	assert_true(programme_is_ordered(p, solution->choice));
	assert_true(solution->objective == programme_objective(p, solution->choice));
	assert_true(fabs(solution->objective - least) <= 1e-6 * least);
	assert_true(solution->bound <= least);
	assert_true(solution->bound >= least * (1 - 1e-5));
}

static void test_equal_enumeration(void **state)
{
	(void)state;
	uint64_t seed = UINT64_C(0x853c49e6748fea9b);
	int feasible = 0, by_glpk = 0;
	for (int i = 0; i < PROGRAMMES; i++) {
		struct made made;
		struct solution solution;
		make_programme(&made, &seed);
		double least = enumerate(&made.programme);
		feasible += isfinite(least) != 0;
		programme_solve_bounding(&made.programme, &solution);
		judge(&made.programme, &solution, least);
		if (programme_solve_glpk(&made.programme, &solution)) {
			by_glpk++;
			judge(&made.programme, &solution, least);
		}
	}
	print_message("%d of %d feasible, %d solved by GLPK\n", feasible, PROGRAMMES, by_glpk);
	assert_true(feasible > PROGRAMMES / 4 && feasible < PROGRAMMES);
	/* Where it is built in it gives up rarely, if ever. */
	if (HAVE_GLPK)
		assert_true(by_glpk > PROGRAMMES * 9 / 10);
	else
		assert_int_equal(by_glpk, 0);
}

/* What GLPK would abort on comes back as "nothing is known", and the next call works. */
static void test_error_comes_back(void **state)
{
	(void)state;
	uint64_t seed = 77;
	struct made made;
	struct solution solution;
	make_programme(&made, &seed);
	while (!isfinite(enumerate(&made.programme)))
		make_programme(&made, &seed);
	double least = enumerate(&made.programme);
	int size = made.programme.sizes[0];
	made.programme.sizes[0] = 0; /* a row without columns: no solution, or an error */
	if (programme_solve_glpk(&made.programme, &solution))
		assert_false(solution.feasible);
	made.programme.sizes[0] = size;
	made.terms[0][0][0] = NAN;
	(void)programme_solve_glpk(&made.programme, &solution);
	made.terms[0][0][0] = 0.5;
	least = enumerate(&made.programme);
	if (!programme_solve_glpk(&made.programme, &solution))
		programme_solve_bounding(&made.programme, &solution);
	judge(&made.programme, &solution, least);
}

/* --- blocks of a pipeline ---------------------------------------------------------------------
 */

enum { STAGES_MAX = 6, BLOCKS_MAX = 9, SHARINGS = 400 };

struct shares {
	struct sharing sharing;
	int rank[STAGES_MAX], most[STAGES_MAX];
};

/* In a loop, or two chunks as a V. */
static void make_shares(struct shares *made, uint64_t *state)
{
	struct sharing *s = &made->sharing;
	*made = (struct shares){0};
	s->chunks = 1 + (int)random_below(state, 3);
	s->ranks = 1 + (int)random_below(state, STAGES_MAX / s->chunks);
	s->blocks = 1 + (int)random_below(state, BLOCKS_MAX);
	s->block = (double)(1 + random_below(state, 30)) / 7;
	s->first = (double)random_below(state, 4) / 5;
	s->last = (double)random_below(state, 40) / 3;
	s->rank = made->rank;
	s->most = made->most;
	bool folded = s->chunks == 2 && random_below(state, 2) == 0;
	for (int stage = 0; stage < s->ranks * s->chunks; stage++)
		made->rank[stage] =
			folded && stage >= s->ranks ? 2 * s->ranks - 1 - stage : stage % s->ranks;
	for (int r = 0; r < s->ranks; r++)
		made->most[r] = random_below(state, 3) == 0 ? (int)random_below(state, BLOCKS_MAX)
							    : BLOCKS_MAX;
}

static bool is_allowed(const struct sharing *s, const int *stages)
{
	int n = s->ranks * s->chunks, all = 0, held[STAGES_MAX] = {0};
	for (int stage = 0; stage < n; stage++) {
		if (stages[stage] < (stage > 0 && stage < n - 1))
			return false;
		held[s->rank[stage]] += stages[stage];
		all += stages[stage];
	}
	for (int r = 0; r < s->ranks; r++)
		if (held[r] > s->most[r])
			return false;
	return all == s->blocks;
}

/* The least of all there are; infinite: none. */
static double least_of(const struct sharing *s, int *stages, int stage)
{
	double least = INFINITY;
	if (stage == s->ranks * s->chunks)
		return is_allowed(s, stages) ? sharing_seconds(s, stages) : INFINITY;
	for (stages[stage] = 0; stages[stage] <= s->blocks; stages[stage]++)
		least = fmin(least, least_of(s, stages, stage + 1));
	return least;
}

static void test_shares_equal_enumeration(void **state)
{
	(void)state;
	uint64_t seed = UINT64_C(0x9e3779b97f4a7c15);
	int feasible = 0, by_glpk = 0;
	for (int i = 0; i < SHARINGS; i++) {
		struct shares made;
		int stages[STAGES_MAX];
		double seconds;
		bool found;
		make_shares(&made, &seed);
		double least = least_of(&made.sharing, stages, 0);
		feasible += isfinite(least) != 0;
		assert_int_equal(
			sharing_solve(&made.sharing, stages, &seconds), isfinite(least) != 0);
		if (isfinite(least)) {
			assert_true(is_allowed(&made.sharing, stages));
			assert_true(fabs(sharing_seconds(&made.sharing, stages) - least) <=
				    1e-9 * least);
			assert_true(fabs(seconds - least) <= 1e-9 * least);
		}
		if (!sharing_solve_glpk(&made.sharing, &found, &seconds))
			continue;
		by_glpk++;
		assert_int_equal(found, isfinite(least) != 0);
		assert_true(!found || fabs(seconds - least) <= 1e-6 * least);
	}
	print_message("%d of %d feasible, %d solved by GLPK\n", feasible, SHARINGS, by_glpk);
	assert_true(feasible > SHARINGS / 4 && feasible < SHARINGS);
	assert_true(HAVE_GLPK ? by_glpk > SHARINGS * 9 / 10 : by_glpk == 0);
}

/* Llama 3 405B: 126 blocks on 16 ranks, a block less on either end (2407.21783 section 3.3.2). */
static void test_shares_of_405b(void **state)
{
	(void)state;
	int rank[16], most[16], stages[16];
	double seconds;
	for (int r = 0; r < 16; r++) {
		rank[r] = r;
		most[r] = 126;
	}
	struct sharing sharing = {126, 16, 1, 1, 0.9, 0.9, rank, most};
	assert_true(sharing_solve(&sharing, stages, &seconds));
	assert_true(fabs(seconds - 8) < 1e-9);
	for (int s = 0; s < 16; s++)
		assert_int_equal(stages[s], s == 0 || s == 15 ? 7 : 8);
	most[3] = 6; /* two blocks go elsewhere */
	assert_true(sharing_solve(&sharing, stages, &seconds));
	assert_true(fabs(seconds - 8.9) < 1e-9);
	assert_int_equal(stages[3], 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shares_equal_enumeration),
		cmocka_unit_test(test_shares_of_405b),
		cmocka_unit_test(test_equal_enumeration),
		cmocka_unit_test(test_error_comes_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
