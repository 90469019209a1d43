/* What kernels.h allows in place gives the bits of the same call out of place, on every table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/problem.h"

enum { N = 83, ROWS = 5, WIDTH = 37, MOST = ROWS * WIDTH };

static float original[3][MOST], expected[2][MOST], x[3][MOST];
static struct kernel_context context;

static void restore(void)
{
	memcpy(x, original, sizeof(x));
}

static void same(const float *got, const float *want, int64_t n)
{
	assert_memory_equal(got, want, (size_t)n * sizeof(float));
}

static void check_gelu(const struct kernels *k, enum gelu kind)
{
	k->gelu(&context, DTYPE_FP32, kind, expected[0], original[0], N);
	restore();
	k->gelu(&context, DTYPE_FP32, kind, x[0], x[0], N);
	same(x[0], expected[0], N);
	k->gelu_backward(&context, DTYPE_FP32, kind, expected[0], original[0], original[1], N);
	for (int into = 0; into < 2; into++) {
		restore();
		k->gelu_backward(&context, DTYPE_FP32, kind, x[into], x[0], x[1], N);
		same(x[into], expected[0], N);
	}
}

static void swiglu_backward(const struct kernels *k, float from[3][MOST], float *dgate, float *dup)
{
	k->swiglu_backward(&context, &(struct swiglu_backward){.rows = 1,
					     .width = N,
					     .stride = N,
					     .dy = from[0],
					     .gate = from[1],
					     .up = from[2],
					     .dgate = dgate,
					     .dup = dup});
}

static void check_swiglu(const struct kernels *k)
{
	k->swiglu(&context, DTYPE_FP32, expected[0], original[0], original[1], N);
	for (int into = 0; into < 2; into++) {
		restore();
		k->swiglu(&context, DTYPE_FP32, x[into], x[0], x[1], N);
		same(x[into], expected[0], N);
	}
	swiglu_backward(k, original, expected[0], expected[1]);
	for (int pair = 0; pair < 9; pair++) {
		int gate = pair / 3, up = pair % 3;

		if (gate == up)
			continue;
		restore();
		swiglu_backward(k, x, x[gate], x[up]);
		same(x[gate], expected[0], N);
		same(x[up], expected[1], N);
	}
}

static void check_norm(const struct kernels *k, bool centre)
{
	float mean[ROWS], rstd[ROWS];
	struct norm n = {.rows = ROWS,
		.width = WIDTH,
		.epsilon = 1e-5f,
		.x = original[0],
		.weight = original[1],
		.bias = original[2],
		.y = expected[0],
		.mean = mean,
		.rstd = rstd};

	(centre ? k->layernorm : k->rmsnorm)(&context, &n);
	restore();
	n.x = n.y = x[0];
	(centre ? k->layernorm : k->rmsnorm)(&context, &n);
	same(x[0], expected[0], MOST);
}

static void check_norm_backward(const struct kernels *k, bool centre)
{
	float mean[ROWS] = {0.1f, 0.2f}, rstd[ROWS] = {1.5f, 0.5f, 2.0f, 1.0f, 0.7f};
	float dweight[2][WIDTH], dbias[2][WIDTH];
	struct norm_backward n = {.rows = ROWS,
		.width = WIDTH,
		.dy = original[0],
		.x = original[1],
		.weight = original[2],
		.mean = mean,
		.rstd = rstd,
		.dx = expected[0],
		.dweight = dweight[0],
		.dbias = dbias[0]};

	(centre ? k->layernorm_backward : k->rmsnorm_backward)(&context, &n);
	restore();
	n.dy = n.dx = x[0];
	n.dweight = dweight[1];
	n.dbias = dbias[1];
	(centre ? k->layernorm_backward : k->rmsnorm_backward)(&context, &n);
	same(x[0], expected[0], MOST);
	same(dweight[1], dweight[0], WIDTH);
	if (centre)
		same(dbias[1], dbias[0], WIDTH);
}

static void check_table(const struct kernels *k)
{
	context_init(&context, k);
	check_gelu(k, GELU_TANH);
	check_gelu(k, GELU_ERF);
	check_swiglu(k);
	for (int centre = 0; centre < 2; centre++) {
		check_norm(k, centre);
		check_norm_backward(k, centre);
	}
	context_finish(&context, k);
}

static void test_in_place(void **state)
{
	struct problem random = {.random = 11};

	(void)state;
	for (int i = 0; i < 3 * MOST; i++)
		original[i / MOST][i % MOST] = (float)random_between(&random, -2, 2);
	for (const struct kernels *const *table = kernels_all(); *table; table++)
		check_table(*table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_place)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
