/* Speed of every kernel beside what the machine can do at best.
 *
 *     bench_kernels [TABLE [KERNEL]]     (default: all kernels of "cpu")
 *     bench_kernels all gemm             the matrix product of every table
 *     bench_kernels beside TABLE [KERNEL]  "cpu" and that table in turn, with the ratio
 *
 * One thread; best CPU time of several tries, with the load printed, because another process on the
 * core shows in wall time at once but hardly in CPU time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/kernels/machine.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/problem.h"

static double peak, bandwidth;

/* More training-sized products and attentions than the case's own. */
static const int64_t gemms[][MOST_DIMS] = {{1024, 1024, 1024, 0}, {1024, 1024, 1024, 2},
	{1024, 1024, 1024, 1}, {2048, 2048, 2048, 2}, {256, 3072, 768, 2}, {256, 768, 3072, 0},
	{3072, 768, 256, 1}, {64, 768, 768, 2}, {1024, 1152, 384, 2}, {1024, 50304, 384, 2},
	{384, 50304, 1024, 5}, {2048, 4096, 4096, 2}, {256, 50257, 768, 2}, {50257, 768, 256, 1},
	{1, 768, 768, 2}, {1, 3072, 768, 2}, {1, 3072, 768, 0}, {2, 3072, 768, 2},
	{4, 3072, 768, 2}, {7, 3072, 768, 2}, {7, 3072, 768, 0}, {1, 50257, 768, 2},
	{7, 50257, 768, 2}, {-1}};
static const int64_t attentions[][MOST_DIMS] = {{4, 256, 6, 6, 64, 0}, {4, 1024, 2, 2, 64, 0},
	{1, 2048, 4, 4, 64, 0}, {1, 2048, 4, 1, 128, 0}, {1, 8192, 1, 1, 128, 0}, {-1}};

static const int64_t (*shapes_of(const struct kernel_case *kernel_case))[MOST_DIMS]
{
	if (strncmp(kernel_case->name, "gemm", 4) == 0)
		return gemms;
	return strncmp(kernel_case->name, "attention", 9) == 0 ? attentions : NULL;
}

/* The time of one call, as CPU time of this process. */
static double call_seconds(struct problem *problem)
{
	double start = cpu_seconds();

	problem->kernel_case->call(problem);
	return cpu_seconds() - start;
}

static double best_seconds(struct problem *problem)
{
	double best = 1e30, spent = 0.0;

	problem->kernel_case->call(problem);
	for (int i = 0; i < 3 || (spent < 0.4 && i < 1000); i++) {
		double seconds = call_seconds(problem);

		best = seconds < best ? seconds : best;
		spent += seconds;
	}
	return best;
}

