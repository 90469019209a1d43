/* Rows whose prediction was committed before their values were read (bench/results/
 * *-predicted.csv), beside what is predicted today. */
#include "accuracy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS_MAX = 128 };

/* Of a row that stands in two of them the first counts, which is the older one. */
static const char *const files[] = {"blind-predicted.csv", "axes-predicted.csv",
	"pipelines-predicted.csv", "tensor-predicted.csv", "fp8-predicted.csv",
	"torchtitan-predicted.csv", "mixes-predicted.csv"};

/* What was predicted blindly. Without an interval, low and high are 0. */
struct blind {
	double step, low, high;
};

static const char *cell(const struct csv_table *table, const struct csv_row *row, const char *name)
{
	for (int i = 0; i < table->header.n_cells && i < row->n_cells; i++)
		if (strcmp(table->header.cells[i], name) == 0)
			return row->cells[i];
	return "";
}

static bool find_in(const struct csv_table *table, const char *name, struct blind *blind)
{
	for (int i = 0; i < table->n_rows; i++) {
		const struct csv_row *row = &table->rows[i];
		if (strcmp(cell(table, row, "row"), name) != 0)
			continue;
		blind->step = strtod(cell(table, row, "step_time_s"), NULL);
		blind->low = strtod(cell(table, row, "step_time_low_s"), NULL);
		blind->high = strtod(cell(table, row, "step_time_high_s"), NULL);
		return true;
	}
	return false;
}

static bool find(const struct csv_table tables[], const char *name, struct blind *blind)
{
	for (int i = 0; i < COUNT_OF(files); i++)
		if (find_in(&tables[i], name, blind))
			return true;
	return false;
}

/* --- groups ----------------------------------------------------------------------------------- */

struct blind_group {
	const char *name;
	struct sample blind, today;
	int with_interval, blind_inside, today_inside;
};

/* Sources that ran few models on all sizes of one machine are told apart by model. Releases of
 * MLPerf are one source here. */
static const char *group_name(const struct row *row, struct arena *arena)
{
	static const char *const by_model[] = {"mlperf-", "dgxc-"};
	const char *fp8 = row_cell(row, "fp8");
	bool in_fp8 = fp8[0] != '\0' && strcmp(fp8, "off") != 0;

	for (int i = 0; i < COUNT_OF(by_model); i++) {
		int length = (int)strlen(by_model[i]);
		if (strncmp(row->source, by_model[i], (size_t)length) == 0)
			return arena_printf(arena, "%.*s, %s, %s, %s", length - 1, by_model[i],
				row->family, row->gpu, in_fp8 ? "fp8" : "bf16");
	}
	return arena_printf(arena, "%s, %s, %s", row->source, row->gpu, row_mix(row, arena));
}

static struct blind_group *group_of(struct blind_group *groups, int *n, const char *name)
{
	int at = 0;

	while (at < *n && strcmp(groups[at].name, name) != 0)
		at++;
	if (at == GROUPS_MAX)
		abort();
	if (at == *n)
		groups[(*n)++].name = name;
	return &groups[at];
}

static void group_add(struct blind_group *group, const struct row *row, const struct blind *blind,
	struct arena *arena)
{
	double measured = row->measured_step;

	sample_add(arena, &group->blind, blind->step / measured - 1);
	sample_add(arena, &group->today, row_time_error(row));
	group->with_interval += blind->high > 0;
	group->blind_inside += measured >= blind->low && measured <= blind->high;
	group->today_inside += row_inside(row);
}

static void print_errors(const struct sample *sample)
{
	struct summary s = sample_summary(sample);

	printf(" %+.1f | %.1f | %.1f |", 100 * s.bias, 100 * s.median, 100 * s.p90);
}

static void print_group(const struct blind_group *group)
{
	printf("| %s | %d |", group->name, group->blind.n);
	print_errors(&group->blind);
	if (group->with_interval == group->blind.n)
		printf(" %d |", group->blind_inside);
	else
		printf(" |");
	print_errors(&group->today);
	printf(" %d |\n", group->today_inside);
}

static void read_tables(const char *folder, struct csv_table tables[], struct arena *arena)
{
	for (int i = 0; i < COUNT_OF(files); i++) {
		struct error error = {0};
		const char *path = arena_printf(arena, "%s/../results/%s", folder, files[i]);
		if (!file_table(arena, path, &tables[i], &error))
			tables[i] = (struct csv_table){0};
	}
}

void report_blind(const char *folder, const struct row_list *rows, struct arena *arena)
{
	struct csv_table tables[COUNT_OF(files)];
	struct blind_group groups[GROUPS_MAX] = {0};
	int n = 0;

	read_tables(folder, tables, arena);
	for (int i = 0; i < rows->n; i++) {
		const struct row *row = &rows->of[i];
		struct blind blind;
		if (row_has_time(row) && find(tables, row->name, &blind))
			group_add(group_of(groups, &n, group_name(row, arena)), row, &blind, arena);
	}
	if (n == 0)
		return;
	printf("\n## Predicted before values were read\n\n"
	       "Errors of what was committed then, and of what is predicted today.\n\n"
	       "| | n | blind: bias %% | median %% | p90 %% | inside | "
	       "today: bias %% | median %% | p90 %% | inside |\n"
	       "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
	for (int i = 0; i < n; i++)
		print_group(&groups[i]);
}
