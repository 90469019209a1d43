/* A stopwatch: a stream of its own with two events, in seconds by the device's clock. */
#ifndef EXECUTOR_DEVICES_STOPWATCH_H
#define EXECUTOR_DEVICES_STOPWATCH_H

#include "kernels/cuda/cuda.h"

struct gpu_stopwatch {
	const struct cuda_api *api;
	void *stream, *start, *end;
};

/* Opens it on the current context. The caller closes it, also after a failure. */
bool gpu_stopwatch_open(
	struct gpu_stopwatch *watch, const struct cuda_api *api, struct error *error);
void gpu_stopwatch_close(struct gpu_stopwatch *watch);
/* These enqueue the beginning and the end. */
bool gpu_stopwatch_begin(struct gpu_stopwatch *watch, struct error *error);
bool gpu_stopwatch_end(struct gpu_stopwatch *watch, struct error *error);
/* Sets *seconds to the time between both, once the end has come. */
bool gpu_stopwatch_seconds(struct gpu_stopwatch *watch, double *seconds, struct error *error);

#endif
