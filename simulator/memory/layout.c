/* Hashes of the allocator's state: a replay that finds an equal one need not go on. */
#include "simulator/memory/blocks.h"

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ (hash >> 29);
}

static bool stays(const struct allocator_block *neighbour)
{
	return neighbour == NULL || neighbour->is_kept;
}

/* Can a free block stand for any other of its size? Not one that becomes larger when a neighbour is
 * freed, nor the end of a segment that grows. */
static bool is_like_any(const struct allocator *a, const struct allocator_block *block)
{
	return stays(block->previous) && stays(block->next) &&
	       (!a->expandable || block != block->list->tail);
}

uint64_t allocator_state(const struct allocator *a, int stream, bool small)
{
	const struct free_list *list = &a->lists[stream][small];
	uint64_t hash = mix(0, (uint64_t)list->end);
	for (int i = 0; i < list->n; i++) {
		hash = mix(hash, (uint64_t)list->sizes[i].bytes);
		for (const struct allocator_block *block = list->sizes[i].first; block != NULL;
			block = block->free_after) {
			uint64_t place = ((uint64_t)block->segment << 40) + (uint64_t)block->offset;
			hash = mix(hash, is_like_any(a, block) ? 1 : place);
		}
	}
	return hash;
}

static uint64_t segment_layout(const struct allocator_block *block)
{
	uint64_t hash = (uint64_t)(2 * block->list->stream + block->list->small);
	for (; block != NULL; block = block->next)
		hash = mix(hash, (uint64_t)(2 * block->bytes) | block->is_free);
	return hash;
}

/* Structs of blocks that no longer exist are marked. */
uint64_t allocator_layout(const struct allocator *a)
{
	uint64_t sum = mix(0, (uint64_t)a->retries);
	for (const struct block_chunk *chunk = a->chunks; chunk != NULL; chunk = chunk->next)
		for (int i = 0; i < chunk->n; i++)
			if (chunk->blocks[i].previous == NULL && chunk->blocks[i].bytes > 0)
				sum += segment_layout(&chunk->blocks[i]);
	return sum;
}
