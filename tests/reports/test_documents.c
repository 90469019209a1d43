/* JSON that parses back, a trace that a viewer can load, and a page that stays inert whatever the
 * names in it are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"

static const char hostile[] =
	"<script>alert(1)</script><img src=x onerror=alert(2)>\"'`]]>--><!--\xe2\x80\xa8\x1b[31m"
	"=HYPERLINK(\"http://x\")${7*7}\xff</style></title>";

static const struct node *parse(struct arena *arena, struct text *text)
{
	struct error error = {0};
	const struct node *root =
		document_parse(arena, "document", text->data, text->length, 0, &error);

	if (root == NULL)
		fail_msg("%s", error.message);
	return root;
}

static const char *string_at(const struct node *map, const char *key)
{
	struct error error = {0};
	const char *string = NULL;

	if (!node_string(node_get(map, key), &string, &error))
		fail_msg("%s", error.message);
	return string;
}

/* The plan and the prediction that were written, read by their own readers. */
static void test_answer(void **state)
{
	struct fixture *fixture = *state;
	struct arena arena = {0};
	struct text text = {0}, again = {0};
	struct prediction prediction;
	struct plan plan;
	struct error error = {0};

	report_answer_json(&fixture->question, &fixture->report.asked, &fixture->answer, &text);
	const struct node *root = parse(&arena, &text), *chosen = node_get(root, "chosen");
	assert_string_equal(string_at(root, "schema"), "shardplan/plan/1");
	assert_string_equal(string_at(node_get(root, "question"), "model"), "gpt2-nano");
	assert_true(plan_read(&arena, node_get(chosen, "plan"), &plan, &error));
	assert_true(prediction_read(&arena, node_get(chosen, "prediction"), &prediction, &error));
	assert_int_equal(plan.strategy, STRATEGY_FULL_SHARD);
	assert_true(prediction.step_time == fixture->prediction.step_time);
	assert_int_equal(prediction.peak_memory_bytes, fixture->prediction.peak_memory_bytes);
	const struct node *alternatives = node_get(root, "alternatives");
	assert_int_equal(alternatives->n_children, 4);
	assert_int_equal(node_get(alternatives->children[3], "prediction")->kind, NODE_NULL);
	assert_string_equal(string_at(alternatives->children[0], "why_not"),
		fixture->answer.alternatives[0].why_not);
	report_answer_json(&fixture->question, &fixture->report.asked, &fixture->answer, &again);
	assert_string_equal(text_string(&text), text_string(&again));
	text_finish(&text);
	text_finish(&again);
	arena_finish(&arena);
}

static void test_measurement(void **state)
{
	struct fixture *fixture = *state;
	struct arena arena = {0};
	struct text text = {0};
	struct measurement read;
	struct error error = {0};

	report_measurement_json(
		&fixture->report.asked, &fixture->schedule->plan, &fixture->measurement, &text);
	const struct node *root = parse(&arena, &text);
	assert_string_equal(string_at(root, "schema"), "shardplan/measurement/1");
	if (!measurement_read(&arena, node_get(root, "measurement"), &read, &error))
		fail_msg("%s", error.message);
	assert_int_equal(read.n_losses, 60);
	assert_memory_equal(read.losses, fixture->measurement.losses, 60 * sizeof(double));
	assert_int_equal(read.timeline.n_ops, fixture->timeline.n_ops);
	assert_memory_equal(read.timeline.spans, fixture->measurement.timeline.spans,
		(size_t)read.timeline.n_ops * sizeof(struct span));
	text_finish(&text);
	arena_finish(&arena);
}

static void test_check(void **state)
{
	struct fixture *fixture = *state;
	struct arena arena = {0};
	struct text text = {0};

	report_check_json(&fixture->check, &text);
	const struct node *root = parse(&arena, &text);
	assert_string_equal(string_at(root, "schema"), "shardplan/check/1");
	assert_string_equal(string_at(root, "ok"), "true");
	assert_int_equal(node_get(root, "lines")->n_children, fixture->check.n_lines);
	text_finish(&text);
	arena_finish(&arena);
}

