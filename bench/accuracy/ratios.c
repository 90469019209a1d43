/* Ratios of two speeds whose source does not give the full configuration: are sign and order of
 * magnitude right? Each row is predicted twice. */
#include "accuracy.h"

#include <stdio.h>
#include <stdlib.h>

/* Seconds of a step with the row's knob at `value`; 0: it cannot be predicted. */
static double step_with(const struct catalogue *catalogue, const struct row *row, const char *value,
	struct arena *scratch)
{
	struct prediction prediction;

	if (!row_predict_with(catalogue, row, row_cell(row, "knob"), value, scratch, &prediction))
		return 0;
	return prediction.step_time;
}

void report_ratios(const struct catalogue *catalogue, const struct row_list *rows)
{
	struct arena scratch = {0};

	printf("\n### Printed as a ratio only\n\nThe sources leave out batch or network, or the "
	       "model: only sign and order of size can agree.\n\n"
	       "| row | what | published | predicted | note |\n|---|---|---:|---:|---|\n");
	for (int i = 0; i < rows->n; i++) {
		const struct row *row = &rows->of[i];
		double with = step_with(catalogue, row, row_cell(row, "value"), &scratch);
		double without = step_with(catalogue, row, row_cell(row, "instead_of"), &scratch);
		arena_reset(&scratch);
		printf("| %s | %s, %s, micro-batch %s, checkpointing %s: %s %s instead of %s | %s "
		       "| %.2f | %s |\n",
			row->name, row->model, row->topology, row_cell(row, "micro_batch"),
			row_cell(row, "activation_checkpointing"), row_cell(row, "knob"),
			row_cell(row, "value"), row_cell(row, "instead_of"),
			row_cell(row, "measured_ratio"), with > 0 ? without / with : 0, row->notes);
	}
	arena_finish(&scratch);
}
