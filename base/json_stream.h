/* JSON (RFC 8259) that arrives in pieces and is never held as a whole: for files of hundreds of
 * megabytes. A scalar is at most `longest` bytes, nesting at most 64 deep. */
#ifndef BASE_JSON_STREAM_H
#define BASE_JSON_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/text.h"

enum { JSON_STREAM_DEEPEST = 64 };

enum json_event { JSON_MAP, JSON_LIST, JSON_END, JSON_SCALAR };

/* `depth` is that of the value: 0 for the root. `key` is NULL in lists and at the root; `value` is
 * the unescaped text of a scalar, `quoted` for a string. Both live until the call returns. False
 * stops with the error that it set. */
typedef bool json_event_fn(void *data, enum json_event event, int depth, const char *key,
	const char *value, bool quoted, struct error *error);

/* From 1, in characters. */
struct json_place {
	int line, column;
};

struct json_stream {
	const char *name; /* of the document, for messages */
	json_event_fn *event;
	void *data;
	bool foreign;   /* another tool's file: NaN and Infinity are scalars too */
	size_t longest; /* bytes of a key or scalar; 0: any */
	struct json_place key_at, value_at; /* of what an event tells */
	/* private */
	struct json_place at;
	size_t left;
	struct error *error;
	int state, depth, escape_digits;
	unsigned escape, surrogate;
	bool is_map[JSON_STREAM_DEEPEST], in_key, quoted;
	struct text key, value;
};

void json_stream_init(
	struct json_stream *stream, const char *name, json_event_fn *event, void *data);
/* EXIT_CODE_INPUT, at its place, for what is no JSON. */
bool json_stream_feed(
	struct json_stream *stream, const char *bytes, size_t length, struct error *error);
/* The text is over: an error when the document is not. */
bool json_stream_end(struct json_stream *stream, struct error *error);
void json_stream_finish(struct json_stream *stream);

#endif
