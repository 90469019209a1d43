#include "base/fields.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/units.h"

/* What a type of field can do. One row per enum field_type; everything below walks this table. */
struct field_ops {
	size_t size;
	bool bare; /* in a document it must stand without quotes */
	bool (*parse)(
		const struct field *field, const char *text, void *member, struct arena *arena);
	/* As a number, for the checks of sign and the order; NULL where there is none. */
	double (*number)(const void *member);
	void (*write)(const struct field *field, const void *member, struct writer *writer);
	void (*print)(const struct field *field, const void *member, struct text *text);
	bool (*equal)(const void *a, const void *b); /* NULL: of equal bytes */
	const char *expectation; /* NULL: the names of an enum, the unit's words */
	enum unit_kind unit;     /* of quantities */
};

#define BOOL_AT(member)   (*(const bool *)(member))
#define INT_AT(member)    (*(const int64_t *)(member))
#define INT32_AT(member)  (*(const int *)(member))
#define DOUBLE_AT(member) (*(const double *)(member))
#define STRING_AT(member) (*(const char *const *)(member))

static const struct field_ops ops[FIELD_TYPE_FLOPS + 1];

static bool bool_parse(
	const struct field *field, const char *text, void *member, struct arena *arena)
{
	(void)field, (void)arena;
	return parse_bool(text, member);
}

static void bool_write(const struct field *field, const void *member, struct writer *writer)
{
	writer_bool(writer, field->name, BOOL_AT(member));
}

static void bool_print(const struct field *field, const void *member, struct text *text)
{
	(void)field;
	text_add(text, BOOL_AT(member) ? "true" : "false");
}

static bool int_parse(
	const struct field *field, const char *text, void *member, struct arena *arena)
{
	(void)field, (void)arena;
	return parse_whole_number(text, member);
}

static double int_number(const void *member)
{
	return (double)INT_AT(member);
}

static void int_write(const struct field *field, const void *member, struct writer *writer)
{
	writer_int(writer, field->name, INT_AT(member));
}

static void int_print(const struct field *field, const void *member, struct text *text)
{
	(void)field;
	text_int(text, INT_AT(member));
}

static bool int32_parse(
	const struct field *field, const char *text, void *member, struct arena *arena)
{
	int64_t value;

	(void)field, (void)arena;
	if (!parse_whole_number(text, &value) || value < INT32_MIN || value > INT32_MAX)
		return false;
	*(int *)member = (int)value;
	return true;
}

static double int32_number(const void *member)
{
	return INT32_AT(member);
}

static void int32_write(const struct field *field, const void *member, struct writer *writer)
{
	writer_int(writer, field->name, INT32_AT(member));
}

static void int32_print(const struct field *field, const void *member, struct text *text)
{
	(void)field;
	text_int(text, INT32_AT(member));
}

static bool double_parse(
	const struct field *field, const char *text, void *member, struct arena *arena)
{
	(void)field, (void)arena;
	return parse_number(text, member);
}

static double double_number(const void *member)
{
	return DOUBLE_AT(member);
}

static void double_write(const struct field *field, const void *member, struct writer *writer)
{
	writer_number(writer, field->name, DOUBLE_AT(member));
}

static void double_print(const struct field *field, const void *member, struct text *text)
{
	(void)field;
	text_number(text, DOUBLE_AT(member));
}

static bool double_equal(const void *a, const void *b)
{
	return DOUBLE_AT(a) == DOUBLE_AT(b) || (isnan(DOUBLE_AT(a)) && isnan(DOUBLE_AT(b)));
}

static bool string_parse(
	const struct field *field, const char *text, void *member, struct arena *arena)
{
	(void)field;
	*(const char **)member = arena_strdup(arena, text);
	return true;
}

static void string_write(const struct field *field, const void *member, struct writer *writer)
{
	if (STRING_AT(member) != NULL)
		writer_string(writer, field->name, STRING_AT(member));
}

static void string_print(const struct field *field, const void *member, struct text *text)
{
	const char *zero = field->decoded != NULL ? field->decoded->zero : NULL;

	if (STRING_AT(member) != NULL)
		yaml_escape(text, STRING_AT(member));
	else
		text_add(text, zero != NULL ? zero : "null");
}

