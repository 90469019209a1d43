/* Bytes where a source prints them exactly: the peak, and what lives between steps. */
#include "accuracy.h"

#include <stdio.h>

static double peak_error(const struct row *row)
{
	return (double)row->prediction.peak_allocated_bytes / 0x1p30 / row->measured_peak - 1;
}

static double steady_error(const struct row *row)
{
	return (double)row->steady_bytes / 0x1p30 / row->measured_steady - 1;
}

static void print_part(const struct row_list *rows, enum part part, struct arena *arena)
{
	struct sample peaks = {0}, steady = {0};

	for (int i = 0; i < rows->n; i++) {
		const struct row *row = &rows->of[i];
		if (row->error != NULL || row->status != STATUS_OK || row->part != part)
			continue;
		sample_add(arena, &peaks, peak_error(row));
		sample_add(arena, &steady, steady_error(row));
	}
	const struct summary p = sample_summary(&peaks), s = sample_summary(&steady);
	printf("| %s | %d | %.2f | %.2f | %+.2f | %.2f | %.2f | %+.2f |\n", part_names[part], p.n,
		100 * p.median, 100 * p.p90, 100 * p.bias, 100 * s.median, 100 * s.p90,
		100 * s.bias);
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
	printf("\n| part | n | peak: median %% | p90 %% | bias %% | between steps: median %% | p90 "
	       "%% | "
	       "bias %% |\n|---|---:|---:|---:|---:|---:|---:|---:|\n");
	for (int part = 0; part < PART_COUNT; part++)
		print_part(rows, part, arena);
	printf("\n| row | part | peak MiB | predicted | error %% | between steps MiB | predicted | "
	       "error %% |\n|---|---|---:|---:|---:|---:|---:|---:|\n");
	for (int i = 0; i < rows->n; i++)
		if (rows->of[i].error == NULL && rows->of[i].status == STATUS_OK)
			print_row(&rows->of[i]);
}
