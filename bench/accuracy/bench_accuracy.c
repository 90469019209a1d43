/* The judge of the cost model: every published measurement beside what is predicted for it.
 * Run: bench_accuracy [--axes | --pipelines | --order | --fp8 | --memory] [--rows] [FOLDER]
 * (FOLDER: bench/published). --axes: the rows whose ranks divide the model (tensor parallelism),
 * which have a file of their own: of one source, they are more than all others. --pipelines: that
 * source's with stages. --order: of small models on one node, in all mixes. --fp8: with linear
 * layers in fp8. --memory: Megatron-LM's, of small models, whose bytes are exact and whose times
 * are noise. */
#include "accuracy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum set { SET_STEPS, SET_AXES, SET_PIPELINES, SET_ORDER, SET_FP8, SET_MEMORY, SET_COUNT };
static const char *const set_options[SET_COUNT] = {
	[SET_AXES] = "--axes",
	[SET_PIPELINES] = "--pipelines",
	[SET_ORDER] = "--order",
	[SET_FP8] = "--fp8",
	[SET_MEMORY] = "--memory",
};

static const struct {
	const char *name;
	bool later;
	enum set set;
} files[] = {{"steps.csv", false, SET_STEPS}, {"memory.csv", false, SET_STEPS},
	{"steps_later.csv", true, SET_STEPS}, {"steps_axes.csv", false, SET_AXES},
	{"steps_pipelines.csv", false, SET_PIPELINES}, {"steps_fp8.csv", true, SET_FP8},
	{"megatron_steps.csv", true, SET_AXES}, {"internevo_steps.csv", true, SET_AXES},
	{"torchtitan_axes.csv", true, SET_AXES}, {"bridge_axes.csv", true, SET_AXES},
	{"megatron_steps_later.csv", true, SET_AXES}, {"mlperf_steps.csv", true, SET_AXES},
	{"dgxc_steps.csv", true, SET_AXES}, {"vtrain_steps.csv", false, SET_ORDER},
	{"megatron.csv", false, SET_MEMORY}, {"megatron_later.csv", true, SET_MEMORY}};

static void check(bool ok, const struct error *error)
{
	if (ok)
		return;
	fprintf(stderr, "%s\n", error->message);
	exit(error->code);
}

static void read_files(const char *folder, enum set set, struct arena *arena, struct row_list *rows)
{
	for (int i = 0; i < COUNT_OF(files); i++) {
		if (files[i].set != set)
			continue;
		struct error error = {0};
		const char *path = arena_printf(arena, "%s/%s", folder, files[i].name);
		int first = rows->n;
		check(row_list_read(arena, path, rows, &error), &error);
		for (int r = first; r < rows->n; r++)
			rows->of[r].later = files[i].later;
	}
}

/* Reads ratios, which have no times and are kept apart. */
static void read_ratios(const char *folder, struct arena *arena, struct row_list *rows)
{
	struct error error = {0};
	const char *path = arena_printf(arena, "%s/ratios.csv", folder);
	check(row_list_read(arena, path, rows, &error), &error);
}

static void predict_all(
	const struct catalogue *catalogue, enum set set, struct row_list *rows, struct arena *arena)
{
	struct arena scratch = {0};

	for (int i = 0; i < rows->n; i++) {
		if (set == SET_MEMORY)
			row_count_bytes(catalogue, &rows->of[i], arena, &scratch);
		else
			row_predict(catalogue, &rows->of[i], arena, &scratch);
		arena_reset(&scratch);
	}
	arena_finish(&scratch);
	row_list_split(rows);
}

static void print_not_predicted(const struct row_list *rows)
{
	int n = 0;

	for (int i = 0; i < rows->n; i++)
		n += rows->of[i].error != NULL;
	printf("%d rows, %d of them cannot be predicted.\n", rows->n, n);
	for (int i = 0; i < rows->n; i++) {
		if (rows->of[i].error != NULL)
			printf("- %s: %s\n", rows->of[i].name, rows->of[i].error);
	}
}

/* Prints one line of CSV for each row. */
static void report_rows(const struct row_list *rows)
{
	printf("row,source,part,gpu,family,gpus,seq_len,micro_batch,checkpointing,status,"
	       "measured_step_s,step_time_s,debugged_s,low_s,high_s,error_percent,compute_s,"
	       "exposed_s,"
	       "measured_peak_gib,allocated_gib,reserved_gib,peak_gib,fits,error\n");
	for (int i = 0; i < rows->n; i++) {
		const struct row *r = &rows->of[i];
		const struct prediction *p = &r->prediction;
		printf("%s,%s,%s,%s,%s,%lld,%lld,%lld,%s,%s,%.5g,%.5g,%.5g,%.5g,%.5g,%.2f,%.5g,%."
		       "5g,"
		       "%.5g,%.5g,%.5g,%.5g,%s,\"%s\"\n",
			r->name, r->source, part_names[r->part], r->gpu, r->family,
			(long long)r->gpus, (long long)r->seq_len, (long long)r->micro_batch,
			row_cell(r, "activation_checkpointing"), row_cell(r, "status"),
			r->measured_step, p->step_time, r->debugged_step, p->step_time_low,
			p->step_time_high, r->measured_step > 0 ? 100 * row_time_error(r) : 0.0,
			p->time.compute, p->time.exposed_communication, r->measured_peak,
			(double)p->peak_allocated_bytes / 0x1p30,
			(double)r->reserved_bytes / 0x1p30, (double)p->peak_memory_bytes / 0x1p30,
			fits_names[p->fits], r->error != NULL ? r->error : "");
	}
}

/* Is the option among the arguments? Removes it from them. */
static bool has_option(int *argc, char **argv, const char *option)
{
	if (*argc < 2 || strcmp(argv[1], option) != 0)
		return false;
	argv[1] = argv[0];
	--*argc;
	return true;
}

int main(int argc, char **argv)
{
	enum set set = SET_STEPS;
	for (int i = SET_STEPS + 1; i < SET_COUNT && set == SET_STEPS; i++)
		if (has_option(&argc, argv, set_options[i]))
			set = (enum set)i;
	argv += set != SET_STEPS;
	bool as_rows = has_option(&argc, argv, "--rows");
	argv += as_rows;
	const char *folder = argc > 1 ? argv[1] : "bench/published";
	struct arena arena = {0};
	struct catalogue catalogue;
	struct row_list rows = {0}, ratios = {0};
	struct error error = {0};

	check(catalogue_read(&arena, folder, &catalogue, &error), &error);
	read_files(folder, set, &arena, &rows);
	read_ratios(folder, &arena, &ratios);
	predict_all(&catalogue, set, &rows, &arena);
	if (as_rows) {
		report_rows(&rows);
	} else if (set == SET_MEMORY) {
		print_not_predicted(&rows);
		report_peaks(&rows, &arena);
	} else {
		printf("# Accuracy against published measurements\n\n");
		print_not_predicted(&rows);
		report_time(&rows, &arena);
		if (set == SET_PIPELINES)
			report_debugging(&rows, &arena);
		if (set == SET_ORDER)
			report_order(&rows);
		report_blind(folder, &rows, &arena);
		report_regimes(&rows, &arena);
		report_families(&rows);
		if (set == SET_STEPS)
			report_parts(&catalogue, &rows, &arena);
		report_intervals(&rows);
		report_twins(&rows, &arena);
		report_ablations(&rows, &arena);
		report_ratios(&catalogue, &ratios);
		report_memory(&catalogue, &rows, &arena);
	}
	free(rows.of);
	free(ratios.of);
	arena_finish(&arena);
	return EXIT_CODE_OK;
}
