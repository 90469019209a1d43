#include "cli/terminal/terminal.h"

#include <stdarg.h>
#include <stdio.h>

bool output_text(const struct text *text, struct error *error)
{
	return file_write(NULL, "-", text, error);
}

bool output_aside(const struct text *text)
{
	fputs(text_string(text), stderr);
	return true;
}

static bool quiet;

void output_be_quiet(void)
{
	quiet = true;
}

void output_note(const char *format, ...)
{
	/* error_set makes quoted names harmless for a terminal. */
	struct error message = {0};
	char line[600];
	va_list args;

	if (quiet)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	error_set(&message, EXIT_CODE_INTERNAL, "%s", line);
	fprintf(stderr, "note: %s\n", message.message);
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
