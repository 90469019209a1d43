/* Pacing on a GPU: a kernel of one thread notes when an operation starts, another one behind it
 * holds the stream until its modelled time has passed (kernels/cuda/device/pace.cuh). The host
 * waits for neither. */
#include <math.h>
#include <string.h>

#include "executor/devices/cuda.h"

bool device_pace_open(struct device_cuda *d, struct error *error)
{
	int64_t bytes = d->program->n_ops * (int64_t)sizeof(*d->clocks);
	char *memory;
	void *pinned = NULL;

	if (!device_allocate(d, bytes, "the clocks of paced operations", &memory, error) ||
		!cuda_check(d->api,
			d->api->cuMemHostAlloc(&pinned, (size_t)bytes, CUDA_HOST_ALLOC_PORTABLE),
			"pinned host memory (cuMemHostAlloc)", error))
		return false;
	d->clocks = (uint64_t *)memory;
	d->clocks_on_host = memset(pinned, 0, (size_t)bytes);
	return device_zero(d, d->clocks, bytes, STREAM_COMPUTE, error) &&
	       cuda_check(d->api, d->api->cuStreamSynchronize(d->streams[STREAM_COMPUTE]),
		       "clearing the clocks", error);
}

bool device_stamp(const struct device_cuda *d, void *clock, void *stream, struct error *error)
{
	void *arguments[] = {&clock};

	return device_launch(d, "pace_begin", 1, 1, arguments, stream, error);
}

bool device_pace_start(void *device, int op, struct error *error)
{
	const struct device_cuda *d = device;

	return device_stamp(d, &d->clocks[op], device_stream(d, d->program->ops[op].stream), error);
}

void *device_pace_clock(void *device, int op)
{
	return &((struct device_cuda *)device)->clocks[op];
}

bool device_pace_hold(void *device, int op, double seconds, struct error *error)
{
	struct device_cuda *d = device;
	uint64_t *clock = &d->clocks[op], nanoseconds = (uint64_t)llround(1e9 * seconds);
	void *arguments[] = {&clock, &nanoseconds};

	return device_meet(d, op, error) &&
	       device_launch(d, "pace_end", 1, 1, arguments,
		       device_stream(d, d->program->ops[op].stream), error);
}

/* All streams have come to their ends by now, so the copy delays no operation. */
bool device_pace_fetch(struct device_cuda *d, struct error *error)
{
	if (d->clocks == NULL)
		return true;
	return device_copy_now(d, d->clocks_on_host, d->clocks,
		d->program->n_ops * (int64_t)sizeof(*d->clocks), error);
}

double device_pace_late(void *device, int op)
{
	return (double)((const struct device_cuda *)device)->clocks_on_host[op] * 1e-9;
}