static bool string_equal(const void *a, const void *b)
{
	const char *left = STRING_AT(a), *right = STRING_AT(b);

	if (left == NULL || right == NULL)
		return left == right;
	return strcmp(left, right) == 0;
}

static bool enum_parse(
	const struct field *field, const char *text, void *member, struct arena *arena)
{
	(void)arena;
	for (int i = 0; field->names[i] != NULL; i++) {
		if (same_name(field->names[i], text)) {
			memcpy(member, &i, sizeof(i));
			return true;
		}
	}
	return false;
}

static const char *enum_name(const struct field *field, const void *member)
{
	int value;

	memcpy(&value, member, sizeof(value));
	return field->names[value];
}

static void enum_write(const struct field *field, const void *member, struct writer *writer)
{
	writer_string(writer, field->name, enum_name(field, member));
}

static void enum_print(const struct field *field, const void *member, struct text *text)
{
	yaml_escape(text, enum_name(field, member));
}

static bool bytes_parse(
	const struct field *field, const char *text, void *member, struct arena *arena)
{
	(void)field, (void)arena;
	return unit_parse_bytes(text, member);
}

static void bytes_write(const struct field *field, const void *member, struct writer *writer)
{
	writer_bytes(writer, field->name, INT_AT(member));
}

static void bytes_print(const struct field *field, const void *member, struct text *text)
{
	(void)field;
	unit_print_bytes(text, INT_AT(member));
}

static bool quantity_parse(
	const struct field *field, const char *text, void *member, struct arena *arena)
{
	(void)arena;
	return unit_parse(ops[field->type].unit, text, member);
}

static void quantity_write(const struct field *field, const void *member, struct writer *writer)
{
	writer_quantity(writer, field->name, (int)ops[field->type].unit, DOUBLE_AT(member));
}

static void quantity_print(const struct field *field, const void *member, struct text *text)
{
	unit_print(text, ops[field->type].unit, DOUBLE_AT(member));
}

#define QUANTITY_OPS                                                                               \
	.size = sizeof(double), .parse = quantity_parse, .number = double_number,                  \
	.write = quantity_write, .print = quantity_print, .equal = double_equal

static const struct field_ops ops[FIELD_TYPE_FLOPS + 1] = {
	[FIELD_TYPE_BOOL] = {sizeof(bool), true, bool_parse, NULL, bool_write, bool_print, NULL,
		"true, false, on or off"},
	[FIELD_TYPE_INT] = {sizeof(int64_t), true, int_parse, int_number, int_write, int_print,
		NULL, "a whole number"},
	[FIELD_TYPE_INT32] = {sizeof(int), true, int32_parse, int32_number, int32_write,
		int32_print, NULL, "a whole number up to 2147483647"},
	[FIELD_TYPE_DOUBLE] = {sizeof(double), true, double_parse, double_number, double_write,
		double_print, double_equal, "a number"},
	[FIELD_TYPE_STRING] = {sizeof(char *), false, string_parse, NULL, string_write,
		string_print, string_equal, "a string"},
	[FIELD_TYPE_ENUM] = {sizeof(int), false, enum_parse, int32_number, enum_write, enum_print,
		NULL, NULL},
	[FIELD_TYPE_DECODED] = {0, false, NULL, NULL, string_write, string_print, string_equal,
		NULL},
	[FIELD_TYPE_BYTES] = {sizeof(int64_t), false, bytes_parse, int_number, bytes_write,
		bytes_print, NULL, NULL, UNIT_BYTES},
	[FIELD_TYPE_BANDWIDTH] = {QUANTITY_OPS, .unit = UNIT_BANDWIDTH},
	[FIELD_TYPE_TIME] = {QUANTITY_OPS, .unit = UNIT_TIME},
	[FIELD_TYPE_FLOPS] = {QUANTITY_OPS, .unit = UNIT_FLOPS},
};

