/* Splits of blocks over stages: against golden/pipeline (torchtitan's and Megatron's), and what is
 * refused. */
#include "pipelines.h"

enum { MOST_STAGES = 64 };

static const char *folder;

/* --- torchtitan's and Megatron's -----------------------------------------------------------------
 */

/* " 1 2 3", or " refused". */
static void print_split(const char *rule, const struct pipeline_split *split, struct text *text)
{
	int stages[MOST_STAGES];
	struct error error = {0};
	bool even = strcmp(rule, "even") == 0;
	if (!(even ? pipeline_split_even : pipeline_split_equal)(split, stages, &error)) {
		assert_int_equal(error.code, EXIT_CODE_USAGE);
		text_add(text, " refused");
		return;
	}
	for (int s = 0; s < split->ranks * split->chunks; s++)
		text_printf(text, " %d", stages[s]);
}

static void test_golden(void **state)
{
	(void)state;
	char path[1024], line[512];
	snprintf(path, sizeof(path), "%s/pipeline/splits.txt", folder);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	int lines = 0;
	for (; fgets(line, sizeof(line), file) != NULL; lines++) {
		struct text text = {0};
		struct pipeline_split split;
		char rule[8];
		int length = 0;
		line[strcspn(line, "\n")] = '\0';
		assert_int_equal(
			sscanf(line, "%7s %d %d %d %d %d%n", rule, &split.blocks, &split.ranks,
				&split.chunks, &split.embedding, &split.head, &length),
			6);
		print_split(rule, &split, &text);
		if (strcmp(text_string(&text), line + length) != 0)
			fail_msg("%s: got%s", line, text_string(&text));
		text_finish(&text);
	}
	fclose(file);
	assert_int_equal(lines, 1281);
}

/* --- refusals ------------------------------------------------------------------------------------
 */

static void test_refusals(void **state)
{
	(void)state;
	static const struct {
		struct pipeline_split split;
		bool even;
		const char *message;
	} cases[] = {
		{{30, 16, 3, 1, 1}, true,
			"--pipeline 16: 30 blocks, embedding and head do not fill 48 stages; use "
			"at "
			"most 10"},
		{{32, 16, 1, 1, 4}, true,
			"--pipeline 16: the head counts as 4 blocks, more than the 2 of a stage; "
			"use "
			"fewer stages, or let it count as 2"},
		{{32, 5, 1, 0, 0}, false,
			"--pipeline 5: 32 blocks are not 5 equal stages; use 4 or 8, or "
			"--layers-per-stage"},
		{{80, 8, 1, 1, 1}, false,
			"--pipeline 8: 82 blocks with embedding and head are not 8 equal stages; "
			"use 2 "
			"or 41, or --layers-per-stage"},
		{{32, 100, 1, 0, 0}, false,
			"--pipeline 100: 32 blocks are not 100 equal stages; use 32, or "
			"--layers-per-stage"},
		{{31, 4, 2, 0, 0}, false,
			"--virtual-stages 2: 31 blocks cannot be 2 equal stages on each of any "
			"number "
			"of ranks; use --layers-per-stage"},
	};
	for (int c = 0; c < COUNT_OF(cases); c++) {
		int stages[128];
		struct error error = {0};
		assert_false((cases[c].even ? pipeline_split_even : pipeline_split_equal)(
			&cases[c].split, stages, &error));
		assert_string_equal(error.message, cases[c].message);
		assert_int_equal(error.code, EXIT_CODE_USAGE);
	}
}

static void test_listed(void **state)
{
	(void)state;
	static const struct {
		int n, listed[4];
		const char *message;
	} cases[] = {
		{4, {3, 3, 3, 1}, ""},
		{4, {0, 5, 5, 0}, ""},
		{3, {3, 3, 4, 0},
			"--layers-per-stage: 3 counts for 4 stages (--pipeline 2, --virtual-stages "
			"2); "
			"give one for each"},
		{4, {3, 3, 3, 2},
			"--layers-per-stage: the counts make 11 blocks, the model has 10; take "
			"away 1"},
		{4, {1, 1, 1, 1},
			"--layers-per-stage: the counts make 4 blocks, the model has 10; add 6"},
		{4, {5, 0, 4, 1},
			"--layers-per-stage: stage 1 has 0 blocks; only the first and the last may "
			"have 0, beside embedding and head"},
	};
	struct pipeline_split split = {.blocks = 10, .ranks = 2, .chunks = 2};
	for (int c = 0; c < COUNT_OF(cases); c++) {
		struct error error = {0};
		bool ok = pipeline_split_listed(&split, cases[c].listed, cases[c].n, &error);
		assert_string_equal(error.message, cases[c].message);
		assert_int_equal(ok, cases[c].message[0] == '\0');
	}
}

/* --- nanotron's ----------------------------------------------------------------------------------
 */

/* By hand, from the rule: a stage ends with the block that exceeds its share. */
static void test_by_cost(void **state)
{
	(void)state;
	static const struct {
		int blocks, ranks;
		double block, head;
		int stages[5];
		const char *message;
	} cases[] = {
		/* Without a head to speak of shares are 2, 4, 6 and 8: the first one is exceeded by
		 * the third block, the second by the fifth. */
		{8, 4, 1, 0.5, {3, 2, 2, 1}, ""},
		/* Llama 2 7B: 32 blocks of 4 x 4096 + 3 x 11008, 32,000 words. */
		{32, 2, 49408, 32000, {17, 15}, ""},
		{32, 4, 49408, 32000, {9, 8, 8, 7}, ""},
		/* Llama 3 8B: the head is worth 2.2 blocks. */
		{32, 4, 59392, 128256, {9, 9, 8, 6}, ""},
		{8, 4, 1, 10, {0},
			"--pipeline 4: cut by cost, 8 blocks and the head do not fill 4 stages; "
			"use 1, or --layers-per-stage"},
		{2, 5, 1, 1, {0},
			"--pipeline 5: cut by cost, 2 blocks and the head do not fill 5 stages; "
			"use 2, or --layers-per-stage"},
	};
	for (int c = 0; c < COUNT_OF(cases); c++) {
		int stages[5];
		struct error error = {0};
		struct pipeline_split split = {
			.blocks = cases[c].blocks, .ranks = cases[c].ranks, .chunks = 1};
		bool ok = pipeline_split_by_cost(
			&split, cases[c].block, cases[c].head, stages, &error);
		assert_string_equal(error.message, cases[c].message);
		for (int s = 0; s < split.ranks && ok; s++)
			assert_int_equal(stages[s], cases[c].stages[s]);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_listed),
		cmocka_unit_test(test_by_cost),
	};
	folder = argc > 1 ? argv[1] : "tests/schedule/golden";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
