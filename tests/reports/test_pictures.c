/* Patterns of communication and layouts, drawn as course notes ask for by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"
#include "reports/text/summaries.h"
#include "reports/views/collective_order.h"
#include "reports/views/slices.h"

static void expect_pattern(
	const char *runtime, const char *strategy, const char *accumulation, const char *expected)
{
	const char *const options[] = {"strategy", strategy, "runtime", runtime, "grad_accum",
		accumulation, "wrap", "block", "sync_each_micro_batch", "off", NULL};
	struct fixture *fixture = malloc(sizeof(*fixture));
	struct text pattern = {0};

	fixture_init(fixture, "gpt2-nano", "2xdgx-a100-80gb", options);
	unit_pattern(fixture->schedule, 3, 0, &pattern);
	if (strcmp(text_string(&pattern), expected) != 0)
		fail_msg("%s %s: %s, not %s", runtime, strategy, text_string(&pattern), expected);
	text_finish(&pattern);
	fixture_finish(fixture);
	free(fixture);
}

/* The pattern is that of a block in the middle, by the ZeRO paper's and PyTorch's own words for
 * each strategy. FSDP2's parameters are freed after the reduction has been issued; so are FSDP1's.
 */
static void test_patterns(void **state)
{
	(void)state;
	expect_pattern("pytorch-fsdp2", "FULL_SHARD", "1", "G16 F | G16 B | S16");
	expect_pattern("pytorch-fsdp2", "SHARD_GRAD_OP", "1", "G16 F B | S16");
	expect_pattern("pytorch-fsdp2", "HYBRID_SHARD", "1", "G8 F | G8 B | S8 A2");
	expect_pattern("pytorch-fsdp2", "HYBRID_SHARD_ZERO2", "1", "G8 F B | S8 A2");
	/* Accumulating, FSDP2 reduces nothing before the last micro-batch. */
	expect_pattern("pytorch-fsdp2", "FULL_SHARD", "2", "G16 F | G16 B |");
	expect_pattern("pytorch-fsdp1", "FULL_SHARD", "1", "G16 F | G16 B | S16");
}

/* What a rank sends: FSDP's 3 (N - 1)/N P of bf16 parameters and fp32 gradients; ring. */
static void test_sums(void **state)
{
	struct fixture *fixture = *state;
	struct collective_sum gathers = collective_sum(fixture->schedule, OP_ALL_GATHER);
	struct collective_sum reductions = collective_sum(fixture->schedule, OP_REDUCE_SCATTER);
	int64_t gathered = 0;

	for (int u = 0; u < fixture->schedule->programs->n_units; u++)
		gathered += fixture->schedule->programs->units[u].gathered;
	assert_int_equal(reductions.bytes, 4 * gathered);
	assert_int_equal(
		gathers.bytes, 4 * gathered - 2 * fixture->schedule->programs->units[0].gathered);
	assert_true(gathers.wire_bytes == (double)gathers.bytes / 16 * 15);
	assert_int_equal(gathers.count + reductions.count + 1,
		2 * fixture->schedule->programs->n_units + fixture->schedule->programs->n_units);
	assert_int_equal(collective_sum(fixture->schedule, OP_ALL_REDUCE).count, 0);
	assert_int_equal(collective_sum(fixture->schedule, OP_FORWARD).count, 0);
}

/* Exposed times of single collectives: their union is the picture's red, so their sum is at least
 * that, and none is longer than itself. */
static void test_carried(void **state)
{
	struct fixture *fixture = *state;
	struct arena arena = {0};
	struct carried *carried;
	struct interval *gaps;
	double sum = 0, joined = 0;
	int n = carried_of(fixture->schedule, &fixture->timeline, &arena, &carried);
	int n_gaps = exposed_intervals(fixture->schedule, &fixture->timeline, &arena, &gaps);

	for (int i = 0; i < n; i++) {
		assert_true(carried[i].exposed >= -1e-12);
		assert_true(carried[i].exposed <= carried[i].takes * (1 + 1e-9));
		sum += carried[i].exposed;
	}
	for (int i = 0; i < n_gaps; i++)
		joined += gaps[i].end - gaps[i].start;
	assert_true(joined > 0);
	assert_true(sum >= joined * (1 - 1e-9));
	/* The first gather runs before anything can be computed. */
	assert_int_equal(carried[0].behind, -1);
	assert_int_equal(carried_of(fixture->schedule, NULL, &arena, &carried), n);
	assert_true(carried[0].takes == 0);
	arena_finish(&arena);
}

static void test_other_strategies(void **state)
{
	struct fixture *fixture = *state;
	struct arena arena = {0};
	struct schedule *other;
	struct error error = {0};

	assert_true(with_strategy(fixture->schedule, STRATEGY_NO_SHARD, &arena, &other, &error));
	assert_int_equal(other->plan.runtime, RUNTIME_PYTORCH_DDP);
	assert_true(
		with_strategy(fixture->schedule, STRATEGY_HYBRID_SHARD, &arena, &other, &error));
	assert_int_equal(other->plan.mesh.shard, 8);
	arena_finish(&arena);
}

