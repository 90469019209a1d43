#include "tests/executor/fakes/cuda.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/executor/fakes/cuda_private.h"

/* --- the driver: devices and memory --- */

static int init(unsigned flags)
{
	(void)flags;
	return 0;
}

static int error_string(int result, const char **text)
{
	*text = result == FAKE_ERROR ? fake_machine.fault : "out of memory or not ready";
	return 0;
}

static int device_count(int *count)
{
	*count = fake_machine.gpus;
	return 0;
}

static int device_get(int *device, int ordinal)
{
	*device = ordinal;
	return ordinal < fake_machine.gpus ? 0 : FAKE_ERROR;
}

static int device_name(char *name, int length, int device)
{
	(void)device;
	snprintf(name, (size_t)length, "fake");
	return fake_outcome();
}

static int device_attribute(int *value, int attribute, int device)
{
	(void)device;
	*value = attribute == CUDA_ATTRIBUTE_MULTIPROCESSORS ? 4 : 0;
	return fake_outcome();
}

/* How many there are, and the first: CUDA_VISIBLE_DEVICES shows some of them, as a list. */
static void look(int gpus)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");

	fake_machine.gpus = gpus;
	if (list == NULL)
		return;
	fake_machine.first_gpu = atoi(list);
	fake_machine.gpus = list[0] != '\0';
	for (; *list != '\0'; list++)
		fake_machine.gpus += *list == ',';
}

static int device_uuid(unsigned char *uuid, int device)
{
	memset(uuid, 0, 16);
	uuid[0] = (unsigned char)(fake_machine.first_gpu + device);
	return fake_outcome();
}

static int device_bus_id(char *id, int length, int device)
{
	snprintf(id, (size_t)length, "0000:%02X:00.0", fake_machine.first_gpu + device + 0xa0);
	return fake_outcome();
}

static int driver_version(int *version)
{
	*version = 12080;
	return fake_outcome();
}

static char contexts[64];

static int context_retain(void **context, int device)
{
	*context = &contexts[(fake_machine.first_gpu + device) % 64];
	return fake_outcome();
}

/* A thread that has let go of the machine goes by the real time again (clock.c). */
static int context_release(int device)
{
	(void)device;
	fake_thread.time = 0;
	return 0;
}

static int context_set(void *context)
{
	fake_thread.gpu = (int)((char *)context - contexts);
	return context != NULL ? fake_outcome() : FAKE_ERROR;
}

static int memory_info(size_t *free_bytes, size_t *total_bytes)
{
	fake_lock();
	*total_bytes = fake_clock_is_dry() ? (size_t)FAKE_DRY_MEMORY : FAKE_MEMORY;
	*free_bytes = (size_t)(FAKE_MEMORY - fake_machine.allocated);
	fake_unlock();
	return fake_outcome();
}

static int memory_allocate(uint64_t *address, size_t bytes)
{
	int result = 2;

	fake_lock();
	if (fake_clock_is_dry() || fake_machine.allocated + (int64_t)bytes <= FAKE_MEMORY) {
		*address = (uint64_t)(uintptr_t)fake_add_allocation(bytes, false);
		result = fake_outcome();
	}
	fake_unlock();
	return result;
}

static int address_range(uint64_t *start, size_t *bytes, uint64_t address)
{
	fake_lock();
	const struct allocation *a = fake_find_allocation((const void *)(uintptr_t)address);

	*start = a != NULL ? (uint64_t)(uintptr_t)a->memory : 0;
	*bytes = a != NULL ? (size_t)a->bytes : 0;
	fake_unlock();
	return a != NULL ? fake_outcome() : FAKE_ERROR;
}

static int memory_free(uint64_t address)
{
	fake_lock();
	fake_remove_allocation((void *)(uintptr_t)address, false);
	fake_unlock();
	return fake_outcome();
}

/* FAKE_NEAR: GPU n has CPU n beside it, and pinned memory is touched from there. */
static void check_nearness(void)
{
	cpu_set_t here;

	if (getenv("FAKE_NEAR") == NULL)
		return;
	CPU_ZERO(&here);
	if (sched_getaffinity(0, sizeof(here), &here) != 0 || CPU_COUNT(&here) != 1 ||
		!CPU_ISSET(fake_thread.gpu, &here))
		fake_cuda_fault("memory is pinned far from GPU %d", fake_thread.gpu);
}

