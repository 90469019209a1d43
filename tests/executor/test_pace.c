/* Pacing: operations last at least as long as predicted and overlap as the schedule allows, and
 * bits do not change. Also how long a rank waits for others. */
#include "support.h"

#include <math.h>

#include "executor/ranks/event.h"
#include "executor/ranks/expectation.h"

#define COMPUTE_TIME 0.02
#define LINK_TIME    0.01

static bool is_collective(const struct op *op)
{
	return op_kind_class(op->kind) == OP_CLASS_COLLECTIVE;
}

/* One after the other, so that every end is known. */
static void predict(const struct program *program, struct arena *arena, struct timeline *timeline)
{
	double now = 0;

	timeline_init(timeline, program->n_ops, arena);
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		bool heavy = op->kind == OP_FORWARD || op->kind == OP_BACKWARD;

		timeline->spans[i].start = now;
		now += heavy ? COMPUTE_TIME : is_collective(op) ? LINK_TIME : 0;
		timeline->spans[i].end = now;
	}
	timeline->step_time = now;
}

static void train_paced(struct run *run, const char *options, unsigned pace, double slow_motion)
{
	struct executor_job job = run_job(3);
	struct timeline expected;

	run_plan(run, TINY_GPT2, 2, options);
	predict(&run->schedule->programs[0], &run->arena, &expected);
	job.expected = &expected;
	job.pace = pace;
	job.slow_motion = slow_motion;
	if (!run_train(run, &job))
		fail_msg("%s: %s", options, run->error.message);
}

/* Gathers and reductions that ran while something was computed. */
static int overlapping(const struct run *run)
{
	const struct program *program = &run->schedule->programs[0];
	const struct span *spans = run->measurement.timeline.spans;
	int n = 0;

	for (int c = 0; c < program->n_ops; c++) {
		bool beside = false;

		for (int i = 0; i < program->n_ops && is_collective(&program->ops[c]); i++)
			if (op_kind_class(program->ops[i].kind) == OP_CLASS_COMPUTE)
				beside |= spans[c].start < spans[i].end &&
					  spans[i].start < spans[c].end;
		n += beside;
	}
	return n;
}

/* Whoever waits starts when what it waits for has ended, also when that was held. */
static void check_waits(const struct run *run)
{
	const struct program *program = &run->schedule->programs[0];
	const struct span *spans = run->measurement.timeline.spans;

	for (int i = 0; i < program->n_ops; i++) {
		const struct slice waits = program->ops[i].waits;

		for (int w = 0; w < waits.count; w++) {
			int before = slice_of(program, waits)[w];

			if (before >= 0)
				assert_true(spans[i].start >= spans[before].end);
		}
	}
}

static void operations_last_as_long_as_predicted(void **state)
{
	static const char options[] = "strategy=FULL_SHARD micro_batch=1 seq_len=8 prefetch=pre";
	struct run free_run, paced;
	struct executor_job job = run_job(3);

	(void)state;
	run_plan(&free_run, TINY_GPT2, 2, options);
	assert_true(run_train(&free_run, &job));
	assert_int_equal(free_run.measurement.paced_operations, 0);
	train_paced(&paced, options, PACE_ALL, 1);
	const struct program *program = &paced.schedule->programs[0];
	const struct span *spans = paced.measurement.timeline.spans;
	int held = 0;
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		bool heavy = op->kind == OP_FORWARD || op->kind == OP_BACKWARD;
		double least = heavy ? COMPUTE_TIME : is_collective(op) ? LINK_TIME : 0;

		assert_true(spans[i].end - spans[i].start >= least - 1e-6);
		held += least > 0;
	}
	assert_int_equal(paced.measurement.paced_operations, held);
	assert_string_equal(paced.measurement.weights_digest, free_run.measurement.weights_digest);
	check_waits(&paced);
	run_finish(&free_run);
	run_finish(&paced);
}

/* The prefetched gathers of backward run beside it; without prefetch they cannot. */
static void prefetch_is_seen_to_overlap(void **state)
{
	struct run with, without;

	(void)state;
	train_paced(&with, "strategy=FULL_SHARD micro_batch=1 seq_len=8 prefetch=pre", PACE_ALL, 1);
	train_paced(
		&without, "strategy=FULL_SHARD micro_batch=1 seq_len=8 prefetch=none", PACE_ALL, 1);
	assert_true(overlapping(&with) > overlapping(&without));
	run_finish(&with);
	run_finish(&without);
}

static void slow_motion_is_taken_out_again(void **state)
{
	struct run run;

	(void)state;
	train_paced(&run, "strategy=SHARD_GRAD_OP micro_batch=1 seq_len=8", PACE_COLLECTIVES, 4);
	const struct program *program = &run.schedule->programs[0];
	double began = run.measurement.values.step_time;
	for (int i = 0; i < program->n_ops; i++) {
		const struct span *span = &run.measurement.timeline.spans[i];

		if (is_collective(&program->ops[i]))
			assert_true(span->end - span->start >= LINK_TIME - 1e-6);
		assert_true(span->end <= 4 * began);
	}
	assert_true(run.measurement.slow_motion == 4);
	run_finish(&run);
}

static void pacing_without_a_prediction_is_refused(void **state)
{
	struct executor_job job = run_job(1);
	struct run run;

	(void)state;
	job.pace = PACE_ALL;
	run_plan(&run, TINY_GPT2, 2, "strategy=NO_SHARD micro_batch=1 seq_len=8");
	assert_false(run_train(&run, &job));
	assert_int_equal(run.error.code, EXIT_CODE_USAGE);
	run_finish(&run);
}

/* 10 s, and 20 times what was predicted since the collective before. */
static void patience_follows_the_prediction(void **state)
{
	struct expectation expectation;
	struct timeline predicted;
	struct text text = {0};
	struct run run;
	double before = -INFINITY;

	(void)state;
	run_plan(&run, TINY_GPT2, 2, "strategy=FULL_SHARD micro_batch=1 seq_len=8");
	const struct program *program = &run.schedule->programs[0];
	predict(program, &run.arena, &predicted);
	const struct timeline *const of_classes[] = {&predicted};
	expectation_write(run.schedule, 0, of_classes, PACE_COLLECTIVES, 3, 0, &text);
	assert_true(
		expectation_read(text_string(&text), 0, program->n_ops, &run.arena, &expectation));
	for (int i = 0; i < program->n_ops; i++) {
		const struct span *span = &predicted.spans[i];
		double since = isinf(before) ? LINK_TIME : span->end - before;

		if (!is_collective(&program->ops[i])) {
			assert_true(expectation.held[i] == 0 && expectation.patience[i] == 0);
			continue;
		}
		assert_true(fabs(expectation.held[i] - 3 * LINK_TIME) < 1e-12);
		if (!isinf(before))
			assert_true(fabs(expectation.patience[i] - 10 - 60 * since) < 1e-9);
		before = span->end;
	}
	assert_false(expectation_read("1 2\n", 0, program->n_ops, &run.arena, &expectation));
	text_finish(&text);
	run_finish(&run);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(operations_last_as_long_as_predicted),
		cmocka_unit_test(prefetch_is_seen_to_overlap),
		cmocka_unit_test(slow_motion_is_taken_out_again),
		cmocka_unit_test(pacing_without_a_prediction_is_refused),
		cmocka_unit_test(patience_follows_the_prediction),
	};

	run_as_rank(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
