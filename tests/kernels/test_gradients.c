/* Every backward against differences of its forward, element by element, on the reference (whose
 * sums are in double) and on the table in use. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/gradients.h"
#include "tests/kernels/problem.h"
#include "tests/kernels/reference/reference.h"

static const double STEP = 0.02;
/* The tolerance is relative to |gradient| + its root mean square. The differences err by STEP^4 and
 * by fp32 rounding / STEP, measured at most 4e-5. */
static const double TOLERANCE = 1e-4;

static void init(struct gradient_problem *p, const struct gradient_case *c,
	const struct kernels *kernels, struct kernel_context *context)
{
	struct problem random = {.random = 7};

	memset(p, 0, sizeof(*p));
	p->kernels = kernels;
	p->context = context;
	p->outputs = c->outputs;
	memcpy(p->inputs, c->inputs, sizeof(p->inputs));
	for (int slot = 0; slot < GRADIENT_INPUTS; slot++) {
		for (int64_t i = 0; i < p->inputs[slot]; i++)
			p->input[slot][i] = (float)random_between(&random, -1.5, 1.5);
	}
	for (int64_t i = 0; i < p->outputs; i++)
		p->doutput[i] = (float)random_between(&random, -1, 1);
}

static double weighted_output(struct gradient_problem *p, const struct gradient_case *c)
{
	double sum = 0.0;

	c->forward(p);
	for (int64_t i = 0; i < p->outputs; i++)
		sum += (double)p->output[i] * p->doutput[i];
	return sum;
}

/* Five-point central difference; the steps are those that fp32 really took. */
static double difference(struct gradient_problem *p, const struct gradient_case *c, float *x)
{
	static const double weights[4] = {1.0 / 12, -8.0 / 12, 8.0 / 12, -1.0 / 12};
	static const int steps[4] = {-2, -1, 1, 2};
	const float middle = *x;
	double sum = 0.0, moved = 0.0;

	for (int i = 0; i < 4; i++) {
		*x = (float)((double)middle + steps[i] * STEP);
		moved += weights[i] * ((double)*x - middle);
		sum += weights[i] * weighted_output(p, c);
	}
	*x = middle;
	return sum / moved;
}

static double root_mean_square(const float *x, int64_t n)
{
	double sum = 0.0;

	for (int64_t i = 0; i < n; i++)
		sum += (double)x[i] * x[i];
	return sqrt(sum / (double)n);
}

/* The worst error of all gradients, in tolerances. */
static double worst_error(struct gradient_problem *p, const struct gradient_case *c)
{
	double worst = 0.0;

	c->forward(p);
	c->backward(p);
	for (int slot = 0; slot < GRADIENT_INPUTS; slot++) {
		double rms = root_mean_square(p->gradient[slot], p->inputs[slot]);

		for (int64_t i = 0; i < p->inputs[slot]; i++) {
			double claimed = p->gradient[slot][i];
			double error = fabs(difference(p, c, &p->input[slot][i]) - claimed) /
				       (TOLERANCE * (fabs(claimed) + rms));
			worst = error <= worst ? worst : error;
		}
	}
	return worst;
}

static double error_of(const struct gradient_case *c, const struct kernels *kernels)
{
	static struct gradient_problem problem;
	struct kernel_context context;
	double error;

	context_init(&context, kernels);
	init(&problem, c, kernels, &context);
	error = worst_error(&problem, c);
	context_finish(&context, kernels);
	return error;
}

static void check_gradients(const struct kernels *kernels)
{
	for (const struct gradient_case *c = gradient_cases; c->name; c++) {
		double error = error_of(c, kernels);

		print_message("%s %s: %.3f of the tolerance\n", kernels->name, c->name, error);
		/* Not 0 either: fp32 differences always err a little. */
		assert_true(error > 0.0 && error < 1.0);
	}
}

static void test_reference(void **state)
{
	(void)state;
	check_gradients(kernels_reference());
}

static void test_cpu(void **state)
{
	(void)state;
	check_gradients(kernels_cpu());
}

static void test_wrong_gradients_are_seen(void **state)
{
	(void)state;
	for (const struct gradient_case *c = wrong_gradient_cases; c->name; c++) {
		double error = error_of(c, kernels_reference());

		print_message("without %s: %.1f tolerances\n", c->name, error);
		assert_true(error > 2.0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reference),
		cmocka_unit_test(test_cpu),
		cmocka_unit_test(test_wrong_gradients_are_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
