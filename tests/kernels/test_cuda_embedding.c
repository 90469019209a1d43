/* The gradient of an embedding on the machine of cuda_on_cpu, beyond the cases of cases_rows.c:
 * what the sort, the pieces of its places, and a small workspace can do wrong. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cuda/backend.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/cuda_on_cpu/api.h"
#include "tests/kernels/problem.h"

static struct kernel_context context;

static void run(struct problem *problem, const struct kernel_case *kernel_case, const int64_t *dim)
{
	problem_init(problem, kernel_case, dim, kernels_cuda(), &context, 0);
	memset(context.workspace, 0xff, (size_t)context.workspace_bytes);
	kernel_case->call(problem);
}

static const struct kernel_case *case_named(const struct kernel_case *list, const char *name)
{
	while (strcmp(list->name, name) != 0)
		list++;
	return list;
}

static const char *const embedding_gradients[] = {
	"embedding_backward", "embedding_backward bf16", "embedding_backward bf16 to fp32"};

/* A workspace for the sort of these tokens and 64 columns of one table's parts, or of both. */
static int64_t tight_workspace(const int64_t *shape, int sides)
{
	int64_t tokens = shape[0], pieces = (tokens + 31) / 32, rows = (shape[3] + 15) / 16 * 16;

	return 8 * tokens + (tokens + 2047) / 2048 * 2048 + (shape[4] & 2 ? 0 : rows) +
	       sides * (8 * pieces * (1 + 64) + 16);
}

static int64_t launches_since(int64_t before)
{
	return cuda_calls.launches - before;
}

/* Some columns at once, or one table after the other, changes no bit. */
static void test_columns_in_passes(void **state)
{
	static const int64_t shapes[][MOST_DIMS] = {
		{3000, 75, 50, 300, 1, 2}, {2500, 80, 7, 90, 3, 0}, {96, 72, 64, 3, 3, 0}};
	struct problem whole, parts;

	(void)state;
	for (int i = 0; i < 3 * 3; i++) {
		const struct kernel_case *kernel_case =
			case_named(row_cases, embedding_gradients[i % 3]);
		const int64_t *shape = shapes[i / 3];
		int64_t before = cuda_calls.launches, launches;

		run(&whole, kernel_case, shape);
		launches = launches_since(before);
		for (int sides = 2; sides > 0; sides--) {
			before = cuda_calls.launches;
			context.workspace_bytes = tight_workspace(shape, sides);
			run(&parts, kernel_case, shape);
			context.workspace_bytes = KERNELS_WORKSPACE_BYTES;
			assert_true(launches_since(before) > launches);
			launches = launches_since(before);
			assert_true(problem_same_bits(&whole, &parts));
			problem_finish(&parts);
		}
		problem_finish(&whole);
	}
}

/* What a call is to cost on a GPU: a count, a pass per digit, the sums, what joins their parts; and
 * zeros for positions past the last sequence's. */
static void test_launches(void **state)
{
	static const struct {
		int64_t shape[MOST_DIMS];
		int64_t launches;
	} cases[] = {{{3000, 16, 50, 300, 1}, 5}, {{3000, 16, 50, 512, 1}, 6},
		{{3000, 16, 50, 511, 3}, 4}, {{3000, 16, 50, 300000, 0}, 6},
		/* Positions alone, which pieces of 32 cut and do not cut. */
		{{3000, 16, 50, 5, 9}, 3}, {{256, 16, 8, 5, 9}, 2}, {{256, 16, 8, 5, 11}, 1}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int64_t before = cuda_calls.launches;
		struct problem problem;

		run(&problem, case_named(row_cases, embedding_gradients[i % 3]), cases[i].shape);
		assert_int_equal(launches_since(before), cases[i].launches);
		problem_finish(&problem);
	}
}

