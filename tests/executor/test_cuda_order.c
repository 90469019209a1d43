/* What a GPU is asked, beside the schedule, for every strategy: each operation once, in list order,
 * on its stream, behind exactly the waits that the schedule has, with the calls of its kind, on the
 * bytes of its own buffers. Streams, events, memory and calls are those of the fake GPU; the race
 * detector and the weights are test_cuda's business. */
#include <stdlib.h>
#include <unistd.h>

#include "support.h"
#include "tests/executor/fakes/cuda.h"
#include "trace.h"

enum { STEPS = 2, RANKS = 4 };

static const char *const plans[] = {
	"strategy=NO_SHARD micro_batch=2",
	"strategy=NO_SHARD micro_batch=1 grad_accum=2 clip=0.5 cpu_offload=optimizer",
	"strategy=SHARD_GRAD_OP micro_batch=2 wrap=size:1500",
	"strategy=SHARD_GRAD_OP micro_batch=1 grad_accum=2 sync_each_micro_batch=off prefetch=none",
	"strategy=FULL_SHARD micro_batch=2 param_dtype=bf16 activation_checkpointing=full",
	"strategy=FULL_SHARD micro_batch=1 grad_accum=2 clip=0.5 wrap=size:1500 "
	"limit_all_gathers=on prefetch=post forward_prefetch=on",
	"strategy=FULL_SHARD micro_batch=2 reshard_after_forward=2 cpu_offload=parameters",
	"strategy=FULL_SHARD micro_batch=2 param_dtype=bf16 master_dtype=bf16 reduce_dtype=bf16",
	"strategy=HYBRID_SHARD shard_group=2 micro_batch=2 activation_checkpointing=selective",
	"strategy=HYBRID_SHARD shard_group=2 micro_batch=1 grad_accum=2 clip=0.5 "
	"cpu_offload=parameters",
	"strategy=HYBRID_SHARD_ZERO2 shard_group=2 micro_batch=2 param_dtype=bf16",
	"strategy=ZERO_1 micro_batch=2 clip=0.5",
	"strategy=ZERO_1 shard_group=2 micro_batch=2 wrap=model",
	"strategy=ZERO_2 micro_batch=1 grad_accum=2 sync_each_micro_batch=on",
	"strategy=ZERO_3 micro_batch=2 wrap=blocks:2 optimizer=sgd",
};

struct traced {
	struct run run;
	struct trace trace;
	struct trace_counts counts;
	char said[256];
	bool graphs;
};

static char path[64];
static bool any_rounding;

static void record(struct traced *t, const char *options, const char *transport)
{
	struct executor_job job = run_job(STEPS);
	char all[256];

	memset(t, 0, sizeof(*t));
	snprintf(all, sizeof(all), "seq_len=11 %s", options);
	run_plan(&t->run, TINY_GPT2, RANKS, all);
	job.device = "cuda";
	job.transport = transport;
	job.kernels = "reference";
	job.any_rounding = any_rounding;
	setenv("FAKE_TRACE", path, 1);
	if (!run_train(&t->run, &job))
		fail_msg("%s, %s: %s", transport, options, t->run.error.message);
	unsetenv("FAKE_TRACE");
	t->graphs = strcmp(t->run.measurement.cuda_graphs, "on") == 0;
	trace_read(&t->trace, path, &t->run.arena);
	remove(path);
}

static bool follows(struct traced *t, bool shared)
{
	return trace_follows(&t->trace, t->run.schedule, shared, &t->counts, t->said);
}

static int device_operations(const struct schedule *schedule)
{
	int n = 0;

	for (int i = 0; i < schedule->programs[0].n_ops; i++)
		n += schedule->programs[0].ops[i].stream != STREAM_HOST;
	return n;
}

/* The rehearsal, the warm-up, one step by hand, and either a capture or the other steps. */
static void every_strategy(const char *transport)
{
	bool shared = strcmp(transport, "device") == 0;

	for (int i = 0; i < COUNT_OF(plans); i++) {
		struct traced t;

		record(&t, plans[i], transport);
		if (!follows(&t, shared))
			fail_msg("%s, %s: %s", transport, plans[i], t.said);
		assert_int_equal(t.counts.ranks, RANKS);
		assert_int_equal(t.counts.passes, RANKS * (t.graphs ? 4 : 2 + STEPS));
		assert_int_equal(t.counts.graphs, t.graphs ? RANKS * (STEPS - 1) : 0);
		assert_int_equal(
			t.counts.operations, t.counts.passes * device_operations(t.run.schedule));
		assert_true(t.counts.calls > 0 && t.counts.waits > 0);
		assert_true(shared == (t.counts.collectives == 0));
		run_finish(&t.run);
	}
}

