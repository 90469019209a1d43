/* Whether attention's forward is faster by cuDNN than by our kernel, and as right. Our own kernel
 * is the measure: what differs from it by more than bf16 rounds, or from itself, is not taken,
 * however fast. What was taken is written down, as algorithms of GEMMs are. */
#include "executor/calibration/gpu/bench.h"

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

enum { ALGORITHMS = 8 };

/* Of the result for one token and one head, as a vector: weights rounded to bf16 and a result
 * rounded to bf16, twice, differ by about 2^-8. Of a log-sum-exp, which stays fp32. */
static const double near_enough = 1.0 / 64, near_sum = 1.0 / 512, near_sum_relative = 1.0 / 65536;

/* NAN is near nothing. */
bool gpu_attention_agrees(const uint16_t *ours, const uint16_t *theirs, int64_t n, int64_t head_dim)
{
	for (int64_t i = 0; i < n; i++) {
		double square = 0, apart = 0;

		for (int64_t j = 0; j < head_dim; j++) {
			double x = bf16_to_float(ours[i * head_dim + j]);
			double y = bf16_to_float(theirs[i * head_dim + j]);

			square += x * x;
			apart += (x - y) * (x - y);
		}
		if (!(apart <= near_enough * near_enough * square))
			return false;
	}
	return true;
}

bool gpu_sums_agree(const float *ours, const float *theirs, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (!(fabs((double)ours[i] - (double)theirs[i]) <=
			    near_sum + near_sum_relative * fabs((double)ours[i])))
			return false;
	return true;
}

/* --- one algorithm ---------------------------------------------------------------------------- */

static struct attention_choice choice_of(
	const struct attention *a, const struct attention_algorithm *algorithm)
{
	return (struct attention_choice){
		.head_dim = a->head_dim, .length = a->length, .algorithm = *algorithm};
}

/* NULL: by our kernel. `what` says what is done with it. An algorithm that the library then
 * refuses, or does not have for this shape, is none: `refused`. */
static bool by_algorithm(struct gpu_bench *g, struct kernel_case *c,
	const struct attention_algorithm *algorithm,
	bool (*what)(struct gpu_bench *, struct kernel_case *, double *, struct error *),
	double *seconds, bool *refused, struct error *error)
{
	const struct device_kernels *device = g->base.kernels->device;
	struct attention_choice choice = {0};
	struct error failure = {0};

	if (algorithm != NULL)
		choice = choice_of(&c->of.attention.forward, algorithm);
	device->choose_attention(&g->base.context, &choice, algorithm != NULL);
	bool ok = what(g, c, seconds, &failure);
	device->choose_attention(&g->base.context, NULL, 0);
	*refused = algorithm != NULL &&
		   (ok ? !choice.taken : g->base.context.error.message[0] != '\0');
	if (ok || *refused) {
		g->base.context.error = (struct error){0};
		return true;
	}
	*error = failure;
	return false;
}

static bool time_it(
	struct gpu_bench *g, struct kernel_case *c, double *seconds, struct error *error)
{
	return gpu_time(g, run_attention, c, seconds, error);
}

static bool run_once(
	struct gpu_bench *g, struct kernel_case *c, double *seconds, struct error *error)
{
	return gpu_sample(g, run_attention, c, 1, seconds, error);
}

/* What is timed, and its algorithms. */
struct subject {
	struct kernel_case timed;
	struct attention_algorithm algorithms[ALGORITHMS];
};

static bool time_algorithm(const struct autotune *autotune, int algorithm, double *seconds,
	bool *refused, struct error *error)
{
	struct subject *s = autotune->subject;

	return by_algorithm(autotune->gpu, &s->timed,
		algorithm == AUTOTUNE_DEFAULT ? NULL : &s->algorithms[algorithm], time_it, seconds,
		refused, error);
}

/* --- is it right? ----------------------------------------------------------------------------- */

/* Ours, and the library's twice. */
enum { OURS, THEIRS, AGAIN, RUNS };
struct outcome {
	void *out;
	float *lse;
};

static bool copy_halves(
	struct gpu_bench *g, const void *one, const void *other, int64_t bytes, struct error *error)
{
	const void *from[] = {one, other};

