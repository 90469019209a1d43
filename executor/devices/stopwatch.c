/* A stopwatch is a stream of its own and two events on it. */
#include "executor/devices/stopwatch.h"

bool gpu_stopwatch_open(
	struct gpu_stopwatch *watch, const struct cuda_api *api, struct error *error)
{
	*watch = (struct gpu_stopwatch){.api = api};
	return cuda_check(api,
		       api->cuStreamCreateWithPriority(&watch->stream, CUDA_STREAM_NON_BLOCKING, 0),
		       "cuStreamCreate", error) &&
	       cuda_check(api, api->cuEventCreate(&watch->start, CUDA_EVENT_DEFAULT),
		       "cuEventCreate", error) &&
	       cuda_check(api, api->cuEventCreate(&watch->end, CUDA_EVENT_DEFAULT), "cuEventCreate",
		       error);
}

void gpu_stopwatch_close(struct gpu_stopwatch *watch)
{
	if (watch->start != NULL)
		watch->api->cuEventDestroy(watch->start);
	if (watch->end != NULL)
		watch->api->cuEventDestroy(watch->end);
	if (watch->stream != NULL)
		watch->api->cuStreamDestroy(watch->stream);
}

bool gpu_stopwatch_begin(struct gpu_stopwatch *watch, struct error *error)
{
	return cuda_check(watch->api, watch->api->cuEventRecord(watch->start, watch->stream),
		"cuEventRecord", error);
}

bool gpu_stopwatch_end(struct gpu_stopwatch *watch, struct error *error)
{
	return cuda_check(watch->api, watch->api->cuEventRecord(watch->end, watch->stream),
		"cuEventRecord", error);
}

bool gpu_stopwatch_seconds(struct gpu_stopwatch *watch, double *seconds, struct error *error)
{
	float milliseconds = 0;

	if (!cuda_check(watch->api,
		    watch->api->cuEventElapsedTime(&milliseconds, watch->start, watch->end),
		    "cuEventElapsedTime", error))
		return false;
	*seconds = 1e-3 * (double)milliseconds;
	return true;
}
