/* Measures what waits for memory, on one core and on all at once: element-wise kernels and
 * AdamW. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "executor/calibration/bench.h"
#include "executor/compute/compute.h"
#include "executor/memory/memory.h"
#include "executor/ranks/ranks.h"

/* The arrays are far beyond the caches of one core. */
enum { STREAM_FLOATS = 8 << 20, MAX_CORES = 256, ROUNDS = 5 };

/* Passes over arrays of its own. */
struct walk {
	const struct bench *bench;
	void (*run)(void *pass);
	float *floats;
	int64_t n;    /* elements of each array */
	double bytes; /* of one run */
};

static void run_add(void *data)
{
	struct walk *p = data;
	struct kernel_context context = p->bench->context;

	p->bench->kernels->add(
		&context, DTYPE_FP32, p->floats, p->floats + p->n, p->floats + 2 * p->n, p->n);
}

static void run_adamw(void *data)
{
	struct walk *p = data;
	struct kernel_context context = p->bench->context;
	const struct training training = training_defaults();
	struct adamw a = optimizer_adamw(&training, 0);

	a.n = p->n;
	a.w = p->floats;
	a.m = p->floats + p->n;
	a.v = p->floats + 2 * p->n;
	a.g = p->floats + 3 * p->n;
	p->bench->kernels->adamw(&context, &a);
}

/* It has two reads and one write. */
static struct walk new_add(const struct bench *bench, int64_t n)
{
	return (struct walk){
		bench, run_add, bench_floats(3 * n), n, 3.0 * sizeof(float) * (double)n};
}

/* It reads w, m, v, g and writes w, m, v. */
static struct walk new_adamw(const struct bench *bench, int64_t n)
{
	struct walk p = {bench, run_adamw, bench_floats(4 * n), n, 7.0 * sizeof(float) * (double)n};

	/* Roots of negative second moments would be NaN. */
	for (int64_t i = 0; i < n; i++)
		p.floats[2 * n + i] = fabsf(p.floats[2 * n + i]);
	return p;
}

struct runner {
	struct walk pass;
	int repeats;
	pthread_barrier_t *barrier;
	double start, end;
};

static void *run_thread(void *data)
{
	struct runner *r = data;

	r->pass.run(&r->pass);
	pthread_barrier_wait(r->barrier);
	r->start = clock_now();
	for (int i = 0; i < r->repeats; i++)
		r->pass.run(&r->pass);
	r->end = clock_now();
	return NULL;
}

/* Runs all cores at once and returns B/s from the first start to the last end. */
static double together(struct runner *runners, int cores)
{
	pthread_t threads[MAX_CORES];
	double start = INFINITY, end = 0, bytes = 0;
	int started = 0;

	while (started < cores &&
		pthread_create(&threads[started], NULL, run_thread, &runners[started]) == 0)
		started++;
	if (started < cores)
		abort(); /* the barrier would never open */
	for (int i = 0; i < cores; i++) {
		pthread_join(threads[i], NULL);
		start = fmin(start, runners[i].start);
		end = fmax(end, runners[i].end);
		bytes += runners[i].pass.bytes * runners[i].repeats;
	}
	return bytes / (end - start);
}

static double shared_bandwidth(
	struct bench *bench, struct walk (*make)(const struct bench *, int64_t), int64_t n)
{
	int cores = (int)min_i64(machine_cpus(), MAX_CORES);
	struct runner runners[MAX_CORES];
	pthread_barrier_t barrier;
	double rounds[ROUNDS];

	pthread_barrier_init(&barrier, NULL, (unsigned)cores);
	for (int i = 0; i < cores; i++)
		runners[i] = (struct runner){.pass = make(bench, n),
			.repeats = bench->options->quick ? 2 : 10,
			.barrier = &barrier};
	for (int i = 0; i < ROUNDS; i++)
		rounds[i] = together(runners, cores);
	for (int i = 0; i < cores; i++)
		free(runners[i].pass.floats);
	pthread_barrier_destroy(&barrier);
	struct spread spread = measure_spread(rounds, ROUNDS);
	return bench_figure(bench, FIGURE_RATE, &spread);
}

static double alone_bandwidth(
	struct bench *bench, struct walk (*make)(const struct bench *, int64_t), int64_t n)
{
	struct walk pass = make(bench, n);
	double bandwidth = pass.bytes / bench_time(bench, pass.run, &pass);

	free(pass.floats);
	return bandwidth;
}

static double call_time(struct bench *bench)
{
	struct walk pass = new_add(bench, 1);
	double seconds = bench_time(bench, pass.run, &pass);

	free(pass.floats);
	return seconds;
}

void calibrate_memory(struct bench *bench)
{
	struct calibration *c = bench->calibration;

	c->memory_bandwidth = alone_bandwidth(bench, new_add, STREAM_FLOATS);
	c->memory_bandwidth_shared = shared_bandwidth(bench, new_add, STREAM_FLOATS / 2);
	c->kernel_overhead = call_time(bench);
	bench_say(bench, "memory: %.1f GB/s one core, %.1f GB/s all", c->memory_bandwidth / 1e9,
		c->memory_bandwidth_shared / 1e9);
	c->optimizer_bandwidth = alone_bandwidth(bench, new_adamw, STREAM_FLOATS);
	c->optimizer_bandwidth_shared = shared_bandwidth(bench, new_adamw, STREAM_FLOATS / 2);
	bench_say(bench, "AdamW: %.1f GB/s one core, %.1f GB/s all", c->optimizer_bandwidth / 1e9,
		c->optimizer_bandwidth_shared / 1e9);
}
