#include "cli/terminal/terminal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool quiet;
/* Notes are kept until there is an answer, because an error is printed without them. */
static struct text waiting;
static bool answering;
static _Thread_local struct text *kept; /* NULL: notes are printed at once */
static bool noted_once;
static char last_note[sizeof(((struct error *)NULL)->message)];

/* Marks a kept note that is printed only once. */
enum { ONCE = '\1' };

void output_be_quiet(void)
{
	quiet = true;
}

/* Prints a note unless the same was printed before, because all rows of a table may give the
 * same. */
static void print_note(const char *text, int length)
{
	if (strncmp(last_note, text, (size_t)length) == 0 && last_note[length] == '\0')
		return;
	snprintf(last_note, sizeof(last_note), "%.*s", length, text);
	if (answering)
		fprintf(stderr, "note: %s\n", last_note);
	else
		text_printf(&waiting, "note: %s\n", last_note);
}

void output_answer(void)
{
	fputs(text_string(&waiting), stderr);
	output_forget_notes();
	answering = true;
}

void output_forget_notes(void)
{
	text_finish(&waiting);
}

bool output_text(const struct text *text, struct error *error)
{
	output_answer();
	return file_write(NULL, "-", text, error);
}

bool output_aside(const struct text *text)
{
	output_answer();
	fputs(text_string(text), stderr);
	return true;
}

static void note(bool once, const char *format, va_list args)
{
	/* error_set escapes quoted names for a terminal, and shortens them. */
	struct error message = {0};
	struct text line = {0};

	if (quiet || (once && noted_once && kept == NULL))
		return;
	text_vprintf(&line, format, args);
	error_set(&message, EXIT_CODE_INTERNAL, "%s", text_string(&line));
	text_finish(&line);
	if (kept != NULL) {
		if (once)
			text_add_char(kept, ONCE);
		text_printf(kept, "%s\n", message.message);
		return;
	}
	noted_once = noted_once || once;
	print_note(message.message, (int)strlen(message.message));
}

void output_note(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	note(false, format, args);
	va_end(args);
}

void output_note_lines(const char *lines)
{
	for (const char *stop; (stop = strchr(lines, '\n')) != NULL; lines = stop + 1)
		output_note("%.*s", (int)(stop - lines), lines);
}

void output_note_once(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	note(true, format, args);
	va_end(args);
}

void output_keep_notes(struct text *notes)
{
	kept = notes;
}

void output_kept_notes(const struct text *notes)
{
	const char *line = text_string(notes);

	while (*line != '\0') {
		bool once = *line == ONCE;
		int length = (int)strcspn(line + once, "\n");
		if (!once || !noted_once)
			print_note(line + once, length);
		noted_once = noted_once || once;
		line += once + length + 1;
	}
}

void text_column(struct text *text, int column)
{
	size_t start = text->length;

	while (start > 0 && text->data[start - 1] != '\n')
		start--;
	int used = (int)(text->length - start);
	text_repeat(text, ' ', column - used > 2 ? column - used : 2);
}

void document_begin(struct writer *writer, struct text *text, const char *schema)
{
	writer_init(writer, text, WRITER_JSON);
	writer_string(writer, "schema", schema);
	writer_string(writer, "version", SHARDPLAN_VERSION);
}
