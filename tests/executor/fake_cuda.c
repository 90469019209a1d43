#include "fake_cuda.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_cuda_private.h"

enum { FAKE_ERROR = 999, FAKE_MEMORY = 1 << 30 };

static struct machine {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int gpus;
	uint64_t random;
	int n_actors;
	struct fake_stream *streams;
	struct allocation *allocations;
	int64_t allocated;
	char fault[400];
	struct fake_counts counts;
} machine = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static _Thread_local struct thread {
	int actor; /* from 1; 0 = not yet known */
	uint32_t clock[FAKE_ACTORS];
} thread;

/* --- faults --- */

void fake_cuda_fault(const char *format, ...)
{
	va_list args;

	if (machine.fault[0] != '\0')
		return;
	va_start(args, format);
	vsnprintf(machine.fault, sizeof(machine.fault), format, args);
	va_end(args);
}

const char *fake_cuda_first_fault(void)
{
	return machine.fault;
}

struct fake_counts fake_cuda_counts(void)
{
	return machine.counts;
}

void fake_count_collective(void)
{
	machine.counts.collectives++;
}

static int outcome(void)
{
	return machine.fault[0] != '\0' ? FAKE_ERROR : 0;
}

static void *allocate(size_t bytes)
{
	void *memory = calloc(1, bytes > 0 ? bytes : 1);

	if (memory == NULL)
		abort();
	return memory;
}

/* --- threads --- */

void fake_lock(void)
{
	pthread_mutex_lock(&machine.lock);
	if (thread.actor == 0)
		thread.actor = fake_new_actor();
}

void fake_unlock(void)
{
	pthread_mutex_unlock(&machine.lock);
}

void fake_wait(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 2000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&machine.changed, &machine.lock, &until);
}

void fake_wake(void)
{
	pthread_cond_broadcast(&machine.changed);
}

int fake_new_actor(void)
{
	if (machine.n_actors + 1 >= FAKE_ACTORS)
		fake_cuda_fault("the fake has room for %d threads and streams", FAKE_ACTORS);
	else
		machine.n_actors++;
	return machine.n_actors;
}

static void join(uint32_t *into, const uint32_t *from)
{
	for (int i = 0; i <= machine.n_actors; i++)
		into[i] = into[i] > from[i] ? into[i] : from[i];
}

/* --- accesses --- */

static struct access {
	const char *start, *end;
	int actor;
	uint32_t time;
	bool write;
	const char *name;
} * accesses;
static int n_accesses, capacity_accesses;

static struct allocation *find_allocation(const void *address)
{
	const char *byte = address;

	for (struct allocation *a = machine.allocations; a != NULL; a = a->next)
		if (byte >= a->memory && byte < a->memory + a->bytes)
			return a;
	return NULL;
}

static bool is_before(const struct access *access, const struct fake_stream *stream)
{
	return access->time <= stream->clock[access->actor];
}

static void add_access(const struct access *access)
{
	if (n_accesses == capacity_accesses) {
		capacity_accesses = capacity_accesses * 2 + 256;
		accesses = realloc(accesses, (size_t)capacity_accesses * sizeof(*accesses));
		if (accesses == NULL)
			abort();
	}
	accesses[n_accesses++] = *access;
}

/* A later access stands for an earlier one where it covers it, is ordered behind it, and conflicts
 * with whatever that one would conflict with. */
static bool stands_for(const struct access *later, const struct access *earlier)
{
	return later->start <= earlier->start && later->end >= earlier->end &&
	       (later->write || (!earlier->write && later->actor == earlier->actor));
}

static void check_access(
	const struct fake_stream *stream, const char *name, const struct fake_touch *touch)
{
	const struct allocation *a = find_allocation(touch->address);
	const struct access now = {touch->address, (const char *)touch->address + touch->bytes,
		stream->actor, stream->clock[stream->actor], touch->write, name};
	int kept = 0;

	machine.counts.accesses++;
	if (touch->bytes <= 0)
		return;
	if (a == NULL || now.end > a->memory + a->bytes) {
		fake_cuda_fault("%s %s %lld bytes that nobody allocated", name,
			touch->write ? "writes" : "reads", (long long)touch->bytes);
		return;
	}
	for (int i = 0; i < n_accesses; i++) {
		const struct access *other = &accesses[i];
		bool overlap = other->start < now.end && now.start < other->end;
		bool before = is_before(other, stream);

		if (overlap && !before && (other->write || now.write))
			fake_cuda_fault("race: %s %s what %s %s, and nothing orders them", name,
				now.write ? "writes" : "reads", other->name,
				other->write ? "writes" : "reads");
		if (!overlap || !before || !stands_for(&now, other))
			accesses[kept++] = *other;
	}
	n_accesses = kept;
	add_access(&now);
}

