/* Steps of many micro-batches from those of few, against the whole ones: of interleaved pipelines,
 * which take longest to become steady. With a number as argument: of so many random plans. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/evaluation/evaluation.h"
#include "planner/evaluation/steady.h"
#include "schedule/resolve/resolve.h"
#include "schedule/schedule.h"
#include "simulator/simulator.h"

static int plans = SAMPLED(48);

static void simulate_list(const struct question *question, const struct schedule *schedule,
	enum memory_detail memory, struct arena *arena, struct simulation *simulation)
{
	const struct simulation_options options = {
		.memory_limit_bytes = question->memory_limit_bytes,
		.memory = memory,
		.quick_interval = true,
		.spans = true};
	struct error error = {0};
	if (!simulate(schedule, &options, false, arena, simulation, &error))
		fail_msg("%s", error.message);
}

/* All micro-batches, operation by operation. */
static struct prediction whole(const struct question *question, const struct plan *plan,
	enum memory_detail memory, struct arena *arena)
{
	struct simulation simulation;
	const struct schedule *schedule =
		schedule_emit(arena, plan, question->model, question->topology);
	simulate_list(question, schedule, memory, arena, &simulation);
	return simulation.prediction;
}

#define PICK(state, ...)                                                                           \
	((const char *const[]){                                                                    \
		__VA_ARGS__}[random_below(state, COUNT_OF(((const char *const[]){__VA_ARGS__})))])

/* False: it is refused. */
static bool random_plan(
	struct question *question, uint64_t *state, struct arena *arena, struct plan *plan)
{
	static const int rounds[] = {7, 9, 12, 16};
	int ranks = 2 << random_below(state, 2);
	bool torch = random_below(state, 2) == 0;
	struct architecture a = load_model(arena, "llama-3-8b")->architecture;
	struct error error = {0};
	struct model *model;
	const char *chunks = PICK(state, "2", "2", "3", "4");
	a.layers =
		ranks * (chunks[0] - '0') * (1 + random_below(state, 2)) + random_below(state, 3);
	assert_true(model_build(arena, &a, &model, &error));
	*question = (struct question){.model = model,
		.topology = load_topology(arena, PICK(state, "4xdgx-h100", "8xdgx-a100-80gb"))};
	set_choice(question, arena, "runtime", torch ? "pytorch-fsdp2" : "megatron");
	set_choice(question, arena, "strategy",
		!torch ? "ZERO_1" : PICK(state, "SHARD_GRAD_OP", "FULL_SHARD"));
	SET_CHOICES(question, arena, "pipeline", arena_printf(arena, "%d", ranks),
		"pipeline_schedule", "interleaved", "virtual_stages", chunks, "tensor",
		PICK(state, "1", "2", "4", "8"), "micro_batch", PICK(state, "1", "2"),
		"activation_checkpointing", PICK(state, "none", "full"));
	set_choice(question, arena, "grad_accum",
		arena_printf(arena, "%d", ranks * rounds[random_below(state, COUNT_OF(rounds))]));
	return plan_resolve(question, arena, plan, &error);
}

/* False: the plan says nothing. Fails where it is wrong. */
typedef bool plan_judge(struct evaluator *evaluator, struct question *question,
	const struct plan *plan, struct arena *arena);

/* How many of the random plans were judged. */
static int judge_plans(uint64_t seed, plan_judge *judge)
{
	int judged = 0;
	for (int i = 0; i < plans; i++) {
		struct arena arena = {0};
		struct question question;
		struct plan plan;
		bool made = random_plan(&question, &seed, &arena, &plan);
		struct evaluator evaluator = {.question = &question};
		judged += made && judge(&evaluator, &question, &plan, &arena);
		evaluator_finish(&evaluator);
		arena_finish(&arena);
	}
	print_message("%d judged\n", judged);
	return judged;
}

static struct prediction predicted(struct evaluator *evaluator, const struct plan *plan)
{
	struct prediction prediction;
	struct error error = {0};
	if (!evaluator_run(evaluator, plan, &prediction, &error))
		fail_msg("%s", error.message);
	return prediction;
}

static void expect_time(const struct plan *plan, const struct prediction *found,
	const struct prediction *all, double most)
{
	double off = found->step_time / all->step_time - 1;
	struct text text = {0};
	plan_summary(plan, &text);
	if (fabs(off) > most)
		fail_msg("%s: %+.3g of %.6g s", text_string(&text), off, all->step_time);
	text_finish(&text);
}

