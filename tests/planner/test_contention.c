/* The time that collectives surely take from compute beside them: never more than the placement
 * that takes least, or than the simulated time of pipelines. */
#include "support.h"

#include <math.h>
#include <stdlib.h>

#include "planner/bounds/bounds.h"
#include "planner/bounds/parts.h"
#include "planner/evaluation/evaluation.h"
#include "simulator/simulator.h"

enum { OPERATIONS_MAX = 6, WINDOWS = 20000 };

struct window {
	int n;
	struct cost costs[OPERATIONS_MAX];
	double loss, seconds; /* of all collectives: how much they take, and how long they run */
};

static double random_share(uint64_t *state)
{
	return (double)random_below(state, 1001) / 1000;
}

static struct window random_window(uint64_t *state)
{
	struct window window = {.n = 1 + (int)random_below(state, OPERATIONS_MAX),
		.loss = random_share(state) / 2,
		.seconds = random_share(state)};
	for (int i = 0; i < window.n; i++) {
		struct cost *cost = &window.costs[i];
		cost->device = random_share(state) + 1e-3;
		cost->arithmetic =
			cost->device * (random_below(state, 2) ? 1 : random_share(state));
	}
	return window;
}

/* Returns what a second beside a collective loses. */
static double lost_by(const struct window *window, const struct cost *cost)
{
	double share = cost->arithmetic / cost->device;
	double longer = window->loss / (1 - window->loss) * share;
	return longer / (1 + longer);
}

/* Returns, of those from `first` on that have room, the one that loses least; -1: there is none. */
static int find_least(const struct window *window, const double *room, int first)
{
	int least = -1;
	for (int i = first; i < window->n; i++)
		if (room[i] > 0 && (least < 0 || lost_by(window, &window->costs[i]) <
							 lost_by(window, &window->costs[least])))
			least = i;
	return least;
}

/* Each of the collectives runs beside what loses least of all that is behind it, the last one
 * first, and beside nothing when that is over. */
static double least_seconds(const struct window *window, int parts)
{
	double room[OPERATIONS_MAX], all = 0;
	for (int i = 0; i < window->n; i++) {
		room[i] = window->costs[i].device / (1 - lost_by(window, &window->costs[i]));
		all += window->costs[i].device;
	}
	for (int part = parts - 1; part >= 0; part--) {
		double left = window->seconds / parts;
		for (int i; left > 0 && (i = find_least(window, room, part)) >= 0;) {
			double beside = fmin(left, room[i]);
			room[i] -= beside;
			left -= beside;
			all += lost_by(window, &window->costs[i]) * beside;
		}
		all += left;
	}
	return all;
}

/* `parts`: collectives one behind the other, each of which begins when another operation may. */
static double bound_of(const struct window *window, int parts, double begin)
{
	struct beside beside = {.most = window->loss};
	double ends[SHARES], now = begin;
	const struct cost before = {.device = begin, .arithmetic = begin};
	bound_beside_compute(&beside, &before);
	for (int i = 0; i < window->n; i++) {
		if (i < parts)
			bound_beside_collective(
				&beside, window->loss, window->seconds / parts, now);
		bound_beside_compute(&beside, &window->costs[i]);
		now += window->costs[i].device;
	}
	bound_beside_ends(&beside, ends);
	return bound_beside_start(&beside, ends) - begin;
}

static void test_no_placement_takes_less(void **state)
{
	uint64_t seed = UINT64_C(0x9e3779b97f4a7c15);
	double sum = 0, lost = 0;
	(void)state;
	for (int k = 0; k < WINDOWS; k++) {
		struct window window = random_window(&seed);
		double work = 0;
		for (int i = 0; i < window.n; i++)
			work += window.costs[i].device;
		for (int parts = 1; parts <= window.n; parts++) {
			double least = least_seconds(&window, parts);
			assert_true(bound_of(&window, parts, 3) <= least + 1e-9);
			sum += fmax(0, bound_of(&window, parts, 3) - work);
			lost += least - work;
		}
	}
	print_message("%.2f of what the best placement takes longer\n", sum / lost);
	assert_true(sum / lost > 0.5);
}

/* What tensor ranks exchange beside backward's products takes multiprocessors from these: a step
 * takes longer than it would without, and so does the path. */
static void judge_path(const char *context)
{
	const struct simulation_options alone = {
		.no_contention = true, .quick_interval = true, .no_bounds = true};
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "llama-3-70b"),
		.topology = load_topology(&arena, "4xdgx-h100")};
	struct evaluator evaluator = {.question = &question};
	struct space space;
	struct error error = {0};
	SET_CHOICES(&question, &arena, "runtime", "megatron", "strategy", "ZERO_1", "pipeline", "2",
		"pipeline_schedule", "1f1b", "tensor", "8", "context", context, "seq_len", "8192",
		"global_batch", "128", "micro_batch", "1", "activation_checkpointing", "none");
	assert_true(space_build(&question, &arena, &space, &error));
	assert_true(space.n > 0);
	for (int k = 0; k < space.n; k++) {
		const struct plan *plan = &space.plans[k];
		const struct schedule *schedule =
			schedule_emit(&arena, plan, question.model, question.topology);
		struct prediction prediction;
		struct simulation without;
		assert_true(evaluator_run(&evaluator, plan, &prediction, &error));
		assert_true(simulate(schedule, &alone, false, &arena, &without, &error));
		double path = evaluator_bound_time(&evaluator, plan);
		print_message("context %s: %.4f of the step, %.4f of one without contention\n",
			context, path / prediction.step_time, path / without.prediction.step_time);
		assert_true(path <= prediction.step_time);
		assert_true(path > without.prediction.step_time);
	}
	space_finish(&space);
	evaluator_finish(&evaluator);
	arena_finish(&arena);
}

static void test_path_knows_contention(void **state)
{
	(void)state;
	judge_path("1");
	judge_path("2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_placement_takes_less),
		cmocka_unit_test(test_path_knows_contention),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
