#include "base/arena.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { FIRST_BLOCK_BYTES = 4 << 10, LARGEST_BLOCK_BYTES = 1 << 20 };

struct arena_block {
	struct arena_block *older;
	size_t size, used;
	bool is_zero;       /* what was not handed out yet */
	max_align_t data[]; /* max_align_t: what follows the header is aligned for any type */
};

static void free_blocks(struct arena_block *block)
{
	while (block != NULL) {
		struct arena_block *older = block->older;
		free(block);
		block = older;
	}
}

void arena_finish(struct arena *arena)
{
	free_blocks(arena->first);
	arena->first = NULL;
}

static struct arena_block *new_block(size_t size, struct arena_block *older)
{
	if (size > SIZE_MAX - sizeof(struct arena_block))
		base_out_of_memory(size);

	/* Pages of a large block that nobody writes to need no memory. */
	bool is_zero = size > LARGEST_BLOCK_BYTES;
	struct arena_block *block =
		is_zero ? calloc(1, sizeof(*block) + size) : malloc(sizeof(*block) + size);
	if (block == NULL)
		base_out_of_memory(size);
	*block = (struct arena_block){.older = older, .size = size, .is_zero = is_zero};
	return block;
}

/* As much in one block, so that the next round calls neither malloc nor free. */
void arena_reset(struct arena *arena)
{
	size_t size = 0;

	if (arena->first == NULL)
		return;
	if (arena->first->older != NULL) {
		for (struct arena_block *block = arena->first; block != NULL; block = block->older)
			size += block->size;
		arena_finish(arena);
		arena->first = new_block(size, NULL);
	}
	arena->first->is_zero = arena->first->is_zero && arena->first->used == 0;
	arena->first->used = 0;
}

void arena_join(struct arena *arena, struct arena *other)
{
	struct arena_block *last = other->first;

	if (last == NULL)
		return;
	while (last->older != NULL)
		last = last->older;
	if (arena->first == NULL) {
		arena->first = other->first;
	} else {
		last->older = arena->first->older;
		arena->first->older = other->first;
	}
	other->first = NULL;
}

/* Blocks double, so that an arena of n bytes costs O(log n) mallocs; a request larger than the
 * block that is due gets a block of its own size. */
static void add_block(struct arena *arena, size_t bytes)
{
	size_t size = FIRST_BLOCK_BYTES;

	if (arena->first != NULL && arena->first->size >= FIRST_BLOCK_BYTES)
		size = arena->first->size * 2;
	if (size > LARGEST_BLOCK_BYTES)
		size = LARGEST_BLOCK_BYTES;
	if (size < bytes)
		size = bytes;
	arena->first = new_block(size, arena->first);
}

/* A large request that does not fit has a block of its own, behind the newest, which goes on with
 * what is smaller. */
static struct arena_block *block_for(struct arena *arena, size_t bytes)
{
	struct arena_block *first = arena->first;

	if (first != NULL && first->size - first->used >= bytes)
		return first;
	if (first != NULL && bytes > LARGEST_BLOCK_BYTES / 4)
		return first->older = new_block(bytes, first->older);
	add_block(arena, bytes);
	return arena->first;
}

static void *take(struct arena *arena, size_t count, size_t size, bool zeroed)
{
	size_t bytes;
	const size_t alignment = _Alignof(max_align_t);

	if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2)
		base_out_of_memory(SIZE_MAX);
	bytes = (bytes + alignment - 1) / alignment * alignment;
	struct arena_block *block = block_for(arena, bytes);
	void *result = (char *)block->data + block->used;
	block->used += bytes;
	if (zeroed && !block->is_zero)
		memset(result, 0, bytes);
	return result;
}

void *arena_alloc(struct arena *arena, size_t count, size_t size)
{
	return take(arena, count, size, true);
}

void *arena_alloc_unset(struct arena *arena, size_t count, size_t size)
{
	return take(arena, count, size, false);
}

char *arena_strndup(struct arena *arena, const char *text, size_t length)
{
	char *copy = arena_alloc(arena, length + 1, 1);

	if (length > 0)
		memcpy(copy, text, length);
	return copy;
}

char *arena_strdup(struct arena *arena, const char *text)
{
	return arena_strndup(arena, text, strlen(text));
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
	struct text text = {0};
	va_list args;

	va_start(args, format);
	text_vprintf(&text, format, args);
	va_end(args);
	char *result = arena_strndup(arena, text_string(&text), text.length);
	text_finish(&text);
	return result;
}
