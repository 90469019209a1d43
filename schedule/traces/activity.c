#include "schedule/traces/activity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

const char *const activity_names[] = {
#define X(suffix, name) [ACTIVITY_##suffix] = name,
	ACTIVITY_KINDS(X)
#undef X
		NULL};

const struct trace_facts trace_facts_unknown = {.fp32_reduced = NAN,
	.fp32_gathered = NAN,
	.fp32_products = NAN,
	.softmax_kernels = NAN,
	.other_load = NAN,
	.step_spread = NAN};

void trace_facts_of_steps(struct trace_facts *facts, const double *times, int n)
{
	double sum = 0, squares = 0;

	facts->counted_steps = n;
	for (int i = 0; i < n; i++)
		sum += times[i];
	for (int i = 0; i < n; i++)
		squares += (times[i] - sum / n) * (times[i] - sum / n);
	facts->step_spread = n > 1 && sum > 0 ? sqrt(squares / (n - 1)) / (sum / n) : NAN;
}

void activities_add(struct activities *a, const struct activity *activity)
{
	a->of = array_grow(a->of, &a->capacity, a->n + 1, sizeof(*a->of));
	a->of[a->n++] = *activity;
}

void activities_add_host(struct activities *a, const struct host_activity *activity)
{
	a->host = array_grow(a->host, &a->host_capacity, a->n_host + 1, sizeof(*a->host));
	a->host[a->n_host++] = *activity;
}

void activities_finish(struct activities *activities)
{
	free(activities->of);
	free(activities->host);
	*activities = (struct activities){0};
}

static enum activity_kind collective_of(enum op_kind kind)
{
	return kind == OP_ALL_GATHER       ? ACTIVITY_ALL_GATHER
	       : kind == OP_REDUCE_SCATTER ? ACTIVITY_REDUCE_SCATTER
	       : kind == OP_ALL_REDUCE     ? ACTIVITY_ALL_REDUCE
					   : ACTIVITY_OTHER_COLLECTIVE;
}

/* Returns false for what takes no time. */
static bool kind_of(const struct op *op, enum activity_kind *kind)
{
	enum op_class class = op_kind_class(op->kind);

	if (class == OP_CLASS_COLLECTIVE)
		*kind = collective_of(op->kind);
	else if (class == OP_CLASS_COPY)
		*kind = op->kind == OP_COPY_D2H ? ACTIVITY_COPY_OUT : ACTIVITY_COPY_IN;
	else
		*kind = ACTIVITY_COMPUTE;
	return class != OP_CLASS_MARK;
}

void activities_of_timeline(const struct schedule *schedule, const struct timeline *timeline,
	struct activities *activities)
{
	const struct program *program = &schedule->programs[0];

	activities->steps = 1;
	activities->start = 0;
	activities->end = timeline->step_time;
	for (int i = 0; i < program->n_ops; i++) {
		const struct span *span = &timeline->spans[i];
		struct activity activity = {
			.start = span->start, .end = span->end, .launched = span->issued};
		if (!kind_of(&program->ops[i], &activity.kind) || span->end <= span->start)
			continue;
		/* The bytes that kernels read and write are no message. */
		if (activity.kind != ACTIVITY_COMPUTE)
			activity.bytes = program->ops[i].bytes;
		activities_add(activities, &activity);
	}
}

/* --- summing up --- */

static int by_start(const void *left, const void *right)
{
	const struct activity *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return (int)a->kind - (int)b->kind;
}

static int by_host_start(const void *left, const void *right)
{
	const struct host_activity *a = left, *b = right;
	return (a->start > b->start) - (a->start < b->start);
}

static double overlap(double a, double b, double start, double end)
{
	return fmax(0, fmin(b, end) - fmax(a, start));
}

/* Counts a gap in which the device does nothing, before `next`, which is NULL at the end. Gaps come
 * in order, so `*first_host` skips what is over. */
static void count_gap(const struct activities *a, double start, double end,
	const struct activity *next, int *first_host, struct activity_summary *s)
{
	double left = end - start;
	double busy[HOST_KIND_COUNT] = {0};

	while (*first_host < a->n_host && a->host[*first_host].end < start)
		(*first_host)++;
	for (int i = *first_host; i < a->n_host && a->host[i].start < end; i++)
		busy[a->host[i].kind] += overlap(start, end, a->host[i].start, a->host[i].end);
	double data = fmin(left, busy[HOST_DATA]);
	left -= data;
	double allocator = fmin(left, busy[HOST_ALLOCATOR]);
	left -= allocator;
	double host = 0;
	if (next != NULL && !isnan(next->launched))
		host = fmin(left, fmax(0, fmin(next->launched, end) - start));
	s->waiting_data += data;
	s->waiting_allocator += allocator;
	s->waiting_host += host;
	s->longest_wait = fmax(s->longest_wait, host);
	s->waiting_other += left - host;
}

