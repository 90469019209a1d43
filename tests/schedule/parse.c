/* Reads the text form back. Every line is `word index rest`, rest is `key=value` in print.c's
 * order; the parsed schedule is validated, so a forged one cannot reach an interpreter. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/laws/laws.h"
#include "tests/schedule/parse.h"

enum { ITEMS_MAX = 1 << 24 };

struct parser {
	struct arena *arena;
	const char *name;
	int line;
	char *cursor; /* in the current line */
	char *line_start;
	struct error *error;
	struct schedule *schedule;
	struct program *program; /* of the open class */
	struct program *programs;
	int program_capacity;
	uint64_t plan_seen;
	int op_capacity, buffer_capacity, index_capacity, unit_capacity, group_capacity;
	struct op *ops;
	struct buffer *buffers;
	int *indices;
	struct unit *units;
	int n_units;
	struct group *groups;
};

static bool fail(struct parser *p, const char *expected)
{
	int column = (int)(p->cursor - p->line_start) + 1;
	return error_at(p->error, EXIT_CODE_INPUT, p->name, p->line, column,
		"schedule: expected %s, got \"%.40s\"", expected, p->cursor);
}

/* The next blank-separated word, NUL-terminated; "" at the end of the line. */
static char *next_word(struct parser *p)
{
	char *word = p->cursor;
	char *end = strchr(word, ' ');
	if (end == NULL) {
		p->cursor = word + strlen(word);
		return word;
	}
	*end = '\0';
	p->cursor = end + 1;
	return word;
}

static bool parse_int32(const char *text, int *value)
{
	int64_t wide;
	if (!parse_int(text, &wide) || wide < INT_MIN || wide > INT_MAX)
		return false;
	*value = (int)wide;
	return true;
}

/* --- key=value -----------------------------------------------------------------------------------
 */

/* The value when the word at the cursor is `key=...`, else NULL with the cursor unmoved. */
static char *value_of(struct parser *p, const char *key)
{
	size_t length = strlen(key);
	if (strncmp(p->cursor, key, length) != 0 || p->cursor[length] != '=')
		return NULL;
	return next_word(p) + length + 1;
}

static bool read_int(struct parser *p, const char *key, int64_t *value)
{
	char *start = p->cursor, *text = value_of(p, key);
	if (text != NULL && parse_int(text, value))
		return true;
	p->cursor = start;
	return fail(p, key);
}

static bool read_int32(struct parser *p, const char *key, int *value, bool required, int absent)
{
	char *start = p->cursor, *text = value_of(p, key);
	if (text == NULL && !required) {
		*value = absent;
		return true;
	}
	if (text != NULL && parse_int32(text, value))
		return true;
	p->cursor = start;
	return fail(p, key);
}

static bool lookup(const char *text, const char *(*name_of)(int), int count, int *value)
{
	for (int i = 0; i < count; i++)
		if (strcmp(name_of(i), text) == 0) {
			*value = i;
			return true;
		}
	return false;
}

static const char *name_of_stream(int i)
{
	return stream_name((enum stream)i);
}

static const char *name_of_op(int i)
{
	return op_kind_name((enum op_kind)i);
}

static const char *name_of_role(int i)
{
	return buffer_role_name((enum buffer_role)i);
}

static const char *name_of_group(int i)
{
	return group_kind_names[i];
}

static const char *name_of_direction(int i)
{
	return direction_names[i];
}

static bool read_name(struct parser *p, char *text, const char *(*name_of)(int), int count,
	const char *what, int *value)
{
	return (text != NULL && lookup(text, name_of, count, value)) || fail(p, what);
}

static bool read_range(struct parser *p, int *first, int *end)
{
	char *start = p->cursor, *text = value_of(p, "modules");
	*first = *end = 0;
	if (text == NULL)
		return true;
	char *dots = strstr(text, "..");
	if (dots != NULL) {
		*dots = '\0';
		if (parse_int32(text, first) && parse_int32(dots + 2, end))
			return true;
	}
	p->cursor = start;
	return fail(p, "modules=FIRST..END");
}

