/* Predictions, measurements and timelines: what is written reads back, bit for bit, in YAML and in
 * JSON; what is wrong is refused with its place. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "schedule/documents/documents.h"

static const enum writer_format formats[] = {WRITER_YAML, WRITER_JSON, WRITER_JSON_COMPACT};

static struct class_figures stages[] = {
	{"stage 0", 0.51, 41, 0.61}, {"stage 1", 0.52, 42, 0.62}, {"stage 2", 0.53, 43, 0}};

/* Every number another one, so that no two members can be mixed up. */
static struct prediction sample(void)
{
	struct prediction prediction = {
		.schedule_digest = "0123456789abcdef0123456789abcdef",
		.fits = FITS_TIGHT,
		.memory_limit_bytes = 85899345920,
		.step_time = 1.0 / 3,
		.tokens_per_s_per_gpu = 1e4 / 7,
		.mfu = 0.41,
		.mfu_6n = 0.37,
		.mfu_causal = 0.39,
		.hfu = 0.53,
		.peak_flops = 312e12,
		.peak_name = "A100: bf16 \"dense\" # peak",
		.model_states_parameters = 11,
		.model_states_gradients = 12,
		.model_states_optimizer_state = 13,
		.peak_allocated_bytes = 9007199254740993, /* no double has it */
		.peak_active_bytes = 14,
		.places_bytes = 15,
		.peak_reserved_bytes = 15,
		.peak_memory_bytes = 16,
		.ledger_peak_bytes = 17,
		.peak_at = "backward model.layers.31, micro-batch 0",
		.peak_op = 18,
		.host_memory_bytes = 19,
		.host_memory_limit_bytes = 21,
		.ledger_host_peak_bytes = 23,
		.allocator_retries = 2.5,
		.peak_wanted_bytes = 99,
		.time = {0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.11, 0.12, 0.13,
			0.14, 0.15},
		.wire_bytes_per_rank = 1e9 / 3,
		.wire_bytes_node_egress = 2e9 / 3,
		.collectives = {31, 32, 33, 34},
		.step_time_low = 0.3,
		.step_time_high = 0.4,
		.step_time_p95 = 0.36,
		.step_time_best = 0.32,
		.uncertainty_source = "no",
		.lower_bound = 0.1,
		.plan_lower_bound = 0.2,
		.n_classes = COUNT_OF(stages),
		.rank_class = 1,
		.classes = stages,
	};

	for (int c = 0; c < CATEGORY_COUNT; c++) {
		prediction.memory_at_peak[c] = 100 + c;
		prediction.memory_category_peak[c] = 200 + c;
		prediction.ledger_category_peak[c] = 300 + c;
	}
	return prediction;
}

static const struct node *parse(struct arena *arena, struct text *text)
{
	struct error error = {0};
	const struct node *root =
		document_parse(arena, "sample", text->data, text->length, 0, &error);

	if (root == NULL)
		fail_msg("%s\n%s", error.message, text_string(text));
	return root;
}

static void assert_same_string(const char *a, const char *b)
{
	if (a == NULL || b == NULL)
		assert_ptr_equal(a, b);
	else
		assert_string_equal(a, b);
}

/* Strings by content, all other members by their bits. */
static void assert_same_prediction(const struct prediction *a, const struct prediction *b)
{
	struct prediction left = *a, right = *b;

	assert_same_string(a->schedule_digest, b->schedule_digest);
	assert_same_string(a->peak_name, b->peak_name);
	assert_same_string(a->peak_at, b->peak_at);
	assert_same_string(a->uncertainty_source, b->uncertainty_source);
	left.schedule_digest = left.peak_name = left.peak_at = left.uncertainty_source = NULL;
	right.schedule_digest = right.peak_name = right.peak_at = right.uncertainty_source = NULL;
#define SAME(member) assert_memory_equal(&left.member, &right.member, sizeof(left.member))
	SAME(fits);
	SAME(memory_limit_bytes);
	SAME(step_time);
	SAME(tokens_per_s_per_gpu);
	SAME(mfu);
	SAME(mfu_6n);
	SAME(mfu_causal);
	SAME(hfu);
	SAME(peak_flops);
	SAME(model_states_parameters);
	SAME(model_states_gradients);
	SAME(model_states_optimizer_state);
	SAME(peak_allocated_bytes);
	SAME(peak_active_bytes);
	SAME(places_bytes);
	SAME(peak_reserved_bytes);
	SAME(peak_memory_bytes);
	SAME(allocator_retries);
	SAME(peak_wanted_bytes);
	SAME(ledger_peak_bytes);
	SAME(peak_op);
	SAME(memory_at_peak);
	SAME(memory_category_peak);
	SAME(ledger_category_peak);
	SAME(host_memory_bytes);
	SAME(host_memory_limit_bytes);
	SAME(ledger_host_peak_bytes);
	SAME(time);
	SAME(wire_bytes_per_rank);
	SAME(wire_bytes_node_egress);
	SAME(collectives);
	SAME(step_time_low);
	SAME(step_time_high);
	SAME(step_time_p95);
	SAME(step_time_best);
	SAME(lower_bound);
	SAME(plan_lower_bound);
	SAME(n_classes);
	SAME(rank_class);
#undef SAME
	for (int c = 0; c < left.n_classes; c++) {
		const struct class_figures *x = &left.classes[c], *y = &right.classes[c];

		assert_string_equal(x->name, y->name);
		assert_true(x->step_time == y->step_time && x->bubble == y->bubble);
		assert_int_equal(x->peak_memory_bytes, y->peak_memory_bytes);
	}
}

