/* Bytes that a source prints exactly: the peak, and buffers that live between steps. */
#include "accuracy.h"

#include <stdio.h>
#include <string.h>

static double peak_error(const struct row *row)
{
	return (double)row->prediction.peak_allocated_bytes / 0x1p30 / row->measured_peak - 1;
}

static double steady_error(const struct row *row)
{
	return (double)row->steady_bytes / 0x1p30 / row->measured_steady - 1;
}

static bool is_judged(const struct row *row)
{
	return row->error == NULL && row->status == STATUS_OK;
}

static void print_part(
	const struct row_list *rows, const char *gpu, enum part part, struct arena *arena)
{
	struct sample peaks = {0}, steady = {0};

	for (int i = 0; i < rows->n; i++) {
		const struct row *row = &rows->of[i];
		if (!is_judged(row) || row->part != part || strcmp(row->gpu, gpu) != 0)
			continue;
		sample_add(arena, &peaks, peak_error(row));
		sample_add(arena, &steady, steady_error(row));
	}
	const struct summary p = sample_summary(&peaks), s = sample_summary(&steady);
	if (p.n == 0)
		return;
	printf("| %s | %s | %d | %.2f | %.2f | %+.2f | %.2f | %.2f | %+.2f |\n", gpu,
		part_names[part], p.n, 100 * p.median, 100 * p.p90, 100 * p.bias, 100 * s.median,
		100 * s.p90, 100 * s.bias);
}

static bool is_first_of_gpu(const struct row_list *rows, int at)
{
	for (int i = 0; i < at; i++)
		if (strcmp(rows->of[i].gpu, rows->of[at].gpu) == 0)
			return false;
	return true;
}

static void print_row(const struct row *row)
{
	printf("| %s | %s | %.1f | %.1f | %+.2f | %.1f | %.1f | %+.2f |\n", row->name,
		part_names[row->part], 1024 * row->measured_peak,
		(double)row->prediction.peak_allocated_bytes / 0x1p20, 100 * peak_error(row),
		1024 * row->measured_steady, (double)row->steady_bytes / 0x1p20,
		100 * steady_error(row));
}

void report_peaks(const struct row_list *rows, struct arena *arena)
{
	printf("\n| GPU | part | n | peak: median %% | p90 %% | bias %% | between steps: median %% "
	       "| "
	       "p90 %% | bias %% |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
	for (int i = 0; i < rows->n; i++)
		for (int part = 0; part < PART_COUNT && is_first_of_gpu(rows, i); part++)
			print_part(rows, rows->of[i].gpu, part, arena);
	printf("\n| row | part | peak MiB | predicted | error %% | between steps MiB | predicted | "
	       "error %% |\n|---|---|---:|---:|---:|---:|---:|---:|\n");
	for (int i = 0; i < rows->n; i++)
		if (is_judged(&rows->of[i]))
			print_row(&rows->of[i]);
}
