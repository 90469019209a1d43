/* One table describes a struct; reading from a document, writing YAML and JSON, CSV columns, option
 * lists and JSON Schema all come from that table.
 *
 *     static const struct field device_fields[] = {
 *             FIELD_BYTES(struct device, memory_bytes, "memory", FIELD_REQUIRED),
 *             ...
 *             FIELD_END};
 */
#ifndef BASE_FIELDS_H
#define BASE_FIELDS_H

#include <stddef.h>

#include "base/document.h"
#include "base/writer.h"

enum field_type {
	FIELD_TYPE_END = 0,
	FIELD_TYPE_BOOL,    /* bool; true false on off */
	FIELD_TYPE_INT,     /* int64_t */
	FIELD_TYPE_INT32,   /* int; range-checked */
	FIELD_TYPE_DOUBLE,  /* double */
	FIELD_TYPE_STRING,  /* const char *, copied into the arena; NULL is written as nothing */
	FIELD_TYPE_ENUM,    /* int-sized enum; names[] in enum order, NULL-terminated; same_name */
	FIELD_TYPE_DECODED, /* a struct that begins with its text; `decoded` fills it */
	FIELD_TYPE_BYTES,   /* int64_t, "80GiB" */
	FIELD_TYPE_BANDWIDTH, /* double, bytes per second, "200Gbit/s" */
	FIELD_TYPE_TIME,      /* double, seconds, "5us" */
	FIELD_TYPE_FLOPS,     /* double, FLOP/s, "312TFLOPS" */
};

enum field_flags {
	FIELD_REQUIRED = 1, /* reading fails without it */
	FIELD_POSITIVE = 2, /* must be > 0 */
	FIELD_NOT_NEGATIVE = 4,
	FIELD_OMIT_ZERO = 8, /* not written when zero, false or NULL */
	FIELD_KEY = 16,      /* a number or an enum that tells two items of a list apart */
};

/* Types that a folder brings along. What is written, printed and compared is the text that the
 * member begins with (const char *). */
struct field;
struct field_decoded {
	size_t size;             /* at most 64 */
	const char *expectation; /* NULL: the names, or runs of them */
	bool (*parse)(
		const struct field *field, const char *text, void *member, struct arena *arena);
	const char *zero; /* what a member of zeros is called; NULL: nothing */
};

struct field {
	const char *name;
	enum field_type type;
	size_t offset;
	unsigned flags;
	const char *const *names; /* FIELD_TYPE_ENUM, and FIELD_TYPE_DECODED that has some */
	const struct field_decoded *decoded;
};

#define FIELD_OF(type, strct, member, name, flags)                                                 \
	{                                                                                          \
		name, type, offsetof(strct, member), flags, NULL, NULL                             \
	}
#define FIELD_BOOL(strct, member, name, flags) FIELD_OF(FIELD_TYPE_BOOL, strct, member, name, flags)
#define FIELD_INT(strct, member, name, flags)  FIELD_OF(FIELD_TYPE_INT, strct, member, name, flags)
#define FIELD_INT32(strct, member, name, flags)                                                    \
	FIELD_OF(FIELD_TYPE_INT32, strct, member, name, flags)
#define FIELD_DOUBLE(strct, member, name, flags)                                                   \
	FIELD_OF(FIELD_TYPE_DOUBLE, strct, member, name, flags)
#define FIELD_STRING(strct, member, name, flags)                                                   \
	FIELD_OF(FIELD_TYPE_STRING, strct, member, name, flags)
#define FIELD_BYTES(strct, member, name, flags)                                                    \
	FIELD_OF(FIELD_TYPE_BYTES, strct, member, name, flags)
#define FIELD_BANDWIDTH(strct, member, name, flags)                                                \
	FIELD_OF(FIELD_TYPE_BANDWIDTH, strct, member, name, flags)
#define FIELD_TIME(strct, member, name, flags) FIELD_OF(FIELD_TYPE_TIME, strct, member, name, flags)
#define FIELD_FLOPS(strct, member, name, flags)                                                    \
	FIELD_OF(FIELD_TYPE_FLOPS, strct, member, name, flags)
#define FIELD_ENUM(strct, member, name, flags, names)                                              \
	{                                                                                          \
		name, FIELD_TYPE_ENUM, offsetof(strct, member), flags, names, NULL                 \
	}
#define FIELD_DECODED(strct, member, name, flags, names, decoded)                                  \
	{                                                                                          \
		name, FIELD_TYPE_DECODED, offsetof(strct, member), flags, names, decoded           \
	}
#define FIELD_END                                                                                  \
	{                                                                                          \
		NULL, FIELD_TYPE_END, 0, 0, NULL, NULL                                             \
	}

/* Reads the fields of `map` into `object`. Keys that are neither in the table nor in the
 * NULL-terminated `others` (may be NULL) are errors, with the nearest name suggested. Absent
 * optional fields keep what `object` held. Strings are copied into `arena`. */
bool fields_read(const struct field *fields, const struct node *map, const char *const *others,
	void *object, struct arena *arena, struct error *error);

/* Sets one field from text (an option or a CSV cell); `where` starts the message ("--seq-len"). */
bool fields_set(const struct field *field, const char *where, const char *value, void *object,
	struct arena *arena, struct error *error);

const struct field *fields_find(const struct field *fields, const char *name);

/* Writes the fields, in table order, into the map that is open in `writer`. Quantities are written
 * with units in YAML and as plain numbers in JSON. */
void fields_write(const struct field *fields, const void *object, struct writer *writer);

/* Appends one field as text, as it would stand in YAML. */
void fields_print_one(const struct field *field, const void *object, struct text *text);

/* Bytes of the member. */
size_t fields_size(const struct field *field);
/* Field-wise equality (strings by content), of all fields or of one; or of two members alone. */
bool fields_equal(const struct field *fields, const void *a, const void *b);
bool fields_equal_one(const struct field *field, const void *a, const void *b);
bool fields_equal_members(const struct field *field, const void *left, const void *right);
/* The order of two objects by their key fields, in table order: < 0, 0, > 0. */
int fields_order(const struct field *fields, const void *a, const void *b);

#endif
