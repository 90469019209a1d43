/* The tables of the report. */
#include "bench/collectives/collectives.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LISTED_BELOW = 10, WORST = 12, KEYS_MAX = 256 };

/* The group of a row, as text. */
typedef const char *(*key_function)(struct arena *arena, const struct published *row);

static const char *key_source(struct arena *arena, const struct published *row)
{
	(void)arena;
	return row->source;
}

static const char *key_device(struct arena *arena, const struct published *row)
{
	(void)arena;
	return row->device;
}

static const char *key_nodes(struct arena *arena, const struct published *row)
{
	return arena_printf(arena, "%2lld", (long long)row->nodes);
}

static const char *key_algorithm(struct arena *arena, const struct published *row)
{
	return arena_printf(arena, "%s %s", row->algorithm, row->protocol);
}

static const char *key_size(struct arena *arena, const struct published *row)
{
	static const char *const names[] = {
		"1: 64 KiB to 1 MiB", "2: 1 to 16 MiB", "3: 16 to 256 MiB", "4: 256 MiB to 8 GiB"};
	int decade = 0;

	(void)arena;
	for (int64_t bytes = row->bytes >> 20; bytes > 0 && decade < 3; bytes >>= 4)
		decade++;
	return names[decade];
}

/* The bar to which a row belongs. */
static const char *key_bar(struct arena *arena, const struct published *row)
{
	static const char *const names[] = {[BAR_GATHERS] = "all-gather, reduce-scatter",
		[BAR_ALL_REDUCE] = "all-reduce",
		[BAR_MESSAGES] = "messages"};

	(void)arena;
	return names[collective_bar(row->collective)];
}

static const char *const level_names[] = {"one host", "NVLink domain of hosts", "across nodes"};

static int level_of(const struct published *row)
{
	return row->nodes > 1 ? 2 : row->domain;
}

static const char *key_level(struct arena *arena, const struct published *row)
{
	return arena_printf(arena, "%s: %s", key_bar(arena, row), level_names[level_of(row)]);
}

static const char *key_bar_size(struct arena *arena, const struct published *row)
{
	return arena_printf(arena, "%s, %s", key_bar(arena, row), key_size(arena, row));
}

static const char *part_name(const struct published *row)
{
	return row->part == PART_LATER ? "later" : part_names[row->part];
}

/* A source of the batch has a part for each bar. */
static const char *source_part(const struct published *row)
{
	return row->handed ? "handed" : part_name(row);
}

static const char *key_part(struct arena *arena, const struct published *row)
{
	return arena_printf(arena, "%s: %s", part_name(row), key_bar(arena, row));
}

/* What decides the time of a row: latency, both, or the links. */
static const char *key_regime(struct arena *arena, const struct published *row)
{
	static const char *const names[] = {
		"1: latency, to 1 MiB", "2: middle, to 64 MiB", "3: bandwidth, from 64 MiB"};
	int regime = (row->bytes > (int64_t)1 << 20) + (row->bytes >= (int64_t)64 << 20);

	return arena_printf(arena, "%s, %s", key_part(arena, row), names[regime]);
}

static const char *key_machine(struct arena *arena, const struct published *row)
{
	return arena_printf(arena, "%s, %s, %s%s", key_part(arena, row), row->device, row->links,
		row->domain ? " of several hosts" : "");
}

static const char *key_kind(struct arena *arena, const struct published *row)
{
	return arena_printf(
		arena, "%s: %s", part_name(row), collective_kind_names[row->collective]);
}

/* Groups rows by the split without the batch, and the batch. */
static const char *key_handed(struct arena *arena, const struct published *row)
{
	return arena_printf(
		arena, "%s, %s", key_part(arena, row), row->handed ? "handed" : "as it was before");
}

static const char *key_later(struct arena *arena, const struct published *row)
{
	return arena_printf(arena, "%s, %s", row->source, collective_kind_names[row->collective]);
}

static void print_listed(const struct sample *sample)
{
	printf(" listed:");
	for (int i = 0; i < sample->n; i++)
		printf(" %+.0f", 100 * sample->errors[i]);
	printf(" | | | | ");
}

