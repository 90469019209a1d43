/* The verdicts of `check`: each line can fail, in both directions, and nothing else does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"
#include "schedule/memory/memory.h"

static const struct tolerance no_time = {-1, 0.10, 0, 0.03, 8 << 20};

static struct check judge(struct fixture *fixture, const struct tolerance *tolerance)
{
	struct check check;

	report_check(fixture->schedule, &fixture->prediction, &fixture->measurement, tolerance,
		&fixture->arena, &check);
	return check;
}

/* The lines that failed, in one string. */
static void failures(const struct check *check, struct text *text)
{
	text_clear(text);
	for (int i = 0; i < check->n_lines; i++) {
		if (check->lines[i].judged && !check->lines[i].ok)
			text_printf(text, "%s;", check->lines[i].what);
	}
}

static void expect_failures(
	struct fixture *fixture, const struct tolerance *tolerance, const char *expected)
{
	struct check check = judge(fixture, tolerance);
	struct text text = {0};

	failures(&check, &text);
	assert_string_equal(text_string(&text), expected);
	assert_int_equal(check.ok, expected[0] == '\0');
	text_finish(&text);
}

static void test_equal(void **state)
{
	expect_failures(*state, &no_time, "");
}

/* One byte more or less in any exact line is found, and named. */
static void test_exact(void **state)
{
	struct fixture *fixture = *state;
	struct prediction *values = &fixture->measurement.values;
	const struct {
		int64_t *value;
		const char *what;
	} lines[] = {
		{&values->ledger_peak_bytes, "ledger peak;"},
		{&values->ledger_category_peak[CATEGORY_PARAMETERS], "ledger peak of parameters;"},
		{&values->ledger_category_peak[CATEGORY_TEMPORARY_BUFFERS],
			"ledger peak of temporary buffers;"},
		{&values->ledger_category_peak[CATEGORY_RUNTIME_OVERHEAD],
			"ledger peak of runtime overhead;"},
		{&values->model_states_parameters, "model states: parameters;"},
		{&values->model_states_gradients, "model states: gradients;"},
		{&values->model_states_optimizer_state, "model states: optimizer;"},
		{&values->collectives[COLLECTIVE_ALL_GATHER], "all-gathers per step;"},
		{&values->collectives[COLLECTIVE_REDUCE_SCATTER], "reduce-scatters per step;"},
		{&values->collectives[COLLECTIVE_ALL_REDUCE], "all-reduces per step;"},
		{&values->collectives[COLLECTIVE_ALL_TO_ALL], "all-to-alls per step;"},
		{&values->collectives[COLLECTIVE_SEND_RECV], "ring messages per step;"},
		{&fixture->measurement.undeclared_bytes, "allocated outside of the schedule;"},
	};

	for (int i = 0; i < COUNT_OF(lines); i++) {
		*lines[i].value += 1;
		expect_failures(fixture, &no_time, lines[i].what);
		*lines[i].value -= 2;
		expect_failures(fixture, &no_time, lines[i].what);
		*lines[i].value += 1;
	}
	values->wire_bytes_per_rank += 1;
	expect_failures(fixture, &no_time, "sent by a rank;");
	values->wire_bytes_per_rank -= 1;
}

static void test_operations(void **state)
{
	struct fixture *fixture = *state;
	struct timeline *timeline = &fixture->measurement.timeline;

	timeline->live[3][CATEGORY_GRADIENTS] += 1;
	expect_failures(fixture, &no_time, "operations with another ledger;");
	timeline->live[3][CATEGORY_GRADIENTS] -= 1;
	timeline->n_ops--;
	expect_failures(fixture, &no_time, "operations;");
	timeline->n_ops++;
}

