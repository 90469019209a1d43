/* Random documents: what the writer writes, the reader reads back, in every format. The document is
 * drawn twice from the same seed: once to write it and once to compare it. */
#include "tests/base/support.h"

#include <math.h>
#include <stdio.h>

#include "base/units.h"

enum { DEEPEST = 8 };

/* Letters that are awkward in some format come up often. */
static void random_string(uint64_t *seed, char string[64])
{
	static const char *const pieces[] = {"a", "b", "7", " ", ":", "#", "-", "\n", "\t", "\"",
		"\\", "'", "{", "[", "]", ",", "&", "*", "!", "|", ">", "%", "@", "?", "~", "null",
		"true", "on", "1e5", "0x1", ".", "_", "<", "\xc3\xa9", "\xe2\x82\xac",
		"\xf0\x9f\x98\x80", "\xe2\x80\xa8", "\xc2\x85", "\xef\xbb\xbf", "\x01", "\x7f",
		"\r", "us", "GiB"};

	string[0] = '\0';
	for (int n = random_below(seed, 9); n > 0; n--)
		strcat(string, pieces[random_below(seed, COUNT_OF(pieces))]);
}

static double random_double(uint64_t *seed)
{
	double value = 0;

	do {
		uint64_t bits = random_u64(seed);
		memcpy(&value, &bits, sizeof(value));
	} while (!isfinite(value));
	return random_below(seed, 2) ? value : round(value / 1e300 * 1e6) / 1e3;
}

/* Either writes (writer set) or compares (node set). */
struct side {
	struct writer *writer;
	const struct node *node;
};

static void check_number(const struct node *node, double value)
{
	struct error error = {0};
	double back = 0;

	if (!node_double(node, &back, &error))
		fail_msg("%s", error.message);
	assert_true(back == value);
}

static void do_string(struct side side, const char *key, uint64_t *seed)
{
	char string[64];

	random_string(seed, string);
	if (side.writer != NULL) {
		writer_string(side.writer, key, string);
		return;
	}
	const char *back = NULL;
	struct error error = {0};
	if (!node_string(side.node, &back, &error))
		fail_msg("%s", error.message);
	assert_string_equal(back, string);
	/* It must read back as a string and as nothing else. */
	int64_t i;
	double d;
	bool b;
	assert_false(node_int(side.node, &i, &error));
	assert_false(node_double(side.node, &d, &error));
	assert_false(node_bool(side.node, &b, &error));
}

static void do_int(struct side side, const char *key, uint64_t *seed)
{
	int64_t value = (int64_t)random_u64(seed) >> random_below(seed, 64), back = 0;
	struct error error = {0};

	if (side.writer != NULL) {
		writer_int(side.writer, key, value);
		return;
	}
	assert_true(node_int(side.node, &back, &error));
	assert_true(back == value);
}

static void do_number(struct side side, const char *key, uint64_t *seed)
{
	double value = random_double(seed);

	if (side.writer != NULL)
		writer_number(side.writer, key, value);
	else
		check_number(side.node, value);
}

static void do_bool(struct side side, const char *key, uint64_t *seed)
{
	bool value = random_below(seed, 2) == 1, back = !value;
	struct error error = {0};

	if (side.writer != NULL) {
		writer_bool(side.writer, key, value);
		return;
	}
	assert_true(node_bool(side.node, &back, &error));
	assert_int_equal(back, value);
}

static void do_null(struct side side, const char *key, uint64_t *seed)
{
	(void)seed;
	if (side.writer != NULL)
		writer_string(side.writer, key, NULL);
	else
		assert_int_equal(side.node->kind, NODE_NULL);
}

static void do_bytes(struct side side, const char *key, uint64_t *seed)
{
	int64_t value = (int64_t)(random_u64(seed) >> 1) >> random_below(seed, 63), back = -1;

	if (side.writer != NULL) {
		writer_bytes(side.writer, key, value);
		return;
	}
	assert_true(unit_parse_bytes(side.node->text, &back));
	assert_true(back == value);
}

static void do_quantity(struct side side, const char *key, uint64_t *seed)
{
	enum unit_kind kind = (enum unit_kind)(UNIT_BANDWIDTH + random_below(seed, 3));
	double value = fabs(random_double(seed)), back = -1;

	if (side.writer != NULL) {
		writer_quantity(side.writer, key, (int)kind, value);
		return;
	}
	assert_true(unit_parse(kind, side.node->text, &back));
	assert_true(back == value);
}

static void do_children(struct side side, uint64_t *seed, int depth, bool list);

static void do_collection(struct side side, const char *key, uint64_t *seed, int depth)
{
	bool list = random_below(seed, 2) == 1;

	if (side.writer != NULL) {
		if (list)
			writer_begin_list(side.writer, key);
		else
			writer_begin_map(side.writer, key);
	} else {
		assert_int_equal(side.node->kind, list ? NODE_LIST : NODE_MAP);
	}
	do_children(side, seed, depth + 1, list);
	if (side.writer != NULL && list)
		writer_end_list(side.writer);
	else if (side.writer != NULL)
		writer_end_map(side.writer);
}

static void do_value(struct side side, const char *key, uint64_t *seed, int depth)
{
	static void (*const scalars[])(struct side, const char *, uint64_t *) = {
		do_string, do_int, do_number, do_bool, do_null, do_bytes, do_quantity, do_string};
	int choice = random_below(seed, COUNT_OF(scalars) + 3);

	if (choice < COUNT_OF(scalars) || depth >= DEEPEST)
		scalars[choice % COUNT_OF(scalars)](side, key, seed);
	else
		do_collection(side, key, seed, depth);
}

static void do_children(struct side side, uint64_t *seed, int depth, bool list)
{
	int n = random_below(seed, 6);

	if (side.node != NULL)
		assert_int_equal(side.node->n_children, n);
	for (int i = 0; i < n; i++) {
		char word[64], key[80];
		random_string(seed, word);
		snprintf(key, sizeof(key), "%s%d", word, i); /* unique */
		if (side.writer != NULL && random_below(seed, 8) == 0)
			writer_comment(side.writer, "a comment: [&*");
		else if (side.writer == NULL)
			random_below(seed, 8);
		struct side child = side;
		if (side.node != NULL) {
			child.node = side.node->children[i];
			if (!list)
				assert_string_equal(child.node->key, key);
		}
		do_value(child, list ? NULL : key, seed, depth);
	}
}

static void check_document(enum writer_format format, uint64_t seed)
{
	struct text text = {0};
	struct arena arena = {0};
	struct error error = {0};
	struct writer writer;
	uint64_t first = seed, second = seed;

	writer_init(&writer, &text, format);
	do_children((struct side){.writer = &writer}, &first, 0, false);
	writer_finish(&writer);
	const struct node *root = parse_bytes(&arena, text.data, text.length, 0, &error);
	if (root == NULL)
		fail_msg("%s\n%s", error.message, text.data);
	do_children((struct side){.node = root}, &second, 0, false);
	assert_true(first == second);
	arena_finish(&arena);
	text_finish(&text);
}

static void test_random(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 3000; seed++) {
		check_document(WRITER_YAML, seed * 7919);
		check_document(WRITER_JSON, seed * 7919);
		check_document(WRITER_JSON_COMPACT, seed * 7919);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
