#include "planner/diagnosis/rules.h"

#include <math.h>
#include <stdlib.h>

/* What the cause costs: as measured, or as simulated where that says more. */
static double weight(const struct diagnosis_cause *cause)
{
	return isnan(cause->gain) ? cause->seconds : fmax(cause->seconds, cause->gain);
}

static int by_weight(const void *left, const void *right)
{
	double a = weight(left), b = weight(right);
	return (a < b) - (a > b);
}

static void find_bound(struct diagnosis *d, struct arena *arena)
{
	const struct activity_summary *m = &d->measured;
	const struct {
		const char *name;
		double seconds;
	} waits[] = {{"the host", m->waiting_host}, {"data", m->waiting_data},
		{"the allocator", m->waiting_allocator}, {"waiting", m->waiting_other}};

	for (int kind = 0; kind < ACTIVITY_KIND_COUNT; kind++) {
		if (m->exposed[kind] <= d->bound_seconds)
			continue;
		d->bound_seconds = m->exposed[kind];
		d->bound = kind == ACTIVITY_COMPUTE
				   ? activity_names[kind]
				   : arena_printf(arena, "exposed %s", activity_names[kind]);
	}
	for (int i = 0; i < COUNT_OF(waits); i++) {
		if (waits[i].seconds > d->bound_seconds) {
			d->bound_seconds = waits[i].seconds;
			d->bound = waits[i].name;
		}
	}
}

static bool expect(const struct diagnosed *diagnosed, struct arena *arena,
	struct activity_summary *expected, double *step_time, struct error *error)
{
	struct activities activities = {0};
	struct schedule *schedule;
	struct simulation simulation;

	if (!evidence_simulate(diagnosed->file, &diagnosed->file->plan, true, arena, &schedule,
		    &simulation, error))
		return false;
	activities_of_timeline(schedule, &simulation.timeline, &activities);
	activities_summarise(&activities, expected);
	activities_finish(&activities);
	*step_time = simulation.prediction.step_time;
	return true;
}

static void apply(const struct diagnosis_rule *rules, const struct evidence *evidence,
	struct diagnosis *diagnosis)
{
	for (; rules->id != NULL; rules++) {
		struct diagnosis_cause *cause = &diagnosis->causes[diagnosis->n_causes];
		*cause = (struct diagnosis_cause){.id = rules->id, .gain = NAN};
		diagnosis->n_causes += rules->find(evidence, cause);
	}
}

bool diagnose(const struct diagnosed *diagnosed, struct arena *arena, struct diagnosis *diagnosis,
	struct error *error)
{
	struct evidence evidence = {.what = diagnosed,
		.plan = &diagnosed->file->plan,
		.expected = &diagnosis->expected,
		.measured = &diagnosis->measured,
		.arena = arena};

	*diagnosis = (struct diagnosis){.bound = "nothing"};
	if (!expect(diagnosed, arena, &diagnosis->expected, &evidence.planned_time, error))
		return false;
	activities_summarise(diagnosed->activities, &diagnosis->measured);
	find_bound(diagnosis, arena);
	apply(diagnosis_plan_rules, &evidence, diagnosis);
	apply(diagnosis_machine_rules, &evidence, diagnosis);
	qsort(diagnosis->causes, (size_t)diagnosis->n_causes, sizeof(diagnosis->causes[0]),
		by_weight);
	return true;
}
