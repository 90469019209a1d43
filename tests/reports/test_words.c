/* Plans in words: their axes, what is sharded, and how they differ. */
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
	assert_non_null(strstr(text_string(&name), ", sequence parallel off"));
	text_clear(&name);
	other.mesh = (struct mesh){.replicate = 1, .shard = 16, .tensor = 1};
	candidate_name(&other, &chosen, &name);
	assert_null(strstr(text_string(&name), "sequence parallel"));
	text_clear(&name);
	candidate_name(&chosen, &other, &name); /* tensor ranks split sequences unsaid */
	assert_non_null(strstr(text_string(&name), "TP 2 x"));
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
	assert_strategy(fixture, &plan, ": layers split over 2 ");
	assert_strategy(fixture, &plan, ", optimizer state sharded over 8");
	plan.mesh.pipeline = 4;
	assert_strategy(fixture, &plan, ", layers over 2, optimizer state sharded over 8");
	plan.pipeline_schedule = PIPELINE_INTERLEAVED;
	assert_strategy(fixture, &plan, ", interleaved): blocks split over 4 ");
	plan.mesh = (struct mesh){2, 8, 1, 1, 1, 8};
	plan.expert_tensor = 1;
	plan.strategy = STRATEGY_HYBRID_SHARD;
	assert_strategy(fixture, &plan, ": experts split over 8 ");
	assert_strategy(fixture, &plan, ", each part sharded over 8 (experts no further)");
	assert_strategy(fixture, &plan, ", 2 copies");
	plan.mesh.shard = 32;
	assert_strategy(fixture, &plan, ", each part sharded over 32 (experts over 4), 2 copies");
}

/* Runs are for typing: people get sentences. */
static void test_rows(void **state)
{
	static const struct {
		const char *typed, *said;
	} reshards[] = {{"33xtrue+1xfalse", "in all units but the last"},
		{"14xtrue+18xfalse", "in all units but the last 18"},
		{"1xfalse+31xtrue", "in all units but the first"}, {"8", "to groups of 8"},
		{"16x8+12xtrue+4xfalse", "to groups of 8 in the first 16 units, fully in the next "
					 "12, not in the last 4"}},
	  blocks[] = {{"full", "full"},
		  {"12xfull+1xselective+1xnone",
			  "full in the first 12 blocks, selective in the next, none in the last"},
		  {"1xfull+31xnone", "full in the first block, none in the last 31"}};
	struct fixture *fixture = *state;
	struct plan plan = fixture->answer.chosen->plan;
	struct text text = {0};

	for (size_t i = 0; i < COUNT_OF(reshards); i++) {
		plan.reshard_after_forward.text = reshards[i].typed;
		plan_say_reshard(&plan, &text);
		assert_memory_equal(text_string(&text), "reshard after forward ", 22);
		assert_string_equal(text_string(&text) + 22, reshards[i].said);
		text_clear(&text);
	}
	for (size_t i = 0; i < COUNT_OF(blocks); i++) {
		rows_say(&(struct rows){.text = blocks[i].typed}, "block", &text);
		assert_string_equal(text_string(&text), blocks[i].said);
		text_clear(&text);
	}
	text_finish(&text);
}

/* A range is in one unit, and only GPUs are called so. */
static void test_figures(void **state)
{
	struct prediction p = {.step_time = 112,
		.step_time_low = 103,
		.step_time_high = 122,
		.tokens_per_s_per_gpu = 50};
	struct topology cpus = {.device.kind = DEVICE_CPU}, gpus = {.device.kind = DEVICE_GPU};
	struct text text = {0};
	char buffer[32];

	(void)state;
	add_time_figure(&p, &text);
	assert_string_equal(text_string(&text), "112 s a step (80 % sure: 103 s to 122 s)");
	assert_string_equal(format_beside(buffer, 7300, 7100), "122 min");
	assert_string_equal(format_beside(buffer, 1.2, 0.9), "1.20 s");
	text_clear(&text);
	add_speed_figure(device_noun(&cpus), &p, &text);
	assert_non_null(strstr(text_string(&text), "50.0 tokens/s/rank"));
	text_clear(&text);
	put_prediction(&cpus, &p, &(struct style){0}, &text);
	assert_non_null(strstr(text_string(&text), "50.0 tokens/s/rank"));
	assert_non_null(strstr(text_string(&text), "80 % sure: 103 s to 122 s"));
	text_clear(&text);
	put_prediction(&gpus, &p, &(struct style){.width = 30}, &text);
	assert_non_null(
		strstr(text_string(&text), "112 s, 80 % sure:\n             103 s to 122 s"));
	assert_non_null(strstr(text_string(&text), "50.0 tokens/s/GPU\n"));
	text_finish(&text);
}

/* Operations are broken where a terminal is narrow. */
static void test_operations(void **state)
{
	struct fixture *fixture = *state;
	struct text wide = {0}, narrow = {0};
	const struct view *view = report_view("operations");

	view->write(&fixture->explained, &(struct style){0}, &wide);
	view->write(&fixture->explained, &(struct style){.width = 100}, &narrow);
	assert_in_range(strcspn(text_string(&wide), "\n"), 101, 120);
	for (const char *line = text_string(&narrow); *line != '\0';
		line += strcspn(line, "\n") + 1)
		assert_in_range(strcspn(line, "\n"), 0, 100);
	text_finish(&wide);
	text_finish(&narrow);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_candidate_name),
		cmocka_unit_test(test_plan_words),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_figures),
		cmocka_unit_test(test_operations),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
