/* The safetensors format: headers and index, no data.
 *
 * A file is 8 bytes N (little endian), N bytes of JSON, then the data; the JSON maps a tensor's
 * name to {dtype, shape, data_offsets} (huggingface/safetensors, README). */
#ifndef MODELS_SAFETENSORS_H
#define MODELS_SAFETENSORS_H

#include "models/model.h"

enum { SAFETENSORS_MAX_DIMS = 8 };

struct safetensors_dtype {
	const char *name;
	int bits;    /* of an element */
	bool packed; /* holds something else than one parameter an element */
};

struct safetensors_entry {
	const char *name;
	const struct safetensors_dtype *dtype;
	int n_dims;
	int64_t shape[SAFETENSORS_MAX_DIMS];
	int64_t elements;
	int64_t begin, end;      /* bytes of the data, which starts after the header */
	const struct node *node; /* for messages */
};

/* The N of a file's first 8 bytes; an error past 64 MiB. */
bool safetensors_header_length(
	const char *name, const unsigned char first[8], int64_t *length, struct error *error);

/* The N bytes. Offsets, shapes and dtypes must agree; whether the offsets are inside the file the
 * caller knows. Entries live in the arena. */
bool safetensors_read_header(struct arena *arena, const char *name, const char *text, size_t length,
	struct safetensors_entry **entries, int *n, struct error *error);

/* model.safetensors.index.json: its files, NULL-terminated, each once, in the order of first
 * mention; names with a slash are refused. `*total_size` in bytes, 0 when not said. */
bool safetensors_read_index(struct arena *arena, const char *name, const char *text, size_t length,
	const char ***files, int64_t *total_size, struct error *error);

#endif
