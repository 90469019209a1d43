#include "executor/memory/buffers.h"
#include "schedule/memory/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Address space for what comes and goes, over the ledger's peak. Best fit stays far below. */
enum { ROOM_FACTOR = 4, ROOM_EXTRA = 64 << 20, EXTRA_BLOCKS = 64 };

int64_t buffers_capacity(const struct schedule *schedule, int class)
{
	struct arena arena = {0};
	struct ledger ledger;

	schedule_ledger(schedule, class, &arena, &ledger);
	int64_t peak = ledger.peak_bytes;
	arena_finish(&arena);
	return ROOM_FACTOR * peak + ROOM_EXTRA;
}

int64_t buffers_most_capacity(const struct schedule *schedule)
{
	int64_t most = 0;

	for (int c = 0; c < schedule->n_classes; c++)
		most = max_i64(most, buffers_capacity(schedule, c));
	return most;
}

static enum category category_of(const struct buffers *buffers, int buffer)
{
	return buffer_role_category(buffers->program->buffers[buffer].role);
}

static bool in_host(const struct buffers *buffers, int buffer)
{
	return buffer_in_host(&buffers->program->buffers[buffer]);
}

static struct heap *heap_of(struct buffers *buffers, int buffer)
{
	return in_host(buffers, buffer) ? &buffers->host : &buffers->heap;
}

/* --- the host's tier --- */

static int64_t host_bytes(const struct program *program, struct slice slice)
{
	const int *list = slice_of(program, slice);
	int64_t bytes = 0;

	for (int i = 0; i < slice.count; i++)
		if (buffer_in_host(&program->buffers[list[i]]))
			bytes += program->buffers[list[i]].bytes;
	return bytes;
}

/* Returns the most bytes that are live in host memory, in list order. */
static int64_t host_peak(const struct program *program)
{
	int64_t live = 0, peak;

	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].resident && buffer_in_host(&program->buffers[i]))
			live += program->buffers[i].bytes;
	peak = live;
	for (int i = 0; i < program->n_ops; i++) {
		live += host_bytes(program, program->ops[i].takes);
		peak = max_i64(peak, live);
		live -= host_bytes(program, program->ops[i].gives);
	}
	return peak;
}

