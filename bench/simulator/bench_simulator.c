/* Measures how many plans one core can judge per second: built and simulated, whole and folded;
 * folded also without memory. Also the memory of one prediction, whole and folded. A fixed loop
 * shows how fast the machine is. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "schedule/fold/fold.h"
#include "schedule/resolve/resolve.h"
#include "simulator/simulator.h"

static const struct bench {
	const char *model, *topology, *runtime, *grad_accum;
} benches[] = {
	{"llama-2-7b", "2xdgx-a100-80gb", "pytorch-fsdp1", "1"},
	{"llama-2-7b", "2xdgx-a100-80gb", "pytorch-fsdp2", "1"},
	{"llama-2-7b", "2xdgx-a100-80gb", "pytorch-fsdp2", "8"},
	{"llama-2-7b", "2xdgx-a100-80gb", "pytorch-fsdp2", "128"},
	{"llama-2-7b", "2xdgx-a100-80gb", "shardplan", "8"},
	{"llama-2-7b", "2xdgx-a100-80gb", "pytorch-ddp", "1"},
	{"llama-3-70b", "16xdgx-h100", "pytorch-fsdp2", "1"},
	{"llama-3-405b", "128xdgx-h100", "pytorch-fsdp2", "1"},
	{"llama-3-405b", "128xdgx-h100", "pytorch-fsdp2", "32"},
};

static const double seconds_each = 0.5;

/* CPU time of this process, so that other work on the machine does not count. */
static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(bool ok, const struct error *error)
{
	if (ok)
		return;
	fprintf(stderr, "%s\n", error->message);
	exit(EXIT_CODE_INTERNAL);
}

struct benched {
	struct arena arena;
	struct model *model;
	struct topology *topology;
	struct plan plan;
};

static void resolve(struct benched *question, const struct bench *bench)
{
	const char *const options[][2] = {
		{"runtime", bench->runtime}, {"grad_accum", bench->grad_accum}};
	struct question asked = {0};
	struct error error = {0};

	check(model_load_preset(&question->arena, bench->model, &question->model, &error), &error);
	check(topology_load_name(&question->arena, bench->topology, &question->topology, &error),
		&error);
	asked.model = question->model;
	asked.topology = question->topology;
	for (int i = 0; i < COUNT_OF(options); i++)
		check(question_set_by_name(&asked, options[i][0], options[i][0], options[i][1],
			      &question->arena, &error),
			&error);
	check(plan_resolve(&asked, &question->arena, &question->plan, &error), &error);
}

static void predict(struct benched *question, bool folded, const struct simulation_options *options,
	struct arena *arena)
{
	struct simulation simulation;
	struct error error = {0};
	const struct schedule *schedule = (folded ? schedule_fold : schedule_emit)(
		arena, &question->plan, question->model, question->topology);

	check(simulate(schedule, options, false, arena, &simulation, &error), &error);
}

/* Plans per second, judged as in the planner's inner loop. */
static double rate(struct benched *question, bool folded, enum memory_detail memory)
{
	struct arena arena = {0}, scratch = {0};
	const struct simulation_options options = {
		.quick_interval = true, .no_bounds = true, .memory = memory, .scratch = &scratch};
	double start = now(), elapsed = 0;
	int rounds = 0;

	for (; elapsed < seconds_each; elapsed = now() - start, rounds++) {
		predict(question, folded, &options, &arena);
		arena_reset(&arena);
	}
	arena_finish(&arena);
	arena_finish(&scratch);
	return rounds / elapsed;
}

static size_t allocated(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

/* Megabytes that one prediction allocates, all of which it holds until its end. */
static double megabytes(struct benched *question, bool folded)
{
	struct arena arena = {0}, scratch = {0};
	const struct simulation_options options = {
		.quick_interval = true, .no_bounds = true, .scratch = &scratch};
	size_t before = allocated();

	predict(question, folded, &options, &arena);
	double bytes = (double)(allocated() - before);
	arena_finish(&arena);
	arena_finish(&scratch);
	return bytes / 1e6;
}

static int operations(struct benched *question, bool folded)
{
	return (folded ? schedule_fold : schedule_emit)(
		&question->arena, &question->plan, question->model, question->topology)
		->programs[0]
		.n_ops;
}

/* Seconds of 10^8 dependent multiplications. */
static double yardstick(void)
{
	volatile double product = 1;
	double start = now();

	for (int i = 0; i < 100000000; i++)
		product *= 1.0000000001;
	return now() - start;
}

int main(void)
{
	printf("10^8 dependent multiplications: %.2f s\n\n", yardstick());
	printf("%-13s %-14s %7s %8s %7s %9s %9s %16s %9s %9s\n", "model", "runtime", "batches",
		"whole", "folded", "whole/s", "folded/s", "without memory/s", "whole MB",
		"folded MB");
	for (int i = 0; i < COUNT_OF(benches); i++) {
		const struct bench *bench = &benches[i];
		struct benched question = {0};

		resolve(&question, bench);
		printf("%-13s %-14s %7s %8d %7d %9.0f %9.0f %16.0f %9.1f %9.1f\n", bench->model,
			bench->runtime, bench->grad_accum, operations(&question, false),
			operations(&question, true), rate(&question, false, MEMORY_FIGURES),
			rate(&question, true, MEMORY_FIGURES),
			rate(&question, true, MEMORY_IGNORED), megabytes(&question, false),
			megabytes(&question, true));
		arena_finish(&question.arena);
	}
	return 0;
}
