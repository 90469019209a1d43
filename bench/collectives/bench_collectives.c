/* Compares every published measurement of a collective with its prediction. Run: bench_collectives
 * [--rows] [FOLDER]   (FOLDER: bench/published) */
#include "bench/collectives/collectives.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(bool ok, const struct error *error)
{
	if (ok)
		return;
	fprintf(stderr, "%s\n", error->message);
	exit(error->code);
}

int main(int argc, char **argv)
{
	bool as_rows = argc > 1 && strcmp(argv[1], "--rows") == 0;
	const char *folder = argc > 1 + as_rows ? argv[1 + as_rows] : "bench/published";
	struct arena arena = {0};
	struct catalogue catalogue = {0};
	struct published_set rows = {0};
	struct error error = {0};

	check(catalogue_read(&arena, folder, &catalogue, &error), &error);
	check(measurements_read(&arena, folder, &rows, &error), &error);
	measurements_split(&rows);
	check(measurements_predict(&catalogue, &arena, &rows, &error), &error);
	if (as_rows)
		report_measurements(&rows);
	else
		report_collectives(&rows, &arena);
	arena_finish(&arena);
	return EXIT_CODE_OK;
}
