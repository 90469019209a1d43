/* Options: plans whose blocks or units differ. They fit, are faster than the answer, as far as they
 * go, and what is printed gives them again; of small models they are compared with every mix. With
 * a number as argument: on so many random questions (suite `slow`). */
#include "support.h"

#include <math.h>
#include <stdlib.h>

#include "planner/mixed/counts.h"
#include "planner/search/search.h"
#include "schedule/resolve/resolve.h"

static int compared = SAMPLED(40);

/* --- what is printed --------------------------------------------------------------------------
 */

/* "--strategy FULL_SHARD --wrap block" on top of the question. */
static struct plan type(struct question question, const char *typed, struct arena *arena)
{
	struct plan plan;
	struct error error = {0};
	char *rest = arena_strdup(arena, typed), *save = NULL;
	for (char *word = strtok_r(rest, " ", &save); word != NULL;
		word = strtok_r(NULL, " ", &save)) {
		const char *value = strtok_r(NULL, " ", &save);
		for (char *c = word; *c != '\0'; c++)
			*c = *c == '-' ? '_' : *c;
		assert_non_null(value);
		if (!question_set_by_name(&question, word + 2, word, value, arena, &error))
			fail_msg("%s", error.message);
	}
	if (!plan_resolve(&question, arena, &plan, &error))
		fail_msg("%s: %s", typed, error.message);
	return plan;
}

static void judge_option(const struct question *question, const struct answer *answer,
	const struct plan_option *option, struct arena *arena)
{
	const struct candidate *chosen = answer->chosen;
	struct plan again = type(*question, option->typed, arena);
	double saved = option->prediction.step_time / plan_tokens(&option->plan) /
		       (chosen->prediction.step_time / plan_tokens(&chosen->plan));
	assert_true(strlen(option->typed) < 240); /* and nothing else */
	assert_true(again.mesh.shard == option->plan.mesh.shard &&
		    knobs_alike_but(0, &again, &option->plan));
	assert_int_equal(option->prediction.fits, FITS_YES);
	assert_true(fabs(1 - saved - option->gain) < 1e-6);
	assert_true(option->gain >= MIX_LEAST_GAIN);
	assert_true(option->plan.activation_checkpointing.n + option->plan.cpu_offload.n +
			    option->plan.reshard_after_forward.n >
		    0);
}

static void test_options(void **state)
{
	static const struct {
		const char *model, *topology, *knob, *value;
	} cases[] = {{"llama-2-7b", "dgx-v100", "wrap", "block"},
		{"llama-2-13b", "dgx-a100-80gb", "wrap", "block"},
		{"mpt-3b", "rtx3090-8x", "global_batch", "64"},
		{"llama-2-13b", "2xdgx-a100-40gb", "global_batch", "8"}, /* with tensor ranks */
		{"llama-2-7b", "g4dn.metal", "global_batch", "16"},      /* with CPU offload */
		{"llama-2-7b", "16xdgx-a100-80gb", "runtime", "internevo"}};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct question question = {.model = load_model(&arena, cases[i].model),
			.topology = load_topology(&arena, cases[i].topology),
			.headroom.given = true}; /* none */
		set_choice(&question, &arena, cases[i].knob, cases[i].value);
		assert_int_equal(ask(&question, &arena).n_options, 0); /* not asked for */
		question.mixes = true;
		struct answer answer = ask(&question, &arena);
		assert_true(answer.n_options > 0 && answer.n_options <= MIXES_MAX);
		assert_int_equal(answer.chosen->plan.activation_checkpointing.n, 0);
		assert_int_equal(answer.chosen->plan.reshard_after_forward.n, 0);
		for (int o = 0; o < answer.n_options; o++) {
			judge_option(&question, &answer, &answer.options[o], &arena);
			assert_true(o == 0 || answer.options[o].gain <= answer.options[o - 1].gain);
		}
		arena_finish(&arena);
	}
}

/* A knob that was given is not mixed. */
static void test_what_is_given_stays(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "llama-2-7b"),
		.topology = load_topology(&arena, "dgx-v100"),
		.mixes = true};
	set_choice(&question, &arena, "activation_checkpointing", "selective");
	struct answer answer = ask(&question, &arena);
	for (int o = 0; o < answer.n_options; o++)
		assert_int_equal(answer.options[o].plan.activation_checkpointing.n, 0);
	set_choice(&question, &arena, "reshard_after_forward", "true");
	assert_int_equal(ask(&question, &arena).n_options, 0);
	arena_finish(&arena);
}

/* --- against every mix --------------------------------------------------------------------------
 */

struct tally {
	int64_t families, solved, optimal, missed;
	double worst, sum; /* found / best */
};

