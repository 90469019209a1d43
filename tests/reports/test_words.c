/* Plans in words: their axes, what is sharded, and what tells them apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"
#include "reports/text/screen.h"

/* Knobs of an axis are named beside plans of the same mesh, not beside plans without the axis. */
static void test_candidate_name(void **state)
{
	struct fixture *fixture = *state;
	struct plan chosen = fixture->answer.chosen->plan;
	struct text name = {0};

	chosen.mesh = (struct mesh){.replicate = 1, .shard = 8, .tensor = 2};
	struct plan other = chosen;
	chosen.sequence_parallel = true;
	candidate_name(&other, &chosen, &name);
	assert_non_null(strstr(text_string(&name), ", sequence parallel false"));
	text_clear(&name);
	other.mesh = (struct mesh){.replicate = 1, .shard = 16, .tensor = 1};
	candidate_name(&other, &chosen, &name);
	assert_null(strstr(text_string(&name), "sequence parallel"));
	text_finish(&name);
}

static void assert_strategy(
	const struct fixture *fixture, const struct plan *plan, const char *words)
{
	struct text strategy = {0}, settings = {0};

	add_plan_words(&fixture->question, plan, &strategy, &settings);
	if (strstr(text_string(&strategy), words) == NULL)
		fail_msg("%s, expected %s", text_string(&strategy), words);
	text_finish(&strategy);
	text_finish(&settings);
}

/* What each rank has, and what of it is sharded. */
static void test_plan_words(void **state)
{
	struct fixture *fixture = *state;
	struct plan plan = fixture->answer.chosen->plan;

	plan.strategy = STRATEGY_ZERO_1;
	plan.runtime = RUNTIME_MEGATRON;
	plan.mesh = (struct mesh){1, 8, 1, 1, 1, 1};
	assert_strategy(fixture, &plan, "ZERO_1 (megatron): optimizer state sharded over 8 ");
	plan.mesh.tensor = 2;
	assert_strategy(
		fixture, &plan, ": a part of the model each, optimizer state sharded over 8 ");
	plan.mesh.pipeline = 4;
	assert_strategy(fixture, &plan, ", 1f1b): a stage each, optimizer state sharded over 8 ");
	plan.pipeline_schedule = PIPELINE_INTERLEAVED;
	assert_strategy(fixture, &plan, ", interleaved): several stages each, ");
	plan.mesh = (struct mesh){2, 8, 1, 1, 1, 8};
	plan.strategy = STRATEGY_HYBRID_SHARD;
	assert_strategy(fixture, &plan, ": a part of the experts each, sharded over 8 ");
	assert_strategy(fixture, &plan, ", 2 copies");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_candidate_name),
		cmocka_unit_test(test_plan_words),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
