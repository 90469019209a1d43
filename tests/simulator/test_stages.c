/* Stages of a pipeline on one clock: bubbles, messages and collectives over classes, with times
 * computed by hand. */
#include <string.h>

#include "simulator/engine/engine.h"
#include "sketch.h"
#include "tests/schedule/damage.h"
#include "tests/schedule/stages.h"

#define MS 1e-3

/* Computing takes a second and memory, messages `latency` seconds, and the host no time. */
struct pipeline {
	struct arena arena;
	struct topology topology;
	struct schedule *schedule;
	struct simulation_options options;
	struct simulation simulation;
};

static void set_seconds(struct op *op, double seconds)
{
	op->kind = OP_CAST_PARAMETERS;
	op->bytes = (int64_t)llround(seconds * 1e12);
}

static void pipeline_init(struct pipeline *p, int stages, int micro_batches,
	enum stages_order order, double forward, double backward)
{
	struct sketch sketch;
	*p = (struct pipeline){.options = {.no_contention = true, .without = 1u << COST_PART_HOST}};
	sketch_init(&sketch, 0);
	p->schedule = stages_schedule(&p->arena, stages, micro_batches, order);
	p->topology = sketch.topology;
	p->topology.devices_per_node = stages;
	p->topology.fabric.latency = 0;
	p->topology.calibration.collectives = NULL;
	p->topology.calibration.n_collectives = 0;
	p->schedule->topology = &p->topology;
	p->schedule->plan.runtime = RUNTIME_PYTORCH_FSDP1;
	for (int c = 0; c < stages; c++)
		for (int i = 0; i < p->schedule->programs[c].n_ops; i++) {
			struct op *op = &p->schedule->programs[c].ops[i];
			if (op->kind == OP_FORWARD)
				set_seconds(op, forward);
			else if (op->kind == OP_BACKWARD)
				set_seconds(op, backward);
		}
	sketch_finish(&sketch);
}

static void run(struct pipeline *p)
{
	struct error error = {0};
	if (!simulate(p->schedule, &p->options, true, &p->arena, &p->simulation, &error))
		fail_msg("%s", error.message);
}

static double bubble(const struct pipeline *p, int class)
{
	return p->simulation.classes[class].prediction.time.bubble;
}

/* Narayanan et al., 2104.04473, 2.2: (p-1)(F+B) of a step is idle, in every stage; so it is of the
 * step (p-1)/(m+p-1). */
static void test_bubble(void **state)
{
	(void)state;
	for (int stages = 2; stages <= 5; stages++)
		for (int m = 1; m <= 12; m++)
			for (int order = STAGES_1F1B; order <= STAGES_GPIPE; order++) {
				struct pipeline p;
				double pair = 3 * MS, step = (m + stages - 1) * pair;
				pipeline_init(&p, stages, m, (enum stages_order)order, MS, 2 * MS);
				run(&p);
				assert_seconds(p.simulation.prediction.step_time, step);
				for (int c = 0; c < stages; c++) {
					const struct prediction *one =
						&p.simulation.classes[c].prediction;
					assert_seconds(one->step_time, step);
					assert_seconds(one->time.compute, m * pair);
					assert_seconds(bubble(&p, c) / step,
						(stages - 1.0) / (m + stages - 1));
					assert_seconds(one->time.exposed_communication, 0);
				}
				arena_finish(&p.arena);
			}
}

/* A message that takes time is exposed on the way down and on the way up, and is no bubble. */
static void test_transfer(void **state)
{
	struct pipeline p;
	(void)state;
	pipeline_init(&p, 2, 1, STAGES_1F1B, MS, 2 * MS);
	p.topology.fabric.latency = 0.25 * MS;
	run(&p);
	const struct timeline *first = &p.simulation.classes[0].timeline;
	const struct timeline *last = &p.simulation.classes[1].timeline;
	const struct program *programs = p.schedule->programs;
	int sent = stages_find(&programs[0], OP_SEND, 0, DIRECTION_FORWARD);
	int received = stages_find(&programs[1], OP_RECV, 0, DIRECTION_FORWARD);
	assert_seconds(first->spans[sent].start, MS);
	assert_seconds(first->spans[sent].end, 1.25 * MS);
	assert_seconds(last->spans[received].start, 0); /* it waits on its stream */
	assert_true(last->spans[received].end == first->spans[sent].end);
	assert_seconds(p.simulation.prediction.step_time, 6.5 * MS);
	for (int c = 0; c < 2; c++) {
		const struct prediction *one = &p.simulation.classes[c].prediction;
		assert_seconds(one->time.messages, 0.5 * MS);
		assert_seconds(one->time.exposed_communication, 0.5 * MS);
		assert_seconds(one->time.bubble, 3 * MS);
		assert_true(one->wire_bytes_per_rank == STAGES_BYTES);
		assert_int_equal(prediction_axes(one), 1);
		const struct axis_figures *axis = &one->axes[GROUP_PIPELINE];
		assert_int_equal(axis->ranks, 2);
		assert_true(axis->wire_bytes == STAGES_BYTES);
		assert_seconds(axis->time, 0.5 * MS);
		assert_seconds(axis->exposed, 0.5 * MS);
	}
	arena_finish(&p.arena);
}

