#include "bench/kernels/launches.h"

#include <stdio.h>

enum { MOST_LAUNCHES = 64, CALLS = 20 };

/* One launch of a call, summed over all calls. */
struct seen {
	void *kernel, *before, *after; /* events */
	unsigned blocks[3], threads;
	double milliseconds;
};

static struct cuda_api watched;
static const struct cuda_api *real;
static struct seen seen[MOST_LAUNCHES];
static int n_seen;
static bool watching;

static const char *const names[] = {
#define X(name, launch, threads) #name,
	CUDA_KERNELS(X)
#undef X
};

static int launch(void *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
	unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments,
	void **extra)
{
	struct seen *s = &seen[n_seen];
	bool timed = watching && n_seen < MOST_LAUNCHES;
	int result;

	if (timed)
		real->cuEventRecord(s->before, stream);
	result = real->cuLaunchKernel(kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z,
		shared_bytes, stream, arguments, extra);
	if (!timed)
		return result;
	real->cuEventRecord(s->after, stream);
	s->kernel = kernel;
	s->blocks[0] = grid_x;
	s->blocks[1] = grid_y;
	s->blocks[2] = grid_z;
	s->threads = block_x;
	n_seen++;
	return result;
}

bool launches_watch(struct error *error)
{
	real = cuda_api(error);
	if (!real)
		return false;
	watched = *real;
	watched.cuLaunchKernel = launch;
	cuda_api_use(&watched);
	return true;
}

static const char *name_of(const struct gpu *gpu, const void *kernel)
{
	void *const *kernels = cuda_backend(&gpu->kernels)->kernels;

	for (int i = 0; i < CUDA_KERNEL_COUNT; i++)
		if (kernels[i] == kernel)
			return names[i];
	return "another";
}

/* A call whose launches are timed; their times are added up. */
static void call_once(struct gpu *gpu, struct problem *problem)
{
	n_seen = 0;
	watching = true;
	problem->kernel_case->call(problem);
	watching = false;
	gpu->api->cuStreamSynchronize(gpu->kernels.stream);
	for (int i = 0; i < n_seen; i++) {
		float milliseconds = 0.0f;

		gpu->api->cuEventElapsedTime(&milliseconds, seen[i].before, seen[i].after);
		seen[i].milliseconds += milliseconds;
	}
}

void launches_print(struct gpu *gpu, struct problem *problem)
{
	for (int i = 0; i < MOST_LAUNCHES; i++) {
		seen[i].milliseconds = 0.0;
		gpu->api->cuEventCreate(&seen[i].before, CUDA_EVENT_DEFAULT);
		gpu->api->cuEventCreate(&seen[i].after, CUDA_EVENT_DEFAULT);
	}
	for (int i = 0; i < CALLS; i++)
		call_once(gpu, problem);
	for (int i = 0; i < n_seen; i++)
		printf("#   %8.1f us  %-28s %u x %u x %u blocks of %u\n",
			seen[i].milliseconds * 1e3 / CALLS, name_of(gpu, seen[i].kernel),
			seen[i].blocks[0], seen[i].blocks[1], seen[i].blocks[2], seen[i].threads);
	for (int i = 0; i < MOST_LAUNCHES; i++) {
		gpu->api->cuEventDestroy(seen[i].before);
		gpu->api->cuEventDestroy(seen[i].after);
	}
}