static bool read_dtype(struct parser *p, enum dtype *dtype)
{
	char *start = p->cursor, *text = value_of(p, "dtype");
	for (int i = 0; text != NULL && i < DTYPE_COUNT; i++) {
		*dtype = (enum dtype)i;
		if (strcmp(text, dtype_names[i]) == 0)
			return true;
	}
	p->cursor = start;
	return fail(p, "dtype");
}

static bool read_slice(struct parser *p, const char *key, struct slice *slice)
{
	char *start = p->cursor, *text = value_of(p, key);
	*slice = (struct slice){p->program->n_indices, 0};
	while (text != NULL) {
		char *comma = strchr(text, ',');
		int value;
		if (comma != NULL)
			*comma = '\0';
		if (!parse_int32(text, &value) || p->program->n_indices >= ITEMS_MAX) {
			p->cursor = start;
			return fail(p, "a list of numbers");
		}
		p->indices = array_grow(
			p->indices, &p->index_capacity, p->program->n_indices + 1, sizeof(int));
		p->indices[p->program->n_indices++] = value;
		slice->count++;
		text = comma != NULL ? comma + 1 : NULL;
	}
	return true;
}

static bool at_end(struct parser *p)
{
	return *p->cursor == '\0' || fail(p, "the end of the line");
}

/* Lines are numbered in order, so that none is missing or doubled. */
static bool read_index(struct parser *p, int expected)
{
	int value;
	char *start = p->cursor;
	if (parse_int32(next_word(p), &value) && value == expected && value < ITEMS_MAX)
		return true;
	p->cursor = start;
	return fail(p, "the next number");
}

/* --- lines ---------------------------------------------------------------------------------------
 */

static bool read_field(struct parser *p, const char *name, const struct field *field, void *object)
{
	if (field == NULL)
		return error_at(p->error, EXIT_CODE_INPUT, p->name, p->line, 6,
			"schedule: no such field \"%.40s\"", name);
	struct error error = {0};
	if (!fields_set(field, name, p->cursor, object, p->arena, &error))
		return error_at(p->error, EXIT_CODE_INPUT, p->name, p->line, 6, "schedule: %s",
			error.message);
	return true;
}

static bool read_plan(struct parser *p)
{
	const char *name = next_word(p);
	enum knob_id id = knob_find(name);
	if (id < KNOB_IN_MESH)
		p->plan_seen |= KNOB_BIT(id);
	return read_field(
		p, name, id < KNOB_IN_MESH ? &knob_table[id].field : NULL, &p->schedule->plan);
}

static bool read_mesh(struct parser *p)
{
	const char *name = next_word(p);
	return read_field(p, name, fields_find(mesh_fields, name), &p->schedule->plan.mesh);
}

static bool read_group(struct parser *p)
{
	int n = p->schedule->n_groups, kind = 0;
	p->groups = array_grow(p->groups, &p->group_capacity, n + 1, sizeof(struct group));
	struct group *group = &p->groups[n];
	if (!read_index(p, n) ||
		!read_name(p, next_word(p), name_of_group, GROUP_KIND_COUNT, "a kind of group",
			&kind) ||
		!read_int(p, "size", &group->size) || !read_int(p, "stride", &group->stride) ||
		!read_int32(p, "engine", &group->engine, true, 0))
		return false;
	group->kind = (enum group_kind)kind;
	p->schedule->n_engines =
		(int)max_i64(p->schedule->n_engines, min_i64(group->engine, 1 << 20) + 1);
	p->schedule->n_groups++;
	return at_end(p);
}

static void *keep(struct parser *p, const void *items, int n, size_t size)
{
	void *copy = arena_alloc(p->arena, (size_t)n, size);
	if (n > 0)
		memcpy(copy, items, (size_t)n * size);
	return copy;
}

