/* Finds out whether a pass of attention is faster by cuDNN than by our kernel, and as right. Our
 * own kernel is the measure: an algorithm whose result differs from ours by more than bf16 rounds,
 * or differs between two runs, is not taken, however fast it is. What was taken is written down,
 * like algorithms of GEMMs.
 *
 * The backward is run a second time in other parts, as a smaller workspace makes them. Since these
 * change no bit, results are those of any micro-batch and any number of ranks. */
#include "executor/calibration/gpu/bench.h"

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

enum { ALGORITHMS = 8 };

/* Results are compared as vectors for one token and one head: weights rounded to bf16 and a result
 * rounded to bf16, each twice, differ by about 2^-8. A log-sum-exp stays in fp32. */
static const double near_enough = 1.0 / 64, near_sum = 1.0 / 512, near_sum_relative = 1.0 / 65536;

/* NAN is near nothing, so such a result never agrees. */
bool gpu_attention_agrees(
	const uint16_t *ours, const uint16_t *theirs, int64_t n, int64_t head_dim, double common)
{
	for (int64_t i = 0; i < n; i++) {
		double square = common, apart = 0;

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

/* But for rounding a gradient may be nothing: the first token sees itself alone. So its error is
 * held against the size of the others. */
static double square_of_one(const uint16_t *vectors, int64_t n, int64_t head_dim)
{
	double squares = 0;

	for (int64_t i = 0; i < n * head_dim; i++) {
		double x = bf16_to_float(vectors[i]);

		squares += x * x;
	}
	return n > 0 ? squares / (double)n : 0;
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

/* Says what is timed, and by which algorithms. */
struct subject {
	enum attention_pass pass;
	struct kernel_case timed;
	struct attention_algorithm algorithms[ALGORITHMS];
	int64_t bytes[ALGORITHMS]; /* bytes of workspace that each algorithm needs at once */
	char *workspace;           /* the workspace of the backward */
	int64_t workspace_bytes;
};

static void (*const runs[])(void *) = {
	[ATTENTION_FORWARD] = run_attention, [ATTENTION_BACKWARD] = run_attention_backward};

static struct calibration_attention entry_of(const struct subject *s, int algorithm)
{
	const struct attention *a = &s->timed.of.attention.forward;
	const struct attention_algorithm *w = &s->algorithms[algorithm];
	int64_t heads = a->sequences * a->heads;

	return (struct calibration_attention){.head_dim = a->head_dim,
		.length = a->length,
		.pass = s->pass == ATTENTION_BACKWARD ? ATTENTION_IS_BACKWARD
						      : ATTENTION_IS_FORWARD,
		.engine = w->engine,
		.kernel = w->kernel,
		.cluster = w->cluster,
		.stream_k = w->stream_k,
		.tile_m = w->tile_m,
		.tile_n = w->tile_n,
		.stages = w->stages,
		/* Some bytes are always there. */
		.workspace_bytes = s->pass == ATTENTION_BACKWARD
					   ? round_up(s->bytes[algorithm] / heads + 1, 1024)
					   : 0};
}

static struct attention_choice choice_of(const struct subject *s, int algorithm)
{
	const struct calibration_attention entry = entry_of(s, algorithm);

	return (struct attention_choice){.head_dim = entry.head_dim,
		.length = entry.length,
		.pass = s->pass,
		.algorithm = s->algorithms[algorithm],
		.head_bytes = calibration_attention_bytes(&entry, false),
		.shared_bytes = calibration_attention_bytes(&entry, true)};
}

typedef bool (*measurement)(
	struct gpu_bench *, void (*run)(void *), void *data, double *seconds, struct error *);

static bool run_once(
	struct gpu_bench *g, void (*run)(void *), void *data, double *seconds, struct error *error)
{
	return gpu_sample(g, run, data, 1, seconds, error);
}

/* Runs the pass by one algorithm; AUTOTUNE_DEFAULT is our kernel. `what` says what is done with it.
 * If the library then refuses the algorithm, or does not have it for this shape, `refused` says so.
 */
static bool by_algorithm(struct gpu_bench *g, const struct subject *s, struct kernel_case *c,
	int algorithm, measurement what, double *seconds, bool *refused, struct error *error)
{
	const struct device_kernels *device = g->base.kernels->device;
	struct kernel_context *context = &g->base.context;
	struct attention_choice choice = {0};
	struct error failure = {0};
	bool chosen = algorithm != AUTOTUNE_DEFAULT;

	if (chosen)
		choice = choice_of(s, algorithm);
	if (chosen && s->workspace != NULL) {
		context->workspace = s->workspace;
		context->workspace_bytes = s->workspace_bytes;
	}
	device->choose_attention(context, &choice, chosen);
	bool ok = what(g, runs[s->pass], c, seconds, &failure);
	device->choose_attention(context, NULL, 0);
	context->workspace = g->workspace;
	context->workspace_bytes = KERNELS_WORKSPACE_BYTES;
	*refused = chosen && (ok ? !choice.taken : context->error.message[0] != '\0');
	if (ok || *refused) {
		context->error = (struct error){0};
		return true;
	}
	*error = failure;
	return false;
}

static bool time_algorithm(const struct autotune *autotune, int algorithm, double *seconds,
	bool *refused, struct error *error)
{
	struct subject *s = autotune->subject;

	return by_algorithm(
		autotune->gpu, s, &s->timed, algorithm, gpu_time, seconds, refused, error);
}

/* --- is it right? ----------------------------------------------------------------------------- */

/* Our kernel runs once, and that of the library twice. */
enum { OURS, THEIRS, AGAIN, RUNS };

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

enum compared { SAME_BITS, SAME_RESULT, SAME_GRADIENT, SAME_SUMS };

static bool compare_piece(
	const struct gpu_bench *g, enum compared how, int64_t bytes, int64_t head_dim)
{
	const char *one = g->pinned, *other = g->pinned + g->pinned_bytes / 2;
	const uint16_t *ours = (const uint16_t *)one;
	int64_t n = bytes / 2 / head_dim;

	switch (how) {
	case SAME_RESULT:
	case SAME_GRADIENT:
		return gpu_attention_agrees(ours, (const uint16_t *)other, n, head_dim,
			how == SAME_GRADIENT ? square_of_one(ours, n, head_dim) : 0);
	case SAME_SUMS:
		return gpu_sums_agree((const float *)one, (const float *)other, bytes / 4);
	case SAME_BITS:
	default:
		return memcmp(one, other, (size_t)bytes) == 0;
	}
}

/* Compares pieces of whole vectors. */
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

/* Says what a pass writes: where each run leaves it, and how ours is compared with theirs. */
enum { OUTPUTS = 3 };
struct outputs {
	int n;
	struct output {
		enum compared how;
		int64_t bytes;
		const char *why; /* what is said when it differs */
		void *at[RUNS];
	} of[OUTPUTS];
};

static void add_output(struct outputs *outputs, enum compared how, int64_t bytes, const char *why,
	void *ours, void *theirs, void *again)
{
	outputs->of[outputs->n++] = (struct output){how, bytes, why, {ours, theirs, again}};
}

/* Returns half of the workspace that the backward of everything needs, but at least room for one
 * key's heads. */
static int64_t workspace_again(const struct subject *s, const struct attention *a, int algorithm)
{
	const struct attention_choice choice = choice_of(s, algorithm);
	int64_t bytes = a->heads > a->kv_heads ? choice.shared_bytes : choice.head_bytes;
	int64_t all = min_i64(s->workspace_bytes, a->sequences * a->heads * bytes);

	return max_i64(all / 2, a->heads / a->kv_heads * bytes);
}

static bool run_all(struct gpu_bench *g, struct subject *s, const struct kernel_case cases[RUNS],
	int algorithm, bool *refused, struct error *error)
{
	const struct attention *a = &cases[OURS].of.attention.forward;
	int64_t whole = s->workspace_bytes;
	struct kernel_case forward = cases[OURS];
	double seconds;

	*refused = false;
	if (s->pass == ATTENTION_BACKWARD && !run_once(g, run_attention, &forward, &seconds, error))
		return false;
	for (int i = 0; i < RUNS && !*refused; i++) {
		struct kernel_case c = cases[i];

		if (i == AGAIN)
			s->workspace_bytes = workspace_again(s, a, algorithm);
		bool ok = by_algorithm(g, s, &c, i == OURS ? AUTOTUNE_DEFAULT : algorithm, run_once,
			&seconds, refused, error);
		s->workspace_bytes = whole;
		if (!ok)
			return false;
	}
	return true;
}

/* Sets `why` to NULL if the library's result is as right as ours. */
static bool judge(struct gpu_bench *g, struct subject *s, const struct kernel_case cases[RUNS],
	const struct outputs *outputs, int algorithm, const char **why, struct error *error)
{
	int64_t d = cases[OURS].of.attention.forward.head_dim;
	bool refused;

	if (!run_all(g, s, cases, algorithm, &refused, error))
		return false;
	*why = refused ? "is refused for packed rows" : NULL;
	for (int i = 0; i < outputs->n && *why == NULL; i++) {
		const struct output *o = &outputs->of[i];
		bool same = true;

		if (!compare(g, o->how, o->at[OURS], o->at[THEIRS], o->bytes, d, &same, error))
			return false;
		*why = same ? NULL : o->why;
	}
	for (int i = 0; i < outputs->n && *why == NULL; i++) {
		const struct output *o = &outputs->of[i];
		bool same = true;

		if (!compare(g, SAME_BITS, o->at[THEIRS], o->at[AGAIN], o->bytes, d, &same, error))
			return false;
		*why = same ? NULL : "does not repeat its bits";
	}
	return true;
}

/* Lays the operands out as in the executor: queries, keys and values of a token in one row, four
 * heads to a key, and their gradients alike. */
static struct attention_backward packed(const struct attention_backward *timed)
{
	enum { SEQUENCES = 2, HEADS = 8, KV_HEADS = 2 };
	struct attention_backward b = *timed;
	struct attention *a = &b.forward;
	int64_t d = a->head_dim, row = (HEADS + 2 * KV_HEADS) * d;

	a->sequences = SEQUENCES;
	a->heads = HEADS;
	a->kv_heads = KV_HEADS;
	a->k = (const char *)a->q + HEADS * d * 2;
	a->v = (const char *)a->q + (HEADS + KV_HEADS) * d * 2;
	a->q_stride = a->k_stride = a->v_stride = row;
	a->out_stride = b.dout_stride = HEADS * d;
	b.dk = (char *)b.dq + HEADS * d * 2;
	b.dv = (char *)b.dq + (HEADS + KV_HEADS) * d * 2;
	b.dq_stride = b.dk_stride = b.dv_stride = row;
	return b;
}

/* The forward's results lie where those of the backward would. */
static bool check_forward(struct gpu_bench *g, struct subject *s,
	const struct attention_backward *shape, int algorithm, const char **why,
	struct error *error)
{
	const struct attention_backward *timed = &s->timed.of.attention;
	const struct attention *a = &shape->forward, *t = &timed->forward;
	int64_t heads = a->sequences * a->length * a->heads;
	void *const outs[RUNS] = {t->out, timed->dq, timed->dk};
	float *const sums[RUNS] = {
		t->lse, timed->dv, (float *)timed->dv + t->sequences * t->length * t->heads};
	struct kernel_case cases[RUNS];
	struct outputs outputs = {0};

	for (int i = 0; i < RUNS; i++) {
		cases[i] = (struct kernel_case){.bench = &g->base, .of.attention = *shape};
		cases[i].of.attention.forward.out = outs[i];
		cases[i].of.attention.forward.lse = sums[i];
	}
	add_output(&outputs, SAME_RESULT, heads * a->head_dim * 2, "does not give our result",
		outs[OURS], outs[THEIRS], outs[AGAIN]);
	add_output(&outputs, SAME_SUMS, heads * 4, "does not give our log-sum-exp", sums[OURS],
		sums[THEIRS], sums[AGAIN]);
	return judge(g, s, cases, &outputs, algorithm, why, error);
}

/* Each run has a third of the arrays that gradients lie in. */
static int64_t third_of(const struct attention_backward *timed)
{
	return ((char *)timed->dk - (char *)timed->dq) / RUNS / 256 * 256;
}

static bool check_backward(struct gpu_bench *g, struct subject *s,
	const struct attention_backward *shape, int algorithm, const char **why,
	struct error *error)
{
	const struct attention *a = &shape->forward;
	int64_t third = third_of(&s->timed.of.attention), rows = a->sequences * a->length;
	bool in_one = a->kv_heads != a->heads;
	struct kernel_case cases[RUNS];
	struct attention_backward b[RUNS];
	struct outputs outputs = {0};

	for (int i = 0; i < RUNS; i++) {
		b[i] = *shape;
		b[i].dq = (char *)shape->dq + i * third;
		b[i].dk = (char *)shape->dk + i * third;
		b[i].dv = (char *)shape->dv + i * third;
		cases[i] = (struct kernel_case){.bench = &g->base, .of.attention = b[i]};
	}
	add_output(&outputs, SAME_GRADIENT, rows * shape->dq_stride * 2,
		"does not give our gradients", b[OURS].dq, b[THEIRS].dq, b[AGAIN].dq);
	if (!in_one) {
		add_output(&outputs, SAME_GRADIENT, rows * shape->dk_stride * 2,
			"does not give our gradients", b[OURS].dk, b[THEIRS].dk, b[AGAIN].dk);
		add_output(&outputs, SAME_GRADIENT, rows * shape->dv_stride * 2,
			"does not give our gradients", b[OURS].dv, b[THEIRS].dv, b[AGAIN].dv);
	}
	return judge(g, s, cases, &outputs, algorithm, why, error);
}

/* Checks the shape that was timed, of which the backward has room for some sequences three times,
 * and the other shape. */
static bool check(struct gpu_bench *g, struct subject *s, int algorithm, const char **why,
	struct error *error)
{
	static bool (*const checks[])(struct gpu_bench *, struct subject *,
		const struct attention_backward *, int, const char **, struct error *) = {
		[ATTENTION_FORWARD] = check_forward, [ATTENTION_BACKWARD] = check_backward};
	struct attention_backward first = s->timed.of.attention;
	const struct attention *a = &s->timed.of.attention.forward;
	const struct attention_backward other = packed(&first);
	const struct attention *o = &other.forward;
	int64_t sequence = a->length * a->q_stride * 2;
	bool fits = o->sequences * o->q_stride <= a->sequences * a->q_stride &&
		    o->sequences * o->heads <= a->sequences * a->heads;

	if (s->pass == ATTENTION_BACKWARD) {
		first.forward.sequences = min_i64(a->sequences, third_of(&first) / sequence);
		fits = fits && first.forward.sequences > 0 &&
		       o->sequences * o->length * o->q_stride * 2 <= third_of(&first);
	}
	*why = "was not compared: there is no room";
	if (!fits)
		return true;
	if (!checks[s->pass](g, s, &first, algorithm, why, error) || *why != NULL)
		return *why != NULL;
	return checks[s->pass](g, s, &other, algorithm, why, error);
}

/* --- the choice ------------------------------------------------------------------------------- */

static void say(const struct gpu_bench *g, const struct subject *s, const char *what)
{
	const struct attention *a = &s->timed.of.attention.forward;

	bench_say(&g->base, "    cuDNN %lld, %lld tokens, heads of %lld%s: %s",
		(long long)g->base.kernels->device->attention_version(
			(struct kernel_context *)&g->base.context),
		(long long)a->length, (long long)a->head_dim,
		s->pass == ATTENTION_BACKWARD ? ", backward" : "", what);
}

static void keep(struct gpu_bench *g, const struct subject *s, int algorithm, double gain)
{
	struct calibration *c = g->base.calibration;
	struct calibration_attention entry = entry_of(s, algorithm);

	entry.gain = gain;
	if (calibration_add_attention(c, &entry))
		c->attention_library = g->base.kernels->device->attention_version(&g->base.context);
}

/* Says what came of it, and keeps the algorithm if it is right and fast. */
static double conclude(
	struct gpu_bench *g, const struct subject *s, int algorithm, double gain, const char *why)
{
	bool won = autotune_is_faster(gain);
	const char *speed = arena_printf(g->base.arena, "engine %d has %.1f %% of our speed",
		s->algorithms[algorithm].engine, 100 * gain);

	if (why != NULL)
		speed = arena_printf(g->base.arena, "%s and %s: not taken", speed, why);
	else if (!won)
		speed = arena_printf(g->base.arena, "%s: not taken", speed);
	say(g, s, speed);
	if (why != NULL || !won)
		return 1;
	keep(g, s, algorithm, gain);
	return gain;
}

/* Takes the fastest of several, if it is right. */
static bool compete(struct gpu_bench *g, struct subject *s, int n, double first, double *chosen,
	struct error *error)
{
	const struct autotune autotune = {g, s, time_algorithm};
	const char *why = NULL;
	double gain = 0;
	int fastest;

	if (!autotune_fastest(&autotune, n, &fastest, error))
		return false;
	if (fastest < 0) {
		say(g, s, "no way to do it here");
		return true;
	}
	bool ok = check(g, s, fastest, &why, error) &&
		  autotune_gain(&autotune, fastest, &gain, error);
	if (ok)
		*chosen = first / conclude(g, s, fastest, gain, why);
	/* Results were copied there, so the values are made again. */
	gpu_make_values(g);
	return ok;
}

/* Takes as large a workspace as a plan sets aside, or none where there is no room for it. */
static void open_workspace(struct gpu_bench *g, struct subject *s)
{
	uint64_t address = 0;

	if (g->api->cuMemAlloc(&address, ATTENTION_WORKSPACE_BYTES) != 0)
		return;
	s->workspace = (char *)(uintptr_t)address;
	s->workspace_bytes = ATTENTION_WORKSPACE_BYTES;
}

/* Nothing is said of a backward that the library does not have. */
bool calibrate_gpu_attention(struct gpu_bench *g, enum attention_pass pass,
	const struct attention_backward *timed, double first, double *chosen, struct error *error)
{
	const struct device_kernels *device = g->base.kernels->device;
	struct subject s = {.pass = pass, .timed = {.bench = &g->base, .of.attention = *timed}};

	*chosen = first;
	if (!g->base.options->choose || device->attention_version(&g->base.context) == 0)
		return true;
	int n = device->attention_algorithms(
		&g->base.context, pass, timed, s.algorithms, s.bytes, ALGORITHMS);
	if (pass == ATTENTION_BACKWARD && n == 0)
		return true;
	if (pass == ATTENTION_BACKWARD)
		open_workspace(g, &s);
	bool ok = compete(g, &s, n, first, chosen, error);
	if (s.workspace != NULL)
		g->api->cuMemFree((uint64_t)(uintptr_t)s.workspace);
	return ok;
}
