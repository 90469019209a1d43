#include "base/csv.h"

#include <string.h>

#include <csv.h>

#include "base/content.h"

enum { LARGEST_CSV = 64 << 20 };

struct csv_reader {
	struct arena *arena;
	int line, row_line; /* of the text; where the row under construction started */
	bool in_row;        /* a quoted cell goes on in the next line */
	int n_cells, cells_capacity;
	char **cells;
	int n_rows, rows_capacity;
	struct csv_row *rows;
};

static void add_cell(void *cell, size_t length, void *data)
{
	struct csv_reader *reader = data;

	reader->cells = array_grow(
		reader->cells, &reader->cells_capacity, reader->n_cells + 1, sizeof(char *));
	reader->cells[reader->n_cells++] = arena_strndup(reader->arena, cell, length);
}

static void end_row(int terminator, void *data)
{
	struct csv_reader *reader = data;
	(void)terminator;

	reader->rows = array_grow(
		reader->rows, &reader->rows_capacity, reader->n_rows + 1, sizeof(struct csv_row));
	struct csv_row *row = &reader->rows[reader->n_rows++];
	row->line = reader->row_line;
	row->n_cells = reader->n_cells;
	row->cells = ARENA_ARRAY(reader->arena, char *, reader->n_cells);
	if (reader->n_cells > 0)
		memcpy(row->cells, reader->cells, (size_t)reader->n_cells * sizeof(char *));
	reader->n_cells = 0;
	reader->in_row = false;
}

/* Comments and blank lines; inside a quoted cell neither exists. */
static bool is_skipped(const char *line, size_t length)
{
	if (line[0] == '#')
		return true;
	for (size_t i = 0; i < length; i++) {
		if (strchr(" \t\r\n", line[i]) == NULL)
			return false;
	}
	return true;
}

/* libcsv knows no lines, so it is fed line by line: a row starts in the first line fed after the
 * last row ended. */
static bool feed(struct csv_reader *reader, struct csv_parser *parser, const char *name,
	const char *text, size_t length, struct error *error)
{
	while (length > 0) {
		const char *newline = memchr(text, '\n', length);
		size_t n = newline != NULL ? (size_t)(newline - text) + 1 : length;

		reader->line++;
		if (reader->in_row || !is_skipped(text, n)) {
			if (!reader->in_row)
				reader->row_line = reader->line;
			reader->in_row = true;
			size_t eaten = csv_parse(parser, text, n, add_cell, end_row, reader);
			if (csv_error(parser) == CSV_ENOMEM)
				base_out_of_memory(n);
			if (eaten != n)
				return error_at(error, EXIT_CODE_INPUT, name, reader->line,
					(int)eaten + 1,
					"stray quote, expected quotes "
					"around the whole cell and doubled inside it");
		}
		text += n;
		length -= n;
	}
	if (csv_fini(parser, add_cell, end_row, reader) != 0)
		return error_at(error, EXIT_CODE_INPUT, name, reader->row_line, 1,
			"the quoted cell that starts in this row is never closed");
	return true;
}

static bool check_text(const char *name, const char *text, size_t length, struct error *error)
{
	if (length > LARGEST_CSV)
		return error_at(error, EXIT_CODE_INPUT, name, 0, 0,
			"too large, expected at most 64 MiB, got %zu bytes", length);
	if (content_kind(text, length) != NULL)
		return error_at(error, EXIT_CODE_INPUT, name, 1, 1,
			"expected a CSV file, got %s; a spreadsheet saves its table as CSV",
			content_kind(text, length));
	int line = 1, column = 1;
	for (size_t i = 0; i < length; column++) {
		uint32_t point;
		int bytes = utf8_decode(text + i, length - i, &point);
		if (text[i] == '\0')
			return error_at(error, EXIT_CODE_INPUT, name, line, column,
				"expected text, got a NUL byte; is this a CSV file in UTF-8?");
		if (bytes == 0)
			return error_at(error, EXIT_CODE_INPUT, name, line, column,
				"expected UTF-8 text, got the byte 0x%02x; save the file as UTF-8",
				(unsigned char)text[i]);
		if (text[i] == '\n') {
			line++;
			column = 0;
		}
		i += (size_t)bytes;
	}
	return true;
}