static void expect_near(const char *what, double found, double expected, double off)
{
	if (fabs(found - expected) > off)
		fail_msg("%s: %.12g of %.12g", what, found, expected);
}

/* What a step is made of, to `off` of it, and bytes. */
static void expect_parts(const struct prediction *found, const struct prediction *all, double off)
{
	const double *parts = (const double *)&found->time;
	const double *expected = (const double *)&all->time;
	double second = off * all->step_time, bytes = 1e-9 * all->wire_bytes_per_rank;
	for (size_t i = 0; i < sizeof(found->time) / sizeof(double); i++)
		expect_near("a part of the time", parts[i], expected[i], second);
	for (int a = 0; a < GROUP_KIND_COUNT; a++) {
		const struct axis_figures *axis = &found->axes[a], *of_all = &all->axes[a];
		expect_near(group_kind_names[a], axis->time, of_all->time, second);
		expect_near(group_kind_names[a], axis->exposed, of_all->exposed, second);
		expect_near(group_kind_names[a], axis->wire_bytes, of_all->wire_bytes, bytes);
	}
	expect_near("wire", found->wire_bytes_per_rank, all->wire_bytes_per_rank, bytes);
	expect_near("egress", found->wire_bytes_node_egress, all->wire_bytes_node_egress,
		1e-9 * all->wire_bytes_node_egress);
	expect_near("mfu", found->mfu * found->step_time, all->mfu * all->step_time,
		1e-9 * all->step_time);
	expect_near("hfu", found->hfu * found->step_time, all->hfu * all->step_time,
		1e-9 * all->step_time);
	for (int c = 0; c < all->n_classes; c++)
		expect_near("bubble", found->classes[c].bubble, all->classes[c].bubble, second);
}

/* The prediction of all micro-batches, of one class. */
static struct prediction whole_class(
	const struct question *question, const struct plan *plan, int class, struct arena *arena)
{
	struct simulation all;
	simulate_list(question, schedule_emit(arena, plan, question->model, question->topology),
		MEMORY_IGNORED, arena, &all);
	struct prediction own = all.classes[class].prediction;
	own.n_classes = all.prediction.n_classes;
	own.classes = all.prediction.classes;
	return own;
}

/* A list that is treated as steady tells the time exactly, and what it is made of nearly. */
static bool judge_time(struct evaluator *evaluator, struct question *question,
	const struct plan *plan, struct arena *arena)
{
	struct prediction found = predicted(evaluator, plan);
	struct prediction all = whole_class(question, plan, found.rank_class, arena);
	expect_time(plan, &found, &all, 1e-9);
	expect_parts(&found, &all, 3e-3);
	return true;
}

/* The shortest list says all of a step, or that it does not know. */
static bool judge_shortest(struct evaluator *evaluator, struct question *question,
	const struct plan *plan, struct arena *arena)
{
	struct simulation simulation;
	struct short_list list;
	(void)evaluator;
	if (!steady_of(plan, 0, &list))
		return false;
	const struct schedule *schedule =
		schedule_fold_rounds(arena, plan, &list, question->model, question->topology);
	simulate_list(question, schedule, MEMORY_IGNORED, arena, &simulation);
	if (!steady_is(&list, schedule, &simulation))
		return false;
	struct prediction all = whole(question, plan, MEMORY_IGNORED, arena);
	expect_time(plan, &simulation.prediction, &all, 1e-9);
	expect_parts(&simulation.prediction, &all, 1e-9);
	return true;
}

/* There is so little memory that the allocator gives back what it has kept: a number of times that
 * no two short lists tell. */
static bool judge_retries(struct evaluator *evaluator, struct question *question,
	const struct plan *plan, struct arena *arena)
{
	struct prediction all = whole(question, plan, MEMORY_FIGURES, arena);
	question->memory_limit_bytes = all.peak_memory_bytes * 97 / 100;
	all = whole(question, plan, MEMORY_FIGURES, arena);
	struct prediction found = predicted(evaluator, plan);
	if (found.time.allocator == 0 || all.time.allocator == 0)
		return false;
	expect_time(plan, &found, &all, 1e-9);
	return true;
}

