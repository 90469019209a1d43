/* The weights beside a config.json, for `models show`. */
#ifndef CLI_STORED_H
#define CLI_STORED_H

#include "models/models.h"

enum { STORED_LINES = 8 };

struct stored_summary {
	bool present;                /* there are safetensors files or an index */
	int64_t files, missing;      /* files that were read; named by the index but missing */
	int64_t tensors, parameters; /* 0: only an index exists */
	int64_t total_size;          /* bytes, as in the index; 0: not stated */
	bool equal, quantised;
	int n_differences;
	const char *differences[STORED_LINES];
};

/* Summarises the files beside a model. `typed` is MODEL as typed: a folder, a config.json or a
 * .safetensors file in one. False if a file is damaged. */
bool stored_summarise(struct arena *arena, const char *typed, const struct model *model,
	struct stored_summary *summary, struct error *error);

/* One line. Example: "291 tensors in 3 files, 6738415616 parameters: equal to the config". */
const char *stored_line(struct arena *arena, const struct stored_summary *summary);
void stored_write(const struct stored_summary *summary, struct writer *writer);

#endif
