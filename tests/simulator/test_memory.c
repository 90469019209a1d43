/* Memory in time order, reserved pools, and the curve. */
#include "sketch.h"

#define MS   1e-3
#define UNIT (INT64_C(2) << 20) /* segments of 10 units and more are multiples of it */

static int64_t sum(const int64_t bytes[CATEGORY_COUNT])
{
	int64_t total = 0;

	for (int c = 0; c < CATEGORY_COUNT; c++)
		total += bytes[c];
	return total;
}

/* Taken by one operation, given by a later one of the same stream: in use until that has run. */
static void test_one_stream(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	int resident = sketch_buffer(&s, BUFFER_PARAMETER_SHARD, STREAM_COMPUTE, 1000);
	int a = sketch_buffer(&s, BUFFER_ACTIVATIONS, STREAM_COMPUTE, 100);
	int b = sketch_buffer(&s, BUFFER_GRADIENT, STREAM_COMPUTE, 10);
	int forward = sketch_traffic(&s, STREAM_COMPUTE, 1 * MS);
	int backward = sketch_traffic(&s, STREAM_COMPUTE, 1 * MS);
	int last = sketch_traffic(&s, STREAM_COMPUTE, 1 * MS);
	s.buffers[resident].resident = true;
	sketch_link(&s, forward, LINK_TAKE, a);
	sketch_link(&s, backward, LINK_TAKE, b);
	sketch_link(&s, backward, LINK_GIVE, a);
	sketch_link(&s, last, LINK_GIVE, b);
	sketch_run(&s);
	const struct prediction *p = &s.simulation.prediction;
	assert_int_equal(p->peak_allocated_bytes, 1110);
	assert_int_equal(p->ledger_peak_bytes, 1110);
	assert_int_equal(p->peak_op, backward);
	assert_int_equal(p->memory_at_peak[CATEGORY_ACTIVATIONS], 100);
	assert_int_equal(p->memory_at_peak[CATEGORY_PARAMETERS], 1000);
	assert_int_equal(p->memory_category_peak[CATEGORY_GRADIENTS], 10);
	assert_int_equal(sum(p->memory_at_peak), p->peak_memory_bytes);
	/* context and two communicators */
	assert_int_equal(p->peak_memory_bytes - p->peak_reserved_bytes,
		runtime_of(RUNTIME_PYTORCH_FSDP1)->context_bytes +
			2 * runtime_of(RUNTIME_PYTORCH_FSDP1)->communicator_bytes);
	sketch_finish(&s);
}

/* Streams that overlap hold more than the list order says: the gather's buffer is in use while the
 * one that it replaces in the list is not yet given. */
static void test_overlap_holds_more_than_the_ledger(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	int first = sketch_buffer(&s, BUFFER_UNSHARDED, STREAM_GATHER, 100 * UNIT);
	int second = sketch_buffer(&s, BUFFER_UNSHARDED, STREAM_GATHER, 100 * UNIT);
	int gather1 = sketch_gather(&s, STREAM_GATHER, 0, 1 * MS);
	int compute1 = sketch_traffic(&s, STREAM_COMPUTE, 5 * MS);
	int gather2 = sketch_gather(&s, STREAM_GATHER, 0, 1 * MS);
	int compute2 = sketch_traffic(&s, STREAM_COMPUTE, 5 * MS);
	sketch_link(&s, gather1, LINK_TAKE, first);
	sketch_link(&s, compute1, LINK_WAIT, gather1);
	sketch_link(&s, compute1, LINK_GIVE, first);
	sketch_link(&s, gather2, LINK_TAKE, second);
	sketch_link(&s, compute2, LINK_WAIT, gather2);
	sketch_link(&s, compute2, LINK_GIVE, second);
	sketch_run(&s);
	assert_int_equal(s.simulation.prediction.ledger_peak_bytes, 100 * UNIT);
	assert_int_equal(s.simulation.prediction.peak_allocated_bytes, 200 * UNIT);
	assert_int_equal(s.simulation.prediction.peak_reserved_bytes, 200 * UNIT);
	/* The limiter: the host waits for the first compute before it issues the second gather. */
	sketch_link(&s, gather2, LINK_HOST_WAIT, compute1);
	sketch_run(&s);
	assert_int_equal(s.simulation.prediction.peak_allocated_bytes, 100 * UNIT);
	assert_int_equal(s.simulation.prediction.peak_reserved_bytes, 100 * UNIT);
	sketch_finish(&s);
}

