/* CSV rows and the text of answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"
#include "reports/text/grid.h"
#include "reports/text/summaries.h"

static const struct style plain = {false, 0};

static const char hostile[] = "<script>\"a'b\"|]]>\x1b[31m\xe2\x80\xa8\xff=\xe6\xa8\xa1";

static void expect(struct text *text, const char *expected)
{
	assert_string_equal(text_string(text), expected);
	text_finish(text);
}

static void test_escape(void **state)
{
	struct text text = {0};

	(void)state;
	add_terminal(&text, hostile);
	expect(&text, "<script>\"a'b\"|]]>\\u001b[31m\\u2028\\ufffd=\xe6\xa8\xa1");
	add_ascii(&text, hostile);
	expect(&text, "<script>\"a'b\"|]]>\\u001b[31m\\u2028\\ufffd=\\u6a21");
	add_html(&text, hostile);
	expect(&text, "&#60;script&#62;&#34;a&#39;b&#34;|]]&#62;\\u001b[31m\\u2028\\ufffd="
		      "\xe6\xa8\xa1");
	add_markdown(&text, hostile);
	expect(&text, "&#60;script&#62;\"a'b\"\\|\\]\\]&#62;\\u001b\\[31m\\u2028\\ufffd="
		      "\xe6\xa8\xa1");
	add_html(&text, NULL);
	expect(&text, "");
}

/* The contract: other programs read these columns by name and place. */
static void test_case_header(void **state)
{
	struct text text = {0};

	(void)state;
	report_case_header(NULL, &text);
	expect(&text, "case,fits,step_time_s,tokens_per_s_per_gpu,mfu_percent,hfu_percent,"
		      "peak_memory_gib,peak_allocated_gib,peak_reserved_gib,parameters_gib,"
		      "gradients_gib,optimizer_state_gib,activations_gib,temporary_buffers_gib,"
		      "communication_buffers_gib,runtime_overhead_gib,compute_s,all_gather_s,"
		      "reduce_scatter_s,all_reduce_s,exposed_communication_s,step_time_low_s,"
		      "step_time_high_s,error\n");
}

static void test_case_row(void **state)
{
	struct prediction prediction = {.fits = FITS_TIGHT,
		.step_time = 1.25,
		.tokens_per_s_per_gpu = 3276.5,
		.mfu = 0.5,
		.hfu = 0.625,
		.peak_memory_bytes = 28LL << 30,
		.peak_allocated_bytes = 27LL << 30,
		.peak_reserved_bytes = 3LL << 29,
		.memory_at_peak = {1LL << 30, 2LL << 30, 3LL << 30, 4LL << 30, 5LL << 30, 6LL << 30,
			7LL << 30},
		.time = {.compute = 1,
			.all_gather = 2,
			.reduce_scatter = 3,
			.all_reduce = 4,
			.exposed_communication = 5},
		.step_time_low = 1.125,
		.step_time_high = 1.5};
	struct text text = {0};

	(void)state;
	report_case_row("a", &prediction, NULL, NULL, &text);
	expect(&text, "a,tight,1.25,3276.5,50,62.5,28,27,1.5,1,2,3,4,5,6,7,1,2,3,4,5,1.125,1.5,\n");
	prediction.mfu = 0;
	report_case_row("=HYPERLINK(\"x\")", &prediction, NULL, NULL, &text);
	assert_non_null(
		strstr(text_string(&text), "\"'=HYPERLINK(\"\"x\"\")\",tight,1.25,3276.5,,"));
	text_finish(&text);
	report_case_row("b,c", NULL, "line 3: \"no\", and no", NULL, &text);
	expect(&text, "\"b,c\",,,,,,,,,,,,,,,,,,,,,,,\"line 3: \"\"no\"\", and no\"\n");
}

