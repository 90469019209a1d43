#include "bench/kernels/machine.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double clock_seconds(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double cpu_seconds(void)
{
	return clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
}

static double wall_seconds(void)
{
	return clock_seconds(CLOCK_MONOTONIC);
}

enum { ROUNDS = 200 * 1000, CHAINS = 12 };

/* CHAINS independent sums hide the latency of the fused operation. */
#define PEAK(name, target_attribute, lanes)                                                        \
	target_attribute static double name(void)                                                  \
	{                                                                                          \
		typedef float vec __attribute__((vector_size(4 * (lanes))));                       \
		vec sum[CHAINS], a = (vec){0} + 0.5f, b = (vec){0} + 0.25f;                        \
		volatile float sink = 0.0f;                                                        \
		double start, seconds;                                                             \
		for (int j = 0; j < CHAINS; j++)                                                   \
			sum[j] = (vec){0} + (float)j;                                              \
		start = cpu_seconds();                                                             \
		for (int i = 0; i < ROUNDS; i++) {                                                 \
			_Pragma("GCC unroll 12") for (int j = 0; j < CHAINS; j++) sum[j] =         \
				sum[j] * a + b;                                                    \
		}                                                                                  \
		seconds = cpu_seconds() - start;                                                   \
		for (int j = 0; j < CHAINS; j++)                                                   \
			sink = sink + sum[j][0];                                                   \
		return 2.0 * (lanes)*CHAINS * (double)ROUNDS / seconds;                            \
	}

#if defined(__x86_64__)
PEAK(peak_v4, __attribute__((target("avx512f"))), 16)
PEAK(peak_v3, __attribute__((target("avx2,fma"))), 8)
#endif
PEAK(peak_base, , 4)

static double (*best_peak(void))(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f"))
		return peak_v4;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return peak_v3;
#endif
	return peak_base;
}

double peak_flops(void)
{
	double (*peak)(void) = best_peak(), best = 0.0;

	/* Many short tries over two seconds, because a neighbour on the same core halves the result
	 * of a try. */
	for (double end = wall_seconds() + 2.0; wall_seconds() < end;) {
		double flops = peak();
		best = flops > best ? flops : best;
	}
	return best;
}

double copy_bandwidth(void)
{
	const size_t bytes = (size_t)128 << 20;
	char *from = malloc(bytes), *to = malloc(bytes);
	double best = 0.0;

	if (!from || !to)
		abort();
	memset(from, 1, bytes);
	memset(to, 2, bytes);
	for (int i = 0; i < 5; i++) {
		double start = cpu_seconds(), rate;

		memcpy(to, from, bytes);
		rate = 2.0 * (double)bytes / (cpu_seconds() - start);
		best = rate > best ? rate : best;
	}
	free(from);
	free(to);
	return best;
}