/* Units of the next class may follow. */
static void close_class(struct parser *p)
{
	if (p->program == NULL)
		return;
	p->program->ops = keep(p, p->ops, p->program->n_ops, sizeof(struct op));
	p->program->buffers = keep(p, p->buffers, p->program->n_buffers, sizeof(struct buffer));
	p->program->indices = keep(p, p->indices, p->program->n_indices, sizeof(int));
	p->program = NULL;
}

static bool read_unit_slice(struct parser *p, char *text, struct unit_slice *slice)
{
	char *at = strchr(text, '@'), *plus = strchr(text, '+'), *over = strchr(text, '/');
	if (at == NULL || plus == NULL || over == NULL || at > plus || plus > over)
		return fail(p, "a slice PARAMETER@OFFSET+ELEMENTS/PADDED");
	*at = *plus = *over = '\0';
	return (parse_int32(text, &slice->parameter) && parse_int(at + 1, &slice->offset) &&
		       parse_int(plus + 1, &slice->elements) &&
		       parse_int(over + 1, &slice->padded_elements)) ||
	       fail(p, "a slice PARAMETER@OFFSET+ELEMENTS/PADDED");
}

static bool read_unit_slices(struct parser *p, struct unit *unit)
{
	char *text = value_of(p, "slices");
	if (text == NULL)
		return fail(p, "slices");
	int count = *text != '\0';
	for (char *c = text; *c != '\0'; c++)
		count += *c == ',';
	unit->slices = ARENA_ARRAY(p->arena, struct unit_slice, count);
	for (unit->n_slices = 0; unit->n_slices < count; unit->n_slices++) {
		char *comma = strchr(text, ',');
		if (comma != NULL)
			*comma = '\0';
		if (!read_unit_slice(p, text, &unit->slices[unit->n_slices]))
			return false;
		text = comma != NULL ? comma + 1 : text;
	}
	return true;
}

/* Left out where all is trained. */
static bool read_trained(struct parser *p, struct unit *unit)
{
	unit->trained_parameters = unit->parameters;
	unit->trained_elements = unit->elements;
	unit->trained_chunk = unit->chunk;
	unit->trained_gathered = unit->gathered;
	if (strncmp(p->cursor, "trained=", 8) != 0)
		return true;
	char *text = value_of(p, "trained"), *over = text != NULL ? strchr(text, '/') : NULL;
	if (over == NULL || unit->chunk <= 0)
		return fail(p, "trained=PARAMETERS/GATHERED");
	*over = '\0';
	if (!parse_int(text, &unit->trained_parameters) ||
		!parse_int(over + 1, &unit->trained_gathered))
		return fail(p, "trained=PARAMETERS/GATHERED");
	unit->trained_elements = unit->trained_gathered;
	unit->trained_chunk = unit->trained_gathered / (unit->gathered / unit->chunk);
	return true;
}

static bool read_experts(struct parser *p, struct unit *unit)
{
	unit->of_experts = strcmp(p->cursor, "experts") == 0;
	if (unit->of_experts)
		next_word(p);
	return true;
}

static bool read_unit(struct parser *p)
{
	int n = p->n_units;
	close_class(p);
	p->units = array_grow(p->units, &p->unit_capacity, n + 1, sizeof(struct unit));
	struct unit *unit = &p->units[n];
	*unit = (struct unit){0};
	if (!read_index(p, n))
		return false;
	unit->name = arena_strdup(p->arena, next_word(p));
	p->n_units++;
	return read_range(p, &unit->module, &unit->end_module) &&
	       read_int(p, "elements", &unit->elements) && read_int(p, "chunk", &unit->chunk) &&
	       read_int(p, "gathered", &unit->gathered) &&
	       read_int(p, "parameters", &unit->parameters) && read_unit_slices(p, unit) &&
	       read_trained(p, unit) && read_experts(p, unit) && at_end(p);
}

