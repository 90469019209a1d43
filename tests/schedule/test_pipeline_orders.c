/* Orders against golden/pipeline: what torch 2.15.0 and Megatron-Core compute, rank by rank. Splits
 * of blocks over stages, against the same folder, and what is refused of both. */
#include "pipelines.h"

enum { MOST_STAGES = 64 };

static const char *folder;

static FILE *open_golden(const char *name)
{
	char path[1024];
	snprintf(path, sizeof(path), "%s/pipeline/%s", folder, name);
	FILE *file = fopen(path, "r");
	if (file == NULL)
		fail_msg("cannot open %s", path);
	return file;
}

/* The question at the start of a line; returns where it ends. */
static char *read_question(char *line, struct pipeline *pipeline)
{
	char name[16];
	int pairs, length, schedule = 0;
	assert_int_equal(
		sscanf(line, "%15s %d %d %d %d %d%n", name, &pipeline->ranks, &pipeline->chunks,
			&pipeline->micro_batches, &pipeline->group, &pairs, &length),
		6);
	while (schedule < PIPELINE_SCHEDULE_COUNT &&
		strcmp(pipeline_schedule_names[schedule], name) != 0)
		schedule++;
	assert_true(schedule < PIPELINE_SCHEDULE_COUNT);
	pipeline->schedule = (enum pipeline_schedule)schedule;
	pipeline->pairs = pairs;
	return line + length;
}

/* FNV-1a, as pipeline_orders.py has it. */
static uint32_t hash_of(const char *text)
{
	uint32_t value = 0x811c9dc5;
	for (; *text != '\0'; text++)
		value = (value ^ (unsigned char)*text) * 0x01000193u;
	return value;
}

static void compare_hashes(char *line, const struct pipeline *pipeline, const char *hashes)
{
	for (int k = 0; k < pipeline->ranks; k++) {
		struct arena arena = {0};
		char hex[16];
		snprintf(hex, sizeof(hex), " %08x", hash_of(order_words(pipeline, k, &arena)));
		if (strncmp(hashes, hex, 9) != 0)
			fail_msg("rank %d of %s: %s", k, line, order_words(pipeline, k, &arena));
		hashes += 9;
		arena_finish(&arena);
	}
}

/* Every p <= 8, v <= 4, m <= 32. What torch refuses, we refuse in its name; what Megatron refuses
 * is not in the file. */
static void test_hashes(void **state)
{
	(void)state;
	FILE *file = open_golden("hashes.txt");
	char line[256];
	int orders = 0, refused = 0;
	while (fgets(line, sizeof(line), file) != NULL) {
		struct pipeline pipeline;
		struct error error = {0};
		char *hashes = read_question(line, &pipeline);
		bool torch = pipeline.group == 0;
		bool accepted = strncmp(hashes, " refused", 8) != 0;
		if (pipeline_check(&pipeline, torch, &error) != accepted)
			fail_msg("%s%s", line, error.message);
		orders += accepted ? pipeline.ranks : 0;
		refused += !accepted;
		if (accepted)
			compare_hashes(line, &pipeline, hashes);
	}
	fclose(file);
	assert_int_equal(orders, 13719);
	assert_int_equal(refused, 743);
}

/* A few of them in full, so that a reader sees what differs. */
static void test_words(void **state)
{
	(void)state;
	FILE *file = open_golden("orders.txt");
	static char line[4096];
	struct pipeline pipeline = {0};
	int ranks = 0;
	while (fgets(line, sizeof(line), file) != NULL) {
		struct arena arena = {0};
		line[strcspn(line, "\n")] = '\0';
		if (line[0] > '9' || line[1] != ' ') {
			read_question(line, &pipeline);
			continue;
		}
		assert_string_equal(line + 2, order_words(&pipeline, line[0] - '0', &arena));
		ranks++;
		arena_finish(&arena);
	}
	fclose(file);
	assert_int_equal(ranks, 35);
}

static void test_places(void **state)
{
	(void)state;
	static const int loop[] = {0, 1, 2, 0, 1, 2}, v[] = {0, 1, 2, 2, 1, 0};
	for (int s = PIPELINE_INTERLEAVED; s < PIPELINE_SCHEDULE_COUNT; s++) {
		struct pipeline pipeline = {.schedule = s, .ranks = 3, .chunks = 2};
		bool is_v = s == PIPELINE_ZBV || s == PIPELINE_DUALPIPEV;
		for (int stage = 0; stage < 6; stage++) {
			int rank, chunk;
			pipeline_place(&pipeline, stage, &rank, &chunk);
			assert_int_equal(rank, is_v ? v[stage] : loop[stage]);
			assert_int_equal(chunk, stage / 3);
			assert_int_equal(pipeline_stage(&pipeline, rank, chunk), stage);
		}
	}
}

/* --- refusals ------------------------------------------------------------------------------------
 */