/* Rows without a token become zeros, also where the workspace has no space for their marks. */
static void test_rows_without_tokens(void **state)
{
	enum { TOKENS = 40, ROWS = 5000, WIDTH = 3 };
	static const int64_t workspaces[] = {16 << 10, KERNELS_WORKSPACE_BYTES};
	static float table[ROWS * WIDTH], wanted[ROWS * WIDTH];
	float dout[TOKENS * WIDTH];
	int32_t ids[TOKENS];

	(void)state;
	for (int i = 0; i < TOKENS * WIDTH; i++) {
		ids[i / WIDTH] = i / WIDTH * i / WIDTH * 3;
		dout[i] = (float)(i + 1);
	}
	for (int i = 0; i < TOKENS * WIDTH; i++)
		wanted[ids[i / WIDTH] * WIDTH + i % WIDTH] += dout[i];
	for (int i = 0; i < 2; i++) {
		memset(table, 0xff, sizeof(table));
		context.workspace_bytes = workspaces[i];
		cuda_embedding_backward(&context, &(struct embedding_backward){.tokens = TOKENS,
							  .width = WIDTH,
							  .length = TOKENS,
							  .vocabulary = ROWS,
							  .ids = ids,
							  .dout = dout,
							  .dtable = table});
		context.workspace_bytes = KERNELS_WORKSPACE_BYTES;
		assert_memory_equal(table, wanted, sizeof(table));
	}
	memset(table, 0xff, sizeof(table));
	memset(wanted, 0, sizeof(wanted));
	cuda_embedding_backward(&context, &(struct embedding_backward){.width = WIDTH,
						  .length = 1,
						  .vocabulary = ROWS,
						  .ids = ids,
						  .dout = dout,
						  .dtable = table});
	assert_memory_equal(table, wanted, sizeof(table));
}

/* More tokens than the workspace can sort: every pass adds to the rows. */
static void test_tokens_in_passes(void **state)
{
	static const int64_t shape[MOST_DIMS] = {5000, 12, 5000, 40, 0, 9};
	const struct kernel_case *kernel_case = case_named(row_cases, embedding_gradients[2]);
	struct problem whole, parts;
	char where[WHERE];

	(void)state;
	run(&whole, kernel_case, shape);
	context.workspace_bytes = 32 << 10;
	run(&parts, kernel_case, shape);
	context.workspace_bytes = KERNELS_WORKSPACE_BYTES;
	assert_true(problem_distance(&parts, &whole, where) <= 1.0);
	assert_false(problem_same_bits(&parts, &whole));
	problem_finish(&whole);
	problem_finish(&parts);
}

/* More positions than the workspace takes is an error, not a wrong sum. */
static void test_no_room_for_positions(void **state)
{
	static const int64_t shape[MOST_DIMS] = {4096, 8, 64, 3, 1, 0};
	struct problem problem;

	(void)state;
	context.workspace_bytes = 4096;
	run(&problem, case_named(row_cases, embedding_gradients[0]), shape);
	context.workspace_bytes = KERNELS_WORKSPACE_BYTES;
	assert_non_null(strstr(context.error.message, "too many for the workspace"));
	memset(&context.error, 0, sizeof(context.error));
	problem_finish(&problem);
}

enum { UNKNOWN_TOKENS = 500, UNKNOWN_ROWS = 40, UNKNOWN_WIDTH = 5 };

/* One id in `one_in` is outside of the table, and its gradient is not a number. */
static void ignore_ids(int one_in, bool accumulate)
{
	static float dout[UNKNOWN_TOKENS * UNKNOWN_WIDTH];
	float table[UNKNOWN_ROWS * UNKNOWN_WIDTH], wanted[UNKNOWN_ROWS * UNKNOWN_WIDTH];
	int32_t ids[UNKNOWN_TOKENS];
	struct embedding_backward e = {.tokens = UNKNOWN_TOKENS,
		.width = UNKNOWN_WIDTH,
		.length = UNKNOWN_TOKENS,
		.vocabulary = UNKNOWN_ROWS,
		.ids = ids,
		.dout = dout,
		.dtable = table,
		.accumulate_table = accumulate};

	for (int i = 0; i < UNKNOWN_ROWS * UNKNOWN_WIDTH; i++)
		table[i] = wanted[i] = accumulate ? (float)i : NAN;
	for (int i = 0; i < UNKNOWN_ROWS * UNKNOWN_WIDTH && !accumulate; i++)
		wanted[i] = 0.0f;
	for (int i = 0; i < UNKNOWN_TOKENS; i++) {
		bool known = i % one_in != 0;

		ids[i] = known        ? i * 7 % UNKNOWN_ROWS / 2 * 2
			 : i % 3 == 0 ? -1 - i
			 : i % 3 == 1 ? UNKNOWN_ROWS
				      : INT32_MAX - i;
		for (int j = 0; j < UNKNOWN_WIDTH; j++) {
			dout[i * UNKNOWN_WIDTH + j] = known ? (float)(i + j) : NAN;
			if (known)
				wanted[ids[i] * UNKNOWN_WIDTH + j] += (float)(i + j);
		}
	}
	cuda_embedding_backward(&context, &e);
	assert_memory_equal(table, wanted, sizeof(table));
}