/* 10 rows over 4 ranks: 3, 3, 3, 1, and two rows of padding; 2 rows over 4: 1, 1, none, none. */
static void test_cut(void **state)
{
	const struct parameter ten = {.n_dims = 2, .shape = {10, 7}, .elements = 70};
	const struct parameter two = {.n_dims = 1, .shape = {2, 0}, .elements = 2};
	struct cut cut = cut_of(&ten, 4);

	(void)state;
	assert_int_equal(cut.rows, 3);
	assert_int_equal(cut.whole, 3);
	assert_int_equal(cut.rest, 1);
	assert_int_equal(cut.padding, 14);
	cut = cut_of(&two, 4);
	assert_int_equal(cut.rows, 1);
	assert_int_equal(cut.whole, 2);
	assert_int_equal(cut.rest, 0);
	assert_int_equal(cut.padding, 2);
	cut = cut_of(&ten, 1);
	assert_int_equal(cut.whole, 1);
	assert_int_equal(cut.padding, 0);
}

/* Cuts agree with what the schedule says of the unit: chunk, padding. */
static void test_cuts_of_units(void **state)
{
	static const char *const options[] = {"strategy", "FULL_SHARD", NULL};
	struct fixture *fixture = malloc(sizeof(*fixture));

	(void)state;
	fixture_init(fixture, "gpt2-124m", "3xdgx-a100-80gb", options);
	assert_true(layout_is_per_parameter(fixture->schedule));
	for (int u = 0; u < fixture->schedule->programs->n_units; u++) {
		const struct unit *unit = &fixture->schedule->programs->units[u];
		int64_t chunk = 0, padding = 0;
		for (int s = 0; s < unit->n_slices; s++) {
			struct cut cut =
				cut_of(&fixture->model->parameters[unit->slices[s].parameter], 24);
			chunk += cut.rows * cut.row_elements;
			padding += cut.padding;
		}
		assert_int_equal(chunk, unit->chunk);
		assert_int_equal(padding, unit->gathered - unit->parameters);
	}
	assert_int_equal(layout_like(fixture->schedule, 5), layout_like(fixture->schedule, 2));
	fixture_finish(fixture);
	free(fixture);
}

/* Runs of a FlatParameter follow one another without a gap, and the padding is what is left. */
static void test_runs(void **state)
{
	static const char *const options[] = {
		"strategy", "FULL_SHARD", "runtime", "pytorch-fsdp1", NULL};
	struct fixture *fixture = malloc(sizeof(*fixture));
	struct arena arena = {0};

	(void)state;
	fixture_init(fixture, "gpt2-124m", "3xdgx-a100-80gb", options);
	assert_false(layout_is_per_parameter(fixture->schedule));
	for (int u = 0; u < fixture->schedule->programs->n_units; u++) {
		const struct unit *unit = &fixture->schedule->programs->units[u];
		struct run *runs;
		int64_t at = 0, padding = 0;
		int n = runs_of(unit, &arena, &runs);
		for (int i = 0; i < n; i++) {
			assert_int_equal(runs[i].start, at);
			at += runs[i].elements;
			padding += runs[i].slice < 0 ? runs[i].elements : 0;
		}
		assert_int_equal(at, unit->gathered);
		assert_int_equal(padding, unit->gathered - unit->parameters);
		assert_true(padding < 24 + 8 * unit->n_slices);
	}
	fixture_finish(fixture);
	arena_finish(&arena);
	free(fixture);
}

static int count(const char *text, const char *needle)
{
	int n = 0;

	for (; (text = strstr(text, needle)) != NULL; text++)
		n++;
	return n;
}

/* A picture has every collective of the step, each with its words. */
static void test_pictures(void **state)
{
	struct fixture *fixture = *state;
	struct text picture = {0};
	struct arena arena = {0};
	struct carried *carried;
	int n = carried_of(fixture->schedule, NULL, &arena, &carried);

	report_view("communication")->draw(&fixture->explained, &picture);
	assert_int_equal(count(picture.data, ", exposed "), n);
	assert_int_equal(count(picture.data, "<svg "), 1);
	text_clear(&picture);
	report_view("layout")->draw(&fixture->explained, &picture);
	assert_int_equal(count(picture.data, "lie alike"), 1);
	assert_int_equal(count(picture.data, "rank 15: "), count(picture.data, "rank 0: "));
	text_finish(&picture);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_patterns),
		cmocka_unit_test(test_sums),
		cmocka_unit_test(test_carried),
		cmocka_unit_test(test_other_strategies),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_cuts_of_units),
		cmocka_unit_test(test_runs),
		cmocka_unit_test(test_pictures),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
