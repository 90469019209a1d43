/* How many threads a kernel may use, and which share of the workspace each gets. Without OpenMP
 * every kernel runs on its caller. Threads only ever divide work whose bits do not depend on the
 * division. */
#ifndef KERNELS_CPU_THREADS_H
#define KERNELS_CPU_THREADS_H

#include <stdint.h>

#include "kernels/common/common.h"

#if defined(_OPENMP)
#include <omp.h>
#else
static inline int omp_get_thread_num(void)
{
	return 0;
}

static inline int omp_get_num_threads(void)
{
	return 1;
}
#endif

/* At most `tasks` threads, each with at least `floats` of workspace. */
static inline int usable_threads(
	const struct kernel_context *context, int64_t tasks, int64_t floats)
{
	int64_t threads = context->threads > 1 ? context->threads : 1;
	int64_t room = context->workspace_bytes / (int64_t)sizeof(float) / floats;

#if !defined(_OPENMP)
	threads = 1;
#endif
	threads = threads < tasks ? threads : tasks;
	threads = threads < room ? threads : room;
	return threads > 1 ? (int)threads : 1;
}

/* The share of the calling thread, on cache lines. */
static inline float *thread_workspace(const struct kernel_context *context, int threads)
{
	int64_t floats = context->workspace_bytes / (int64_t)sizeof(float) / threads / 16 * 16;

	return (float *)context->workspace + omp_get_thread_num() * floats;
}

#endif
