/* The memory of a step as a PyTorch memory snapshot, as torch.cuda.memory._dump_snapshot() writes
 * it and pytorch.org/memory_viz draws it (keys as in torch/cuda/_memory_viz.py). All blocks are in
 * one segment, at addresses found first-fit, because PyTorch's own segments would not be drawn.
 * Communicators and contexts are left out, as PyTorch's snapshots do not see them either. Pickle
 * protocol 2, without opcodes that run code. */
#include <stdlib.h>
#include <string.h>

#include "reports/documents/documents.h"

#define BASE_ADDRESS INT64_C(0x7f0000000000)
enum { BLOCK = 512 }; /* PyTorch rounds sizes up to a multiple of it */

/* --- pickle -------------------------------------------------------------------------------------
 */

static void add_little_endian(struct text *text, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		text_add_char(text, (char)(value >> (8 * i) & 0xff));
}

static void pickle_string(struct text *text, const char *string)
{
	text_add_char(text, 'X');
	add_little_endian(text, strlen(string), 4);
	text_add(text, string);
}

static void pickle_int(struct text *text, int64_t value)
{
	if (value >= INT32_MIN && value <= INT32_MAX) {
		text_add_char(text, 'J');
		add_little_endian(text, (uint64_t)value, 4);
		return;
	}
	text_add(text, "\x8a\x08");
	add_little_endian(text, (uint64_t)value, 8);
}

static void key_int(struct text *text, const char *key, int64_t value)
{
	pickle_string(text, key);
	pickle_int(text, value);
}

static void key_string(struct text *text, const char *key, const char *value)
{
	pickle_string(text, key);
	pickle_string(text, value);
}

static void key_bool(struct text *text, const char *key, bool value)
{
	pickle_string(text, key);
	text_add_char(text, value ? '\x88' : '\x89');
}

static void begin_map(struct text *text)
{
	text_add(text, "}(");
}

static void end_map(struct text *text)
{
	text_add_char(text, 'u');
}

static void begin_list(struct text *text)
{
	text_add(text, "](");
}

static void end_list(struct text *text)
{
	text_add_char(text, 'e');
}

/* --- events ----------------------------------------------------------------------------------- */

enum action { ACTION_ALLOC, ACTION_FREE_REQUESTED, ACTION_FREE_COMPLETED };

struct event {
	enum action action;
	int buffer, op; /* op: -1 before the step */
	double time;    /* s */
	int order;
};

/* A placed buffer. Offset 0 is BASE_ADDRESS. */
struct place {
	int buffer;
	int64_t start, end;
};

struct heap {
	const struct schedule *schedule;
	const struct timeline *timeline;
	int n_events;
	struct event *events;
	int n_places;
	struct place *places; /* live, by address */
	int64_t *starts;      /* of every buffer ever placed */
	int64_t size;
};

static void add_event(struct heap *heap, enum action action, int buffer, int op, double time)
{
	heap->events[heap->n_events] = (struct event){action, buffer, op, time, heap->n_events};
	heap->n_events++;
}

static int compare_events(const void *a, const void *b)
{
	const struct event *left = a, *right = b;

	if (left->time != right->time)
		return left->time < right->time ? -1 : 1;
	return left->order - right->order;
}

/* Adds the events of an operation. A buffer is in use from the start of the operation that takes it
 * to the end of the one that gives it, as for the predicted peak. */
static void add_op(struct heap *heap, int index)
{
	const struct program *program = &heap->schedule->programs[0];
	const struct op *op = &program->ops[index];
	const struct span *span = &heap->timeline->spans[index];
	const int *takes = slice_of(program, op->takes), *gives = slice_of(program, op->gives);

	for (int i = 0; i < op->takes.count; i++)
		if (!buffer_in_host(&program->buffers[takes[i]]))
			add_event(heap, ACTION_ALLOC, takes[i], index, span->start);
	for (int i = 0; i < op->gives.count; i++) {
		if (buffer_in_host(&program->buffers[gives[i]]))
			continue;
		add_event(heap, ACTION_FREE_REQUESTED, gives[i], index, span->end);
		add_event(heap, ACTION_FREE_COMPLETED, gives[i], index, span->end);
	}
}