static void test_pss(void **state)
{
	struct fixture *fixture = *state;
	struct measurement *measured = &fixture->measurement;
	int64_t was = measured->pss_growth_bytes, peak = fixture->prediction.ledger_peak_bytes;

	measured->pss_growth_bytes = peak / 100 * 109;
	expect_failures(fixture, &no_time, "");
	measured->pss_growth_bytes = peak / 100 * 111;
	expect_failures(fixture, &no_time, "PSS growth, largest rank;");
	measured->pss_growth_bytes = peak / 100 * 91;
	expect_failures(fixture, &no_time, "");
	measured->pss_growth_bytes = peak / 100 * 89;
	expect_failures(fixture, &no_time, "PSS growth, largest rank;");
	struct tolerance large_only = no_time;
	large_only.memory_from = (double)peak + 1; /* too small to be judged */
	expect_failures(fixture, &large_only, "");
	large_only.memory_from = (double)peak;
	expect_failures(fixture, &large_only, "PSS growth, largest rank;");
	measured->pss_growth_bytes = 0; /* not measured */
	expect_failures(fixture, &no_time, "");
	measured->pss_growth_bytes = was;
}

static bool has_line(const struct check *check, const char *what)
{
	for (int i = 0; i < check->n_lines; i++)
		if (strcmp(check->lines[i].what, what) == 0)
			return true;
	return false;
}

/* Ranks of this machine that stand in for others send nothing over a network, and their processes'
 * memory is not the devices'. */
static void test_standing_in(void **state)
{
	static const char *const lines[] = {
		"leaving a node", "PSS growth, largest rank", "PSS growth, mean of ranks"};
	struct fixture *fixture = *state;
	struct topology *topology = fixture->topology;
	const struct topology was = *topology;
	struct measurement *measured = &fixture->measurement;
	double egress = fixture->prediction.wire_bytes_node_egress;
	struct check check;

	topology->nodes = 2;
	fixture->prediction.wire_bytes_node_egress = 1e9;
	measured->values.wire_bytes_node_egress = 0;
	measured->nodes = 2;
	expect_failures(fixture, &no_time, "leaving a node;");
	measured->nodes = 0; /* says nothing */
	expect_failures(fixture, &no_time, "leaving a node;");
	topology->emulated = true;
	measured->nodes = 1;
	measured->pss_growth_bytes *= 2;
	expect_failures(fixture, &no_time, "");
	check = judge(fixture, &no_time);
	for (int i = 0; i < COUNT_OF(lines); i++)
		assert_false(has_line(&check, lines[i]));
	*topology = was;
	measured->nodes = was.nodes;
	check = judge(fixture, &no_time);
	assert_true(has_line(&check, "PSS growth, largest rank"));
	measured->pss_growth_bytes /= 2;
	fixture->prediction.wire_bytes_node_egress = egress;
	measured->values.wire_bytes_node_egress = egress;
}

/* Rows to experts are as many as the router sends: what they are part of is shown, and not judged;
 * the rest of what a rank sends is. */
static void test_rows(void **state)
{
	struct fixture *fixture = *state;
	struct prediction *predicted = &fixture->prediction, was = *predicted;
	struct measurement *measured = &fixture->measurement, measured_was = *measured;

	predicted->wire_bytes_node_egress = 1e9;
	measured->values.wire_bytes_node_egress = 2e9;
	expect_failures(fixture, &no_time, "leaving a node;");
	predicted->wire_bytes_rows = 1e6;
	measured->values.wire_bytes_rows = 3e6;
	expect_failures(fixture, &no_time, "sent by a rank, but rows;");
	measured->values.wire_bytes_per_rank += 2e6;
	expect_failures(fixture, &no_time, "");
	struct check check = judge(fixture, &no_time);
	assert_true(has_line(&check, "rows to and from experts"));
	assert_true(has_line(&check, "leaving a node, with rows"));
	assert_false(has_line(&check, "leaving a node"));
	*predicted = was;
	*measured = measured_was;
}

/* What ranks reserve counts for each, the context once, and NCCL not at all: only a rank with a
 * GPU of its own has communicators. Growth by some pages is the driver's. */
