/* Bounds never exceed the simulated values, and are tight enough to be useful. With a number as
 * argument: on that many random questions (suite `slow`). */
#include "support.h"

#include "planner/bounds/bounds.h"
#include "planner/evaluation/evaluation.h"
#include "planner/space/space.h"
#include "simulator/simulator.h"

#include <math.h>
#include <stdlib.h>

static int questions = 40;

struct tally {
	int64_t plans, violations;
	/* Sums of bound / simulated; retries, which have no bound, left out. */
	double time, memory, network;
};

static void note(const struct question *question, const struct plan *plan, const char *what,
	double bound, double simulated, struct tally *tally)
{
	struct text text = {0};
	if (tally->violations++ >= 3)
		return;
	describe_question(question, &text);
	text_add(&text, "\n  ");
	plan_summary(plan, &text);
	print_message("%s bound %.9g > %.9g\n  %s\n", what, bound, simulated, text_string(&text));
	text_finish(&text);
}

/* `slack` scales the bounds: 1 for the law, more for the control. */
static void judge(const struct question *question, const struct plan *plan,
	const struct bound *bound, const struct prediction *p, double slack, struct tally *tally)
{
	double network =
		question->topology->nodes > 1 ? p->wire_bytes_node_egress : p->wire_bytes_per_rank;
	int64_t fixed = p->peak_memory_bytes - p->peak_reserved_bytes;
	tally->plans++;
	tally->time += bound->time / (p->step_time - p->time.allocator);
	tally->memory += (double)bound->memory / (double)p->peak_memory_bytes;
	if (slack * bound->time > p->step_time)
		note(question, plan, "time", slack * bound->time, p->step_time, tally);
	if (slack * (double)bound->memory > (double)(p->peak_allocated_bytes + fixed))
		note(question, plan, "memory", slack * (double)bound->memory,
			(double)(p->peak_allocated_bytes + fixed), tally);
	if (slack * bound->network > network * (1 + 1e-9))
		note(question, plan, "network", slack * bound->network, network, tally);
	if (slack * (double)bound->host > (double)p->host_memory_bytes)
		note(question, plan, "host memory", slack * (double)bound->host,
			(double)p->host_memory_bytes, tally);
	const struct states states = states_mean(question, plan);
	if (slack * states.on_device > (double)p->peak_allocated_bytes)
		note(question, plan, "states", slack * states.on_device,
			(double)p->peak_allocated_bytes, tally);
}

static void judge_question(const struct question *question, bool tighten, double slack,
	struct arena *arena, struct tally *tally)
{
	struct evaluator evaluator = {.question = question};
	struct space space;
	struct bounds bounds;
	struct tally first = {0}; /* as they are built */
	struct error error = {0};
	if (!space_build(question, arena, &space, &error))
		return; /* a knob that this runtime lacks */
	bounds_build(question, &space, &bounds);
	for (int i = 0; i < space.n; i++) {
		struct prediction prediction;
		const struct plan *plan = &space.plans[i];
		if (tighten)
			bounds.of[i].memory = max_i64(
				bounds.of[i].memory, evaluator_bound_memory(&evaluator, plan));
		if (!evaluator_run(&evaluator, plan, &prediction, &error))
			fail_msg("%s", error.message);
		judge(question, plan, &bounds.of[i], &prediction, slack, &first);
		bounds_complete(&bounds, &space, i);
		judge(question, plan, &bounds.of[i], &prediction, slack, tally);
	}
	tally->violations += first.violations;
	bounds_finish(&bounds);
	space_finish(&space);
	evaluator_finish(&evaluator);
}

static struct tally judge_random(uint64_t seed, bool tighten, double slack, int n)
{
	struct tally tally = {0};
	uint64_t state = seed;
	for (int i = 0; i < n; i++) {
		struct arena arena = {0};
		struct question question = random_question(&state, &arena);
		judge_question(&question, tighten, slack, &arena, &tally);
		arena_finish(&arena);
	}
	return tally;
}

