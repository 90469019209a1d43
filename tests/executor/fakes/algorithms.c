/* Fake algorithms for products: the first proposal is as fast as the fake clock says, the second is
 * a quarter faster for deep products, the third is refused when it is used. */
#include <string.h>

#include "tests/executor/fakes/cuda_private.h"

enum { FIRST = 10, DEEP = 11, REFUSED = 12, DEPTH = 4096 };

/* The last to choose is whom the clock asks. */
static struct fake_choosers choosers;

void fake_choose(
	struct fake_choosers *all, const struct kernel_context *context, void *choices, int n)
{
	int at = 0;

	fake_lock();
	while (at < FAKE_CONTEXTS - 1 && all->of[at].context != context &&
		all->of[at].context != NULL)
		at++;
	all->of[at] = (struct fake_chooser){n > 0 ? context : NULL, choices, n};
	fake_unlock();
}

int fake_gemm_algorithms(struct kernel_context *context, const struct gemm *g,
	struct gemm_algorithm *algorithms, int most)
{
	(void)context;
	(void)g;
	for (int i = 0; i < 3 && i < most; i++)
		algorithms[i] =
			(struct gemm_algorithm){.id = FIRST + i, .tile = 20 + i, .cluster = 7};
	return most < 3 ? most : 3;
}

void fake_choose_gemms(struct kernel_context *context, struct gemm_choice *choices, int n)
{
	fake_choose(&choosers, context, choices, n);
}

int64_t fake_gemm_version(struct kernel_context *context)
{
	(void)context;
	return 130100;
}

static struct gemm_choice *find(const struct fake_chooser *c, const struct gemm *g)
{
	for (int i = 0; i < c->n; i++) {
		struct gemm_choice *choice = (struct gemm_choice *)c->choices + i;

		if (choice->dtype == g->dtype && choice->c_dtype == g->c_dtype &&
			choice->m == g->m && choice->n == g->n && choice->k == g->k &&
			choice->transpose_a == g->transpose_a &&
			choice->transpose_b == g->transpose_b)
			return choice;
	}
	return NULL;
}

bool fake_take_choice(struct kernel_context *context, const struct gemm *g)
{
	bool refused = false;

	fake_lock();
	for (int i = 0; i < FAKE_CONTEXTS; i++) {
		struct gemm_choice *choice =
			choosers.of[i].context == context ? find(&choosers.of[i], g) : NULL;

		if (choice == NULL)
			continue;
		choice->taken = true;
		refused = choice->algorithm.id == REFUSED;
	}
	fake_unlock();
	return !refused || error_set(&context->error, EXIT_CODE_FAULT,
				   "cuda: cublasLtMatmul gave cublasStatus 15");
}

/* Must be called with the lock, while the products of one context run. */
double fake_gemm_speed(const struct gemm *g)
{
	for (int i = 0; i < FAKE_CONTEXTS; i++) {
		const struct gemm_choice *choice =
			choosers.of[i].context != NULL ? find(&choosers.of[i], g) : NULL;

		if (choice != NULL && choice->algorithm.id == DEEP)
			return g->k >= DEPTH ? 1.25 : 1.01;
	}
	return 1;
}
