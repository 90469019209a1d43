/* One core: matrix products, attention, memory, the optimizer, the interpreter. All cores: memory.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "executor/calibrate.h"
#include "executor/compute.h"
#include "executor/event.h"
#include "executor/interpret.h"
#include "executor/machine.h"
#include "kernels/bf16.h"

/* Products are measured around a cube of this side; smaller sides show how the rate falls. */
enum { SIDE = 512, SMALL_SIDES = 3, MAX_CORES = 256 };
static const int64_t small_sides[SMALL_SIDES] = {16, 48, 128};

/* Streams well beyond the caches of one core. */
enum { STREAM_FLOATS = 8 << 20, ATTENTION_TOKENS = 512, ATTENTION_HEADS = 4, HEAD_DIM = 64 };

static float *new_floats(int64_t n)
{
	float *floats = malloc((size_t)n * sizeof(float));

	if (floats == NULL)
		base_out_of_memory((size_t)n * sizeof(float));
	/* Values of ordinary size: zeros and denormals have their own speed. */
	for (int64_t i = 0; i < n; i++)
		floats[i] = (float)(i % 17 - 8) / 16;
	return floats;
}

/* --- matrix products --- */

struct gemm_case {
	struct bench *bench;
	struct gemm gemm;
};

static void run_gemm(void *data)
{
	struct gemm_case *c = data;

	c->bench->kernels->gemm(&c->bench->context, &c->gemm);
}

enum form { FORM_FORWARD, FORM_INPUT_GRADIENT, FORM_WEIGHT_GRADIENT, FORM_COUNT };

/* Of one dtype: operands, and the figures in the making. */
struct products {
	struct bench *bench;
	enum dtype dtype;
	void *a, *b;
	float *c; /* as wide as the widest result */
	double *flops, *half_m, *half_n, *half_k;
};

/* FLOP/s of one shape, over the three ways in which training multiplies. Gradients of weights are
 * fp32. */
static double gemm_rate(const struct products *p, int64_t m, int64_t n, int64_t k)
{
	double seconds = 0;

	for (int form = 0; form < FORM_COUNT; form++) {
		bool a = form == FORM_WEIGHT_GRADIENT, b = form == FORM_FORWARD;
		struct gemm_case c = {p->bench, {.m = m,
							.n = n,
							.k = k,
							.a = p->a,
							.b = p->b,
							.c = p->c,
							.lda = a ? m : k,
							.ldb = b ? k : n,
							.ldc = n,
							.transpose_a = a,
							.transpose_b = b,
							.accumulate = a,
							.dtype = p->dtype,
							.c_dtype = a ? DTYPE_FP32 : p->dtype}};

		seconds += bench_time(p->bench, run_gemm, &c);
	}
	return FORM_COUNT * 2.0 * (double)m * (double)n * (double)k / seconds;
}

/* With f(x) = x / (x + half), rate(x) / rate(SIDE) = r gives half; the middle one of three. */
static double fit_half(const double *rates, double full)
{
	double halves[SMALL_SIDES];

	for (int i = 0; i < SMALL_SIDES; i++) {
		double x = (double)small_sides[i], r = rates[i] / full;
		double denominator = SIDE * r - x;

		halves[i] = denominator > 0 ? fmax(SIDE * x * (1 - r) / denominator, 0) : 0;
	}
	return measure_spread(halves, SMALL_SIDES).p50;
}

static void measure_products(struct products *p)
{
	double rates[3][SMALL_SIDES], full = gemm_rate(p, SIDE, SIDE, SIDE);

	for (int i = 0; i < SMALL_SIDES; i++) {
		rates[0][i] = gemm_rate(p, small_sides[i], SIDE, SIDE);
		rates[1][i] = gemm_rate(p, SIDE, small_sides[i], SIDE);
		rates[2][i] = gemm_rate(p, SIDE, SIDE, small_sides[i]);
	}
	*p->half_m = fit_half(rates[0], full);
	*p->half_n = fit_half(rates[1], full);
	*p->half_k = fit_half(rates[2], full);
	*p->flops =
		full * (1 + *p->half_m / SIDE) * (1 + *p->half_n / SIDE) * (1 + *p->half_k / SIDE);
	bench_say(p->bench,
		"matrix products in %s: %.1f GFLOP/s a core, halved at m %.0f, n %.0f, k %.0f",
		dtype_name(p->dtype), *p->flops / 1e9, *p->half_m, *p->half_n, *p->half_k);
}