/* As many cells as the header has, with and without a prediction. */
static void test_case_cells(void **state)
{
	struct prediction prediction = {0};
	struct arena arena = {0};
	struct csv_table table;
	struct error error = {0};
	struct text text = {0};

	(void)state;
	report_case_header(NULL, &text);
	report_case_row("a", &prediction, NULL, NULL, &text);
	report_case_row("b", NULL, "bad", NULL, &text);
	assert_true(csv_read(&arena, "cases", text.data, text.length, &table, &error));
	assert_int_equal(table.n_rows, 2);
	assert_int_equal(table.header.n_cells, 24);
	assert_int_equal(table.rows[0].n_cells, 24);
	assert_int_equal(table.rows[1].n_cells, 24);
	assert_string_equal(table.rows[1].cells[23], "bad");
	text_finish(&text);
	arena_finish(&arena);
}

static void test_answer(void **state)
{
	struct fixture *fixture = *state;
	struct text text = {0};

	report_answer_text(&fixture->question, &fixture->answer, &plain, &text);
	const char *answer = text_string(&text);
	assert_non_null(strstr(answer, "gpt2-nano (10.8 M parameters) on 2xdgx-a100-80gb: 16 x "
				       "A100-SXM4-80GB, 80.0 GiB each\n\nUse FULL_SHARD"));
	assert_non_null(strstr(answer, "NO_SHARD: needs 98.3 GiB"));
	assert_non_null(strstr(answer, "HYBRID_SHARD_ZERO2/16"));
	assert_non_null(strstr(answer, "What if"));
	assert_non_null(strstr(answer, "212 plans simulated, 540 ruled out by a bound"));
	text_clear(&text);
	struct answer none = fixture->answer;
	none.chosen = NULL;
	report_answer_text(&fixture->question, &none, &plain, &text);
	assert_non_null(
		strstr(text_string(&text), "No plan fits: the closest that was found needs "));
	assert_null(strstr(text_string(&text), "Use "));
	text_finish(&text);
}

static void test_lines(void **state)
{
	struct text text = {0};

	(void)state;
	assert_int_equal(put_line("Why", 5, "one two three", 12, &text), 2);
	expect(&text, "Why  one two\n     three\n");
	assert_int_equal(put_line("a long label", 3, "one", 5, &text), 1);
	expect(&text, "a long labelone\n");
	/* A word is never cut; characters are counted, not bytes. */
	assert_int_equal(put_line("", 0, "\xe6\xa8\xa1\xe6\xa8\xa1 longword", 4, &text), 2);
	expect(&text, "\xe6\xa8\xa1\xe6\xa8\xa1\nlongword\n");
	add_clauses("one, two; three", 8, &text);
	expect(&text, "one, two");
	add_clauses("one, two; three", 15, &text);
	expect(&text, "one, two; three");
	add_clauses("one (two, three), four", 12, &text);
	expect(&text, "one (two, three)");
	add_clauses("1,5 is long", 3, &text);
	expect(&text, "1,5 is long");
}

static void test_screen(void **state)
{
	struct fixture *fixture = *state;
	struct text text = {0};

	report_screen_text(&fixture->question, &fixture->answer, &plain, &text);
	const char *screen = text_string(&text);
	assert_non_null(strstr(screen, "gpt2-nano (10.8 M parameters) on 2xdgx-a100-80gb"));
	assert_non_null(strstr(screen, "\nUse      FULL_SHARD (pytorch-fsdp2): parameters, "
				       "gradients, optimizer state sharded over 16 GPUs\n"));
	assert_non_null(strstr(screen, "\nTime     "));
	assert_non_null(strstr(screen, "  needs 98.3 GiB"));
	assert_null(strstr(screen, "Warning"));
	text_clear(&text);
	struct answer other = fixture->answer;
	other.tight = other.interrupted = true;
	report_screen_text(&fixture->question, &other, &plain, &text);
	assert_non_null(strstr(text_string(&text), "\nUse      tight, for no plan leaves"));
	assert_non_null(strstr(text_string(&text), "\nWarning  Interrupted"));
	text_clear(&text);
	other.chosen = NULL;
	report_screen_text(&fixture->question, &other, &plain, &text);
	assert_non_null(strstr(text_string(&text), "\nNo plan fits.\n"));
	assert_null(strstr(text_string(&text), "\nUse "));
	text_finish(&text);
}

