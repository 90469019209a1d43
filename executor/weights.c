#include "executor/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* base/ gives one-shot digests; gathered tensors come in pieces. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "executor/random.h"
#include "kernels/bf16.h"

static int find_buffer(const struct weights *weights, enum buffer_role role, int unit)
{
	for (int i = 0; i < weights->program->n_buffers; i++) {
		const struct buffer *buffer = &weights->program->buffers[i];

		if (buffer->resident && buffer->role == role && buffer->unit == unit)
			return i;
	}
	return -1;
}

static void *resident(const struct weights *weights, enum buffer_role role, int unit)
{
	int buffer = find_buffer(weights, role, unit);

	return buffer >= 0 ? buffers_address(weights->buffers, buffer) : NULL;
}

/* The fp32 weights that are updated: the shard, or the host's master copy of it. */
static float *master(const struct weights *weights, int unit)
{
	float *copy = resident(weights, BUFFER_MASTER_SHARD, unit);

	return copy != NULL ? copy : resident(weights, BUFFER_PARAMETER_SHARD, unit);
}

bool weights_shard(const struct weights *weights, int index, struct weights_shard *shard)
{
	const struct unit *unit = &weights->schedule->units[index];
	float *moments = resident(weights, BUFFER_OPTIMIZER_STATE, index);

	*shard = (struct weights_shard){.arrays = {master(weights, index)},
		.n_arrays = 1,
		.first = weights->rank % weights->schedule->plan.mesh.shard * unit->chunk};
	if (moments != NULL) {
		shard->arrays[1] = moments;
		shard->arrays[2] = moments + unit->chunk;
		shard->n_arrays = 3;
	}
	return shard->arrays[0] != NULL;
}

const float *weights_element(
	const struct weights *weights, int parameter, int64_t element, int array)
{
	const struct schedule *schedule = weights->schedule;
	struct weights_shard shard;

	for (int u = 0; u < schedule->n_units; u++) {
		const struct unit *unit = &schedule->units[u];
		for (int i = 0; i < unit->n_slices; i++) {
			if (unit->slices[i].parameter == parameter &&
				weights_shard(weights, u, &shard) && array < shard.n_arrays)
				return shard.arrays[array] + unit->slices[i].offset + element -
				       shard.first;
		}
	}
	return NULL;
}

/* --- initial weights --- */

static void fill(
	const struct model *model, int index, int64_t seed, int64_t first, int64_t n, float *out)
{
	const struct parameter *parameter = &model->parameters[index];
	double deviation = 0.02;

	switch (parameter->init) {
	case INIT_RESIDUAL:
		deviation /= sqrt(2 * (double)model->architecture.layers);
		random_normal_fill(seed, index, first, n, deviation, out);
		break;
	case INIT_NORMAL:
		random_normal_fill(seed, index, first, n, deviation, out);
		break;
	case INIT_ONE:
		for (int64_t i = 0; i < n; i++)
			out[i] = 1;
		break;
	case INIT_ZERO:
		break; /* as the shard is */
	}
}

/* Elements [first, first + n) of a unit. */
static void init_part(const struct weights *weights, const struct unit *unit, int64_t seed,
	int64_t first, int64_t n, float *part)
{
	if (part == NULL)
		return;
	memset(part, 0, (size_t)n * sizeof(float));
	for (int i = 0; i < unit->n_slices; i++) {
		const struct unit_slice *slice = &unit->slices[i];
		int64_t begin = max_i64(slice->offset, first);
		int64_t end = min_i64(slice->offset + slice->elements, first + n);

		if (begin < end)
			fill(weights->schedule->model, slice->parameter, seed,
				begin - slice->offset, end - begin, part + (begin - first));
	}
}

enum { STRIP = 4096 };

/* The same of a buffer that may be in the compute dtype, where there is one. */
static void init_buffer(const struct weights *weights, const struct unit *unit, int64_t seed,
	enum buffer_role role, int64_t first, int64_t n)
{
	int index = (int)(unit - weights->schedule->units);
	int buffer = find_buffer(weights, role, index);
	float strip[STRIP];

