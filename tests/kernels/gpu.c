#include "tests/kernels/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program: there is nothing to clean up that the driver does not. */
static void must(struct gpu *gpu, int result, const char *what)
{
	struct error error = {0};

	if (cuda_check(gpu->api, result, what, &error))
		return;
	fprintf(stderr, "%s\n", error.message);
	exit(1);
}

static uint64_t address_of(const void *memory)
{
	return (uint64_t)(uintptr_t)memory;
}

bool gpu_open(struct gpu *gpu, struct error *error)
{
	int device = 0, count = 0;

	memset(gpu, 0, sizeof(*gpu));
	gpu->api = cuda_api(error);
	if (!gpu->api)
		return false;
	must(gpu, gpu->api->cuDeviceGetCount(&count), "cuDeviceGetCount");
	if (count == 0)
		return error_set(error, EXIT_CODE_ENVIRONMENT, "the driver sees no GPU here");
	must(gpu, gpu->api->cuDeviceGet(&device, 0), "cuDeviceGet");
	must(gpu, gpu->api->cuDeviceGetName(gpu->name, sizeof(gpu->name), device), "its name");
	must(gpu, gpu->api->cuDevicePrimaryCtxRetain(&gpu->context, device), "a context");
	must(gpu, gpu->api->cuCtxSetCurrent(gpu->context), "cuCtxSetCurrent");
	must(gpu,
		gpu->api->cuStreamCreateWithPriority(
			&gpu->kernels.stream, CUDA_STREAM_NON_BLOCKING, 0),
		"a stream");
	must(gpu, gpu->api->cuEventCreate(&gpu->start, CUDA_EVENT_DEFAULT), "an event");
	must(gpu, gpu->api->cuEventCreate(&gpu->end, CUDA_EVENT_DEFAULT), "an event");
	gpu->kernels.workspace_bytes = KERNELS_WORKSPACE_BYTES;
	gpu->kernels.workspace = gpu_allocate(gpu, NULL, KERNELS_WORKSPACE_BYTES);
	return kernels_cuda()->open(&gpu->kernels, error);
}

void gpu_close(struct gpu *gpu)
{
	kernels_cuda()->close(&gpu->kernels);
	gpu_free(gpu, gpu->kernels.workspace);
	gpu->api->cuEventDestroy(gpu->start);
	gpu->api->cuEventDestroy(gpu->end);
	gpu->api->cuStreamDestroy(gpu->kernels.stream);
	gpu->api->cuDevicePrimaryCtxRelease(0);
}

void *gpu_allocate(struct gpu *gpu, const void *from, int64_t bytes)
{
	uint64_t address = 0;

	must(gpu, gpu->api->cuMemAlloc(&address, (size_t)(bytes > 0 ? bytes : 1)), "cuMemAlloc");
	if (from) {
		must(gpu,
			gpu->api->cuMemcpyAsync(
				address, address_of(from), (size_t)bytes, gpu->kernels.stream),
			"a copy to the GPU");
		must(gpu, gpu->api->cuStreamSynchronize(gpu->kernels.stream), "a copy to the GPU");
	}
	return (void *)(uintptr_t)address;
}

void gpu_read(struct gpu *gpu, void *to, const void *from, int64_t bytes)
{
	must(gpu,
		gpu->api->cuMemcpyAsync(
			address_of(to), address_of(from), (size_t)bytes, gpu->kernels.stream),
		"a copy from the GPU");
	must(gpu, gpu->api->cuStreamSynchronize(gpu->kernels.stream), "a copy from the GPU");
}

void gpu_free(struct gpu *gpu, void *memory)
{
	gpu->api->cuMemFree(address_of(memory));
}

/* Sums into a struct on the caller's stack. */
bool gpu_can_call(const struct kernel_case *kernel_case)
{
	return strcmp(kernel_case->name, "sum") != 0 && strcmp(kernel_case->name, "clip") != 0;
}

/* What lies before a misaligned buffer goes along, so that the device's address is as crooked. */
static int64_t bytes_before(const struct problem *problem, const struct buffer *buffer)
{
	return problem->offset * dtype_bytes(buffer->dtype);
}

static int64_t bytes_of(const struct problem *problem, const struct buffer *buffer)
{
	return bytes_before(problem, buffer) + buffer->count * dtype_bytes(buffer->dtype);
}

