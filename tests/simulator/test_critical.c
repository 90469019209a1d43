/* The critical path: the reasons for the length of a step. */
#include "cases.h"
#include "sketch.h"

#include <math.h>

#define MS 1e-3

static void assert_step(
	const struct critical_path *path, int index, int op, enum critical_reason reason)
{
	assert_true(index < path->n);
	assert_int_equal(path->ops[index], op);
	assert_int_equal(path->reasons[index], reason);
}

static void test_waits_streams_engines(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	int a = sketch_gather(&s, STREAM_GATHER, 0, 2 * MS);
	int b = sketch_gather(&s, STREAM_REDUCE, 0, 2 * MS);
	int c = sketch_traffic(&s, STREAM_COMPUTE, 1 * MS);
	int d = sketch_traffic(&s, STREAM_COMPUTE, 1 * MS);
	sketch_link(&s, c, LINK_WAIT, b);
	sketch_run(&s);
	const struct critical_path *path = &s.simulation.critical;
	assert_int_equal(path->n, 4);
	assert_step(path, 0, a, CRITICAL_START);
	assert_step(path, 1, b, CRITICAL_ENGINE);
	assert_step(path, 2, c, CRITICAL_WAIT);
	assert_step(path, 3, d, CRITICAL_STREAM);
	sketch_finish(&s);
}

static void test_limiter(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	int a = sketch_traffic(&s, STREAM_COMPUTE, 2 * MS);
	int gather = sketch_gather(&s, STREAM_GATHER, 0, 3 * MS);
	sketch_link(&s, gather, LINK_HOST_WAIT, a);
	sketch_run(&s);
	const struct critical_path *path = &s.simulation.critical;
	assert_int_equal(path->n, 2);
	assert_step(path, 0, a, CRITICAL_START);
	assert_step(path, 1, gather, CRITICAL_HOST);
	sketch_finish(&s);
}

static void test_slow_host(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 1 * MS);
	sketch_traffic(&s, STREAM_COMPUTE, 0.1 * MS);
	int b = sketch_traffic(&s, STREAM_COMPUTE, 0.1 * MS);
	sketch_run(&s);
	const struct critical_path *path = &s.simulation.critical;
	assert_int_equal(path->n, 1);
	assert_step(path, 0, b, CRITICAL_HOST);
	sketch_finish(&s);
}

/* On real schedules: the path ends with the step, ascends, and has no holes except where the host
 * was the reason. */
static void test_no_holes(void **state)
{
	static const char *const choices[] = {"runtime=pytorch-fsdp1",
		"runtime=pytorch-fsdp2 activation_checkpointing=full",
		"runtime=pytorch-fsdp1 strategy=HYBRID_SHARD prefetch=post",
		"runtime=pytorch-ddp strategy=NO_SHARD", "runtime=shardplan grad_accum=2"};
	struct simulation_options options = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(choices); i++) {
		struct case_ c;
		case_load(&c, "gpt2-124m", "2xdgx-a100-80gb");
		case_plan(&c, choices[i]);
		case_simulate(&c, &options, true);
		const struct critical_path *path = &c.simulation.critical;
		const struct span *spans = c.simulation.timeline.spans;
		assert_true(path->n > 0);
		assert_seconds(spans[path->ops[path->n - 1]].end, c.simulation.timeline.step_time);
		for (int k = 1; k < path->n; k++) {
			assert_true(path->ops[k] > path->ops[k - 1]);
			assert_true(path->reasons[k] != CRITICAL_START);
			if (path->reasons[k] != CRITICAL_HOST)
				assert_seconds(
					spans[path->ops[k]].start, spans[path->ops[k - 1]].end);
		}
		case_finish(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waits_streams_engines),
		cmocka_unit_test(test_limiter),
		cmocka_unit_test(test_slow_host),
		cmocka_unit_test(test_no_holes),
	};
	return cmocka_run_group_tests_name("simulator critical path", tests, NULL, NULL);
}
