/* Private to bench/fit: the few compute parameters of a device, from published measurements. */
#ifndef BENCH_FIT_H
#define BENCH_FIT_H

#include "bench/accuracy/accuracy.h"

/* Minimises f over [low, high] by golden section search, for a unimodal or nearly unimodal f. */
double search_least(double (*f)(double x, void *context), void *context, double low, double high);
double median_of(double *values, int n); /* sorts `values` */

/* Measurements of single kernels: bench/published/kernels.csv. */
enum operation { OPERATION_GEMM, OPERATION_ATTENTION_FORWARD, OPERATION_ATTENTION_BACKWARD };
struct kernel {
	const char *name, *source, *gpu, *topology, *notes;
	const char *part; /* "calibrating", "test"; "": every second row of a sweep is judged */
	enum operation operation;
	enum dtype dtype;
	struct gemm_shape gemm;
	struct architecture architecture; /* of attention: heads and their size. */
	struct attention_shape attention;
	double measured; /* FLOP/s */
	bool judged;     /* it is not fitted to */
};
struct kernels {
	int n;
	struct kernel *of;
};
bool kernels_read(
	struct arena *arena, const char *folder, struct kernels *kernels, struct error *error);

/* Fits and prints one section for each GPU. */
bool fit_kernels(const struct catalogue *catalogue, const struct kernels *kernels,
	struct arena *arena, struct error *error);
/* One CSV line for each attention kernel. */
bool print_attention_rows(const struct catalogue *catalogue, const struct kernels *kernels,
	struct arena *arena, struct error *error);
bool fit_steps(struct catalogue *catalogue, struct row_list *rows, struct arena *arena);

/* Rows to which one sustained_clock is fitted. */
struct step_fit {
	struct catalogue *catalogue; /* `adjust` is NULL between calls */
	struct row **rows;
	int n; /* > 0 */
	struct arena *keep;
	double *errors; /* room for n */
};
/* Can the row be used to fit the clock? Not if other effects hide it: more than one node (the
 * network) or less than 8192 tokens in a micro-batch (the host, the gathers). `row` has been
 * predicted. */
bool row_shows_the_clock(const struct row *row);
/* Finds the clock with the least mean absolute error. Afterwards the rows have predictions with
 * another clock. */
double fit_clock(struct step_fit *fit);

#endif
