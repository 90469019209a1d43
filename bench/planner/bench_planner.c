/* How long planning takes: questions of growing size, with bounds, with the Pareto front of a
 * report (beside the answer alone) and by simulating every plan of the space. Prints a table, in
 * seconds of this process on a processor; judges nothing. Run: bench_planner [--exhaustive] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "planner/planner.h"
#include "planner/search/search.h"

static const struct bench {
	const char *model, *topology, *option, *value;
} benches[] = {
	{"gpt2-124m", "dgx-a100-80gb", NULL, NULL},
	{"llama-2-7b", "2xdgx-a100-80gb", NULL, NULL},
	{"llama-2-7b", "2xdgx-a100-80gb", "runtime", "pytorch-fsdp1"},
	{"llama-2-7b", "2xdgx-a100-80gb", "global_batch", "256"},
	{"llama-3-70b", "8xdgx-h100", NULL, NULL},
	{"llama-3-405b", "256xdgx-h100", NULL, NULL},
};

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

static struct question make_question(const struct bench *bench, struct arena *arena)
{
	struct question question = {0};
	struct model *model;
	struct topology *topology;
	struct error error = {0};
	check(model_load_preset(arena, bench->model, &model, &error), &error);
	check(topology_load_name(arena, bench->topology, &topology, &error), &error);
	if (bench->option != NULL)
		check(question_set_by_name(
			      &question, bench->option, bench->option, bench->value, arena, &error),
			&error);
	question.mixes = true; /* as the command does */
	question.model = model;
	question.topology = topology;
	return question;
}

/* Simulates every plan of the space, as a search without bounds would. */
static double exhaustive_seconds(struct search *search)
{
	double start = now();
	for (int i = 0; i < search->space.n; i++) {
		struct prediction prediction;
		struct error error = {0};
		check(evaluator_run(
			      &search->evaluator, &search->space.plans[i], &prediction, &error),
			&error);
	}
	return now() - start;
}

/* The answer with its Pareto front, as a report needs it. */
static double front_seconds(struct question question)
{
	struct arena arena = {0};
	struct answer answer;
	struct error error = {0};
	double start = now();
	question.pareto = true;
	check(planner_plan(&question, &arena, &answer, &error), &error);
	double seconds = now() - start;
	arena_finish(&arena);
	return seconds;
}

static void run(const struct bench *bench, bool exhaustive)
{
	struct arena arena = {0};
	struct question question = make_question(bench, &arena);
	struct search search;
	struct answer answer;
	struct error error = {0};
	double start = now();
	check(planner_plan(&question, &arena, &answer, &error), &error);
	double answer_s = now() - start;
	start = now();
	check(search_run(&question, &arena, &search, &error), &error);
	double search_s = now() - start;
	double front_s = front_seconds(question);
	printf("%-14s %-18s %-14s %6d %9lld %9.3f %9.3f %9.3f %9.2f", bench->model, bench->topology,
		bench->option != NULL ? bench->value : "", search.space.n,
		(long long)search.evaluated, search_s, answer_s, front_s, front_s / answer_s);
	if (exhaustive) {
		double all_s = exhaustive_seconds(&search);
		printf(" %9.3f %8.0f", all_s, (double)search.space.n / all_s);
	}
	printf("\n");
	fflush(stdout);
	search_finish(&search);
	arena_finish(&arena);
}

int main(int argc, char **argv)
{
	bool exhaustive = argc > 1 && strcmp(argv[1], "--exhaustive") == 0;
	printf("%-14s %-18s %-14s %6s %9s %9s %9s %9s %9s%s\n", "model", "topology", "option",
		"plans", "simulated", "search s", "answer s", "front s", "/ answer",
		exhaustive ? "     all s   all/s" : "");
	for (int i = 0; i < COUNT_OF(benches); i++)
		run(&benches[i], exhaustive);
	return 0;
}
