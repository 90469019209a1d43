/* What the rules share: what was measured beside what the plan would take. */
#include "planner/diagnosis/rules.h"

#include <math.h>

/* A share of the step below which a difference says nothing. */
#define NOTICEABLE 0.03

bool evidence_simulate(const struct plan_file *file, const struct plan *plan, bool details,
	struct arena *arena, struct schedule **schedule, struct simulation *simulation,
	struct error *error)
{
	const struct simulation_options options = {.quick_interval = true};

	return schedule_build(arena, plan, file->model, file->topology, schedule, error) &&
	       simulate(*schedule, &options, details, arena, simulation, error);
}

double evidence_effect(const struct evidence *p, const struct plan *changed)
{
	struct arena arena = {0};
	struct schedule *schedule;
	struct simulation simulation;
	struct error error = {0};
	double seconds = NAN;

	if (evidence_simulate(
		    p->what->file, changed, false, &arena, &schedule, &simulation, &error))
		seconds = simulation.prediction.step_time - p->planned_time;
	arena_finish(&arena);
	return seconds;
}

double evidence_mean_bytes(const struct activity_summary *s, enum activity_kind kind)
{
	return s->count[kind] > 0 ? s->bytes[kind] / s->count[kind] : 0;
}

double evidence_ratio(double measured, double expected)
{
	return expected > 0 ? measured / expected : measured > 0 ? INFINITY : 1;
}

double evidence_more_exposed(const struct evidence *p, enum activity_kind kind)
{
	return fmax(0, p->measured->exposed[kind] - p->expected->exposed[kind]);
}

double evidence_lost_to_communication(const struct evidence *p)
{
	double seconds = 0;

	for (int kind = ACTIVITY_ALL_GATHER; kind <= ACTIVITY_OTHER_COLLECTIVE; kind++)
		seconds += evidence_more_exposed(p, kind);
	return seconds;
}

bool evidence_noticeable(const struct evidence *p, double seconds)
{
	return seconds > NOTICEABLE * p->measured->step_time;
}
