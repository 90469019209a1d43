/* Finds a GPU, and makes all that a run needs of it before the first step. */
#include <string.h>

#include "executor/devices/cuda.h"
#include "kernels/kernels.h"

enum { ARENA_PAGE = 4096 };

/* --- what there is --- */

static const struct kernels *kernels_of(const struct cuda_api *api)
{
	return api->kernels != NULL ? api->kernels : kernels_by_name("cuda");
}

static bool check_build(const struct cuda_api *api, struct error *error)
{
	if (api->image_bytes > 0 && kernels_of(api) != NULL)
		return true;
	return error_set(error, EXIT_CODE_ENVIRONMENT,
		"cuda: this program carries no CUDA kernels (it was built without nvcc); "
		"install the CUDA toolkit and build again with -Dcuda=enabled, "
		"or use --device host");
}

bool device_cuda_available(int *gpus, struct error *error)
{
	const struct cuda_api *api = cuda_api(error);

	*gpus = 0;
	if (api == NULL)
		return false;
	if (!cuda_check(api, api->cuDeviceGetCount(gpus), "cuDeviceGetCount", error))
		return false;
	if (*gpus == 0)
		return error_set(error, EXIT_CODE_ENVIRONMENT,
			"cuda: the driver sees no GPU here (CUDA_VISIBLE_DEVICES may hide it); "
			"use --device host");
	return check_build(api, error);
}

/* --- memory --- */

static bool pin(struct device_cuda *d, int64_t bytes, char **memory, struct error *error)
{
	void *address = NULL;

	if (!device_check(d,
		    d->api->cuMemHostAlloc(
			    &address, (size_t)max_i64(bytes, 1), CUDA_HOST_ALLOC_PORTABLE),
		    "pinned host memory (cuMemHostAlloc)", error))
		return false;
	*memory = memset(address, 0, (size_t)max_i64(bytes, 1));
	return true;
}

/* Returns what was really taken for so many bytes: memory in which switches can sum comes in pieces
 * of up to 512 MiB. */
static int64_t given_bytes(const struct device_cuda *d, void *memory, int64_t bytes)
{
	uint64_t start = 0;
	size_t whole = 0;

	if (d->api->cuMemGetAddressRange(&start, &whole, (uint64_t)(uintptr_t)memory) != 0)
		return bytes;
	return max_i64(bytes, (int64_t)whole);
}

/* Takes whole pages, because NCCL registers whole pages. */
static bool make_arena(struct device_cuda *d, struct error *error)
{
	int64_t bytes = round_up(max_i64(d->addresses.device_bytes, 1), ARENA_PAGE);
	void *memory = NULL;

	if (d->take_arena != NULL && d->take_arena(&memory, (size_t)bytes) == 0) {
		d->memory = memory;
		d->arena_is_given = true;
		d->allocated += given_bytes(d, memory, bytes);
		return true;
	}
	return device_allocate(
		d, d->addresses.device_bytes, "the buffers of the plan", &d->memory, error);
}

static void free_arena(struct device_cuda *d)
{
	if (d->arena_is_given)
		d->give_arena(d->memory);
	else
		device_free(d, d->memory);
}

static bool make_memory(struct device_cuda *d, int64_t staging_bytes, struct error *error)
{
	char *scalars, *on_host, *workspace, *sums;

	schedule_addresses(d->program, &d->arena, &d->addresses);
	if (!make_arena(d, error) ||
		!device_allocate(
			d, KERNELS_WORKSPACE_BYTES, "a kernel workspace", &workspace, error) ||
		!device_allocate(d, sizeof(struct device_scalars), "scalars", &scalars, error) ||
		!device_allocate(d, d->bias_width * (int64_t)sizeof(float), "sums of a bias", &sums,
			error) ||
		!pin(d, d->addresses.host_bytes, &d->pinned, error) ||
		!pin(d, staging_bytes, &d->staging, error) ||
		!pin(d, sizeof(struct device_scalars), &on_host, error))
		return false;
	d->workspace = workspace;
	d->bias_sums = (float *)sums;
	d->scalars = (struct device_scalars *)scalars;
	d->scalars_on_host = (struct device_scalars *)on_host;
	return device_zero(d, d->memory, d->addresses.device_bytes, STREAM_COMPUTE, error) &&
	       device_zero(d, d->scalars, sizeof(*d->scalars), STREAM_COMPUTE, error) &&
	       device_check(d, d->api->cuStreamSynchronize(d->streams[STREAM_COMPUTE]),
		       "clearing the memory", error);
}

