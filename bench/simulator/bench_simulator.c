/* How many plans a second can be judged: simulations of a schedule that is there, and schedules
 * built and simulated. Llama-2-7B on two nodes of eight A100. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "schedule/resolve/resolve.h"
#include "simulator/simulator.h"

static const struct bench {
	const char *runtime, *strategy, *checkpointing;
} benches[] = {
	{"pytorch-fsdp1", "FULL_SHARD", "none"},
	{"pytorch-fsdp1", "HYBRID_SHARD", "full"},
	{"pytorch-fsdp2", "FULL_SHARD", "full"},
	{"pytorch-ddp", "NO_SHARD", "none"},
	{"shardplan", "FULL_SHARD", "full"},
};

static const double seconds_each = 0.5;

/* Of this process: other work on the machine does not count. */
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
	const char *const options[][2] = {{"runtime", bench->runtime},
		{"strategy", bench->strategy}, {"activation_checkpointing", bench->checkpointing}};
	struct question asked = {0};
	struct error error = {0};

	check(model_load_preset(&question->arena, "llama-2-7b", &question->model, &error), &error);
	check(topology_load_name(&question->arena, "2xdgx-a100-80gb", &question->topology, &error),
		&error);
	asked.model = question->model;
	asked.topology = question->topology;
	for (int i = 0; i < COUNT_OF(options); i++)
		check(question_set_by_name(&asked, options[i][0], options[i][0], options[i][1],
			      &question->arena, &error),
			&error);
	check(plan_resolve(&asked, &question->arena, &question->plan, &error), &error);
}

static struct schedule *build(struct benched *question, struct arena *arena)
{
	struct schedule *schedule;
	struct error error = {0};

	check(schedule_build(arena, &question->plan, question->model, question->topology, &schedule,
		      &error),
		&error);
	return schedule;
}

/* Rounds per second of simulating, or of building and simulating. */
static double rate(struct benched *question, bool builds)
{
	/* As the planner's inner loop does. */
	const struct simulation_options options = {.quick_interval = true};
	struct simulation simulation;
	struct error error = {0};
	struct arena arena = {0};
	struct schedule *schedule = build(question, &question->arena);
	double start = now(), elapsed = 0;
	int rounds = 0;

	for (; elapsed < seconds_each; elapsed = now() - start, rounds++) {
		if (builds)
			schedule = build(question, &arena);
		check(simulate(schedule, &options, false, &arena, &simulation, &error), &error);
		arena_reset(&arena);
	}
	arena_finish(&arena);
	return rounds / elapsed;
}

int main(void)
{
	printf("%-14s %-14s %-6s %10s %14s %16s\n", "runtime", "strategy", "checkp", "operations",
		"simulations/s", "with building/s");
	for (int i = 0; i < COUNT_OF(benches); i++) {
		struct benched question = {0};
		double alone, built;

		resolve(&question, &benches[i]);
		alone = rate(&question, false);
		built = rate(&question, true);
		printf("%-14s %-14s %-6s %10d %14.0f %16.0f\n", benches[i].runtime,
			benches[i].strategy, benches[i].checkpointing,
			build(&question, &question.arena)->programs[0].n_ops, alone, built);
		arena_finish(&question.arena);
	}
	return 0;
}
