/* The ranking on made-up candidates: order, ties, insertion, and which candidates are needed. */
#include "support.h"

#include "planner/evaluation/ranking.h"

static struct ranked make(
	int plan, enum strategy strategy, int64_t time, int64_t memory, int64_t network, bool tight)
{
	return (struct ranked){.plan = plan,
		.strategy = strategy,
		.tight = tight,
		.costs = {{time, memory, network, 0}}};
}

/* Under the objective time, with nothing else known. */
static struct ranked make_simple(int plan, int64_t time, int departures)
{
	struct ranked ranked = make(plan, STRATEGY_FULL_SHARD, time, 10, 10, false);
	ranked.departures = departures;
	return ranked;
}

static bool needs(const struct ranking *ranking, enum strategy strategy, int64_t bound, bool tight)
{
	struct ranked candidate = make(99, strategy, bound, 0, 0, tight);
	return ranking_needs(ranking, &candidate);
}

static bool needs_simple(const struct ranking *ranking, int64_t bound, int departures)
{
	struct ranked candidate = make_simple(99, bound, departures);
	return ranking_needs(ranking, &candidate);
}

static void add(struct ranking *ranking, struct ranked candidate)
{
	ranking_add(ranking, &candidate);
}

static int best(const struct ranking *ranking, int strategy)
{
	const struct ranked *winner = ranking_best(ranking, strategy);
	return winner != NULL ? winner->plan : -1;
}

static void test_order(void **state)
{
	(void)state;
	struct ranked fast = make(9, STRATEGY_FULL_SHARD, 100, 50, 50, false);
	struct ranked small = make(8, STRATEGY_FULL_SHARD, 100, 40, 60, false);
	struct ranked quiet = make(7, STRATEGY_FULL_SHARD, 100, 40, 50, false);
	struct ranked twin = make(6, STRATEGY_FULL_SHARD, 100, 40, 50, false);
	/* equal time: less memory; equal memory: less network; all equal: enumerated first */
	assert_true(ranked_compare(COST_TIME, &small, &fast) < 0);
	assert_true(ranked_compare(COST_TIME, &quiet, &small) < 0);
	assert_true(ranked_compare(COST_TIME, &twin, &quiet) < 0);
	assert_int_equal(ranked_compare(COST_TIME, &twin, &twin), 0);
	/* another objective comes first, then time */
	assert_true(ranked_compare(COST_NETWORK, &fast, &small) < 0);
	struct ranked slow = make(1, STRATEGY_FULL_SHARD, 200, 40, 60, false);
	assert_true(ranked_compare(COST_MEMORY, &small, &slow) < 0);
	assert_true(ranked_compare(COST_MEMORY, &slow, &fast) < 0);
}

static void test_winners_by_strategy(void **state)
{
	(void)state;
	struct ranking ranking;
	ranking_init(&ranking, OBJECTIVE_TIME, 0.01);
	assert_int_equal(best(&ranking, STRATEGY_COUNT), -1);
	add(&ranking, make(0, STRATEGY_FULL_SHARD, 120, 10, 10, false));
	add(&ranking, make(1, STRATEGY_NO_SHARD, 110, 10, 10, false));
	add(&ranking, make(2, STRATEGY_FULL_SHARD, 115, 10, 10, false));
	assert_int_equal(best(&ranking, STRATEGY_COUNT), 1);
	assert_int_equal(best(&ranking, STRATEGY_FULL_SHARD), 2);
	assert_int_equal(best(&ranking, STRATEGY_HYBRID_SHARD), -1);
	ranking_finish(&ranking);
}

/* A tight winner gives way to any with room. */
static void test_tight(void **state)
{
	(void)state;
	struct ranking ranking;
	ranking_init(&ranking, OBJECTIVE_TIME, 0.01);
	add(&ranking, make(0, STRATEGY_FULL_SHARD, 1000, 80, 10, true));
	assert_int_equal(best(&ranking, STRATEGY_COUNT), 0);
	add(&ranking, make(1, STRATEGY_FULL_SHARD, 5000, 40, 10, false));
	assert_int_equal(best(&ranking, STRATEGY_COUNT), 1);
	add(&ranking, make(2, STRATEGY_FULL_SHARD, 1001, 70, 10, true));
	assert_int_equal(best(&ranking, STRATEGY_COUNT), 1);
	/* It is not shown beside it either, and nothing else that is tight is asked for. */
	const struct ranked *front[1 + RANKING_RUNNERS_UP];
	assert_int_equal(ranking_front(&ranking, front), 1);
	assert_false(needs(&ranking, STRATEGY_FULL_SHARD, 10, true));
	assert_true(needs(&ranking, STRATEGY_FULL_SHARD, 4999, false));
	assert_true(needs(&ranking, STRATEGY_NO_SHARD, 10, true)); /* which has no winner */
	ranking_finish(&ranking);
}