size_t fields_size(const struct field *field)
{
	return field->type == FIELD_TYPE_DECODED ? field->decoded->size : ops[field->type].size;
}

static void *member_of(const struct field *field, void *object)
{
	return (char *)object + field->offset;
}

static const void *const_member_of(const struct field *field, const void *object)
{
	return (const char *)object + field->offset;
}

static void add_expectation(struct text *text, const struct field *field)
{
	if (field->names != NULL) {
		for (int i = 0; field->names[i] != NULL; i++)
			text_printf(text, "%s%s", i == 0 ? "one of " : ", ", field->names[i]);
		if (field->type == FIELD_TYPE_DECODED)
			text_printf(text, ", or runs such as 2x%s+1x%s",
				field->names[field->names[1] != NULL], field->names[0]);
	} else if (field->type == FIELD_TYPE_DECODED) {
		text_add(text, field->decoded->expectation);
	} else if (ops[field->type].expectation != NULL) {
		text_add(text, ops[field->type].expectation);
	} else {
		text_add(text, unit_expectation(ops[field->type].unit));
	}
	if (field->flags & FIELD_POSITIVE)
		text_add(text, " greater than 0");
	else if (field->flags & FIELD_NOT_NEGATIVE)
		text_add(text, " of 0 or more");
}

/* Parses into a scratch value first, so that a refused text leaves the object alone. */
static bool store(const struct field *field, const char *value, void *object, struct arena *arena)
{
	const struct field_ops *op = &ops[field->type];
	union {
		int64_t i;
		double d;
		const char *s;
		char decoded[64];
	} scratch = {0};

	if (!(field->decoded != NULL ? field->decoded->parse : op->parse)(
		    field, value, &scratch, arena))
		return false;
	if (op->number != NULL) {
		double number = op->number(&scratch);
		if ((field->flags & FIELD_POSITIVE) && !(number > 0))
			return false;
		if ((field->flags & FIELD_NOT_NEGATIVE) && !(number >= 0))
			return false;
	}
	memcpy(member_of(field, object), &scratch, fields_size(field));
	return true;
}

static bool reads_as(enum unit_kind unit, const char *got, const char *ending)
{
	char whole[64];
	double value;

	return snprintf(whole, sizeof(whole), "%s%s", got, ending) < (int)sizeof(whole) &&
	       unit_parse(unit, whole, &value);
}

/* "400G" of a link may be bits or bytes; "1TB" lacks its second. */
static void add_rates(struct text *text, const char *got)
{
	if (reads_as(UNIT_BANDWIDTH, got, ""))
		return;
	if (reads_as(UNIT_BANDWIDTH, got, "bit/s"))
		text_printf(text, "; write %sbit/s or %sB/s", got, got);
	else if (reads_as(UNIT_BANDWIDTH, got, "/s"))
		text_printf(text, "; write %s/s", got);
}

/* "expected ..., got ...[, did you mean ...?]" */
static void explain(
	struct text *text, const struct field *field, const char *quote, const char *got)
{
	text_add(text, "expected ");
	add_expectation(text, field);
	text_printf(text, ", got %s%.60s%s%s", quote, got, strlen(got) > 60 ? "..." : "", quote);
	if (field->type == FIELD_TYPE_BANDWIDTH)
		add_rates(text, got);
	if (field->names == NULL || quote[0] == '\0')
		return;
	const char *near = nearest_name(got, field->names);
	if (near != NULL)
		text_printf(text, ", did you mean \"%s\"?", near);
}

bool fields_set(const struct field *field, const char *where, const char *value, void *object,
	struct arena *arena, struct error *error)
{
	struct text message = {0};

	if (store(field, value, object, arena))
		return true;
	explain(&message, field, "\"", value);
	error_set(error, EXIT_CODE_USAGE, "%s: %s", where, text_string(&message));
	text_finish(&message);
	return false;
}

static bool read_one(const struct field *field, const struct node *node, void *object,
	struct arena *arena, struct error *error)
{
	static const char *const kinds[] = {
		[NODE_NULL] = "nothing", [NODE_LIST] = "a list", [NODE_MAP] = "a map"};
	bool scalar = node->kind == NODE_SCALAR;
	bool quoted = scalar && node->quoted && ops[field->type].bare;
	struct text message = {0};