static bool judge(struct evaluator *evaluator, const struct family *family, const int *counts,
	struct arena *arena, double *step_time)
{
	struct prediction prediction;
	struct error error = {0};
	struct plan plan = family_plan(family, counts, arena);
	if (!evaluator_judge(evaluator, &plan, &prediction, &error))
		fail_msg("%s", error.message);
	*step_time = prediction.step_time;
	return has_room(evaluator->question, &plan, &prediction);
}

/* INFINITY: none fits. */
static double best_of_all(
	struct evaluator *evaluator, const struct family *family, struct arena *arena)
{
	double best = INFINITY, step_time;
	int sizes[COUNTS], n = 1;
	for (int c = 0; c < COUNTS; c++)
		n *= sizes[c] = family->most[c] + 1;
	for (int i = 0; i < n; i++) {
		int counts[COUNTS];
		for (int c = 0, left = i; c < COUNTS; left /= sizes[c++])
			counts[c] = left % sizes[c];
		if (family->selective && counts[COUNT_FULL] > counts[COUNT_SOME])
			continue;
		if (judge(evaluator, family, counts, arena, &step_time))
			best = fmin(best, step_time);
	}
	return best;
}

/* One more to the better of any count does not fit, or is not faster. */
static void judge_neighbours(struct evaluator *evaluator, const struct family *family,
	const int *counts, double step_time, struct arena *arena)
{
	static const int better[COUNTS] = {-1, -1, 1, 1};
	for (int c = 0; c < COUNTS; c++) {
		int next[COUNTS] = {counts[0], counts[1], counts[2], counts[3]};
		double time;
		next[c] += better[c];
		if (next[c] < 0 || next[c] > family->most[c] ||
			(family->selective && next[COUNT_FULL] > next[COUNT_SOME]))
			continue;
		assert_false(judge(evaluator, family, next, arena, &time) && time < step_time);
	}
}

static void judge_family(struct evaluator *evaluator, struct family *family, struct arena *arena,
	struct tally *tally)
{
	int counts[COUNTS] = {0};
	double step_time;
	bool exists;
	struct error error = {0};
	family_measure(family, evaluator->question->model);
	if (!family_solve(family, evaluator, arena, counts, &step_time, &exists, &error))
		fail_msg("%s", error.message);
	double best = best_of_all(evaluator, family, arena);
	tally->families++;
	tally->missed += !exists && isfinite(best);
	if (!exists)
		return;
	assert_true(step_time >= best * (1 - 1e-12));
	judge_neighbours(evaluator, family, counts, step_time, arena);
	tally->solved++;
	tally->optimal += step_time <= best * (1 + 1e-9);
	tally->sum += step_time / best;
	tally->worst = fmax(tally->worst, step_time / best);
}

static void judge_question(
	const struct question *question, uint64_t *seed, struct arena *arena, struct tally *tally)
{
	struct evaluator evaluator = {.question = question};
	struct space space;
	struct error error = {0};
	if (!space_build(question, arena, &space, &error))
		return;
	for (int tries = 0; tries < 4; tries++) {
		struct family family = {
			.plan = space.plans[random_below(seed, space.n)], .full = true};
		const struct runtime *runtime = runtime_of(family.plan.runtime);
		family.selective = knob_honoured(KNOB_ACTIVATION_CHECKPOINTING, family.plan.runtime,
			CHECKPOINTING_SELECTIVE);
		family.reshards = runtime->reshards_per_unit &&
				  strategy_reshards(family.plan.strategy) &&
				  plan_reshard_group(&family.plan) != 0;
		if (plan_checkpoints(&family.plan, CHECKPOINTING_NONE) &&
			!plan_offloads_any(&family.plan))
			judge_family(&evaluator, &family, arena, tally);
	}
	space_finish(&space);
	evaluator_finish(&evaluator);
}

static void test_against_every_mix(void **state)
{
	(void)state;
	uint64_t seed = UINT64_C(0x9b05688c2b3e6c1f);
	struct tally tally = {0};
	for (int i = 0; i < compared; i++) {
		struct arena arena = {0};
		struct question question = random_small_question(&seed, &arena);
		question.objective = OBJECTIVE_TIME;
		if (question.only[KNOB_CPU_OFFLOAD].n == 0)
			judge_question(&question, &seed, &arena, &tally);
		arena_finish(&arena);
	}
	print_message("%lld families, of %lld a mix fits: %lld are the best of all, the mean is "
		      "%.4f of it, the worst %.3f; %lld not found\n",
		(long long)tally.families, (long long)tally.solved, (long long)tally.optimal,
		tally.sum / (double)tally.solved, tally.worst, (long long)tally.missed);
	assert_true(tally.solved > compared / 2);
	assert_true(tally.sum / (double)tally.solved < 1.01);
	assert_true(tally.optimal > tally.solved / 2);
	assert_true(tally.missed <= tally.solved / 20);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_what_is_given_stays),
		cmocka_unit_test(test_against_every_mix),
	};
	if (argc > 1)
		compared = atoi(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