static bool read_buffer(struct parser *p)
{
	int role = 0, pool = 0;
	if (p->program == NULL)
		return fail(p, "a class before its buffers");
	int n = p->program->n_buffers;
	p->buffers = array_grow(p->buffers, &p->buffer_capacity, n + 1, sizeof(struct buffer));
	struct buffer *buffer = &p->buffers[n];
	*buffer = (struct buffer){0};
	if (!read_index(p, n) ||
		!read_name(p, next_word(p), name_of_role, BUFFER_ROLE_COUNT, "a buffer's role",
			&role) ||
		!read_name(p, value_of(p, "pool"), name_of_stream, STREAM_COUNT, "pool", &pool) ||
		!read_int32(p, "unit", &buffer->unit, false, -1) ||
		!read_int32(p, "layer", &buffer->layer, false, -1) ||
		!read_range(p, &buffer->first_module, &buffer->end_module) ||
		!read_dtype(p, &buffer->dtype) || !read_int(p, "bytes", &buffer->bytes))
		return false;
	buffer->role = (enum buffer_role)role;
	buffer->pool = (enum stream)pool;
	buffer->resident = strcmp(p->cursor, "resident") == 0;
	if (buffer->resident)
		next_word(p);
	p->program->n_buffers++;
	return at_end(p);
}

static bool read_op_lists(struct parser *p, struct op *op)
{
	return read_slice(p, "waits", &op->waits) && read_slice(p, "host_waits", &op->host_waits) &&
	       read_slice(p, "takes", &op->takes) && read_slice(p, "gives", &op->gives) &&
	       read_slice(p, "uses", &op->uses) && at_end(p);
}

static bool read_message(struct parser *p, enum op_kind kind, struct message *message)
{
	int direction = 0;
	if (op_kind_class(kind) != OP_CLASS_MESSAGE)
		return true;
	if (!read_int32(p, "peer", &message->peer, true, 0) ||
		!read_int32(p, "chunk", &message->chunk, true, 0) ||
		!read_name(
			p, value_of(p, "direction"), name_of_direction, 2, "direction", &direction))
		return false;
	message->direction = (enum direction)direction;
	return true;
}

static bool read_op(struct parser *p)
{
	int kind = 0, stream = 0;
	if (p->program == NULL)
		return fail(p, "a class before its operations");
	int n = p->program->n_ops;
	p->ops = array_grow(p->ops, &p->op_capacity, n + 1, sizeof(struct op));
	struct op *op = &p->ops[n];
	enum dtype dtype;
	*op = (struct op){0};
	if (!read_index(p, n) ||
		!read_name(
			p, next_word(p), name_of_op, OP_KIND_COUNT, "a kind of operation", &kind) ||
		!read_name(p, value_of(p, "stream"), name_of_stream, STREAM_COUNT, "stream",
			&stream) ||
		!read_int32(p, "unit", &op->unit, false, -1) ||
		!read_int32(p, "micro_batch", &op->micro_batch, false, -1) ||
		!read_int32(p, "group", &op->group, false, -1) ||
		!read_message(p, (enum op_kind)kind, &op->message) ||
		!read_int32(p, "layer", &op->layer, false, -1) ||
		!read_int32(p, "cause", &op->cause, false, -1) ||
		!read_range(p, &op->first_module, &op->end_module) || !read_dtype(p, &dtype))
		return false;
	op->kind = (enum op_kind)kind;
	op->stream = (enum stream)stream;
	op->dtype = dtype;
	if (strncmp(p->cursor, "bytes=", 6) == 0 && !read_int(p, "bytes", &op->bytes))
		return false;
	p->program->n_ops++;
	return read_op_lists(p, op);
}

static bool read_class(struct parser *p)
{
	int n = p->schedule->n_classes;
	close_class(p);
	if (!read_index(p, n))
		return false;
	p->programs = array_grow(p->programs, &p->program_capacity, n + 1, sizeof(struct program));
	p->program = &p->programs[n];
	*p->program = (struct program){.n_units = p->n_units};
	p->program->units = keep(p, p->units, p->n_units, sizeof(struct unit));
	p->n_units = 0;
	p->schedule->n_classes++;
	return at_end(p);
}