static int host_allocate(void **address, size_t bytes, unsigned flags)
{
	(void)flags;
	fake_lock();
	check_nearness();
	*address = fake_add_allocation(bytes, true);
	fake_unlock();
	return fake_outcome();
}

static int host_free(void *address)
{
	fake_lock();
	fake_remove_allocation(address, true);
	fake_unlock();
	return fake_outcome();
}

/* --- copies --- */

struct copy {
	char *to;
	const char *from; /* NULL: fill */
	unsigned char value;
	size_t bytes;
};

static void run_copy(void *arguments)
{
	const struct copy *copy = arguments;

	if (copy->from == NULL)
		memset(copy->to, copy->value, copy->bytes);
	else
		memcpy(copy->to, copy->from, copy->bytes);
}

/* Ordinary memory of the host may be copied from and to; only what the driver knows is checked. */
static void enqueue_copy(void *stream, const char *name, const struct copy *copy)
{
	struct fake_touch touches[2];
	int n = 0;

	fake_lock();
	if (fake_find_allocation(copy->to) != NULL)
		touches[n++] = (struct fake_touch){copy->to, (int64_t)copy->bytes, true};
	if (copy->from != NULL && fake_find_allocation(copy->from) != NULL)
		touches[n++] = (struct fake_touch){copy->from, (int64_t)copy->bytes, false};
	fake_unlock();
	fake_cuda_call(stream, name, run_copy, copy, sizeof(*copy), touches, n);
}

static int copy_async(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
	enqueue_copy(stream, "a copy",
		&(struct copy){(char *)(uintptr_t)to, (const char *)(uintptr_t)from, 0, bytes});
	return fake_outcome();
}

static int fill_async(uint64_t to, unsigned char value, size_t bytes, void *stream)
{
	enqueue_copy(stream, "a fill", &(struct copy){(char *)(uintptr_t)to, NULL, value, bytes});
	return fake_outcome();
}

/* --- streams and events --- */

struct fake_stream *fake_new_stream(void)
{
	struct fake_stream *s = fake_calloc(sizeof(*s));

	s->actor = fake_new_actor();
	s->queue =
		fake_machine.n_queues > 0 ? fake_machine.n_streams++ % fake_machine.n_queues : -1;
	s->next = fake_machine.streams;
	return fake_machine.streams = s;
}

static int stream_create(void **stream, unsigned flags, int priority)
{
	(void)flags;
	(void)priority;
	fake_lock();
	struct fake_stream *made = fake_new_stream();
	fake_trace("stream %d %d", fake_thread.actor, made->actor);
	*stream = made;
	fake_unlock();
	return fake_outcome();
}

/* Its clock stays: the accesses of its nodes do. */
void fake_forget_stream(struct fake_stream *stream)
{
	struct fake_stream **at = &fake_machine.streams;

	while (*at != stream)
		at = &(*at)->next;
	*at = (*at)->next;
	while (stream->head != NULL)
		fake_end_node(stream);
	free(stream);
}

static int stream_destroy(void *stream)
{
	fake_lock();
	fake_forget_stream(stream);
	fake_unlock();
	return fake_outcome();
}

static int stream_synchronize(void *stream)
{
	struct fake_stream *s = stream;

	fake_lock();
	if (s->capture != NULL)
		fake_cuda_fault("a stream is synchronised while it is captured");
	if (s->in_steps)
		fake_cuda_fault("a stream of the step is synchronised");
	while (s->head != NULL && fake_machine.fault[0] == '\0')
		if (!fake_run_one())
			fake_wait();
	fake_join(fake_thread.clock, s->clock);
	fake_clock_wait(s->time);
	fake_unlock();
	return fake_outcome();
}

static int context_synchronize(void)
{
	fake_lock();
	fake_cuda_fault("the device is synchronised");
	fake_unlock();
	return fake_outcome();
}

