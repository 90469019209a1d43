/* Mixed plans: the relaxation never exceeds the simulation, and the search finds what trying every
 * mix finds. With a number as argument: on so many random questions (suite `slow`). */
#include "support.h"

#include <stdlib.h>

#include "planner/mixed/mix.h"
#include "planner/search/search.h"

enum { RELAXED = RANDOM_QUESTIONS(160) };
static int compared = RANDOM_QUESTIONS(32);

static void list_offload(struct question *question, struct arena *arena, int n, const char **values)
{
	restrict_to(question, arena, KNOB_CPU_OFFLOAD, n, values);
}

/* A third of them offload what is listed, a third where nothing fits without, a third never. */
static void choose_offload(struct question *question, uint64_t *state, struct arena *arena)
{
	static const char *both[] = {"none", "parameters"},
			  *all[] = {"none", "optimizer", "parameters"};
	bool ours = question->asked.runtime == RUNTIME_SHARDPLAN;
	question->only[KNOB_CPU_OFFLOAD].n = 0;
	int64_t kind = random_below(state, 3);
	if (kind == 0)
		set_choice(question, arena, "cpu_offload", "none");
	if (kind < 2)
		return;
	if (ours && random_below(state, 2) == 0)
		list_offload(question, arena, COUNT_OF(all), all);
	else
		list_offload(question, arena, COUNT_OF(both), both);
}

static struct question mixed_question(uint64_t *state, struct arena *arena)
{
	struct question question = random_question(state, arena);
	question.objective = OBJECTIVE_TIME;
	if (random_below(state, 6) > 0)
		question_open(&question, KNOB_ACTIVATION_CHECKPOINTING);
	question.mixes = true;
	choose_offload(&question, state, arena);
	return question;
}

/* --- relaxation ----------------------------------------------------------------------------------
 */

struct tally {
	int64_t mixes, offloaded, violations;
	double time, memory;
};

static void judge_mix(const struct question *question, struct evaluator *evaluator,
	const struct subproblem *subproblem, const int *mix, double slack, struct arena *arena,
	struct tally *tally)
{
	struct plan plan = mix_plan(subproblem, mix, arena);
	struct bound bound = mix_bound(question->topology, subproblem, mix);
	struct prediction p;
	struct error error = {0};
	struct text text = {0};
	if (!evaluator_run(evaluator, &plan, &p, &error))
		fail_msg("%s", error.message);
	double used = (double)p.peak_memory_bytes;
	tally->mixes++;
	tally->offloaded += mix[MIX_STAYS] > 0;
	tally->time += bound.time / p.step_time;
	tally->memory += (double)bound.memory / used;
	if (slack * bound.time <= p.step_time && slack * (double)bound.memory <= used)
		return;
	if (tally->violations++ < 3) {
		plan_summary(&plan, &text);
		print_message("%s: time %.9g > %.9g or memory %.9g > %.9g\n", text_string(&text),
			bound.time, p.step_time, (double)bound.memory, used);
		text_finish(&text);
	}
}

static void random_mix(const struct subproblem *subproblem, uint64_t *state, int *mix)
{
	for (int c = 0; c < MIX_CHOICES; c++)
		mix[c] = (int)random_below(state, subproblem->sizes[c]);
	if (subproblem->knobs.selective && mix[MIX_FULL] > mix[MIX_SOME])
		mix[MIX_FULL] = mix[MIX_SOME];
}

