/* Fits to single kernels: gemm_flops and gemm_half_k of a device to its matrix products, the
 * attention rates to its flash kernels. */
#include "fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- reading ------------------------------------------------------------------------------------
 */

static const char *const operation_names[] = {
	"gemm", "attention_forward", "attention_backward", NULL};

static const char *cell_of(const struct csv_table *table, int row, const char *column)
{
	for (int i = 0; i < table->header.n_cells; i++)
		if (strcmp(table->header.cells[i], column) == 0)
			return table->rows[row].cells[i];
	return "";
}

static int64_t number_of(const struct csv_table *table, int row, const char *column)
{
	return strtoll(cell_of(table, row, column), NULL, 10);
}

static int index_of(const char *const *names, const char *name)
{
	for (int i = 0; names[i] != NULL; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	return 0;
}

static enum dtype dtype_of(const char *name)
{
	return strcmp(name, "fp16") == 0  ? DTYPE_FP16
	       : strcmp(name, "fp8") == 0 ? DTYPE_FP8
					  : DTYPE_BF16;
}

static double tokens_seen(const struct csv_table *table, int row)
{
	double length = (double)number_of(table, row, "seq_len"),
	       window = (double)number_of(table, row, "window");

	if (strcmp(cell_of(table, row, "causal"), "off") == 0)
		return length;
	return window > 0 && window < length ? window * (1 - (window - 1) / 2 / length) : 0;
}

static void read_kernel(const struct csv_table *table, int row, struct kernel *kernel)
{
	enum operation operation =
		(enum operation)index_of(operation_names, cell_of(table, row, "operation"));

	*kernel = (struct kernel){
		.name = cell_of(table, row, "row"),
		.source = cell_of(table, row, "source"),
		.gpu = cell_of(table, row, "gpu"),
		.topology = cell_of(table, row, "topology"),
		.notes = cell_of(table, row, "notes"),
		.operation = operation,
		.dtype = dtype_of(cell_of(table, row, "dtype")),
		.gemm = {number_of(table, row, "m"), number_of(table, row, "n"),
			number_of(table, row, "k"), 1},
		.measured = 1e12 * strtod(cell_of(table, row, "measured_tflops"), NULL),
		.part = cell_of(table, row, "part"),
	};
	kernel->judged = kernel->part[0] != '\0' ? strcmp(kernel->part, "test") == 0 : row % 2 == 1;
	kernel->architecture.heads = number_of(table, row, "heads");
	kernel->architecture.head_dim = number_of(table, row, "head_dim");
	kernel->architecture.value_dim = number_of(table, row, "value_dim");
	kernel->architecture.attention_window = number_of(table, row, "window");
	kernel->architecture.family = FAMILY_LLAMA;
	kernel->attention = (struct attention_shape){
		.sequences = number_of(table, row, "sequences"),
		.seq_len = number_of(table, row, "seq_len"),
		.kind = (enum attention_kind)index_of(
			attention_kind_names, cell_of(table, row, "attention")),
		.pass = operation == OPERATION_ATTENTION_BACKWARD ? PASS_BACKWARD : PASS_FORWARD,
		.seen = tokens_seen(table, row),
	};
}

bool kernels_read(
	struct arena *arena, const char *folder, struct kernels *kernels, struct error *error)
{
	const char *path = arena_printf(arena, "%s/kernels.csv", folder);
	struct csv_table *table = ARENA_ARRAY(arena, struct csv_table, 1);

	if (!file_table(arena, path, table, error))
		return false;
	kernels->n = table->n_rows;
	kernels->of = ARENA_ARRAY(arena, struct kernel, table->n_rows);
	for (int i = 0; i < table->n_rows; i++) {
		read_kernel(table, i, &kernels->of[i]);
		kernels->of[i].attention.architecture = &kernels->of[i].architecture;
	}
	return true;
}

/* --- predicting ---------------------------------------------------------------------------------
 */

static double kernel_flops(const struct kernel *kernel)
{
	const struct gemm_shape *g = &kernel->gemm;
	const struct attention_shape *a = &kernel->attention;
	double tokens = (double)a->sequences * (double)a->seq_len;
	double passes = kernel->operation == OPERATION_ATTENTION_BACKWARD ? 5 : 2;

	if (kernel->operation == OPERATION_GEMM)
		return 2.0 * (double)g->m * (double)g->n * (double)g->k;
	return passes * tokens * (double)a->seq_len * (double)kernel->architecture.heads *
	       (double)kernel->architecture.head_dim;
}

/* Returns ln(predicted / measured time) of one kernel, with the clock of single kernels. */
static double kernel_error(const struct kernel *kernel, const struct topology *topology)
{
	struct topology alone = *topology;
	double seconds;

	alone.calibration.sustained_clock = 1;
	if (kernel->operation == OPERATION_GEMM)
		seconds = cost_gemm(&alone, kernel->dtype, &kernel->gemm);
	else
		seconds = cost_attention(&alone, kernel->dtype, &kernel->attention);
	return log(seconds * kernel->measured / kernel_flops(kernel));
}

/* --- fitting ------------------------------------------------------------------------------------
 */

/* The rows of one GPU and operation, and the topology that is being fitted. */
struct fit {
	const struct kernel **rows;
	int n;
	struct topology topology;
};

static bool is_sweep(const struct fit *fit)
{
	return fit->n >= 20;
}

static double mean_error(const struct fit *fit, bool judged)
{
	double sum = 0;
	int n = 0;

	for (int i = 0; i < fit->n; i++) {
		if (is_sweep(fit) && fit->rows[i]->judged != judged)
			continue;
		sum += fabs(kernel_error(fit->rows[i], &fit->topology));
		n++;
	}
	return n > 0 ? sum / n : 0;
}

static double at_rate(double x, void *context)
{
	struct fit *fit = context;

	fit->topology.calibration.gemm_flops = x;
	return mean_error(fit, false);
}

/* Fits rate and depth alternately. */
static void fit_gemm(struct fit *fit)
{
	struct calibration *c = &fit->topology.calibration;
	const struct device *device = &fit->topology.device;
	double peak = fmax(device->bf16_flops, device->fp16_flops), best = INFINITY, depth = 0;

	c->gemm_half_m = c->gemm_half_n = 0;
	if (c->gemm_half_k <= 0)
		c->gemm_half_k = 100;
	for (int k = 20; is_sweep(fit) && k <= 300; k += 20) {
		c->gemm_half_k = k;
		double error = at_rate(search_least(at_rate, fit, 0.4 * peak, peak), fit);
		if (error < best) {
			best = error;
			depth = k;
		}
	}
	if (depth > 0)
		c->gemm_half_k = depth;
	c->gemm_flops = search_least(at_rate, fit, 0.4 * peak, 1.1 * peak);
}

/* Is the operation only compared? Its figures follow from those of bf16. */
static bool is_compared(const struct fit *fit)
{
	return fit->rows[0]->dtype == DTYPE_FP8;
}

/* The error of judged rows if the others are the calibration's table of products. A row of CSV is
 * one layout, so the first one of a shape counts. */
static double error_with_products(const struct fit *fit, struct arena *arena)
{
	struct fit with = *fit;
	struct calibration *c = &with.topology.calibration;

	c->products = ARENA_ARRAY(arena, struct calibration_product, CALIBRATION_PRODUCTS);
	c->n_products = 0;
	c->sustained_clock = 1;
	for (int i = 0; i < fit->n && c->n_products < CALIBRATION_PRODUCTS; i++) {
		const struct kernel *row = fit->rows[i];
		const struct calibration_product product = {
			row->dtype, row->gemm.m, row->gemm.n, row->gemm.k, row->measured};

		if (!row->judged)
			calibration_add_product(c, &product);
	}
	return mean_error(&with, true);
}

static void print_worst(const struct fit *fit)
{
	for (int i = 0; i < fit->n; i++) {
		double error = kernel_error(fit->rows[i], &fit->topology);

		if (!is_sweep(fit) || fabs(error) > 0.15)
			printf("| %s | %s | %.1f | %+.1f |\n", fit->rows[i]->name,
				fit->rows[i]->source, fit->rows[i]->measured / 1e12,
				100 * (exp(error) - 1));
	}
}

static void print_gemm(const struct fit *fit, struct arena *arena)
{
	const struct calibration *c = &fit->topology.calibration;

	if (is_compared(fit))
		printf("\n%s, products in fp8, nothing fitted\n\n", fit->rows[0]->gpu);
	else
		printf("\n%s, products: %d rows%s\n\n    gemm_flops: %.4gTFLOPS\n    gemm_half_k: "
		       "%.0f\n\n",
			fit->rows[0]->gpu, fit->n, is_sweep(fit) ? ", every second one judged" : "",
			c->gemm_flops / 1e12, c->gemm_half_k);
	if (is_sweep(fit))
		printf("mean error %.1f %% fitted, %.1f %% judged, %.1f %% with the fitted rows as "
		       "a table of products; above 15 %%, and time predicted / measured - 1:\n\n",
			100 * mean_error(fit, false), 100 * mean_error(fit, true),
			100 * error_with_products(fit, arena));
	printf("| row | source | measured TFLOP/s | error %% |\n|---|---|---:|---:|\n");
	print_worst(fit);
}

static void print_attention(const struct fit *fit, double *errors)
{
	double spread[64];
	int n = fit->n < COUNT_OF(spread) ? fit->n : COUNT_OF(spread);

	for (int i = 0; i < n; i++) {
		errors[i] = kernel_error(fit->rows[i], &fit->topology);
		spread[i] = fabs(errors[i]);
	}
	printf("| %s | %s | %s | %s | %d | %.1f | %+.1f |\n", fit->rows[0]->gpu,
		operation_names[fit->rows[0]->operation],
		attention_kind_names[fit->rows[0]->attention.kind], fit->rows[0]->part, n,
		100 * median_of(spread, n), 100 * (exp(median_of(errors, n)) - 1));
}

static bool same_set(const struct kernel *a, const struct kernel *b)
{
	return strcmp(a->gpu, b->gpu) == 0 && a->operation == b->operation &&
	       (a->dtype == DTYPE_FP8) == (b->dtype == DTYPE_FP8) &&
	       a->attention.kind == b->attention.kind && strcmp(a->part, b->part) == 0;
}

/* Collects the rows like row `first`; n = 0: an earlier row is the first of them. */
static void collect(const struct kernels *kernels, int first, struct fit *fit)
{
	fit->n = 0;
	for (int i = 0; i < first; i++)
		if (same_set(&kernels->of[i], &kernels->of[first]))
			return;
	for (int i = first; i < kernels->n; i++)
		if (same_set(&kernels->of[i], &kernels->of[first]))
			fit->rows[fit->n++] = &kernels->of[i];
}

bool fit_kernels(const struct catalogue *catalogue, const struct kernels *kernels,
	struct arena *arena, struct error *error)
{
	struct fit fit = {.rows = ARENA_ARRAY(arena, const struct kernel *, kernels->n)};
	double *errors = ARENA_ARRAY(arena, double, kernels->n);

	printf("## Kernels alone\n");
	for (int pass = 0; pass < 2; pass++) {
		if (pass == 1)
			printf("\nAttention, with the rates of the product; the median error says "
			       "by how much they are off:\n\n| GPU | pass | kernel | part | n "
			       "| median %% | bias %% |\n|---|---|---|---|---:|---:|---:|\n");
		for (int i = 0; i < kernels->n; i++) {
			struct topology *topology;

			collect(kernels, i, &fit);
			if (fit.n == 0 || (fit.rows[0]->operation != OPERATION_GEMM) != pass)
				continue;
			if (!catalogue_topology(
				    catalogue, arena, fit.rows[0]->topology, &topology, error))
				return false;
			fit.topology = *topology;
			if (pass == 1) {
				print_attention(&fit, errors);
				continue;
			}
			if (!is_compared(&fit))
				fit_gemm(&fit);
			print_gemm(&fit, arena);
		}
	}
	return true;
}

bool print_attention_rows(const struct catalogue *catalogue, const struct kernels *kernels,
	struct arena *arena, struct error *error)
{
	printf("row,predicted_tflops,measured_tflops\n");
	for (int i = 0; i < kernels->n; i++) {
		const struct kernel *kernel = &kernels->of[i];
		struct kernel at_one = *kernel;
		struct topology *topology;

		if (kernel->operation == OPERATION_GEMM)
			continue;
		if (!catalogue_topology(catalogue, arena, kernel->topology, &topology, error))
			return false;
		at_one.measured = 1;
		printf("%s,%.1f,%.1f\n", kernel->name, exp(-kernel_error(&at_one, topology)) / 1e12,
			kernel->measured / 1e12);
	}
	return true;
}
