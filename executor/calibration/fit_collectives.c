/* Makes lines between sizes out of the times that the ranks have taken of collectives. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "executor/calibration/bench.h"
#include "executor/calibration/timer.h"
#include "executor/launch/launch.h"

enum { KINDS = 3, REPORT_ROOM = 1 << 20 };
/* One run of ranks times at most so many groups: parts of a node, and the three levels. */
enum { MOST_GROUPS = 16 };

/* Finds the line through two points. Its latency is never negative. */
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

static void add_curve(struct bench *bench, const struct collective_curve *curve)
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

/* Reads one line: kind, ranks, nodes, bytes, seconds, spread. False at the end, or when the line is
 * broken. */
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
	double width = strtod(end + 1, &end), best = strtod(end + 1, &end);
	const struct spread spread = {.p10 = 1 - width / 2, .p50 = 1, .p90 = 1 + width / 2};
	bench_note_spread(bench, &spread);
	bench->collective_best += best;
	bench->n_collectives++;
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
			add_curve(bench, &curve);
		if (!same)
			curve = of;
		curve.points[curve.n++] = point;
	}
	if (curve.n > 0)
		add_curve(bench, &curve);
	return curve.n > 0 && *line == '\0';
}

/* Times the collectives of `device`, or those of the host if it is NULL. */
static bool time_ranks(struct bench *bench, int64_t ranks, const char *device, struct error *error)
{
	const struct launcher *launcher = &bench->options->launcher;
	const char *const texts[TEXT_COUNT] = {[TEXT_LAUNCHER] = launcher->name,
		[TEXT_HOST] = launcher->host,
		[TEXT_DEVICE] = device};
	bool launched = launcher->ranks > 1, quick = bench->options->quick;
	const struct job job = {.kind = JOB_COLLECTIVES,
		.ranks = (int)ranks,
		.meets = launcher_meets(launcher),
		.port = launcher->port,
		.local_rank = launcher->local_rank,
		.join_timeout = launcher_join_timeout(launcher),
		.threads = 1,
		.collective_timeout =
			device != NULL ? fmax(PATIENCE_UNKNOWN, launcher_join_timeout(launcher))
				       : 60,
		.grace = device != NULL ? LAUNCH_GRACE_GPU : LAUNCH_GRACE,
		.nccl = bench->options->nccl,
		.quick = quick};
	struct segment segment;
	const struct launch launch = {.program = bench->options->program,
		.segment = &segment,
		.first = launcher->rank,
		.count = launched ? 1 : 0};

	if (!segment_create(&segment, &job, texts, 0, REPORT_ROOM,
		    launched ? 0 : timer_window_bytes(quick, device != NULL), error))
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

static void sort_curves(struct bench *bench)
{
	struct calibration *c = bench->calibration;

	qsort(c->collectives, (size_t)c->n_collectives, sizeof(c->collectives[0]),
		compare_collectives);
}

/* Makes room for the curves of so many groups. */
static void make_room(struct bench *bench, int groups)
{
	bench->calibration->collectives = ARENA_ARRAY(
		bench->arena, struct calibration_collective, groups * KINDS * CURVE_POINTS);
}

bool calibrate_collectives(struct bench *bench, struct error *error)
{
	static const int64_t default_ranks[] = {2, 4, 8};
	const int64_t *ranks = bench->options->ranks;
	int n = ranks != NULL ? bench->options->n_ranks : COUNT_OF(default_ranks);
	int64_t launched_ranks;

	ranks = ranks != NULL ? ranks : default_ranks;
	make_room(bench, n + MOST_GROUPS);
	if (bench->options->launcher.ranks > 1) {
		launched_ranks = bench->options->launcher.ranks;
		ranks = &launched_ranks;
		n = 1;
	}
	for (int i = 0; i < n; i++)
		if (ranks[i] > 1 && !time_ranks(bench, ranks[i], NULL, error))
			return false;
	sort_curves(bench);
	return true;
}

bool calibrate_gpu_collectives(struct bench *bench, int gpus, struct error *error)
{
	int ranks = bench->options->launcher.ranks > 1 ? bench->options->launcher.ranks : gpus;

	make_room(bench, MOST_GROUPS);
	bench->nodes = 1;
	bench->ranks_per_node = ranks;
	if (ranks > 1 && !time_ranks(bench, ranks, "cuda", error))
		return false;
	sort_curves(bench);
	return true;
}
