/* Gradients of whole models against finite differences of the loss, tensor by tensor, through the
 * interpreter, so that schedule and executor are tested together. */
#include "tests/executor/support.h"

#include <math.h>
#include <stdlib.h>

#include "executor/compute/random.h"
#include "tests/kernels/reference/reference.h"

/* What a difference of one parameter is measured with, of a model on one rank. */
struct probe {
	struct solo *solo;
	float *weights;         /* in the parameter shard */
	const double *gradient; /* as the optimizer read it */
	int64_t n;
	const char *name;
};

struct recording {
	struct compute *compute;
	float *gradients; /* of all units, one after the other */
	const int64_t *starts;
};

/* The backend of the test: keeps what the optimizer is about to use. */
static bool record(void *data, int index, struct error *error)
{
	struct recording *r = data;
	const struct compute *c = r->compute;
	const struct op *op = &c->program->ops[index];

	if (op->kind == OP_OPTIMIZER) {
		int buffer = op_buffer(c->program, op, BUFFER_GRADIENT_SHARD);

		memcpy(r->gradients + r->starts[op->unit], buffers_address(c->buffers, buffer),
			(size_t)buffers_bytes(c->buffers, buffer));
	}
	return compute_run(r->compute, index, error);
}

static double loss(struct solo *solo)
{
	const struct plan *plan = &solo->run->schedule->plan;

	solo_step(solo, 0);
	return exact_sum_value(&solo->compute.loss) / (double)(plan->global_batch * plan->seq_len);
}

/* The loss's central difference along a direction, per unit of its length. */
static double slope(const struct probe *p, const double *direction, double step)
{
	float *kept = malloc((size_t)p->n * sizeof(float));
	double length = 0, losses[2];

	memcpy(kept, p->weights, (size_t)p->n * sizeof(float));
	for (int64_t i = 0; i < p->n; i++)
		length += direction[i] * direction[i];
	length = sqrt(length);
	for (int side = 0; side < 2; side++) {
		for (int64_t i = 0; i < p->n; i++)
			p->weights[i] =
				(float)(kept[i] + (side ? step : -step) * direction[i] / length);
		losses[side] = loss(p->solo);
	}
	memcpy(p->weights, kept, (size_t)p->n * sizeof(float));
	free(kept);
	return (losses[1] - losses[0]) / (2 * step);
}