static void test_refusals(void **state)
{
	(void)state;
	static const struct {
		struct pipeline pipeline;
		const char *message; /* NULL: accepted; torch's own rules where it begins so */
	} cases[] = {
		{{PIPELINE_1F1B, 4, 2, 8, 0, false},
			"--virtual-stages 2: 1f1b has one stage on each rank; use 1, or "
			"--pipeline-schedule interleaved"},
		{{PIPELINE_INTERLEAVED, 4, 1, 8, 0, false},
			"--virtual-stages 1: interleaved has several stages on each rank; use 2, "
			"or --pipeline-schedule 1f1b"},
		{{PIPELINE_ZBV, 4, 3, 8, 0, false},
			"--virtual-stages 3: zbv has two stages on each rank; use 2"},
		{{PIPELINE_INTERLEAVED, 4, 2, 10, 4, false},
			"--grad-accum 10: interleaved over 4 ranks cannot share it out in groups; "
			"use 8 or 12"},
		{{PIPELINE_INTERLEAVED, 4, 2, 11, 0, false},
			"--grad-accum 11: interleaved over 4 ranks cannot share it out in groups; "
			"use 10 or 12"},
		{{PIPELINE_INTERLEAVED, 4, 2, 3, 4, false},
			"--grad-accum 3: interleaved over 4 ranks has groups of 4 micro-batches; "
			"use 4"},
		{{PIPELINE_INTERLEAVED, 4, 2, 8, 2, false},
			"groups of 2 micro-batches: interleaved over 4 ranks needs groups of at "
			"least 4; use 4"},
		{{PIPELINE_ZB_H1, 4, 1, 9, 0, false}, "--grad-accum 9: zb-h1 over 4 ranks cannot "
						      "share it out in groups; use 8 or "
						      "10"},
		{{PIPELINE_DUALPIPEV, 4, 2, 7, 0, false}, "--grad-accum 7: dualpipev over 4 ranks "
							  "needs at least 8 micro-batches; use "
							  "8"},
		{{PIPELINE_INTERLEAVED, 4, 2, 10, 6, false}, NULL},
		{{PIPELINE_1F1B, 4, 1, 2, 0, false}, NULL},
		{{PIPELINE_ZBV, 4, 2, 1, 0, false}, NULL},
	};
	for (int c = 0; c < COUNT_OF(cases); c++) {
		struct error error = {0};
		bool accepted = pipeline_check(&cases[c].pipeline, false, &error);
		assert_string_equal(
			error.message, cases[c].message != NULL ? cases[c].message : "");
		assert_int_equal(accepted, cases[c].message == NULL);
		assert_int_equal(error.code, accepted ? EXIT_CODE_OK : EXIT_CODE_USAGE);
	}
}

static void test_torch_refusal(void **state)
{
	(void)state;
	struct error error = {0};
	struct pipeline pipeline = {PIPELINE_1F1B, 4, 1, 2, 0, false};
	assert_false(pipeline_check(&pipeline, true, &error));
	assert_string_equal(error.message,
		"--grad-accum 2: 1f1b over 4 ranks needs at least 4 micro-batches; use 4");
}

/* --- splits: torchtitan's ------------------------------------------------------------------------
 */

/* " 1 2 3", or " refused". */
static void print_split(const struct pipeline_split *split, struct text *text)
{
	int stages[MOST_STAGES];
	struct error error = {0};
	if (!pipeline_split_even(split, stages, &error)) {
		assert_int_equal(error.code, EXIT_CODE_USAGE);
		text_add(text, " refused");
		return;
	}
	for (int s = 0; s < split->ranks * split->chunks; s++)
		text_printf(text, " %d", stages[s]);
}

static void test_splits(void **state)
{
	(void)state;
	char line[512];
	FILE *file = open_golden("splits.txt");
	int lines = 0;
	for (; fgets(line, sizeof(line), file) != NULL; lines++) {
		struct text text = {0};
		struct pipeline_split split;
		int length = 0;
		line[strcspn(line, "\n")] = '\0';
		assert_int_equal(sscanf(line, "even %d %d %d %d %d%n", &split.blocks, &split.ranks,
					 &split.chunks, &split.embedding, &split.head, &length),
			5);
		print_split(&split, &text);
		if (strcmp(text_string(&text), line + length) != 0)
			fail_msg("%s: got%s", line, text_string(&text));
		text_finish(&text);
	}
	fclose(file);
	assert_int_equal(lines, 672);
}

/* --- refusals ------------------------------------------------------------------------------------
 */

static void test_split_refusals(void **state)
{
	(void)state;
	static const struct {
		struct pipeline_split split;
		const char *message;
	} cases[] = {
		{{30, 16, 3, 1, 1}, "--pipeline 16: 30 blocks, embedding and head do not fill 48 "
				    "stages; use at most 10"},
		{{32, 16, 1, 1, 4},
			"--pipeline 16: the head counts as 4 blocks, more than the 2 of a stage; "
			"use fewer stages, or let it count as 2"},
	};
	for (int c = 0; c < COUNT_OF(cases); c++) {
		int stages[128];
		struct error error = {0};
		assert_false(pipeline_split_even(&cases[c].split, stages, &error));
		assert_string_equal(error.message, cases[c].message);
		assert_int_equal(error.code, EXIT_CODE_USAGE);
	}
}

static void test_splits_listed(void **state)
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
			"2); give one for each"},
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

/* --- splits: nanotron's ------------------------------------------------------------------------
 */

/* The splits are computed by hand, from the rule: a stage ends with the block that exceeds its
 * share. */
static void test_splits_by_cost(void **state)
{
	(void)state;
	static const struct {
		int blocks, ranks;
		double block, head;
		int stages[5];
		const char *message;
	} cases[] = {
		/* Without a head to speak of, shares are 2, 4, 6 and 8: the first one is exceeded
		 * by the third block, the second by the fifth. */
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
		cmocka_unit_test(test_hashes),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_torch_refusal),
		cmocka_unit_test(test_splits),
		cmocka_unit_test(test_split_refusals),
		cmocka_unit_test(test_splits_listed),
		cmocka_unit_test(test_splits_by_cost),
	};
	folder = argc > 1 ? argv[1] : "tests/schedule/golden";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
