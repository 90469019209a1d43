/* Questions about limits: the answer fits, and a slightly larger value does not. */
#include "support.h"

#include <math.h>

#include "planner/evaluation/evaluation.h"
#include "planner/space/space.h"

static struct finding find(
	const struct question *question, enum find what, double target, struct arena *arena)
{
	struct finding finding;
	struct error error = {0};
	if (!planner_find(question, what, target, arena, &finding, &error))
		fail_msg("%s", error.message);
	return finding;
}

static const struct found *answer_of(const struct finding *finding)
{
	const struct found *answer = NULL;
	for (int i = 0; i < finding->n; i++) {
		if (!finding->rows[i].answer)
			continue;
		assert_null(answer);
		answer = &finding->rows[i];
	}
	return answer;
}

/* Does any plan of the space fit, with room, at this length or micro-batch? */
static bool any_fits(
	const struct question *question, const char *knob, int64_t value, struct arena *arena)
{
	struct question fixed = *question;
	struct evaluator evaluator = {.question = &fixed};
	struct space space;
	struct error error = {0};
	bool any = false;
	set_choice(&fixed, arena, knob, arena_printf(arena, "%lld", (long long)value));
	fixed.divides = strcmp(knob, "seq_len") == 0;
	if (fixed.divides)
		set_choice(&fixed, arena, "micro_batch", "1");
	if (!space_build(&fixed, arena, &space, &error))
		fail_msg("%s", error.message);
	for (int i = 0; i < space.n && !any; i++) {
		struct prediction prediction;
		any = evaluator_run(&evaluator, &space.plans[i], &prediction, &error) &&
		      has_room(&fixed, &space.plans[i], &prediction);
	}
	space_finish(&space);
	evaluator_finish(&evaluator);
	return any;
}

/* The planner itself, asked again. */
static bool plan_fits(
	const struct question *question, const char *knob, int64_t value, struct arena *arena)
{
	struct question fixed = *question;
	struct answer answer;
	set_choice(&fixed, arena, knob, arena_printf(arena, "%lld", (long long)value));
	if (strcmp(knob, "seq_len") == 0)
		set_choice(&fixed, arena, "micro_batch", "1");
	answer = ask(&fixed, arena);
	return answer.chosen != NULL && !answer.tight;
}

static void check_order(const struct finding *finding, bool largest_first)
{
	assert_non_null(finding->held);
	for (int i = 1; i < finding->n; i++)
		assert_true(largest_first ? finding->rows[i - 1].value >= finding->rows[i].value
					  : finding->rows[i - 1].value <= finding->rows[i].value);
}

static struct question small_question(struct arena *arena, int64_t limit_mib)
{
	struct question question = {.model = load_model(arena, "llama-nano"),
		.topology = load_topology(arena, "2xdgx-a100-80gb"),
		.memory_limit_bytes = limit_mib << 20};
	set_choice(&question, arena, "wrap", "block");
	return question;
}

static void test_longest_sequence(void **state)
{
	(void)state;
	int above = 0;
	for (int64_t mib = 1300; mib <= 1900; mib += 200) {
		struct arena arena = {0};
		struct question question = small_question(&arena, mib);
		struct model model = *question.model;
		struct finding finding = find(&question, FIND_MAX_SEQ_LEN, 0, &arena);
		model.architecture.context = INT64_C(1) << 30;
		question.model = &model;
		if (!finding.exists) {
			assert_false(any_fits(&question, "seq_len", 128, &arena));
		} else {
			int64_t longest = (int64_t)finding.value;
			assert_int_equal(answer_of(&finding)->plan.seq_len, longest);
			assert_int_equal(answer_of(&finding)->prediction.fits, FITS_YES);
			assert_true(any_fits(&question, "seq_len", longest, &arena));
			assert_false(any_fits(&question, "seq_len", longest + 128, &arena));
			assert_true(plan_fits(&question, "seq_len", longest, &arena));
			assert_false(plan_fits(&question, "seq_len", longest + 128, &arena));
			check_order(&finding, true);
			above++;
		}
		arena_finish(&arena);
	}
	assert_true(above > 2);
}

static void test_largest_micro_batch(void **state)
{
	(void)state;
	int64_t last = 0;
	for (int64_t mib = 1400; mib <= 2000; mib += 200) {
		struct arena arena = {0};
		struct question question = small_question(&arena, mib);
		set_choice(&question, &arena, "tensor", "1");
		set_choice(&question, &arena, "context", "1");
		struct finding finding = find(&question, FIND_MAX_MICRO_BATCH, 0, &arena);
		int64_t largest = (int64_t)finding.value;
		assert_true(finding.exists);
		assert_true(largest > last); /* more memory, more sequences */
		assert_int_equal(answer_of(&finding)->plan.micro_batch, largest);
		assert_true(any_fits(&question, "micro_batch", largest, &arena));
		assert_false(any_fits(&question, "micro_batch", largest + 1, &arena));
		assert_true(plan_fits(&question, "micro_batch", largest, &arena));
		assert_false(plan_fits(&question, "micro_batch", largest + 1, &arena));
		check_order(&finding, true);
		last = largest;
		arena_finish(&arena);
	}
}

