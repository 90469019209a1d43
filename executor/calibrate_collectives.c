/* The shm collectives by size: in the ranks, timing; in the launcher, fitting. */
#include <stdlib.h>
#include <string.h>

#include "executor/calibrate.h"
#include "executor/cluster.h"
#include "executor/heap.h"
#include "executor/launch.h"
#include "executor/machine.h"
#include "executor/rank.h"

enum { MAX_TRIES = 200, LEAST_TRIES = 3, LEAST_SIZES = 3, KINDS = 3, REPORT_ROOM = 1 << 20 };

/* Seconds of the largest collective that is timed. */
#define LONGEST_QUICK 0.5
#define LONGEST       2.0

/* Full (gathered) sizes, bytes; a quick run does the first and last and some between. */
static const int64_t sizes[] = {4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
static const int64_t quick_sizes[] = {4 << 10, 256 << 10, 4 << 20, 32 << 20};

struct size_list {
	const int64_t *bytes;
	int n;
};

static struct size_list sizes_of(bool quick)
{
	if (quick)
		return (struct size_list){quick_sizes, COUNT_OF(quick_sizes)};
	return (struct size_list){sizes, COUNT_OF(sizes)};
}

/* Two buffers of the largest size, and something small. */
static int64_t window_bytes(bool quick)
{
	struct size_list list = sizes_of(quick);

	return 2 * list.bytes[list.n - 1] + (1 << 20);
}

/* --- in a rank --- */

struct timer {
	struct segment *segment;
	struct cluster cluster;
	struct comm comm;
	struct kernel_context context;
	struct heap heap;
	void *scratch, *whole, *chunk;
	double *all; /* [ranks] seconds of one try */
	struct text report;
};

/* The slowest rank's seconds of one collective; false after a fault. */
static bool time_once(struct timer *t, const struct collective *c, double *slowest)
{
	double start, seconds;

	if (!comm_exchange(&t->comm, t->scratch, t->all, sizeof(double)))
		return false;
	start = clock_now();
	if (!comm_run(&t->comm, c))
		return false;
	seconds = clock_now() - start;
	memcpy(t->scratch, &seconds, sizeof(seconds));
	if (!comm_exchange(&t->comm, t->scratch, t->all, sizeof(double)))
		return false;
	*slowest = 0;
	for (int r = 0; r < t->comm.ranks; r++)
		*slowest = t->all[r] > *slowest ? t->all[r] : *slowest;
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
		.unit = -1};
}

/* Every rank sees the same times, so that all stop at the same try. */
static bool time_tries(
	struct timer *t, const struct collective *c, int64_t bytes, double *times, int *n)
{
	bool quick = t->segment->header->job.quick;
	/* Small ones are short and noisy, large ones long and steady. */
	int tries =
		(int)min_i64(MAX_TRIES, (quick ? 3 : 15) + (quick ? 16 << 20 : 64 << 20) / bytes);
	double unused, total = 0;

	*n = 0;
	if (!time_once(t, c, &unused))
		return false;
	while (*n < LEAST_TRIES || (*n < tries && total < (quick ? 0.5 : 3))) {
		if (!time_once(t, c, &times[*n]))
			return false;
		total += times[(*n)++];
	}
	return true;
}

/* `seconds`: of one such collective. */
static bool time_collective(struct timer *t, const struct group *group, enum collective_kind kind,
	int64_t bytes, double *seconds)
{
	const struct collective c = collective_of(t, group, kind, bytes);
	double times[MAX_TRIES];
	int n;

	if (!time_tries(t, &c, bytes, times, &n))
		return false;
	struct spread spread = measure_spread(times, n);
	*seconds = spread.p50;
	text_printf(&t->report, "%d,%lld,%lld,%lld,", (int)kind, (long long)group->size,
		(long long)(group->stride > 1 || group->size > t->cluster.layout.per_node
				    ? t->comm.ranks / t->cluster.layout.per_node
				    : 1),
		(long long)bytes);
	text_number(&t->report, spread.p50);
	text_add_char(&t->report, ',');
	text_number(&t->report, (spread.p90 - spread.p10) / spread.p50);
	text_add_char(&t->report, '\n');
	return true;
}