/* Each pool keeps its own peak: 300 in the compute pool first, 200 in the gather pool later. */
static void test_pools_peak_apart(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	int a = sketch_buffer(&s, BUFFER_LOGITS, STREAM_COMPUTE, 300 * UNIT);
	int b = sketch_buffer(&s, BUFFER_UNSHARDED, STREAM_GATHER, 200 * UNIT);
	int compute = sketch_traffic(&s, STREAM_COMPUTE, 1 * MS);
	int gather = sketch_gather(&s, STREAM_GATHER, 0, 1 * MS);
	int last = sketch_traffic(&s, STREAM_COMPUTE, 1 * MS);
	sketch_link(&s, compute, LINK_TAKE, a);
	sketch_link(&s, compute, LINK_GIVE, a);
	sketch_link(&s, gather, LINK_WAIT, compute);
	sketch_link(&s, gather, LINK_TAKE, b);
	sketch_link(&s, last, LINK_WAIT, gather);
	sketch_link(&s, last, LINK_GIVE, b);
	sketch_run(&s);
	assert_int_equal(s.simulation.prediction.peak_allocated_bytes, 300 * UNIT);
	assert_int_equal(s.simulation.prediction.peak_reserved_bytes, 500 * UNIT);
	/* Ours has a place for each buffer before the first step: streams share bytes. */
	const struct prediction *p = &s.simulation.prediction;
	s.schedule.plan.runtime = RUNTIME_SHARDPLAN;
	sketch_run(&s);
	int64_t workspace = runtime_of(RUNTIME_SHARDPLAN)->workspace_bytes;
	assert_int_equal(p->peak_reserved_bytes - workspace, 300 * UNIT);
	assert_int_equal(p->places_bytes, 300 * UNIT);
	assert_int_equal(p->fits, FITS_YES);
	assert_int_equal(sum(p->memory_at_peak), p->peak_memory_bytes);
	int64_t limit = s.topology.device.memory_bytes;
	s.topology.device.memory_bytes = p->peak_memory_bytes;
	sketch_run(&s);
	assert_int_equal(p->fits, FITS_YES);
	s.topology.device.memory_bytes--;
	sketch_run(&s);
	assert_int_equal(p->fits, FITS_NO); /* nothing to give back: never tight */
	s.topology.device.memory_bytes = limit;
	s.schedule.plan.runtime = RUNTIME_PYTORCH_FSDP1;
	/* On a CPU there is one heap. */
	s.topology.device.kind = DEVICE_CPU;
	sketch_run(&s);
	assert_int_equal(s.simulation.prediction.peak_reserved_bytes, 300 * UNIT);
	assert_int_equal(s.simulation.prediction.host_memory_bytes,
		SKETCH_RANKS * s.simulation.prediction.peak_memory_bytes);
	sketch_finish(&s);
}

/* A second gather that runs after what used the first: one buffer at a time. But the host issues it
 * before, and what was recorded on another stream is not free for it until that has passed. */