static int event_create(void **event, unsigned flags)
{
	(void)flags;
	*event = fake_calloc(sizeof(struct fake_event));
	fake_lock();
	fake_trace("event %d 0 %p", fake_thread.actor, *event);
	fake_unlock();
	return fake_outcome();
}

static int event_destroy(void *event)
{
	free(((struct fake_event *)event)->behind);
	free(event);
	return fake_outcome();
}

/* Marks stay for whoever still waits for them. */
static struct mark *marks;

struct mark *fake_new_mark(void)
{
	struct mark *mark = fake_calloc(sizeof(*mark));

	mark->next = marks;
	return marks = mark;
}

static int event_record_with(void *event, void *stream, unsigned flags)
{
	struct fake_stream *s = stream;
	struct fake_event *e = event;
	bool external = flags == CUDA_EVENT_RECORD_EXTERNAL;

	fake_lock();
	fake_trace("record %d %d %p", fake_thread.actor, s->actor, event);
	if (external && s->capture == NULL)
		fake_cuda_fault("an event is recorded for a graph, and nothing is captured");
	if (s->capture != NULL) {
		fake_capture_record(s, e, external);
	} else {
		e->mark = fake_new_mark();
		e->capture = 0;
		fake_enqueue(s, NODE_RECORD, "an event", NULL, 0, NULL, 0)->mark = e->mark;
		s->in_steps = true;
	}
	fake_unlock();
	return fake_outcome();
}

static int event_record(void *event, void *stream)
{
	return event_record_with(event, stream, 0);
}

static int stream_wait(void *stream, void *event, unsigned flags)
{
	const struct fake_event *e = event;
	struct fake_stream *s = stream;

	(void)flags;
	fake_lock();
	fake_trace("wait %d %d %p", fake_thread.actor, s->actor, event);
	if (e->capture != 0 || (s->capture != NULL && e->mark != NULL))
		fake_capture_wait(s, e);
	else if (e->mark == NULL)
		fake_cuda_fault("a stream waits for an event that was not recorded");
	else
		fake_enqueue(s, NODE_WAIT, "a wait", NULL, 0, NULL, 0)->mark = e->mark;
	fake_unlock();
	return fake_outcome();
}

static int event_query(void *event)
{
	const struct fake_event *e = event;
	struct mark *mark = e->mark;
	bool done;

	fake_lock();
	if (e->capture != 0)
		fake_cuda_fault("the host looks at an event that only a capture knows");
	else if (mark == NULL)
		fake_cuda_fault("the host looks at an event that was not recorded");
	else if (!mark->done && fake_machine.fault[0] == '\0')
		fake_run_one();
	done = mark != NULL && mark->done;
	if (done) {
		fake_trace("seen %d 0 %p", fake_thread.actor, event);
		fake_join(fake_thread.clock, mark->clock);
		fake_clock_wait(mark->time);
	}
	fake_unlock();
	if (fake_outcome() != 0)
		return fake_outcome();
	return done ? 0 : CUDA_ERROR_NOT_READY;
}

static int event_synchronize(void *event)
{
	int result;

	for (int looks = 1; (result = event_query(event)) == CUDA_ERROR_NOT_READY; looks++)
		if (looks % 64 == 0)
			sched_yield(); /* another thread's turn, if there is one */
	return result;
}

static int event_elapsed(float *milliseconds, void *start, void *end)
{
	const struct mark *first = ((struct fake_event *)start)->mark;
	const struct mark *second = ((struct fake_event *)end)->mark;

	fake_lock();
	if (first == NULL || second == NULL || !first->done || !second->done)
		fake_cuda_fault("the time of an event that has not come is asked for");
	else
		*milliseconds = (float)((second->time - first->time) * 1e3);
	fake_unlock();
	return fake_outcome();
}

/* --- kernels of the image --- */

static int library_load(void **library, const void *image, int *jit_options, void **jit_values,
	unsigned n_jit, int *options, void **values, unsigned n_options)
{
	static char loaded;

	(void)image;
	(void)jit_options;
	(void)jit_values;
	(void)n_jit;
	(void)options;
	(void)values;
	(void)n_options;
	*library = &loaded;
	return fake_outcome();
}

static int library_unload(void *library)
{
	(void)library;
	return 0;
}

