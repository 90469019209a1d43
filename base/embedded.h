/* Data files (presets, catalogue) that the build embeds in the binary. */
#ifndef BASE_EMBEDDED_H
#define BASE_EMBEDDED_H

#include <stddef.h>

struct embedded_file {
	const char *name; /* without folder and extension: "llama-2-7b" */
	const char *text; /* NUL-terminated */
	size_t length;    /* without the NUL */
};

#endif