/* The sweep keeps how many activities of each kind run. Ends are kept apart, in a sorted list. */
struct end {
	double time;
	enum activity_kind kind;
};

static int by_time(const void *left, const void *right)
{
	const struct end *a = left, *b = right;
	return (a->time > b->time) - (a->time < b->time);
}

static void count_moment(const struct activities *a, const int running[ACTIVITY_KIND_COUNT],
	double from, double to, const struct activity *next, int *first_host,
	struct activity_summary *s)
{
	from = fmax(from, a->start);
	to = fmin(to, a->end);
	if (to <= from)
		return;
	for (int kind = 0; kind < ACTIVITY_KIND_COUNT; kind++) {
		if (running[kind] > 0) {
			s->exposed[kind] += to - from;
			return;
		}
	}
	count_gap(a, from, to, next, first_host, s);
}

static void sweep(const struct activities *a, struct activity_summary *s)
{
	struct end *ends = calloc((size_t)a->n + 1, sizeof(*ends));
	int running[ACTIVITY_KIND_COUNT] = {0}, next_end = 0, first_host = 0;
	double now = a->start;

	if (ends == NULL)
		base_out_of_memory((size_t)a->n * sizeof(*ends));
	for (int i = 0; i < a->n; i++)
		ends[i] = (struct end){a->of[i].end, a->of[i].kind};
	qsort(ends, (size_t)a->n, sizeof(*ends), by_time);
	for (int i = 0; i <= a->n; i++) {
		const struct activity *next = i < a->n ? &a->of[i] : NULL;
		double until = next != NULL ? next->start : a->end;
		while (next_end < a->n && ends[next_end].time <= until) {
			count_moment(a, running, now, ends[next_end].time, next, &first_host, s);
			now = fmax(now, ends[next_end].time);
			running[ends[next_end++].kind]--;
		}
		count_moment(a, running, now, until, next, &first_host, s);
		now = fmax(now, until);
		if (next != NULL)
			running[next->kind]++;
	}
	free(ends);
}

/* Takes the durations of collectives, whose spread mostly says how long they wait for others. */
static void durations(
	const struct activities *a, enum activity_kind kind, struct activity_summary *s)
{
	double *values = calloc((size_t)a->n + 1, sizeof(*values));
	int n = 0;

	if (values == NULL)
		base_out_of_memory((size_t)a->n * sizeof(*values));
	for (int i = 0; i < a->n; i++) {
		const struct activity *x = &a->of[i];
		if (x->kind == kind && x->start >= a->start && x->start < a->end)
			values[n++] = x->end - x->start;
	}
	sort_numbers(values, n);
	s->typical[kind] = quantile(values, n, 0.5);
	s->least[kind] = quantile(values, n, 0.1);
	free(values);
}

static void per_step(double *value, double steps)
{
	*value /= steps;
}

void activities_summarise(struct activities *a, struct activity_summary *s)
{
	double steps = a->steps > 0 ? a->steps : 1;

	*s = (struct activity_summary){0};
	if (a->n > 0)
		qsort(a->of, (size_t)a->n, sizeof(*a->of), by_start);
	if (a->n_host > 0)
		qsort(a->host, (size_t)a->n_host, sizeof(*a->host), by_host_start);
	for (int i = 0; i < a->n; i++) {
		const struct activity *x = &a->of[i];
		if (x->start < a->start || x->start >= a->end)
			continue;
		s->seconds[x->kind] += (x->end - x->start) / steps;
		s->bytes[x->kind] += (double)x->bytes / steps;
		s->count[x->kind] += 1 / steps;
	}
	for (int i = 0; i < a->n_host; i++)
		s->allocator_calls +=
			(a->host[i].kind == HOST_ALLOCATOR && a->host[i].start >= a->start &&
				a->host[i].start < a->end) /
			steps;
	for (int kind = 0; kind < ACTIVITY_KIND_COUNT; kind++)
		durations(a, kind, s);
	sweep(a, s);
	s->step_time = (a->end - a->start) / steps;
	for (int kind = 0; kind < ACTIVITY_KIND_COUNT; kind++)
		per_step(&s->exposed[kind], steps);
	per_step(&s->waiting_host, steps);
	per_step(&s->waiting_data, steps);
	per_step(&s->waiting_allocator, steps);
	per_step(&s->waiting_other, steps);
}
