/* The search finds what simulating every plan finds. With a number as argument: on so many random
 * questions, small ones (suite `slow`: 10,000). */
#include "support.h"

#include <stdlib.h>

#include "planner/search/turns.h"

enum { FEW_QUESTIONS = 30 };
static int questions = FEW_QUESTIONS;

static int plan_of(const struct ranked *ranked)
{
	return ranked != NULL ? ranked->plan : -1;
}

static bool same_front(const struct ranking *a, const struct ranking *b)
{
	const struct ranked *first[1 + RANKING_RUNNERS_UP], *second[1 + RANKING_RUNNERS_UP];
	int n = ranking_front(a, first);
	if (n != ranking_front(b, second))
		return false;
	for (int i = 0; i < n; i++)
		if (first[i]->plan != second[i]->plan)
			return false;
	return true;
}

static bool same_pareto(const struct ranking *a, const struct ranking *b)
{
	enum { MOST = 4096 };
	static const struct ranked *first[MOST], *second[MOST];
	int n = ranking_pareto(a, first, MOST);
	if (n != ranking_pareto(b, second, MOST))
		return false;
	for (int i = 0; i < n; i++)
		if (first[i]->plan != second[i]->plan)
			return false;
	return true;
}

/* What a strategy that does not fit is listed with: one of its own plans, that does not fit, and no
 * closer than the closest. */
static bool closest_is_sane(
	const struct search *search, const struct ranking *all, const int64_t *least, int strategy)
{
	int closest = search->closest[strategy];
	bool none = !search->space.allowed[strategy] ||
		    search->space.impossible[strategy] != NULL ||
		    ranking_best(all, strategy) != NULL;
	if (none)
		return closest == -1;
	return closest >= 0 && search->known[closest].fits == FITS_NO &&
	       (int)search->space.plans[closest].strategy == strategy &&
	       search->known[closest].costs.of[COST_MEMORY] >= least[strategy];
}

struct totals {
	int64_t questions, plans, evaluated, fitting;
};

static bool has_room_for_one(const struct ranking *ranking)
{
	const struct ranked *best = ranking_best(ranking, STRATEGY_COUNT);
	return best != NULL && !best->tight;
}

/* Whether any plan has room is found out by what plans need, without ranking them all. */
static bool finds_any(const struct question *question, struct arena *arena)
{
	struct question any = *question;
	struct search search;
	struct error error = {0};
	any.wanted = WANTED_ANY;
	any.objective = OBJECTIVE_MEMORY;
	any.pareto = false;
	assert_true(search_run(&any, arena, &search, &error));
	bool found = has_room_for_one(&search.ranking);
	search_finish(&search);
	return found;
}

static void compare(const struct question *question, struct arena *arena, struct totals *totals)
{
	struct search search;
	struct ranking all;
	struct error error = {0};
	struct text text = {0};
	int64_t least[STRATEGY_COUNT];
	describe_question(question, &text);
	if (!search_run(question, arena, &search, &error)) {
		if (error.code != EXIT_CODE_USAGE)
			fail_msg("%s: %s", text_string(&text), error.message);
		search_finish(&search);
		text_finish(&text);
		return;
	}
	totals->questions++;
	totals->plans += search.space.n;
	totals->evaluated += search.evaluated;
	assert_int_equal(search.evaluated + search.pruned, search.space.n);
	rank_all(&search, &all, least);
	totals->fitting += all.n > 0;
	for (int s = 0; s <= STRATEGY_COUNT; s++)
		if (plan_of(ranking_best(&search.ranking, s)) != plan_of(ranking_best(&all, s)))
			fail_msg("%s: another winner of %s", text_string(&text),
				s < STRATEGY_COUNT ? strategy_names[s] : "all");
	if (!same_front(&search.ranking, &all))
		fail_msg("%s: another front", text_string(&text));
	if (question->pareto && !same_pareto(&search.ranking, &all))
		fail_msg("%s: another Pareto front", text_string(&text));
	for (int s = 0; s < STRATEGY_COUNT; s++)
		if (!closest_is_sane(&search, &all, least, s))
			fail_msg("%s: closest of %s", text_string(&text), strategy_names[s]);
	if (finds_any(question, arena) != has_room_for_one(&all))
		fail_msg("%s: another answer to whether any has room", text_string(&text));
	ranking_finish(&all);
	search_finish(&search);
	text_finish(&text);
}

