/* Private to calibration: repeated timing, and the parts of the measurement. */
#ifndef EXECUTOR_CALIBRATION_BENCH_H
#define EXECUTOR_CALIBRATION_BENCH_H

#include "executor/interpreter/interpreter.h"
#include "executor/job/job.h"
#include "kernels/kernels.h"

enum { CALIBRATE_FIGURES = 320 /* of a visit, at most */ };

/* The state of a measurement. */
struct bench {
	const struct calibrate_options *options;
	struct arena *arena;
	struct calibration *calibration;
	const struct kernels *kernels;
	struct kernel_context context;
	int64_t nodes, ranks_per_node; /* that collectives were timed on */
	double budget;                 /* s for one figure */
	/* Medians of the visits so far, as seconds or what stands for them (1 / rate), in the order
	 * in which figures are measured. */
	int visit, figure;
	double figures[CALIBRATE_FIGURES][CALIBRATION_VISITS];
	double spread; /* sum and number of relative deviations seen inside of figures */
	int n_spreads;
	double collective_best; /* sum, of collectives: the best tries over the median */
	int n_collectives;
};

/* Calls `run` until the budget is used, at least three times after one warm-up. Seconds of one
 * call: the median. */
double bench_time(struct bench *bench, void (*run)(void *data), void *data);
/* The next figure of a visit, a time or a rate: the middle of the visits so far. */
enum figure { FIGURE_TIME, FIGURE_RATE };
double bench_figure(struct bench *bench, enum figure what, const struct spread *spread);
/* Stores the spread of figures and of visits in the calibration. */
void bench_conclude(struct bench *bench, int visits);
void bench_say(const struct bench *bench, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void bench_note_spread(struct bench *bench, const struct spread *spread);

/* The times of one collective in one group, by gathered size, the smallest first. */
struct collective_point {
	int64_t bytes;
	double seconds;
};
enum { CURVE_POINTS = 8 };
struct collective_curve {
	enum collective_kind kind;
	int64_t ranks, nodes;
	int n;
	struct collective_point points[CURVE_POINTS];
};

/* As the cost model sees the products of a layer: m x n results over a depth of k. */
struct product_shape {
	int64_t m, n, k;
};
struct product_shape bench_layer_shape(
	int64_t tokens, int64_t out, int64_t in, enum product_form form);
double bench_flops(const struct product_shape *shape); /* FLOP, 2 m n k */
/* Adds to the calibration's products, which have room: the FLOP/s of the algorithm that the library
 * proposes, and of the one chosen instead (0: none). If two forms have one shape, the mean of their
 * times counts, because the cost model knows no layouts. */
void bench_keep_product(struct bench *bench, enum dtype dtype, const struct product_shape *shape,
	double flops, double chosen_flops);

/* kernels.c, memory.c, products.c, layer_products.c (after both):
 * one core, and all cores together. */
bool calibrate_kernels(struct bench *bench, struct error *error);
void calibrate_memory(struct bench *bench);
void calibrate_products(struct bench *bench);
void calibrate_shapes(struct bench *bench);
/* n floats of ordinary values, in large pages as training has them. The caller frees it. */
float *bench_floats(int64_t n);
/* fit_collectives.c: shm collectives by size, for each number of ranks; or those of all
 * levels of a launcher's ranks. */
bool calibrate_collectives(struct bench *bench, struct error *error);
/* NCCL's, over the GPUs of this machine or of a launcher's ranks. */
bool calibrate_gpu_collectives(struct bench *bench, int gpus, struct error *error);
/* cluster.c: the topology of a node becomes that of the cluster whose collectives were
 * timed. */
void bench_forget_origin(struct topology *topology, const char *key); /* was measured instead */
bool bench_describe_gpu_cluster(
	const struct bench *bench, struct topology *topology, struct error *error);

#endif