/* Three on a screen, all in JSON, and in both documents for people. */
static void test_warnings(void **state)
{
	struct fixture *fixture = *state;
	struct warning warnings[] = {
		{"a", "first"}, {"b", "second"}, {"c", "third"}, {"d", "four < five"}};
	static const char *const names[] = {"torchtitan", "pytorch"};
	struct answer answer = fixture->answer;
	struct report report = fixture->report;
	struct text text = {0};

	answer.n_warnings = COUNT_OF(warnings);
	answer.warnings = warnings;
	report.answer = &answer;
	put_warnings(&answer, &text);
	assert_string_equal(text_string(&text),
		"Warning: first.\nWarning: second.\nWarning: third.\n1 more in --json.\n");
	text_clear(&text);
	report_answer_json(&fixture->question, &report.asked, &answer, &text);
	assert_non_null(strstr(text_string(&text), "\"id\": \"d\""));
	assert_null(strstr(text_string(&text), "said_by"));
	text_clear(&text);
	report_html(&report, 1, &text);
	assert_non_null(strstr(text_string(&text), "four &#60; five"));
	text_clear(&text);
	report_markdown(&report, 1, &text);
	assert_non_null(strstr(text_string(&text), "**Warning**: second."));
	text_clear(&text);
	put_said_by(0, NULL, &text);
	put_said_by(0, names, &text);
	put_said_by(2, names, &text);
	assert_string_equal(text_string(&text),
		"No export says it unchanged; --for TARGET keeps to what one can say.\n"
		"Says it unchanged: torchtitan, pytorch.\n");
	text_finish(&text);
}

static void test_prediction(void **state)
{
	struct fixture *fixture = *state;
	struct text text = {0};
	static const char *const categories[] = {"parameters", "gradients", "optimizer state",
		"activations", "temporary buffers", "communication buffers", "runtime overhead"};

	report_prediction_text(&fixture->schedule->plan, fixture->model, fixture->topology,
		&fixture->prediction, &plain, &text);
	const char *from = strstr(text_string(&text), "at the peak");
	/* The design's order. */
	for (int i = 0; i < COUNT_OF(categories); i++) {
		assert_non_null(from);
		from = strstr(from, categories[i]);
	}
	assert_non_null(from);
	assert_null(strstr(text_string(&text), "retries"));
	text_finish(&text);
}

static void test_retries(void **state)
{
	static const struct {
		double a_step;
		int stages;
		const char *line;
	} cases[] = {
		{1, 0, "1 retry a step: 250 ms of a step on average"},
		{3, 0, "3 retries a step: 250 ms of a step on average"},
		{1.5, 0, "3 retries in 2 steps: 250 ms of a step on average"},
		{1.0 / 3, 0, "1 retry in 3 steps: 250 ms of a step on average"},
		{1.5, 2, "3 retries in 2 steps on stage 1; with those of other stages 250 ms of"},
		{0, 2, "0 retries a step on stage 1; with those of other stages 250 ms of"},
	};
	struct class_figures stages[] = {{.name = "stage 0"}, {.name = "stage 1"}};
	struct fixture *fixture = *state;
	struct prediction tight = fixture->prediction;
	struct text text = {0};

	tight.fits = FITS_TIGHT;
	tight.time.allocator = 0.25;
	tight.peak_wanted_bytes = 24LL << 30;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		tight.allocator_retries = cases[i].a_step;
		tight.n_classes = cases[i].stages;
		tight.rank_class = cases[i].stages > 0;
		tight.classes = cases[i].stages > 0 ? stages : NULL;
		report_prediction_text(&fixture->schedule->plan, fixture->model, fixture->topology,
			&tight, &plain, &text);
		if (strstr(text_string(&text), cases[i].line) == NULL)
			fail_msg("%s", text_string(&text));
		assert_non_null(strstr(text_string(&text), "\n retries of the allocator  "));
		assert_non_null(strstr(text_string(&text), " (tight: the allocator must free "));
		assert_non_null(strstr(text_string(&text), "24.0 GiB), at"));
		text_clear(&text);
	}
	text_finish(&text);
}