static void test_equals_brute_force(void **state)
{
	(void)state;
	uint64_t seed = UINT64_C(0x2545f4914f6cdd1d);
	struct totals totals = {0};
	bool small = questions > FEW_QUESTIONS;
	for (int i = 0; i < questions; i++) {
		struct arena arena = {0};
		struct question question = small ? random_small_question(&seed, &arena)
						 : random_question(&seed, &arena);
		question.pareto = i % 2;
		compare(&question, &arena, &totals);
		arena_finish(&arena);
	}
	print_message("%lld questions, %lld with an answer; %lld plans, %lld simulated\n",
		(long long)totals.questions, (long long)totals.fitting, (long long)totals.plans,
		(long long)totals.evaluated);
	/* The comparison saw both: plans that fit and questions that nothing fits; and it pruned.
	 */
	assert_true(totals.fitting > totals.questions / 2);
	assert_true(totals.fitting < totals.questions);
	assert_true(totals.evaluated < totals.plans);
}

/* Control: the comparison notices when the best plan is missing, and the search asks for what is
 * needed and not for more. */
static void test_negative_control(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "llama-2-7b"),
		.topology = load_topology(&arena, "2xdgx-a100-80gb")};
	set_choice(&question, &arena, "global_batch", "32");
	set_choice(&question, &arena, "wrap", "block");
	struct search search;
	struct ranking all;
	struct error error = {0};
	int64_t least[STRATEGY_COUNT];
	assert_true(search_run(&question, &arena, &search, &error));
	const struct ranked *best = ranking_best(&search.ranking, STRATEGY_COUNT);
	assert_non_null(best);
	struct ranked other = *best;
	assert_true(ranking_needs(&search.ranking, &other));
	other.costs.of[COST_TIME] *= 2;
	assert_false(ranking_needs(&search.ranking, &other));
	rank_all(&search, &all, least);
	assert_true(same_front(&search.ranking, &all));
	/* The search was not asked for a Pareto front and does not have one. */
	assert_false(same_pareto(&search.ranking, &all));
	for (int i = 0; i < all.n; i++)
		if (all.entries[i].plan == best->plan)
			all.entries[i] = all.entries[--all.n];
	assert_false(same_front(&search.ranking, &all));
	ranking_finish(&all);
	search_finish(&search);
	arena_finish(&arena);
}

/* The front does not depend on which plans were skipped, but the counts do: pruning happens on the
 * question that the product is about. Two-sided: all would be 1,000 and more. */
static void test_prunes(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "llama-2-7b"),
		.topology = load_topology(&arena, "2xdgx-a100-80gb")};
	struct search search;
	struct error error = {0};
	assert_true(search_run(&question, &arena, &search, &error));
	print_message("%d plans, %lld simulated\n", search.space.n, (long long)search.evaluated);
	assert_true(search.space.n > 800);
	assert_true(search.evaluated < search.space.n / 3);
	assert_true(search.evaluated > 5);
	search_finish(&search);
	arena_finish(&arena);
}

/* What the Pareto front costs beyond the answer. */
static void test_front_is_cheap(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "llama-2-7b"),
		.topology = load_topology(&arena, "2xdgx-a100-80gb")};
	struct search search[2];
	struct error error = {0};
	for (int i = 0; i < 2; i++) {
		question.pareto = i == 1;
		assert_true(search_run(&question, &arena, &search[i], &error));
	}
	int64_t evaluated = search[1].evaluated - search[0].evaluated;
	print_message("%d plans, for the front %lld simulated\n", search[1].space.n,
		(long long)evaluated);
	assert_true(evaluated > 64); /* as many as there are on it */
	assert_true(evaluated < search[1].space.n / 4);
	search_finish(&search[0]);
	search_finish(&search[1]);
	arena_finish(&arena);
}

/* A search that gives up has found the best, and says nothing of strategies that it did not look
 * at. */
static void test_gives_up(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "llama-2-7b"),
		.topology = load_topology(&arena, "dgx-v100")};
	struct search search;
	struct error error = {0};
	question.effort = INT64_MAX;
	struct answer whole = ask(&question, &arena);
	question.effort = 1;
	assert_true(search_run(&question, &arena, &search, &error));
	assert_true(search.given_up);
	search_finish(&search);
	struct answer less = ask(&question, &arena);
	double best = whole.chosen->prediction.step_time / plan_tokens(&whole.chosen->plan);
	assert_true(whole.gap == 0 && less.evaluated < whole.evaluated);
	assert_true(!less.interrupted && less.n_alternatives < whole.n_alternatives);
	assert_true(less.bound / plan_tokens(&less.chosen->plan) <= best * (1 + 1e-6));
	assert_true(less.chosen->prediction.step_time * (1 - less.gap) <=
		    best * plan_tokens(&less.chosen->plan) * (1 + 1e-6));
	for (int i = 0; i < less.n_alternatives; i++)
		assert_int_not_equal(less.alternatives[i].outcome, OUTCOME_DOES_NOT_FIT);
	arena_finish(&arena);
}