/* Ranks that share a sequence have room for it where none has room for one of its own. */
static void test_shared_sequences(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "llama-3.1-8b"),
		.topology = load_topology(&arena, "dgx-h100")};
	struct finding finding = find(&question, FIND_MAX_MICRO_BATCH, 0, &arena);
	int shared = 0;
	for (int i = 0; i < finding.n; i++) {
		const struct found *row = &finding.rows[i];
		if (row->value > 0 || !row->has_plan)
			continue;
		assert_int_equal(row->has_room, strstr(row->note, "ranks share it") != NULL);
		shared += row->has_room;
	}
	assert_true(shared > 0);
	arena_finish(&arena);
}

/* One is of a whole schedule, the other of a folded one. */
static bool same(double a, double b)
{
	return fabs(a / b - 1) < 1e-9;
}

/* On fewer devices nothing fits; on as many as the answer says, the plan is the planner's. */
static void test_fewest_devices(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "llama-3-70b"),
		.topology = load_topology(&arena, "dgx-h100")};
	SET_CHOICES(&question, &arena, "wrap", "block", "context", "1", "activation_checkpointing",
		"full", "prefetch", "pre", "tensor", "1");
	struct finding finding = find(&question, FIND_MIN_GPUS, 0, &arena);
	int64_t nodes = (int64_t)finding.value / 8;
	struct topology topology = *question.topology;
	assert_true(finding.exists);
	assert_true(nodes >= 1 && nodes < 16);
	question.topology = &topology;
	topology.nodes = nodes;
	struct answer answer = ask(&question, &arena);
	assert_non_null(answer.chosen);
	assert_true(same(
		answer.chosen->prediction.step_time, answer_of(&finding)->prediction.step_time));
	if (nodes > 1) {
		topology.nodes = nodes - 1;
		answer = ask(&question, &arena);
		assert_true(answer.chosen == NULL || answer.tight);
	}
	arena_finish(&arena);
}

/* 70B on nodes of eight: 16 devices are too few, and of 48 sequences 32 devices get no equal share;
 * on 24 it fits. Of 8 sequences more than 8 devices get none. */
static void test_devices_of_a_batch(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "llama-3-70b"),
		.topology = load_topology(&arena, "dgx-h100")};
	SET_CHOICES(&question, &arena, "wrap", "block", "context", "1", "tensor", "1",
		"global_batch", "48");
	struct finding finding = find(&question, FIND_MIN_GPUS, 0, &arena);
	assert_true(finding.exists);
	assert_true(finding.value == 24);
	check_order(&finding, false);
	struct topology topology = *question.topology;
	struct question again = question;
	again.topology = &topology;
	topology.nodes = 3;
	struct answer answer = ask(&again, &arena);
	assert_true(answer.chosen != NULL && !answer.tight);
	topology.nodes = 2;
	answer = ask(&again, &arena);
	assert_true(answer.chosen == NULL || answer.tight);
	question.model = load_model(&arena, "gpt2-124m");
	question.memory_limit_bytes = 1 << 20;
	set_choice(&question, &arena, "global_batch", "8");
	finding = find(&question, FIND_MIN_GPUS, 0, &arena);
	assert_false(finding.exists);
	assert_non_null(strstr(finding.statement, "none of up to 8 devices"));
	arena_finish(&arena);
}

/* A question that contradicts itself on any machine is an error, not "fits on none". */
static void test_contradictions(void **state)
{
	(void)state;
	static const enum find all[] = {FIND_MAX_SEQ_LEN, FIND_MIN_GPUS, FIND_SCALING};
	for (int i = 0; i < COUNT_OF(all); i++) {
		struct arena arena = {0};
		struct finding finding;
		struct error error = {0};
		struct question question = {.model = load_model(&arena, "llama-nano"),
			.topology = load_topology(&arena, "2xdgx-a100-80gb")};
		set_choice(&question, &arena, "attention", "flash3"); /* of Hopper and later */
		assert_false(planner_find(&question, all[i], 0, &arena, &finding, &error));
		assert_int_equal(error.code, EXIT_CODE_USAGE);
		assert_non_null(strstr(error.message, "Hopper"));
		arena_finish(&arena);
	}
}

/* Nothing fits without CPU offload, which is not for --find to choose: it says what there would be
 * with it, and offers nothing that was forbidden. */
