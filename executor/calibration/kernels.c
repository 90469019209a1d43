/* Measures one core's attention, loss and gradient norm, and the interpreter. */
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "executor/calibration/bench.h"
#include "executor/calibration/kernel_case.h"
#include "executor/compute/compute.h"
#include "executor/interpreter/interpreter.h"
#include "executor/ranks/ranks.h"
#include "kernels/kernels.h"
#include "schedule/resolve/resolve.h"

enum { ATTENTION_TOKENS = 512, ATTENTION_HEADS = 4, HEAD_DIM = 64 };
enum { LOSS_TOKENS = 64, LOSS_VOCABULARY = 32768, NORM_FLOATS = 4 << 20 };
enum { ACTIVATIONS = 256 * 1536 };

static void calibrate_attention(struct bench *bench)
{
	int64_t width = ATTENTION_HEADS * HEAD_DIM, n = ATTENTION_TOKENS * width;
	float *floats = bench_floats(8 * n + ATTENTION_TOKENS * ATTENTION_HEADS);
	struct kernel_case c = {.bench = bench,
		.of.attention = attention_case(DTYPE_FP32, 1, ATTENTION_TOKENS, ATTENTION_HEADS,
			HEAD_DIM, (char *)floats, n * (int64_t)sizeof(float))};
	/* Only the causal half of 4 T s a d is executed. Backward multiplies 2.5 times as much. */
	double flops = 2.0 * ATTENTION_TOKENS * ATTENTION_TOKENS * (double)width;

	bench->calibration->attention_forward_flops = flops / bench_time(bench, run_attention, &c);
	bench->calibration->attention_backward_flops =
		2.5 * flops / bench_time(bench, run_attention_backward, &c);
	free(floats);
	bench_say(bench, "attention: %.1f GFLOP/s forward, %.1f backward",
		bench->calibration->attention_forward_flops / 1e9,
		bench->calibration->attention_backward_flops / 1e9);
}

/* --- activations, the loss and the gradient norm --- */

/* Runs the activation forward and backward. */
static void run_activation(void *data)
{
	struct kernel_case there = *(const struct kernel_case *)data, back = there;

	back.arrays[1] = there.arrays[2];
	back.arrays[2] = there.arrays[1];
	run_gelu(&there);
	run_gelu_backward(&back);
}

static void calibrate_activation(struct bench *bench)
{
	float *floats[3];
	struct calibration *c = bench->calibration;

	for (int i = 0; i < 3; i++)
		floats[i] = bench_floats(ACTIVATIONS);
	struct kernel_case fp32 = {.bench = bench,
		.dtype = DTYPE_FP32,
		.arrays = {floats[0], floats[1], floats[2]},
		.n = ACTIVATIONS};
	c->activation_rate = 2 * ACTIVATIONS / bench_time(bench, run_activation, &fp32);
	for (int i = 1; i < 3; i++)
		for (int j = 0; j < ACTIVATIONS; j++)
			((uint16_t *)floats[i])[j] = bf16_from_float((float)(j % 17 - 8) / 16);
	struct kernel_case bf16 = fp32;
	bf16.dtype = DTYPE_BF16;
	c->bf16_activation_rate = 2 * ACTIVATIONS / bench_time(bench, run_activation, &bf16);
	for (int i = 0; i < 3; i++)
		free(floats[i]);
	bench_say(bench, "GELU: %.0f million elements a second, %.0f in bf16",
		c->activation_rate / 1e6, c->bf16_activation_rate / 1e6);
}

/* Returns logits per second. Gradients replace logits, which are probabilities from then on and
 * take as long. */
static double loss_rate(struct bench *bench, enum dtype dtype, void *logits)
{
	static const int32_t targets[LOSS_TOKENS];
	float losses[LOSS_TOKENS];
	struct kernel_case c = {.bench = bench,
		.of.loss = {.tokens = LOSS_TOKENS,
			.vocabulary = LOSS_VOCABULARY,
			.stride = LOSS_VOCABULARY,
			.logits = logits,
			.targets = targets,
			.losses = losses,
			.scale = 1.0f / LOSS_TOKENS,
			.dtype = dtype}};

	return LOSS_TOKENS * (double)LOSS_VOCABULARY / bench_time(bench, run_cross_entropy, &c);
}