/* A call within 1 % goes to the plan with the fewest departures. */
static void test_simple(void **state)
{
	(void)state;
	struct ranking ranking;
	ranking_init(&ranking, OBJECTIVE_TIME, 0.01);
	add(&ranking, make_simple(0, 1000, 3));
	add(&ranking, make_simple(1, 1001, 3)); /* as far: the faster one */
	assert_int_equal(best(&ranking, STRATEGY_COUNT), 0);
	add(&ranking, make_simple(2, 1011, 0)); /* too slow */
	assert_int_equal(best(&ranking, STRATEGY_COUNT), 0);
	add(&ranking, make_simple(3, 1010, 2));
	assert_int_equal(best(&ranking, STRATEGY_COUNT), 3);
	add(&ranking, make_simple(4, 1009, 1));
	ranking.entries[3].tight = true; /* it lies behind 0, 1 and 4: 3 itself */
	assert_int_equal(best(&ranking, STRATEGY_COUNT), 4);
	assert_int_equal(ranking_first(&ranking)->plan, 0);
	/* what could be simpler still is looked at, and nothing else beyond the front */
	for (int i = 0; i < 5; i++) {
		struct ranked shown = make(10 + i, STRATEGY_FULL_SHARD, 1000 + i, 9 - i, 10, false);
		shown.departures = 3;
		add(&ranking, shown);
	}
	assert_true(needs_simple(&ranking, 1010, 0));
	assert_false(needs_simple(&ranking, 1010, 1));
	assert_false(needs_simple(&ranking, 1011, 0));
	ranking_finish(&ranking);
	/* `--simplicity 0%` */
	ranking_init(&ranking, OBJECTIVE_TIME, 0);
	add(&ranking, make_simple(0, 1000, 3));
	add(&ranking, make_simple(1, 1001, 0));
	assert_int_equal(best(&ranking, STRATEGY_COUNT), 0);
	add(&ranking, make_simple(2, 1000, 2));
	assert_int_equal(best(&ranking, STRATEGY_COUNT), 2);
	ranking_finish(&ranking);
}

static struct ranked make_divided(int plan, int64_t time, int departures)
{
	struct ranked ranked = make_simple(plan, time, departures);
	ranked.divided = true;
	return ranked;
}

static bool needs_divided(const struct ranking *ranking, int64_t bound, bool divided)
{
	struct ranked candidate = make_simple(99, bound, 0);
	candidate.divided = divided;
	return ranking_needs(ranking, &candidate);
}

/* Within 2 % a plan that does not divide the model is preferred, whatever its departures; of
 * several the simplest within 1 % of the fastest of them. */
static void test_plain(void **state)
{
	(void)state;
	struct ranking ranking;
	ranking_init(&ranking, OBJECTIVE_TIME, 0.01);
	ranking.wanted = WANTED_RIVALS;
	add(&ranking, make_divided(0, 1000, 1));
	add(&ranking, make_simple(1, 1021, 0)); /* too slow */
	assert_int_equal(best(&ranking, STRATEGY_COUNT), 0);
	assert_true(needs_divided(&ranking, 1020, false));
	assert_false(needs_divided(&ranking, 1021, false));
	add(&ranking, make_simple(2, 1015, 4));
	add(&ranking, make_simple(3, 1018, 3));
	add(&ranking, make_divided(4, 1012, 0));
	assert_int_equal(best(&ranking, STRATEGY_COUNT), 1); /* within 1 % of 2, and simpler */
	assert_int_equal(ranking_first(&ranking)->plan, 0);
	assert_true(needs_divided(&ranking, 1015, false)); /* would be the fastest of them */
	assert_false(needs_divided(&ranking, 1016, false));
	assert_false(needs_divided(&ranking, 1001, true));
	add(&ranking, make_simple(5, 1000, 5)); /* as fast: nothing divided is near */
	assert_int_equal(best(&ranking, STRATEGY_COUNT), 5);
	ranking_finish(&ranking);
	ranking_init(&ranking, OBJECTIVE_TIME, 0); /* `--simplicity 0%` */
	add(&ranking, make_divided(0, 1000, 1));
	add(&ranking, make_simple(1, 1001, 0));
	assert_int_equal(best(&ranking, STRATEGY_COUNT), 0);
	ranking_finish(&ranking);
}

/* The best of a strategy that has none yet: 50 % and 2 % from the best of all, as good up to 1 %,
 * and that without room; a runner-up of one that has; and a faster plan. */
