/* Gradients of training in bf16 beside those in fp32, tensor by tensor, from the same weights: as
 * near as 8 bits of mantissa allow, but not so near that nothing was rounded. */
#include "tests/executor/support.h"

#include <math.h>
#include <stdlib.h>

#include "executor/compute/random.h"
#include "tests/kernels/reference/reference.h"

/* What one step of one plan hands to the optimizer, by parameter. */
struct gradients {
	struct run run;
	struct solo solo;
	float **of; /* [n_parameters] */
	double loss;
};

static const struct unit_slice *slice_at(const struct gradients *g, int unit, int i)
{
	return &g->run.schedule->programs->units[unit].slices[i];
}

static bool record(void *data, int index, struct error *error)
{
	struct gradients *g = data;
	struct compute *c = &g->solo.compute;
	const struct op *op = &c->program->ops[index];

	if (op->kind == OP_OPTIMIZER) {
		int buffer = op_buffer(c->program, op, BUFFER_GRADIENT_SHARD);
		const float *shard = buffers_address(c->buffers, buffer);

		assert_int_equal(c->program->buffers[buffer].dtype, DTYPE_FP32);
		for (int i = 0; i < g->run.schedule->programs->units[op->unit].n_slices; i++) {
			const struct unit_slice *s = slice_at(g, op->unit, i);
			size_t bytes = (size_t)s->elements * sizeof(float);

			g->of[s->parameter] = memcpy(malloc(bytes), shard + s->offset, bytes);
		}
	}
	return compute_run(c, index, error);
}

/* Fills in the same weights whatever the layout. They are larger than those that training starts
 * with, so that no gradient vanishes. */
static void fill(struct gradients *g)
{
	weights_init(&(struct weights){g->run.schedule, &g->run.schedule->programs[0],
			     &g->solo.buffers, 0},
		1, 2);
	for (int u = 0; u < g->run.schedule->programs->n_units; u++)
		for (int i = 0; i < g->run.schedule->programs->units[u].n_slices; i++) {
			const struct unit_slice *s = slice_at(g, u, i);
			float *weights = solo_shard(&g->solo, u) + s->offset;
			float *noise = malloc((size_t)s->elements * sizeof(float));

			random_normal_fill(17, s->parameter, 0, s->elements, 0.1, noise);
			for (int64_t e = 0; e < s->elements; e++)
				weights[e] += noise[e];
			free(noise);
		}
}

static void compute_gradients(
	struct gradients *g, const char *text, const char *options, const struct kernels *kernels)
{
	const struct training still = {.steps = 1, .epsilon = 1, .beta1 = 0.9, .beta2 = 0.9};

	run_plan(&g->run, text, 1, options);
	solo_open(&g->solo, &g->run, kernels, false, still);
	g->of = calloc((size_t)g->run.file.model->n_parameters, sizeof(*g->of));
	fill(g);
	g->solo.interpreter.backend.run = record;
	g->solo.interpreter.backend.data = g;
	solo_step(&g->solo, 0);
	g->loss = exact_sum_value(&g->solo.compute.loss);
}

static void finish(struct gradients *g)
{
	for (int i = 0; i < g->run.file.model->n_parameters; i++)
		free(g->of[i]);
	free(g->of);
	solo_close(&g->solo);
	run_finish(&g->run);
}

/* |a - b| / |b|, as vectors; `stride` 4 leaves a quarter of a out. */
static double distance(const float *a, const float *b, int64_t n, int64_t stride)
{
	double difference = 0, size = 0;

	for (int64_t i = 0; i < n; i++) {
		double x = stride > 0 && i % stride == 0 ? 0 : a[i];

		difference += (x - b[i]) * (x - b[i]);
		size += (double)b[i] * b[i];
	}
	return sqrt(difference / size);
}

/* Eight bits round by 2^-9 each time; ten layers of roundings add up to a few per cent. */
static void compare(const char *text, const char *options, const struct kernels *kernels)
{
	struct gradients exact = {0}, rounded = {0};
	char both[256];

	compute_gradients(&exact, text, options, kernels_reference());
	for (int reduce = 0; reduce < 2; reduce++) {
		snprintf(both, sizeof(both), "%s param_dtype=bf16 reduce_dtype=%s", options,
			reduce ? "bf16" : "fp32");
		compute_gradients(&rounded, text, both, kernels);
		assert_true(fabs(rounded.loss - exact.loss) <= 0.01 * fabs(exact.loss));
		for (int i = 0; i < exact.run.file.model->n_parameters; i++) {
			const struct parameter *p = &exact.run.file.model->parameters[i];
			double d = distance(rounded.of[i], exact.of[i], p->elements, 0);

			if (!(d > 1e-5 && d < 0.06))
				fail_msg("%s of %s: gradients differ by %g", p->name, both, d);
			if (p->elements >= 4 &&
				distance(rounded.of[i], exact.of[i], p->elements, 4) < 0.06)
				fail_msg("%s: a lost quarter went unnoticed", p->name);
		}
		finish(&rounded);
		rounded = (struct gradients){0};
	}
	finish(&exact);
}

static void gpt2(void **state)
{
	(void)state;
	compare(TINY_GPT2, "strategy=NO_SHARD micro_batch=2 seq_len=9", kernels_cpu());
}

static void llama(void **state)
{
	(void)state;
	compare(TINY_LLAMA,
		"strategy=FULL_SHARD micro_batch=2 seq_len=9 wrap=size:1500 "
		"activation_checkpointing=full",
		kernels_cpu());
}

static void qwen(void **state)
{
	(void)state;
	compare(TINY_QWEN, "strategy=SHARD_GRAD_OP micro_batch=2 grad_accum=2 seq_len=9",
		kernels_reference());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gpt2),
		cmocka_unit_test(llama),
		cmocka_unit_test(qwen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