	if (scalar && !quoted && store(field, node->text, object, arena))
		return true;
	explain(&message, field, scalar ? "\"" : "", scalar ? node->text : kinds[node->kind]);
	bool bare = quoted && store(field, node->text, object, arena);
	node_error(node, error, "%s%s", text_string(&message), bare ? ", remove the quotes" : "");
	text_finish(&message);
	return false;
}

static bool check_keys(const struct field *fields, const struct node *map,
	const char *const *others, struct arena *arena, struct error *error)
{
	int n = 0, n_others = 0;

	while (fields[n].name != NULL)
		n++;
	while (others != NULL && others[n_others] != NULL)
		n_others++;
	const char **keys = ARENA_ARRAY(arena, const char *, n + n_others + 1);
	for (int i = 0; i < n; i++)
		keys[i] = fields[i].name;
	for (int i = 0; i < n_others; i++)
		keys[n + i] = others[i];
	return node_only_keys(map, keys, error);
}

static bool missing(const struct field *field, const struct node *map, struct error *error)
{
	struct text expectation = {0};

	add_expectation(&expectation, field);
	node_error(map, error, "missing key \"%s\", expected %s", field->name,
		text_string(&expectation));
	text_finish(&expectation);
	return false;
}

bool fields_read(const struct field *fields, const struct node *map, const char *const *others,
	void *object, struct arena *arena, struct error *error)
{
	if (!check_keys(fields, map, others, arena, error))
		return false;
	for (const struct field *field = fields; field->name != NULL; field++) {
		const struct node *node = node_get(map, field->name);
		bool required = (field->flags & FIELD_REQUIRED) != 0;
		if (node == NULL && required)
			return missing(field, map, error);
		/* "key:" with nothing after it says as much as no key. */
		if (node == NULL || (node->kind == NODE_NULL && !required))
			continue;
		if (!read_one(field, node, object, arena, error))
			return false;
	}
	return true;
}

const struct field *fields_find(const struct field *fields, const char *name)
{
	for (; fields->name != NULL; fields++) {
		if (strcmp(fields->name, name) == 0)
			return fields;
	}
	return NULL;
}

static bool is_zero(const struct field *field, const void *member)
{
	static const char zeros[sizeof(int64_t)];
	bool has_text = field->type == FIELD_TYPE_DECODED;

	return memcmp(member, zeros, has_text ? sizeof(char *) : ops[field->type].size) == 0;
}

void fields_write(const struct field *fields, const void *object, struct writer *writer)
{
	for (const struct field *field = fields; field->name != NULL; field++) {
		const void *member = const_member_of(field, object);
		if (!(field->flags & FIELD_OMIT_ZERO) || !is_zero(field, member))
			ops[field->type].write(field, member, writer);
	}
}

void fields_print_one(const struct field *field, const void *object, struct text *text)
{
	ops[field->type].print(field, const_member_of(field, object), text);
}

bool fields_equal_members(const struct field *field, const void *left, const void *right)
{
	const struct field_ops *op = &ops[field->type];

	return op->equal != NULL ? op->equal(left, right) : memcmp(left, right, op->size) == 0;
}

bool fields_equal_one(const struct field *field, const void *a, const void *b)
{
	return fields_equal_members(field, const_member_of(field, a), const_member_of(field, b));
}

bool fields_equal(const struct field *fields, const void *a, const void *b)
{
	for (const struct field *field = fields; field->name != NULL; field++) {
		if (!fields_equal_one(field, a, b))
			return false;
	}
	return true;
}

int fields_order(const struct field *fields, const void *a, const void *b)
{
	int order = 0;

	for (const struct field *field = fields; field->name != NULL && order == 0; field++) {
		if (!(field->flags & FIELD_KEY))
			continue;
		double left = ops[field->type].number(const_member_of(field, a));
		double right = ops[field->type].number(const_member_of(field, b));
		order = (left > right) - (left < right);
	}
	return order;
}
