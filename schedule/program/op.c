/* Names what the operation table lists. */
#include "schedule/program/op.h"

#include "schedule/program/buffer.h"

static const char *const kind_names[] = {
#define X(suffix, name, class) name,
	OP_KINDS(X)
#undef X
};

static const enum op_class kind_classes[] = {
#define X(suffix, name, class) OP_CLASS_##class,
	OP_KINDS(X)
#undef X
};

static const char *const stream_names_table[] = {
#define X(suffix, name) name,
	STREAMS(X)
#undef X
};

const char *const direction_names[] = {"forward", "backward", NULL};

const char *op_kind_name(enum op_kind kind)
{
	return kind_names[kind];
}

enum op_class op_kind_class(enum op_kind kind)
{
	return kind_classes[kind];
}

const char *stream_name(enum stream stream)
{
	return stream_names_table[stream];
}

const char *const category_names[] = {
#define X(suffix, key) key,
	CATEGORIES(X)
#undef X
		NULL};

static const struct {
	const char *name;
	enum category category;
} roles[] = {
#define X(suffix, name, category) {name, CATEGORY_##category},
	BUFFER_ROLES(X)
#undef X
};

const char *buffer_role_name(enum buffer_role role)
{
	return roles[role].name;
}

enum category buffer_role_category(enum buffer_role role)
{
	return roles[role].category;
}

bool op_kind_is_backward(enum op_kind kind)
{
	return kind == OP_BACKWARD || kind == OP_BACKWARD_INPUT || kind == OP_BACKWARD_WEIGHT;
}

bool op_exchanges(const struct op *op)
{
	return op_kind_class(op->kind) == OP_CLASS_COLLECTIVE && op->unit < 0 && op->end_module > 0;
}
