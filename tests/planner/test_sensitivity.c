/* What one knob changes: each row is what the plan with that knob fixed is predicted to take. */
#include "support.h"

static void assert_row_is(
	const struct question *question, const struct sensitivity *row, const struct plan *plan)
{
	struct evaluator evaluator = {.question = question};
	struct prediction prediction;
	struct error error = {0};
	assert_non_null(row);
	assert_true(evaluator_run(&evaluator, plan, &prediction, &error));
	assert_true(row->step_time == prediction.step_time);
	assert_int_equal(row->peak_memory_bytes, prediction.peak_memory_bytes);
	evaluator_finish(&evaluator);
}

static void test_rows(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "gpt2-355m"),
		.topology = load_topology(&arena, "2xdgx-a100-80gb")};
	SET_CHOICES(&question, &arena, "global_batch", "128", "micro_batch", "4", "wrap", "block",
		"strategy", "FULL_SHARD");
	struct answer answer = ask(&question, &arena);
	struct plan plan = answer.chosen->plan;
	plan.wrap = wrap_of_kind(WRAP_MODEL);
	assert_row_is(&question, sensitivity_row(&answer, "wrap", "model"), &plan);
	assert_non_null(sensitivity_row(&answer, "strategy", "NO_SHARD"));
	assert_non_null(sensitivity_row(&answer, "activation_checkpointing", "full"));
	assert_non_null(sensitivity_row(&answer, "network bandwidth", "x 1/2"));
	assert_non_null(sensitivity_row(&answer, "micro_batch", "2 x 4"));
	arena_finish(&arena);
}

/* A knob is changed in the plan as it is, not in what its strategy usually does. */
static void test_groups_are_kept(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "llama-2-7b"),
		.topology = load_topology(&arena, "4xp4d.24xlarge")};
	SET_CHOICES(&question, &arena, "seq_len", "4096", "micro_batch", "1", "strategy",
		"FULL_SHARD", "activation_checkpointing", "full");
	struct answer answer = ask(&question, &arena);
	struct plan plan = answer.chosen->plan;
	assert_string_equal(plan.reshard_after_forward.text, "8");
	plan.reduce_dtype = DTYPE_BF16;
	assert_row_is(&question, sensitivity_row(&answer, "reduce_dtype", "bf16"), &plan);
	assert_non_null(sensitivity_row(&answer, "strategy", "SHARD_GRAD_OP"));
	arena_finish(&arena);
}

/* Of an odd micro-batch the neighbours are shown, else half and twice as many. */
static void test_batches(void **state)
{
	static const struct {
		const char *now, *less, *more;
	} rows[] = {{"3", "2", "4"}, {"4", "2 x 2", "8"}, {"1", "0", "2"}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		struct question question = {.model = load_model(&arena, "gpt2-355m"),
			.topology = load_topology(&arena, "dgx-a100-80gb")};
		SET_CHOICES(&question, &arena, "micro_batch", rows[i].now, "wrap", "block",
			"strategy", "FULL_SHARD");
		struct answer answer = ask(&question, &arena);
		assert_int_equal(
			sensitivity_row(&answer, "micro_batch", rows[i].less) != NULL, i < 2);
		assert_non_null(sensitivity_row(&answer, "micro_batch", rows[i].more));
		arena_finish(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_batches),
		cmocka_unit_test(test_groups_are_kept),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
