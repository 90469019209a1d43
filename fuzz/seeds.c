/* The inputs to start from: files of the source tree, and what our writers make. */
#include <stdio.h>
#include <stdlib.h>

#include "fuzz/fuzz.h"

void seeds_add(struct seeds *seeds, const char *text, size_t length)
{
	seeds->of = array_grow(seeds->of, &seeds->capacity, seeds->n + 1, sizeof(*seeds->of));
	char *copy = ARENA_ARRAY(&seeds->arena, char, length + 1);
	memcpy(copy, text, length);
	seeds->of[seeds->n++] = (struct seed){copy, length};
}

void seeds_finish(struct seeds *seeds)
{
	free(seeds->of);
	arena_finish(&seeds->arena);
}

static bool add_file(struct seeds *seeds, const char *path)
{
	FILE *file = fopen(path, "rb");
	struct text text = {0};
	char piece[4096];
	size_t n;

	if (file == NULL) {
		fprintf(stderr, "%s: cannot be read\n", path);
		return false;
	}
	while ((n = fread(piece, 1, sizeof(piece), file)) > 0)
		text_add_bytes(&text, piece, n);
	fclose(file);
	seeds_add(seeds, text_string(&text), text.length);
	text_finish(&text);
	return true;
}

bool target_seeds(const struct target *target, struct seeds *seeds)
{
	for (const char *at = target->paths; at != NULL && *at != '\0';) {
		int length = (int)strcspn(at, " ");
		if (!add_file(
			    seeds, arena_printf(&seeds->arena, "%s/%.*s", seeds->root, length, at)))
			return false;
		at += length + (at[length] == ' ');
	}
	if (target->make_seeds != NULL)
		target->make_seeds(seeds);
	return seeds->n > 0;
}
