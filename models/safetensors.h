/* What a checkpoint holds, from the headers of its safetensors files and their index: shapes only.
 * It tells whether a config.json and the weights beside it are the same model.
 *
 * A file is 8 bytes N (little endian), N bytes of JSON, then the data; the JSON maps a tensor's
 * name to {dtype, shape, data_offsets} (huggingface/safetensors, README). */
#ifndef MODELS_SAFETENSORS_H
#define MODELS_SAFETENSORS_H

#include "models/model.h"

struct checkpoint;

struct checkpoint *checkpoint_new(struct arena *arena);

/* The N of a file's first 8 bytes; an error past 64 MiB. */
bool checkpoint_header_length(
	const char *name, const unsigned char first[8], int64_t *length, struct error *error);
/* The N bytes. Offsets, shapes and dtypes must agree. */
bool checkpoint_add_header(struct checkpoint *checkpoint, const char *name, const char *text,
	size_t length, struct error *error);

/* model.safetensors.index.json: its files, NULL-terminated, each once, in the order of first
 * mention; names with a slash are refused. `*total_size` in bytes, 0 when not said. */
bool checkpoint_read_index(struct arena *arena, const char *name, const char *text, size_t length,
	const char ***files, int64_t *total_size, struct error *error);

int64_t checkpoint_tensors(const struct checkpoint *checkpoint);
/* Elements of all tensors that are parameters of the (text) model: buffers, a copy of a tied head,
 * and other parts of multi-modal models are left out. `quantised`: some are packed, so that
 * elements are not parameters. */
int64_t checkpoint_parameters(
	struct checkpoint *checkpoint, const struct model *model, bool *quantised);

/* One line for each part ("model.layers.3": expected, got) that differs, at most `max`; returns how
 * many there are. Call checkpoint_parameters first. */
int checkpoint_differences(struct arena *arena, const struct checkpoint *checkpoint,
	const struct model *model, const char **lines, int max);

#endif