static void test_bounds_are_admissible(void **state)
{
	(void)state;
	struct tally tally = judge_random(UINT64_C(0x9e3779b97f4a7c15), false, 1, questions);
	print_message("%lld plans, bound / simulated: time %.2f, memory %.2f\n",
		(long long)tally.plans, tally.time / (double)tally.plans,
		tally.memory / (double)tally.plans);
	assert_int_equal(tally.violations, 0);
	assert_true(tally.plans > 60 * questions);
}

static void test_tightened_bounds_are_admissible(void **state)
{
	(void)state;
	struct tally tally = judge_random(UINT64_C(0xd1b54a32d192ed03), true, 1, questions / 2);
	print_message("%lld plans, tightened memory %.3f\n", (long long)tally.plans,
		tally.memory / (double)tally.plans);
	assert_int_equal(tally.violations, 0);
	assert_true(tally.memory / (double)tally.plans > 0.98);
}

/* What waits for what differs: ZeRO gathers after the update, DDP gathers nothing, ... */
static void test_other_runtimes(void **state)
{
	static const char *const runtimes[] = {"deepspeed", "nanotron", "internevo", "pytorch-ddp"};
	struct tally tally = {0};
	uint64_t seed = UINT64_C(0x2545f4914f6cdd1d);
	(void)state;
	for (int i = 0; i < questions / 2; i++) {
		struct arena arena = {0};
		struct question question = random_question(&seed, &arena);
		if (question.topology->device.kind == DEVICE_GPU) {
			question.only[KNOB_CPU_OFFLOAD].n = 0;
			set_choice(&question, &arena, "runtime", runtimes[i % COUNT_OF(runtimes)]);
			judge_question(&question, false, 1, &arena, &tally);
		}
		arena_finish(&arena);
	}
	print_message("%lld plans, bound / simulated: time %.2f, memory %.2f\n",
		(long long)tally.plans, tally.time / (double)tally.plans,
		tally.memory / (double)tally.plans);
	assert_int_equal(tally.violations, 0);
	assert_true(tally.plans > questions);
}

/* A bound of 0 would be admissible and useless: on the question that the product is about they are
 * close. Measured: time 0.98, memory 0.75 of what is simulated. */
static void test_bounds_are_close(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct tally tally = {0};
	struct question question = {.model = load_model(&arena, "llama-2-7b"),
		.topology = load_topology(&arena, "2xdgx-a100-80gb")};
	set_choice(&question, &arena, "global_batch", "64");
	judge_question(&question, true, 1, &arena, &tally);
	print_message("time %.3f, memory %.3f\n", tally.time / (double)tally.plans,
		tally.memory / (double)tally.plans);
	assert_int_equal(tally.violations, 0);
	assert_true(tally.time / (double)tally.plans > 0.97);
	assert_true(tally.memory / (double)tally.plans > 0.7);
	arena_finish(&arena);
}

/* Where lists do not fold, a load is read off a few blocks: they say what all take. */
static void test_many_blocks(void **state)
{
	static const char *const tensor[] = {"1", "2", "4"};
	(void)state;
	struct arena arena = {0};
	struct tally tally = {0};
	struct question question = {.model = load_model(&arena, "llama-3-8b"),
		.topology = load_topology(&arena, "dgx-h100")};
	SET_CHOICES(&question, &arena, "runtime", "megatron", "global_batch", "128", "pipeline",
		"1", "context", "1");
	restrict_to(&question, &arena, KNOB_TENSOR, COUNT_OF(tensor), tensor);
	judge_question(&question, false, 1, &arena, &tally);
	print_message("%lld plans, bound / simulated: time %.4f, memory %.4f\n",
		(long long)tally.plans, tally.time / (double)tally.plans,
		tally.memory / (double)tally.plans);
	assert_int_equal(tally.violations, 0);
	assert_true(tally.plans > 20);
	assert_true(tally.time / (double)tally.plans > 0.98);
	assert_true(tally.memory / (double)tally.plans > 0.87);
	arena_finish(&arena);
}

