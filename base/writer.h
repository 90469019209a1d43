/* Writes one document as YAML or as JSON through the same calls, with stable key order.
 *
 * Keys are given in maps and NULL in lists. Numbers are the shortest decimals that round-trip. JSON
 * strings are escaped so that they are also safe inside HTML <script> ("<", ">", "&", U+2028/9 as
 * \u escapes). YAML strings are quoted whenever a plain scalar would not read back as the same
 * string. */
#ifndef BASE_WRITER_H
#define BASE_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

enum writer_format {
	WRITER_YAML,
	WRITER_JSON,        /* indented by two blanks */
	WRITER_JSON_COMPACT /* one line, for --json-lines and embedding */
};

struct writer {
	struct text *text;
	enum writer_format format;
	int depth;
	/* private state */
	bool first[64];
	bool list[64];
	bool pending_dash, after_comment;
};

/* Starts a document whose root is a map. */
void writer_init(struct writer *writer, struct text *text, enum writer_format format);
/* Closes the root map and ends the line. */
void writer_finish(struct writer *writer);

void writer_begin_map(struct writer *writer, const char *key);
void writer_end_map(struct writer *writer);
void writer_begin_list(struct writer *writer, const char *key);
void writer_end_list(struct writer *writer);

void writer_string(struct writer *writer, const char *key, const char *value); /* NULL -> null */
void writer_int(struct writer *writer, const char *key, int64_t value);
void writer_number(struct writer *writer, const char *key, double value); /* non-finite -> null */
void writer_bool(struct writer *writer, const char *key, bool value);
/* A quantity: with its unit in YAML, a plain number in JSON. `kind` is an enum unit_kind. */
void writer_quantity(struct writer *writer, const char *key, int kind, double value);
void writer_bytes(struct writer *writer, const char *key, int64_t bytes);
/* YAML only: a "# ..." line before what comes next. */
void writer_comment(struct writer *writer, const char *comment);

/* Appends `string` as a JSON string literal with quotes. */
void json_escape(struct text *text, const char *string);
/* Appends `string` as a YAML scalar: plain where that reads back as the same string, else quoted.
 */
void yaml_escape(struct text *text, const char *string);

#endif