void gpu_call(struct gpu *gpu, struct problem *problem)
{
	struct problem on_host = *problem;
	void *blocks[MOST_BUFFERS] = {NULL};

	for (int i = 0; i < MOST_BUFFERS; i++) {
		struct buffer *b = &problem->buffer[i];

		if (!b->data)
			continue;
		blocks[i] = gpu_allocate(
			gpu, (char *)b->data - bytes_before(problem, b), bytes_of(problem, b));
		b->data = (char *)blocks[i] + bytes_before(problem, b);
	}
	if (problem->ids)
		problem->ids = gpu_allocate(
			gpu, problem->ids, problem->n_ids * (int64_t)sizeof(*problem->ids));
	problem->kernels = kernels_cuda();
	problem->context = &gpu->kernels;
	problem->kernel_case->call(problem);
	for (int i = 0; i < MOST_BUFFERS; i++) {
		const struct buffer *b = &on_host.buffer[i];

		if (!blocks[i])
			continue;
		gpu_read(gpu, (char *)b->data - bytes_before(problem, b), blocks[i],
			bytes_of(problem, b));
		gpu_free(gpu, blocks[i]);
	}
	if (problem->ids)
		gpu_free(gpu, problem->ids);
	*problem = on_host;
}

/* --- benchmarks --- */

/* Made on the host, then doubled on the device until the array is full: the host makes a million
 * numbers in milliseconds, and the arrays of a benchmark have hundreds of millions. The count is
 * odd, so that the rows of a matrix differ. */
enum { MADE = (1 << 20) + 7 };

static void *make_on_gpu(void *owner, enum dtype dtype, int64_t count, double low, double high)
{
	struct gpu *gpu = owner;
	int64_t made = count < MADE ? count : MADE;
	struct problem source = {.random = 20};
	char *numbers = make_input_as(&source, dtype, 0, made, low, high);
	char *array = gpu_allocate(gpu, NULL, count * dtype_bytes(dtype));

	for (int64_t have = 0, more; have < count; have += more) {
		more = have == 0 ? made : have < count - have ? have : count - have;
		must(gpu,
			gpu->api->cuMemcpyAsync(address_of(array + have * dtype_bytes(dtype)),
				address_of(have == 0 ? numbers : array),
				(size_t)(more * dtype_bytes(dtype)), gpu->kernels.stream),
			"operands on the GPU");
	}
	must(gpu, gpu->api->cuStreamSynchronize(gpu->kernels.stream), "operands on the GPU");
	free(numbers);
	return array;
}

void gpu_problem_init(struct gpu *gpu, struct problem *problem,
	const struct kernel_case *kernel_case, const int64_t *dim)
{
	struct problem_memory memory = {make_on_gpu, gpu};
	int32_t *ids;

	problem_init_in(problem, &memory, kernel_case, dim, kernels_cuda(), &gpu->kernels, 0);
	problem->memory = NULL;
	ids = problem->ids;
	if (ids)
		problem->ids = gpu_allocate(gpu, ids, problem->n_ids * (int64_t)sizeof(*ids));
	free(ids);
}

void gpu_problem_finish(struct gpu *gpu, struct problem *problem)
{
	for (int i = 0; i < MOST_BUFFERS; i++)
		if (problem->buffer[i].data)
			gpu_free(gpu, problem->buffer[i].data);
	if (problem->ids)
		gpu_free(gpu, problem->ids);
}

static double time_calls(struct gpu *gpu, struct problem *problem, int calls)
{
	float milliseconds = 0.0f;

	must(gpu, gpu->api->cuEventRecord(gpu->start, gpu->kernels.stream), "cuEventRecord");
	for (int i = 0; i < calls; i++)
		problem->kernel_case->call(problem);
	must(gpu, gpu->api->cuEventRecord(gpu->end, gpu->kernels.stream), "cuEventRecord");
	must(gpu, gpu->api->cuEventSynchronize(gpu->end), "the timed calls");
	must(gpu, gpu->api->cuEventElapsedTime(&milliseconds, gpu->start, gpu->end), "the time");
	return milliseconds / 1e3;
}

double gpu_seconds(struct gpu *gpu, struct problem *problem)
{
	double once, calls;

	/* The first call loads the kernel and asks cuBLASLt; the second says how many fill the
	 * time. As many again go by: an H100 that has idled is up to 8 % slower at first. */
	time_calls(gpu, problem, 1);
	once = time_calls(gpu, problem, 1);
	calls = GPU_TIMED / (once > 1e-6 ? once : 1e-6);
	calls = calls < 3.0 ? 3.0 : calls > 1000.0 ? 1000.0 : calls;
	time_calls(gpu, problem, (int)calls);
	return time_calls(gpu, problem, (int)calls) / (int)calls;
}