/* Stages that no device holds are told by what they hold, not by simulating all of them. */
static void test_stages_that_do_not_fit(void **state)
{
	(void)state;
	static const char *const fixed[][2] = {{"pipeline", "8"}, {"tensor", "8"}, {"expert", "8"},
		{"seq_len", "4096"}, {"global_batch", "2048"}};
	enum { SIMULATED_MOST = 16 };
	struct arena arena = {0};
	struct search search;
	struct error error = {0};
	struct question question = {.model = load_model(&arena, "deepseek-v3"),
		.topology = load_topology(&arena, "32xdgx-h100")};
	for (int i = 0; i < COUNT_OF(fixed); i++)
		set_choice(&question, &arena, fixed[i][0], fixed[i][1]);
	assert_true(search_run(&question, &arena, &search, &error));
	assert_int_equal(search.ranking.n, 0);
	assert_true(search.space.n > 100);
	int64_t simulated = search.evaluator.evaluated + evaluators_evaluated(&search.workers);
	if (simulated > SIMULATED_MOST)
		fail_msg("%" PRId64 " of %d plans simulated", simulated, search.space.n);
	int found = search.closest[STRATEGY_FULL_SHARD];
	assert_true(found >= 0 && search.known[found].costs.of[COST_MEMORY] > search.limit);
	search_finish(&search);
	arena_finish(&arena);
}

/* Where states alone are too large, a plan's load and shape are looked at (it has a bound of time
 * then) only while it may be what misses by least. */
static void test_few_are_close(void **state)
{
	(void)state;
	static const char *const fixed[][2] = {{"runtime", "megatron"}, {"global_batch", "256"}};
	enum { LOOKED_AT_MOST = 24, WHOLE = STRATEGY_NO_SHARD };
	struct arena arena = {0};
	struct search search;
	struct error error = {0};
	struct question question = {.model = load_model(&arena, "mixtral-8x7b"),
		.topology = load_topology(&arena, "dgx-h100")};
	int looked_at = 0;
	for (int i = 0; i < COUNT_OF(fixed); i++)
		set_choice(&question, &arena, fixed[i][0], fixed[i][1]);
	assert_true(search_run(&question, &arena, &search, &error));
	assert_int_equal(search.ranking.n, 0);
	int end = search.space.first[WHOLE + 1], n = end - search.space.first[WHOLE];
	for (int i = end - n; i < end; i++)
		looked_at += search.bounds.of[i].time > 0;
	assert_true(n > 300);
	if (looked_at > LOOKED_AT_MOST)
		fail_msg("%d of %d plans looked at", looked_at, n);
	assert_in_range(search.closest[WHOLE], end - n, end - 1);
	search_finish(&search);
	arena_finish(&arena);
}

/* Where one pipeline fits and is the first, is another one looked at that has so many departures
 * and costs at least so much? */
static bool needs_another(struct search *search, int departures, int64_t bound)
{
	search->space.departures[1] = departures;
	return is_needed(search, &(struct ticket){bound, bound, 1});
}

/* A pipeline that cannot win is one too many. One that costs little more and departs in fewer knobs
 * can win. */
static void test_one_pipeline_is_enough(void **state)
{
	(void)state;
	enum { COST = 1000000, CLOSE = COST + COST / 200, FAR = COST + COST / 50, FIRST = 3 };
	struct arena arena = {0};
	struct plan plans[2] = {{.mesh = {.pipeline = 2}}, {.mesh = {.pipeline = 2}}};
	struct known known[2] = {{.ready = true, .simulated = true}};
	struct bound bounds[2] = {{0}};
	int departures[2] = {FIRST};
	const struct ranked first = {
		.divided = true, .departures = FIRST, .costs.of[COST_TIME] = COST};
	struct question question = {.topology = load_topology(&arena, "dgx-h100"),
		.headroom.given = true,
		.simplicity = 0.01};
	struct search search = {.question = &question,
		.space = {.n = 2, .plans = plans, .departures = departures},
		.bounds.of = bounds,
		.known = known,
		.limit = 1,
		.pipelines = 1};
	ranking_init(&search.ranking, question.objective, question.simplicity);
	ranking_add(&search.ranking, &first);
	assert_true(needs_another(&search, FIRST, COST - 1));
	assert_true(needs_another(&search, FIRST - 1, CLOSE));
	assert_false(needs_another(&search, FIRST, CLOSE));
	assert_false(needs_another(&search, FIRST - 1, FAR));
	search.pipelines = 0; /* then it shows what the best would cost */
	assert_true(needs_another(&search, FIRST, FAR));
	ranking_finish(&search.ranking);
	arena_finish(&arena);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equals_brute_force),
		cmocka_unit_test(test_negative_control),
		cmocka_unit_test(test_prunes),
		cmocka_unit_test(test_front_is_cheap),
		cmocka_unit_test(test_gives_up),
		cmocka_unit_test(test_stages_that_do_not_fit),
		cmocka_unit_test(test_few_are_close),
		cmocka_unit_test(test_one_pipeline_is_enough),
	};
	if (argc > 1)
		questions = atoi(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
