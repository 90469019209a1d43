/* Comparison of the user's plan with the best one. */
#include "support.h"

#include "planner/evaluation/evaluation.h"
#include "schedule/resolve/resolve.h"

static struct comparison compare(const struct question *question, const struct plan *mine,
	const struct answer *answer, struct arena *arena)
{
	struct comparison comparison;
	struct error error = {0};
	if (!planner_compare(question, mine, answer, arena, &comparison, &error))
		fail_msg("%s", error.message);
	return comparison;
}

static struct question question_7b(struct arena *arena)
{
	struct question question = {.model = load_model(arena, "llama-2-7b"),
		.topology = load_topology(arena, "2xdgx-a100-80gb")};
	set_choice(&question, arena, "global_batch", "64");
	return question;
}

/* Each change is the plan with that knob of the chosen one, simulated. */
static void test_changes_are_simulated(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = question_7b(&arena);
	struct answer answer = ask(&question, &arena);
	struct plan mine = answer.chosen->plan;
	mine.wrap = wrap_of_kind(WRAP_MODEL);
	mine.activation_checkpointing = rows_of_checkpointing(CHECKPOINTING_FULL);
	struct comparison c = compare(&question, &mine, &answer, &arena);
	assert_int_equal(c.n, 2);
	assert_true(c.mine.prediction.step_time > answer.chosen->prediction.step_time);
	assert_non_null(strstr(c.statement, "slower"));
	for (int i = 0; i < c.n; i++) {
		struct evaluator evaluator = {.question = &question};
		struct prediction prediction;
		struct error error = {0};
		struct plan plan = mine;
		if (strcmp(c.changes[i].knob, "wrap") == 0)
			plan.wrap = answer.chosen->plan.wrap;
		else
			plan.activation_checkpointing =
				answer.chosen->plan.activation_checkpointing;
		assert_true(evaluator_run(&evaluator, &plan, &prediction, &error));
		assert_true(prediction.step_time == c.changes[i].prediction.step_time);
		evaluator_finish(&evaluator);
	}
	assert_true(c.changes[0].prediction.step_time <= c.changes[1].prediction.step_time);
	arena_finish(&arena);
}

static void test_best_against_itself(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = question_7b(&arena);
	struct answer answer = ask(&question, &arena);
	struct comparison c = compare(&question, &answer.chosen->plan, &answer, &arena);
	assert_int_equal(c.n, 0);
	assert_non_null(strstr(c.statement, "as fast"));
	arena_finish(&arena);
}

static void test_too_large(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = question_7b(&arena);
	struct answer answer = ask(&question, &arena);
	struct plan mine = answer.chosen->plan;
	mine.micro_batch = 4;
	mine.grad_accum = 1;
	mine.activation_checkpointing = rows_of_checkpointing(CHECKPOINTING_NONE);
	struct comparison c = compare(&question, &mine, &answer, &arena);
	assert_int_equal(c.mine.outcome, OUTCOME_DOES_NOT_FIT);
	assert_non_null(strstr(c.statement, "does not fit"));
	arena_finish(&arena);
}

static const struct change *find_change(const struct comparison *c, const char *knob)
{
	for (int i = 0; i < c->n; i++)
		if (strcmp(c->changes[i].knob, knob) == 0)
			return &c->changes[i];
	return NULL;
}

/* FSDP1's limiter is no row against FSDP2, which has none: the runtime is one, the first, and every
 * row is a plan. */
static void test_another_runtime(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = question_7b(&arena);
	struct answer answer = ask(&question, &arena);
	struct question other = question_7b(&arena);
	struct plan mine;
	struct error error = {0};
	SET_CHOICES(&other, &arena, "runtime", "pytorch-fsdp1", "strategy", "HYBRID_SHARD",
		"activation_checkpointing", "full");
	assert_true(plan_resolve(&other, &arena, &mine, &error));
	assert_int_equal(answer.chosen->plan.runtime, RUNTIME_PYTORCH_FSDP2);
	struct comparison c = compare(&question, &mine, &answer, &arena);
	assert_string_equal(c.changes[0].knob, "runtime");
	assert_string_equal(c.changes[0].from, "pytorch-fsdp1");
	assert_null(find_change(&c, "limit_all_gathers"));
	assert_non_null(find_change(&c, "strategy"));
	for (int i = 0; i < c.n; i++)
		assert_true(c.changes[i].built);
	arena_finish(&arena);
}

/* accelerate's file reshards all units but the last. Another wrap policy has another number of
 * units, so its row takes the resharding along, and says so. */
static void test_lists_by_unit(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = question_7b(&arena);
	SET_CHOICES(&question, &arena, "strategy", "FULL_SHARD", "wrap", "block");
	struct answer answer = ask(&question, &arena);
	struct question other = question_7b(&arena);
	struct plan mine;
	struct error error = {0};
	SET_CHOICES(&other, &arena, "strategy", "FULL_SHARD", "wrap", "block+embedding+head",
		"reshard_after_forward", "33xtrue+1xfalse");
	assert_true(plan_resolve(&other, &arena, &mine, &error));
	struct comparison c = compare(&question, &mine, &answer, &arena);
	const struct change *wrap = find_change(&c, "wrap");
	assert_non_null(wrap);
	assert_true(wrap->built);
	assert_string_equal(wrap->note, "with the resharding");
	const struct change *reshard = find_change(&c, "reshard_after_forward");
	assert_string_equal(reshard->to, "true"); /* as it is typed, without quotes */
	arena_finish(&arena);
}

/* The best of the user's own strategy is compared first. */
static void test_own_strategy(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = question_7b(&arena);
	struct answer answer = ask(&question, &arena);
	struct question other = question_7b(&arena);
	struct plan mine;
	struct error error = {0};
	assert_int_not_equal(answer.chosen->plan.strategy, STRATEGY_HYBRID_SHARD);
	set_choice(&other, &arena, "strategy", "HYBRID_SHARD");
	set_choice(&other, &arena, "activation_checkpointing", "full");
	assert_true(plan_resolve(&other, &arena, &mine, &error));
	struct comparison c = compare(&question, &mine, &answer, &arena);
	const char *own = strstr(c.statement, "Against the best HYBRID_SHARD plan");
	const char *best = strstr(c.statement, "Against the best plan");
	assert_true(own != NULL && best != NULL && own < best);
	arena_finish(&arena);
}

/* A plan for another number of ranks is no plan for this question. */
static void test_of_another_machine(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = question_7b(&arena);
	struct answer answer = ask(&question, &arena);
	struct plan mine = answer.chosen->plan;
	struct comparison comparison;
	struct error error = {0};
	mine.mesh.shard = mine.mesh.replicate = 4;
	mine.strategy = STRATEGY_FULL_SHARD;
	assert_false(planner_compare(&question, &mine, &answer, &arena, &comparison, &error));
	assert_int_equal(error.code, EXIT_CODE_USAGE);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_changes_are_simulated),
		cmocka_unit_test(test_best_against_itself),
		cmocka_unit_test(test_too_large),
		cmocka_unit_test(test_another_runtime),
		cmocka_unit_test(test_lists_by_unit),
		cmocka_unit_test(test_own_strategy),
		cmocka_unit_test(test_of_another_machine),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