/* Compute waits for what ranks exchange, but not for all of it. */
static void test_exchanges(void **state)
{
	static const struct {
		const char *model, *runtime, *length;
	} cases[] = {{"mixtral-8x7b", "megatron", "4096"},
		{"mixtral-8x7b", "pytorch-fsdp2", "4096"},
		{"llama-3.1-8b", "pytorch-fsdp2", "65536"}};
	static const char *const two[] = {"1", "2"}, *const micro_batches[] = {"1"};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct tally tally = {0};
		struct question question = {.model = load_model(&arena, cases[i].model),
			.topology = load_topology(&arena, "2xdgx-h100")};
		SET_CHOICES(&question, &arena, "runtime", cases[i].runtime, "seq_len",
			cases[i].length, "global_batch", "64", "pipeline", "1");
		restrict_to(&question, &arena, KNOB_TENSOR, 2, two);
		restrict_to(&question, &arena, KNOB_CONTEXT, 2, two);
		restrict_to(&question, &arena, KNOB_MICRO_BATCH, 1, micro_batches);
		judge_question(&question, false, 1, &arena, &tally);
		print_message("%lld plans of %s under %s: time %.3f\n", (long long)tally.plans,
			cases[i].model, cases[i].runtime, tally.time / (double)tally.plans);
		assert_int_equal(tally.violations, 0);
		assert_true(tally.plans > 20);
		arena_finish(&arena);
	}
}

/* All micro-batches, as `predict` simulates them. The allocator reserves a little more over many.
 */
static void judge_steady(const struct question *question, const struct plan *plan,
	const struct prediction *short_steps, struct arena *arena)
{
	const struct simulation_options options = {.quick_interval = true, .no_bounds = true};
	const struct schedule *schedule =
		schedule_emit(arena, plan, question->model, question->topology);
	struct simulation whole;
	struct error error = {0};
	if (!simulate(schedule, &options, false, arena, &whole, &error))
		fail_msg("%s", error.message);
	double off = short_steps->step_time / whole.prediction.step_time - 1;
	double wire = whole.prediction.wire_bytes_per_rank;
	double memory = (double)short_steps->peak_memory_bytes /
				(double)whole.prediction.peak_memory_bytes -
			1;
	if (fabs(off) > 2e-3 || fabs(memory) > 0.05 ||
		fabs(short_steps->wire_bytes_per_rank - wire) > 1e-6 * wire)
		fail_msg("time %+.3g, memory %+.3g, %.9g of %.9g bytes", off, memory,
			short_steps->wire_bytes_per_rank, wire);
	for (int a = 0; a < GROUP_KIND_COUNT; a++) {
		const struct axis_figures *axis = &whole.prediction.axes[a];
		double bytes = short_steps->axes[a].wire_bytes, time = short_steps->axes[a].time;
		if (fabs(bytes - axis->wire_bytes) > 1e-6 * axis->wire_bytes ||
			fabs(time - axis->time) > 1e-2 * axis->time)
			fail_msg("%s: %.9g of %.9g bytes, %.6g of %.6g s", group_kind_names[a],
				bytes, axis->wire_bytes, time, axis->time);
	}
}

/* For a plan that fits, judging it closely looks at the memory only in the longer steps; all else
 * must be the same. */
