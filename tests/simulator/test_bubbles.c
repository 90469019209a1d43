/* Bubbles of pipelines as they are built and simulated: those of the formulas and of the orders
 * alone, where all stages are alike and messages take no time. torch computes the two of a pair one
 * after the other. */
#include <math.h>

#include "schedule/pipeline/pipeline.h"
#include "simulator/engine/engine.h"
#include "sketch.h"
#include "tests/schedule/pipelines.h"

enum { BLOCKS = 2 }; /* of a stage */

/* Seconds of a stage's passes. */
static const struct times {
	double forward, input, weight;
} even = {1e-3, 1e-3, 1e-3}, light = {1e-3, 1.2e-3, 0.7e-3};

/* Blocks take their share of a pass, the rest takes no time. */
static double seconds_of(const struct op *op, const struct times *t)
{
	const double of[OP_KIND_COUNT] = {[OP_FORWARD] = t->forward,
		[OP_BACKWARD] = t->input + t->weight,
		[OP_BACKWARD_INPUT] = t->input,
		[OP_BACKWARD_WEIGHT] = t->weight};
	return op->layer >= 0 ? of[op->kind] / BLOCKS : 0;
}

static void set_times(struct schedule *schedule, const struct times *times)
{
	for (int c = 0; c < schedule->n_classes; c++)
		for (int i = 0; i < schedule->programs[c].n_ops; i++) {
			struct op *op = &schedule->programs[c].ops[i];
			enum op_class class = op_kind_class(op->kind);
			if (class != OP_CLASS_COMPUTE && class != OP_CLASS_TRAFFIC)
				continue;
			double seconds = seconds_of(op, times);
			op->kind = OP_CAST_PARAMETERS;
			op->bytes = (int64_t)llround(seconds * 1e12);
		}
}

static struct schedule *built(struct arena *arena, const struct pipeline *pipeline)
{
	struct model *model = preset_model(arena, "llama-2-70b");
	int stages = pipeline->ranks * pipeline->chunks;
	struct topology *topology = gpu_cluster(arena, 1, pipeline->ranks);
	struct schedule *schedule;
	struct error error = {0};
	model->architecture.layers = (int64_t)stages * BLOCKS;
	assert_true(model_build(arena, &model->architecture, &model, &error));
	const char *words = arena_printf(arena,
		"pipeline=%d pipeline_schedule=%s virtual_stages=%d grad_accum=%d seq_len=128 "
		"layers_per_stage=%dx%d activation_checkpointing=none clip=0",
		pipeline->ranks, pipeline_schedule_names[pipeline->schedule], pipeline->chunks,
		pipeline->micro_batches, stages, BLOCKS);
	struct plan plan = plan_of_words(arena, model, topology, words);
	if (!schedule_build(arena, &plan, model, topology, &schedule, &error))
		fail_msg("%s: %s", words, error.message);
	return schedule;
}

static double step_of(struct arena *arena, struct schedule *schedule, const struct times *times)
{
	struct simulation_options options = {
		.no_contention = true, .without = 1u << COST_PART_HOST};
	struct simulation simulation;
	struct sketch sketch;
	struct error error = {0};
	sketch_init(&sketch, 0);
	sketch.topology.devices_per_node = schedule->n_classes;
	sketch.topology.fabric.latency = 0;
	sketch.topology.fabric.bandwidth = 1e30;
	sketch.topology.calibration.collectives = NULL;
	sketch.topology.calibration.n_collectives = 0;
	schedule->topology = &sketch.topology;
	set_times(schedule, times);
	if (!simulate(schedule, &options, true, arena, &simulation, &error))
		fail_msg("%s", error.message);
	double step = simulation.prediction.step_time;
	sketch_finish(&sketch);
	return step;
}

static void check(const struct pipeline *pipeline)
{
	struct arena arena = {0};
	bool is_even =
		pipeline->schedule == PIPELINE_ZBV || pipeline->schedule == PIPELINE_DUALPIPEV;
	const struct times *t = is_even ? &even : &light;
	double all = t->forward + t->input + t->weight;
	const struct pass_times times = {t->forward, t->input, t->weight, all};
	const struct pass_times passes = {t->forward, t->input, t->weight, 0};
	double busy = pipeline->micro_batches * pipeline->chunks * all;
	double told = pipeline_bubble(pipeline, &times);
	double expected = run_pipeline(pipeline, &passes, &arena).end - busy;
	double got = step_of(&arena, built(&arena, pipeline), t) - busy;
	if (!(fabs(got - expected) < 1e-9 * busy) ||
		(pipeline->schedule != PIPELINE_DUALPIPEV && !(fabs(got - told) < 1e-9 * busy)))
		fail_msg("%s p %d v %d m %d: idle %g, expected %g, by the formula %g",
			pipeline_schedule_names[pipeline->schedule], pipeline->ranks,
			pipeline->chunks, pipeline->micro_batches, got, expected, told);
	arena_finish(&arena);
}

static void test_bubbles(void **state)
{
	static const struct {
		enum pipeline_schedule schedule;
		int chunks, rounds; /* the least micro-batches, over ranks */
		bool in_rounds;
	} cases[] = {
		{PIPELINE_GPIPE, 1, 1, false},
		{PIPELINE_1F1B, 1, 1, false},
		{PIPELINE_INTERLEAVED, 2, 1, true},
		{PIPELINE_ZB_H1, 1, 1, true},
		{PIPELINE_ZB_H1, 2, 1, true},
		{PIPELINE_ZBV, 2, 2, false},
		{PIPELINE_DUALPIPEV, 2, 2, false},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++)
		for (int p = 2; p <= 5; p++)
			for (int more = 0; more < 5; more++) {
				int m = cases[i].rounds * p + more * (cases[i].in_rounds ? p : 1);
				const struct pipeline pipeline = {.schedule = cases[i].schedule,
					.ranks = p,
					.chunks = cases[i].chunks,
					.micro_batches = m};
				check(&pipeline);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bubbles),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