static void forget_accesses(const char *start, const char *end)
{
	int kept = 0;

	for (int i = 0; i < n_accesses; i++)
		if (accesses[i].end <= start || accesses[i].start >= end)
			accesses[kept++] = accesses[i];
	n_accesses = kept;
}

/* --- queues --- */

struct fake_node *fake_enqueue(struct fake_stream *stream, enum fake_node_kind kind,
	const char *name, const void *arguments, size_t bytes, const struct fake_touch *touches,
	int n_touches)
{
	struct fake_node *node = allocate(sizeof(*node));

	node->kind = kind;
	node->name = name;
	node->arguments = allocate(bytes);
	if (bytes > 0)
		memcpy(node->arguments, arguments, bytes);
	if (n_touches > FAKE_TOUCHES)
		fake_cuda_fault("%s touches more than %d ranges", name, FAKE_TOUCHES);
	node->touches = allocate((size_t)n_touches * sizeof(*touches));
	if (n_touches > 0)
		memcpy(node->touches, touches, (size_t)n_touches * sizeof(*touches));
	node->n_touches = n_touches;
	memcpy(node->clock, thread.clock, sizeof(node->clock));
	if (stream->tail != NULL)
		stream->tail->next = node;
	else
		stream->head = node;
	stream->tail = node;
	stream->owner = thread.actor;
	fake_wake();
	return node;
}

static void pop(struct fake_stream *stream)
{
	struct fake_node *node = stream->head;

	stream->head = node->next;
	if (stream->head == NULL)
		stream->tail = NULL;
	free(node->arguments);
	free(node->touches);
	free(node);
}

