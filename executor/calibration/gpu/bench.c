/* Times things again and again by the GPU's own clock. */
#include "executor/calibration/gpu/bench.h"

#include <math.h>

#include "kernels/kernels.h"

enum { LEAST_SAMPLES = 5, MOST_SAMPLES = 40, MOST_REPEATS = 200 };

/* Seconds of a sample. */
#define SAMPLE 5e-3
/* A launch takes the host less than this. The stream is held for so long for each launch, so that
 * the device never waits for the host in a sample. */
#define LAUNCH 10e-6

static bool hold(struct gpu_bench *g, double seconds, struct error *error)
{
	uint64_t nanoseconds = (uint64_t)(1e9 * seconds);
	void *begin[] = {&g->clock}, *end[] = {&g->clock, &nanoseconds};

	return gpu_check(g,
		       g->api->cuLaunchKernel(
			       g->hold_begin, 1, 1, 1, 1, 1, 1, 0, g->watch.stream, begin, NULL),
		       "pace_begin", error) &&
	       gpu_check(g,
		       g->api->cuLaunchKernel(
			       g->hold_end, 1, 1, 1, 1, 1, 1, 0, g->watch.stream, end, NULL),
		       "pace_end", error);
}

bool gpu_sample(struct gpu_bench *g, void (*run)(void *data), void *data, int repeats,
	double *seconds, struct error *error)
{
	if (!hold(g, LAUNCH * repeats, error) || !gpu_stopwatch_begin(&g->watch, error))
		return false;
	for (int i = 0; i < repeats; i++)
		run(data);
	if (g->base.context.error.message[0] != '\0')
		return error_set(
			error, g->base.context.error.code, "%s", g->base.context.error.message);
	if (!gpu_stopwatch_end(&g->watch, error) ||
		!gpu_check(g, g->api->cuEventSynchronize(g->watch.end), "a kernel", error) ||
		!gpu_stopwatch_seconds(&g->watch, seconds, error))
		return false;
	*seconds /= repeats;
	return true;
}

bool gpu_time(struct gpu_bench *g, void (*run)(void *data), void *data, double *seconds,
	struct error *error)
{
	double times[MOST_SAMPLES], total = 0, once;
	int n = 0;

	/* The first call chooses algorithms and loads kernels, and the second one says how long it
	 * takes. */
	for (int i = 0; i < 2; i++)
		if (!gpu_sample(g, run, data, 1, &once, error))
			return false;
	int repeats = (int)fmin(fmax(ceil(SAMPLE / fmax(once, 1e-7)), 1), MOST_REPEATS);
	while (n < LEAST_SAMPLES || (n < MOST_SAMPLES && total < g->base.budget)) {
		if (!gpu_sample(g, run, data, repeats, &times[n], error))
			return false;
		total += times[n++] * repeats;
	}
	struct spread spread = measure_spread(times, n);
	if (!(spread.p50 > 0))
		return error_set(error, EXIT_CODE_FAULT, "the GPU's events measure no time");
	bench_note_spread(&g->base, &spread);
	*seconds = spread.p50;
	return true;
}

/* Values have ordinary sizes in either dtype. Zeros and NaNs take less power, and a GPU is then
 * faster. */
void gpu_make_values(struct gpu_bench *g)
{
	uint16_t *halves = (uint16_t *)g->pinned;
	uint32_t random = 1;

	for (int64_t i = 0; i < g->pinned_bytes / 2; i++) {
		random = random * 1664525u + 1013904223u;
		halves[i] = bf16_from_float((float)(random >> 8) * 0x1p-23f - 1.0f);
	}
}

bool gpu_fill(struct gpu_bench *g, struct error *error)
{
	for (int64_t at = 0; at < g->memory_bytes; at += g->pinned_bytes)
		if (!gpu_check(g,
			    g->api->cuMemcpyAsync((uint64_t)(uintptr_t)(g->memory + at),
				    (uint64_t)(uintptr_t)g->pinned,
				    (size_t)min_i64(g->pinned_bytes, g->memory_bytes - at),
				    g->watch.stream),
			    "cuMemcpyAsync", error))
			return false;
	return gpu_stopwatch_end(&g->watch, error) &&
	       gpu_check(g, g->api->cuEventSynchronize(g->watch.end), "filling memory", error);
}
