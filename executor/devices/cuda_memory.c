/* Takes memory of a GPU, and moves what lies in it. */
#include "executor/devices/cuda.h"

static uint64_t address_of(const void *pointer)
{
	return (uint64_t)(uintptr_t)pointer;
}

bool device_copy(const struct device_cuda *d, void *to, const void *from, int64_t bytes,
	enum stream stream, struct error *error)
{
	return bytes <= 0 || device_check(d,
				     d->api->cuMemcpyAsync(address_of(to), address_of(from),
					     (size_t)bytes, d->streams[stream]),
				     "cuMemcpyAsync", error);
}

bool device_zero(const struct device_cuda *d, void *to, int64_t bytes, enum stream stream,
	struct error *error)
{
	return bytes <= 0 || device_check(d,
				     d->api->cuMemsetD8Async(
					     address_of(to), 0, (size_t)bytes, d->streams[stream]),
				     "cuMemsetD8Async", error);
}

bool device_copy_now(
	struct device_cuda *d, void *to, const void *from, int64_t bytes, struct error *error)
{
	return bytes <= 0 || (device_check(d,
				      d->api->cuMemcpyAsync(address_of(to), address_of(from),
					      (size_t)bytes, d->background),
				      "cuMemcpyAsync", error) &&
				     device_check(d, d->api->cuStreamSynchronize(d->background),
					     "copying between host and GPU", error));
}

bool device_memory_used(const struct device_cuda *d, int64_t *bytes, struct error *error)
{
	size_t available = 0, total = 0;

	if (!device_check(d, d->api->cuMemGetInfo(&available, &total), "cuMemGetInfo", error))
		return false;
	*bytes = (int64_t)(total - available);
	return true;
}

bool device_launch(const struct device_cuda *d, const char *name, int blocks, int threads,
	void **arguments, void *stream, struct error *error)
{
	void *kernel = NULL;

	return device_check(
		       d, d->api->cuLibraryGetKernel(&kernel, d->library, name), name, error) &&
	       device_check(d,
		       d->api->cuLaunchKernel(kernel, (unsigned)blocks, 1, 1, (unsigned)threads, 1,
			       1, 0, stream, arguments, NULL),
		       name, error);
}

bool device_allocate(
	struct device_cuda *d, int64_t bytes, const char *what, char **memory, struct error *error)
{
	uint64_t address = 0;
	char wanted[32], left[32];
	size_t available = 0, total = 0;

	int result = d->api->cuMemAlloc(&address, (size_t)max_i64(bytes, 1));
	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		d->api->cuMemGetInfo(&available, &total);
		return error_set(error, EXIT_CODE_ENVIRONMENT,
			"cuda: no room for %s on GPU %d: expected %s, got %s free", what,
			d->ordinal, format_bytes(wanted, (double)bytes),
			format_bytes(left, (double)available));
	}
	if (!device_check(d, result, "cuMemAlloc", error))
		return false;
	*memory = (char *)(uintptr_t)address;
	d->allocated += bytes;
	return true;
}

void device_free(struct device_cuda *d, void *memory)
{
	if (memory != NULL)
		d->api->cuMemFree((uint64_t)(uintptr_t)memory);
}