	for (int i = 0; i < 2; i++)
		if (!cuda_check(g->api,
			    g->api->cuMemcpyAsync(
				    (uint64_t)(uintptr_t)(g->pinned + i * (g->pinned_bytes / 2)),
				    (uint64_t)(uintptr_t)from[i], (size_t)bytes, g->watch.stream),
			    "cuMemcpyAsync", error))
			return false;
	return gpu_stopwatch_end(&g->watch, error) &&
	       cuda_check(g->api, g->api->cuEventSynchronize(g->watch.end), "copies", error);
}

enum compared { SAME_BITS, SAME_RESULT, SAME_SUMS };

static bool compare_piece(
	const struct gpu_bench *g, enum compared how, int64_t bytes, int64_t head_dim)
{
	const char *one = g->pinned, *other = g->pinned + g->pinned_bytes / 2;

	switch (how) {
	case SAME_RESULT:
		return gpu_attention_agrees((const uint16_t *)one, (const uint16_t *)other,
			bytes / 2 / head_dim, head_dim);
	case SAME_SUMS:
		return gpu_sums_agree((const float *)one, (const float *)other, bytes / 4);
	case SAME_BITS:
	default:
		return memcmp(one, other, (size_t)bytes) == 0;
	}
}

/* In pieces of whole vectors. */
static bool compare(struct gpu_bench *g, enum compared how, const void *one, const void *other,
	int64_t bytes, int64_t head_dim, bool *same, struct error *error)
{
	int64_t step = g->pinned_bytes / 2 / (4 * head_dim) * (4 * head_dim);

	for (int64_t at = 0; at < bytes && *same; at += step) {
		int64_t piece = min_i64(step, bytes - at);

		if (!copy_halves(g, (const char *)one + at, (const char *)other + at, piece, error))
			return false;
		*same = compare_piece(g, how, piece, head_dim);
	}
	return true;
}

static bool run_all(struct gpu_bench *g, struct kernel_case *c,
	const struct attention_algorithm *algorithm, const struct outcome *outcomes, bool *refused,
	struct error *error)
{
	double seconds;

	*refused = false;
	for (int i = 0; i < RUNS && !*refused; i++) {
		c->of.attention.forward.out = outcomes[i].out;
		c->of.attention.forward.lse = outcomes[i].lse;
		if (!by_algorithm(
			    g, c, i == OURS ? NULL : algorithm, run_once, &seconds, refused, error))
			return false;
	}
	return true;
}

/* `why`: NULL where it is as right as ours. */
static bool judge(struct gpu_bench *g, struct kernel_case *c,
	const struct attention_algorithm *algorithm, const struct outcome *o, const char **why,
	struct error *error)
{
	const struct attention *a = &c->of.attention.forward;
	int64_t heads = a->sequences * a->length * a->heads, d = a->head_dim;
	bool refused, result = true, sums = true, bits = true;

	if (!run_all(g, c, algorithm, o, &refused, error))
		return false;
	*why = "is refused for packed rows";
	if (refused)
		return true;
	if (!compare(
		    g, SAME_RESULT, o[OURS].out, o[THEIRS].out, heads * d * 2, d, &result, error) ||
		!compare(g, SAME_SUMS, o[OURS].lse, o[THEIRS].lse, heads * 4, d, &sums, error) ||
		!compare(g, SAME_BITS, o[THEIRS].out, o[AGAIN].out, heads * d * 2, d, &bits,
			error) ||
		!compare(g, SAME_BITS, o[THEIRS].lse, o[AGAIN].lse, heads * 4, d, &bits, error))
		return false;
	*why = !result ? "does not give our result"
	       : !sums ? "does not give our log-sum-exp"
	       : !bits ? "does not repeat its bits"
		       : NULL;
	return true;
}

/* As the executor has it: queries, keys and values of a token in one row, four heads to a key. */
static struct attention packed(const struct attention *a)
{
	enum { SEQUENCES = 2, HEADS = 8, KV_HEADS = 2 };
	struct attention p = *a;
	int64_t d = a->head_dim;

	p.sequences = SEQUENCES;
	p.heads = HEADS;
	p.kv_heads = KV_HEADS;
	p.k = (const char *)a->q + HEADS * d * 2;
	p.v = (const char *)a->q + (HEADS + KV_HEADS) * d * 2;
	p.q_stride = p.k_stride = p.v_stride = (HEADS + 2 * KV_HEADS) * d;
	p.out_stride = HEADS * d;
	return p;
}

