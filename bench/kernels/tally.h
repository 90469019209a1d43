/* Counts the rows of a benchmark that reach a mark, and lists the others. */
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

/* Aborts beyond TALLY_ROWS rows. */
void tally_add(struct tally *tally, const char *name, double percent);
/* Prints one line with the count and the geometric mean, and one for each row below the mark.
 * Prints nothing without rows. */
void tally_print(const struct tally *tally);

#endif