static double dot(const double *a, const double *b, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/* Richardson: the error of a central difference falls with the square of the step. */
static double derivative(const struct probe *p, const double *direction)
{
	const double step = 0.02;

	return (4 * slope(p, direction, step / 2) - slope(p, direction, step)) / 3;
}

static bool agrees(double measured, double computed)
{
	/* fp32 losses of about 5.5 carry 1e-7 of noise over a step of 0.02. */
	return fabs(measured - computed) <= 0.01 * fabs(computed) + 5e-5;
}

/* Along the gradient itself, which finds what is wrong in it, and along signs that favour it but
 * reach every element, which finds what is missing. NULL, or the direction that disagrees. */
static const char *judge(const struct probe *p)
{
	double *signs = malloc((size_t)p->n * sizeof(double));
	double norm = sqrt(dot(p->gradient, p->gradient, p->n));
	const char *wrong = NULL;

	for (int64_t i = 0; i < p->n; i++)
		signs[i] = p->gradient[i] != 0
				   ? copysign(1, p->gradient[i])
				   : (random_permute(3, 0, 1000, i % 1000) % 2 ? 1 : -1);
	if (!agrees(derivative(p, p->gradient), norm))
		wrong = "along its gradient";
	else if (!agrees(derivative(p, signs), dot(p->gradient, signs, p->n) / sqrt((double)p->n)))
		wrong = "along all elements";
	free(signs);
	return wrong;
}

/* The control: a gradient that lost a quarter of itself, or is 3 % too large, is noticed. */
static void check_control(struct probe *p, double *gradient)
{
	double *right = malloc((size_t)p->n * sizeof(double));

	memcpy(right, gradient, (size_t)p->n * sizeof(double));
	for (int64_t i = 0; i < p->n; i += 4)
		gradient[i] = 0;
	if (judge(p) == NULL)
		fail_msg("%s: a lost quarter went unnoticed", p->name);
	for (int64_t i = 0; i < p->n; i++)
		gradient[i] = 1.03 * right[i];
	if (judge(p) == NULL)
		fail_msg("%s: 3 %% too much went unnoticed", p->name);
	free(right);
}

/* Initial weights of ordinary training are so small that most gradients vanish; these do not. */
static void enlarge(float *weights, int64_t n, int tensor)
{
	float *noise = malloc((size_t)n * sizeof(float));

	random_normal_fill(17, tensor, 0, n, 0.25, noise);
	for (int64_t i = 0; i < n; i++)
		weights[i] += noise[i];
	free(noise);
}

static void check_unit(struct solo *solo, const struct recording *recording, int index)
{
	const struct unit *unit = &solo->run->schedule->programs->units[index];
	const struct model *model = solo->run->schedule->model;

	for (int i = 0; i < unit->n_slices; i++) {
		const struct unit_slice *slice = &unit->slices[i];
		const float *g = recording->gradients + recording->starts[index] + slice->offset;
		double *gradient = malloc((size_t)slice->elements * sizeof(double));

		for (int64_t e = 0; e < slice->elements; e++)
			gradient[e] = g[e];
		struct probe probe = {solo, solo_shard(solo, index) + slice->offset, gradient,
			slice->elements, model->parameters[slice->parameter].name};
		const char *wrong = judge(&probe);
		if (wrong != NULL)
			fail_msg("%s: differs from the loss %s", probe.name, wrong);
		if (i == 0)
			check_control(&probe, gradient);
		free(gradient);
	}
}

static void check_model(const char *text, const char *options)
{
	/* Nothing moves: the update is switched off. */
	const struct training still = {.steps = 1, .epsilon = 1, .beta1 = 0.9, .beta2 = 0.9};
	struct run run;
	struct solo solo;
	struct recording recording = {0};
	int64_t total = 0, starts[64];

	run_plan(&run, text, 1, options);
	for (int u = 0; u < run.schedule->programs->n_units; u++) {
		starts[u] = total;
		total += run.schedule->programs->units[u].gathered;
	}
	solo_open(&solo, &run, kernels_reference(), false, still);
	recording = (struct recording){&solo.compute, calloc((size_t)total, sizeof(float)), starts};
	weights_init(&(struct weights){run.schedule, &run.schedule->programs[0], &solo.buffers, 0},
		1, 3);
	for (int u = 0; u < run.schedule->programs->n_units; u++)
		for (int i = 0; i < run.schedule->programs->units[u].n_slices; i++) {
			const struct unit_slice *s = &run.schedule->programs->units[u].slices[i];

			enlarge(solo_shard(&solo, u) + s->offset, s->elements, s->parameter);
		}
	solo.interpreter.backend.run = record;
	solo.interpreter.backend.data = &recording;
	solo_step(&solo, 0);
	float *kept = malloc((size_t)total * sizeof(float));
	memcpy(kept, recording.gradients, (size_t)total * sizeof(float));
	free(recording.gradients);
	/* Further steps write their own gradients elsewhere. */
	recording.gradients = malloc((size_t)total * sizeof(float));
	struct recording first = {&solo.compute, kept, starts};
	for (int u = 0; u < run.schedule->programs->n_units; u++)
		check_unit(&solo, &first, u);
	free(kept);
	free(recording.gradients);
	solo_close(&solo);
	run_finish(&run);
}

static void gpt2(void **state)
{
	(void)state;
	check_model(TINY_GPT2, "strategy=NO_SHARD micro_batch=2 seq_len=9");
}

static void llama(void **state)
{
	(void)state;
	check_model(TINY_LLAMA, "strategy=FULL_SHARD micro_batch=2 seq_len=9 wrap=size:1500 "
				"activation_checkpointing=full");
}

static void qwen(void **state)
{
	(void)state;
	check_model(TINY_QWEN, "strategy=SHARD_GRAD_OP micro_batch=1 grad_accum=2 seq_len=6 "
			       "sync_each_micro_batch=off");
}

/* The tokens are so few that none changes its experts on the way to a difference, where the loss
 * would jump. */
static void mixtral(void **state)
{
	(void)state;
	check_model(TINY_MIXTRAL, "strategy=NO_SHARD micro_batch=1 seq_len=6");
	check_model(TINY_MIXTRAL, "strategy=FULL_SHARD micro_batch=1 grad_accum=2 seq_len=6 "
				  "activation_checkpointing=full");
}

/* --- projections of one input in one product --- */

static int products;

static void count_gemm(struct kernel_context *context, const struct gemm *gemm)
{
	products++;
	kernels_reference()->gemm(context, gemm);
}

enum { MOST_GRADIENTS = 1 << 16 };

/* Gradients of a step of one unit, and how many products it took. */
static int64_t gradients_of(
	const char *text, const char *options, bool any_rounding, float *gradients)
{
	const struct training still = {.steps = 1, .epsilon = 1, .beta1 = 0.9, .beta2 = 0.9};
	struct kernels counting = *kernels_reference();
	const int64_t starts[] = {0};
	struct run run;
	struct solo solo;

	counting.gemm = count_gemm;
	run_plan(&run, text, 1, options);
	int64_t n = run.schedule->programs->units[0].gathered;
	assert_int_equal(run.schedule->programs->n_units, 1);
	assert_true(n <= MOST_GRADIENTS);
	solo_open(&solo, &run, &counting, false, still);
	solo.compute.any_rounding = any_rounding;
	struct recording recording = {&solo.compute, gradients, starts};
	weights_init(&(struct weights){run.schedule, &run.schedule->programs[0], &solo.buffers, 0},
		1, 3);
	enlarge(solo_shard(&solo, 0), n, 5);
	solo.interpreter.backend.run = record;
	solo.interpreter.backend.data = &recording;
	products = 0;
	solo_step(&solo, 0);
	solo_close(&solo);
	run_finish(&run);
	return n;
}

/* The model has two blocks. Where nothing stands between the weights, there are two products less
 * each for q, k and v, and one less for gate and up. Matrices of an odd width have padding behind
 * them. */
static void joined_products(void **state)
{
	static const struct {
		const char *model;
		int fewer;
	} cases[] = {{WHOLE_LLAMA, 6}, {TINY_LLAMA, 4}, {TINY_GPT2, 0}, {TINY_QWEN, 0}};
	static float apart[MOST_GRADIENTS], joined[MOST_GRADIENTS];
	static const char options[] = "strategy=NO_SHARD micro_batch=2 seq_len=9 wrap=model";

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		int64_t n = gradients_of(cases[i].model, options, false, apart);
		int before = products;
		double difference = 0, length = 0;

		assert_int_equal(gradients_of(cases[i].model, options, true, joined), n);
		assert_int_equal(before - products, cases[i].fewer);
		for (int64_t e = 0; e < n; e++) {
			difference += pow((double)apart[e] - (double)joined[e], 2);
			length += pow((double)apart[e], 2);
		}
		assert_true(length > 0 && sqrt(difference / length) < 1e-6);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gpt2),
		cmocka_unit_test(llama),
		cmocka_unit_test(qwen),
		cmocka_unit_test(mixtral),
		cmocka_unit_test(joined_products),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
