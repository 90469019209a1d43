/* Files and the terminal: what is read, and what leaves the program: data on stdout, messages on
 * stderr. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include "base/base.h"

/* --- files --- */

/* What a file held. `name` is for messages: the path, or "<stdin>". */
struct contents {
	const char *name;
	const char *text; /* NUL-terminated */
	size_t length;
};

/* The whole file, "-" being stdin; at most 64 MiB. EXIT_CODE_INPUT when it cannot be read. */
bool file_read(
	struct arena *arena, const char *path, struct contents *contents, struct error *error);

/* At most `length` bytes from `offset` on; fewer at the end of the file. */
bool file_read_part(struct arena *arena, const char *path, int64_t offset, int64_t length,
	struct contents *contents, struct error *error);

/* Replaces the file in one step: a reader sees the old or the new text, never a part. Folders on
 * the way are made. "-" is stdout. What is no regular file is written to directly.
 * EXIT_CODE_ENVIRONMENT when it cannot be written. */
bool file_write(
	struct arena *arena, const char *path, const struct text *text, struct error *error);

/* Before long work: whether file_write could, as far as one can tell without writing, but for
 * folders, which are made. */
bool file_check_writable(struct arena *arena, const char *path, struct error *error);

/* Folders on the way to `path`, as mkdir -p. */
bool file_make_folders(struct arena *arena, const char *path, struct error *error);

bool file_exists(const char *path);
bool file_is_folder(const char *path);

/* "out/plan.yaml" -> "out/NAME", "plan.yaml" -> "NAME". */
const char *file_beside(struct arena *arena, const char *path, const char *name);

/* --- the terminal --- */

/* All of it to stdout, at once. EXIT_CODE_ENVIRONMENT when it cannot be written. */
bool output_text(const struct text *text, struct error *error);
/* Text for people, to stderr: with -o -, stdout holds the file. Always true. */
bool output_aside(const struct text *text);

/* "note: ..." on stderr, where the answer begins: with the first text, or a call of this. */
void output_answer(void);
/* An error is all that is said. */
void output_forget_notes(void);

void output_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One for each line. */
void output_note_lines(const char *lines);

/* The same, but the first of them is the last. */
void output_note_once(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Notes of this thread are added to `notes` from here on, to be printed in their order; NULL: they
 * are printed at once again. */
void output_keep_notes(struct text *notes);
void output_kept_notes(const struct text *notes);

/* No notes from here on: another process of the same run prints them. */
void output_be_quiet(void);

/* Columns of names and figures for `models` and `topologies`: fills the last line up to `column`,
 * with at least two blanks. */
void text_column(struct text *text, int column);

/* {schema, version, ...: the writer stays open. */
void document_begin(struct writer *writer, struct text *text, const char *schema);

/* --- work that takes long --- */

/* A line on stderr if that is a terminal: "planning, 3 s". It appears after a second, is written
 * over once a second, and is gone when the work is done. Nothing on a stderr that is no terminal.
 */

/* `what` must outlive the work. Calls may not be nested. */
void waiting_begin(const char *what);
void waiting_end(void);
/* What is done so far, behind the time: "planning, 3 s: 72 of 1,204 plans looked at". */
void waiting_say(const char *done);

/* The first Ctrl-C is noted, the second ends the process, as the first does where none is waited
 * for. */
void interrupt_begin(void);
bool interrupt_came(void);
void interrupt_end(void);

#endif