static const struct {
	const char *word;
	bool (*read)(struct parser *);
} lines[] = {
	{"plan", read_plan},
	{"mesh", read_mesh},
	{"group", read_group},
	{"unit", read_unit},
	{"class", read_class},
	{"buffer", read_buffer},
	{"op", read_op},
};

static bool read_line(struct parser *p)
{
	const char *word = next_word(p);
	for (int i = 0; i < COUNT_OF(lines); i++)
		if (strcmp(lines[i].word, word) == 0)
			return lines[i].read(p);
	p->cursor = p->line_start;
	return fail(p, "plan, mesh, group, unit, class, buffer, op or end");
}

static bool read_lines(struct parser *p, char *text)
{
	bool ended = false;
	for (char *line = text; *line != '\0' && !ended;) {
		char *end = strchr(line, '\n');
		if (end == NULL)
			break;
		*end = '\0';
		p->line++;
		p->line_start = p->cursor = line;
		if (p->line == 1 && strcmp(line, "schedule 1") != 0)
			return fail(p, "\"schedule 1\"");
		ended = strcmp(line, "end") == 0;
		if (p->line > 1 && !ended && !read_line(p))
			return false;
		line = end + 1;
	}
	if (!ended)
		return error_at(p->error, EXIT_CODE_INPUT, p->name, p->line + 1, 1,
			"schedule: cut short, expected \"end\"");
	return true;
}

static bool finish(struct parser *p)
{
	struct schedule *schedule = p->schedule;
	if (schedule->plan.libraries.text == NULL) {
		schedule->plan.libraries = libraries_unknown;
		p->plan_seen |= KNOB_BIT(KNOB_LIBRARIES);
	}
	p->plan_seen |= knobs_of_role(KNOB_ZERO_UNSAID); /* left out: 0 */
	if (p->plan_seen != KNOBS_OF_FILES || p->program == NULL)
		return error_at(p->error, EXIT_CODE_INPUT, p->name, p->line, 1,
			"schedule: incomplete, a plan field or the class is missing");
	schedule->groups = keep(p, p->groups, schedule->n_groups, sizeof(struct group));
	close_class(p);
	schedule->programs = keep(p, p->programs, schedule->n_classes, sizeof(struct program));
	for (int c = 0; c < schedule->n_classes; c++)
		units_choose(&schedule->plan, schedule->programs[c].units,
			schedule->programs[c].n_units);
	struct error error = {0};
	if (schedule_validate(schedule, &error))
		return true;
	return error_at(p->error, EXIT_CODE_INPUT, p->name, p->line, 1, "%s", error.message);
}

/* One schedule has one text, else it had several digests: no other order, spelling of a number or
 * trailing line is accepted. */
static bool check_canonical(struct parser *p, const char *text, size_t length)
{
	struct text again = {0};
	size_t same = 0;
	int line = 1, column = 1;
	schedule_print(p->schedule, &again);
	bool equal = again.length == length && memcmp(again.data, text, length) == 0;
	for (; !equal && same < length && same < again.length && text[same] == again.data[same];
		same++) {
		line += text[same] == '\n';
		column = text[same] == '\n' ? 1 : column + 1;
	}
	text_finish(&again);
	return equal || error_at(p->error, EXIT_CODE_INPUT, p->name, line, column,
				"schedule: expected the text exactly as it is printed");
}

bool schedule_parse(struct arena *arena, const char *name, const char *text, size_t length,
	struct schedule **schedule, struct error *error)
{
	struct parser p = {.arena = arena, .name = name, .error = error};
	p.schedule = ARENA_NEW(arena, struct schedule);
	p.schedule->arena = arena;
	p.schedule->plan.mesh = (struct mesh){1, 1, 1, 1, 1, 1};
	p.line_start = p.cursor = arena_strndup(arena, text, length);
	bool ok = read_lines(&p, p.line_start) && finish(&p) && check_canonical(&p, text, length);
	free(p.programs);
	free(p.ops);
	free(p.buffers);
	free(p.indices);
	free(p.units);
	free(p.groups);
	*schedule = p.schedule;
	return ok;
}