static void test_prediction(void **state)
{
	(void)state;
	for (int f = 0; f < COUNT_OF(formats); f++) {
		struct prediction prediction = sample(), read;
		struct arena arena = {0};
		struct error error = {0};
		struct text text = {0};
		struct writer writer;
		writer_init(&writer, &text, formats[f]);
		prediction_write(&prediction, &writer);
		writer_finish(&writer);
		if (!prediction_read(&arena, parse(&arena, &text), &read, &error))
			fail_msg("%s", error.message);
		assert_same_prediction(&prediction, &read);
		text_finish(&text);
		arena_finish(&arena);
	}
}

/* The keys that other programs rely on. */
static void test_keys(void **state)
{
	static const char *const keys[] = {"fits", "step_time_s", "tokens_per_s_per_gpu", "mfu",
		"mfu_6n", "mfu_causal", "hfu", "model_states_bytes", "peak_allocated_bytes",
		"peak_reserved_bytes", "peak_memory_bytes", "peak_at", "memory_at_peak_bytes",
		"memory_category_peak_bytes", "host_memory_bytes", "time_s", "wire_bytes",
		"uncertainty", "rank_class", "classes", "lower_bound_s", "plan_lower_bound_s"};
	static const char *const times[] = {"compute", "all_gather", "reduce_scatter", "all_reduce",
		"copy", "optimizer", "exposed_communication", "data_loading", "data_wait",
		"unaligned_head", "allocator", "all_to_all", "messages", "bubble"};
	struct prediction prediction = sample();
	struct arena arena = {0};
	struct text text = {0};
	struct writer writer;

	(void)state;
	writer_init(&writer, &text, WRITER_JSON);
	prediction_write(&prediction, &writer);
	writer_finish(&writer);
	const struct node *root = parse(&arena, &text);
	for (int i = 0; i < COUNT_OF(keys); i++) {
		if (node_get(root, keys[i]) == NULL)
			fail_msg("no %s", keys[i]);
	}
	const struct node *time = node_get(root, "time_s");
	assert_int_equal(time->n_children, COUNT_OF(times));
	for (int i = 0; i < COUNT_OF(times); i++)
		assert_string_equal(time->children[i]->key, times[i]);
	const struct node *memory = node_get(root, "memory_at_peak_bytes");
	assert_int_equal(memory->n_children, CATEGORY_COUNT);
	for (int c = 0; c < CATEGORY_COUNT; c++)
		assert_string_equal(memory->children[c]->key, category_names[c]);
	text_finish(&text);
	arena_finish(&arena);
}

/* An MFU without a known peak is not zero: it is absent. */
static void test_unknown(void **state)
{
	struct prediction prediction = sample();
	struct text text = {0};
	struct writer writer;

	(void)state;
	prediction.mfu = prediction.peak_flops = prediction.lower_bound = 0;
	writer_init(&writer, &text, WRITER_JSON);
	prediction_write(&prediction, &writer);
	writer_finish(&writer);
	assert_null(strstr(text_string(&text), "\"mfu\""));
	assert_null(strstr(text_string(&text), "\"peak_flops\""));
	assert_null(strstr(text_string(&text), "\"lower_bound_s\""));
	assert_non_null(strstr(text_string(&text), "\"hfu\""));
	text_finish(&text);
}

static double losses[] = {5.5, 1.0 / 3, NAN, 2.25};
static double norms[] = {1, 0.1, 1e-300, 4};
static struct span spans[] = {{0, 0, 0.1}, {1e-6, 0.1, 1.0 / 3}, {2e-6, 0.5, 0.5}};
static int64_t live[3][CATEGORY_COUNT] = {{1, 2, 3, 4, 5, 6, 7}, {0}, {1LL << 53}};