	if (buffer < 0)
		return;
	enum dtype dtype = weights->program->buffers[buffer].dtype;
	void *address = buffers_address(weights->buffers, buffer);
	if (dtype == DTYPE_FP32)
		init_part(weights, unit, seed, first, n, address);
	for (int64_t at = 0; dtype == DTYPE_BF16 && at < n; at += STRIP) {
		int64_t count = min_i64(STRIP, n - at);

		init_part(weights, unit, seed, first + at, count, strip);
		for (int64_t i = 0; i < count; i++)
			element_put(dtype, address, at + i, strip[i]);
	}
}

/* The rank's shard, and under ZeRO-1 and -2 the whole unit that every rank keeps. */
static void init_unit(const struct weights *weights, int index, int64_t seed)
{
	const struct unit *unit = &weights->schedule->units[index];
	int64_t first = weights->rank % weights->schedule->plan.mesh.shard * unit->chunk;

	init_buffer(weights, unit, seed, BUFFER_PARAMETER_SHARD, first, unit->chunk);
	init_buffer(weights, unit, seed, BUFFER_MASTER_SHARD, first, unit->chunk);
	init_buffer(weights, unit, seed, BUFFER_UNSHARDED, 0, unit->gathered);
}

void weights_init(const struct weights *weights, int64_t seed)
{
	for (int u = 0; u < weights->schedule->n_units; u++)
		init_unit(weights, u, seed);
}

/* All-gathers one rank's part of a unit in fp32. Others read the device's tier only, so what lies
 * in host memory passes through a block of the heap. */
static bool gather_part(const struct weights *weights, struct comm *comm, int64_t chunk,
	const float *part, float *output, struct error *error)
{
	const struct group shard = {.size = weights->schedule->plan.mesh.shard, .stride = 1};
	struct heap *heap = &weights->buffers->heap;
	struct collective c = {.kind = COLLECTIVE_ALL_GATHER,
		.element = COMM_FP32,
		.group = comm_group_of(&shard, weights->rank),
		.count = chunk,
		.input = part,
		.output = output,
		.step = -1,
		.op = -1,
		.unit = -1};

	if (heap_holds(heap, part))
		return comm_run(comm, &c);
	int block = heap_take(heap, chunk * (int64_t)sizeof(float), error);
	if (block < 0)
		return false;
	c.input = memcpy(heap_address(heap, block), part, (size_t)chunk * sizeof(float));
	bool ok = comm_run(comm, &c);
	heap_give(heap, block);
	return ok;
}

/* The same in the compute dtype, for what every rank keeps. */
static bool gather_rounded(const struct weights *weights, struct comm *comm, int64_t chunk,
	const float *part, void *output, struct error *error)
{
	const struct group shard = {.size = weights->schedule->plan.mesh.shard, .stride = 1};
	struct heap *heap = &weights->buffers->heap;
	int block = heap_take(heap, chunk * dtype_bytes(DTYPE_BF16), error);

	if (block < 0)
		return false;
	void *rounded = heap_address(heap, block);
	for (int64_t i = 0; i < chunk; i++)
		element_put(DTYPE_BF16, rounded, i, part[i]);
	bool ok = comm_run(comm, &(struct collective){.kind = COLLECTIVE_ALL_GATHER,
					 .element = COMM_BF16,
					 .group = comm_group_of(&shard, weights->rank),
					 .count = chunk,
					 .input = rounded,
					 .output = output,
					 .step = -1,
					 .op = -1,
					 .unit = -1});
	heap_give(heap, block);
	return ok;
}

/* The device's shard from the host's master copy; and what every rank keeps, from the shards. */
static bool spread_unit(
	const struct weights *weights, struct comm *comm, int index, struct error *error)
{
	int64_t chunk = weights->schedule->units[index].chunk;
	enum dtype dtype = weights->schedule->plan.param_dtype;
	void *kept = resident(weights, BUFFER_UNSHARDED, index);
	const float *copy = resident(weights, BUFFER_MASTER_SHARD, index);
	void *shard = resident(weights, BUFFER_PARAMETER_SHARD, index);

	for (int64_t i = 0; copy != NULL && i < chunk; i++)
		element_put(dtype, shard, i, copy[i]);
	if (kept == NULL)
		return true;
	return dtype == DTYPE_BF16
		       ? gather_rounded(weights, comm, chunk, master(weights, index), kept, error)
		       : gather_part(weights, comm, chunk, master(weights, index), kept, error);
}