static bool is_ready(const struct fake_stream *stream)
{
	const struct fake_node *node = stream->head;

	if (node == NULL)
		return false;
	if (node->kind == NODE_WAIT)
		return node->mark->done;
	return node->kind != NODE_MEET || fake_meeting_is_complete(node->meeting);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* What comes before the node is all done: its stream's clock may go on. */
void fake_begin_node(struct fake_stream *stream)
{
	struct fake_node *node = stream->head;

	join(stream->clock, node->clock);
	if (node->kind == NODE_WAIT)
		join(stream->clock, node->mark->clock);
	stream->clock[stream->actor]++;
}

void fake_check_node(struct fake_stream *stream)
{
	for (int i = 0; i < stream->head->n_touches; i++)
		check_access(stream, stream->head->name, &stream->head->touches[i]);
}

void fake_join_clocks(struct fake_stream *stream, const struct fake_stream *other)
{
	join(stream->clock, other->clock);
}

void fake_end_node(struct fake_stream *stream)
{
	pop(stream);
}

static void run_head(struct fake_stream *stream)
{
	struct fake_node *node = stream->head;

	if (node->kind == NODE_MEET) {
		fake_meeting_run(node->meeting);
		return;
	}
	fake_begin_node(stream);
	fake_check_node(stream);
	if (node->kind == NODE_CALL && machine.fault[0] == '\0')
		node->run(node->arguments);
	if (node->kind == NODE_RECORD) {
		memcpy(node->mark->clock, stream->clock, sizeof(node->mark->clock));
		node->mark->time = seconds();
		node->mark->done = true;
	}
	pop(stream);
}

static uint64_t draw(uint64_t below)
{
	machine.random ^= machine.random << 13;
	machine.random ^= machine.random >> 7;
	machine.random ^= machine.random << 17;
	return machine.random % below;
}

/* One node of a stream that is drawn; false when none can go on. */
static bool run_one(void)
{
	struct fake_stream *chosen = NULL;
	uint64_t seen = 0;

	for (struct fake_stream *s = machine.streams; s != NULL; s = s->next)
		if (is_ready(s) && draw(++seen) == 0)
			chosen = s;
	if (chosen == NULL)
		return false;
	run_head(chosen);
	fake_wake();
	return true;
}

void fake_cuda_call(void *stream, const char *name, void (*run)(void *arguments),
	const void *arguments, size_t bytes, const struct fake_touch *touches, int n_touches)
{
	fake_lock();
	fake_enqueue(stream, NODE_CALL, name, arguments, bytes, touches, n_touches)->run = run;
	machine.counts.launches++;
	fake_unlock();
}

/* --- the driver: devices and memory --- */

static int init(unsigned flags)
{
	(void)flags;
	return 0;
}

static int error_string(int result, const char **text)
{
	*text = result == FAKE_ERROR ? machine.fault : "out of memory or not ready";
	return 0;
}

static int device_count(int *count)
{
	*count = machine.gpus;
	return 0;
}

static int device_get(int *device, int ordinal)
{
	*device = ordinal;
	return ordinal < machine.gpus ? 0 : FAKE_ERROR;
}

static int context_retain(void **context, int device)
{
	static char contexts[64];

	*context = &contexts[device % 64];
	return outcome();
}

static int context_release(int device)
{
	(void)device;
	return 0;
}

static int context_set(void *context)
{
	return context != NULL ? outcome() : FAKE_ERROR;
}

static int memory_info(size_t *free_bytes, size_t *total_bytes)
{
	fake_lock();
	*total_bytes = FAKE_MEMORY;
	*free_bytes = (size_t)(FAKE_MEMORY - machine.allocated);
	fake_unlock();
	return outcome();
}

/* Of what the calling thread enqueued. */
static bool is_working(void)
{
	for (struct fake_stream *s = machine.streams; s != NULL; s = s->next)
		if (s->head != NULL && s->owner == thread.actor)
			return true;
	return false;
}

static char *add_allocation(size_t bytes, bool pinned)
{
	struct allocation *a = allocate(sizeof(*a));

	if (is_working())
		fake_cuda_fault("memory is allocated while a step runs");
	*a = (struct allocation){.bytes = (int64_t)bytes, .pinned = pinned};
	a->memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
	if (a->memory == NULL)
		abort();
	/* As found: NaN in every format. */
	memset(a->memory, 0xff, bytes);
	a->next = machine.allocations;
	machine.allocations = a;
	machine.allocated += pinned ? 0 : a->bytes;
	return a->memory;
}

static void remove_allocation(const void *memory, bool pinned)
{
	struct allocation **at = &machine.allocations;

	if (is_working())
		fake_cuda_fault("memory is freed while a step runs");
	while (*at != NULL && (*at)->memory != memory)
		at = &(*at)->next;
	struct allocation *a = *at;
	if (a == NULL || a->pinned != pinned) {
		fake_cuda_fault("what is freed was never allocated");
		return;
	}
	*at = a->next;
	machine.allocated -= pinned ? 0 : a->bytes;
	forget_accesses(a->memory, a->memory + a->bytes);
	free(a->memory);
	free(a);
}

static int memory_allocate(uint64_t *address, size_t bytes)
{
	int result = 2;

	fake_lock();
	if (machine.allocated + (int64_t)bytes <= FAKE_MEMORY) {
		*address = (uint64_t)(uintptr_t)add_allocation(bytes, false);
		result = outcome();
	}
	fake_unlock();
	return result;
}

static int memory_free(uint64_t address)
{
	fake_lock();
	remove_allocation((void *)(uintptr_t)address, false);
	fake_unlock();
	return outcome();
}

static int host_allocate(void **address, size_t bytes, unsigned flags)
{
	(void)flags;
	fake_lock();
	*address = add_allocation(bytes, true);
	fake_unlock();
	return outcome();
}

static int host_free(void *address)
{
	fake_lock();
	remove_allocation(address, true);
	fake_unlock();
	return outcome();
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
	if (find_allocation(copy->to) != NULL)
		touches[n++] = (struct fake_touch){copy->to, (int64_t)copy->bytes, true};
	if (copy->from != NULL && find_allocation(copy->from) != NULL)
		touches[n++] = (struct fake_touch){copy->from, (int64_t)copy->bytes, false};
	fake_enqueue(stream, NODE_CALL, name, copy, sizeof(*copy), touches, n)->run = run_copy;
	machine.counts.copies++;
	fake_unlock();
}

static int copy_async(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
	enqueue_copy(stream, "a copy",
		&(struct copy){(char *)(uintptr_t)to, (const char *)(uintptr_t)from, 0, bytes});
	return outcome();
}

static int fill_async(uint64_t to, unsigned char value, size_t bytes, void *stream)
{
	enqueue_copy(stream, "a fill", &(struct copy){(char *)(uintptr_t)to, NULL, value, bytes});
	return outcome();
}

/* --- streams and events --- */

static int stream_create(void **stream, unsigned flags, int priority)
{
	struct fake_stream *s = allocate(sizeof(*s));

	(void)flags;
	(void)priority;
	fake_lock();
	s->actor = fake_new_actor();
	s->next = machine.streams;
	machine.streams = s;
	fake_unlock();
	*stream = s;
	return outcome();
}

/* Its clock stays: the accesses of its nodes do. */
static int stream_destroy(void *stream)
{
	struct fake_stream **at = &machine.streams;

	fake_lock();
	while (*at != stream)
		at = &(*at)->next;
	*at = (*at)->next;
	while (((struct fake_stream *)stream)->head != NULL)
		pop(stream);
	free(stream);
	fake_unlock();
	return outcome();
}

static int stream_synchronize(void *stream)
{
	struct fake_stream *s = stream;

	fake_lock();
	if (s->in_steps)
		fake_cuda_fault("a stream of the step is synchronised");
	while (s->head != NULL && machine.fault[0] == '\0')
		if (!run_one())
			fake_wait();
	join(thread.clock, s->clock);
	fake_unlock();
	return outcome();
}

static int context_synchronize(void)
{
	fake_lock();
	fake_cuda_fault("the device is synchronised");
	fake_unlock();
	return outcome();
}

static int event_create(void **event, unsigned flags)
{
	(void)flags;
	*event = allocate(sizeof(struct fake_event));
	return outcome();
}

static int event_destroy(void *event)
{
	free(event);
	return outcome();
}

/* Marks stay for whoever still waits for them. */
static struct mark *marks;

static int event_record(void *event, void *stream)
{
	struct fake_stream *s = stream;
	struct mark *mark = allocate(sizeof(*mark));

	fake_lock();
	mark->next = marks;
	marks = mark;
	((struct fake_event *)event)->mark = mark;
	fake_enqueue(s, NODE_RECORD, "an event", NULL, 0, NULL, 0)->mark = mark;
	s->in_steps = true;
	machine.counts.records++;
	fake_unlock();
	return outcome();
}

static int stream_wait(void *stream, void *event, unsigned flags)
{
	struct mark *mark = ((struct fake_event *)event)->mark;

	(void)flags;
	fake_lock();
	if (mark == NULL)
		fake_cuda_fault("a stream waits for an event that was not recorded");
	else
		fake_enqueue(stream, NODE_WAIT, "a wait", NULL, 0, NULL, 0)->mark = mark;
	machine.counts.waits++;
	fake_unlock();
	return outcome();
}

static int event_query(void *event)
{
	struct mark *mark = ((struct fake_event *)event)->mark;
	bool done;

	fake_lock();
	if (mark == NULL)
		fake_cuda_fault("the host looks at an event that was not recorded");
	else if (!mark->done && machine.fault[0] == '\0')
		run_one();
	done = mark != NULL && mark->done;
	if (done)
		join(thread.clock, mark->clock);
	fake_unlock();
	if (outcome() != 0)
		return outcome();
	return done ? 0 : CUDA_ERROR_NOT_READY;
}

static int event_synchronize(void *event)
{
	int result;

	do
		result = event_query(event);
	while (result == CUDA_ERROR_NOT_READY);
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
	return outcome();
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
	return outcome();
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
} image[] = {{"sum_integers", launch_sum_integers}};

static int library_kernel(void **kernel, void *library, const char *name)
{
	(void)library;
	for (size_t i = 0; i < sizeof(image) / sizeof(image[0]); i++)
		if (strcmp(image[i].name, name) == 0) {
			*kernel = &image[i];
			return outcome();
		}
	fake_lock();
	fake_cuda_fault("the fake has no kernel %s", name);
	fake_unlock();
	return outcome();
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
	return outcome();
}

void fake_cuda_install(int gpus, uint64_t seed)
{
	static struct cuda_api api = {.cuInit = init,
		.cuGetErrorString = error_string,
		.cuDeviceGetCount = device_count,
		.cuDeviceGet = device_get,
		.cuDevicePrimaryCtxRetain = context_retain,
		.cuDevicePrimaryCtxRelease = context_release,
		.cuCtxSetCurrent = context_set,
		.cuCtxSynchronize = context_synchronize,
		.cuMemGetInfo = memory_info,
		.cuMemAlloc = memory_allocate,
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
		.cuEventQuery = event_query,
		.cuEventSynchronize = event_synchronize,
		.cuEventElapsedTime = event_elapsed,
		.cuLibraryLoadData = library_load,
		.cuLibraryUnload = library_unload,
		.cuLibraryGetKernel = library_kernel,
		.cuLaunchKernel = launch_kernel,
		.image = "fake",
		.image_bytes = 4};

	api.kernels = &fake_kernels;
	machine.gpus = gpus;
	machine.random = seed * 2654435761u + 88172645463325252u;
	cuda_api_use(&api);
}
