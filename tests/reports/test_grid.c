/* Tables on a terminal, in Markdown and in HTML. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "reports/text/grid.h"
#include "reports/text/text.h"

static const struct style plain = {false, 0};

static void expect(struct text *text, const char *expected)
{
	assert_string_equal(text_string(text), expected);
	text_finish(text);
}

static void make_grid(struct grid *grid)
{
	static const struct grid_column columns[] = {
		{"name", GRID_LEFT}, {"size", GRID_RIGHT}, {"note", GRID_WRAP}};

	grid_init(grid, columns, COUNT_OF(columns));
	grid_row(grid, GRID_GOOD);
	grid_add(grid, "a");
	grid_add_bytes(grid, 1536);
	grid_add(grid, "words that need more than one short line of text");
	grid_row(grid, GRID_BAD);
	grid_add(grid, "long|er\x1b");
	grid_add_bytes(grid, 3);
}

static void test_grid_text(void **state)
{
	struct style narrow = {false, 50};
	struct text text = {0};
	struct grid grid;

	(void)state;
	make_grid(&grid);
	grid_text(&grid, &plain, &text);
	expect(&text, " name               size  note\n"
		      " a              1.50 KiB  words that need more than one short line of text\n"
		      " long|er\\u001b       3 B\n\n");
	grid_text(&grid, &narrow, &text);
	expect(&text, " name               size  note\n"
		      " a              1.50 KiB  words that need more\n"
		      "                          than one short line of\n"
		      "                          text\n"
		      " long|er\\u001b       3 B\n\n");
	grid_finish(&grid);
}

/* Where there is too little room, text is broken between words, then headings are. A name is broken
 * last. */
static void test_grid_narrow(void **state)
{
	static const struct grid_column columns[] = {
		{"strategy", GRID_LEFT}, {"step time", GRID_RIGHT}, {"fits", GRID_LEFT}};
	struct text text = {0};
	struct grid grid;

	(void)state;
	grid_init(&grid, columns, COUNT_OF(columns));
	grid_row(&grid, GRID_PLAIN);
	grid_add(&grid, "TP 2 x HYBRID_SHARD/8");
	grid_add_seconds(&grid, 1.25);
	grid_add(&grid, "yes");
	grid_text(&grid, &(struct style){false, 32}, &text);
	expect(&text, " strategy       step time fits\n"
		      " TP 2 x            1.25 s yes\n"
		      " HYBRID_SHARD/8\n\n");
	grid_text(&grid, &(struct style){false, 28}, &text);
	expect(&text, "                  step\n"
		      " strategy         time fits\n"
		      " TP 2 x         1.25 s yes\n"
		      " HYBRID_SHARD/8\n\n");
	grid_text(&grid, &(struct style){false, 24}, &text);
	expect(&text, "            step\n"
		      " strategy   time fits\n"
		      " TP 2 x   1.25 s yes\n"
		      " HYBRID\n"
		      " _SHARD/8\n\n");
	grid_finish(&grid);
}

/* The first column needs less than its share of the width, until the last takes more than its own:
 * then all that can be broken are. */
static void test_grid_shares(void **state)
{
	static const struct grid_column columns[] = {
		{"name", GRID_LEFT}, {"group", GRID_LEFT}, {"behind", GRID_LEFT}};
	struct grid grid;
	struct text text = {0};

	(void)state;
	grid_init(&grid, columns, 3);
	grid_row(&grid, GRID_PLAIN);
	grid_add(&grid, "shard 512, stride 4");
	grid_add(&grid, "all_gather of its unit");
	grid_add(&grid, "forward model.embed_tokens.weight.of.this");
	grid_text(&grid, &(struct style){false, 66}, &text);
	for (const char *line = text_string(&text); *line != '\0';) {
		size_t length = strcspn(line, "\n");
		assert_true(length <= 66);
		line += length + (line[length] == '\n');
	}
	text_finish(&text);
	grid_finish(&grid);
}

static void test_grid_color(void **state)
{
	struct style color = {true, 0};
	struct text text = {0};
	struct grid grid;

	(void)state;
	make_grid(&grid);
	grid_text(&grid, &color, &text);
	assert_non_null(strstr(text_string(&text), "\033[32m"));
	assert_non_null(strstr(text_string(&text), "\033[31m"));
	text_clear(&text);
	grid_text(&grid, &plain, &text);
	assert_null(strchr(text_string(&text), '\033'));
	text_finish(&text);
	grid_finish(&grid);
}

static void test_grid_markup(void **state)
{
	struct text text = {0};
	struct grid grid;

	(void)state;
	make_grid(&grid);
	grid_markdown(&grid, &text);
	expect(&text, "| name | size | note |\n|:---|---:|:---|\n"
		      "| a | 1.50 KiB | words that need more than one short line of text |\n"
		      "| long\\|er\\u001b | 3 B |  |\n");
	grid_html(&grid, "c\"aption", true, &text);
	assert_non_null(strstr(text_string(&text), "aria-label=\"c&#34;aption\""));
	assert_non_null(strstr(text_string(&text), "data-sort=\"1536\">1.50 KiB</td>"));
	text_finish(&text);
	grid_finish(&grid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grid_text),
		cmocka_unit_test(test_grid_narrow),
		cmocka_unit_test(test_grid_shares),
		cmocka_unit_test(test_grid_color),
		cmocka_unit_test(test_grid_markup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