static void test_nothing_without_offload(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "llama-3-70b"),
		.topology = load_topology(&arena, "2xdgx-h100")};
	set_choice(&question, &arena, "wrap", "block");
	set_choice(&question, &arena, "prefetch", "pre");
	struct finding without = find(&question, FIND_MAX_SEQ_LEN, 0, &arena);
	assert_false(without.exists);
	struct question offloaded = question;
	set_choice(&offloaded, &arena, "cpu_offload", "parameters");
	struct finding with = find(&offloaded, FIND_MAX_SEQ_LEN, 0, &arena);
	assert_true(with.exists);
	assert_string_equal(without.statement,
		arena_printf(&arena,
			"Not even 128 tokens fit without CPU offload; with --cpu-offload "
			"parameters: %.0f",
			with.value));
	set_choice(&question, &arena, "cpu_offload", "none");
	without = find(&question, FIND_MAX_SEQ_LEN, 0, &arena);
	assert_string_equal(without.statement, "Not even 128 tokens fit");
	arena_finish(&arena);
}

static void test_network(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "gpt2-1.5b"),
		.topology = load_topology(&arena, "4xdgx-a100-80gb")};
	struct error error = {0};
	set_choice(&question, &arena, "wrap", "block");
	set_choice(&question, &arena, "micro_batch", "1");
	struct finding finding = find(&question, FIND_NETWORK, 0.8, &arena);
	const struct found *answer = answer_of(&finding);
	assert_true(finding.exists);
	assert_true(answer->ratio >= 0.8);
	double wanted = finding.rows[finding.n - 1].prediction.tokens_per_s_per_gpu * 0.8;
	struct topology topology = *question.topology;
	question.topology = &topology;
	topology.network.nic_bandwidth = finding.value / 1.05;
	assert_true(ask(&question, &arena).chosen->prediction.tokens_per_s_per_gpu < wanted);
	topology.network.nic_bandwidth = finding.value;
	assert_true(ask(&question, &arena).chosen->prediction.tokens_per_s_per_gpu >= wanted);
	topology.nodes = 1;
	assert_false(planner_find(&question, FIND_NETWORK, 0.8, &arena, &finding, &error));
	assert_int_equal(error.code, EXIT_CODE_USAGE);
	arena_finish(&arena);
}

/* What was held is said as one types it. */
static void test_held(void **state)
{
	struct arena arena = {0};
	struct question question = small_question(&arena, 8192);
	(void)state;
	set_choice(&question, &arena, "compile", "on");
	struct finding finding = find(&question, FIND_SCALING, 0, &arena);
	assert_non_null(strstr(finding.held, "--compile on, "));
	arena_finish(&arena);
}

static void test_scaling(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "gpt2-1.5b"),
		.topology = load_topology(&arena, "4xdgx-a100-80gb")};
	set_choice(&question, &arena, "wrap", "block");
	set_choice(&question, &arena, "micro_batch", "2");
	struct finding finding = find(&question, FIND_SCALING, 0, &arena);
	assert_int_equal(finding.n, 3);
	assert_true(finding.rows[0].ratio == 1);
	for (int i = 0; i < 3; i++) {
		struct topology topology = *question.topology;
		struct question one = question;
		topology.nodes = INT64_C(1) << i;
		one.topology = &topology;
		assert_int_equal(finding.rows[i].devices, 8 << i);
		assert_true(same(ask(&one, &arena).chosen->prediction.step_time,
			finding.rows[i].prediction.step_time));
	}
	assert_string_equal(finding.statement,
		arena_printf(&arena,
			"On 4 nodes, throughput per device is %.1f %% of that on 1 node",
			finding.rows[2].ratio * 100));
	arena_finish(&arena);
}

/* What throughput is compared with is named. */
static void test_scaling_from_the_smallest(void **state)
{
	static const struct {
		const char *model, *topology, *statement;
	} cases[] = {
		{"llama-2-13b", "4xg5.48xlarge", "% of that on 2 nodes, the smallest machine here"},
		{"llama-2-13b", "2xg5.48xlarge", "A plan fits on 2 nodes, but on none of the"},
		{"mpt-30b", "2xg5.48xlarge", "No plan fits on 2 nodes"},
		{"gpt2-1.5b", "rtx4090-8x", "One node, and no network for more"},
	};
	struct arena arena = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct question question = {.model = load_model(&arena, cases[i].model),
			.topology = load_topology(&arena, cases[i].topology)};
		SET_CHOICES(&question, &arena, "wrap", "block", "micro_batch", "1", "tensor", "1",
			"pipeline", "1", "context", "1");
		struct finding finding = find(&question, FIND_SCALING, 0, &arena);
		if (strstr(finding.statement, cases[i].statement) == NULL)
			fail_msg("%s: %s", cases[i].topology, finding.statement);
	}
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_longest_sequence),
		cmocka_unit_test(test_largest_micro_batch),
		cmocka_unit_test(test_shared_sequences),
		cmocka_unit_test(test_fewest_devices),
		cmocka_unit_test(test_devices_of_a_batch),
		cmocka_unit_test(test_contradictions),
		cmocka_unit_test(test_nothing_without_offload),
		cmocka_unit_test(test_network),
		cmocka_unit_test(test_held),
		cmocka_unit_test(test_scaling),
		cmocka_unit_test(test_scaling_from_the_smallest),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
