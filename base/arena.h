/* Ownership by lifetime: one arena per product (a model, a topology, a schedule, a timeline).
 * Objects are never freed one by one; arena_finish frees the whole family. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

#include "base/out_of_memory.h"

struct arena_block;

struct arena {
	struct arena_block *first; /* newest block; NULL when empty */
};

/* A zeroed arena is a valid empty one. Frees everything; the arena is usable again. */
void arena_finish(struct arena *arena);
/* Empties the arena but keeps its memory, so that a loop does not call malloc each round. */
void arena_reset(struct arena *arena);

/* What `other` holds lives as long as `arena` from now on; `other` is empty then. */
void arena_join(struct arena *arena, struct arena *other);

/* `count` x `size` zeroed bytes, aligned for any type. Never NULL (see base_out_of_memory), also
 * for zero bytes. */
void *arena_alloc(struct arena *arena, size_t count, size_t size);
/* The same of any content: for inner loops, which write before they read. */
void *arena_alloc_unset(struct arena *arena, size_t count, size_t size);
char *arena_strdup(struct arena *arena, const char *text);
char *arena_strndup(struct arena *arena, const char *text, size_t length);
char *arena_printf(struct arena *arena, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#define ARENA_NEW(arena, type)          ((type *)arena_alloc(arena, 1, sizeof(type)))
#define ARENA_ARRAY(arena, type, count) ((type *)arena_alloc(arena, (size_t)(count), sizeof(type)))

#endif