static void judge_subproblems(const struct question *question, uint64_t *state, double slack,
	struct arena *arena, struct tally *tally)
{
	struct search search = {.question = question};
	struct evaluator evaluator = {.question = question};
	struct samples samples;
	struct error error = {0};
	if (!space_build(question, arena, &search.space, &error))
		return;
	samples_init(&samples, question);
	for (int i = 0; i < search.space.n; i += 1 + (int)random_below(state, 40)) {
		struct subproblem subproblem;
		struct mix_knobs knobs;
		if (!mix_knobs(&search, &search.space.plans[i], &knobs))
			continue;
		if (!subproblem_build(
			    &samples, &search.space.plans[i], &knobs, arena, &subproblem, &error))
			fail_msg("%s", error.message);
		for (int j = 0; j < 4; j++) {
			int mix[MIX_CHOICES];
			random_mix(&subproblem, state, mix);
			judge_mix(question, &evaluator, &subproblem, mix, slack, arena, tally);
		}
	}
	samples_finish(&samples);
	space_finish(&search.space);
	evaluator_finish(&evaluator);
}

static struct tally judge_random(uint64_t seed, int questions, double slack)
{
	struct tally tally = {0};
	for (int i = 0; i < questions; i++) {
		struct arena arena = {0};
		struct question question = mixed_question(&seed, &arena);
		judge_subproblems(&question, &seed, slack, &arena, &tally);
		arena_finish(&arena);
	}
	return tally;
}

static void test_relaxation(void **state)
{
	(void)state;
	struct tally tally = judge_random(UINT64_C(0x1f83d9abfb41bd6b), RELAXED, 1);
	print_message("%lld mixes (%lld with units on both sides), bound / simulated: time %.2f, "
		      "memory %.2f\n",
		(long long)tally.mixes, (long long)tally.offloaded,
		tally.time / (double)tally.mixes, tally.memory / (double)tally.mixes);
	assert_int_equal(tally.violations, 0);
	assert_true(tally.mixes > RELAXED * 10 && tally.offloaded > RELAXED);
	assert_true(tally.memory / (double)tally.mixes > 0.8); /* and worth having */
}

/* The judge notices bounds that are too high. */
static void test_negative_control(void **state)
{
	(void)state;
	assert_true(judge_random(99, 10, 3).violations > 0);
}

/* --- brute force ---------------------------------------------------------------------------------
 */

enum { GRID = 8 };

struct grid {
	struct search *search;
	const struct subproblem *subproblem;
	struct arena *arena;
	struct point {
		bool known, fits;
		struct costs costs;
	} of[GRID][GRID][GRID][GRID];
};

static struct point *point_at(struct grid *grid, const int *mix)
{
	struct point *point =
		&grid->of[mix[MIX_FULL]][mix[MIX_SOME]][mix[MIX_UNITS]][mix[MIX_STAYS]];
	if (!point->known) {
		struct plan plan = mix_plan(grid->subproblem, mix, grid->arena);
		struct prediction prediction;
		struct error error = {0};
		if (!evaluator_run(&grid->search->evaluator, &plan, &prediction, &error))
			fail_msg("%s", error.message);
		point->known = true;
		point->fits = prediction.fits == FITS_YES;
		point->costs = costs_of(grid->search->question, &plan, &prediction);
	}
	return point;
}

static bool is_mix(const struct subproblem *subproblem, const int *mix)
{
	for (int c = 0; c < MIX_CHOICES; c++)
		if (mix[c] < 0 || mix[c] >= subproblem->sizes[c])
			return false;
	return !subproblem->knobs.selective || mix[MIX_FULL] <= mix[MIX_SOME];
}

static bool is_maximal(struct grid *grid, const int *mix)
{
	static const int better[MIX_CHOICES] = {-1, -1, 1, 1};
	for (int c = 0; c < MIX_CHOICES; c++) {
		int next[MIX_CHOICES] = {mix[0], mix[1], mix[2], mix[3]};
		next[c] += better[c];
		if (is_mix(grid->subproblem, next) && point_at(grid, next)->fits)
			return false;
	}
	return true;
}

