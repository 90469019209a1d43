/* CSV: rows with their lines, what is skipped, what is refused, and cells that survive a round
 * trip. */
#include "tests/base/support.h"

static bool read_text(
	struct arena *arena, const char *text, struct csv_table *table, struct error *error)
{
	size_t length = strlen(text);
	char *copy = malloc(length + 1);

	memcpy(copy, text, length);
	bool ok = csv_read(arena, "t.csv", copy, length, table, error);
	free(copy);
	return ok;
}

static void test_read(void **state)
{
	struct arena arena = {0};
	struct error error = {0};
	struct csv_table table;

	(void)state;
	assert_true(read_text(&arena,
		"\xef\xbb\xbf# cases\n"
		"\n"
		"case,model , gpus\r\n"
		"1,llama,16\n"
		"   \t\n"
		"# between\n"
		"2,\"a \"\"b\"\"\n"
		"# not a comment\n"
		"c\",32\n"
		"3,,\n"
		"4\n"
		"5,a,b,c\n"
		"6,last,line",
		&table, &error));
	static const int lines[] = {4, 7, 10, 11, 12, 13};
	static const int cells[] = {3, 3, 3, 1, 4, 3};
	assert_int_equal(table.header.line, 3);
	assert_int_equal(table.header.n_cells, 3);
	assert_string_equal(table.header.cells[0], "case");
	assert_string_equal(table.header.cells[1], "model");
	assert_string_equal(table.header.cells[2], "gpus");
	assert_int_equal(table.n_rows, 6);
	for (int i = 0; i < 6; i++) {
		assert_int_equal(table.rows[i].line, lines[i]);
		assert_int_equal(table.rows[i].n_cells, cells[i]);
	}
	assert_string_equal(table.rows[1].cells[1], "a \"b\"\n# not a comment\nc");
	assert_string_equal(table.rows[1].cells[2], "32");
	assert_string_equal(table.rows[2].cells[2], "");
	assert_string_equal(table.rows[5].cells[2], "line");
	arena_finish(&arena);
}

static void test_header_only(void **state)
{
	struct arena arena = {0};
	struct error error = {0};
	struct csv_table table;

	(void)state;
	assert_true(read_text(&arena, "a,b\n", &table, &error));
	assert_int_equal(table.n_rows, 0);
	arena_finish(&arena);
}

/* Where the header has no comma. */
static void test_delimiters(void **state)
{
	static const struct {
		const char *text, *second;
		char delimiter;
	} cases[] = {{"a;b\n1;2,5\n", "2,5", ';'}, {"# x,y\na\tb\n1\t2\n", "2", '\t'},
		{"a,b;c\n1,2;3\n", "2;3", ','}, {"\"a,x\";b\n1;2\n", "2", ';'},
		{"a\n1;2\n", NULL, ','}};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct error error = {0};
		struct csv_table table;
		assert_true(read_text(&arena, cases[i].text, &table, &error));
		assert_int_equal(table.delimiter, cases[i].delimiter);
		assert_int_equal(table.rows[0].n_cells, cases[i].second != NULL ? 2 : 1);
		if (cases[i].second != NULL)
			assert_string_equal(table.rows[0].cells[1], cases[i].second);
		arena_finish(&arena);
	}
}

static void test_refused(void **state)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{"", "t.csv:1:1: empty, expected a header row with column names"},
		{"# only\n\n", "t.csv:1:1: empty, expected a header row with column names"},
		{"a,b\n1,\"x",
			"t.csv:2:1: the quoted cell that starts in this row is never closed"},
		{"a,b\n1,2\n3,\"x\ny\n",
			"t.csv:3:1: the quoted cell that starts in this row is never closed"},
		{"a,b\n1,x\"y\n",
			"t.csv:2:4: stray quote, expected quotes around the whole cell and "
			"doubled inside it"},
		{"a,b\n1,\"x\"y\n",
			"t.csv:2:6: stray quote, expected quotes around the whole cell and "
			"doubled inside it"},
	};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct error error = {0};
		struct csv_table table;
		assert_false(read_text(&arena, cases[i].text, &table, &error));
		assert_input_error(&error, cases[i].message);
		arena_finish(&arena);
	}
}

static void test_nul(void **state)
{
	struct arena arena = {0};
	struct error error = {0};
	struct csv_table table;

	(void)state;
	assert_false(csv_read(&arena, "t.csv", "a\n1\0\n", 5, &table, &error));
	assert_input_error(
		&error, "t.csv:2:2: expected text, got a NUL byte; is this a CSV file in UTF-8?");
	arena_finish(&arena);
}

