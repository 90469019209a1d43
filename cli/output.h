/* What leaves the program: data on stdout, messages on stderr. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "cli/options.h"
#include "reports/reports.h"

/* By --color, NO_COLOR and the terminal. EXIT_CODE_USAGE for another --color. */
bool output_style(const struct arguments *arguments, struct style *style, struct error *error);

/* All of it to stdout, at once. EXIT_CODE_ENVIRONMENT when it cannot be written. */
bool output_text(const struct text *text, struct error *error);
/* Text for people, to stderr: with -o -, stdout holds the file. Always true. */
bool output_aside(const struct text *text);

/* "note: ..." on stderr. */
void output_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* No notes from here on: another process of the same run prints them. */
void output_be_quiet(void);

/* Columns of names and figures for `models` and `topologies`: fills the last line up to `column`,
 * with at least two blanks. */
void text_column(struct text *text, int column);

/* {schema, version, ...: the writer stays open. */
void document_begin(struct writer *writer, struct text *text, const char *schema);

#endif