static void calibrate_loss(struct bench *bench)
{
	struct calibration *c = bench->calibration;
	int64_t n = (int64_t)LOSS_TOKENS * LOSS_VOCABULARY;
	float *logits = bench_floats(n);

	c->loss_rate = loss_rate(bench, DTYPE_FP32, logits);
	uint16_t *halves = (uint16_t *)logits;
	for (int64_t i = 0; i < n; i++)
		halves[i] = bf16_from_float((float)(i % 17 - 8) / 16);
	c->bf16_loss_rate = loss_rate(bench, DTYPE_BF16, halves);
	free(logits);
	bench_say(bench, "loss: %.0f million logits a second, %.0f in bf16", c->loss_rate / 1e6,
		c->bf16_loss_rate / 1e6);
}

static void run_norm(void *data)
{
	const struct kernel_case *c = data;

	run_sum_squares(data);
	exact_sum_normalise(c->sum);
}

static void calibrate_norm(struct bench *bench)
{
	float *gradients = bench_floats(NORM_FLOATS);
	struct exact_sum sum = {{0}};
	struct kernel_case c = {
		.bench = bench, .arrays = {gradients}, .sum = &sum, .n = NORM_FLOATS};

	bench->calibration->gradient_norm_rate = NORM_FLOATS / bench_time(bench, run_norm, &c);
	free(gradients);
	bench_say(bench, "gradient norm: %.0f million elements a second",
		bench->calibration->gradient_norm_rate / 1e6);
}

/* --- the interpreter --- */

static bool run_nothing(void *data, int op, struct error *error)
{
	(void)data;
	(void)op;
	(void)error;
	return true;
}

struct interpreter_case {
	struct interpreter interpreter;
	struct error error;
};

static void run_interpreter(void *data)
{
	struct interpreter_case *c = data;

	interpret_step(&c->interpreter, 0, false, &c->error);
}

static bool build_small_schedule(
	struct bench *bench, struct schedule **schedule, struct error *error)
{
	struct topology *topology;
	struct model *model;
	struct question question = {
		.asked = {.micro_batch = 1, .strategy = STRATEGY_NO_SHARD},
		.given = KNOB_BIT(KNOB_MICRO_BATCH) | KNOB_BIT(KNOB_STRATEGY),
	};
	struct plan *plan = ARENA_NEW(bench->arena, struct plan);

	if (!detect_local(1, bench->arena, &topology, error) ||
		!model_load_preset(bench->arena, "gpt2-124m", &model, error))
		return false;
	question.model = model;
	question.topology = topology;
	return plan_resolve(&question, bench->arena, plan, error) &&
	       schedule_build(bench->arena, plan, model, topology, schedule, error);
}

/* Runs a schedule without arithmetic, which shows what the walk itself costs per operation. */
static bool calibrate_interpreter(struct bench *bench, struct error *error)
{
	struct interpreter_case c = {0};
	struct buffers buffers;
	struct comm comm;
	struct schedule *schedule;

	if (!build_small_schedule(bench, &schedule, error))
		return false;
	comm_open_null(&comm, 0, 1);
	/* These are addresses only, because nothing here touches the memory. */
	int64_t capacity = buffers_capacity(schedule, 0);
	char *range = mmap(NULL, (size_t)capacity, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (range == MAP_FAILED)
		return error_set(error, EXIT_CODE_ENVIRONMENT, "no room for %lld addresses",
			(long long)capacity);
	if (!buffers_init(&buffers, &schedule->programs[0], range, capacity, error)) {
		munmap(range, (size_t)capacity);
		return false;
	}
	c.interpreter = (struct interpreter){.schedule = schedule,
		.program = &schedule->programs[0],
		.buffers = &buffers,
		.comm = &comm,
		.backend = {.name = "none", .run = run_nothing}};
	bool ok = interpreter_open(&c.interpreter, error);
	if (ok)
		bench->calibration->host_overhead =
			bench_time(bench, run_interpreter, &c) / schedule->programs[0].n_ops;
	interpreter_close(&c.interpreter);
	buffers_finish(&buffers);
	munmap(range, (size_t)capacity);
	bench_say(bench, "interpreter: %.0f ns an operation",
		bench->calibration->host_overhead * 1e9);
	return ok && (c.error.message[0] == '\0' ||
			     error_set(error, c.error.code, "%s", c.error.message));
}

bool calibrate_kernels(struct bench *bench, struct error *error)
{
	calibrate_memory(bench);
	calibrate_products(bench);
	calibrate_shapes(bench);
	calibrate_attention(bench);
	calibrate_activation(bench);
	calibrate_loss(bench);
	calibrate_norm(bench);
	return calibrate_interpreter(bench, error);
}
