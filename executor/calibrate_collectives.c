/* The shm collectives by size: in the ranks, timing; in the launcher, fitting. */
#include <stdlib.h>
#include <string.h>

#include "executor/calibrate.h"
#include "executor/comm.h"
#include "executor/heap.h"
#include "executor/launch.h"
#include "executor/machine.h"
#include "executor/rank.h"

enum { MAX_TRIES = 200, KINDS = 3, REPORT_ROOM = 1 << 20 };

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

/* --- in a rank --- */

struct timer {
	struct segment *segment;
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
	const struct timer *t, enum collective_kind kind, int64_t bytes)
{
	int64_t floats = bytes / (int64_t)sizeof(float);
	bool in_place = kind == COLLECTIVE_ALL_REDUCE;
	bool gathers = kind == COLLECTIVE_ALL_GATHER;

	return (struct collective){.kind = kind,
		.element = COMM_FP32,
		.group = {.size = t->comm.ranks, .stride = 1, .index = t->comm.rank},
		.count = in_place ? floats : floats / t->comm.ranks,
		.input = gathers ? t->chunk : t->whole,
		.output = gathers || in_place ? t->whole : t->chunk,
		.op = -1,
		.unit = -1};
}

static bool time_collective(struct timer *t, enum collective_kind kind, int64_t bytes)
{
	const struct collective c = collective_of(t, kind, bytes);
	bool quick = t->segment->header->job.quick;
	double times[MAX_TRIES], unused;
	/* Small ones are short and noisy, large ones long and steady. */
	int tries =
		(int)min_i64(MAX_TRIES, (quick ? 3 : 15) + (quick ? 16 << 20 : 64 << 20) / bytes);

	if (!time_once(t, &c, &unused))
		return false;
	for (int i = 0; i < tries; i++)
		if (!time_once(t, &c, &times[i]))
			return false;
	struct spread spread = measure_spread(times, tries);
	text_printf(&t->report, "%d,%lld,", (int)kind, (long long)bytes);
	text_number(&t->report, spread.p50);
	text_add_char(&t->report, ',');
	text_number(&t->report, (spread.p90 - spread.p10) / spread.p50);
	text_add_char(&t->report, '\n');
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

	t->context = (struct kernel_context){.threads = 1,
		.workspace = rank_reserve_workspace(),
		.workspace_bytes = KERNELS_WORKSPACE_BYTES};
	heap_init(&t->heap, segment_window(t->segment, t->segment->rank), header->window_bytes, 8);
	t->scratch = take(&t->heap, sizeof(double), error);
	t->whole = take(&t->heap, largest, error);
	t->chunk = take(&t->heap, largest, error);
	t->all = calloc((size_t)header->job.ranks, sizeof(double));
	if (t->all == NULL)
		base_out_of_memory(sizeof(double));
	return t->context.workspace != NULL && t->whole != NULL && t->chunk != NULL &&
	       kernels->open(&t->context, error) &&
	       comm_open_shm(&t->comm, t->segment, kernels, &t->context, error);
}

bool rank_time_collectives(struct segment *segment, struct error *error)
{
	struct timer timer = {.segment = segment};
	struct size_list list = sizes_of(segment->header->job.quick);
	bool ok = open_timer(&timer, error);

	for (int kind = 0; kind < KINDS && ok; kind++)
		for (int i = 0; i < list.n && ok; i++)
			ok = time_collective(&timer, (enum collective_kind)kind, list.bytes[i]);
	if (ok && segment->rank == 0)
		ok = rank_report(segment, &timer.report, error);
	comm_close(&timer.comm);
	kernels_cpu()->close(&timer.context);
	rank_release_workspace(timer.context.workspace);
	heap_finish(&timer.heap);
	free(timer.all);
	text_finish(&timer.report);
	return ok;
}

/* --- in the launcher --- */

struct point {
	int64_t bytes;
	double seconds;
};