static void calibrate_gemm(struct bench *bench)
{
	struct calibration *c = bench->calibration;
	const int64_t n = (int64_t)SIDE * SIDE;
	float *floats[3];
	uint16_t *halves = malloc(2 * (size_t)n * sizeof(*halves));

	if (halves == NULL)
		base_out_of_memory(2 * (size_t)n * sizeof(*halves));
	for (int i = 0; i < 3; i++)
		floats[i] = new_floats(n);
	for (int64_t i = 0; i < 2 * n; i++)
		halves[i] = bf16_from_float(floats[0][i % n]);
	measure_products(&(struct products){bench, DTYPE_FP32, floats[0], floats[1], floats[2],
		&c->gemm_flops, &c->gemm_half_m, &c->gemm_half_n, &c->gemm_half_k});
	measure_products(&(struct products){bench, DTYPE_BF16, halves, halves + n, floats[2],
		&c->bf16_gemm_flops, &c->bf16_gemm_half_m, &c->bf16_gemm_half_n,
		&c->bf16_gemm_half_k});
	for (int i = 0; i < 3; i++)
		free(floats[i]);
	free(halves);
}

/* --- attention --- */

struct attention_case {
	struct bench *bench;
	struct attention_backward attention;
};

static void run_attention(void *data)
{
	struct attention_case *c = data;

	c->bench->kernels->attention(&c->bench->context, &c->attention.forward);
}

static void run_attention_backward(void *data)
{
	struct attention_case *c = data;

	c->bench->kernels->attention_backward(&c->bench->context, &c->attention);
}

static void calibrate_attention(struct bench *bench)
{
	int64_t width = ATTENTION_HEADS * HEAD_DIM, n = ATTENTION_TOKENS * width;
	float *floats = new_floats(8 * n + ATTENTION_TOKENS * ATTENTION_HEADS);
	struct attention_case c = {bench, {.forward = {.sequences = 1,
						   .length = ATTENTION_TOKENS,
						   .heads = ATTENTION_HEADS,
						   .kv_heads = ATTENTION_HEADS,
						   .head_dim = HEAD_DIM,
						   .scale = 0.125f,
						   .q = floats,
						   .k = floats + n,
						   .v = floats + 2 * n,
						   .q_stride = width,
						   .k_stride = width,
						   .v_stride = width,
						   .out = floats + 3 * n,
						   .out_stride = width,
						   .lse = floats + 8 * n},
						  .dout = floats + 4 * n,
						  .dout_stride = width,
						  .dq = floats + 5 * n,
						  .dk = floats + 6 * n,
						  .dv = floats + 7 * n,
						  .dq_stride = width,
						  .dk_stride = width,
						  .dv_stride = width}};
	/* As executed: the causal half of 4 T s a d; backward multiplies 2.5 times as much. */
	double flops = 2.0 * ATTENTION_TOKENS * ATTENTION_TOKENS * (double)width;

	bench->calibration->attention_forward_flops = flops / bench_time(bench, run_attention, &c);
	bench->calibration->attention_backward_flops =
		2.5 * flops / bench_time(bench, run_attention_backward, &c);
	free(floats);
	bench_say(bench, "attention: %.1f GFLOP/s forward, %.1f backward",
		bench->calibration->attention_forward_flops / 1e9,
		bench->calibration->attention_backward_flops / 1e9);
}

/* --- memory --- */

struct stream_case {
	const struct kernels *kernels;
	struct kernel_context context;
	float *y, *a, *b;
	int64_t n;
	int repeats;
	pthread_barrier_t *barrier;
	double start, end;
};

static void run_stream(void *data)
{
	struct stream_case *c = data;

	c->kernels->add(&c->context, DTYPE_FP32, c->y, c->a, c->b, c->n);
}

static void *stream_thread(void *data)
{
	struct stream_case *c = data;

	run_stream(c);
	pthread_barrier_wait(c->barrier);
	c->start = clock_now();
	for (int i = 0; i < c->repeats; i++)
		run_stream(c);
	c->end = clock_now();
	return NULL;
}

static void open_stream(struct stream_case *c, const struct bench *bench, int64_t n)
{
	*c = (struct stream_case){.kernels = bench->kernels, .context = bench->context, .n = n};
	c->y = new_floats(n);
	c->a = new_floats(n);
	c->b = new_floats(n);
}

static void close_stream(struct stream_case *c)
{
	free(c->y);
	free(c->a);
	free(c->b);
}

