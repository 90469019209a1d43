/* Makes initial weights. Every element depends on its own index only, so threads share them out. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "executor/checkpoints/shards.h"
#include "executor/compute/compute.h"
#include "executor/ranks/ranks.h"
#include "kernels/kernels.h"

enum { MOST_THREADS = 64, PIECE = 1 << 18 /* elements that a thread fills at a time */ };

struct init {
	const struct weights *weights;
	int64_t seed, piece; /* pieces are dealt out in turn, in the same order by each thread */
	int thread, threads;
};

/* Fills elements of the whole parameter. The depth of the whole model counts, even if this is a
 * stage of it. */
static void fill_run(
	const struct model *model, int index, int64_t seed, int64_t first, int64_t n, float *out)
{
	const struct parameter *parameter = &model->parameters[index];
	double deviation = 0.02;
	int64_t number = parameter->number;

	switch (parameter->init) {
	case INIT_RESIDUAL:
		deviation /= sqrt(2 * (double)model_whole(model)->architecture.layers);
		random_normal_fill(seed, number, first, n, deviation, out);
		break;
	case INIT_NORMAL:
		random_normal_fill(seed, number, first, n, deviation, out);
		break;
	case INIT_ADAPTER:
		deviation = 1 / sqrt(3 * (double)parameter->shape[1]);
		random_normal_fill(seed, number, first, n, deviation, out);
		break;
	case INIT_ONE:
		for (int64_t i = 0; i < n; i++)
			out[i] = 1;
		break;
	case INIT_ZERO:
		break; /* the shard ends here too */
	}
}

/* Fills elements of the rank's part of the parameter. */
static void fill(const struct init *init, int parameter, int64_t first, int64_t n, float *out)
{
	const struct weights *w = init->weights;
	const struct model *model = w->program->model;
	int64_t place = plan_part_place(&w->schedule->plan, w->rank);
	struct parameter_run run;

	for (; n > 0; first += run.n, n -= run.n, out += run.n) {
		run = model_parameter_run(model, parameter, place, first, n);
		if (run.whole >= 0)
			fill_run(model, parameter, init->seed, run.whole, run.n, out);
	}
}

/* Fills elements [first, first + n) of a unit. */
static void init_part(
	const struct init *init, const struct unit *unit, int64_t first, int64_t n, float *part)
{
	memset(part, 0, (size_t)n * sizeof(float));
	for (int i = 0; i < unit->n_slices; i++) {
		const struct unit_slice *slice = &unit->slices[i];
		int64_t begin = max_i64(slice->offset, first);
		int64_t end = min_i64(slice->offset + slice->elements, first + n);

		if (begin < end)
			fill(init, slice->parameter, begin - slice->offset, end - begin,
				part + (begin - first));
	}
}

static float kept_as(enum dtype dtype, float x)
{
	return dtype == DTYPE_BF16 ? bf16_to_float(bf16_from_float(x)) : x;
}

/* A buffer in the compute dtype gets the weights that the master dtype has, rounded. */
static void init_piece(const struct init *init, const struct unit *unit, enum dtype dtype,
	void *address, int64_t first, int64_t n)
{
	enum dtype master_dtype = init->weights->schedule->plan.master_dtype;
	float strip[WEIGHTS_STRIP];

	if (dtype == DTYPE_FP32 && master_dtype == DTYPE_FP32) {
		init_part(init, unit, first, n, address);
		return;
	}
	for (int64_t at = 0; at < n; at += WEIGHTS_STRIP) {
		int64_t count = min_i64(WEIGHTS_STRIP, n - at);

		init_part(init, unit, first + at, count, strip);
		for (int64_t i = 0; i < count; i++)
			element_put(dtype, address, at + i, kept_as(master_dtype, strip[i]));
	}
}

/* Fills this thread's pieces of a buffer that holds the unit from element `first` on. */
static void init_buffer(
	struct init *init, const struct unit *unit, enum buffer_role role, int64_t first, int64_t n)
{
	const struct weights *weights = init->weights;
	int buffer = weights_buffer(weights, role, (int)(unit - weights->program->units));
	void *address = buffer >= 0 ? buffers_address(weights->buffers, buffer) : NULL;

	if (address == NULL)
		return;
	enum dtype dtype = weights->program->buffers[buffer].dtype;
	for (int64_t at = 0; at < n; at += PIECE)
		if (init->piece++ % init->threads == init->thread)
			init_piece(init, unit, dtype, element_at(dtype, address, at), first + at,
				min_i64(PIECE, n - at));
}

/* Fills the rank's shard, and under ZeRO-1 and -2 the whole unit that every rank keeps. */
static void *init_units(void *data)
{
	struct init *init = data;
	const struct weights *weights = init->weights;

	for (int u = 0; u < weights->program->n_units; u++) {
		const struct unit *unit = &weights->program->units[u];
		int64_t first = unit_shard_place(unit, &weights->schedule->plan, weights->rank) *
				unit->chunk;

		init_buffer(init, unit, BUFFER_PARAMETER_SHARD, first, unit->chunk);
		init_buffer(init, unit, BUFFER_MASTER_SHARD, first, unit->chunk);
		init_buffer(init, unit, BUFFER_UNSHARDED, 0, unit->gathered);
	}
	return NULL;
}

/* A thread that cannot be started leaves its part to the caller. */
void weights_init(const struct weights *weights, int64_t seed, int threads)
{
	struct init inits[MOST_THREADS];
	pthread_t started[MOST_THREADS];
	bool runs[MOST_THREADS];

	threads = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
	for (int i = 0; i < threads; i++) {
		inits[i] = (struct init){weights, seed, 0, i, threads};
		runs[i] = i > 0 && cores_start_thread(&started[i], init_units, &inits[i]) == 0;
	}
	for (int i = 0; i < threads; i++)
		if (!runs[i])
			init_units(&inits[i]);
	for (int i = 0; i < threads; i++)
		if (runs[i])
			pthread_join(started[i], NULL);
}