static void test_random(void **state)
{
	(void)state;
	assert_true(2 * judge_plans(UINT64_C(6364136223846793005), judge_time) > plans);
}

static void test_shortest(void **state)
{
	(void)state;
	assert_true(6 * judge_plans(UINT64_C(6364136223846793005), judge_shortest) > plans);
}

/* Devices find a round as long as the one before while a host that is slower than they are uses up
 * what it was ahead by. */
static void test_slow_host(void **state)
{
	static const char *const knobs[][2] = {{"runtime", "megatron"}, {"strategy", "ZERO_1"},
		{"pipeline", "4"}, {"pipeline_schedule", "interleaved"}, {"virtual_stages", "4"},
		{"tensor", "8"}, {"micro_batch", "1"}, {"grad_accum", "36"}};
	struct arena arena = {0};
	struct architecture a = load_model(&arena, "llama-3-8b")->architecture;
	struct error error = {0};
	struct model *model;
	struct plan plan;
	(void)state;
	a.layers = 18;
	assert_true(model_build(&arena, &a, &model, &error));
	struct question question = {
		.model = model, .topology = load_topology(&arena, "4xdgx-h100")};
	struct evaluator evaluator = {.question = &question};
	for (int i = 0; i < COUNT_OF(knobs); i++)
		set_choice(&question, &arena, knobs[i][0], knobs[i][1]);
	assert_true(plan_resolve(&question, &arena, &plan, &error));
	assert_false(judge_shortest(&evaluator, &question, &plan, &arena));
	assert_true(judge_time(&evaluator, &question, &plan, &arena));
	evaluator_finish(&evaluator);
	arena_finish(&arena);
}

/* Too long lists to be looked at whole, treated as steady before they are: of stages with equal and
 * with unequal work, of stages that wait less and less for the first one, and of stages of which
 * none has settled. */
static void test_treated_as_steady(void **state)
{
	static const struct {
		const char *model, *topology, *runtime, *method, *expert, *stages, *checkpointing;
		double off;
	} cases[] = {
		{"llama-3-70b", "32xdgx-h100", "megatron", "ring", "1", "2", "none", 1e-9},
		{"llama-3-70b", "32xdgx-h100", "megatron", "all-gather", "1", "2", "none", 1e-9},
		{"deepseek-v3", "128xdgx-h100", "megatron", NULL, "8", "2", "full", 1e-9},
		{"llama-3.1-405b", "256xdgx-h100", "megatron", "ring", "1", "4", "none", 1e-9},
		{"llama-3-405b", "64xdgx-h100", "pytorch-fsdp2", NULL, "1", "8", "full", 1e-5},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct question question = {.model = load_model(&arena, cases[i].model),
			.topology = load_topology(&arena, cases[i].topology)};
		struct evaluator evaluator = {.question = &question};
		struct plan plan;
		struct error error = {0};
		bool torch = strcmp(cases[i].runtime, "pytorch-fsdp2") == 0;
		SET_CHOICES(&question, &arena, "runtime", cases[i].runtime, "strategy",
			torch ? "SHARD_GRAD_OP" : "ZERO_1", "pipeline", "16", "pipeline_schedule",
			"interleaved", "expert", cases[i].expert, "activation_checkpointing",
			cases[i].checkpointing, "grad_accum", "112", "seq_len", "8192",
			"virtual_stages", cases[i].stages);
		if (torch)
			SET_CHOICES(&question, &arena, "tensor", "4");
		if (cases[i].method != NULL)
			SET_CHOICES(&question, &arena, "tensor", "8", "context", "2",
				"context_method", cases[i].method);
		if (!plan_resolve(&question, &arena, &plan, &error))
			fail_msg("%s", error.message);
		struct prediction found = predicted(&evaluator, &plan);
		struct prediction all = whole_class(&question, &plan, found.rank_class, &arena);
		expect_time(&plan, &found, &all, cases[i].off);
		expect_parts(&found, &all, 3e-3);
		evaluator_finish(&evaluator);
		arena_finish(&arena);
	}
}

static void test_retries(void **state)
{
	(void)state;
	assert_true(judge_plans(11, judge_retries) > 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_shortest),
		cmocka_unit_test(test_slow_host),
		cmocka_unit_test(test_treated_as_steady),
		cmocka_unit_test(test_retries),
	};
	if (argc > 1)
		plans = atoi(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
