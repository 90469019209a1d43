/* Files and the terminal. Data goes to stdout, messages go to stderr. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include "base/base.h"

/* --- files --- */

/* The contents of a file. `name` is for messages: the path, or "<stdin>". */
struct contents {
	const char *name;
	const char *text; /* NUL-terminated */
	size_t length;
};

/* Reads a whole file of at most 64 MiB; "-" is stdin. EXIT_CODE_INPUT if it cannot be read. */
bool file_read(
	struct arena *arena, const char *path, struct contents *contents, struct error *error);

/* Reads at most `length` bytes from `offset` on; fewer at the end of the file. */
bool file_read_part(struct arena *arena, const char *path, int64_t offset, int64_t length,
	struct contents *contents, struct error *error);

/* Replaces the file in one step: a reader sees the old or the new text, never a part. Missing
 * folders are made. "-" is stdout. What is not a regular file is written to directly.
 * EXIT_CODE_ENVIRONMENT if it cannot be written. */
bool file_write(
	struct arena *arena, const char *path, const struct text *text, struct error *error);

/* Checks before long work that file_write can succeed, as far as that is possible without writing.
 * Only missing folders are made. */
bool file_check_writable(struct arena *arena, const char *path, struct error *error);

/* Makes the folders on the way to `path`, as mkdir -p. */
bool file_make_folders(struct arena *arena, const char *path, struct error *error);

bool file_exists(const char *path);
bool file_is_folder(const char *path);
/* Do both name one file or folder? Where one is missing, the paths are compared as text. */
bool file_same_path(struct arena *arena, const char *a, const char *b);

/* Examples: "out/plan.yaml" gives "out/NAME", "plan.yaml" gives "NAME". */
const char *file_beside(struct arena *arena, const char *path, const char *name);

/* --- the terminal --- */

/* Writes all of it to stdout at once. EXIT_CODE_ENVIRONMENT if it cannot be written. */
bool output_text(const struct text *text, struct error *error);
/* Writes text for people to stderr, because with "-o -" the file goes to stdout. Always true. */
bool output_aside(const struct text *text);

/* Prints the notes ("note: ...") on stderr. They come with the first output, or with this call. */
void output_answer(void);
/* Drops the notes, because an error is printed alone. */
void output_forget_notes(void);

void output_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Adds a note for each line. */
void output_note_lines(const char *lines);

/* Adds a note of which only the first is printed. */
void output_note_once(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* From here on notes of this thread are added to `notes`, to be printed in order later. NULL: they
 * are printed at once again. */
void output_keep_notes(struct text *notes);
void output_kept_notes(const struct text *notes);

/* Prints no more notes, because another process of the run prints them. */
void output_be_quiet(void);

/* Fills the last line up to `column` with at least two blanks, for the columns of `models` and
 * `topologies`. */
void text_column(struct text *text, int column);

/* Writes {schema, version, ...; the writer stays open. */
void document_begin(struct writer *writer, struct text *text, const char *schema);

/* --- work that takes long --- */

/* A line on stderr, if that is a terminal, like "planning, 3 s". It appears after a second, is
 * rewritten every second, and is removed when the work is done. */

/* `what` must live as long as the work. Calls may not be nested. */
void waiting_begin(const char *what);
void waiting_end(void);
/* Adds what has been done so far: "planning, 3 s: 72 of 1,204 plans looked at". */
void waiting_say(const char *done);

/* Notes the first Ctrl-C; the second one ends the process. Where no interrupt is expected, the
 * first one does. */
void interrupt_begin(void);
bool interrupt_came(void);
void interrupt_end(void);

#endif