static void judge_close(struct evaluator *evaluator, const struct plan *plan,
	const struct prediction *prediction, struct arena *arena)
{
	struct prediction close, alone;
	struct exposure exposure;
	struct error error = {0};
	if (!evaluator_run_on(evaluator, evaluator->question->topology, plan, &alone, &error) ||
		!evaluator_judge_closely(evaluator, plan, arena, &close, &exposure, &error))
		fail_msg("%s", error.message);
	/* One list of micro-batches instead of two. */
	assert_true(fabs(alone.step_time / prediction->step_time - 1) < 1e-9);
	assert_int_equal(alone.peak_memory_bytes, prediction->peak_memory_bytes);
	assert_int_equal(close.fits == FITS_YES, prediction->fits == FITS_YES);
	assert_true(close.step_time <= prediction->step_time * (1 + 1e-9));
	if (close.fits != FITS_YES)
		return;
	const double *of = (const double *)&close.time,
		     *expected = (const double *)&prediction->time;
	for (size_t i = 0; i < sizeof(close.time) / sizeof(double); i++)
		assert_true(fabs(of[i] - expected[i]) <= 1e-9 * prediction->step_time);
	assert_true(fabs(close.step_time / prediction->step_time - 1) < 1e-9);
	assert_int_equal(close.peak_memory_bytes, prediction->peak_memory_bytes);
}

/* Its own bounds: of time that follows its passes, unless backward is split, and of the first
 * rank's memory. */
static void judge_own(const struct question *question, struct evaluator *evaluator,
	const struct plan *plan, const struct prediction *prediction, struct tally *own)
{
	struct bound bound = evaluator_bound_path(evaluator, plan);
	bound.memory = evaluator_bound_memory(evaluator, plan);
	if (bound.time == 0)
		return;
	assert_true(bound.time > 0.9 * prediction->step_time);
	own->network += bound.network / prediction->wire_bytes_node_egress;
	judge(question, plan, &bound, prediction, 1, own);
}

/* Pipelines: bounds from the whole model's load, their own, and steps of few micro-batches for
 * many. */