static void test_wanted(void **state)
{
	static const struct {
		enum wanted wanted;
		bool far, near, as_good, tight, runner_up;
	} cases[] = {{WANTED_ALL, true, true, true, true, true},
		{WANTED_RIVALS, false, false, true, false, false},
		{WANTED_BEST, false, false, false, false, false}};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct ranking ranking;
		ranking_init(&ranking, OBJECTIVE_TIME, 0.01);
		ranking.wanted = cases[i].wanted;
		add(&ranking, make_simple(0, 1000, 0));
		assert_int_equal(needs(&ranking, STRATEGY_NO_SHARD, 1500, false), cases[i].far);
		assert_int_equal(needs(&ranking, STRATEGY_NO_SHARD, 1020, false), cases[i].near);
		assert_int_equal(needs(&ranking, STRATEGY_NO_SHARD, 1010, false), cases[i].as_good);
		assert_int_equal(needs(&ranking, STRATEGY_NO_SHARD, 1005, true), cases[i].tight);
		assert_int_equal(needs_simple(&ranking, 1020, 0), cases[i].runner_up);
		assert_true(needs_simple(&ranking, 900, 0));
		ranking_finish(&ranking);
	}
}

/* The Pareto front and what cannot be on it. */
static void test_pareto(void **state)
{
	(void)state;
	const struct ranked *front[8];
	struct costs bounds = {{1100, 1000, 1000, 0}};
	struct ranking ranking;
	ranking_init(&ranking, OBJECTIVE_TIME, 0.01);
	add(&ranking, make(3, STRATEGY_FULL_SHARD, 1000, 1000, 1000, false));
	add(&ranking, make(4, STRATEGY_FULL_SHARD, 2000, 1000, 960, false));
	add(&ranking, make(5, STRATEGY_FULL_SHARD, 2000, 980, 980, false)); /* within fuzz */
	add(&ranking, make(6, STRATEGY_FULL_SHARD, 2001, 10, 10, false));   /* too slow */
	add(&ranking, make(7, STRATEGY_FULL_SHARD, 900, 10, 10, true));     /* no room */
	assert_int_equal(ranking_pareto(&ranking, front, 8), 2);
	assert_int_equal(front[1]->plan, 4);
	assert_int_equal(ranking_pareto(&ranking, front, 1), 1);
	int n = ranking_pareto(&ranking, front, 8);
	assert_true(ranking_excludes(&ranking, front, n, 9, &bounds));
	bounds.of[COST_MEMORY] = 980; /* within the fuzz */
	assert_true(ranking_excludes(&ranking, front, n, 9, &bounds));
	bounds.of[COST_MEMORY] = 969;
	assert_false(ranking_excludes(&ranking, front, n, 9, &bounds));
	/* it may come before the entry, and then it stays */
	bounds = (struct costs){{999, 1000, 1000, 0}};
	assert_false(ranking_excludes(&ranking, front, n, 9, &bounds));
	bounds = (struct costs){{1000, 995, 1000, 0}};
	assert_false(ranking_excludes(&ranking, front, n, 9, &bounds));
	/* equal in everything: the first enumerated stays */
	bounds = (struct costs){{1000, 1000, 1000, 0}};
	assert_true(ranking_excludes(&ranking, front, n, 4, &bounds));
	assert_false(ranking_excludes(&ranking, front, n, 2, &bounds));
	bounds.of[COST_NETWORK] = 1001;
	assert_true(ranking_excludes(&ranking, front, n, 2, &bounds));
	/* better in the rest, but too slow */
	bounds = (struct costs){{2000, 10, 10, 0}};
	assert_false(ranking_excludes(&ranking, front, n, 9, &bounds));
	assert_int_equal(ranking_excludes_above(&ranking, front, n, &bounds), 2000);
	bounds.of[COST_TIME] = 2001;
	assert_true(ranking_excludes(&ranking, front, n, 9, &bounds));
	ranking_finish(&ranking);
}