/* Every maximal mix of a subproblem into `all`; uniform plans are there already. */
static void add_maximal(struct grid *grid, struct ranking *all)
{
	const int *sizes = grid->subproblem->sizes;
	for (int i = 0; i < sizes[0] * sizes[1] * sizes[2] * sizes[3]; i++) {
		int mix[MIX_CHOICES], left = i;
		for (int c = 0; c < MIX_CHOICES; left /= sizes[c++])
			mix[c] = left % sizes[c];
		if (!is_mix(grid->subproblem, mix) || !point_at(grid, mix)->fits ||
			!is_maximal(grid, mix))
			continue;
		ranking_add(all, &(struct ranked){.plan = 100000 + all->n,
					 .strategy = grid->subproblem->plan.strategy,
					 .costs = point_at(grid, mix)->costs,
					 .mixed = true});
	}
}

static void add_uniform(struct search *search, struct ranking *all)
{
	for (int i = 0; i < search->space.n; i++) {
		struct prediction prediction;
		struct error error = {0};
		const struct plan *plan = &search->space.plans[i];
		if (!evaluator_run(&search->evaluator, plan, &prediction, &error))
			fail_msg("%s", error.message);
		if (prediction.fits != FITS_NO)
			ranking_add(all,
				&(struct ranked){.plan = i,
					.strategy = plan->strategy,
					.tight = prediction.fits == FITS_TIGHT,
					.costs = costs_of(search->question, plan, &prediction)});
	}
}

/* Mixes have the rate limiter's first value; what else moves work in time is fixed. */
static bool is_first(const struct space *space, int plan)
{
	struct plan one = space->plans[plan];
	for (int i = 0; i < plan; i++) {
		const struct plan *other = &space->plans[i];
		one.limit_all_gathers = other->limit_all_gathers;
		if (one.mesh.shard == other->mesh.shard && knobs_alike_but(0, &one, other))
			return false;
	}
	return true;
}

static void add_subproblems(struct search *search, struct arena *arena, struct ranking *all)
{
	struct samples samples;
	samples_init(&samples, search->question);
	for (int i = 0; i < search->space.n; i++) {
		const struct plan *plan = &search->space.plans[i];
		struct mix_knobs knobs;
		struct error error = {0};
		struct subproblem subproblem;
		if (!mix_knobs(search, plan, &knobs) || !is_first(&search->space, i))
			continue;
		if (!subproblem_build(&samples, plan, &knobs, arena, &subproblem, &error))
			fail_msg("%s", error.message);
		struct grid *grid = ARENA_NEW(arena, struct grid);
		*grid = (struct grid){.search = search, .subproblem = &subproblem, .arena = arena};
		for (int c = 0; c < MIX_CHOICES; c++)
			assert_true(subproblem.sizes[c] <= GRID);
		add_maximal(grid, all);
	}
	samples_finish(&samples);
}

/* Of the leanest plan in which no unit is offloaded, or (`offload`) every one; 0: there is none. */
static int64_t least_memory(struct question question, const char *offload, struct arena *arena)
{
	struct search search;
	struct error error = {0};
	int64_t least = 0;
	question.objective = OBJECTIVE_MEMORY;
	question.mixes = false;
	question.only[KNOB_CPU_OFFLOAD].n = 0;
	question.memory_limit_bytes = 0;
	set_choice(&question, arena, "cpu_offload", offload);
	if (search_run(&question, arena, &search, &error) && search.ranking.n > 0)
		least = search.ranking.entries[0].costs.of[COST_MEMORY];
	search_finish(&search);
	return least;
}

/* Memory that some mixes exceed; where units may be offloaded, too little for none of them to be.
 */
static int64_t limit_for(const struct question *question, uint64_t *state, struct arena *arena)
{
	struct answer answer;
	struct error error = {0};
	if (!question_gives(question, KNOB_CPU_OFFLOAD)) {
		int64_t few = least_memory(*question, "parameters", arena);
		int64_t many = least_memory(*question, "none", arena);
		if (few > 0 && few < many)
			return few + (many - few) / 5 + random_below(state, many - few);
	}
	if (!planner_plan(question, arena, &answer, &error) || answer.chosen == NULL)
		return 0;
	const struct prediction *p = &answer.chosen->prediction;
	int64_t part = p->peak_reserved_bytes;
	return p->peak_memory_bytes - part + part * 6 / 10 + random_below(state, part / 3);
}