static void test_active_is_what_the_host_sees(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	int first = sketch_buffer(&s, BUFFER_UNSHARDED, STREAM_GATHER, 100 * UNIT);
	int second = sketch_buffer(&s, BUFFER_UNSHARDED, STREAM_GATHER, 100 * UNIT);
	int gather1 = sketch_gather(&s, STREAM_GATHER, 0, 1 * MS);
	int compute = sketch_traffic(&s, STREAM_COMPUTE, 5 * MS);
	int gather2 = sketch_gather(&s, STREAM_GATHER, 0, 1 * MS);
	sketch_link(&s, gather1, LINK_TAKE, first);
	sketch_link(&s, compute, LINK_WAIT, gather1);
	sketch_link(&s, compute, LINK_GIVE, first);
	sketch_link(&s, gather2, LINK_WAIT, compute);
	sketch_link(&s, gather2, LINK_TAKE, second);
	sketch_link(&s, gather2, LINK_GIVE, second);
	const struct prediction *p = &s.simulation.prediction;
	s.schedule.plan.runtime = RUNTIME_PYTORCH_FSDP1;
	sketch_run(&s);
	assert_int_equal(p->peak_allocated_bytes, 100 * UNIT);
	assert_int_equal(p->peak_active_bytes, 200 * UNIT);
	s.schedule.plan.runtime = RUNTIME_PYTORCH_FSDP2;
	sketch_run(&s);
	assert_int_equal(p->peak_active_bytes, 100 * UNIT);
	sketch_finish(&s);
}

static void test_fits(void **state)
{
	struct sketch s;
	int64_t fixed;
	(void)state;
	sketch_init(&s, 0);
	int a = sketch_buffer(&s, BUFFER_LOGITS, STREAM_COMPUTE, 300 * UNIT);
	int b = sketch_buffer(&s, BUFFER_UNSHARDED, STREAM_GATHER, 200 * UNIT);
	int compute = sketch_traffic(&s, STREAM_COMPUTE, 1 * MS);
	int gather = sketch_gather(&s, STREAM_GATHER, 0, 1 * MS);
	sketch_link(&s, compute, LINK_TAKE, a);
	sketch_link(&s, compute, LINK_GIVE, a);
	sketch_link(&s, gather, LINK_WAIT, compute);
	sketch_link(&s, gather, LINK_TAKE, b);
	sketch_link(&s, gather, LINK_GIVE, b);
	sketch_run(&s);
	const struct prediction *p = &s.simulation.prediction;
	assert_int_equal(p->memory_limit_bytes, s.topology.device.memory_bytes);
	fixed = p->peak_memory_bytes - p->peak_reserved_bytes;
	s.options.memory_limit_bytes = fixed + 500 * UNIT;
	sketch_run(&s);
	assert_int_equal(p->fits, FITS_YES);
	s.options.memory_limit_bytes = fixed + 499 * UNIT;
	sketch_run(&s);
	assert_int_equal(p->fits, FITS_TIGHT);
	s.options.memory_limit_bytes = fixed + 299 * UNIT;
	sketch_run(&s);
	assert_int_equal(p->fits, FITS_NO);
	sketch_finish(&s);
}

/* The curve starts at 0, ascends in time, and its maximum is the peak. */
static void test_curve(void **state)
{
	struct sketch s;
	int64_t most = 0;
	(void)state;
	sketch_init(&s, 0);
	int a = sketch_buffer(&s, BUFFER_ACTIVATIONS, STREAM_COMPUTE, 100);
	int first = sketch_traffic(&s, STREAM_COMPUTE, 1 * MS);
	int second = sketch_traffic(&s, STREAM_COMPUTE, 1 * MS);
	int third = sketch_traffic(&s, STREAM_COMPUTE, 1 * MS);
	sketch_link(&s, second, LINK_TAKE, a);
	sketch_link(&s, third, LINK_GIVE, a);
	(void)first;
	sketch_run(&s);
	const struct memory_curve *curve = &s.simulation.memory;
	assert_int_equal(curve->n, 3);
	assert_seconds(curve->times[0], 0);
	assert_seconds(curve->times[1], 1 * MS);
	assert_seconds(curve->times[2], 3 * MS);
	for (int i = 0; i < curve->n; i++)
		most = max_i64(most, sum(curve->bytes[i]));
	assert_int_equal(most, 100);
	assert_int_equal(sum(curve->bytes[2]), 0);
	sketch_finish(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_stream),
		cmocka_unit_test(test_overlap_holds_more_than_the_ledger),
		cmocka_unit_test(test_pools_peak_apart),
		cmocka_unit_test(test_active_is_what_the_host_sees),
		cmocka_unit_test(test_fits),
		cmocka_unit_test(test_curve),
	};
	return cmocka_run_group_tests_name("simulator memory", tests, NULL, NULL);
}