/* While the winner is tight, whatever may have room must still be looked at. */
static void test_needs(void **state)
{
	(void)state;
	struct ranking ranking;
	ranking_init(&ranking, OBJECTIVE_TIME, 0.01);
	assert_true(needs(&ranking, STRATEGY_FULL_SHARD, INT64_MAX, false));
	for (int i = 0; i < 7; i++) /* a full front close to the winner */
		add(&ranking, make(i, STRATEGY_FULL_SHARD, 1000 + i, 10, 800 - 100 * i, i == 0));
	assert_int_equal(best(&ranking, STRATEGY_COUNT), 1);
	/* of the same departures: only what may be faster, or enter the front */
	assert_true(needs(&ranking, STRATEGY_FULL_SHARD, 1001, false));
	assert_false(needs(&ranking, STRATEGY_FULL_SHARD, 1012, false));
	/* nothing of that strategy yet */
	assert_true(needs(&ranking, STRATEGY_NO_SHARD, 5000, false));
	ranking_finish(&ranking);

	ranking_init(&ranking, OBJECTIVE_TIME, 0.01);
	add(&ranking, make(0, STRATEGY_FULL_SHARD, 1000, 800, 10, true));
	assert_true(needs(&ranking, STRATEGY_FULL_SHARD, 1100, true)); /* the window */
	assert_false(needs(&ranking, STRATEGY_FULL_SHARD, 1112, true));
	assert_true(needs(&ranking, STRATEGY_FULL_SHARD, 9000, false));
	add(&ranking, make(1, STRATEGY_FULL_SHARD, 2000, 700, 10, false));
	assert_true(needs(&ranking, STRATEGY_FULL_SHARD, 1999, false));
	assert_false(needs(&ranking, STRATEGY_FULL_SHARD, 1999, true));
	ranking_finish(&ranking);
}

/* Shown is what is better in something by more than 1 %, within 10 %. */
static void test_front(void **state)
{
	(void)state;
	const struct ranked *front[1 + RANKING_RUNNERS_UP];
	struct ranking ranking;
	ranking_init(&ranking, OBJECTIVE_TIME, 0.01);
	assert_int_equal(ranking_front(&ranking, front), 0);
	add(&ranking, make(0, STRATEGY_FULL_SHARD, 1000, 1000, 1000, false));
	add(&ranking, make(1, STRATEGY_FULL_SHARD, 1001, 1000, 1000, false)); /* no better */
	add(&ranking, make(2, STRATEGY_FULL_SHARD, 1002, 995, 1000, false));  /* within fuzz */
	add(&ranking, make(3, STRATEGY_FULL_SHARD, 1003, 960, 1000, false));
	add(&ranking, make(4, STRATEGY_FULL_SHARD, 1004, 2000, 500, false));
	add(&ranking, make(5, STRATEGY_FULL_SHARD, 1005, 2100, 496, false)); /* dominated by 4 */
	add(&ranking, make(6, STRATEGY_FULL_SHARD, 1101, 1, 1, false));      /* too slow */
	assert_int_equal(ranking_front(&ranking, front), 3);
	assert_int_equal(front[0]->plan, 0);
	assert_int_equal(front[1]->plan, 3);
	assert_int_equal(front[2]->plan, 4);
	for (int i = 0; i < 20; i++)
		add(&ranking, make(10 + i, STRATEGY_NO_SHARD, 1010 + i, 800 - 30 * i, 1, false));
	assert_int_equal(best(&ranking, STRATEGY_COUNT), 0);
	assert_int_equal(ranking_front(&ranking, front), 1 + RANKING_RUNNERS_UP);
	ranking_finish(&ranking);
}

/* The order of arrival does not matter. */
static void test_any_order_of_arrival(void **state)
{
	(void)state;
	enum { N = 40, ROUNDS = 50 };
	uint64_t seed = 88172645463325252u;
	for (int round = 0; round < ROUNDS; round++) {
		const struct ranked *first[1 + RANKING_RUNNERS_UP], *second[1 + RANKING_RUNNERS_UP];
		struct ranking forward, backward;
		struct ranked candidates[N];
		ranking_init(&forward, OBJECTIVE_TIME, 0.01);
		ranking_init(&backward, OBJECTIVE_TIME, 0.01);
		for (int i = 0; i < N; i++)
			candidates[i] = make(i, (enum strategy)random_below(&seed, STRATEGY_COUNT),
				1000 + random_below(&seed, 60), 500 + random_below(&seed, 500),
				random_below(&seed, 3), random_below(&seed, 2));
		for (int i = 0; i < N; i++) {
			candidates[i].departures = (int)random_below(&seed, 4);
			candidates[i].divided = random_below(&seed, 2);
		}
		for (int i = 0; i < N; i++) {
			add(&forward, candidates[i]);
			add(&backward, candidates[N - 1 - i]);
		}
		int n = ranking_front(&forward, first);
		assert_int_equal(n, ranking_front(&backward, second));
		for (int i = 0; i < n; i++)
			assert_int_equal(first[i]->plan, second[i]->plan);
		for (int s = 0; s <= STRATEGY_COUNT; s++)
			assert_int_equal(best(&forward, s), best(&backward, s));
		ranking_finish(&forward);
		ranking_finish(&backward);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_winners_by_strategy),
		cmocka_unit_test(test_tight),
		cmocka_unit_test(test_simple),
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_wanted),
		cmocka_unit_test(test_pareto),
		cmocka_unit_test(test_needs),
		cmocka_unit_test(test_front),
		cmocka_unit_test(test_any_order_of_arrival),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
