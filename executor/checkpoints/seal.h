/* A document that ends with the checksum of everything before it:
 *
 *     ..., "xxh3_128": "32 hexadecimal digits" }
 *
 * Every byte counts, also blanks. */
#ifndef EXECUTOR_CHECKPOINTS_SEAL_H
#define EXECUTOR_CHECKPOINTS_SEAL_H

#include "base/base.h"

/* Adds the checksum to a finished, indented JSON document whose root is a map that is not empty. */
void seal_add(struct text *text);

enum seal {
	SEAL_NONE, /* does not end with a checksum */
	SEAL_WHOLE,
	SEAL_BROKEN,
};
/* `length` bytes of text. Broken is an error too: EXIT_CODE_INPUT, with the range and both sums. */
enum seal seal_look(const char *name, const char *text, size_t length, struct error *error);

#endif