/* A sender cannot end before its peer has come: nothing is buffered. */
static void test_rendezvous(void **state)
{
	struct pipeline p;
	(void)state;
	pipeline_init(&p, 2, 1, STAGES_1F1B, MS, MS);
	struct program *last = &p.schedule->programs[1];
	int received = stages_find(last, OP_RECV, 0, DIRECTION_FORWARD);
	int sent = stages_find(&p.schedule->programs[0], OP_SEND, 0, DIRECTION_FORWARD);
	/* Something that takes long stands before the receive, on its stream. */
	int busy = stages_add(p.schedule, 1,
		(struct op){.kind = OP_CAST_PARAMETERS,
			.stream = STREAM_RECEIVE,
			.micro_batch = -1,
			.group = -1,
			.bytes = (int64_t)(5e-3 * 1e12)});
	struct op moved = last->ops[busy];
	last->ops[busy] = last->ops[received];
	last->ops[received] = moved;
	last->ops[busy].waits = (struct slice){0, 0};
	for (int i = 0; i < last->n_ops; i++)
		for (int w = 0; w < last->ops[i].waits.count; w++)
			if (last->indices[last->ops[i].waits.first + w] == received)
				last->indices[last->ops[i].waits.first + w] = busy - last->n_ops;
	run(&p);
	assert_seconds(p.simulation.classes[0].timeline.spans[sent].end, 5 * MS);
	arena_finish(&p.arena);
}

static int add_norm(struct pipeline *p, int class)
{
	return stages_add(p->schedule, class,
		(struct op){.kind = OP_ALL_REDUCE,
			.stream = STREAM_REDUCE,
			.micro_batch = -1,
			.group = 0,
			.bytes = 8});
}

/* A collective over classes begins when the last has come, and ends for all at once. */
static void test_joint_collective(void **state)
{
	struct pipeline p;
	int norms[3], backward = -1;
	(void)state;
	pipeline_init(&p, 3, 2, STAGES_1F1B, MS, MS);
	for (int c = 0; c < 3; c++) {
		struct program *program = &p.schedule->programs[c];
		norms[c] = add_norm(&p, c);
		for (int i = 0; i < norms[c]; i++)
			if (program->ops[i].kind == OP_CAST_PARAMETERS)
				backward = i;
		slice_add(program, &program->ops[norms[c]].waits, backward);
	}
	run(&p);
	double end = p.simulation.classes[0].timeline.spans[norms[0]].end;
	for (int c = 0; c < 3; c++) {
		const struct timeline *t = &p.simulation.classes[c].timeline;
		assert_true(t->spans[norms[c]].end == end);
		assert_seconds(t->spans[norms[c]].start, (8 - c) * MS);
	}
	assert_in_range((int64_t)(end * 1e9), 8000000, 9000000);
	arena_finish(&p.arena);
}

/* Of the last stages' inputs fewer are kept: the first but one needs the most memory. */
static void test_worst_class(void **state)
{
	struct pipeline p;
	(void)state;
	pipeline_init(&p, 4, 8, STAGES_1F1B, MS, MS);
	run(&p);
	const struct prediction *told = &p.simulation.prediction;
	assert_int_equal(told->n_classes, 4);
	assert_int_equal(told->rank_class, 1);
	assert_string_equal(told->classes[1].name, "stage 1");
	for (int c = 0; c < 4; c++) {
		const struct prediction *one = &p.simulation.classes[c].prediction;
		assert_true(one->peak_memory_bytes <= told->peak_memory_bytes);
		assert_int_equal(told->classes[c].peak_memory_bytes, one->peak_memory_bytes);
		assert_true(told->classes[c].bubble == one->time.bubble);
		assert_true(one->step_time == told->step_time);
	}
	arena_finish(&p.arena);
}