/* Two stages in twenty columns of a second; a column shows what it has most of. */
static void test_pipeline(void **state)
{
	struct op ops[2][4] = {
		{{.kind = OP_FORWARD}, {.kind = OP_FORWARD, .micro_batch = 1},
			{.kind = OP_BACKWARD}, {.kind = OP_BACKWARD, .micro_batch = 1}},
		{{.kind = OP_FORWARD}, {.kind = OP_BACKWARD},
			{.kind = OP_FORWARD, .micro_batch = 11}, {.kind = OP_OPTIMIZER}}};
	struct span spans[2][4] = {{{.start = 0, .end = 2}, {.start = 2, .end = 4},
					   {.start = 10, .end = 14}, {.start = 14, .end = 20}},
		{{.start = 2, .end = 4}, {.start = 4, .end = 8.6}, {.start = 8.6, .end = 10.9},
			{.start = 19, .end = 20}}};
	struct program programs[2] = {{.n_ops = 4, .ops = ops[0]}, {.n_ops = 4, .ops = ops[1]}};
	const struct schedule schedule = {.n_classes = 2, .programs = programs};
	struct timeline timelines[2] = {{.n_ops = 4, .spans = spans[0], .step_time = 20},
		{.n_ops = 4, .spans = spans[1], .step_time = 20}};
	const struct timeline *const stages[2] = {&timelines[0], &timelines[1]};
	struct class_figures classes[2] = {{"stage 0", 20, 1, 5}, {"stage 1", 20, 1, 9.1}};
	const struct prediction prediction = {.step_time = 20, .n_classes = 2, .classes = classes};
	const struct explained explained = {.schedule = &schedule,
		.whole = &schedule,
		.stages = stages,
		.prediction = &prediction};
	const struct style narrow = {.width = 30};
	struct text text = {0};

	(void)state;
	report_view("pipeline")->write(&explained, &narrow, &text);
	assert_memory_equal(text_string(&text),
		"stage 0   0011......AAAABBBBBB\nstage 1   ..00AAAAA11........o\n", 62);
	assert_non_null(strstr(text_string(&text), "A column is 1 s."));
	text_clear(&text);
	report_view("pipeline")->draw(&explained, &text);
	assert_non_null(strstr(
		text_string(&text), "<title>forward of micro-batch 11: 2.30 s from 8.60 s<"));
	assert_non_null(strstr(text_string(&text), ">bubble 25.0 %<"));
	assert_non_null(strstr(text_string(&text), ">bubble<"));
	int boxes = 0;
	for (const char *c = text_string(&text); (c = strstr(c, "<title>")) != NULL; c++)
		boxes++;
	assert_int_equal(boxes, 8);
	/* This stage begins its step 1.5 s before the other one. */
	timelines[1].begins = -1.5;
	text_clear(&text);
	report_view("pipeline")->draw(&explained, &text);
	assert_non_null(strstr(text_string(&text), "micro-batch 11: 2.30 s from 7.10 s<"));
	text_finish(&text);
}

