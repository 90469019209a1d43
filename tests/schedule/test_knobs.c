/* The table of knobs: every row is whole, and a knob can be set, printed, compared and taken. */
#include "support.h"

static void test_rows(void **state)
{
	(void)state;
	uint64_t helped = 0;
	for (int i = 0; i < KNOB_COUNT; i++) {
		const struct knob *knob = &knob_table[i];
		assert_non_null(knob->field.name);
		assert_non_null(knob->help);
		assert_true(knob->metavar != NULL || knob->field.names != NULL);
		assert_int_equal(knob_find(knob->field.name), i);
		helped |= KNOB_BIT(knobs_in_help[i]);
	}
	assert_true(helped == KNOB_BIT(KNOB_COUNT) - 1);
	for (int i = 1; i < KNOB_COUNT; i++)
		assert_true(knob_table[knobs_in_help[i - 1]].group <=
			    knob_table[knobs_in_help[i]].group);
	assert_int_equal(knob_find("no_such_knob"), KNOB_COUNT);
}

static void test_one_knob(void **state)
{
	(void)state;
	struct arena arena = {0};
	uint64_t random = 11;
	for (int i = 0; i < 40; i++) {
		struct sample a = random_sample(&arena, &random),
			      b = random_sample(&arena, &random);
		for (int k = 0; k < KNOB_COUNT; k++) {
			enum knob_id id = (enum knob_id)k;
			const char *text = knob_text(id, &a.plan, &arena);
			bool equal = strcmp(text, knob_text(id, &b.plan, &arena)) == 0;
			assert_int_equal(knob_equal(id, &a.plan, &b.plan), equal);
			knob_put(id, &b.plan, knob_get(id, &a.plan));
			assert_true(knob_equal(id, &a.plan, &b.plan));
			assert_string_equal(knob_text(id, &b.plan, &arena), text);
		}
	}
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_one_knob),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