/* Messages end at the same time at both ends, to the bit. */
static void check_ends(const struct pipeline *p)
{
	for (int c = 0; c < p->schedule->n_classes; c++) {
		const struct program *program = &p->schedule->programs[c];
		for (int i = 0; i < program->n_ops; i++) {
			const struct op *op = &program->ops[i];
			if (op->kind != OP_SEND)
				continue;
			int peer = op->message.peer;
			int received = stages_find(&p->schedule->programs[peer], OP_RECV,
				op->micro_batch, op->message.direction);
			double sent = p->simulation.classes[c].timeline.spans[i].end;
			assert_true(
				sent == p->simulation.classes[peer].timeline.spans[received].end);
		}
	}
}

/* What slows a message down at one end does so at the other: a gather that shares the port. */
static void check_pace(int slowed)
{
	struct pipeline p;
	double seconds[2];
	pipeline_init(&p, 2, 1, STAGES_1F1B, MS, MS);
	p.topology.fabric.latency = 0.25 * MS;
	p.topology.fabric.bandwidth = 1e9;
	p.schedule->groups[p.schedule->n_groups++] = (struct group){GROUP_SHARD, 2, 1, 1};
	p.schedule->n_engines = 2;
	stages_add(p.schedule, slowed,
		(struct op){.kind = OP_ALL_GATHER,
			.stream = STREAM_GATHER,
			.micro_batch = -1,
			.group = 1,
			.bytes = 1 << 24});
	int sent = stages_find(&p.schedule->programs[0], OP_SEND, 0, DIRECTION_FORWARD);
	for (int contention = 0; contention < 2; contention++) {
		p.options.no_contention = !contention;
		run(&p);
		check_ends(&p);
		seconds[contention] = p.simulation.classes[0].timeline.spans[sent].end - MS;
	}
	assert_true(seconds[0] > 0.25 * MS && seconds[0] < 0.26 * MS);
	assert_true(seconds[1] > 1.5 * seconds[0] && seconds[1] < 2.01 * seconds[0]);
	arena_finish(&p.arena);
}

static void test_pace(void **state)
{
	(void)state;
	check_pace(0);
	check_pace(1);
}

/* Links carry as much in as out: the stage in the middle receives a message while it sends the one
 * before, and both take as long as alone. */
static void test_both_ways(void **state)
{
	struct pipeline p;
	double seconds[2];
	(void)state;
	pipeline_init(&p, 3, 6, STAGES_GPIPE, MS, MS);
	p.topology.fabric.bandwidth = STAGES_BYTES / (1.5 * MS);
	for (int contention = 0; contention < 2; contention++) {
		p.options.no_contention = !contention;
		run(&p);
		seconds[contention] = p.simulation.prediction.step_time;
	}
	assert_true(seconds[0] > 15 * MS);
	assert_seconds(seconds[1], seconds[0]);
	arena_finish(&p.arena);
}

static void test_deterministic(void **state)
{
	struct pipeline p;
	(void)state;
	pipeline_init(&p, 4, 6, STAGES_1F1B, MS, 1.7 * MS);
	p.options.no_contention = false;
	p.options.without = 0;
	p.topology.fabric.latency = 3e-5;
	p.topology.calibration.host_overhead = 7e-6;
	run(&p);
	const struct simulation first = p.simulation;
	check_ends(&p);
	run(&p);
	assert_true(first.prediction.step_time == p.simulation.prediction.step_time);
	for (int c = 0; c < 4; c++)
		assert_memory_equal(first.classes[c].timeline.spans,
			p.simulation.classes[c].timeline.spans,
			(size_t)first.classes[c].timeline.n_ops * sizeof(struct span));
	arena_finish(&p.arena);
}

/* What a validator would have refused is not simulated for ever. */
static void test_deadlock(void **state)
{
	struct pipeline p;
	struct error error = {0};
	(void)state;
	pipeline_init(&p, 2, 4, STAGES_1F1B, MS, MS);
	for (int c = 0; c < 2; c++)
		for (int i = 0; i < p.schedule->programs[c].n_ops; i++) {
			struct op *op = &p.schedule->programs[c].ops[i];
			if (op_kind_class(op->kind) == OP_CLASS_MESSAGE)
				op->stream = STREAM_SEND;
		}
	assert_false(simulate(p.schedule, &p.options, true, &p.arena, &p.simulation, &error));
	assert_int_equal(error.code, EXIT_CODE_INTERNAL);
	assert_non_null(strstr(error.message, "deadlocks"));
	arena_finish(&p.arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bubble),
		cmocka_unit_test(test_transfer),
		cmocka_unit_test(test_rendezvous),
		cmocka_unit_test(test_joint_collective),
		cmocka_unit_test(test_worst_class),
		cmocka_unit_test(test_pace),
		cmocka_unit_test(test_both_ways),
		cmocka_unit_test(test_deterministic),
		cmocka_unit_test(test_deadlock),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
