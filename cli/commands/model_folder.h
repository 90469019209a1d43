/* The weights beside a config.json, for `models show`. */
#ifndef CLI_STORED_H
#define CLI_STORED_H

#include "models/models.h"

enum { STORED_LINES = 8 };

struct stored_summary {
	bool present;                /* there are safetensors files or an index */
	int64_t files, missing;      /* read; named by the index and not there */
	int64_t tensors, parameters; /* 0 when only an index is there */
	int64_t total_size;          /* of the index, bytes; 0 = not said */
	bool equal, quantised;
	int n_differences;
	const char *differences[STORED_LINES];
};

/* `typed` is what the user gave as MODEL: a folder, a config.json or a .safetensors file in one.
 * False when a file there is damaged. */
bool stored_summarise(struct arena *arena, const char *typed, const struct model *model,
	struct stored_summary *summary, struct error *error);

/* One line: "291 tensors in 3 files, 6738415616 parameters: equal to the config". */
const char *stored_line(struct arena *arena, const struct stored_summary *summary);
void stored_write(const struct stored_summary *summary, struct writer *writer);

#endif