static void test_explain(void **state)
{
	struct fixture *fixture = *state;
	struct arena arena = {0};
	struct text text = {0};

	report_explain_json(&fixture->report.explained, &text);
	const struct node *root = parse(&arena, &text), *operations = node_get(root, "operations");
	assert_int_equal(operations->n_children, fixture->timeline.n_ops);
	assert_non_null(node_get(operations->children[0], "measured"));
	assert_int_equal(node_get(root, "memory")->n_children, fixture->memory.n);
	assert_int_equal(node_get(root, "critical_path")->n_children, fixture->critical.n);
	text_finish(&text);
	arena_finish(&arena);
}

static double number_at(const struct node *map, const char *key)
{
	struct error error = {0};
	double value = 0;

	if (!node_double(node_get(map, key), &value, &error))
		fail_msg("%s", error.message);
	return value;
}

struct trace_counts {
	int slices, starts, finishes, counters, names;
	int collectives; /* with what PyTorch's profiler says of one, and named so */
};

static void count_event(const struct node *event, struct trace_counts *counts)
{
	const char *phase = string_at(event, "ph");

	assert_in_range((int64_t)number_at(event, "pid"), 1, 2);
	assert_in_range((int64_t)number_at(event, "tid"), 0, STREAM_COUNT);
	counts->slices += strcmp(phase, "X") == 0;
	counts->starts += strcmp(phase, "s") == 0;
	counts->finishes += strcmp(phase, "f") == 0;
	counts->counters += strcmp(phase, "C") == 0;
	counts->names += strcmp(phase, "M") == 0;
	const struct node *collective = node_get(node_get(event, "args"), "Collective name");
	bool named = strncmp(string_at(event, "name"), "nccl:", 5) == 0;
	assert_int_equal(collective != NULL, named);
	counts->collectives += named;
	if (strcmp(phase, "M") != 0)
		assert_true(number_at(event, "ts") >= 0);
	if (strcmp(phase, "X") == 0)
		assert_true(number_at(event, "dur") >= 0);
}

static void test_trace(void **state)
{
	struct fixture *fixture = *state;
	struct arena arena = {0};
	struct text text = {0};
	struct trace_counts counts = {0};

	report_trace(&fixture->report.explained, &text);
	const struct node *events = node_get(parse(&arena, &text), "traceEvents");
	for (int i = 0; i < events->n_children; i++)
		count_event(events->children[i], &counts);
	/* The host's slice and the stream's, predicted and measured. */
	assert_int_equal(counts.slices, 4 * fixture->timeline.n_ops);
	assert_int_equal(counts.counters, 2 * fixture->timeline.n_ops);
	assert_int_equal(counts.starts, counts.finishes);
	assert_true(counts.starts > 10);
	assert_true(counts.names >= 2 * 3);
	const int64_t *collectives = fixture->prediction.collectives;
	assert_int_equal(
		counts.collectives, 2 * (collectives[0] + collectives[1] + collectives[2]));
	text_finish(&text);
	arena_finish(&arena);
}

static int count(const char *text, const char *needle)
{
	int n = 0;

	for (; (text = strstr(text, needle)) != NULL; text++)
		n++;
	return n;
}

/* Every name that can come from a file is hostile, and the page has the same elements as ever. */
static void test_injection(void **state)
{
	static const char *const forbidden[] = {"<script>alert", "<img", "onerror=alert(2)>\"",
		"http://x\")", "\x1b", "\xff", "<!--"};
	struct fixture *fixture = *state;
	struct report report = fixture->report;
	struct text calm = {0}, page = {0};

	report_html(&report, 1, &calm);
	fixture_rename(fixture, hostile);
	report = fixture->report;
	report_html(&report, 1, &page);
	for (int i = 0; i < COUNT_OF(forbidden); i++) {
		if (strcmp(forbidden[i], "http://x\")") != 0 &&
			strstr(text_string(&page), forbidden[i]) != NULL)
			fail_msg("the page contains %s", forbidden[i]);
	}
	assert_int_equal(count(page.data, "<script"), 1);
	assert_int_equal(count(page.data, "</script"), 1);
	assert_int_equal(count(page.data, "</style"), 1);
	/* Rows may come and go with what is known; elements that names could add may not. */
	assert_int_equal(count(page.data, "<svg"), count(calm.data, "<svg"));
	assert_int_equal(count(page.data, "<path"), count(calm.data, "<path"));
	assert_int_equal(count(page.data, "</title>"), count(calm.data, "</title>"));
	text_finish(&calm);
	text_finish(&page);
}

