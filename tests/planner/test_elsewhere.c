/* What is searched beside the question: another framework, rows that reach experts in another way.
 */
#include "open.h"

#include "planner/levers/levers.h"

/* --- another framework ------------------------------------------------------------------------ */

/* What is said of one is what it is planned with, where nobody has chosen one. */
static void test_elsewhere(void **state)
{
	(void)state;
	struct open f, near;
	BEGIN(&f, "gpt2-1.5b", "2xdgx-a100-80gb", "global_batch", "32");
	BEGIN(&near, "gpt2-1.5b", "dgx-a100-80gb", "global_batch", "32");
	struct answer answer = ask(&f.question, &f.arena);
	assert_non_null(answer.elsewhere);
	assert_string_equal(answer.elsewhere->typed, "--runtime megatron");
	assert_true(answer.elsewhere->gain >= 0.10);
	set_choice(&f.question, &f.arena, "runtime", "megatron");
	struct answer there = ask(&f.question, &f.arena);
	double gain = 1 - token_time(there.chosen) / token_time(answer.chosen);
	assert_in_range((int)(1000 * (gain - answer.elsewhere->gain) + 0.5), 0, 50);
	assert_null(there.elsewhere);
	assert_null(ask(&near.question, &near.arena).elsewhere);
	arena_finish(&f.arena);
	arena_finish(&near.arena);
}

/* --- rows ------------------------------------------------------------------------------------- */

/* Blocks that are computed again leave no room for rows beside compute, so that no lever of the
 * chosen plan says what a mix gains that is planned with them. */
static void test_rows(void **state)
{
	(void)state;
	struct open f;
	BEGIN(&f, "deepseek-v3", "64xdgx-h100", "global_batch", "4096", "seq_len", "4096",
		"runtime", "megatron");
	struct answer answer = ask(&f.question, &f.arena);
	assert_non_null(answer.elsewhere);
	assert_string_equal(
		answer.elsewhere->typed, "--expert-overlap on --expert-dispatch deepep");
	assert_true(answer.elsewhere->gain >= 0.10);
	SET_CHOICES(&f.question, &f.arena, "expert_overlap", "on", "expert_dispatch", "deepep");
	struct answer there = ask(&f.question, &f.arena);
	double gain = 1 - token_time(there.chosen) / token_time(answer.chosen);
	assert_true(gain > answer.elsewhere->gain - 1e-6);
	assert_true(there.chosen->plan.expert_overlap);
	assert_null(there.elsewhere);
	arena_finish(&f.arena);
}

/* GPUs before Hopper have no DeepEP; a fixed way is not searched. */
static void test_rows_as_they_may_be(void **state)
{
	(void)state;
	struct open f;
	BEGIN(&f, "qwen3-235b-a22b", "16xdgx-a100-80gb", "global_batch", "1024", "seq_len", "4096",
		"runtime", "megatron");
	struct answer answer = ask(&f.question, &f.arena);
	if (answer.elsewhere != NULL)
		assert_string_equal(answer.elsewhere->typed, "--expert-overlap on");
	set_choice(&f.question, &f.arena, "expert_overlap", "off");
	assert_null(ask(&f.question, &f.arena).elsewhere);
	arena_finish(&f.arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_elsewhere),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_rows_as_they_may_be),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