/* The line through two points; never a negative latency. */
static void fit_piece(
	const struct point *a, const struct point *b, struct calibration_collective *piece)
{
	double bytes = (double)(b->bytes - a->bytes), seconds = b->seconds - a->seconds;

	piece->bandwidth = seconds > 0 ? bytes / seconds : (double)b->bytes / b->seconds;
	piece->latency = a->seconds - (double)a->bytes / piece->bandwidth;
	if (piece->latency >= 0)
		return;
	piece->latency = 0;
	piece->bandwidth = (double)b->bytes / b->seconds;
}

static void add_pieces(struct bench *bench, enum collective_kind kind, int64_t ranks,
	const struct point *points, int n)
{
	struct calibration *c = bench->calibration;

	for (int i = 0; i + 1 < n; i++) {
		struct calibration_collective *piece = &c->collectives[c->n_collectives++];

		*piece = (struct calibration_collective){.collective = kind,
			.ranks = ranks,
			.nodes = 1,
			.from_bytes = i == 0 ? 0 : points[i].bytes};
		fit_piece(&points[i], &points[i + 1], piece);
	}
	bench_say(bench, "%s, %lld ranks: %.0f us at %lld KiB, %.2f GB/s at %lld MiB",
		collective_kind_names[kind], (long long)ranks, points[0].seconds * 1e6,
		(long long)points[0].bytes >> 10,
		(double)points[n - 1].bytes / points[n - 1].seconds / 1e9,
		(long long)points[n - 1].bytes >> 20);
}

static bool read_report(struct bench *bench, const struct segment *segment, int64_t ranks)
{
	struct size_list list = sizes_of(bench->options->quick);
	const char *line = segment_report(segment);
	struct point points[COUNT_OF(sizes)];

	for (int kind = 0; kind < KINDS; kind++) {
		for (int i = 0; i < list.n; i++) {
			char *end;

			strtol(line, &end, 10);
			points[i].bytes = strtoll(end + 1, &end, 10);
			points[i].seconds = strtod(end + 1, &end);
			double width = strtod(end + 1, &end);
			const struct spread spread = {
				.p10 = 1 - width / 2, .p50 = 1, .p90 = 1 + width / 2};
			bench_note_spread(bench, &spread);
			line = end + 1;
			if (points[i].bytes != list.bytes[i] || points[i].seconds <= 0)
				return false;
		}
		add_pieces(bench, (enum collective_kind)kind, ranks, points, list.n);
	}
	return true;
}

static bool time_ranks(struct bench *bench, int64_t ranks, struct error *error)
{
	static const char *const texts[TEXT_COUNT];
	struct size_list list = sizes_of(bench->options->quick);
	const struct job job = {.kind = JOB_COLLECTIVES,
		.ranks = (int)ranks,
		.threads = 1,
		.collective_timeout = 60,
		.quick = bench->options->quick};
	struct segment segment;
	int64_t window = 2 * list.bytes[list.n - 1] + (1 << 20);

	if (!segment_create(&segment, &job, texts, 0, REPORT_ROOM, window, error))
		return false;
	bool ok = launch_ranks(
		&(struct launch){.program = bench->options->program, .segment = &segment}, error);
	if (ok && !read_report(bench, &segment, ranks))
		ok = error_set(error, EXIT_CODE_INTERNAL, "ranks sent a broken report");
	segment_finish(&segment);
	return ok;
}

static int compare_collectives(const void *a, const void *b)
{
	return calibration_compare(a, b);
}

bool calibrate_collectives(struct bench *bench, struct error *error)
{
	static const int64_t default_ranks[] = {2, 4, 8};
	const int64_t *ranks = bench->options->ranks;
	int n = ranks != NULL ? bench->options->n_ranks : COUNT_OF(default_ranks);
	struct calibration *c = bench->calibration;

	ranks = ranks != NULL ? ranks : default_ranks;
	c->collectives = ARENA_ARRAY(
		bench->arena, struct calibration_collective, n * KINDS * COUNT_OF(sizes));
	for (int i = 0; i < n; i++)
		if (ranks[i] > 1 && !time_ranks(bench, ranks[i], error))
			return false;
	qsort(c->collectives, (size_t)c->n_collectives, sizeof(c->collectives[0]),
		compare_collectives);
	return true;
}
