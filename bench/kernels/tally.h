/* How many rows of a benchmark reach a mark, and which do not. */
#ifndef BENCH_KERNELS_TALLY_H
#define BENCH_KERNELS_TALLY_H

enum { TALLY_ROWS = 256, TALLY_NAME = 96 };

struct tally {
	const char *what, *of; /* "products", "of the best" */
	double least;          /* percent */
	int rows;
	double percent[TALLY_ROWS];
	char name[TALLY_ROWS][TALLY_NAME];
};

/* Rows beyond TALLY_ROWS end the program. */
void tally_add(struct tally *tally, const char *name, double percent);
/* One line of the count with the geometric mean, and one for each row below the mark; nothing
 * without rows. */
void tally_print(const struct tally *tally);

#endif