bool weights_spread(const struct weights *weights, struct comm *comm, struct error *error)
{
	struct comm_counters counters = comm->counters;
	bool ok = true;

	for (int u = 0; u < weights->schedule->n_units && ok; u++)
		ok = spread_unit(weights, comm, u, error);
	comm->counters = counters; /* not operations of the schedule */
	return ok;
}

/* --- digest --- */

struct digester {
	const struct weights *weights;
	struct comm *comm;
	bool leads;                  /* hashes; the others only help to gather */
	XXH3_state_t **states;       /* of the slices of the unit */
	XXH128_canonical_t *digests; /* [n_parameters] */
	float *gathered;
	struct error *error;
};

static XXH3_state_t *begin_parameter(const struct parameter *parameter)
{
	XXH3_state_t *state = XXH3_createState();

	if (state == NULL)
		base_out_of_memory(sizeof(*state));
	XXH3_128bits_reset(state);
	XXH3_128bits_update(state, parameter->name, strlen(parameter->name) + 1);
	XXH3_128bits_update(
		state, parameter->shape, (size_t)parameter->n_dims * sizeof(parameter->shape[0]));
	return state;
}

/* One of weights, first and second moments of a unit: gathered, then every parameter's part. */
static bool add_tensor(struct digester *d, const struct unit *unit, const float *shard)
{
	if (!gather_part(d->weights, d->comm, unit->chunk, shard, d->gathered, d->error))
		return false;
	for (int i = 0; i < unit->n_slices && d->leads; i++)
		XXH3_128bits_update(d->states[i], d->gathered + unit->slices[i].offset,
			(size_t)unit->slices[i].elements * sizeof(float));
	return true;
}

static bool add_unit(struct digester *d, int index)
{
	const struct weights *w = d->weights;
	const struct unit *unit = &w->schedule->units[index];
	const struct model *model = w->schedule->model;
	float *moments = resident(w, BUFFER_OPTIMIZER_STATE, index);
	bool ok;

	for (int i = 0; i < unit->n_slices; i++)
		d->states[i] = begin_parameter(&model->parameters[unit->slices[i].parameter]);
	ok = add_tensor(d, unit, master(w, index));
	if (moments != NULL)
		ok = ok && add_tensor(d, unit, moments) &&
		     add_tensor(d, unit, moments + unit->chunk);
	for (int i = 0; i < unit->n_slices; i++) {
		XXH128_canonicalFromHash(
			&d->digests[unit->slices[i].parameter], XXH3_128bits_digest(d->states[i]));
		XXH3_freeState(d->states[i]);
	}
	return ok;
}

/* Room for the gathered unit comes from the heap, where the step had it too. */
static bool add_unit_in_heap(struct digester *d, int index, struct error *error)
{
	const struct unit *unit = &d->weights->schedule->units[index];
	struct heap *heap = &d->weights->buffers->heap;

	if (unit->n_slices == 0)
		return true;
	int block = heap_take(heap, unit->gathered * (int64_t)sizeof(float), error);
	if (block < 0)
		return false;
	d->gathered = heap_address(heap, block);
	bool ok = add_unit(d, index);
	heap_give(heap, block);
	return ok;
}

bool weights_digest(const struct weights *weights, struct comm *comm, struct digest *digest,
	struct error *error)
{
	const struct schedule *schedule = weights->schedule;
	int n = schedule->model->n_parameters;
	struct comm_counters counters = comm->counters;
	struct arena arena = {0};
	struct digester d = {.weights = weights,
		.comm = comm,
		.error = error,
		.states = ARENA_ARRAY(&arena, XXH3_state_t *, n),
		.digests = ARENA_ARRAY(&arena, XXH128_canonical_t, n)};
	bool ok = true;

	d.leads = weights->rank % schedule->plan.mesh.shard == 0;
	for (int u = 0; u < schedule->n_units && ok; u++)
		ok = add_unit_in_heap(&d, u, error);
	comm->counters = counters; /* not operations of the schedule */
	*digest =
		d.leads ? digest_of(d.digests, (size_t)n * sizeof(*d.digests)) : (struct digest){0};
	arena_finish(&arena);
	return ok;
}