/* All cores at once; from the first start to the last end. */
static double shared_bandwidth(struct bench *bench, int cores, int repeats)
{
	struct stream_case cases[MAX_CORES];
	pthread_t threads[MAX_CORES];
	pthread_barrier_t barrier;
	double start = INFINITY, end = 0;
	int started = 0;

	pthread_barrier_init(&barrier, NULL, (unsigned)cores);
	for (int i = 0; i < cores; i++) {
		open_stream(&cases[i], bench, STREAM_FLOATS / 2);
		cases[i].repeats = repeats;
		cases[i].barrier = &barrier;
	}
	while (started < cores &&
		pthread_create(&threads[started], NULL, stream_thread, &cases[started]) == 0)
		started++;
	if (started < cores)
		abort(); /* the barrier would never open */
	for (int i = 0; i < cores; i++) {
		pthread_join(threads[i], NULL);
		start = fmin(start, cases[i].start);
		end = fmax(end, cases[i].end);
		close_stream(&cases[i]);
	}
	pthread_barrier_destroy(&barrier);
	return 3.0 * sizeof(float) * (STREAM_FLOATS / 2) * repeats * cores / (end - start);
}

static void calibrate_memory(struct bench *bench)
{
	struct calibration *c = bench->calibration;
	int cores = (int)min_i64(machine_cpus(), MAX_CORES);
	double together[5];
	struct stream_case stream;

	open_stream(&stream, bench, STREAM_FLOATS);
	c->memory_bandwidth =
		3.0 * sizeof(float) * STREAM_FLOATS / bench_time(bench, run_stream, &stream);
	stream.n = 1;
	c->kernel_overhead = bench_time(bench, run_stream, &stream);
	close_stream(&stream);
	for (int i = 0; i < COUNT_OF(together); i++)
		together[i] = shared_bandwidth(bench, cores, bench->options->quick ? 2 : 10);
	struct spread spread = measure_spread(together, COUNT_OF(together));
	bench_note_spread(bench, &spread);
	c->memory_bandwidth_shared = spread.p50;
	bench_say(bench, "memory: %.1f GB/s one core, %.1f GB/s all %d", c->memory_bandwidth / 1e9,
		c->memory_bandwidth_shared / 1e9, cores);
}

/* --- optimizer --- */

struct adamw_case {
	struct bench *bench;
	struct adamw adamw;
};

static void run_adamw(void *data)
{
	struct adamw_case *c = data;

	c->bench->kernels->adamw(&c->bench->context, &c->adamw);
}

static void calibrate_optimizer(struct bench *bench)
{
	int64_t n = STREAM_FLOATS / 2;
	float *floats = new_floats(4 * n);
	struct adamw_case c = {bench, {.n = n,
					      .w = floats,
					      .m = floats + n,
					      .v = floats + 2 * n,
					      .g = floats + 3 * n,
					      .lr = 1e-4,
					      .beta1 = 0.9,
					      .beta2 = 0.95,
					      .epsilon = 1e-8,
					      .weight_decay = 0.1,
					      .bias_correction1 = 0.1,
					      .bias_correction2 = 0.05,
					      .gradient_scale = 1}};

	/* Roots of negative second moments would be NaN. */
	for (int64_t i = 0; i < n; i++)
		floats[2 * n + i] = fabsf(floats[2 * n + i]);
	/* Reads w, m, v, g and writes w, m, v. */
	bench->calibration->optimizer_bandwidth =
		7.0 * sizeof(float) * (double)n / bench_time(bench, run_adamw, &c);
	free(floats);
	bench_say(bench, "AdamW: %.1f GB/s", bench->calibration->optimizer_bandwidth / 1e9);
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
	struct choices choices = {0};
	struct plan *plan = ARENA_NEW(bench->arena, struct plan);

	return executor_detect_local(1, bench->arena, &topology, error) &&
	       model_load_preset(bench->arena, "gpt2-124m", &model, error) &&
	       choices_set(&choices, "micro_batch", "micro-batch", "1", bench->arena, error) &&
	       choices_set(&choices, "strategy", "strategy", "NO_SHARD", bench->arena, error) &&
	       plan_resolve(&choices, model, topology, bench->arena, plan, error) &&
	       schedule_build(bench->arena, plan, model, topology, schedule, error);
}

/* A schedule without arithmetic: what the walk itself costs per operation. */
static bool calibrate_interpreter(struct bench *bench, struct error *error)
{
	struct interpreter_case c = {0};
	struct buffers buffers;
	struct comm comm;
	struct schedule *schedule;

	if (!build_small_schedule(bench, &schedule, error))
		return false;
	comm_open_null(&comm, 0, 1);
	/* Addresses only: nothing here touches the memory. */
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
	calibrate_gemm(bench);
	calibrate_attention(bench);
	calibrate_memory(bench);
	calibrate_optimizer(bench);
	return calibrate_interpreter(bench, error);
}