static void test_other_encodings(void **state)
{
	struct arena arena = {0};
	struct error error = {0};
	struct csv_table table;

	(void)state;
	assert_false(csv_read(&arena, "t.csv", "a\nb\xe4\n", 5, &table, &error));
	assert_input_error(&error,
		"t.csv:2:2: expected UTF-8 text, got the byte 0xe4; save the file "
		"as UTF-8");
	error_clear(&error);
	assert_true(csv_read(&arena, "t.csv", "a\nb\xc3\xa4\n", 6, &table, &error));
	assert_string_equal(table.rows[0].cells[0], "b\xc3\xa4");
	arena_finish(&arena);
}

static void test_large(void **state)
{
	size_t length = (64 << 20) + 1;
	char *text = malloc(length);
	struct arena arena = {0};
	struct error error = {0};
	struct csv_table table;

	(void)state;
	memset(text, 'x', length);
	assert_false(csv_read(&arena, "t.csv", text, length, &table, &error));
	assert_input_error(&error, "t.csv: too large, expected at most 64 MiB, got 67108865 bytes");
	free(text);
	arena_finish(&arena);
}

static void test_add_cell(void **state)
{
	static const struct {
		const char *cell, *first, *later;
	} cases[] = {{"abc", "abc", ",abc"}, {"", "\"\"", ","}, {"a,b", "\"a,b\"", ",\"a,b\""},
		{"a \"b\"", "\"a \"\"b\"\"\"", ",\"a \"\"b\"\"\""}, {" a", "\" a\"", ",\" a\""},
		{"a\n", "\"a\n\"", ",\"a\n\""}, {"#1", "\"#1\"", ",#1"},
		{"=1+1", "'=1+1", ",'=1+1"}, {"+x", "'+x", ",'+x"}, {"-x", "'-x", ",'-x"},
		{"@x", "'@x", ",'@x"}, {"\tx", "\"'\tx\"", ",'\tx"}, {"a;b", "\"a;b\"", ",a;b"},
		{"\xef\xbb\xbfx", "\"\xef\xbb\xbfx\"", ",\xef\xbb\xbfx"},
		{"=a,b", "\"'=a,b\"", ",\"'=a,b\""}, {"1.5", "1.5", ",1.5"}};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct text text = {0};
		csv_add_cell(&text, cases[i].cell, true);
		assert_string_equal(text_string(&text), cases[i].first);
		text_clear(&text);
		csv_add_cell(&text, cases[i].cell, false);
		assert_string_equal(text_string(&text), cases[i].later);
		text_finish(&text);
	}
}

static void random_cell(uint64_t *seed, char cell[12])
{
	static const char letters[] = "ab ,\"\n#x0";
	int length = random_below(seed, 11);

	for (int i = 0; i < length; i++)
		cell[i] = letters[random_below(seed, (int)sizeof(letters) - 1)];
	cell[length] = '\0';
}

/* What is written is read back, cell by cell and line by line. */
static void test_roundtrip(void **state)
{
	enum { ROWS = 400, CELLS = 4 };
	static char cells[ROWS][CELLS][12];
	struct text text = {0};
	struct arena arena = {0};
	struct error error = {0};
	struct csv_table table;
	uint64_t seed = 99;
	int line = 1, lines[ROWS];

	(void)state;
	for (int r = 0; r < ROWS; r++) {
		lines[r] = line;
		for (int c = 0; c < CELLS; c++) {
			random_cell(&seed, cells[r][c]);
			csv_add_cell(&text, cells[r][c], c == 0);
		}
		text_add_char(&text, '\n');
		line = 1;
		for (size_t i = 0; i < text.length; i++)
			line += text.data[i] == '\n';
	}
	if (!read_text(&arena, text_string(&text), &table, &error))
		fail_msg("%s", error.message);
	assert_int_equal(table.n_rows + 1, ROWS);
	for (int r = 0; r < ROWS; r++) {
		const struct csv_row *row = r == 0 ? &table.header : &table.rows[r - 1];
		assert_int_equal(row->line, lines[r]);
		assert_int_equal(row->n_cells, CELLS);
		for (int c = 0; c < CELLS; c++)
			assert_string_equal(row->cells[c], cells[r][c]);
	}
	arena_finish(&arena);
	text_finish(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_header_only),
		cmocka_unit_test(test_delimiters),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_nul),
		cmocka_unit_test(test_other_encodings),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_add_cell),
		cmocka_unit_test(test_roundtrip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