static void test_device(void **state)
{
	struct fixture *fixture = *state;
	struct measurement *measured = &fixture->measurement, was = *measured;
	struct prediction *predicted = &fixture->prediction, predicted_was = *predicted;
	int64_t nccl = schedule_fixed_memory(fixture->schedule).communicators;

	assert_true(nccl > 0);
	predicted->peak_reserved_bytes = 1000 << 20;
	predicted->peak_memory_bytes = (1500 << 20) + nccl;
	measured->device_ranks = 1;
	measured->device_used_bytes = (1500 << 20) + nccl;
	expect_failures(fixture, &no_time, "");
	measured->device_used_bytes -= nccl;
	expect_failures(fixture, &no_time, "in use on the GPU;");
	measured->device_ranks = 3;
	for (int percent = 95; percent <= 105; percent++) {
		measured->device_used_bytes = (int64_t)35 * percent << 20;
		expect_failures(fixture, &no_time,
			percent < 97 || percent > 103 ? "in use on the GPU;" : "");
	}
	/* The ledger's order is one that places allow for too. */
	int64_t ledger = predicted->ledger_peak_bytes;
	predicted->peak_reserved_bytes = ledger / 2;
	predicted->peak_memory_bytes = predicted->peak_reserved_bytes + ledger / 10 + nccl;
	measured->device_used_bytes = 3 * ledger + ledger / 10;
	expect_failures(fixture, &no_time, "");
	measured->device_used_bytes -= ledger;
	expect_failures(fixture, &no_time, "in use on the GPU;");
	predicted->peak_reserved_bytes = 1000 << 20;
	predicted->peak_memory_bytes = (1500 << 20) + nccl;
	/* A GPU that stands in for others has a context of its own. */
	measured->device_used_bytes = (int64_t)35 * 105 << 20;
	measured->slow_motion = 1;
	expect_failures(fixture, &no_time, "");
	measured->slow_motion = 0;
	measured->device_used_bytes = (int64_t)3500 << 20;
	measured->undeclared_bytes = 8 << 20;
	expect_failures(fixture, &no_time, "");
	measured->undeclared_bytes++;
	expect_failures(fixture, &no_time, "allocated outside of the schedule;");
	*measured = was;
	*predicted = predicted_was;
}

/* Times are judged only when asked to, and by the median. */
static void test_time(void **state)
{
	static const struct tolerance wide = {0.10, 0.10, 0}, narrow = {0.05, 0.10, 0};
	struct fixture *fixture = *state;
	struct measurement *measured = &fixture->measurement, was = *measured;

	measured->step_time_p50 = fixture->prediction.step_time * 10;
	expect_failures(fixture, &no_time, "");
	expect_failures(fixture, &wide, "step time;");
	measured->step_time_p50 = fixture->prediction.step_time / 10;
	expect_failures(fixture, &wide, "step time;");
	*measured = was; /* 6 % slower */
	measured->values.step_time *= 10;
	expect_failures(fixture, &wide, "");
	expect_failures(fixture, &narrow, "step time;");
	*measured = was;
}

static void expect_judged(struct fixture *fixture, const struct tolerance *tolerance,
	const char *what, const char *other)
{
	static const struct style plain = {false, 0};
	struct check check = judge(fixture, tolerance);
	struct text text = {0};

	report_check_text(&check, &plain, &text);
	/* Wherever lines are broken. */
	for (char *end = text.data; (end = strchr(end, '\n')) != NULL;)
		*end = ' ';
	if (strstr(text_string(&text), what) == NULL ||
		(other != NULL && strstr(text_string(&text), other) == NULL))
		fail_msg("no \"%s\" in:\n%s", what, text_string(&text));
	text_finish(&text);
}

static void expect_said(struct fixture *fixture, const char *what, const char *other)
{
	expect_judged(fixture, &no_time, what, other);
}

/* A step that is 12 % too long on a machine that is 12 % slower is predicted well; where the
 * machine is as it was the model is wrong. */
