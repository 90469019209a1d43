/* Times collectives of all levels, in the ranks. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "executor/calibration/timer.h"
#include "executor/interpreter/interpreter.h"

enum { MAX_TRIES = 200, LEAST_TRIES = 3, LEAST_SIZES = 3, KINDS = 3 };

/* If times lie further apart than this (p90 - p10 over the median), the link is unsteady. */
#define UNSTEADY   0.2
#define MORE_TRIES 4

/* Seconds of the largest collective that is timed. */
#define LONGEST_QUICK 0.5
#define LONGEST       2.0

/* A quick run times the first and the last, and some in between. */
static const int64_t sizes[] = {4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
static const int64_t quick_sizes[] = {4 << 10, 256 << 10, 4 << 20, 32 << 20};

struct timer_sizes timer_host_sizes(bool quick)
{
	if (quick)
		return (struct timer_sizes){quick_sizes, COUNT_OF(quick_sizes), 0, LONGEST_QUICK};
	return (struct timer_sizes){sizes, COUNT_OF(sizes), 0, LONGEST};
}

/* Returns something small, or on a host room for two buffers of the largest size. */
int64_t timer_window_bytes(bool quick, bool on_gpu)
{
	struct timer_sizes list = timer_host_sizes(quick);

	return (1 << 20) + (on_gpu ? 0 : 2 * list.bytes[list.n - 1]);
}

/* --- one collective --- */

static bool spans_nodes(const struct timer *t, const struct group *group)
{
	return group->stride > 1 || group->size > t->cluster.layout.per_node;
}

/* Returns what the slowest rank says. Over nodes it is the mean of what their slowest ranks say:
 * nodes leave the exchange before at times that differ by up to the link's latency, and what is
 * sent meets the early one that much later and the late one that much sooner. In a step, where
 * collectives follow each other, the two take turns. */
static struct timer_try outcome(const struct timer *t, bool over_nodes)
{
	int ranks = t->comm.ranks, per = over_nodes ? t->cluster.layout.per_node : ranks;
	struct timer_try all = {0};

	for (int first = 0; first < ranks; first += per) {
		double slowest = 0;

		for (int r = first; r < first + per; r++) {
			slowest = fmax(slowest, t->all[r].seconds);
			all.since = fmax(all.since, t->all[r].since);
		}
		all.seconds += slowest * per / ranks;
	}
	return all;
}

/* Returns false after a fault. */
static bool time_once(struct timer *t, const struct collective *c, double began, bool over_nodes,
	struct timer_try *all, struct error *error)
{
	struct timer_try own;

	if (!comm_exchange(&t->comm, t->scratch, t->all, sizeof(own)) ||
		!t->run(t, c, &own.seconds, error))
		return false;
	own.since = clock_now() - began;
	memcpy(t->scratch, &own, sizeof(own));
	if (!comm_exchange(&t->comm, t->scratch, t->all, sizeof(own)))
		return false;
	*all = outcome(t, over_nodes);
	return true;
}

static struct collective collective_of(
	const struct timer *t, const struct group *group, enum collective_kind kind, int64_t bytes)
{
	int64_t floats = bytes / (int64_t)sizeof(float);
	bool in_place = kind == COLLECTIVE_ALL_REDUCE;
	bool gathers = kind == COLLECTIVE_ALL_GATHER;

	return (struct collective){.kind = kind,
		.element = COMM_FP32,
		.group = comm_group_of(group, t->comm.rank),
		.count = in_place ? floats : floats / group->size,
		.input = gathers ? t->chunk : t->whole,
		.output = gathers || in_place ? t->whole : t->chunk,
		.op = -1,
		.unit = -1,
		.group_index = (int)(group - t->groups)};
}

/* Small ones are short and noisy, large ones long and steady. */
static int tries_of(const struct timer *t, int64_t bytes)
{
	bool quick = t->segment->header->job.quick;

	if (t->sizes.tries > 0)
		return t->sizes.tries;
	return (int)min_i64(MAX_TRIES, (quick ? 3 : 15) + (quick ? 16 << 20 : 64 << 20) / bytes);
}

/* Do so many tries tell the typical one? A link that loses frames is unsteady, and a quick run then
 * takes more tries, as a full one does anyway. Every rank sees the same times, so all stop at the
 * same try. */
static bool suffice(
	const struct timer *t, int64_t bytes, bool over_nodes, double *times, int n, double since)
{
	bool quick = t->segment->header->job.quick;
	double most = quick ? 0.5 : 3;
	int more = 1;

	if (n < LEAST_TRIES)
		return false;
	if (over_nodes && quick) {
		struct spread spread = measure_spread(times, n);

		more = spread.p90 - spread.p10 > UNSTEADY * spread.p50 ? MORE_TRIES : 1;
	}
	return n >= min_i64(MAX_TRIES, more * tries_of(t, bytes)) || since >= more * most;
}

static bool time_tries(struct timer *t, bool over_nodes, const struct collective *c, int64_t bytes,
	double *times, int *n, struct error *error)
{
	double began = clock_now();
	struct timer_try all;

	*n = 0;
	if (!time_once(t, c, began, over_nodes, &all, error))
		return false;
	while (!suffice(t, bytes, over_nodes, times, *n, all.since)) {
		if (!time_once(t, c, began, over_nodes, &all, error))
			return false;
		times[(*n)++] = all.seconds;
	}
	return true;
}

/* A step waits for the sum of its collectives, and so for the mean of each. Over nodes the mean is
 * more than the median if frames are lost or others use the link. A try above the 90th percentile
 * counts as much as that one, because hiccups of the machine are not those of a link. */
static double typical(const struct spread *spread, const double *times, int n, bool over_nodes)
{
	double mean = 0;

	for (int i = 0; i < n; i++)
		mean += fmin(times[i], spread->p90) / n;
	return over_nodes ? mean : spread->p50;
}

/* `seconds` is the time of one such collective. */
static bool time_collective(struct timer *t, const struct group *group, enum collective_kind kind,
	int64_t bytes, double *seconds, struct error *error)
{
	const struct collective c = collective_of(t, group, kind, bytes);
	int64_t ranks = t->comm.ranks, local = t->cluster.layout.per_node;
	bool over_nodes = spans_nodes(t, group);
	double times[MAX_TRIES];
	int n;

	if (!time_tries(t, over_nodes, &c, bytes, times, &n, error))
		return false;
	struct spread spread = measure_spread(times, n);
	*seconds = typical(&spread, times, n, over_nodes);
	text_printf(&t->report, "%d,%lld,%lld,%lld,", (int)kind, (long long)group->size,
		(long long)(over_nodes ? ranks / local : 1), (long long)bytes);
	text_number(&t->report, *seconds);
	text_add_char(&t->report, ',');
	text_number(&t->report, (spread.p90 - spread.p10) / *seconds);
	text_add_char(&t->report, ',');
	text_number(&t->report, spread.p10 / *seconds);
	text_add_char(&t->report, '\n');
	return true;
}

/* --- all of them --- */

/* A slow link needs no larger sizes, because the line of the last piece has what they take. */
static bool time_sizes(
	struct timer *t, const struct group *group, enum collective_kind kind, struct error *error)
{
	const struct timer_sizes *list = &t->sizes;
	double seconds = 0;

	for (int i = 0; i < list->n; i++) {
		double growth = i > 0 ? (double)list->bytes[i] / (double)list->bytes[i - 1] : 1;

		if (i >= LEAST_SIZES && seconds * growth >= list->longest)
			break;
		if (!time_collective(t, group, kind, list->bytes[i], &seconds, error))
			return false;
	}
	return true;
}

void timer_choose_groups(struct timer *t, bool parts, struct arena *arena)
{
	int64_t ranks = t->comm.ranks, local = t->cluster.layout.per_node, nodes = ranks / local;
	/* The levels are: inside of a node; one rank of each node, all such groups at once, as a
	 * hybrid's replicas meet; and all ranks. */
	const struct group levels[] = {{.size = local, .stride = 1},
		{.size = nodes, .stride = local}, {.size = ranks, .stride = 1}};
	const bool needed[] = {local > 1, nodes > 1 && local > 1, nodes > 1};

	t->groups = ARENA_ARRAY(arena, struct group, 64 + COUNT_OF(levels));
	for (int64_t n = 2; parts && n < local; n *= 2)
		if (local % n == 0)
			t->groups[t->n_groups++] = (struct group){.size = n, .stride = 1};
	for (int i = 0; i < COUNT_OF(levels); i++)
		if (needed[i])
			t->groups[t->n_groups++] = levels[i];
}

bool timer_run(struct timer *t, struct error *error)
{
	int local = t->cluster.layout.per_node;

	text_printf(&t->report, "%d,%d\n", t->comm.ranks / local, local);
	for (int g = 0; g < t->n_groups; g++)
		for (int kind = 0; kind < KINDS; kind++)
			if (!time_sizes(t, &t->groups[g], (enum collective_kind)kind, error))
				return false;
	return t->segment->rank > 0 || segment_leave_report(t->segment, &t->report, error);
}

void *timer_take(struct timer *t, int64_t bytes, struct error *error)
{
	int block = heap_take(&t->heap, bytes, error);

	return block >= 0 ? memset(heap_address(&t->heap, block), 0, (size_t)bytes) : NULL;
}

bool timer_open(struct timer *t, int64_t window_bytes, struct error *error)
{
	const struct kernels *kernels = kernels_cpu();

	if (!cluster_join(&t->cluster, t->segment, window_bytes, error))
		return false;
	t->context = (struct kernel_context){.threads = 1,
		.workspace = workspace_reserve(),
		.workspace_bytes = KERNELS_WORKSPACE_BYTES};
	heap_init(&t->heap, t->cluster.window, t->cluster.window_bytes, 8);
	t->scratch = timer_take(t, sizeof(*t->all), error);
	t->all = calloc((size_t)t->segment->header->job.ranks, sizeof(*t->all));
	if (t->all == NULL)
		base_out_of_memory(sizeof(*t->all));
	return t->context.workspace != NULL && t->scratch != NULL &&
	       kernels->open(&t->context, error) &&
	       cluster_open_comm(&t->cluster, &t->comm, kernels, &t->context, error);
}

void timer_close(struct timer *t, bool sound)
{
	comm_close(&t->comm);
	cluster_leave(&t->cluster, sound);
	kernels_cpu()->close(&t->context);
	workspace_release(t->context.workspace);
	heap_finish(&t->heap);
	free(t->all);
	text_finish(&t->report);
}