static void test_pipelines(void **state)
{
	static const struct {
		const char *pipeline, *tensor;
		const char *schedule; /* NULL: those that are searched */
		const char *runtime, *strategy, *context, *length;
		bool asynchronous;
		const char *batch; /* NULL: 512, which is many micro-batches */
	} cuts[] = {
		{"2", "1", NULL, "pytorch-fsdp2", "SHARD_GRAD_OP", "1", "4096"},
		{"4", "1", NULL, "pytorch-fsdp2", "SHARD_GRAD_OP", "1", "4096"},
		{"4", "2", NULL, "pytorch-fsdp2", "SHARD_GRAD_OP", "1", "4096"},
		{"4", "2", NULL, "pytorch-fsdp2", "SHARD_GRAD_OP", "2", "16384"},
		{"4", "1", "zb-h1", "pytorch-fsdp2", "SHARD_GRAD_OP", "1", "4096"},
		{"2", "2", "zbv", "pytorch-fsdp2", "SHARD_GRAD_OP", "1", "4096"},
		{"4", "1", "zbv", "pytorch-fsdp2", "SHARD_GRAD_OP", "1", "4096"},
		{"4", "1", "dualpipev", "pytorch-fsdp2", "SHARD_GRAD_OP", "1", "4096"},
		{"4", "8", NULL, "megatron", "ZERO_1", "1", "4096"},
		{"2", "2", NULL, "megatron", "ZERO_1", "4", "16384"},
		{"4", "8", NULL, "pytorch-fsdp2", "SHARD_GRAD_OP", "1", "4096", true},
		/* as few micro-batches as ranks, and few more */
		{"4", "2", NULL, "pytorch-fsdp2", "SHARD_GRAD_OP", "1", "4096", false, "16"},
		{"4", "2", NULL, "pytorch-fsdp2", "SHARD_GRAD_OP", "1", "4096", false, "24"},
		{"4", "2", NULL, "pytorch-fsdp2", "SHARD_GRAD_OP", "1", "4096", false, "32"},
		{"4", "2", "gpipe", "pytorch-fsdp2", "SHARD_GRAD_OP", "1", "4096", false, "8"},
		{"4", "2", "gpipe", "pytorch-fsdp2", "SHARD_GRAD_OP", "1", "4096", false, "32"},
		{"4", "2", "zbv", "pytorch-fsdp2", "SHARD_GRAD_OP", "1", "4096", false, "32"},
		{"4", "2", "dualpipev", "pytorch-fsdp2", "SHARD_GRAD_OP", "1", "4096", false, "32"},
	};
	struct tally tally = {0}, own = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(cuts); i++) {
		struct arena arena = {0};
		struct model *model = load_model(&arena, "llama-2-7b");
		struct question question = {
			.model = model, .topology = load_topology(&arena, "4xdgx-a100-80gb")};
		struct evaluator evaluator = {.question = &question};
		struct space space;
		struct bounds bounds;
		struct error error = {0};
		model->architecture.context = 16384;
		SET_CHOICES(&question, &arena, "pipeline", cuts[i].pipeline, "tensor",
			cuts[i].tensor, "context", cuts[i].context, "seq_len", cuts[i].length);
		if (cuts[i].schedule != NULL)
			set_choice(&question, &arena, "pipeline_schedule", cuts[i].schedule);
		SET_CHOICES(&question, &arena, "global_batch",
			cuts[i].batch != NULL ? cuts[i].batch : "512", "micro_batch", "1",
			"runtime", cuts[i].runtime, "strategy", cuts[i].strategy, "compile",
			cuts[i].asynchronous ? "on" : "off", "async_tensor",
			cuts[i].asynchronous ? "on" : "off");
		assert_true(space_build(&question, &arena, &space, &error));
		bounds_build(&question, &space, &bounds);
		for (int k = 0; k < space.n; k++) {
			struct prediction prediction;
			if (!evaluator_run(&evaluator, &space.plans[k], &prediction, &error))
				fail_msg("%s", error.message);
			judge(&question, &space.plans[k], &bounds.of[k], &prediction, 1, &tally);
			if (k % 3 == 0) /* one way to checkpoint of each order */
				judge_steady(&question, &space.plans[k], &prediction, &arena);
			if (k == 0)
				judge_close(&evaluator, &space.plans[k], &prediction, &arena);
			judge_own(&question, &evaluator, &space.plans[k], &prediction, &own);
		}
		bounds_finish(&bounds);
		space_finish(&space);
		evaluator_finish(&evaluator);
		arena_finish(&arena);
	}
	print_message("%lld plans, bound / simulated: time %.2f, memory %.2f\n",
		(long long)tally.plans, tally.time / (double)tally.plans,
		tally.memory / (double)tally.plans);
	assert_int_equal(tally.violations, 0);
	assert_true(tally.plans >= 10);
	assert_true(tally.time / (double)tally.plans > 0.85);
	print_message("their own: time %.3f, memory %.3f, network %.3f\n",
		own.time / (double)own.plans, own.memory / (double)own.plans,
		own.network / (double)own.plans);
	assert_int_equal(own.violations, 0);
	assert_true(own.time / (double)own.plans > 0.97);
	assert_true(own.memory / (double)own.plans > 0.8);
	assert_true(own.network / (double)own.plans > 0.8);
}

/* A forward and a backward of two micro-batches side by side, while rows travel. Of short sequences
 * the issuing thread decides. */
