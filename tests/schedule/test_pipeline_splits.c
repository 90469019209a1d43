/* Splits of blocks over stages: against golden/pipeline (torchtitan's and Megatron's), what is
 * refused, and the balanced one against all there are. */
#include <math.h>

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

/* --- balanced ------------------------------------------------------------------------------------
 */

struct best {
	double slowest, squares;
};

/* Tries every split of what is left over the stages from `stage` on. */
static void try_all(const struct pipeline_weights *weights, int n_stages, int stage, int begin,
	struct best so_far, struct best *best)
{
	for (int end = begin; end <= weights->n; end++) {
		double ends = (stage == 0 ? weights->embedding : 0) +
			      (stage == n_stages - 1 ? weights->head : 0);
		double seconds = ends;
		for (int b = begin; b < end; b++)
			seconds += weights->blocks[b];
		if (begin == end && ends == 0)
			continue;
		struct best now = {
			fmax(so_far.slowest, seconds), so_far.squares + seconds * seconds};
		if (stage < n_stages - 1)
			try_all(weights, n_stages, stage + 1, end, now, best);
		else if (end == weights->n && (now.slowest < best->slowest - 1e-9 ||
						      (now.slowest < best->slowest + 1e-9 &&
							      now.squares < best->squares)))
			*best = now;
	}
}

static struct best measure(const struct pipeline_weights *weights, int n_stages, const int *stages)
{
	struct best best = {0};
	int block = 0;
	for (int s = 0; s < n_stages; s++) {
		double seconds =
			(s == 0 ? weights->embedding : 0) + (s == n_stages - 1 ? weights->head : 0);
		for (int b = 0; b < stages[s]; b++)
			seconds += weights->blocks[block++];
		best.slowest = fmax(best.slowest, seconds);
		best.squares += seconds * seconds;
	}
	assert_int_equal(block, weights->n);
	return best;
}

static void test_balanced(void **state)
{
	(void)state;
	uint64_t seed = 5;
	for (int i = 0; i < 500; i++) {
		struct arena arena = {0};
		double blocks[10];
		struct pipeline_weights weights = {.blocks = blocks,
			.n = 1 + (int)random_below(&seed, 10),
			.embedding = (double)random_below(&seed, 4),
			.head = (double)random_below(&seed, 8) / 2};
		bool alike = random_below(&seed, 2) == 0;
		for (int b = 0; b < weights.n; b++)
			blocks[b] = alike ? 1.1 : (double)(1 + random_below(&seed, 30)) / 7;
		int most = weights.n + (weights.embedding > 0) + (weights.head > 0);
		int n_stages = 1 + (int)random_below(&seed, most < 6 ? most : 6), stages[8];
		double got = pipeline_split_balanced(&weights, n_stages, &arena, stages);
		struct best best = {INFINITY, INFINITY};
		try_all(&weights, n_stages, 0, 0, (struct best){0}, &best);
		struct best made = measure(&weights, n_stages, stages);
		assert_true(fabs(got - best.slowest) < 1e-9);
		assert_true(fabs(made.slowest - best.slowest) < 1e-9);
		assert_true(fabs(made.squares - best.squares) < 1e-9 * best.squares);
		arena_finish(&arena);
	}
}

/* Llama 3 405B: 126 blocks on 16 ranks, a block less on either end (2407.21783 section 3.3.2).
 */
static void test_llama_405b(void **state)
{
	(void)state;
	struct arena arena = {0};
	double blocks[126];
	int stages[16];
	for (int b = 0; b < 126; b++)
		blocks[b] = 1;
	struct pipeline_weights weights = {blocks, 126, 0.9, 0.9};
	assert_true(pipeline_split_balanced(&weights, 16, &arena, stages) == 8);
	for (int s = 0; s < 16; s++)
		assert_int_equal(stages[s], s == 0 || s == 15 ? 7 : 8);
	arena_finish(&arena);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_listed),
		cmocka_unit_test(test_balanced),
		cmocka_unit_test(test_llama_405b),
	};
	folder = argc > 1 ? argv[1] : "tests/schedule/golden";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