/* After test_injection: the same names in the other writers. */
static void test_injection_elsewhere(void **state)
{
	static const struct style plain = {false, 0};
	struct fixture *fixture = *state;
	struct text text = {0};
	struct arena arena = {0};

	report_markdown(&fixture->report, 1, &text);
	assert_null(strstr(text_string(&text), "<script"));
	assert_null(strchr(text_string(&text), '\x1b'));
	text_clear(&text);
	for (int i = 0; i < n_report_views; i++)
		report_views[i].write(&fixture->report.explained, &plain, &text);
	report_answer_text(&fixture->question, &fixture->answer, &plain, &text);
	assert_null(strchr(text_string(&text), '\x1b'));
	text_clear(&text);
	report_trace(&fixture->report.explained, &text);
	assert_null(strstr(text_string(&text), "</script"));
	parse(&arena, &text);
	text_clear(&text);
	report_answer_json(&fixture->question, &fixture->report.asked, &fixture->answer, &text);
	parse(&arena, &text);
	text_finish(&text);
	arena_finish(&arena);
}

/* Pictures that a screen reader meets, without words. */
static int unnamed_pictures(const char *page)
{
	int n = 0;

	for (; (page = strstr(page, "role=\"img\"")) != NULL; page++) {
		const char *name = strstr(page, "aria-label=\""), *end = strchr(page, '>');
		n += name == NULL || name > end || name[strlen("aria-label=\"")] == '"';
	}
	return n;
}

static void test_page(void **state)
{
	struct fixture *fixture = *state;
	struct text page = {0}, again = {0};

	report_html(&fixture->report, 1, &page);
	assert_non_null(strstr(page.data, "content=\"default-src 'none'; style-src 'sha256-"));
	assert_null(strstr(page.data, "unsafe-inline"));
	assert_null(strstr(page.data, " style=\""));
	assert_int_equal(count(page.data, "http://"),
		count(page.data, " xmlns=\"http://www.w3.org/2000/svg\""));
	assert_null(strstr(page.data, "https://"));
	assert_null(strstr(page.data, ">nan"));
	assert_true(page.length < 1000000);
	/* Every picture has words, every table a caption. */
	assert_int_equal(unnamed_pictures(page.data), 0);
	assert_true(count(page.data, "role=\"img\"") > 10);
	assert_int_equal(count(page.data, "<table"), count(page.data, "<caption>"));
	assert_int_equal(count(page.data, "<h1"), 1);
	report_html(&fixture->report, 1, &again);
	assert_string_equal(page.data, again.data);
	text_finish(&page);
	text_finish(&again);
}

/* Twice the same side by side: one policy, one style, and every part of each. */
static void test_several(void **state)
{
	struct fixture *fixture = *state;
	struct report reports[2] = {fixture->report, fixture->report};
	struct text page = {0};

	reports[0].label = "one.yaml";
	reports[1].label = "<two>.yaml";
	report_html(reports, 2, &page);
	assert_non_null(strstr(page.data, "2 plans side by side"));
	assert_int_equal(count(page.data, "<h1"), 1);
	assert_int_equal(count(page.data, "Predicted beside measured"), 2);
	assert_int_equal(count(page.data, " id=\""), 0);
	assert_int_equal(unnamed_pictures(page.data), 0);
	assert_null(strstr(page.data, "<two>"));
	assert_int_equal(count(page.data, "&#60;two&#62;.yaml"), 3);
	text_clear(&page);
	report_markdown(reports, 2, &page);
	assert_int_equal(count(page.data, "&#60;two&#62;.yaml"), 1);
	assert_int_equal(count(page.data, "## Predicted beside measured"), 2);
	text_finish(&page);
}

/* A study's first line is the plan; what is not built is a gap, what does not fit is hollow. */
static void test_study(void **state)
{
	struct fixture *fixture = *state;
	struct text page = {0};

	report_html(&fixture->report, 1, &page);
	assert_non_null(strstr(page.data, "id=\"scaling\""));
	assert_non_null(strstr(page.data, "id=\"link\""));
	assert_non_null(strstr(page.data,
		"From 1 node on, NO_SHARD is the fastest of these that fits (4000 "
		"tokens/s/GPU); from 2 nodes on, FULL_SHARD is"));
	assert_non_null(strstr(page.data, "3000, does not fit"));
	assert_non_null(strstr(page.data, "NO_SHARD, 4 nodes\n3000 tokens/s/GPU"));
	text_finish(&page);
}

