/* The allocations of the fake machine and the accesses to each byte, by which races are found. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/executor/fakes/cuda_private.h"

enum { LARGE_PAGE = 2 << 20, SPOILED = 1 << 20 };

/* --- accesses --- */

static struct access {
	const char *start, *end;
	int actor;
	uint32_t time;
	bool write;
	const char *name;
} * accesses;
static int n_accesses, capacity_accesses;

struct allocation *fake_find_allocation(const void *address)
{
	const char *byte = address;

	for (struct allocation *a = fake_machine.allocations; a != NULL; a = a->next)
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

void fake_check_access(
	const struct fake_stream *stream, const char *name, const struct fake_touch *touch)
{
	const struct allocation *a = fake_find_allocation(touch->address);
	const struct access now = {touch->address, (const char *)touch->address + touch->bytes,
		stream->actor, stream->clock[stream->actor], touch->write, name};
	int kept = 0;

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

/* Is something of what the calling thread enqueued under way? */
static bool is_working(void)
{
	for (struct fake_stream *s = fake_machine.streams; s != NULL; s = s->next)
		if (s->head != NULL && s->owner == fake_thread.actor)
			return true;
	return false;
}

/* A mapping with nothing behind it. Where MALLOC_PERTURB_ is set, as by `meson test`, malloc would
 * write all of what it gives and takes back. */
static void map(struct allocation *a, size_t bytes)
{
	a->reserved = bytes + 2 * LARGE_PAGE;
	a->range = mmap(
		NULL, a->reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	a->memory = (char *)round_up((intptr_t)a->range, LARGE_PAGE);
	if (a->range == MAP_FAILED || mprotect(a->memory, bytes, PROT_READ | PROT_WRITE) != 0)
		abort();
}

/* Whole pages begin at one, as NCCL's do. */
static void allocate(struct allocation *a, size_t bytes)
{
	size_t unit = bytes % 4096 == 0 ? 4096 : 256;

	if (bytes >= LARGE_PAGE) {
		map(a, bytes);
		return;
	}
	a->memory = aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
	if (a->memory == NULL)
		abort();
}

static void deallocate(struct allocation *a)
{
	if (a->range != NULL)
		munmap(a->range, a->reserved);
	else
		free(a->memory);
}

char *fake_add_allocation(size_t bytes, bool pinned)
{
	struct allocation *a = fake_calloc(sizeof(*a));

	if (is_working())
		fake_cuda_fault("memory is allocated while a step runs");
	if (fake_thread.capture != NULL)
		fake_cuda_fault("memory is allocated while a step is captured");
	*a = (struct allocation){.bytes = (int64_t)bytes, .pinned = pinned};
	allocate(a, bytes);
	/* A workspace of kernels is used from its start, and small models use little of it. */
	size_t filled = bytes == KERNELS_WORKSPACE_BYTES ? SPOILED : bytes;
	/* Large pages are filled with fewer faults. */
	if (filled >= LARGE_PAGE)
		(void)madvise(a->memory, bytes, MADV_HUGEPAGE);
	/* As found: NaN in every format. Where nothing is computed nothing is touched. */
	if (!fake_clock_is_dry() || pinned)
		memset(a->memory, 0xff, filled);
	fake_trace("%s %d 0 %p %lld", pinned ? "pinned" : "device", fake_thread.actor,
		(void *)a->memory, (long long)a->bytes);
	a->next = fake_machine.allocations;
	fake_machine.allocations = a;
	fake_machine.allocated += pinned ? 0 : a->bytes;
	return a->memory;
}

void fake_remove_allocation(const void *memory, bool pinned)
{
	struct allocation **at = &fake_machine.allocations;

	if (is_working())
		fake_cuda_fault("memory is freed while a step runs");
	if (fake_thread.capture != NULL)
		fake_cuda_fault("memory is freed while a step is captured");
	while (*at != NULL && (*at)->memory != memory)
		at = &(*at)->next;
	struct allocation *a = *at;
	if (a == NULL || a->pinned != pinned) {
		fake_cuda_fault("what is freed was never allocated");
		return;
	}
	*at = a->next;
	fake_machine.allocated -= pinned ? 0 : a->bytes;
	forget_accesses(a->memory, a->memory + a->bytes);
	deallocate(a);
	free(a);
}