/* Mixes only where prefetching is settled. */
static struct question question_with_few_plans(uint64_t *state, struct arena *arena)
{
	struct question question = mixed_question(state, arena);
	set_choice(&question, arena, "prefetch", "pre");
	set_choice(&question, arena, "forward_prefetch", "false");
	set_choice(&question, arena, "wrap", random_below(state, 3) > 0 ? "block" : "blocks:2");
	question.memory_limit_bytes = 0;
	question.memory_limit_bytes = limit_for(&question, state, arena);
	return question;
}

static long long time_of(const struct ranked *ranked)
{
	return ranked != NULL ? (long long)ranked->costs.of[COST_TIME] : -1;
}

static bool equal(const struct ranked *mine, const struct ranked *best)
{
	if (mine == NULL || best == NULL)
		return mine == best;
	return memcmp(&mine->costs, &best->costs, sizeof(best->costs)) == 0;
}

struct wins {
	int mixed, offloaded, none;
};

static bool offloads_some(const struct plan *plan)
{
	return plan_offloads_any(plan) && plan->cpu_offload.n > 0;
}

static void compare(const struct question *question, struct arena *arena, struct wins *wins)
{
	struct search search;
	struct ranking all;
	struct error error = {0};
	struct text text = {0};
	if (!search_run(question, arena, &search, &error)) {
		assert_int_equal(error.code, EXIT_CODE_USAGE);
		search_finish(&search);
		return;
	}
	ranking_init(&all, question->objective);
	add_uniform(&search, &all);
	add_subproblems(&search, arena, &all);
	const struct ranked *mine = ranking_first(&search.ranking);
	const struct ranked *best = ranking_first(&all);
	describe_question(question, &text);
	bool same = equal(mine, best) && equal(ranking_best(&search.ranking, STRATEGY_COUNT),
						 ranking_best(&all, STRATEGY_COUNT));
	if (!same)
		fail_msg("%s: another winner, %lld for %lld", text_string(&text), time_of(mine),
			time_of(best));
	wins->none += best == NULL;
	wins->mixed += mine != NULL && mine->mixed;
	wins->offloaded += mine != NULL && offloads_some(&search.space.plans[mine->plan]);
	text_finish(&text);
	ranking_finish(&all);
	search_finish(&search);
}

static void test_equals_brute_force(void **state)
{
	(void)state;
	uint64_t seed = UINT64_C(0x5be0cd19137e2179);
	struct wins wins = {0};
	for (int i = 0; i < compared; i++) {
		struct arena arena = {0};
		struct question question = question_with_few_plans(&seed, &arena);
		compare(&question, &arena, &wins);
		arena_finish(&arena);
	}
	print_message(
		"%d questions: a mix wins %d, with offload of some units %d, nothing fits %d\n",
		compared, wins.mixed, wins.offloaded, wins.none);
	assert_true(20 * wins.mixed >= compared);
	assert_true(compared < 32 || wins.offloaded > 0);
	assert_true(wins.none < compared / 2);
}

/* The whole space, mixes and all: nothing is left open. */
static void test_proves_optimal(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "llama-2-7b"),
		.topology = load_topology(&arena, "2xdgx-a100-80gb"),
		.mixes = true};
	struct answer answer = ask(&question, &arena);
	print_message("%lld plans simulated\n", (long long)answer.evaluated);
	assert_non_null(answer.chosen);
	assert_true(answer.gap == 0);
	assert_in_range(answer.evaluated, 1, 400);
	arena_finish(&arena);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_relaxation),
		cmocka_unit_test(test_negative_control),
		cmocka_unit_test(test_equals_brute_force),
		cmocka_unit_test(test_proves_optimal),
	};
	if (argc > 1)
		compared = atoi(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