static void test_yardstick(void **state)
{
	static const struct tolerance narrow = {0.05, 0.10, 0};
	static const char at_speed[] = "step time at the run's speed;";
	struct fixture *fixture = *state;
	struct measurement *measured = &fixture->measurement, was = *measured;
	struct calibration *calibration = &fixture->topology->calibration;
	double then = calibration->yardstick;

	calibration->yardstick = 0.01;
	measured->step_time_p50 = 1.12 * fixture->prediction.step_time;
	expect_failures(fixture, &narrow, "step time;"); /* was not measured */
	measured->yardstick_before = 0.0110;
	measured->yardstick_after = 0.0114;
	expect_failures(fixture, &narrow, "");
	expect_said(fixture,
		"The machine ran at 89 % of the speed it was calibrated at: before the run a fixed "
		"matrix product took 1.10 times as long as",
		"after it 1.14 times.");
	measured->yardstick_after = measured->yardstick_before = 0.01;
	expect_failures(fixture, &narrow, at_speed);
	expect_said(fixture, "The machine ran at the speed it was calibrated at: ", NULL);
	measured->yardstick_after = 0.02;
	expect_said(fixture, "The speed changed during the run: measure again.", NULL);
	measured->yardstick_after = measured->yardstick_before = 0.008;
	expect_failures(fixture, &narrow, at_speed);
	expect_said(fixture, "The machine ran at 125 % of the speed it was calibrated at: ", NULL);
	calibration->yardstick = 0;
	expect_failures(fixture, &narrow, "step time;");
	calibration->yardstick = then;
	*measured = was;
}

/* Times of CPUs that were not calibrated are said to be rough. */
static void test_prior(void **state)
{
	struct fixture *fixture = *state;
	struct topology *topology = fixture->topology, was = *topology;

	topology->device.kind = DEVICE_CPU;
	topology->calibration.measured = false;
	expect_said(fixture, "Predicted times are rough, ", "All ");
	topology->calibration.measured = true;
	struct check calibrated = judge(fixture, &no_time);
	assert_false(calibrated.prior);
	*topology = was;
}

/* The range is that of the prediction, at the speed of the run; a tolerance goes before it. */
static void test_verdict(void **state)
{
	static const struct tolerance wide = {0.9, 0.10, 0};
	struct fixture *fixture = *state;
	struct measurement *measured = &fixture->measurement, was = *measured;
	struct prediction *predicted = &fixture->prediction, range = *predicted;
	struct calibration *calibration = &fixture->topology->calibration;
	double then = calibration->yardstick, step = predicted->step_time;

	calibration->yardstick = 0.01;
	measured->yardstick_before = measured->yardstick_after = 0.02;
	predicted->step_time_low = 0.9 * step;
	predicted->step_time_high = 1.1 * step;
	measured->step_time_p50 = 2.1 * step;
	expect_said(fixture, " 50 % of the speed", ": the model is right.");
	measured->step_time_p50 = 2.3 * step;
	expect_said(fixture, ", which is longer: either the model is wrong, ", NULL);
	measured->step_time_p50 = 1.7 * step;
	expect_said(fixture, ", which is shorter: either the model is wrong, ", NULL);
	expect_judged(fixture, &wide, ": the model is right.", NULL);
	predicted->step_time_low = predicted->step_time_high = step;
	expect_said(fixture, " was measured. ", NULL);
	calibration->yardstick = then;
	*predicted = range;
	*measured = was;
}

static void test_text(void **state)
{
	static const struct style plain = {false, 0};
	struct fixture *fixture = *state;
	struct text text = {0};
	struct check check = judge(fixture, &no_time);

	check.sends_rows = true;
	report_check_text(&check, &plain, &text);
	for (const char *line = text_string(&text); *line != '\0'; line += strcspn(line, "\n") + 1)
		assert_in_range(strcspn(line, "\n"), 0, 100);
	assert_non_null(strstr(text_string(&text), "judged lines agree."));
	assert_null(strstr(text_string(&text), "DIFFERS"));
	text_clear(&text);
	fixture->measurement.values.ledger_peak_bytes += 1 << 20;
	check = judge(fixture, &no_time);
	fixture->measurement.values.ledger_peak_bytes -= 1 << 20;
	report_check_text(&check, &plain, &text);
	assert_non_null(strstr(text_string(&text), "DIFFERS"));
	assert_non_null(strstr(text_string(&text), "judged lines does not agree."));
	text_finish(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal),
		cmocka_unit_test(test_exact),
		cmocka_unit_test(test_operations),
		cmocka_unit_test(test_pss),
		cmocka_unit_test(test_standing_in),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_device),
		cmocka_unit_test(test_time),
		cmocka_unit_test(test_yardstick),
		cmocka_unit_test(test_prior),
		cmocka_unit_test(test_verdict),
		cmocka_unit_test(test_text),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
