/* Micro-batches that are no powers of two: found where they are worth it, and only where the user
 * left the batch open. */
#include "support.h"

static struct question open_question(struct arena *arena, const char *model, const char *topology)
{
	return (struct question){.model = load_model(arena, model),
		.topology = load_topology(arena, topology),
		.simplicity = 0.01,
		.brief = true};
}

/* Seconds a token of the best plan, which is left in `chosen`. */
static double best(const struct question *question, struct arena *arena, struct plan *chosen)
{
	struct answer answer = ask(question, arena);
	assert_non_null(answer.chosen);
	assert_false(answer.tight);
	*chosen = answer.chosen->plan;
	return answer.chosen->prediction.step_time / plan_tokens(chosen);
}

/* The plan that it was made from stays beside it: it needs less memory. */
static void test_what_it_is_made_from_stays(void **state)
{
	const uint64_t batch = KNOB_BIT(KNOB_MICRO_BATCH) | KNOB_BIT(KNOB_GLOBAL_BATCH);
	struct arena arena = {0};
	int n = 0;
	(void)state;
	struct question question = open_question(&arena, "llama-2-7b", "2xdgx-h100");
	struct answer answer = ask(&question, &arena);
	const struct plan *chosen = &answer.chosen->plan;
	for (int i = 0; i < answer.n_alternatives; i++) {
		const struct plan *plan = &answer.alternatives[i].plan;
		n += plan->micro_batch == 2 && knobs_alike_but(batch, plan, chosen);
	}
	assert_int_equal(chosen->micro_batch, 3);
	assert_true(n > 0);
	arena_finish(&arena);
}

static const char *const powers_of_two[] = {"1", "2", "4", "8", "16", "32", "64", "128", "256"};

static bool is_power(int64_t n)
{
	return (n & (n - 1)) == 0;
}

/* As good as a search with all of these micro-batches, and better than one with powers alone. */
static void test_as_good_as_all(void **state)
{
	static const struct {
		const char *model, *topology, *all[10];
		int n;
		bool between;
	} rows[] = {{"llama-2-7b", "2xdgx-h100", {"1", "2", "3", "4"}, 4, true},
		{"llama-2-7b", "4xp4d.24xlarge", {"1", "2", "3", "4", "5", "6", "7", "8", "10"}, 9,
			true},
		{"gpt2-1.5b", "dgx-a100-40gb", {"4", "5", "6", "7", "8", "10", "12", "14", "16"}, 9,
			true},
		{"mixtral-8x7b", "4xdgx-h100", {"4", "5", "6", "7", "8", "10", "12", "14", "16"}, 9,
			true},
		{"llama-2-13b", "2xdgx-a100-80gb", {"1", "2", "3", "4"}, 4, false},
		{"gpt2-124m", "dgx-a100-80gb", {"32", "40", "48", "56", "64", "80", "96", "112"}, 8,
			false}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		struct plan plan, other;
		struct question question = open_question(&arena, rows[i].model, rows[i].topology);
		double found = best(&question, &arena, &plan);
		assert_int_equal(!is_power(plan.micro_batch), rows[i].between);
		assert_int_equal(plan.global_batch,
			plan.micro_batch * plan.grad_accum * plan_data_parallel(&plan));
		restrict_to(&question, &arena, KNOB_MICRO_BATCH, COUNT_OF(powers_of_two),
			powers_of_two);
		double powers = best(&question, &arena, &other);
		assert_true(is_power(other.micro_batch));
		assert_true(rows[i].between ? found < 0.99 * powers : found == powers);
		restrict_to(&question, &arena, KNOB_MICRO_BATCH, rows[i].n, rows[i].all);
		assert_true(found <= 1.01 * best(&question, &arena, &other));
		arena_finish(&arena);
	}
}

/* The plan is what one gets by typing it. */
static void test_is_as_typed(void **state)
{
	struct arena arena = {0};
	(void)state;
	struct question question = open_question(&arena, "gpt2-1.5b", "dgx-a100-40gb");
	struct answer found = ask(&question, &arena);
	set_choice(&question, &arena, "micro_batch", "10");
	struct answer typed = ask(&question, &arena);
	const struct plan *plan = &found.chosen->plan, *same = &typed.chosen->plan;
	assert_true(found.chosen->prediction.step_time == typed.chosen->prediction.step_time);
	assert_int_equal(plan->micro_batch, 10);
	assert_int_equal(plan->global_batch, same->global_batch);
	assert_true(knobs_alike_but(0, plan, same));
	assert_int_equal(found.departures, 1);
	assert_int_equal(typed.departures, 1);
	arena_finish(&arena);
}

/* What the user said of the batch stays, and so does a gain that is not worth it. */
static void test_only_where_open(void **state)
{
	static const struct {
		const char *knob, *value;
		double simplicity;
	} rows[] = {
		{"global_batch", "256", 0.01}, {"micro_batch", "8", 0.01}, {"wrap", "block", 0.05}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		struct plan plan;
		struct question question = open_question(&arena, "gpt2-1.5b", "dgx-a100-40gb");
		question.simplicity = rows[i].simplicity;
		set_choice(&question, &arena, rows[i].knob, rows[i].value);
		best(&question, &arena, &plan);
		assert_true(is_power(plan.micro_batch));
		arena_finish(&arena);
	}
	struct arena arena = {0};
	struct plan plan;
	struct question question = open_question(&arena, "gpt2-1.5b", "dgx-a100-40gb");
	restrict_to(
		&question, &arena, KNOB_MICRO_BATCH, 4, (const char *const[]){"2", "4", "8", "16"});
	best(&question, &arena, &plan);
	assert_true(is_power(plan.micro_batch));
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_as_good_as_all),
		cmocka_unit_test(test_is_as_typed),
		cmocka_unit_test(test_only_where_open),
		cmocka_unit_test(test_what_it_is_made_from_stays),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