static void test_views(void **state)
{
	static const char *const names[] = {"summary", "operations", "streams", "memory",
		"critical", "pipeline", "mesh", "units", "communication", "layout"};
	struct fixture *fixture = *state;

	assert_int_equal(n_report_views, COUNT_OF(names));
	assert_null(report_view("nonsense"));
	for (int i = 0; i < COUNT_OF(names); i++) {
		struct text with = {0}, without = {0};
		assert_string_equal(report_views[i].name, names[i]);
		assert_ptr_equal(report_view(names[i]), &report_views[i]);
		report_views[i].write(&fixture->explained, &plain, &without);
		report_views[i].write(&fixture->report.explained, &plain, &with);
		assert_true(without.length > 100);
		assert_null(strstr(text_string(&without), "easured"));
		bool shows_measured = i <= 3;
		assert_int_equal(strstr(text_string(&with), "easured") != NULL, shows_measured);
		text_finish(&with);
		text_finish(&without);
	}
}

/* Operations that rows of folding stand for: "N times more what the M above do: A to B". */
static int folded_operations(const char *text, int *folds)
{
	int sum = 0;

	for (const char *c = text; (c = strstr(c, " times more what the ")) != NULL; c++) {
		const char *number = c;
		while (number > text && number[-1] >= '0' && number[-1] <= '9')
			number--;
		int times = atoi(number), length = atoi(c + strlen(" times more what the "));
		int first = atoi(strstr(c, "do: ") + 4), last = atoi(strstr(c, " to ") + 4);
		assert_int_equal(last - first + 1, times * length);
		sum += last - first + 1;
		++*folds;
	}
	return sum;
}

/* Every glyph of the rows is in the legend below them; two blocks are zoomed in both directions. */
static void test_streams(void **state)
{
	struct fixture *fixture = *state;
	struct text text = {0};

	report_view("streams")->write(&fixture->explained, &plain, &text);
	const char *legend = strstr(text_string(&text), "F forward");
	assert_non_null(legend);
	assert_non_null(strstr(text_string(&text), "Predicted, the whole step\n"));
	assert_non_null(strstr(text_string(&text), "Predicted, forward of blocks 2 and 3, zoomed"));
	assert_non_null(
		strstr(text_string(&text), "Predicted, backward of blocks 3 and 2, zoomed"));
	bool in_row = false;
	int column = 0;
	for (const char *c = text_string(&text); c < legend; c++, column++) {
		if (*c == '\n') {
			column = -1;
			in_row = c[1] == ' ' && c[2] != ' ';
		} else if (in_row && column >= 17 && column < 17 + 64 && *c != ' ') {
			char entry[] = {*c, ' ', '\0'};
			if (strstr(legend, entry) == NULL)
				fail_msg("'%c' is not in the legend", *c);
		}
	}
	text_finish(&text);
}

/* Blocks that are alike are one row with their number. */
static void test_units_fold(void **state)
{
	struct fixture *fixture = *state;
	struct text text = {0};

	report_view("units")->write(&fixture->explained, &plain, &text);
	assert_non_null(strstr(text_string(&text), " transformer.h.0 to transformer.h."));
	assert_null(strstr(text_string(&text), "\n transformer.h.1 "));
	text_clear(&text);
	/* `memory` has that table. */
	report_view("summary")->write(&fixture->explained, &plain, &text);
	assert_null(strstr(text_string(&text), "own peak"));
	text_finish(&text);
}

/* Predicted and measured of one operation stand on one line, with their ratio. */
static void test_operations(void **state)
{
	struct fixture *fixture = *state;
	struct text text = {0};
	int lines = 0, ratios = 0;

	report_view("operations")->write(&fixture->report.explained, &plain, &text);
	for (const char *c = text_string(&text); *c != '\0'; c++)
		lines += *c == '\n';
	for (const char *c = text_string(&text); (c = strstr(c, "1.07x\n")) != NULL; c++)
		ratios++;
	int marks = 0;
	for (int i = 0; i < fixture->timeline.n_ops; i++)
		marks += fixture->timeline.spans[i].end == fixture->timeline.spans[i].start;
	int folds = 0, folded = folded_operations(text_string(&text), &folds);
	/* heading, an empty line, what is folded, and where the rest is */
	assert_int_equal(lines - folds + folded, fixture->timeline.n_ops + 2 + (folds > 0));
	assert_true(folds > 0 || ratios == fixture->timeline.n_ops - marks);
	assert_true(folded > 0);
	/* Operation -1 is no word of a user's. */
	assert_null(strstr(text_string(&text), " -1 "));
	assert_non_null(strstr(text_string(&text), " of the step before"));
	assert_non_null(strstr(text_string(&text), "forward transformer.h.0 "));
	assert_non_null(strstr(text_string(&text), "all_gather transformer.h.3 "));
	text_clear(&text);
	/* A measurement that broke off. */
	fixture->measurement.timeline.n_ops -= 2;
	report_view("operations")->write(&fixture->report.explained, &plain, &text);
	fixture->measurement.timeline.n_ops += 2;
	assert_non_null(strstr(text_string(&text), "never executed"));
	text_finish(&text);
}

