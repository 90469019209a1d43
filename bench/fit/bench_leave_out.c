/* Predicts the step time of each source, and of each GPU type, with figures fitted without it.
 * Markdown on stdout. Usage: bench_leave_out [FOLDER of the measurements]. */
#include "fit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* At least FIT_LEAST rows are needed for a fit. Sets smaller than AVERAGE_LEAST are listed. */
enum { FIT_LEAST = 5, AVERAGE_LEAST = 10 };

enum left_out { BY_SOURCE, BY_GPU };

/* The origin of the clock of rows that are left out, the nearest first. The last two are used to
 * examine sets for which only the prior remains, because that was itself chosen on published steps.
 */
enum origin { SAME_GPU, SAME_GENERATION, PRIOR, FEW_ROWS, OTHER_GENERATION };

struct bench {
	struct catalogue catalogue;
	struct row_list rows;
	struct topology **topologies; /* of every row */
	double *catalogue_errors;     /* of every row, with nothing left out */
	double *left_out_errors;      /* of every row, with its set left out */
	struct row **chosen;          /* the rows that are fitted to; room for all */
	double *errors;               /* room for all rows */
	struct arena *arena;
};

/* The rows of one GPU type among those that are left out. */
struct set {
	enum left_out by;
	const struct row *first;
	enum device_generation generation;
};

/* The change to a topology whose rows are left out. */
struct adjustment {
	double clock; /* 0: the prior of the generation */
	bool clear;   /* only the datasheet of the device is known */
	double gemm;  /* share of the peak, with `half_k`; 0: the prior */
	double half_k;
};

static const char *left_out_name(const struct row *row, enum left_out by)
{
	return by == BY_SOURCE ? row->source : row->gpu;
}

static bool is_left_out(const struct set *set, const struct row *row)
{
	return strcmp(left_out_name(row, set->by), left_out_name(set->first, set->by)) == 0;
}

static bool is_judged(const struct set *set, const struct row *row)
{
	return is_left_out(set, row) && strcmp(row->gpu, set->first->gpu) == 0 && row_has_time(row);
}

static bool belongs(const struct bench *bench, const struct set *set, enum origin origin, int at)
{
	bool same = bench->topologies[at]->device.generation == set->generation;

	if (origin == SAME_GPU)
		return strcmp(bench->rows.of[at].gpu, set->first->gpu) == 0;
	return origin == OTHER_GENERATION ? !same : same;
}

/* The remaining rows to which a clock may be fitted: those of the calibration part; if there are
 * none, of both parts, as for the catalogue. */
static int choose(struct bench *bench, const struct set *set, enum origin origin)
{
	int n = 0;

	for (int pass = 0; pass < 2 && n == 0; pass++) {
		for (int i = 0; i < bench->rows.n; i++) {
			struct row *row = &bench->rows.of[i];

			if (!is_left_out(set, row) && row_shows_the_clock(row) &&
				belongs(bench, set, origin, i) &&
				(pass == 1 || row->part == PART_CALIBRATION))
				bench->chosen[n++] = row;
		}
	}
	return n;
}

static enum origin nearest(struct bench *bench, const struct set *set)
{
	if (choose(bench, set, SAME_GPU) >= FIT_LEAST)
		return SAME_GPU;
	return choose(bench, set, SAME_GENERATION) >= FIT_LEAST ? SAME_GENERATION : PRIOR;
}

static void adjust(struct topology *topology, const void *adjusting)
{
	const struct adjustment *a = adjusting;
	struct calibration *c = &topology->calibration;

	if (a->clear) {
		c->gemm_flops = a->gemm * topology->device.bf16_flops;
		c->gemm_half_m = c->gemm_half_n = 0;
		c->gemm_half_k = a->half_k;
		c->attention_forward_flops = c->attention_backward_flops = 0;
		c->memory_bandwidth = c->kernel_overhead = 0;
	}
	c->sustained_clock = a->clock;
}

