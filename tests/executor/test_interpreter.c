/* The measured ledger equals the schedule's, at every operation, for plans of all kinds; without
 * other ranks and without arithmetic, so that many plans are quick. */
#include <time.h>

#include "schedule/memory/memory.h"
#include "support.h"
#include "tests/kernels/reference/reference.h"

static const char *const models[] = {TINY_GPT2, TINY_LLAMA, TINY_QWEN};
static const char *const strategies[] = {"NO_SHARD", "SHARD_GRAD_OP", "FULL_SHARD",
	"HYBRID_SHARD shard_group=2", "HYBRID_SHARD_ZERO2 shard_group=2"};
static const char *const wraps[] = {"block", "blocks:2", "size:1500", "model"};
static const char *const prefetches[] = {"none", "pre", "post"};
static const char *const accumulations[] = {
	"1", "3 sync_each_micro_batch=off", "3 sync_each_micro_batch=on"};

/* How many operations have another row than schedule_ledger says. */
static int wrong_rows(const struct solo *solo)
{
	const struct schedule *schedule = solo->run->schedule;
	const struct timeline *timeline = &solo->interpreter.timeline;
	struct arena arena = {0};
	struct ledger ledger;
	int wrong = 0;

	schedule_ledger(schedule, 0, &arena, &ledger);
	for (int i = 0; i < schedule->programs[0].n_ops; i++)
		wrong += memcmp(timeline->live[i], ledger.live[i], sizeof(ledger.live[0])) != 0;
	arena_finish(&arena);
	return wrong;
}

static int run_plan_twice(const char *model, const char *options, const struct fault *fault)
{
	struct run run;
	struct solo solo;
	int wrong;

	run_plan(&run, model, 4, options);
	solo_open(&solo, &run, &kernels_null, true, training_defaults());
	if (fault != NULL)
		solo.interpreter.fault = *fault;
	solo_step(&solo, 0);
	wrong = wrong_rows(&solo);
	solo_step(&solo, 1);
	wrong += wrong_rows(&solo);
	assert_true(heap_check(&solo.buffers.heap));
	/* Everything that was taken came back: only resident buffers are left. */
	int64_t resident = 0;
	for (int i = 0; i < run.schedule->programs[0].n_buffers; i++)
		if (run.schedule->programs[0].buffers[i].resident)
			resident += run.schedule->programs[0].buffers[i].bytes;
	assert_int_equal(solo.buffers.heap.live, resident);
	assert_int_equal(solo.buffers.physical_total, resident);
	assert_true(solo.buffers.physical_peak >= resident);
	solo_close(&solo);
	run_finish(&run);
	return wrong;
}

static void ledger_is_the_schedules(void **state)
{
	char options[256];
	int plans = 0;

	(void)state;
	for (int m = 0; m < COUNT_OF(models); m++)
		for (int s = 0; s < COUNT_OF(strategies); s++)
			for (int w = 0; w < COUNT_OF(wraps); w++)
				for (int p = 0; p < COUNT_OF(prefetches); p++)
					for (int a = 0; a < COUNT_OF(accumulations); a++) {
						int mix = m + s + w + p + a;

						snprintf(options, sizeof(options),
							"strategy=%s wrap=%s prefetch=%s "
							"grad_accum=%s micro_batch=2 seq_len=7 "
							"forward_prefetch=%s "
							"activation_checkpointing=%s "
							"limit_all_gathers=%s",
							strategies[s], wraps[w], prefetches[p],
							accumulations[a], mix % 2 ? "on" : "off",
							mix % 3 ? "full" : "none",
							mix % 5 ? "on" : "off");
						int wrong =
							run_plan_twice(models[m], options, NULL);
						if (wrong > 0)
							fail_msg("%s: %d operations", options,
								wrong);
						plans++;
					}
	print_message("%d plans\n", plans);
}

/* The control: a megabyte that no buffer stands for is seen from where it is taken. */
static void a_leak_is_seen(void **state)
{
	const struct fault leak = {.kind = FAULT_LEDGER_LEAK, .rank = -1, .step = -1};

	(void)state;
	assert_true(run_plan_twice(
			    TINY_GPT2, "strategy=FULL_SHARD micro_batch=1 seq_len=7", &leak) > 10);
}

