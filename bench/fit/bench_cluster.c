/* `topologies fit` on published sources: fits to three rows of a source and node type and predicts
 * the others, with the catalogue's topology and with the fitted one. Markdown on stdout.
 * Usage: bench_cluster [--rows
 * --datasheet] [FOLDER of the measurements].
 * `--datasheet`: only the datasheets of devices are known, as for a topology that a user has
 * written. */
#include "fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/planner.h"

/* The least rows of a cluster, and the number of those that are fitted to. */
enum { LEAST_ROWS = 6, RUNS = 3 };

struct cluster {
	int n;
	struct row **rows;         /* sorted by name */
	const struct row *largest; /* most nodes */
};

struct bench {
	struct catalogue catalogue;
	struct row_list rows;
	struct row **sorted; /* those with a time: by source, node type, name */
	int n;
	bool as_rows, datasheet;
	struct arena *arena;
};

/* The rows that are not fitted to. */
struct judged {
	struct sample before, after;
	int inside_before, inside_after;
};

/* Example: "16xname" gives "name". */
static const char *node_type(const struct row *row)
{
	const char *digits = row->topology + strspn(row->topology, "0123456789");

	return digits > row->topology && *digits == 'x' ? digits + 1 : row->topology;
}

static int same_cluster(const struct row *a, const struct row *b)
{
	int by_source = strcmp(a->source, b->source);

	return by_source != 0 ? by_source : strcmp(node_type(a), node_type(b));
}

static int by_cluster(const void *left, const void *right)
{
	const struct row *a = *(struct row *const *)left, *b = *(struct row *const *)right;
	int by = same_cluster(a, b);

	return by != 0 ? by : strcmp(a->name, b->name);
}

/* Applies the figures that a fit has changed to another number of nodes of the same kind. */
static void adjust(struct topology *topology, const void *adjusting)
{
	const struct topology *fitted = adjusting;

	topology->calibration = fitted->calibration;
	topology->network = fitted->network;
	topology->fabric = fitted->fabric;
}

static void forget(struct topology *topology, const void *nothing)
{
	(void)nothing;
	topology->calibration = (struct calibration){0};
}

/* From here on predictions use a fitted topology, or the catalogue's (NULL). */
static void know(struct bench *bench, const struct topology *fitted)
{
	bench->catalogue.adjust = fitted != NULL ? adjust : bench->datasheet ? forget : NULL;
	bench->catalogue.adjusting = fitted;
}

static void predict(struct bench *bench, struct row *row)
{
	struct arena scratch = {0};

	row_predict(&bench->catalogue, row, bench->arena, &scratch);
	arena_finish(&scratch);
}

static void sort_rows(struct bench *bench)
{
	bench->sorted = ARENA_ARRAY(bench->arena, struct row *, bench->rows.n);
	for (int i = 0; i < bench->rows.n; i++) {
		struct row *row = &bench->rows.of[i];

		predict(bench, row);
		if (row_has_time(row))
			bench->sorted[bench->n++] = row;
	}
	qsort(bench->sorted, (size_t)bench->n, sizeof(bench->sorted[0]), by_cluster);
}

/* Fits to the first, the middle and the last row by name, whatever their values are. */
static bool is_fitted(const struct cluster *cluster, int i)
{
	return i == 0 || i == cluster->n / 2 || i == cluster->n - 1;
}

static bool fit(struct bench *bench, const struct cluster *cluster, struct fitting *fitting,
	struct error *error)
{
	struct arena *arena = bench->arena;
	struct fit_run runs[RUNS];
	struct topology *topology;
	int n = 0;

	for (int i = 0; i < cluster->n; i++) {
		struct row_case *read = ARENA_ARRAY(arena, struct row_case, 1);

		if (!is_fitted(cluster, i))
			continue;
		if (!row_read(&bench->catalogue, cluster->rows[i], arena, read, error))
			return false;
		runs[n++] = (struct fit_run){cluster->rows[i]->name, read->model, read->topology,
			read->plan, cluster->rows[i]->measured_step};
	}
	return catalogue_topology(
		       &bench->catalogue, arena, cluster->largest->topology, &topology, error) &&
	       fit_topology(topology, runs, n, NULL, arena, fitting, error);
}

static bool is_inside(const struct row *row)
{
	return row->measured_step >= row->prediction.step_time_low &&
	       row->measured_step <= row->prediction.step_time_high;
}

static void judge(struct bench *bench, const struct cluster *cluster, struct fitting *fitting,
	struct judged *judged)
{
	for (int i = 0; i < cluster->n; i++) {
		struct row *row = cluster->rows[i];
		double before = row_time_error(row);

		if (is_fitted(cluster, i))
			continue;
		sample_add(bench->arena, &judged->before, before);
		judged->inside_before += is_inside(row);
		know(bench, fitting->topology);
		predict(bench, row);
		know(bench, NULL);
		sample_add(bench->arena, &judged->after, row_time_error(row));
		judged->inside_after += is_inside(row);
		if (bench->as_rows)
			printf("%s,%s,%s,%.2f,%.2f\n", row->source, node_type(row), row->name,
				100 * before, 100 * row_time_error(row));
	}
}