static void find_events(struct heap *heap, struct arena *arena)
{
	const struct program *program = &heap->schedule->programs[0];

	heap->events =
		ARENA_ARRAY(arena, struct event, program->n_buffers + 2 * program->n_indices + 1);
	for (int b = 0; b < program->n_buffers; b++) {
		if (program->buffers[b].resident && !buffer_in_host(&program->buffers[b]))
			add_event(heap, ACTION_ALLOC, b, -1, 0);
	}
	for (int i = 0; i < program->n_ops && i < heap->timeline->n_ops; i++)
		add_op(heap, i);
	qsort(heap->events, (size_t)heap->n_events, sizeof(*heap->events), compare_events);
}

static int64_t rounded(int64_t bytes)
{
	return (max_i64(bytes, 1) + BLOCK - 1) / BLOCK * BLOCK;
}

static void insert_place(struct heap *heap, int buffer)
{
	int64_t bytes = rounded(heap->schedule->programs[0].buffers[buffer].bytes), at = 0;
	int i = 0;

	while (i < heap->n_places && heap->places[i].start - at < bytes)
		at = heap->places[i++].end;
	memmove(&heap->places[i + 1], &heap->places[i],
		(size_t)(heap->n_places - i) * sizeof(*heap->places));
	heap->places[i] = (struct place){buffer, at, at + bytes};
	heap->n_places++;
	heap->starts[buffer] = at;
	heap->size = max_i64(heap->size, at + bytes);
}

static void remove_place(struct heap *heap, int buffer)
{
	for (int i = 0; i < heap->n_places; i++) {
		if (heap->places[i].buffer != buffer)
			continue;
		heap->n_places--;
		memmove(&heap->places[i], &heap->places[i + 1],
			(size_t)(heap->n_places - i) * sizeof(*heap->places));
		return;
	}
}

/* Places and frees blocks event by event, as the allocator would. */
static void replay(struct heap *heap, struct arena *arena)
{
	int n = heap->schedule->programs[0].n_buffers;

	heap->places = ARENA_ARRAY(arena, struct place, n + 1);
	heap->starts = ARENA_ARRAY(arena, int64_t, n + 1);
	for (int i = 0; i < heap->n_events; i++) {
		if (heap->events[i].action == ACTION_ALLOC)
			insert_place(heap, heap->events[i].buffer);
		else if (heap->events[i].action == ACTION_FREE_COMPLETED)
			remove_place(heap, heap->events[i].buffer);
	}
}

/* --- the document -------------------------------------------------------------------------------
 */

static void add_frame(struct text *text, const char *file, int line, const char *name)
{
	begin_map(text);
	key_string(text, "filename", file);
	key_int(text, "line", line);
	key_string(text, "name", name);
	end_map(text);
}

/* Describes the buffer, and the operation that took it, as a stack of calls. */
static void add_frames(const struct heap *heap, int buffer, int op, struct text *text)
{
	const struct schedule *schedule = heap->schedule;
	const struct buffer *what = &schedule->programs[0].buffers[buffer];
	struct text raw = {0}, name = {0};

	text_add(&raw, buffer_role_name(what->role));
	if (what->unit >= 0 && what->unit < schedule->programs->n_units)
		text_printf(&raw, " %s", or_empty(schedule->programs->units[what->unit].name));
	add_terminal(&name, text_string(&raw));
	pickle_string(text, "frames");
	begin_list(text);
	add_frame(text, category_names[buffer_role_category(what->role)], 0, text_string(&name));
	text_clear(&raw);
	text_clear(&name);
	if (op >= 0)
		operation_label(schedule, &schedule->programs[0].ops[op], &raw);
	else
		text_add(&raw, "before the step");
	add_terminal(&name, text_string(&raw));
	add_frame(text, "schedule", op >= 0 ? op : 0, text_string(&name));
	end_list(text);
	text_finish(&raw);
	text_finish(&name);
}

static void add_block(
	const struct heap *heap, int64_t start, int64_t end, int buffer, struct text *text)
{
	begin_map(text);
	key_int(text, "address", BASE_ADDRESS + start);
	key_int(text, "size", end - start);
	key_int(text, "requested_size",
		buffer >= 0 ? heap->schedule->programs[0].buffers[buffer].bytes : 0);
	key_string(text, "state", buffer >= 0 ? "active_allocated" : "inactive");
	if (buffer >= 0) {
		add_frames(heap, buffer, -1, text);
	} else {
		pickle_string(text, "frames");
		begin_list(text);
		end_list(text);
	}
	end_map(text);
}