static void ranks_that_share_a_gpu(void **state)
{
	(void)state;
	every_strategy("device");
}

static void ranks_with_a_gpu_each(void **state)
{
	(void)state;
	every_strategy("nccl");
}

/* GELU and its gradient on the way out of the products beside them: a call less each. */
static void activations_are_no_calls(void **state)
{
	enum { LAYERS = 3, WALKS = 3 }; /* the warm-up, the first step, and the capture */
	static const char plan[] = "strategy=FULL_SHARD micro_batch=2";
	struct traced alone, fused;

	(void)state;
	record(&alone, plan, "nccl");
	any_rounding = true;
	record(&fused, plan, "nccl");
	any_rounding = false;
	assert_true(follows(&alone, false) && follows(&fused, false));
	assert_int_equal(alone.counts.calls - fused.counts.calls, 2 * LAYERS * WALKS * RANKS);
	run_finish(&alone.run);
	run_finish(&fused.run);
}

/* --- the judge is judged: a trace that was good, with one line changed --- */

enum { SOME = 30 };

static void expect_seen(struct traced *t, bool shared, int i, const char *what)
{
	if (follows(t, shared))
		fail_msg("line %d: %s was not seen", i, what);
}

/* Removes each of the waits between operations in turn: without any one of them the order must
 * break. (An event that nobody made means nothing.) */
static void no_wait_is_one_too_many(void **state)
{
	struct traced t;
	int waits;

	(void)state;
	record(&t, plans[5], "device");
	assert_true(follows(&t, true));
	waits = t.counts.waits;
	for (int i = 0; i < t.trace.n; i++) {
		struct trace_line *line = &t.trace.lines[i];
		uint64_t event = line->what;

		if (line->kind != TRACE_WAIT)
			continue;
		line->what = 1;
		if (follows(&t, true) && t.counts.waits != waits)
			fail_msg("line %d: a wait that is left out was not seen", i);
		line->what = event;
	}
	assert_true(waits > 4 * SOME);
	run_finish(&t.run);
}

static void damage_is_seen(void **state)
{
	struct traced t;
	int collectives = 0, pairs = 0;

	(void)state;
	record(&t, plans[5], "nccl");
	assert_true(follows(&t, false));
	for (int i = 0; i + 1 < t.trace.n; i++) {
		struct trace_line *line = &t.trace.lines[i], *next = line + 1, kept = *line;

		if (line->kind == TRACE_COLLECTIVE && collectives++ < SOME) {
			line->bytes += 4;
			expect_seen(&t, false, i, "another size");
			*line = kept;
			line->stream++;
			expect_seen(&t, false, i, "another stream");
			*line = kept;
			line->touches[1].bytes += 1 << 16;
			expect_seen(&t, false, i, "bytes behind the buffer");
			line->touches[1].bytes -= 1 << 16;
			line->kind = TRACE_LAUNCH;
			expect_seen(&t, false, i, "a collective that is left out");
			*line = kept;
		}
		if (line->kind == TRACE_RECORD && next->kind == TRACE_RECORD &&
			line->thread == next->thread && line->stream == next->stream &&
			pairs++ < SOME) {
			*line = *next;
			*next = kept;
			expect_seen(&t, false, i, "two events in the other order");
			*next = *line;
			*line = kept;
		}
	}
	assert_true(collectives >= SOME && pairs >= SOME);
	run_finish(&t.run);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_that_share_a_gpu),
		cmocka_unit_test(ranks_with_a_gpu_each),
		cmocka_unit_test(activations_are_no_calls),
		cmocka_unit_test(no_wait_is_one_too_many),
		cmocka_unit_test(damage_is_seen),
	};

	fake_cuda_install(RANKS, 1);
	fake_nccl_install();
	run_as_rank(argc, argv);
	snprintf(path, sizeof(path), "cuda-order-%d.trace", (int)getpid());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