/* An unknown GPU reaches the same share of its peak as another generation. */
static void carry_products(
	const struct bench *bench, const struct row *from, struct adjustment *adjustment)
{
	const struct topology *topology = bench->topologies[from - bench->rows.of];

	adjustment->gemm = topology->calibration.gemm_flops / topology->device.bf16_flops;
	adjustment->half_k = topology->calibration.gemm_half_k;
}

/* Fits without the set. *n: number of rows fitted to; 0: the prior is used. */
static struct adjustment refit(
	struct bench *bench, const struct set *set, enum origin origin, int *n)
{
	struct adjustment adjustment = {.clear = set->by == BY_GPU};
	struct step_fit fit = {.catalogue = &bench->catalogue,
		.rows = bench->chosen,
		.keep = bench->arena,
		.errors = bench->errors};

	*n = origin != PRIOR ? choose(bench, set, origin) : 0;
	if (*n == 0)
		return adjustment;
	if (origin == OTHER_GENERATION && adjustment.clear)
		carry_products(bench, bench->chosen[0], &adjustment);
	fit.n = *n;
	adjustment.clock = fit_clock(&fit);
	return adjustment;
}

static void predict_set(
	struct bench *bench, const struct set *set, const struct adjustment *adjustment)
{
	bench->catalogue.adjust = adjust;
	bench->catalogue.adjusting = adjustment;
	for (int i = 0; i < bench->rows.n; i++) {
		struct arena scratch = {0};
		struct row *row = &bench->rows.of[i];

		if (!is_judged(set, row))
			continue;
		row_predict(&bench->catalogue, row, bench->arena, &scratch);
		bench->left_out_errors[i] = row_time_error(row);
		arena_finish(&scratch);
	}
	bench->catalogue.adjust = NULL;
}

static void print_origin(enum origin origin, const struct adjustment *adjustment, int n)
{
	static const char *const names[] = {
		"this GPU", "this generation", "prior", "this generation", "other generations"};

	if (n == 0)
		printf(" %s |", names[origin]);
	else
		printf(" %.3f: %d row%s of %s |", adjustment->clock, n, n == 1 ? "" : "s",
			names[origin]);
}

static void print_sample(const struct sample *sample, const struct sample *before)
{
	struct summary s = sample_summary(sample), b = sample_summary(before);

	printf(" %d |", s.n);
	if (s.n >= AVERAGE_LEAST) {
		printf(" %.1f | %.1f | %.1f | %+.1f |", 100 * s.median, 100 * s.mean, 100 * s.p90,
			100 * s.bias);
	} else {
		printf(" each:");
		for (int i = 0; i < sample->n; i++)
			printf(" %+.1f", 100 * sample->errors[i]);
		printf(" |  |  |  |");
	}
	printf(" %.1f |\n", 100 * b.median);
}

static void print_heading(const char *title)
{
	printf("\n%s\n\n| left out | GPU | clock: from | n | median %% | mean %% | p90 %% | bias "
	       "%% | "
	       "median %%, nothing left out |\n|---|---|---|---:|---:|---:|---:|---:|---:|\n",
		title);
}

/* Prints errors of the judged rows of `set` (NULL: of all rows of `part`, PART_COUNT: both
 * parts). */
static void print_errors(struct bench *bench, const struct set *set, int part)
{
	struct sample now = {0}, before = {0};

	for (int i = 0; i < bench->rows.n; i++) {
		const struct row *row = &bench->rows.of[i];

		if (set != NULL ? !is_judged(set, row) : !row_has_time(row))
			continue;
		if (part != PART_COUNT && (int)row->part != part)
			continue;
		sample_add(bench->arena, &now, bench->left_out_errors[i]);
		sample_add(bench->arena, &before, bench->catalogue_errors[i]);
	}
	print_sample(&now, &before);
}

static void report_set(struct bench *bench, const struct set *set, enum origin origin)
{
	int n;
	struct adjustment adjustment = refit(bench, set, origin, &n);

	if (n == 0 && origin != PRIOR)
		return;
	predict_set(bench, set, &adjustment);
	printf("| %s | %s |", left_out_name(set->first, set->by), set->first->gpu);
	print_origin(origin, &adjustment, n);
	print_errors(bench, set, PART_COUNT);
}