static bool time_group(struct timer *t, const struct group *group)
{
	struct size_list list = sizes_of(t->segment->header->job.quick);
	double longest = t->segment->header->job.quick ? LONGEST_QUICK : LONGEST;
	bool ok = true;

	for (int kind = 0; kind < KINDS && ok; kind++) {
		double seconds = 0;

		/* A slow link needs no larger ones: what they take is in the last piece's line. */
		for (int i = 0; i < list.n && ok; i++) {
			double growth =
				i > 0 ? (double)list.bytes[i] / (double)list.bytes[i - 1] : 1;

			if (i < LEAST_SIZES || seconds * growth < longest)
				ok = time_collective(t, group, (enum collective_kind)kind,
					list.bytes[i], &seconds);
			else
				break;
		}
	}
	return ok;
}

/* Inside a node; one rank of each node, all such groups at once, as a hybrid's replicas meet; and
 * all ranks. */
static bool time_groups(struct timer *t)
{
	int64_t ranks = t->comm.ranks, local = t->cluster.layout.per_node, nodes = ranks / local;
	const struct group groups[] = {{.size = local, .stride = 1},
		{.size = nodes, .stride = local}, {.size = ranks, .stride = 1}};
	bool needed[] = {local > 1, nodes > 1 && local > 1, nodes > 1};

	text_printf(&t->report, "%lld,%lld\n", (long long)nodes, (long long)local);
	for (int i = 0; i < COUNT_OF(groups); i++)
		if (needed[i] && !time_group(t, &groups[i]))
			return false;
	return true;
}

static void *take(struct heap *heap, int64_t bytes, struct error *error)
{
	int block = heap_take(heap, bytes, error);

	return block >= 0 ? memset(heap_address(heap, block), 0, (size_t)bytes) : NULL;
}

static bool open_timer(struct timer *t, struct error *error)
{
	const struct segment_header *header = t->segment->header;
	struct size_list list = sizes_of(header->job.quick);
	int64_t largest = list.bytes[list.n - 1];
	const struct kernels *kernels = kernels_cpu();

	if (!cluster_join(&t->cluster, t->segment, window_bytes(header->job.quick), error))
		return false;
	t->context = (struct kernel_context){.threads = 1,
		.workspace = rank_reserve_workspace(),
		.workspace_bytes = KERNELS_WORKSPACE_BYTES};
	heap_init(&t->heap, t->cluster.window, t->cluster.window_bytes, 8);
	t->scratch = take(&t->heap, sizeof(double), error);
	t->whole = take(&t->heap, largest, error);
	t->chunk = take(&t->heap, largest, error);
	t->all = calloc((size_t)header->job.ranks, sizeof(double));
	if (t->all == NULL)
		base_out_of_memory(sizeof(double));
	return t->context.workspace != NULL && t->whole != NULL && t->chunk != NULL &&
	       kernels->open(&t->context, error) &&
	       cluster_open_comm(&t->cluster, &t->comm, kernels, &t->context, error);
}

bool rank_time_collectives(struct segment *segment, struct error *error)
{
	struct timer timer = {.segment = segment};
	bool ok = open_timer(&timer, error) && time_groups(&timer);

	if (ok && segment->rank == 0)
		ok = rank_report(segment, &timer.report, error);
	comm_close(&timer.comm);
	cluster_leave(&timer.cluster, ok);
	kernels_cpu()->close(&timer.context);
	rank_release_workspace(timer.context.workspace);
	heap_finish(&timer.heap);
	free(timer.all);
	text_finish(&timer.report);
	return ok;
}

/* --- in the launcher --- */

/* The line through two points; never a negative latency. */
static void fit_piece(const struct collective_point *a, const struct collective_point *b,
	struct calibration_collective *piece)
{
	double bytes = (double)(b->bytes - a->bytes), seconds = b->seconds - a->seconds;

	piece->bandwidth = seconds > 0 ? bytes / seconds : (double)b->bytes / b->seconds;
	piece->latency = a->seconds - (double)a->bytes / piece->bandwidth;
	if (piece->latency >= 0)
		return;
	piece->latency = 0;
	piece->bandwidth = (double)b->bytes / b->seconds;
}

void bench_add_curve(struct bench *bench, const struct collective_curve *curve)
{
	struct calibration *c = bench->calibration;
	const struct collective_point *points = curve->points;
	int n = curve->n;

	for (int i = 0; i + 1 < n; i++) {
		struct calibration_collective *piece = &c->collectives[c->n_collectives++];

		*piece = (struct calibration_collective){.collective = curve->kind,
			.ranks = curve->ranks,
			.nodes = curve->nodes,
			.from_bytes = i == 0 ? 0 : points[i].bytes};
		fit_piece(&points[i], &points[i + 1], piece);
	}
	bench_say(bench, "%s, %lld ranks on %lld nodes: %.0f us at %lld KiB, %.2f GB/s at %lld MiB",
		collective_kind_names[curve->kind], (long long)curve->ranks,
		(long long)curve->nodes, points[0].seconds * 1e6, (long long)points[0].bytes >> 10,
		(double)points[n - 1].bytes / points[n - 1].seconds / 1e9,
		(long long)points[n - 1].bytes >> 20);
}

