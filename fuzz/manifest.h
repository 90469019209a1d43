/* The manifest of a checkpoint is read from its folder: a folder of our own stands in. */
#ifndef FUZZ_MANIFEST_H
#define FUZZ_MANIFEST_H

#include "fuzz/fuzz.h"

bool manifest_file_read(struct arena *arena, const char *text, size_t length, struct text *printed,
	struct error *error);
void manifest_seeds(struct seeds *seeds);

#endif