/* On the shape that was timed, and on the other. Both write where the backward would. */
static bool check(struct gpu_bench *g, const struct attention_backward *timed,
	const struct attention_algorithm *algorithm, const char **why, struct error *error)
{
	const struct attention *a = &timed->forward;
	int64_t sums = a->sequences * a->length * a->heads;
	const struct outcome outcomes[RUNS] = {[OURS] = {a->out, a->lse},
		[THEIRS] = {timed->dq, timed->dv},
		[AGAIN] = {timed->dk, (float *)timed->dv + sums}};
	const struct attention other = packed(a);
	bool fits = other.sequences * other.q_stride <= a->sequences * a->q_stride &&
		    other.sequences * other.heads <= a->sequences * a->heads;
	struct kernel_case c = {.bench = &g->base, .of.attention.forward = *a};

	*why = "was not compared: there is no room";
	if (!fits)
		return true;
	if (!judge(g, &c, algorithm, outcomes, why, error) || *why != NULL)
		return *why != NULL;
	c.of.attention.forward = other;
	return judge(g, &c, algorithm, outcomes, why, error);
}

/* --- the choice ------------------------------------------------------------------------------- */

static void say(const struct gpu_bench *g, const struct attention *a, const char *what)
{
	bench_say(&g->base, "    cuDNN %lld, %lld tokens, heads of %lld: %s",
		(long long)g->base.kernels->device->attention_version(
			(struct kernel_context *)&g->base.context),
		(long long)a->length, (long long)a->head_dim, what);
}

static void keep(struct gpu_bench *g, const struct attention *a,
	const struct attention_algorithm *algorithm, double gain)
{
	struct calibration *c = g->base.calibration;
	const struct calibration_attention choice = {.head_dim = a->head_dim,
		.length = a->length,
		.gain = gain,
		.engine = algorithm->engine,
		.kernel = algorithm->kernel,
		.cluster = algorithm->cluster,
		.stream_k = algorithm->stream_k,
		.tile_m = algorithm->tile_m,
		.tile_n = algorithm->tile_n};

	if (calibration_add_attention(c, &choice))
		c->attention_library = g->base.kernels->device->attention_version(&g->base.context);
}

/* Says what came of it, and keeps what is right and fast. */
static double conclude(struct gpu_bench *g, const struct attention *a,
	const struct attention_algorithm *algorithm, double gain, const char *why)
{
	bool won = autotune_is_faster(gain);
	const char *speed = arena_printf(
		g->base.arena, "engine %d has %.1f %% of our speed", algorithm->engine, 100 * gain);

	if (why != NULL)
		speed = arena_printf(g->base.arena, "%s and %s: not taken", speed, why);
	else if (!won)
		speed = arena_printf(g->base.arena, "%s: not taken", speed);
	say(g, a, speed);
	if (why != NULL || !won)
		return 1;
	keep(g, a, algorithm, gain);
	return gain;
}

bool calibrate_gpu_attention(struct gpu_bench *g, const struct attention_backward *timed,
	double first, double *chosen, struct error *error)
{
	const struct device_kernels *device = g->base.kernels->device;
	const struct attention *a = &timed->forward;
	struct subject subject = {.timed = {.bench = &g->base, .of.attention.forward = *a}};
	const struct autotune autotune = {g, &subject, time_algorithm};
	const char *why = NULL;
	double gain = 0;
	int fastest;

	*chosen = first;
	if (!g->base.options->choose || device->attention_version(&g->base.context) == 0)
		return true;
	int n = device->attention_algorithms(&g->base.context, a, subject.algorithms, ALGORITHMS);
	if (!autotune_fastest(&autotune, n, &fastest, error))
		return false;
	if (fastest < 0) {
		say(g, a, "no way to do it here");
		return true;
	}
	const struct attention_algorithm *algorithm = &subject.algorithms[fastest];
	bool ok = check(g, timed, algorithm, &why, error) &&
		  autotune_gain(&autotune, fastest, &gain, error);
	if (ok)
		*chosen = first / conclude(g, a, algorithm, gain, why);
	/* Results were copied there. */
	gpu_make_values(g);
	return ok;
}