static void print_line(const char *name, const struct sample *sample, const struct sample *plain)
{
	struct summary summary = sample_summary(sample);

	printf("| %s | %d |", name, summary.n);
	if (summary.n < LISTED_BELOW)
		print_listed(sample);
	else
		printf(" %.1f | %.1f | %.1f | %+.1f |", 100 * summary.median, 100 * summary.mean,
			100 * summary.p90, 100 * summary.bias);
	printf(" %.1f |\n", 100 * sample_summary(plain).median);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int collect_keys(const struct published_set *rows, key_function key, struct arena *arena,
	const char *keys[KEYS_MAX])
{
	int n = 0;

	for (int i = 0; i < rows->n; i++) {
		const char *name = key(arena, &rows->of[i]);
		int k = 0;

		while (k < n && strcmp(keys[k], name) != 0)
			k++;
		if (rows->of[i].judged && k == n && n < KEYS_MAX)
			keys[n++] = name;
	}
	qsort(keys, (size_t)n, sizeof(*keys), compare_names);
	return n;
}

static void print_table(
	const struct published_set *rows, const char *title, key_function key, struct arena *arena)
{
	const char *keys[KEYS_MAX];
	int n = collect_keys(rows, key, arena, keys);

	printf("\n## %s\n\n| | n | median | mean | p90 | bias | links alone, median |\n", title);
	printf("|---|---|---|---|---|---|---|\n");
	for (int k = 0; k < n; k++) {
		struct sample sample = {0}, plain = {0};

		for (int i = 0; i < rows->n; i++) {
			const struct published *row = &rows->of[i];

			if (!row->judged || strcmp(key(arena, row), keys[k]) != 0)
				continue;
			sample_add(arena, &sample, measurement_error(row));
			sample_add(arena, &plain, row->plain / row->measured - 1);
		}
		print_line(keys[k], &sample, &plain);
	}
}

static int compare_errors(const void *a, const void *b)
{
	double x = fabs(log(1 + measurement_error(*(const struct published *const *)a)));
	double y = fabs(log(1 + measurement_error(*(const struct published *const *)b)));

	return (x < y) - (x > y);
}

static void print_worst(const struct published_set *rows, struct arena *arena)
{
	const struct published **sorted = ARENA_ARRAY(arena, const struct published *, rows->n);
	int n = 0;

	for (int i = 0; i < rows->n; i++)
		if (rows->of[i].judged)
			sorted[n++] = &rows->of[i];
	qsort(sorted, (size_t)n, sizeof(const struct published *), compare_errors);
	printf("\n## The worst rows\n\n| source | what | bytes | measured us | predicted us | by | "
	       "known of it |\n|---|---|---|---|---|---|---|\n");
	for (int i = 0; i < n && i < WORST; i++) {
		const struct published *row = sorted[i];

		printf("| %s | %s over %lld GPUs on %lldx%s | %lld | %.4g | %.4g | %s %s | %s |\n",
			row->source, collective_kind_names[row->collective], (long long)row->gpus,
			(long long)row->nodes, row->topology, (long long)row->bytes,
			1e6 * row->measured, 1e6 * row->predicted, row->algorithm, row->protocol,
			row->notes[0] != '\0' ? row->notes : "-");
	}
}

enum { RESIDUAL_CELLS = 12 * BAR_COUNT }; /* three levels, four sizes */
static int residual_cell(struct arena *arena, const struct published *row)
{
	return 12 * (int)collective_bar(row->collective) + 4 * level_of(row) +
	       key_size(arena, row)[0] - '1';
}

/* Prints the residual for an interval: the median of log(measured / predicted), and as its spread
 * 1.4826 times the median of the absolute value (the standard deviation, for a normal distribution;
 * a few outliers do not change it). simulator/costs/spread.c contains these figures. */
static void print_residual(const struct published_set *rows, int cell, struct arena *arena)
{
	struct sample sample = {0};
	const struct published *any = NULL;
	struct summary summary;

	for (int i = 0; i < rows->n; i++) {
		const struct published *row = &rows->of[i];

		if (!row->judged || residual_cell(arena, row) != cell)
			continue;
		any = row;
		sample_add(arena, &sample, -log(1 + measurement_error(row)));
	}
	if (any == NULL)
		return;
	summary = sample_summary(&sample);
	printf("| %s | %s | %s | %d | %+.3f | %.3f |\n", key_bar(arena, any),
		level_names[level_of(any)], key_size(arena, any) + 3, summary.n, summary.bias,
		1.4826 * summary.median);
}

static void print_residuals(const struct published_set *rows, struct arena *arena)
{
	printf("\n## Residuals: log(measured / predicted)\n\n"
	       "| collective | level | size | n | median | spread |\n|---|---|---|---|---|---|\n");
	for (int cell = 0; cell < RESIDUAL_CELLS; cell++)
		print_residual(rows, cell, arena);
}

/* --- differences between machines of the same kind -------------------------------------------- */

static bool same_case(const struct published *a, const struct published *b)
{
	return a->judged && b->judged && a->collective == b->collective && a->nodes == b->nodes &&
	       a->gpus == b->gpus && a->bytes == b->bytes && strcmp(a->topology, b->topology) == 0;
}

/* The median of the measurements of the same case by other sources, s; 0: there are none. */
static double others_measured(
	const struct published_set *rows, const struct published *row, struct arena *arena)
{
	struct sample sample = {0};

	for (int i = 0; i < rows->n; i++)
		if (same_case(&rows->of[i], row) && strcmp(rows->of[i].source, row->source) != 0)
			sample_add(arena, &sample, rows->of[i].measured);
	return sample.n > 0 ? sample_summary(&sample).bias : 0;
}

/* Prints the errors of measurements of other machines of the same name, taken as predictions. A
 * model that knows only the names of machine and software cannot be much better. */
static void print_equals(const struct published_set *rows, struct arena *arena)
{
	const char *keys[KEYS_MAX];
	int n = collect_keys(rows, key_part, arena, keys);

	printf("\n## Cases that several sources measured\n\n| | n | others' median, as a "
	       "prediction "
	       "| ours | rows of one source alone | ours there "
	       "| all, theirs where there are any |\n|---|---|---|---|---|---|---|\n");
	for (int k = 0; k < n; k++) {
		struct sample equals = {0}, ours = {0}, alone = {0}, mixed = {0};

		for (int i = 0; i < rows->n; i++) {
			const struct published *row = &rows->of[i];

			if (!row->judged || strcmp(key_part(arena, row), keys[k]) != 0)
				continue;
			double error = measurement_error(row);
			double others = others_measured(rows, row, arena);
			double theirs = others / row->measured - 1;
			sample_add(arena, &mixed, others > 0 ? theirs : error);
			sample_add(arena, others > 0 ? &ours : &alone, error);
			if (others > 0)
				sample_add(arena, &equals, theirs);
		}
		if (equals.n < LISTED_BELOW)
			continue;
		printf("| %s | %d | %.1f | %.1f | %d | ", keys[k], equals.n,
			100 * sample_summary(&equals).median, 100 * sample_summary(&ours).median,
			alone.n);
		if (alone.n > 0)
			printf("%.1f", 100 * sample_summary(&alone).median);
		printf(" | %.1f |\n", 100 * sample_summary(&mixed).median);
	}
}

static void print_head(const struct published_set *rows)
{
	int judged = 0;

	for (int i = 0; i < rows->n; i++)
		judged += rows->of[i].judged;
	printf("# Collectives against published measurements\n\n"
	       "%d rows, %d of them judged: 64 KiB to 8 GiB, status ok. Errors in percent of the "
	       "measured time\n(median, mean and 90th percentile of the absolute error; bias: "
	       "median of the signed one). Sets with\nn < 10 are listed. \"Links alone\": the "
	       "bytes of a ring over the slowest datasheet link.\n",
		rows->n, judged);
}

static void print_sources(const struct published_set *rows, struct arena *arena)
{
	const char *keys[KEYS_MAX];
	int n = collect_keys(rows, key_source, arena, keys);

	printf("\n## Sources\n\n");
	for (int k = 0; k < n; k++)
		for (int i = 0; i < rows->n; i++)
			if (strcmp(rows->of[i].source, keys[k]) == 0) {
				printf("- %s (%s): %s\n", keys[k], source_part(&rows->of[i]),
					rows->of[i].origin);
				break;
			}
}

/* The rows of the split, or those found later. */
static struct published_set rows_of(
	const struct published_set *rows, bool later, struct arena *arena)
{
	struct published_set some = {.of = ARENA_ARRAY(arena, struct published, rows->n)};

	for (int i = 0; i < rows->n; i++)
		if ((rows->of[i].part == PART_LATER) == later)
			some.of[some.n++] = rows->of[i];
	return some;
}

void report_collectives(const struct published_set *all, struct arena *arena)
{
	struct published_set rows = rows_of(all, false, arena), later = rows_of(all, true, arena);

	print_head(&rows);
	print_table(&rows, "Calibration and test", key_part, arena);
	print_table(all, "The same by collective, found later too", key_kind, arena);
	print_table(all, "The same by regime", key_regime, arena);
	print_table(all, "The same by machine", key_machine, arena);
	print_table(&rows, "The same without and with what was handed", key_handed, arena);
	print_table(&rows, "Both parts", key_bar, arena);
	print_table(&later, "Found later", key_bar, arena);
	print_table(&later, "The same by source", key_later, arena);
	print_table(all, "All rows, those found later too", key_bar, arena);
	print_table(all, "The same by level", key_level, arena);
	print_table(all, "The same by size", key_bar_size, arena);
	print_table(&rows, "By source", key_source, arena);
	print_table(&rows, "By GPU", key_device, arena);
	print_table(&rows, "By number of nodes", key_nodes, arena);
	print_table(&rows, "By algorithm and protocol", key_algorithm, arena);
	print_equals(all, arena);
	print_worst(&rows, arena);
	print_residuals(all, arena);
	print_sources(all, arena);
}

void report_measurements(const struct published_set *rows)
{
	printf("source,part,topology,nodes,gpus,collective,bytes,algorithm,protocol,status,"
	       "measured_us,predicted_us,error_percent\n");
	for (int i = 0; i < rows->n; i++) {
		const struct published *row = &rows->of[i];

		printf("%s,%s,%s,%lld,%lld,%s,%lld,%s,%s,%s,%.5g,%.5g,%.1f\n", row->source,
			part_name(row), row->topology, (long long)row->nodes, (long long)row->gpus,
			collective_kind_names[row->collective], (long long)row->bytes,
			row->algorithm, row->protocol, row->status, 1e6 * row->measured,
			1e6 * row->predicted, 100 * measurement_error(row));
	}
}