/* Is row `at` the first judged row of its set? */
static bool starts_set(const struct bench *bench, const struct set *set, int at)
{
	for (int i = 0; i < at; i++)
		if (is_judged(set, &bench->rows.of[i]))
			return false;
	return is_judged(set, &bench->rows.of[at]);
}

/* Reports each set. `origin` other than PRIOR: only sets for which only the prior remains, with a
 * clock of that origin instead. */
static void report_sets(struct bench *bench, enum left_out by, enum origin origin)
{
	for (int i = 0; i < bench->rows.n; i++) {
		struct set set = {by, &bench->rows.of[i], bench->topologies[i]->device.generation};

		if (!starts_set(bench, &set, i))
			continue;
		enum origin first = nearest(bench, &set);
		if (origin == PRIOR)
			report_set(bench, &set, first);
		else if (first == PRIOR)
			report_set(bench, &set, origin);
	}
	printf("| all | test part | |");
	print_errors(bench, NULL, PART_TEST);
	printf("| all | both parts | |");
	print_errors(bench, NULL, PART_COUNT);
}

static void report(struct bench *bench)
{
	static const char *const titles[] = {
		"## Leave one source out", "## Leave one GPU type out"};

	printf("# Step time of what was left out\n\n");
	printf("`sustained_clock` refitted without any row of the source or GPU; fewer than %d "
	       "rows "
	       "are no fit,\nand the prior of the generation stands in. A GPU that is left out has "
	       "its datasheet only. The\npriors were themselves chosen on published steps; so once "
	       "more without them, the other sets as\nbefore.\n",
		FIT_LEAST);
	for (int by = BY_SOURCE; by <= BY_GPU; by++) {
		print_heading(titles[by]);
		report_sets(bench, (enum left_out)by, PRIOR);
		print_heading(
			"In place of the prior, what the few rows left of the generation say:");
		report_sets(bench, (enum left_out)by, FEW_ROWS);
		print_heading("In place of the prior, what the other generations say:");
		report_sets(bench, (enum left_out)by, OTHER_GENERATION);
	}
}

static bool predict_all(struct bench *bench, struct error *error)
{
	for (int i = 0; i < bench->rows.n; i++) {
		struct arena scratch = {0};
		struct row *row = &bench->rows.of[i];

		if (!catalogue_topology(&bench->catalogue, bench->arena, row->topology,
			    &bench->topologies[i], error))
			return false;
		row_predict(&bench->catalogue, row, bench->arena, &scratch);
		arena_finish(&scratch);
		bench->catalogue_errors[i] = row_has_time(row) ? row_time_error(row) : 0;
	}
	row_list_split(&bench->rows);
	return true;
}

static bool run(const char *folder, struct bench *bench, struct error *error)
{
	struct arena *arena = bench->arena;

	if (!catalogue_read(arena, folder, &bench->catalogue, error) ||
		!row_list_read(
			arena, arena_printf(arena, "%s/steps.csv", folder), &bench->rows, error))
		return false;
	bench->topologies = ARENA_ARRAY(arena, struct topology *, bench->rows.n);
	bench->left_out_errors = ARENA_ARRAY(arena, double, bench->rows.n);
	bench->catalogue_errors = ARENA_ARRAY(arena, double, bench->rows.n);
	bench->chosen = ARENA_ARRAY(arena, struct row *, bench->rows.n);
	bench->errors = ARENA_ARRAY(arena, double, bench->rows.n);
	if (!predict_all(bench, error))
		return false;
	report(bench);
	return true;
}

int main(int argc, char **argv)
{
	struct arena arena = {0};
	struct bench bench = {.arena = &arena};
	struct error error = {0};
	bool ok = run(argc > 1 ? argv[1] : "bench/published", &bench, &error);

	if (!ok)
		fprintf(stderr, "%s\n", error.message);
	free(bench.rows.of);
	arena_finish(&arena);
	return ok ? EXIT_CODE_OK : (int)error.code;
}
