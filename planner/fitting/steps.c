/* Step times of runs with other constants. A schedule does not depend on rates: it is built once.
 */
#include "planner/fitting/parts.h"

#include <math.h>
#include <string.h>

/* Half of the width of a difference quotient. It is wide, so that a change of NCCL's algorithm
 * within it is not taken for a slope. */
static const double reach = 0.05;

void steps_init(struct steps *steps, const struct lent *lent, struct arena *arena)
{
	steps->lent = lent;
	steps->workers = lent != NULL && lent->each != NULL ? lent->workers : 1;
	steps->arenas = ARENA_ARRAY(arena, struct arena, steps->workers);
	steps->scratch = ARENA_ARRAY(arena, struct arena, steps->workers);
	steps->points = NULL;
}

void steps_finish(struct steps *steps)
{
	for (int i = 0; i < steps->workers; i++) {
		arena_finish(&steps->arenas[i]);
		arena_finish(&steps->scratch[i]);
	}
}

static void simulate_point(void *data, int index, int worker)
{
	struct steps *steps = data;
	struct step_point *point = &steps->points[index];
	struct arena *arena = &steps->arenas[worker];
	struct schedule schedule = *point->schedule;
	struct topology moved;
	struct simulation simulation;
	struct error error = {0};
	const struct simulation_options options = {.quick_interval = true,
		.no_bounds = true,
		.memory = MEMORY_IGNORED,
		.scratch = &steps->scratch[worker]};

	constants_move(point->x, point->schedule->topology, arena, &moved);
	schedule.topology = &moved;
	bool ok = simulate(&schedule, &options, false, arena, &simulation, &error);
	point->log_step = ok ? log(simulation.prediction.step_time) : NAN;
	arena_reset(arena);
}

void steps_simulate(struct steps *steps, struct step_point *points, int n)
{
	steps->points = points;
	if (steps->workers > 1) {
		steps->lent->each(steps->lent->context, n, simulate_point, steps);
		return;
	}
	for (int i = 0; i < n; i++)
		simulate_point(steps, i, 0);
}

void steps_derive(struct steps *steps, const struct schedule *const *schedules, int n,
	const double x[CONSTANTS], const bool moves[CONSTANTS], double (*slopes)[CONSTANTS])
{
	struct arena arena = {0};
	struct step_point *points = ARENA_ARRAY(&arena, struct step_point, 2 * CONSTANTS * n);
	int n_points = 0;

	for (int i = 0; i < n; i++) {
		for (int side = 0; side < 2 * CONSTANTS; side++) {
			struct step_point *point = &points[n_points];

			if (!moves[side / 2])
				continue;
			point->schedule = schedules[i];
			memcpy(point->x, x, sizeof(point->x));
			point->x[side / 2] += side % 2 == 0 ? -reach : reach;
			n_points++;
		}
	}
	steps_simulate(steps, points, n_points);
	const struct step_point *at = points;
	for (int i = 0; i < n; i++) {
		for (int j = 0; j < CONSTANTS; j++) {
			slopes[i][j] = 0;
			if (!moves[j])
				continue;
			double difference = at[1].log_step - at[0].log_step;
			slopes[i][j] = isfinite(difference) ? difference / (2 * reach) : 0;
			at += 2;
		}
	}
	arena_finish(&arena);
}