static void test_kinds(void **state)
{
	(void)state;
	for (int k = 0; k < OP_KIND_COUNT; k++) {
		if (kind_appearance((enum op_kind)k).letter == '?')
			fail_msg("%s has no row in figures.c", op_kind_name((enum op_kind)k));
	}
}

/* Compute 0..1, a gather 0.5..2, compute 1.5..1.75: exposed are 1..1.5 and 1.75..2. */
static void test_exposed(void **state)
{
	struct op ops[] = {{.kind = OP_FORWARD, .stream = STREAM_COMPUTE},
		{.kind = OP_ALL_GATHER, .stream = STREAM_GATHER},
		{.kind = OP_FORWARD, .stream = STREAM_COMPUTE},
		{.kind = OP_RESHARD, .stream = STREAM_COMPUTE}};
	struct span spans[] = {{0, 0, 1}, {0, 0.5, 2}, {0, 1.5, 1.75}, {0, 1.9, 1.9}};
	struct program program = {.n_ops = 4, .ops = ops};
	struct schedule schedule = {.programs = &program};
	struct timeline timeline = {.n_ops = 4, .spans = spans, .step_time = 2};
	struct arena arena = {0};
	struct interval *intervals;

	(void)state;
	assert_int_equal(exposed_intervals(&schedule, &timeline, &arena, &intervals), 2);
	assert_true(intervals[0].start == 1 && intervals[0].end == 1.5);
	assert_true(intervals[1].start == 1.75 && intervals[1].end == 2);
	assert_true(stream_busy(&schedule, &timeline, STREAM_COMPUTE) == 1.25);
	arena_finish(&arena);
}

/* A thousand points become forty, and the highest survives. */
static void test_memory_sample(void **state)
{
	struct arena arena = {0};
	struct memory_curve curve = {.n = 1000}, sampled;
	int64_t most = 0;

	(void)state;
	curve.times = ARENA_ARRAY(&arena, double, 1000);
	curve.bytes = arena_alloc(&arena, 1000, sizeof(*curve.bytes));
	for (int i = 0; i < 1000; i++) {
		curve.times[i] = i * 0.001;
		curve.bytes[i][CATEGORY_ACTIVATIONS] = i == 617 ? 5000 : i;
	}
	memory_sample(&curve, 1, 40, &arena, &sampled);
	assert_in_range(sampled.n, 38, 41);
	for (int i = 0; i < sampled.n; i++)
		most = max_i64(most, sum_categories(sampled.bytes[i]));
	assert_int_equal(most, 5000);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_escape),
		cmocka_unit_test(test_case_header),
		cmocka_unit_test(test_case_row),
		cmocka_unit_test(test_case_cells),
		cmocka_unit_test(test_answer),
		cmocka_unit_test(test_screen),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_warnings),
		cmocka_unit_test(test_prediction),
		cmocka_unit_test(test_retries),
		cmocka_unit_test(test_pipeline),
		cmocka_unit_test(test_views),
		cmocka_unit_test(test_operations),
		cmocka_unit_test(test_streams),
		cmocka_unit_test(test_units_fold),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_exposed),
		cmocka_unit_test(test_memory_sample),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
