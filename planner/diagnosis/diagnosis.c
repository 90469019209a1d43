#include "planner/diagnosis/rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The cost of a cause: the measured one, or the simulated one if that is larger. */
static double weight(const struct diagnosis_cause *cause)
{
	return isnan(cause->gain) ? cause->seconds : fmax(cause->seconds, cause->gain);
}

static int by_weight(const void *left, const void *right)
{
	double a = weight(left), b = weight(right);
	return (a < b) - (a > b);
}

static double communication(const struct activity_summary *s)
{
	double seconds = 0;

	for (int kind = ACTIVITY_ALL_GATHER; kind <= ACTIVITY_OTHER_COLLECTIVE; kind++)
		seconds += s->exposed[kind];
	return seconds;
}

static double copies(const struct activity_summary *s)
{
	return s->exposed[ACTIVITY_COPY_IN] + s->exposed[ACTIVITY_COPY_OUT];
}

static int by_length(const void *left, const void *right)
{
	const struct diagnosis_part *a = left, *b = right;
	return (a->measured < b->measured) - (a->measured > b->measured);
}

static void take_apart(struct diagnosis *d)
{
	const struct activity_summary *m = &d->measured, *e = &d->expected;
	const struct diagnosis_part parts[DIAGNOSIS_PARTS] = {
		{"compute", m->exposed[ACTIVITY_COMPUTE], e->exposed[ACTIVITY_COMPUTE]},
		{"exposed communication", communication(m), communication(e)},
		{"exposed copies", copies(m), copies(e)},
		{"waiting for the host", m->waiting_host, e->waiting_host},
		{"waiting for data", m->waiting_data, e->waiting_data},
		{"waiting for the allocator", m->waiting_allocator, e->waiting_allocator},
		{"waiting otherwise", m->waiting_other, e->waiting_other}};
	double most = 0;

	memcpy(d->parts, parts, sizeof(parts));
	qsort(d->parts, DIAGNOSIS_PARTS, sizeof(d->parts[0]), by_length);
	for (int i = 0; i < DIAGNOSIS_PARTS; i++) {
		double more = d->parts[i].measured - d->parts[i].expected;
		if (more > most) {
			most = more;
			d->loss = &d->parts[i];
		}
	}
}

/* Gaps have no name in a prediction, or in a measurement of our own, which say how long the loader
 * or the allocator was waited for: so much of them is `named`. */
static void name_gaps(double seconds, struct activity_summary *m, double *named)
{
	double host = fmin(seconds, m->waiting_host);
	double other = fmin(seconds - host, m->waiting_other);

	m->waiting_host -= host;
	m->waiting_other -= other;
	*named += host + other;
}

static bool expect(const struct diagnosed *diagnosed, struct arena *arena,
	struct diagnosis *diagnosis, double *step_time, struct error *error)
{
	struct activities activities = {0};
	struct schedule *schedule;
	struct simulation simulation;

	if (!evidence_simulate(diagnosed->file, &diagnosed->file->plan, true, arena, &schedule,
		    &simulation, error))
		return false;
	activities_of_timeline(schedule, &simulation.timeline, &activities);
	activities_summarise(&activities, &diagnosis->expected);
	activities_finish(&activities);
	const struct time_split *time = &simulation.prediction.time;
	name_gaps(time->data_wait, &diagnosis->expected, &diagnosis->expected.waiting_data);
	name_gaps(time->allocator, &diagnosis->expected, &diagnosis->expected.waiting_allocator);
	*step_time = simulation.prediction.step_time;
	diagnosis->expected_mfu = simulation.prediction.mfu;
	diagnosis->peak_name = simulation.prediction.peak_name;
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

	*diagnosis = (struct diagnosis){0};
	if (!expect(diagnosed, arena, diagnosis, &evidence.planned_time, error))
		return false;
	activities_summarise(diagnosed->activities, &diagnosis->measured);
	name_gaps(diagnosed->facts.data_wait, &diagnosis->measured,
		&diagnosis->measured.waiting_data);
	diagnosis->mfu = diagnosis->expected_mfu * diagnosis->expected.step_time /
			 diagnosis->measured.step_time;
	take_apart(diagnosis);
	apply(diagnosis_plan_rules, &evidence, diagnosis);
	apply(diagnosis_machine_rules, &evidence, diagnosis);
	qsort(diagnosis->causes, (size_t)diagnosis->n_causes, sizeof(diagnosis->causes[0]),
		by_weight);
	return true;
}
