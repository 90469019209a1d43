/* Reads the file of fakes/trace.c line by line. */
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"stream", "event", "device", "pinned", "record", "wait", "seen",
	"call", "collective", "capture", "launch", "abort", "destroy", NULL};

static int kind_of(const char *word)
{
	int kind = 0;

	while (kinds[kind] != NULL && strcmp(kinds[kind], word) != 0)
		kind++;
	return kind;
}

static uint64_t number(char **save)
{
	const char *word = strtok_r(NULL, " \n", save);

	return word != NULL ? strtoull(word, NULL, 0) : 0;
}

static void read_touches(struct trace_line *line, struct arena *arena, char **save)
{
	line->members = (int)number(save);
	line->bytes = (int64_t)number(save);
	line->n_touches = (int)number(save);
	line->touches = ARENA_ARRAY(arena, struct trace_touch, line->n_touches);
	for (int i = 0; i < line->n_touches; i++) {
		line->touches[i].address = number(save);
		line->touches[i].bytes = (int64_t)number(save);
		line->touches[i].write = number(save) != 0;
	}
}

static void read_line(struct trace *trace, char *text, struct arena *arena)
{
	struct trace_line line = {0};
	char *save, *word = strtok_r(text, " \n", &save);
	int kind = word != NULL ? kind_of(word) : 0;

	if (word == NULL || kinds[kind] == NULL)
		abort();
	line.kind = (enum trace_kind)kind;
	line.thread = (int)number(&save);
	line.stream = (int)number(&save);
	if (line.kind == TRACE_CALL || line.kind == TRACE_COLLECTIVE) {
		read_touches(&line, arena, &save);
	} else {
		line.what = number(&save);
		line.bytes = (int64_t)number(&save);
	}
	if (trace->n == trace->room) {
		struct trace_line *more =
			ARENA_ARRAY(arena, struct trace_line, 2 * trace->room + 1024);

		if (trace->n > 0)
			memcpy(more, trace->lines, (size_t)trace->n * sizeof(*more));
		trace->room = 2 * trace->room + 1024;
		trace->lines = more;
	}
	trace->lines[trace->n++] = line;
}

void trace_read(struct trace *trace, const char *path, struct arena *arena)
{
	FILE *file = fopen(path, "r");
	char *text = NULL;
	size_t room = 0;

	*trace = (struct trace){0};
	if (file == NULL)
		return;
	while (getline(&text, &room, file) > 0)
		read_line(trace, text, arena);
	free(text);
	fclose(file);
}