static void add_all(struct bench *bench, const struct judged *judged, struct judged *all)
{
	for (int i = 0; i < judged->before.n; i++) {
		sample_add(bench->arena, &all->before, judged->before.errors[i]);
		sample_add(bench->arena, &all->after, judged->after.errors[i]);
	}
	all->inside_before += judged->inside_before;
	all->inside_after += judged->inside_after;
}

static void print_judged(const struct judged *judged)
{
	struct summary b = sample_summary(&judged->before), a = sample_summary(&judged->after);

	printf(" %d | %.1f | %.1f | %.1f | %.1f | %+.1f | %+.1f | %d | %d |", b.n, 100 * b.median,
		100 * a.median, 100 * b.p90, 100 * a.p90, 100 * b.bias, 100 * a.bias,
		judged->inside_before, judged->inside_after);
}

static void print_told(const struct fitting *fitting)
{
	for (int j = 0; j < FIT_CONSTANT_COUNT; j++)
		if (fitting->constants[j].verdict == FIT_TOLD)
			printf(" %s x %.3f", fit_constant_ids[j], fitting->constants[j].factor);
	printf(" |\n");
}

static void report_cluster(
	struct bench *bench, const struct cluster *cluster, struct judged *all, int changed[3])
{
	struct judged judged = {0};
	struct fitting fitting;
	struct error error = {0};

	if (!fit(bench, cluster, &fitting, &error)) {
		fprintf(stderr, "%s: %s\n", cluster->rows[0]->source, error.message);
		exit(error.code);
	}
	judge(bench, cluster, &fitting, &judged);
	add_all(bench, &judged, all);
	double by = sample_summary(&judged.after).median - sample_summary(&judged.before).median;
	changed[by < -0.001 ? 0 : by > 0.001 ? 2 : 1]++;
	if (bench->as_rows)
		return;
	printf("| %s | %s |", cluster->rows[0]->source, node_type(cluster->rows[0]));
	print_judged(&judged);
	print_told(&fitting);
}

static void report(struct bench *bench)
{
	struct judged all = {0};
	int changed[3] = {0}, end;

	if (!bench->as_rows)
		printf("# Fitted to three rows of a source\n\nThe first, the middle and the last "
		       "row by name of every source and node type with %d rows or more;\nthe "
		       "others are judged, as %s predicts them and as the fitted "
		       "topology does.\n\n| source | node | judged | median %% | fitted | p90 %% | "
		       "fitted | bias %% | fitted | inside 80 %% | fitted | constants "
		       "|\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
			LEAST_ROWS, bench->datasheet ? "the datasheet alone" : "the catalogue");
	for (int first = 0; first < bench->n; first = end) {
		struct cluster cluster = {0, &bench->sorted[first], bench->sorted[first]};

		for (end = first; end < bench->n &&
				  same_cluster(bench->sorted[first], bench->sorted[end]) == 0;
			end++)
			if (bench->sorted[end]->gpus > cluster.largest->gpus)
				cluster.largest = bench->sorted[end];
		cluster.n = end - first;
		if (cluster.n >= LEAST_ROWS)
			report_cluster(bench, &cluster, &all, changed);
	}
	if (bench->as_rows)
		return;
	printf("| all | |");
	print_judged(&all);
	printf(" |\n\nMedian error: smaller in %d, within 0.1 %% in %d, larger in %d.\n",
		changed[0], changed[1], changed[2]);
}

int main(int argc, char **argv)
{
	bool as_rows = argc > 1 && strcmp(argv[1], "--rows") == 0;
	bool datasheet = argc > 1 && strcmp(argv[1], "--datasheet") == 0;
	int first = 1 + (as_rows || datasheet);
	const char *folder = argc > first ? argv[first] : "bench/published";
	static const char *const files[] = {"steps.csv", "steps_later.csv"};
	struct arena arena = {0};
	struct bench bench = {.as_rows = as_rows, .datasheet = datasheet, .arena = &arena};
	struct error error = {0};
	bool ok = catalogue_read(&arena, folder, &bench.catalogue, &error);

	for (int i = 0; ok && i < COUNT_OF(files); i++)
		ok = row_list_read(&arena, arena_printf(&arena, "%s/%s", folder, files[i]),
			&bench.rows, &error);
	if (!ok) {
		fprintf(stderr, "%s\n", error.message);
		return error.code;
	}
	know(&bench, NULL);
	sort_rows(&bench);
	report(&bench);
	free(bench.rows.of);
	arena_finish(&arena);
	return EXIT_CODE_OK;
}
