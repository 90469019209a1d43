/* Names come from files that others wrote. They are made harmless here, once for each kind of
 * reader: control characters, broken UTF-8 and bidirectional overrides become visible escapes
 * ("\u001b", "\u202e") everywhere. */
#ifndef BASE_ESCAPE_H
#define BASE_ESCAPE_H

#include "base/text.h"

/* For a terminal: UTF-8 stays. NULL is written as nothing, here and below. */
void add_terminal(struct text *text, const char *string);
/* ASCII only, so that the width of a table cell does not depend on the locale. */
void add_ascii(struct text *text, const char *string);
/* For HTML and SVG, in text and in double-quoted attributes. */
void add_html(struct text *text, const char *string);
/* For a Markdown table cell or sentence: no markup, no cell end, no raw HTML. */
void add_markdown(struct text *text, const char *string);

#endif
