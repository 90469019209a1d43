#include "executor/buffers.h"

#include <stdlib.h>
#include <string.h>

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

static enum category category_of(const struct buffers *buffers, int buffer)
{
	return buffer_role_category(buffers->program->buffers[buffer].role);
}

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

bool buffers_take(struct buffers *buffers, int buffer, struct error *error)
{
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
	buffers->ledger[category_of(buffers, buffer)] -= buffers_bytes(buffers, buffer);
}

void buffers_release(struct buffers *buffers, int buffer)
{
	count_physical(buffers, category_of(buffers, buffer), -buffers_bytes(buffers, buffer));
	heap_give(&buffers->heap, buffers->blocks[buffer]);
	buffers->blocks[buffer] = -1;
}

void *buffers_address(const struct buffers *buffers, int buffer)
{
	int block = buffers->blocks[buffer];

	return block >= 0 ? heap_address(&buffers->heap, block) : NULL;
}

int64_t buffers_bytes(const struct buffers *buffers, int buffer)
{
	int block = buffers->blocks[buffer];

	return block >= 0 ? heap_bytes(&buffers->heap, block) : 0;
}

bool buffers_init(struct buffers *buffers, const struct program *program, void *base,
	int64_t capacity, struct error *error)
{
	int n = program->n_buffers;

	*buffers = (struct buffers){.program = program};
	heap_init(&buffers->heap, base, capacity, n + EXTRA_BLOCKS);
	buffers->blocks = malloc((size_t)(n + 1) * sizeof(int));
	if (buffers->blocks == NULL)
		base_out_of_memory((size_t)n * sizeof(int));
	for (int i = 0; i < n; i++)
		buffers->blocks[i] = -1;
	for (int i = 0; i < n; i++)
		if (program->buffers[i].resident && !buffers_take(buffers, i, error))
			return false;
	return true;
}

void buffers_finish(struct buffers *buffers)
{
	heap_finish(&buffers->heap);
	free(buffers->blocks);
	*buffers = (struct buffers){0};
}
