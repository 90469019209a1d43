/* Prints the text form of a schedule: one line per plan, group, unit, buffer and operation. parse.c
 * is its inverse. Its hash is the schedule's digest, so every byte matters. It does without printf,
 * because there are thousands of lines. */
#include "schedule/program/print.h"

enum { FLUSH_BYTES = 1 << 16 };

static void printer_flush(struct printer *printer)
{
	if (printer->hashing == NULL)
		return;
	hashing_add(printer->hashing, text_string(printer->text), printer->text->length);
	text_clear(printer->text);
}

static void end_line(struct printer *printer)
{
	text_add_char(printer->text, '\n');
	if (printer->text->length >= FLUSH_BYTES)
		printer_flush(printer);
}

/* Writes `name` with its blank and its sign (" unit="), then the number. */
static inline void print_number(struct text *text, const char *name, int64_t value)
{
	text_add(text, name);
	text_int(text, value);
}

static inline void print_word(struct text *text, const char *name, const char *value)
{
	text_add(text, name);
	text_add(text, value);
}

static inline void print_nonnegative(struct text *text, const char *name, int value)
{
	if (value >= 0)
		print_number(text, name, value);
}

static void print_modules(struct text *text, int first, int end)
{
	if (end <= first)
		return;
	print_number(text, " modules=", first);
	print_number(text, "..", end);
}

static void print_indices(
	const int *indices, struct slice slice, const char *name, struct text *text)
{
	for (int i = 0; i < slice.count; i++)
		print_number(text, i > 0 ? "," : name, indices[slice.first + i]);
}

/* Begins the line of operation or buffer `index`, which is a `kind`. */
static inline void print_kind(struct text *text, const char *what, int index, const char *kind)
{
	print_number(text, what, index);
	print_word(text, " ", kind);
}

static void print_message(struct text *text, const struct message *message)
{
	print_number(text, " peer=", message->peer);
	print_number(text, " chunk=", message->chunk);
	print_word(text, " direction=", direction_names[message->direction]);
}

void print_op(struct printer *printer, const struct op *op, const int *indices, int index)
{
	struct text *text = printer->text;
	print_kind(text, "op ", index, op_kind_name(op->kind));
	print_word(text, " stream=", stream_name(op->stream));
	print_nonnegative(text, " unit=", op->unit);
	print_nonnegative(text, " micro_batch=", op->micro_batch);
	print_nonnegative(text, " group=", op->group);
	if (op_kind_class(op->kind) == OP_CLASS_MESSAGE)
		print_message(text, &op->message);
	print_nonnegative(text, " layer=", op->layer);
	print_nonnegative(text, " cause=", op->cause);
	print_modules(text, op->first_module, op->end_module);
	print_word(text, " dtype=", dtype_name(op->dtype));
	if (op->rounds > 0)
		print_number(text, " rounds=", op->rounds);
	if (op->bytes > 0)
		print_number(text, " bytes=", op->bytes);
	print_indices(indices, op->waits, " waits=", text);
	print_indices(indices, op->host_waits, " host_waits=", text);
	print_indices(indices, op->takes, " takes=", text);
	print_indices(indices, op->gives, " gives=", text);
	print_indices(indices, op->uses, " uses=", text);
	end_line(printer);
}

void print_buffer(struct printer *printer, const struct buffer *buffer, int index)
{
	struct text *text = printer->text;
	print_kind(text, "buffer ", index, buffer_role_name(buffer->role));
	print_word(text, " pool=", stream_name(buffer->pool));
	print_nonnegative(text, " unit=", buffer->unit);
	print_nonnegative(text, " layer=", buffer->layer);
	print_modules(text, buffer->first_module, buffer->end_module);
	print_word(text, " dtype=", dtype_name(buffer->dtype));
	print_number(text, " bytes=", buffer->bytes);
	text_add(text, buffer->resident ? " resident" : "");
	end_line(printer);
}