static void test_report_json(void **state)
{
	struct fixture *fixture = *state;
	struct arena arena = {0};
	struct text text = {0};

	report_json(&fixture->report, 1, &text);
	const struct node *root = parse(&arena, &text);
	assert_string_equal(string_at(root, "schema"), "shardplan/report/1");
	const struct node *report = node_get(root, "reports")->children[0];
	const struct node *lines = node_get(node_get(report, "scaling"), "lines");
	assert_int_equal(lines->n_children, 2);
	assert_int_equal(node_get(lines->children[0], "points")->n_children, 3);
	assert_non_null(node_get(report, "measurement"));
	assert_int_equal(node_get(node_get(report, "defence"), "alternatives")->n_children, 4);
	text_finish(&text);
	arena_finish(&arena);
}

/* The plan, its measurement, and every alternative with the reason. */
static void test_report_csv(void **state)
{
	struct fixture *fixture = *state;
	struct report report = fixture->report;
	struct arena arena = {0};
	struct text text = {0};
	struct csv_table table;
	struct error error = {0};

	report.label = "=HYPERLINK(\"http://x\")";
	report_csv(&report, 1, &text);
	assert_true(csv_read(&arena, "report", text.data, text.length, &table, &error));
	assert_int_equal(table.n_rows, 2 + 4);
	for (int i = 0; i < table.n_rows; i++) {
		assert_int_equal(table.rows[i].n_cells, table.header.n_cells);
		assert_int_equal(strncmp(table.rows[i].cells[0], "'=HYPERLINK(", 12), 0);
	}
	assert_string_equal(table.rows[1].cells[table.header.n_cells - 1], "measured");
	assert_non_null(strstr(table.rows[2].cells[table.header.n_cells - 1], "over the limit"));
	text_finish(&text);
	arena_finish(&arena);
}

/* However long the step is: thirty thousand operations become a picture of bounded size. */
static void test_large_page(void **state)
{
	static const char *const options[] = {"grad_accum", "64", "strategy", "FULL_SHARD", NULL};
	struct fixture *fixture = malloc(sizeof(*fixture));
	struct text page = {0};

	(void)state;
	fixture_init(fixture, "llama-2-7b", "2xdgx-a100-80gb", options);
	assert_true(fixture->timeline.n_ops > 15000);
	report_html(&fixture->report, 1, &page);
	assert_in_range(page.length, 50000, 1000000);
	assert_non_null(strstr(page.data, "% busy</title>"));
	text_finish(&page);
	fixture_finish(fixture);
	free(fixture);
}

/* A plan file alone: no answer, no measurement, no memory curve. */
static void test_bare_page(void **state)
{
	struct fixture *fixture = *state;
	struct report report = {.asked = {"m", "t", NULL}, .explained = fixture->explained};
	struct text text = {0};

	report.explained.memory = NULL;
	report_html(&report, 1, &text);
	assert_null(strstr(text_string(&text), "Predicted beside measured"));
	assert_null(strstr(text_string(&text), "Strategies compared"));
	text_clear(&text);
	report_markdown(&report, 1, &text);
	assert_null(strstr(text_string(&text), "## Strategies"));
	/* Values stand as one types them. */
	assert_non_null(strstr(text_string(&text), "| forward\\_prefetch | off |"));
	text_finish(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answer),
		cmocka_unit_test(test_measurement),
		cmocka_unit_test(test_check),
		cmocka_unit_test(test_explain),
		cmocka_unit_test(test_trace),
		cmocka_unit_test(test_page),
		cmocka_unit_test(test_several),
		cmocka_unit_test(test_study),
		cmocka_unit_test(test_report_json),
		cmocka_unit_test(test_report_csv),
		cmocka_unit_test(test_large_page),
		cmocka_unit_test(test_bare_page),
		cmocka_unit_test(test_injection),
		cmocka_unit_test(test_injection_elsewhere),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
