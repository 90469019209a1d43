/* Training on a real GPU: ranks that share it end in equal bits whatever the strategy, and the loss
 * is the CPU's as far as fp32 goes. Leaves with code 77, which says skipped, where there is none.
 */
#include <math.h>
#include <stdlib.h>

#include "digest_cases.h"
#include "executor/devices/cuda.h"

enum { STEPS = 5, RANKS = 4 };

static void train(const char *options, const char *device, struct run *run)
{
	struct executor_job job = run_job(STEPS);

	run_plan(run, TINY_LLAMA, RANKS, options);
	job.device = device;
	job.transport = strcmp(device, "cuda") == 0 ? "device" : NULL;
	if (!run_train(run, &job))
		fail_msg("%s on %s: %s", options, device, run->error.message);
}

static void strategies_give_equal_bits(void **state)
{
	static const char *const strategies[] = {"NO_SHARD", "SHARD_GRAD_OP", "FULL_SHARD",
		"HYBRID_SHARD shard_group=2", "FULL_SHARD cpu_offload=parameters",
		"FULL_SHARD activation_checkpointing=full"};
	char first[64] = "", options[256];
	struct run run;

	(void)state;
	for (int i = 0; i < COUNT_OF(strategies); i++) {
		snprintf(options, sizeof(options),
			"seq_len=16 micro_batch=1 grad_accum=2 clip=0.5 strategy=%s",
			strategies[i]);
		train(options, "cuda", &run);
		/* What the host updates has the host's bits. */
		bool offload = strstr(strategies[i], "offload") != NULL;
		if (i == 0)
			snprintf(first, sizeof(first), "%s", run.measurement.weights_digest);
		else if (!offload && strcmp(first, run.measurement.weights_digest) != 0)
			fail_msg("%s: %s, NO_SHARD has %s", strategies[i],
				run.measurement.weights_digest, first);
		run_finish(&run);
	}
}

static void losses_are_the_cpus(void **state)
{
	static const char options[] = "seq_len=16 micro_batch=2 strategy=FULL_SHARD";
	struct run gpu, cpu;

	(void)state;
	train(options, "cuda", &gpu);
	train(options, "host", &cpu);
	for (int i = 0; i < STEPS; i++)
		if (fabs(gpu.measurement.losses[i] - cpu.measurement.losses[i]) > 1e-4)
			fail_msg("step %d: loss %g on the GPU, %g on the CPU", i + 1,
				gpu.measurement.losses[i], cpu.measurement.losses[i]);
	run_finish(&gpu);
	run_finish(&cpu);
}

#define COMPUTE_TIME 0.002
#define LINK_TIME    0.001
/* Events and the GPU's clock are finer than this. */
#define RESOLUTION 2e-5

static double held_for(const struct op *op)
{
	bool heavy = op->kind == OP_FORWARD || op->kind == OP_BACKWARD;

	return heavy                                            ? COMPUTE_TIME
	       : op_kind_class(op->kind) == OP_CLASS_COLLECTIVE ? LINK_TIME
								: 0;
}

/* Streams are held to modelled times, bits stay what they are. */
static void operations_are_held(void **state)
{
	static const char options[] = "seq_len=16 micro_batch=1 strategy=FULL_SHARD";
	struct executor_job job = run_job(STEPS);
	struct timeline expected;
	struct run paced, free_run;

	(void)state;
	run_plan(&paced, TINY_LLAMA, RANKS, options);
	const struct program *program = &paced.schedule->programs[0];
	timeline_init(&expected, program->n_ops, &paced.arena);
	for (int i = 0; i < program->n_ops; i++) {
		expected.spans[i].start = expected.step_time;
		expected.step_time += held_for(&program->ops[i]);
		expected.spans[i].end = expected.step_time;
	}
	job.device = "cuda";
	job.expected = &expected;
	job.pace = PACE_ALL;
	if (!run_train(&paced, &job))
		fail_msg("%s", paced.error.message);
	for (int i = 0; i < program->n_ops; i++) {
		const struct span *span = &paced.measurement.timeline.spans[i];

		assert_true(span->end - span->start >= held_for(&program->ops[i]) - RESOLUTION);
	}
	train(options, "cuda", &free_run);
	assert_string_equal(paced.measurement.weights_digest, free_run.measurement.weights_digest);
	run_finish(&paced);
	run_finish(&free_run);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strategies_give_equal_bits),
		cmocka_unit_test(losses_are_the_cpus),
		cmocka_unit_test(operations_are_held),
	};
	struct error error = {0};
	int gpus;

	run_as_rank(argc, argv);
	if (!device_cuda_available(&gpus, &error)) {
		printf("skipped: %s\n", error.message);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