static void test_pairs(void **state)
{
	static const struct {
		const char *pipeline, *stages, *tensor, *expert, *topology, *dispatch;
		bool short_ones;
	} cuts[] = {
		{"4", "2", "1", "8", "4xdgx-h100", "all-to-all", true},
		{"4", "4", "2", "8", "4xdgx-h100", "all-to-all", true},
		{"1", NULL, "1", "8", "4xdgx-h100", "all-to-all"},
		{"1", NULL, "2", "8", "4xdgx-h100", "deepep"},
		{"2", "2", "1", "8", "4xdgx-h100", "all-to-all"},
		{"2", "8", "1", "8", "4xdgx-h100", "deepep"},
		{"4", "4", "1", "8", "4xdgx-h100", "all-to-all"},
		{"4", "2", "4", "8", "4xdgx-h100", "all-to-all"},
		{"2", "4", "1", "8", "4xdgx-a100-80gb", "all-to-all"},
	};
	struct tally own = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(cuts); i++) {
		struct arena arena = {0};
		struct question question = {.model = load_model(&arena, "mixtral-8x7b"),
			.topology = load_topology(&arena, cuts[i].topology)};
		struct evaluator evaluator = {.question = &question};
		struct tally tally = {0};
		struct space space;
		struct bounds bounds;
		struct error error = {0};
		SET_CHOICES(&question, &arena, "pipeline", cuts[i].pipeline, "tensor",
			cuts[i].tensor, "context", "1", "expert", cuts[i].expert, "seq_len",
			cuts[i].short_ones ? "256" : "4096");
		SET_CHOICES(&question, &arena, "global_batch", "512", "micro_batch", "1", "runtime",
			"megatron", "strategy", "ZERO_1", "expert_overlap", "on", "expert_dispatch",
			cuts[i].dispatch, "expert_tensor", "1");
		if (cuts[i].stages != NULL)
			SET_CHOICES(&question, &arena, "pipeline_schedule", "interleaved",
				"virtual_stages", cuts[i].stages);
		if (!space_build(&question, &arena, &space, &error))
			fail_msg("%s", error.message);
		bounds_build(&question, &space, &bounds);
		bounds_complete_all(&bounds, &space);
		for (int k = 0; k < space.n; k++) {
			struct prediction prediction;
			if (!evaluator_run(&evaluator, &space.plans[k], &prediction, &error))
				fail_msg("%s", error.message);
			judge(&question, &space.plans[k], &bounds.of[k], &prediction, 1, &tally);
			if (cuts[i].stages != NULL) {
				judge_steady(&question, &space.plans[k], &prediction, &arena);
				judge_own(
					&question, &evaluator, &space.plans[k], &prediction, &own);
			}
		}
		print_message("PP %s, TP %s, %s, %s: %lld plans, time %.3f\n", cuts[i].pipeline,
			cuts[i].tensor, cuts[i].topology, cuts[i].dispatch, (long long)tally.plans,
			tally.time / (double)tally.plans);
		assert_int_equal(tally.violations, 0);
		assert_true(tally.plans > 0);
		assert_true(!cuts[i].short_ones || tally.time > 0.85 * (double)tally.plans);
		bounds_finish(&bounds);
		space_finish(&space);
		evaluator_finish(&evaluator);
		arena_finish(&arena);
	}
	print_message("their own: time %.3f\n", own.time / (double)own.plans);
	assert_int_equal(own.violations, 0);
	assert_true(own.time / (double)own.plans > 0.95);
}

/* The slowest of the many devices that have a stage of a short pipeline is slower than that of the
 * few which have one of a long pipeline. */
static void test_lengths_of_pipelines(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct tally tally = {0};
	struct question question = {.model = load_model(&arena, "llama-2-7b"),
		.topology = load_topology(&arena, "16xdgx-a100-80gb")};
	static const char *const lengths[] = {"1", "8"};
	SET_CHOICES(&question, &arena, "runtime", "megatron", "strategy", "ZERO_1",
		"pipeline_schedule", "1f1b", "tensor", "1", "context", "1", "micro_batch", "1",
		"grad_accum", "32", "activation_checkpointing", "full");
	restrict_to(&question, &arena, KNOB_PIPELINE, COUNT_OF(lengths), lengths);
	judge_question(&question, false, 1, &arena, &tally);
	assert_int_equal(tally.violations, 0);
	assert_true(tally.plans >= 2);
	assert_true(tally.time / (double)tally.plans > 0.9);
	arena_finish(&arena);
}

/* The second rank of a pipeline has the last blocks without experts, which take longer than those
 * with, or less: the ranks behind it do not do as it does. */