static void free_memory(struct device_cuda *d)
{
	void *const device[] = {d->workspace, d->scalars, d->clocks, d->bias_sums};
	void *const host[] = {d->pinned, d->staging, d->scalars_on_host, d->clocks_on_host};

	free_arena(d);
	for (int i = 0; i < COUNT_OF(device); i++)
		device_free(d, device[i]);
	for (int i = 0; i < COUNT_OF(host); i++)
		if (host[i] != NULL)
			d->api->cuMemFreeHost(host[i]);
}

/* --- events --- */

static bool make_event(struct device_cuda *d, void **event, struct error *error)
{
	return device_check(
		d, d->api->cuEventCreate(event, CUDA_EVENT_DEFAULT), "cuEventCreate", error);
}

static bool make_events(struct device_cuda *d, struct error *error)
{
	int n = d->program->n_ops;

	d->starts = ARENA_ARRAY(&d->arena, void *, n);
	d->ends = ARENA_ARRAY(&d->arena, void *, n);
	d->host_starts = ARENA_ARRAY(&d->arena, double, n);
	d->host_ends = ARENA_ARRAY(&d->arena, double, n);
	for (int i = 0; i < n; i++)
		if (!make_event(d, &d->starts[i], error) || !make_event(d, &d->ends[i], error))
			return false;
	return make_event(d, &d->origin, error) && make_event(d, &d->origin_end, error);
}

static void free_events(struct device_cuda *d)
{
	for (int i = 0; i < d->program->n_ops; i++) {
		if (d->starts != NULL && d->starts[i] != NULL)
			d->api->cuEventDestroy(d->starts[i]);
		if (d->ends != NULL && d->ends[i] != NULL)
			d->api->cuEventDestroy(d->ends[i]);
	}
	if (d->origin != NULL)
		d->api->cuEventDestroy(d->origin);
	if (d->origin_end != NULL)
		d->api->cuEventDestroy(d->origin_end);
}

/* --- all of it --- */

static bool enter(struct device_cuda *d, struct error *error)
{
	const struct cuda_api *api = d->api;
	int device = 0;

	return device_check(d, api->cuDeviceGet(&device, d->ordinal), "cuDeviceGet", error) &&
	       device_check(d, api->cuDevicePrimaryCtxRetain(&d->context, device),
		       "cuDevicePrimaryCtxRetain", error) &&
	       device_check(d, api->cuCtxSetCurrent(d->context), "cuCtxSetCurrent", error) &&
	       device_check(d,
		       api->cuLibraryLoadData(
			       &d->library, api->image, NULL, NULL, 0, NULL, NULL, 0),
		       "the kernels do not suit this GPU (cuLibraryLoadData)", error);
}

bool device_cuda_open(struct device_cuda *d, int64_t staging_bytes, struct error *error)
{
	int gpus;

	if (!device_cuda_available(&gpus, error))
		return false;
	d->api = cuda_api(error);
	d->kernels = kernels_of(d->api);
	return enter(d, error) && device_streams_open(d, error) && make_events(d, error) &&
	       make_memory(d, staging_bytes, error);
}

/* Waits for nothing: after a fault the streams may hold a collective that other ranks will not
 * join. */
void device_cuda_close(struct device_cuda *d)
{
	if (d->api != NULL && d->context != NULL) {
		d->api->cuCtxSetCurrent(d->context);
		device_graph_close(d);
		free_events(d);
		device_streams_close(d);
		free_memory(d);
		if (d->library != NULL)
			d->api->cuLibraryUnload(d->library);
		d->api->cuDevicePrimaryCtxRelease(d->ordinal);
	}
	arena_finish(&d->arena);
	*d = (struct device_cuda){0};
}