/* One line: kind, ranks, nodes, bytes, seconds, spread. False at the end, or when it is broken. */
static bool read_point(struct bench *bench, const char **line, struct collective_curve *of,
	struct collective_point *point)
{
	char *end;

	if (**line == '\0')
		return false;
	of->kind = (enum collective_kind)strtol(*line, &end, 10);
	of->ranks = strtoll(end + 1, &end, 10);
	of->nodes = strtoll(end + 1, &end, 10);
	point->bytes = strtoll(end + 1, &end, 10);
	point->seconds = strtod(end + 1, &end);
	double width = strtod(end + 1, &end);
	const struct spread spread = {.p10 = 1 - width / 2, .p50 = 1, .p90 = 1 + width / 2};
	bench_note_spread(bench, &spread);
	*line = end + 1;
	return point->bytes > 0 && point->seconds > 0;
}

static bool read_report(struct bench *bench, const struct segment *segment)
{
	const char *line = segment_report(segment);
	struct collective_curve curve = {0}, of = {0};
	struct collective_point point;
	char *end;

	bench->nodes = strtoll(line, &end, 10);
	bench->ranks_per_node = strtoll(end + 1, &end, 10);
	line = end + 1;
	while (read_point(bench, &line, &of, &point)) {
		bool same =
			of.kind == curve.kind && of.ranks == curve.ranks && of.nodes == curve.nodes;

		if (!same && curve.n > 0)
			bench_add_curve(bench, &curve);
		if (!same)
			curve = of;
		curve.points[curve.n++] = point;
	}
	if (curve.n > 0)
		bench_add_curve(bench, &curve);
	return curve.n > 0 && *line == '\0';
}

static bool time_ranks(struct bench *bench, int64_t ranks, struct error *error)
{
	const struct launcher *launcher = &bench->options->launcher;
	const char *const texts[TEXT_COUNT] = {
		[TEXT_LAUNCHER] = launcher->name, [TEXT_HOST] = launcher->host};
	bool launched = launcher->ranks > 1;
	const struct job job = {.kind = JOB_COLLECTIVES,
		.ranks = (int)ranks,
		.meets = launcher_meets(launcher),
		.port = launcher->port,
		.local_rank = launcher->local_rank,
		.join_timeout = launcher_join_timeout(launcher),
		.threads = 1,
		.collective_timeout = 60,
		.quick = bench->options->quick};
	struct segment segment;
	const struct launch launch = {.program = bench->options->program,
		.segment = &segment,
		.first = launcher->rank,
		.count = launched ? 1 : 0};

	if (!segment_create(&segment, &job, texts, 0, REPORT_ROOM,
		    launched ? 0 : window_bytes(bench->options->quick), error))
		return false;
	bool ok = launch_ranks(&launch, error);
	if (ok && launcher->rank == 0 && !read_report(bench, &segment))
		ok = error_set(error, EXIT_CODE_INTERNAL, "ranks sent a broken report");
	segment_finish(&segment);
	return ok;
}

static int compare_collectives(const void *a, const void *b)
{
	return calibration_compare(a, b);
}

void bench_make_room(struct bench *bench, int groups)
{
	bench->calibration->collectives = ARENA_ARRAY(
		bench->arena, struct calibration_collective, groups * KINDS * CURVE_POINTS);
}

void bench_sort_curves(struct bench *bench)
{
	struct calibration *c = bench->calibration;

	qsort(c->collectives, (size_t)c->n_collectives, sizeof(c->collectives[0]),
		compare_collectives);
}

bool calibrate_collectives(struct bench *bench, struct error *error)
{
	static const int64_t default_ranks[] = {2, 4, 8};
	const int64_t *ranks = bench->options->ranks;
	int n = ranks != NULL ? bench->options->n_ranks : COUNT_OF(default_ranks);
	int64_t launched_ranks;

	ranks = ranks != NULL ? ranks : default_ranks;
	bench_make_room(bench, n + 3);
	if (bench->options->launcher.ranks > 1) {
		launched_ranks = bench->options->launcher.ranks;
		ranks = &launched_ranks;
		n = 1;
	}
	for (int i = 0; i < n; i++)
		if (ranks[i] > 1 && !time_ranks(bench, ranks[i], error))
			return false;
	bench_sort_curves(bench);
	return true;
}
