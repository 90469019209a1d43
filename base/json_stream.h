/* JSON (RFC 8259) that arrives in pieces and is never held as a whole: for files of hundreds of
 * megabytes. A scalar is at most 1 MiB, nesting at most 64 deep. */
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

struct json_stream {
	const char *name; /* of the document, for messages */
	json_event_fn *event;
	void *data;
	/* private */
	int state, depth, line, column, escape_digits;
	unsigned escape, surrogate;
	bool is_map[JSON_STREAM_DEEPEST], in_key, quoted, empty;
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