static void test_ids_outside_of_the_table(void **state)
{
	(void)state;
	ignore_ids(1, false);
	ignore_ids(1, true);
	ignore_ids(2, false);
	ignore_ids(3, true);
	ignore_ids(100, false);
}

/* A row whose tokens end exactly where a piece ends, begin there, or miss it by one. */
static void test_ends_of_pieces(void **state)
{
	enum { PIECE = 32, TOKENS = 8 * PIECE };
	static const int first[] = {PIECE - 1, PIECE, PIECE + 1};
	static const int count[] = {
		1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE - 1, 3 * PIECE, 3 * PIECE + 1, 6 * PIECE};
	float dout[TOKENS], table[4], wanted[4];
	int32_t ids[TOKENS];

	(void)state;
	for (int k = 0; k < 3 * 8; k++) {
		memset(wanted, 0, sizeof(wanted));
		for (int i = 0; i < TOKENS; i++) {
			int sorted = i * 37 % TOKENS;
			int end = first[k % 3] + count[k / 3];

			ids[i] = sorted < first[k % 3] ? 0 : sorted < end ? 1 : 3;
			dout[i] = (float)(i + 1);
			wanted[ids[i]] += dout[i];
		}
		cuda_embedding_backward(&context, &(struct embedding_backward){.tokens = TOKENS,
							  .width = 1,
							  .length = TOKENS,
							  .vocabulary = 4,
							  .ids = ids,
							  .dout = dout,
							  .dtable = table});
		assert_memory_equal(table, wanted, sizeof(table));
	}
}

/* Every row is one piece here, so its bits are those of a sum in token order: the sort is stable
 * over lanes, warps, tiles and both digits. */
static void test_token_order(void **state)
{
	enum { PIECE = 32, ROWS = 150, TOKENS = PIECE * ROWS, VOCABULARY = 7 * ROWS };
	static float dout[TOKENS], table[VOCABULARY], wanted[VOCABULARY];
	static int32_t ids[TOKENS];

	(void)state;
	for (int i = 0; i < TOKENS; i++) {
		ids[i] = i * 37 % ROWS * 7;
		dout[i] = 1.0f / (float)(i + 1);
		wanted[ids[i]] += dout[i];
	}
	cuda_embedding_backward(&context, &(struct embedding_backward){.tokens = TOKENS,
						  .width = 1,
						  .length = TOKENS,
						  .vocabulary = VOCABULARY,
						  .ids = ids,
						  .dout = dout,
						  .dtable = table});
	assert_memory_equal(table, wanted, sizeof(table));
}

/* So many tokens that a block of the sort has several tiles. */
static void test_several_tiles_a_block(void **state)
{
	enum { TOKENS = 300000, ROWS = 700 };
	static float dout[TOKENS], table[ROWS], wanted[ROWS];
	static int32_t ids[TOKENS];
	uint32_t random = 1;

	(void)state;
	for (int i = 0; i < TOKENS; i++) {
		random = random * 1664525u + 1013904223u;
		ids[i] = (int32_t)(random >> 8) % (random >> 31 ? ROWS : 3);
		dout[i] = (float)(i % 16);
		wanted[ids[i]] += dout[i];
	}
	cuda_embedding_backward(&context, &(struct embedding_backward){.tokens = TOKENS,
						  .width = 1,
						  .length = TOKENS,
						  .vocabulary = ROWS,
						  .ids = ids,
						  .dout = dout,
						  .dtable = table});
	assert_memory_equal(table, wanted, sizeof(table));
}

static int setup(void **state)
{
	(void)state;
	cuda_api_use(&cuda_on_cpu);
	context_init(&context, kernels_cuda());
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	context_finish(&context, kernels_cuda());
	assert_int_equal(cuda_calls.allocations, cuda_calls.frees);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_columns_in_passes),
		cmocka_unit_test(test_launches),
		cmocka_unit_test(test_rows_without_tokens),
		cmocka_unit_test(test_tokens_in_passes),
		cmocka_unit_test(test_no_room_for_positions),
		cmocka_unit_test(test_ids_outside_of_the_table),
		cmocka_unit_test(test_ends_of_pieces),
		cmocka_unit_test(test_token_order),
		cmocka_unit_test(test_several_tiles_a_block),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