static bool map_host(struct buffers *buffers, struct error *error)
{
	buffers->host_limit = host_peak(buffers->program);
	if (buffers->host_limit == 0)
		return true;
	buffers->host_reserved = ROOM_FACTOR * buffers->host_limit + ROOM_EXTRA;
	buffers->host_memory = mmap(NULL, (size_t)buffers->host_reserved, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (buffers->host_memory == MAP_FAILED) {
		buffers->host_memory = NULL;
		return error_set(error, EXIT_CODE_ENVIRONMENT, "mapping %lld bytes for offload: %s",
			(long long)buffers->host_reserved, strerror(errno));
	}
	heap_init(&buffers->host, buffers->host_memory, buffers->host_reserved,
		buffers->program->n_buffers + EXTRA_BLOCKS);
	return true;
}

static bool take_in_host(struct buffers *buffers, int buffer, struct error *error)
{
	int64_t bytes = buffers->program->buffers[buffer].bytes;

	if (buffers->host.live + bytes > buffers->host_limit)
		return error_set(error, EXIT_CODE_INTERNAL,
			"%lld bytes more beside %lld live ones in host memory, which holds %lld",
			(long long)bytes, (long long)buffers->host.live,
			(long long)buffers->host_limit);
	int block = heap_take(&buffers->host, bytes, error);
	if (block < 0)
		return false;
	buffers->blocks[buffer] = block;
	buffers->host_ledger += heap_bytes(&buffers->host, block);
	buffers->host_ledger_peak = max_i64(buffers->host_ledger_peak, buffers->host_ledger);
	return true;
}

/* --- on a device --- */

static bool is_placed(const struct buffers *buffers)
{
	return buffers->addresses != NULL;
}

/* The place was kept for the buffer, which only has to count. */
static void take_placed_in_host(struct buffers *buffers, int buffer)
{
	buffers->blocks[buffer] = buffer;
	buffers->host_ledger += buffers->program->buffers[buffer].bytes;
	buffers->host_ledger_peak = max_i64(buffers->host_ledger_peak, buffers->host_ledger);
}

static void *placed_address(const struct buffers *buffers, int buffer)
{
	char *base = in_host(buffers, buffer) ? buffers->host_base : buffers->device_base;

	return base + buffers->addresses->offsets[buffer];
}

/* --- both tiers --- */

static void count_physical(struct buffers *buffers, enum category category, int64_t bytes)
{
	int64_t *now = &buffers->physical[category];
	int64_t *peak = &buffers->physical_category_peak[category];

	*now += bytes;
	*peak = max_i64(*peak, *now);
	buffers->physical_total += bytes;
	if (buffers->physical_total <= buffers->physical_peak)
		return;
	buffers->physical_peak = buffers->physical_total;
	memcpy(buffers->physical_at_peak, buffers->physical, sizeof(buffers->physical));
}

static void take_placed(struct buffers *buffers, int buffer)
{
	int64_t bytes = buffers->program->buffers[buffer].bytes;

	if (in_host(buffers, buffer)) {
		take_placed_in_host(buffers, buffer);
		return;
	}
	buffers->blocks[buffer] = buffer;
	buffers->ledger[category_of(buffers, buffer)] += bytes;
	count_physical(buffers, category_of(buffers, buffer), bytes);
}

bool buffers_take(struct buffers *buffers, int buffer, struct error *error)
{
	if (is_placed(buffers)) {
		take_placed(buffers, buffer);
		return true;
	}
	if (in_host(buffers, buffer))
		return take_in_host(buffers, buffer, error);
	int block = heap_take(&buffers->heap, buffers->program->buffers[buffer].bytes, error);
	if (block < 0)
		return false;
	buffers->blocks[buffer] = block;
	buffers->ledger[category_of(buffers, buffer)] += heap_bytes(&buffers->heap, block);
	count_physical(buffers, category_of(buffers, buffer), heap_bytes(&buffers->heap, block));
	return true;
}

void buffers_give(struct buffers *buffers, int buffer)
{
	if (in_host(buffers, buffer))
		buffers->host_ledger -= buffers_bytes(buffers, buffer);
	else
		buffers->ledger[category_of(buffers, buffer)] -= buffers_bytes(buffers, buffer);
}

void buffers_release(struct buffers *buffers, int buffer)
{
	if (!in_host(buffers, buffer))
		count_physical(
			buffers, category_of(buffers, buffer), -buffers_bytes(buffers, buffer));
	if (!is_placed(buffers))
		heap_give(heap_of(buffers, buffer), buffers->blocks[buffer]);
	buffers->blocks[buffer] = -1;
}

void *buffers_address(const struct buffers *buffers, int buffer)
{
	int block = buffers->blocks[buffer];

	if (block < 0)
		return NULL;
	if (is_placed(buffers))
		return placed_address(buffers, buffer);
	return heap_address(in_host(buffers, buffer) ? &buffers->host : &buffers->heap, block);
}

int64_t buffers_bytes(const struct buffers *buffers, int buffer)
{
	int block = buffers->blocks[buffer];

	if (block < 0)
		return 0;
	if (is_placed(buffers))
		return buffers->program->buffers[buffer].bytes;
	return heap_bytes(in_host(buffers, buffer) ? &buffers->host : &buffers->heap, block);
}

static int *no_blocks(int n)
{
	int *blocks = malloc((size_t)(n + 1) * sizeof(int));

	if (blocks == NULL)
		base_out_of_memory((size_t)n * sizeof(int));
	for (int i = 0; i < n; i++)
		blocks[i] = -1;
	return blocks;
}

void buffers_init_placed(struct buffers *buffers, const struct program *program,
	const struct addresses *addresses, void *device_base, void *host_base)
{
	*buffers = (struct buffers){.program = program,
		.addresses = addresses,
		.device_base = device_base,
		.host_base = host_base,
		.blocks = no_blocks(program->n_buffers)};
	buffers->heap.high_water = addresses->device_bytes;
	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].resident)
			take_placed(buffers, i);
}

bool buffers_init(struct buffers *buffers, const struct program *program, void *base,
	int64_t capacity, struct error *error)
{
	int n = program->n_buffers;

	*buffers = (struct buffers){.program = program, .blocks = no_blocks(n)};
	heap_init(&buffers->heap, base, capacity, n + EXTRA_BLOCKS);
	if (!map_host(buffers, error))
		return false;
	for (int i = 0; i < n; i++)
		if (program->buffers[i].resident && !buffers_take(buffers, i, error))
			return false;
	return true;
}

void buffers_finish(struct buffers *buffers)
{
	heap_finish(&buffers->heap);
	heap_finish(&buffers->host);
	if (buffers->host_memory != NULL)
		munmap(buffers->host_memory, (size_t)buffers->host_reserved);
	free(buffers->blocks);
	*buffers = (struct buffers){0};
}
