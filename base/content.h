/* What the first bytes of a file say it is, where it is no text that we read. */
#ifndef BASE_CONTENT_H
#define BASE_CONTENT_H

#include <stddef.h>

/* "an HTML page", "a PNG picture"...; NULL: none of the kinds that are known. */
const char *content_kind(const char *text, size_t length);

#endif