static void add_segment(const struct heap *heap, struct text *text)
{
	int64_t allocated = 0, requested = 0, at = 0;

	for (int i = 0; i < heap->n_places; i++) {
		const struct place *place = &heap->places[i];
		allocated += place->end - place->start;
		requested += heap->schedule->programs[0].buffers[place->buffer].bytes;
	}
	begin_map(text);
	key_int(text, "device", 0);
	key_int(text, "address", BASE_ADDRESS);
	key_int(text, "total_size", heap->size);
	key_int(text, "allocated_size", allocated);
	key_int(text, "active_size", allocated);
	key_int(text, "requested_size", requested);
	key_int(text, "stream", 0);
	key_string(text, "segment_type", "large");
	pickle_string(text, "segment_pool_id");
	pickle_int(text, 0);
	pickle_int(text, 0);
	text_add_char(text, '\x86');
	key_bool(text, "is_expandable", false);
	pickle_string(text, "frames");
	begin_list(text);
	end_list(text);
	pickle_string(text, "blocks");
	begin_list(text);
	for (int i = 0; i < heap->n_places; i++) {
		const struct place *place = &heap->places[i];
		if (place->start > at)
			add_block(heap, at, place->start, -1, text);
		add_block(heap, place->start, place->end, place->buffer, text);
		at = place->end;
	}
	if (at < heap->size)
		add_block(heap, at, heap->size, -1, text);
	end_list(text);
	end_map(text);
}

static void add_segment_event(const struct heap *heap, struct text *text)
{
	begin_map(text);
	key_string(text, "action", "segment_alloc");
	key_int(text, "addr", BASE_ADDRESS);
	key_int(text, "size", heap->size);
	key_int(text, "stream", 0);
	key_int(text, "time_us", 0);
	pickle_string(text, "frames");
	begin_list(text);
	end_list(text);
	end_map(text);
}

static void add_trace_event(const struct heap *heap, const struct event *event, struct text *text)
{
	static const char *const actions[] = {"alloc", "free_requested", "free_completed"};
	const struct buffer *buffer = &heap->schedule->programs[0].buffers[event->buffer];

	begin_map(text);
	key_string(text, "action", actions[event->action]);
	key_int(text, "addr", BASE_ADDRESS + heap->starts[event->buffer]);
	key_int(text, "size", rounded(buffer->bytes));
	key_int(text, "stream", buffer->pool == STREAM_COMPUTE ? 0 : (int)buffer->pool);
	key_int(text, "time_us", (int64_t)(event->time * 1e6));
	add_frames(heap, event->buffer, event->op, text);
	end_map(text);
}

static void add_settings(struct text *text)
{
	pickle_string(text, "allocator_settings");
	begin_map(text);
	key_string(text, "PYTORCH_CUDA_ALLOC_CONF", "");
	key_int(text, "max_split_size", -1);
	key_int(text, "garbage_collection_threshold", 0);
	key_bool(text, "expandable_segments", false);
	end_map(text);
}

void report_snapshot(const struct explained *explained, struct text *text)
{
	const struct measurement *measured = explained->measured;
	struct arena arena = {0};
	struct heap heap = {.schedule = explained->schedule,
		.timeline = measured != NULL && measured->timeline.n_ops > 0
				    ? &measured->timeline
				    : explained->predicted};

	find_events(&heap, &arena);
	replay(&heap, &arena);
	text_add(text, "\x80\x02");
	begin_map(text);
	pickle_string(text, "segments");
	begin_list(text);
	add_segment(&heap, text);
	end_list(text);
	pickle_string(text, "device_traces");
	begin_list(text);
	begin_list(text);
	add_segment_event(&heap, text);
	for (int i = 0; i < heap.n_events; i++)
		add_trace_event(&heap, &heap.events[i], text);
	end_list(text);
	end_list(text);
	add_settings(text);
	end_map(text);
	text_add_char(text, '.');
	arena_finish(&arena);
}