static void test_stages_differ(void **state)
{
	static const int64_t widths[] = {4096, 65536};
	(void)state;
	for (int i = 0; i < COUNT_OF(widths); i++) {
		struct arena arena = {0};
		struct tally own = {0};
		struct question question = {.model = load_model(&arena, "deepseek-v3"),
			.topology = load_topology(&arena, "4xdgx-h100")};
		struct evaluator evaluator = {.question = &question};
		struct architecture a = question.model->architecture;
		struct model *model;
		struct space space;
		struct error error = {0};
		a.layers = 24;
		a.experts = 32;
		a.dense_layers = 5;
		a.ffn = widths[i];
		assert_true(model_build(&arena, &a, &model, &error));
		question.model = model;
		SET_CHOICES(&question, &arena, "runtime", "megatron", "pipeline", "8",
			"pipeline_schedule", "1f1b", "tensor", "1", "context", "1", "expert", "4",
			"activation_checkpointing", "full", "seq_len", "4096", "micro_batch", "1",
			"global_batch", "128", "strategy", "ZERO_1");
		assert_true(space_build(&question, &arena, &space, &error));
		for (int k = 0; k < space.n; k++) {
			struct prediction prediction;
			assert_true(
				evaluator_run(&evaluator, &space.plans[k], &prediction, &error));
			judge_own(&question, &evaluator, &space.plans[k], &prediction, &own);
		}
		print_message("%lld plans with %lld wide blocks: time %.4f\n", (long long)own.plans,
			(long long)a.ffn, own.time / (double)own.plans);
		assert_int_equal(own.violations, 0);
		assert_int_equal(own.plans, space.n);
		assert_true(own.time / (double)own.plans > 0.98);
		space_finish(&space);
		evaluator_finish(&evaluator);
		arena_finish(&arena);
	}
}

/* Where launches, or copies over the host link, decide how long a step takes. */
static void test_bounds_know_queues(void **state)
{
	static const struct queued {
		const char *model, *knob, *value, *length;
		double host, least;
	} cases[] = {{"gpt2-124m", "cpu_offload", "none", "64", 0, 0.75},
		{"gpt2-124m", "cpu_offload", "none", "64", 0.5, 0.65},
		{"llama-2-7b", "cpu_offload", "parameters", "256", 0, 0.85}};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct tally tally = {0};
		struct topology *topology = load_topology(&arena, "dgx-a100-80gb");
		struct question question = {
			.model = load_model(&arena, cases[i].model), .topology = topology};
		topology->calibration.host_factor = cases[i].host;
		set_choice(&question, &arena, cases[i].knob, cases[i].value);
		SET_CHOICES(&question, &arena, "seq_len", cases[i].length, "micro_batch", "1",
			"strategy", "FULL_SHARD");
		judge_question(&question, false, 1, &arena, &tally);
		print_message("%s: time %.3f\n", cases[i].model, tally.time / (double)tally.plans);
		assert_int_equal(tally.violations, 0);
		assert_true(tally.time / (double)tally.plans > cases[i].least);
		arena_finish(&arena);
	}
}

/* The judge notices bounds that are too high. */
static void test_negative_control(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct tally tally = {0};
	struct question question = {.model = load_model(&arena, "gpt2-124m"),
		.topology = load_topology(&arena, "dgx-a100-80gb")};
	SET_CHOICES(
		&question, &arena, "micro_batch", "4", "wrap", "block", "strategy", "FULL_SHARD");
	judge_question(&question, false, 3, &arena, &tally);
	assert_true(tally.violations > 0);
	arena_finish(&arena);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bounds_are_admissible),
		cmocka_unit_test(test_tightened_bounds_are_admissible),
		cmocka_unit_test(test_other_runtimes),
		cmocka_unit_test(test_bounds_are_close),
		cmocka_unit_test(test_many_blocks),
		cmocka_unit_test(test_exchanges),
		cmocka_unit_test(test_bounds_know_queues),
		cmocka_unit_test(test_pipelines),
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_lengths_of_pipelines),
		cmocka_unit_test(test_stages_differ),
		cmocka_unit_test(test_negative_control),
	};
	if (argc > 1)
		questions = atoi(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
