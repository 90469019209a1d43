/* Prints the digest table as Markdown: which configurations were trained on how many ranks, and
 * whether all digests of a column are equal. Usage: digest_table STEPS TEXT; exit 1 if any differs.
 */
#include "digest_cases.h"

#include <stdlib.h>

struct column {
	struct digest first;
	int n, equal;
};

static void print_cell(
	struct column *column, const struct digest *digest, const struct error *error)
{
	if (error->message[0] != '\0') {
		printf(" %.40s |", error->message);
		column->n++;
		return;
	}
	if (column->n == 0)
		column->first = *digest;
	column->n++;
	column->equal += strcmp(column->first.hex, digest->hex) == 0;
	printf(" `%.8s` |", digest->hex);
}

static void print_row(const struct digest_model *model, const char *mode,
	const struct digest_variant *row, int64_t steps, struct column *columns)
{
	printf("| %s | %s | %s%s | %s |", row->strategy, row->wrap, row->prefetch,
		row->forward_prefetch ? " + forward" : "", row->checkpointing);
	for (int r = 0; r < n_digest_ranks; r++) {
		struct error error = {0};

		if (!digest_strategy_exists(row->strategy, digest_ranks[r])) {
			printf(" |");
			continue;
		}
		struct digest digest =
			digest_train(model->text, digest_ranks[r], mode, row, steps, NULL, &error);
		print_cell(&columns[r], &digest, &error);
	}
	printf("\n");
	fflush(stdout);
}

/* Returns how many digests differ from their column's first. */
static int print_table(const struct digest_model *model, const char *mode, int64_t steps)
{
	struct column columns[8] = {{{""}, 0, 0}};
	struct digest_variant *rows;
	int n = digest_all_variants(24, &rows), different = 0;

	printf("\n### %s, %s, %lld steps\n\n| strategy | wrap | prefetch | checkpointing |",
		model->name, mode, (long long)steps);
	for (int r = 0; r < n_digest_ranks; r++)
		printf(" %lld ranks |", (long long)digest_ranks[r]);
	printf("\n|---|---|---|---|");
	for (int r = 0; r < n_digest_ranks; r++)
		printf("---|");
	printf("\n");
	/* Five is no divisor of the knobs' numbers, so every value meets every strategy. */
	for (int i = 0; i < n; i += i % 48 < 45 ? 5 : 48 - i % 48)
		print_row(model, mode, &rows[i], steps, columns);
	printf("| **equal** | | | |");
	for (int r = 0; r < n_digest_ranks; r++) {
		printf(" %d of %d |", columns[r].equal, columns[r].n);
		different += columns[r].n - columns[r].equal;
	}
	printf("\n");
	free(rows);
	return different;
}

int main(int argc, char **argv)
{
	int64_t steps;
	int different = 0;

	run_as_rank(argc, argv);
	if (argc != 3 || !parse_int(argv[1], &steps) || setenv("TEST_TEXT", argv[2], 1) != 0) {
		fprintf(stderr, "usage: digest_table STEPS TEXT\n");
		return EXIT_CODE_USAGE;
	}
	for (int m = 0; m < n_digest_models; m++)
		for (int i = 0; i < n_digest_modes; i++)
			different += print_table(&digest_models[m], digest_modes[i], steps);
	return different > 0;
}