static struct measurement measured_sample(void)
{
	return (struct measurement){
		.values = sample(),
		.ranks = 4,
		.nodes = 2,
		.steps = 100,
		.warm_up_steps = 2,
		.step_time_p50 = 0.31,
		.step_time_p95 = 0.35,
		.step_time_variance = 1e-5 / 3,
		.yardstick_before = 1e-3 / 3,
		.yardstick_after = 1e-3 / 7,
		.n_losses = COUNT_OF(losses),
		.losses = losses,
		.gradient_norms = norms,
		.weights_digest = "ffffffffffffffffffffffffffffffff",
		.reproducible = "plan",
		.hardware = "one machine: \"x\"",
		.versions = "1.0",
		.date = "2026-01-02T03:04:05Z",
		.pss_growth_bytes = 41,
		.pss_growth_mean_bytes = 42,
		.undeclared_bytes = 43,
		.device_used_bytes = 44,
		.device_ranks = 4,
		.device_account = "less 1 bytes",
		.timeline = {3, spans, live, 0.6},
	};
}

static void test_measurement(void **state)
{
	(void)state;
	for (int f = 0; f < COUNT_OF(formats); f++) {
		struct measurement sampled = measured_sample(), read;
		struct arena arena = {0};
		struct error error = {0};
		struct text text = {0}, again = {0};
		struct writer writer;
		writer_init(&writer, &text, formats[f]);
		measurement_write(&sampled, &writer);
		writer_finish(&writer);
		if (!measurement_read(&arena, parse(&arena, &text), &read, &error))
			fail_msg("%s", error.message);
		assert_same_prediction(&sampled.values, &read.values);
		assert_int_equal(read.ranks, 4);
		assert_int_equal(read.nodes, 2);
		assert_true(read.yardstick_before == sampled.yardstick_before);
		assert_true(read.yardstick_after == sampled.yardstick_after);
		assert_int_equal(read.undeclared_bytes, 43);
		assert_int_equal(read.device_used_bytes, 44);
		assert_int_equal(read.device_ranks, 4);
		assert_true(isnan(read.losses[2]));
		assert_memory_equal(read.losses, losses, 2 * sizeof(double));
		assert_memory_equal(read.gradient_norms, norms, sizeof(norms));
		assert_int_equal(read.timeline.n_ops, 3);
		assert_memory_equal(read.timeline.spans, spans, sizeof(spans));
		assert_memory_equal(read.timeline.live, live, sizeof(live));
		/* Everything else by writing it once more. */
		writer_init(&writer, &again, formats[f]);
		measurement_write(&read, &writer);
		writer_finish(&writer);
		assert_string_equal(text_string(&text), text_string(&again));
		text_finish(&text);
		text_finish(&again);
		arena_finish(&arena);
	}
}

static void expect_error(const char *document, const char *message)
{
	struct arena arena = {0};
	struct error error = {0};
	struct measurement read;
	struct text text = {0};

	text_add(&text, document);
	assert_false(measurement_read(&arena, parse(&arena, &text), &read, &error));
	assert_int_equal(error.code, EXIT_CODE_INPUT);
	assert_string_equal(error.message, message);
	text_finish(&text);
	arena_finish(&arena);
}

#define GOOD                                                                                       \
	"schedule_digest: a\nfits: yes\nstep_time_s: 1\npeak_memory_bytes: 2\n"                    \
	"ledger_peak_bytes: 3\nranks: 1\nsteps: 5\nwarm_up_steps: 2\nundeclared_bytes: 0\n"

static void test_errors(void **state)
{
	(void)state;
	expect_error(
		"fits: yes\n", "sample:1:1: missing key \"schedule_digest\", expected a string");
	expect_error("schedule_digest: a\nfits: maybe\n",
		"sample:2:7: fits: expected one of yes, tight, no, got \"maybe\"");
	expect_error(GOOD "step_tim_s: 1\n",
		"sample:10:1: step_tim_s: unknown key, did you mean \"step_time_s\"?");
	expect_error(GOOD "time_s: {compute: -1}\n",
		"sample:10:19: compute: expected a number of 0 or more, got \"-1\"");
	expect_error(GOOD "loss: 3\n", "sample:10:7: loss: expected a list of numbers, one a step");
	expect_error(GOOD "loss: [1, 2]\ngradient_norm: [1]\n",
		"sample:11:16: gradient_norm: expected as many as losses, 2, got 1");
	expect_error(GOOD "timeline: {step_time_s: 1, spans: [[0, 2, 1]]}\n",
		"sample:10:36: times go backwards, expected issued <= start <= end");
	expect_error(GOOD "timeline: {step_time_s: 1, spans: [[0, 1]]}\n",
		"sample:10:36: expected 3 times (issued, start, end), got 2");
	expect_error(GOOD "timeline: {step_time_s: 1, spans: [], live: [[1]]}\n",
		"sample:10:45: live: expected 0 rows, one an operation, got 1");
	expect_error(GOOD "timeline: {spans: []}\n",
		"sample:10:11: timeline: missing key \"step_time_s\", expected seconds");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_prediction),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_measurement),
		cmocka_unit_test(test_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