static void print_unit(const struct unit *unit, int index, struct text *text)
{
	text_printf(text,
		"unit %d %s modules=%d..%d elements=%lld chunk=%lld gathered=%lld "
		"parameters=%lld slices=",
		index, unit->name, unit->module, unit->end_module, (long long)unit->elements,
		(long long)unit->chunk, (long long)unit->gathered, (long long)unit->parameters);
	for (int i = 0; i < unit->n_slices; i++) {
		const struct unit_slice *slice = &unit->slices[i];
		text_printf(text, "%s%d@%lld+%lld/%lld", i > 0 ? "," : "", slice->parameter,
			(long long)slice->offset, (long long)slice->elements,
			(long long)slice->padded_elements);
	}
	if (unit->trained_parameters != unit->parameters)
		text_printf(text, " trained=%lld/%lld", (long long)unit->trained_parameters,
			(long long)unit->trained_gathered);
	text_add(text, unit->of_experts ? " experts" : "");
	text_add_char(text, '\n');
}

/* Writes a field as fields_set reads it back, with strings bare and not quoted as in YAML. */
static void print_field(
	const char *word, const struct field *field, const void *object, struct text *text)
{
	text_printf(text, "%s %s ", word, field->name);
	if (field->type == FIELD_TYPE_STRING || field->type == FIELD_TYPE_DECODED)
		text_add(text, *(const char *const *)((const char *)object + field->offset));
	else
		fields_print_one(field, object, text);
	text_add_char(text, '\n');
}

/* What nobody said and no operation depends on is left out. */
static bool is_said(const struct plan *plan, enum knob_id id)
{
	static const union knob_value zero = {.number = 0};

	if (id == KNOB_LIBRARIES)
		return libraries_named(&plan->libraries);
	return !(knob_table[id].roles & KNOB_ZERO_UNSAID) ||
	       !knob_value_equal(id, knob_get(id, plan), zero);
}

static void print_plan(const struct schedule *schedule, struct text *text)
{
	const struct plan *plan = &schedule->plan;

	/* Versions change no operation. A text without them is one of unknown versions. */
	for (int id = 0; id < KNOB_IN_MESH; id++)
		if (is_said(plan, (enum knob_id)id))
			print_field("plan", &knob_table[id].field, plan, text);
	for (const struct field *field = mesh_fields; field->name != NULL; field++)
		print_field("mesh", field, &plan->mesh, text);
}

static void print_groups(const struct schedule *schedule, struct text *text)
{
	for (int i = 0; i < schedule->n_groups; i++) {
		const struct group *group = &schedule->groups[i];
		text_printf(text, "group %d %s size=%lld stride=%lld engine=%d\n", i,
			group_kind_names[group->kind], (long long)group->size,
			(long long)group->stride, group->engine);
	}
}

/* Units stand before the line of their class, and what is numbered from 0 on stands behind it. */
static void print_units(const struct program *program, struct text *text)
{
	const struct unfolding *unfolding = program->unfolding;
	const struct unit *units = unfolding != NULL ? unfolding->units : program->units;
	int n_units = unfolding != NULL ? unfolding->n_units : program->n_units;

	for (int i = 0; i < n_units; i++)
		print_unit(&units[i], i, text);
}

static void print_program(struct printer *printer, const struct program *program)
{
	if (program->unfolding != NULL) {
		print_carried_out(printer, program);
		return;
	}
	for (int i = 0; i < program->n_buffers; i++)
		print_buffer(printer, &program->buffers[i], i);
	for (int i = 0; i < program->n_ops; i++)
		print_op(printer, &program->ops[i], program->indices, i);
}

static void print(const struct schedule *schedule, struct printer *printer)
{
	text_add(printer->text, "schedule 1\n");
	print_plan(schedule, printer->text);
	print_groups(schedule, printer->text);
	for (int c = 0; c < schedule->n_classes; c++) {
		print_units(&schedule->programs[c], printer->text);
		text_printf(printer->text, "class %d\n", c);
		print_program(printer, &schedule->programs[c]);
	}
	text_add(printer->text, "end\n");
}

void schedule_print(const struct schedule *schedule, struct text *text)
{
	struct printer printer = {text, NULL};
	print(schedule, &printer);
}

struct digest schedule_digest(const struct schedule *schedule)
{
	struct text text = {0};
	struct printer printer = {&text, hashing_begin()};
	print(schedule, &printer);
	printer_flush(&printer);
	text_finish(&text);
	return hashing_end(printer.hashing);
}