/* Where the first row has no comma, semicolons (Excel in half of Europe) or tabs (a pasted table)
 * are what separates its cells. */
static char find_delimiter(const char *text, size_t length)
{
	char found = ',';
	bool quoted = false, comment = false, content = false;

	for (size_t i = 0; i < length; i++) {
		if (i == 0 || text[i - 1] == '\n')
			comment = text[i] == '#';
		quoted ^= text[i] == '"' && !comment;
		if (quoted || comment)
			continue;
		if (text[i] == ',')
			return ',';
		if (text[i] == ';' || text[i] == '\t')
			found = text[i];
		if (text[i] == '\n' && content)
			return found;
		content = content || strchr(" \r\n", text[i]) == NULL;
	}
	return found;
}

bool csv_read(struct arena *arena, const char *name, const char *text, size_t length,
	struct csv_table *table, struct error *error)
{
	struct csv_reader reader = {.arena = arena};
	struct csv_parser parser;

	*table = (struct csv_table){0};
	if (!check_text(name, text, length, error))
		return false;
	if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
		text += 3;
		length -= 3;
	}
	if (csv_init(&parser, CSV_STRICT | CSV_STRICT_FINI) != 0)
		base_out_of_memory(sizeof(parser));
	table->delimiter = find_delimiter(text, length);
	csv_set_delim(&parser, (unsigned char)table->delimiter);
	bool ok = feed(&reader, &parser, name, text, length, error);
	if (ok && reader.n_rows == 0)
		ok = error_at(error, EXIT_CODE_INPUT, name, 1, 1,
			"empty, expected a header row with column names");
	if (ok) {
		table->header = reader.rows[0];
		table->n_rows = reader.n_rows - 1;
		table->rows = ARENA_ARRAY(arena, struct csv_row, table->n_rows);
		memcpy(table->rows, reader.rows + 1, (size_t)table->n_rows * sizeof(*table->rows));
	}
	csv_free(&parser);
	free(reader.cells);
	free(reader.rows);
	return ok;
}

/* A cell that starts so is run as a formula by spreadsheets. */
static bool is_formula(const char *cell)
{
	return cell[0] != '\0' && strchr("=+-@\t\r", cell[0]) != NULL;
}

/* Also quoted: what this reader (and others) would strip or take for a comment or a blank line. */
static bool needs_quotes(const char *cell, bool first)
{
	size_t length = strlen(cell);

	if (length == 0)
		return first;
	if (strchr(" \t", cell[0]) != NULL || strchr(" \t", cell[length - 1]) != NULL)
		return true;
	/* Of a file with one column, the header must not show another delimiter, nor its start a
	 * mark of byte order. */
	if (first && (cell[0] == '#' || strncmp(cell, "\xef\xbb\xbf", 3) == 0 ||
			     strpbrk(cell, ";\t") != NULL))
		return true;
	return strpbrk(cell, ",\"\r\n") != NULL;
}

void csv_add_cell(struct text *text, const char *cell, bool first)
{
	struct text guarded = {0};

	if (!first)
		text_add_char(text, ',');
	if (is_formula(cell))
		text_add_char(&guarded, '\'');
	text_add(&guarded, cell);
	if (!needs_quotes(guarded.data, first)) {
		text_add(text, guarded.data);
	} else {
		struct text quoted = {0};
		size_t length = csv_write(NULL, 0, guarded.data, guarded.length);
		text_repeat(&quoted, ' ', (int)length);
		csv_write(quoted.data, length, guarded.data, guarded.length);
		text_add_bytes(text, quoted.data, length);
		text_finish(&quoted);
	}
	text_finish(&guarded);
}