struct sum_integers {
	int64_t *out;
	const int64_t *gathered;
	int64_t sources, n;
};

static void run_sum_integers(void *arguments)
{
	const struct sum_integers *a = arguments;

	for (int64_t i = 0; i < a->n; i++) {
		int64_t total = 0;

		for (int64_t s = 0; s < a->sources; s++)
			total += a->gathered[s * a->n + i];
		a->out[i] = total;
	}
}

static void launch_sum_integers(void *stream, void **arguments)
{
	const struct sum_integers a = {*(int64_t **)arguments[0], *(const int64_t **)arguments[1],
		*(int64_t *)arguments[2], *(int64_t *)arguments[3]};
	const struct fake_touch touches[] = {
		{a.out, a.n * 8, true}, {a.gathered, a.sources * a.n * 8, false}};

	fake_cuda_call(stream, "sum_integers", run_sum_integers, &a, sizeof(a), touches, 2);
}

static struct {
	const char *name;
	void (*launch)(void *stream, void **arguments);
} image[] = {{"sum_integers", launch_sum_integers}, {"pace_begin", fake_launch_pace_begin},
	{"pace_end", fake_launch_pace_end}};

static int library_kernel(void **kernel, void *library, const char *name)
{
	(void)library;
	for (size_t i = 0; i < sizeof(image) / sizeof(image[0]); i++)
		if (strcmp(image[i].name, name) == 0) {
			*kernel = &image[i];
			return fake_outcome();
		}
	fake_lock();
	fake_cuda_fault("the fake has no kernel %s", name);
	fake_unlock();
	return fake_outcome();
}

static int launch_kernel(void *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
	unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream,
	void **arguments, void **extra)
{
	if (grid_x * grid_y * grid_z == 0 || block_x * block_y * block_z == 0 || shared_bytes > 0 ||
		extra != NULL)
		fake_cuda_fault("a launch of no blocks or threads");
	for (size_t i = 0; i < sizeof(image) / sizeof(image[0]); i++)
		if (kernel == &image[i])
			image[i].launch(stream, arguments);
	return fake_outcome();
}

void fake_cuda_install(int gpus, uint64_t seed)
{
	static struct cuda_api api = {.cuInit = init,
		.cuGetErrorString = error_string,
		.cuDeviceGetCount = device_count,
		.cuDeviceGet = device_get,
		.cuDeviceGetName = device_name,
		.cuDeviceGetAttribute = device_attribute,
		.cuDeviceGetUuid = device_uuid,
		.cuDeviceGetPCIBusId = device_bus_id,
		.cuDriverGetVersion = driver_version,
		.cuDevicePrimaryCtxRetain = context_retain,
		.cuDevicePrimaryCtxRelease = context_release,
		.cuCtxSetCurrent = context_set,
		.cuCtxSynchronize = context_synchronize,
		.cuMemGetInfo = memory_info,
		.cuMemAlloc = memory_allocate,
		.cuMemGetAddressRange = address_range,
		.cuMemFree = memory_free,
		.cuMemHostAlloc = host_allocate,
		.cuMemFreeHost = host_free,
		.cuMemcpyAsync = copy_async,
		.cuMemsetD8Async = fill_async,
		.cuStreamCreateWithPriority = stream_create,
		.cuStreamDestroy = stream_destroy,
		.cuStreamSynchronize = stream_synchronize,
		.cuStreamWaitEvent = stream_wait,
		.cuEventCreate = event_create,
		.cuEventDestroy = event_destroy,
		.cuEventRecord = event_record,
		.cuEventRecordWithFlags = event_record_with,
		.cuEventQuery = event_query,
		.cuEventSynchronize = event_synchronize,
		.cuEventElapsedTime = event_elapsed,
		.cuLibraryLoadData = library_load,
		.cuLibraryUnload = library_unload,
		.cuLibraryGetKernel = library_kernel,
		.cuLaunchKernel = launch_kernel,
		.image = "fake",
		.image_bytes = 4};

	fake_graph_install(&api);
	api.kernels = &fake_kernels;
	look(gpus);
	fake_machine.random = seed * 2654435761u + 88172645463325252u;
	cuda_api_use(&api);
}
