/* Fits the compute parameters of the catalogue to published measurements, and prints the remaining
 * errors as Markdown on stdout; with --attention one CSV line for each attention kernel.
 * Usage: bench_fit [--attention] [FOLDER of the measurements]. */
#include "fit.h"

#include <stdio.h>
#include <string.h>

static bool run(const char *folder, bool attention, struct arena *arena, struct error *error)
{
	struct catalogue catalogue = {0};
	struct kernels kernels;
	struct row_list rows = {0};

	if (!catalogue_read(arena, folder, &catalogue, error) ||
		!kernels_read(arena, folder, &kernels, error) ||
		!row_list_read(arena, arena_printf(arena, "%s/steps.csv", folder), &rows, error))
		return false;
	if (attention)
		return print_attention_rows(&catalogue, &kernels, arena, error);
	printf("# Fit of the compute parameters\n\n");
	if (!fit_kernels(&catalogue, &kernels, arena, error))
		return false;
	for (int i = 0; i < rows.n; i++) {
		struct arena scratch = {0};

		row_predict(&catalogue, &rows.of[i], arena, &scratch);
		arena_finish(&scratch);
	}
	row_list_split(&rows);
	return fit_steps(&catalogue, &rows, arena);
}

int main(int argc, char **argv)
{
	struct arena arena = {0};
	struct error error = {0};
	bool attention = argc > 1 && strcmp(argv[1], "--attention") == 0;
	const char *folder = argc > 1 + attention ? argv[1 + attention] : "bench/published";
	bool ok = run(folder, attention, &arena, &error);

	if (!ok)
		fprintf(stderr, "%s\n", error.message);
	arena_finish(&arena);
	return ok ? EXIT_CODE_OK : (int)error.code;
}