static void measure(const struct kernel_case *kernel_case, const int64_t *shape,
	const struct kernels *kernels, struct kernel_context *context)
{
	struct problem problem;
	double seconds;
	char text[64];

	problem_init(&problem, kernel_case, shape, kernels, context, 0);
	seconds = best_seconds(&problem);
	snprintf(text, sizeof(text), "%lld,%lld,%lld,%lld,%lld", (long long)shape[0],
		(long long)shape[1], (long long)shape[2], (long long)shape[3], (long long)shape[4]);
	printf("%-12s %-24s %-22s %10.3f ms ", kernels->name, kernel_case->name, text,
		seconds * 1e3);
	if (problem.flops > 0)
		printf("%7.1f GFLOP/s %5.1f %% of peak\n", problem.flops / seconds * 1e-9,
			100.0 * problem.flops / seconds / peak);
	else
		printf("%7.1f GB/s    %5.1f %% of memcpy\n", problem.bytes / seconds * 1e-9,
			100.0 * problem.bytes / seconds / bandwidth);
	fflush(stdout);
	problem_finish(&problem);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Measures the same problem by both tables alternately: the median of the ratios of neighbours. */
static void compare(const struct kernel_case *kernel_case, const int64_t *shape,
	const struct kernels *const tables[2])
{
	enum { MOST = 301, ROUNDS = 9 };
	struct kernel_context contexts[2];
	struct problem problems[2];
	double ratios[MOST], best[2] = {1e30, 1e30}, spent = 0;
	int n = 0;

	for (int i = 0; i < 2; i++) {
		context_init(&contexts[i], tables[i]);
		problem_init(&problems[i], kernel_case, shape, tables[i], &contexts[i], 0);
		kernel_case->call(&problems[i]);
	}
	for (; n < MOST && (n < ROUNDS || spent < 0.5); n++) {
		double seconds[2];

		for (int i = 0; i < 2; i++) {
			seconds[i] = call_seconds(&problems[i]);
			best[i] = seconds[i] < best[i] ? seconds[i] : best[i];
		}
		ratios[n] = seconds[0] / seconds[1];
		spent += seconds[0] + seconds[1];
	}
	qsort(ratios, (size_t)n, sizeof(*ratios), by_size);
	printf("%-24s %lld,%lld,%lld,%lld  %10.3f ms %10.3f ms  %7.1f %7.1f GFLOP/s  takes %.2f "
	       "of its time\n",
		kernel_case->name, (long long)shape[0], (long long)shape[1], (long long)shape[2],
		(long long)shape[3], best[0] * 1e3, best[1] * 1e3,
		problems[0].flops / best[0] * 1e-9, problems[1].flops / best[1] * 1e-9,
		ratios[n / 2]);
	fflush(stdout);
	for (int i = 0; i < 2; i++) {
		problem_finish(&problems[i]);
		context_finish(&contexts[i], tables[i]);
	}
}

static void compare_tables(const struct kernels *const tables[2], const char *name)
{
	for (const struct kernel_case *c = matrix_cases; c->name; c++) {
		const int64_t(*shapes)[MOST_DIMS] = shapes_of(c);

		if (name && strncmp(name, c->name, strlen(name)) != 0)
			continue;
		for (int i = 0; shapes && shapes[i][0] >= 0; i++)
			compare(c, shapes[i], tables);
	}
}

static void measure_case(const struct kernel_case *kernel_case, const struct kernels *kernels)
{
	const int64_t(*shapes)[MOST_DIMS] = shapes_of(kernel_case);
	struct kernel_context context;

	context_init(&context, kernels);
	if (!shapes)
		measure(kernel_case, kernel_case->bench, kernels, &context);
	for (int i = 0; shapes && shapes[i][0] >= 0; i++)
		measure(kernel_case, shapes[i], kernels, &context);
	context_finish(&context, kernels);
}

static void measure_table(const struct kernels *kernels, const char *name)
{
	for (int list = 0; case_lists[list]; list++) {
		for (int i = 0; case_lists[list][i].name; i++) {
			if (!name || strncmp(name, case_lists[list][i].name, strlen(name)) == 0)
				measure_case(&case_lists[list][i], kernels);
		}
	}
}

static void print_machine(void)
{
	double load[3] = {0};

	if (getloadavg(load, 3) != 3)
		load[0] = -1.0;
	printf("# fp32 peak %.1f GFLOP/s, memcpy %.1f GB/s, load %.2f\n", peak * 1e-9,
		bandwidth * 1e-9, load[0]);
}

/* Measures the yardstick again. If it has changed, other processes ran and the column must not be
 * quoted. */
static void check_yardstick(void)
{
	double before = peak;

	peak = peak_flops();
	print_machine();
	if (peak > 1.03 * before || peak < 0.97 * before)
		printf("# the peak moved from %.1f to %.1f GFLOP/s: do not quote the percentages\n",
			before * 1e-9, peak * 1e-9);
}

int main(int argc, char **argv)
{
	const char *table = argc > 1 ? argv[1] : "cpu", *name = argc > 2 ? argv[2] : NULL;

	bool beside = argc > 2 && strcmp(table, "beside") == 0;

	peak = peak_flops();
	bandwidth = copy_bandwidth();
	print_machine();
	if (beside && kernels_by_name(name)) {
		compare_tables(
			(const struct kernels *const[]){kernels_cpu(), kernels_by_name(name)},
			argc > 3 ? argv[3] : NULL);
	} else if (strcmp(table, "all") == 0) {
		for (const struct kernels *const *all = kernels_all(); all[0]; all++)
			measure_table(all[0], name);
	} else if (!beside && kernels_by_name(table)) {
		measure_table(kernels_by_name(table), name);
	} else {
		fprintf(stderr, "bench_kernels: no table is called %s\n", table);
		return 2;
	}
	check_yardstick();
	return 0;
}