/* Operations start after they were issued, and after everything that they wait for has ended. */
static void times_respect_the_waits(void **state)
{
	struct run run;
	struct solo solo;

	(void)state;
	run_plan(&run, TINY_LLAMA, 4,
		"strategy=FULL_SHARD micro_batch=2 seq_len=16 grad_accum=3 forward_prefetch=on");
	solo_open(&solo, &run, kernels_reference(), true, training_defaults());
	solo_step(&solo, 0);
	const struct program *program = &run.schedule->programs[0];
	const struct span *spans = solo.interpreter.timeline.spans;
	double last[STREAM_COUNT] = {0};
	int waits = 0;
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		const int *list = slice_of(program, op->waits);

		assert_true(spans[i].issued <= spans[i].start && spans[i].start <= spans[i].end);
		assert_true(last[op->stream] <= spans[i].start);
		last[op->stream] = spans[i].end;
		for (int w = 0; w < op->waits.count; w++)
			if (list[w] >= 0) {
				assert_true(spans[list[w]].end <= spans[i].start);
				waits++;
			}
	}
	assert_true(waits > 10);
	solo_close(&solo);
	run_finish(&run);
}

/* Collectives that end late, over a transport that does nothing else. */
static const struct transport *prompt;

static bool run_late(struct comm *comm, const struct collective *collective)
{
	nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	return prompt->run(comm, collective);
}

struct look {
	struct solo *solo;
	int waited_for; /* buffers that were given back by what an operation waited for */
	int held;       /* of these, the ones that still had memory */
};

static bool run_and_look(void *data, int index, struct error *error)
{
	struct look *look = data;
	const struct program *program = &look->solo->run->schedule->programs[0];
	const struct op *op = &program->ops[index];
	const int *waits = slice_of(program, op->waits);

	for (int w = 0; w < op->waits.count && op->stream == STREAM_COMPUTE; w++) {
		const struct op *before = waits[w] >= 0 ? &program->ops[waits[w]] : op;
		const int *gives = slice_of(program, before->gives);

		for (int i = 0; i < before->gives.count && before->stream == STREAM_REDUCE; i++) {
			look->waited_for++;
			look->held += buffers_address(&look->solo->buffers, gives[i]) != NULL;
		}
	}
	return compute_run(&look->solo->compute, index, error);
}

/* An operation takes memory when its waits are over: what they gave back is there for it. */
static void memory_is_taken_after_the_waits(void **state)
{
	struct run run;
	struct solo solo;

	(void)state;
	run_plan(&run, TINY_LLAMA, 4, "strategy=FULL_SHARD micro_batch=2 seq_len=7");
	solo_open(&solo, &run, &kernels_null, true, training_defaults());
	struct look look = {.solo = &solo};
	prompt = solo.comm.transport;
	struct transport late = *prompt;
	late.run = run_late;
	solo.comm.transport = &late;
	solo.interpreter.backend.run = run_and_look;
	solo.interpreter.backend.data = &look;
	solo_step(&solo, 0);
	assert_true(look.waited_for > 0);
	assert_int_equal(look.held, 0);
	solo_close(&solo);
	run_finish(&run);
}

static bool fail_at_backward(void *data, int op, struct error *error)
{
	const struct program *program = data;

	return program->ops[op].kind != OP_BACKWARD ||
	       error_set(error, EXIT_CODE_FAULT, "as the test wants");
}

/* An error ends the step, also while the engine still has work. */
static void errors_end_the_step(void **state)
{
	struct error error = {0};
	struct run run;
	struct solo solo;

	(void)state;
	run_plan(&run, TINY_LLAMA, 4, "strategy=FULL_SHARD micro_batch=1 seq_len=7");
	solo_open(&solo, &run, &kernels_null, true, training_defaults());
	solo.interpreter.backend.run = fail_at_backward;
	solo.interpreter.backend.data = &run.schedule->programs[0];
	assert_false(interpret_step(&solo.interpreter, 0, false, &error));
	assert_string_equal(error.message, "as the test wants");
	solo_close(&solo);
	run_finish(&run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ledger_is_the_schedules),
		cmocka_unit_test(a_leak_is_seen),
		cmocka_unit_test(times_respect_the_waits),
		cmocka_unit_test(memory_is_taken_after_the_waits),
		cmocka_unit_test(errors_end_the_step),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
