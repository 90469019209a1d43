#include "executor/checkpoints/shards.h"

#include <stdlib.h>
#include <string.h>

/* base/ gives one-shot digests, but gathered tensors come in pieces. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/kernels.h"

int weights_parameter(const struct weights *weights, const struct unit_slice *slice)
{
	return model_whole_parameter(weights->program->model, slice->parameter);
}

int weights_buffer(const struct weights *weights, enum buffer_role role, int unit)
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
	int buffer = weights_buffer(weights, role, unit);

	return buffer >= 0 ? buffers_address(weights->buffers, buffer) : NULL;
}

/* Returns the weights that are updated: the shard, or the host's master copy of it. */
static void *master(const struct weights *weights, int unit)
{
	void *copy = resident(weights, BUFFER_MASTER_SHARD, unit);

	return copy != NULL ? copy : resident(weights, BUFFER_PARAMETER_SHARD, unit);
}

bool weights_shard(const struct weights *weights, int index, struct weights_shard *shard)
{
	const struct unit *unit = &weights->program->units[index];
	void *moments = resident(weights, BUFFER_OPTIMIZER_STATE, index);
	const struct plan *plan = &weights->schedule->plan;

	*shard = (struct weights_shard){.arrays = {master(weights, index)},
		.dtype = unit_is_frozen(unit) ? plan->param_dtype : plan->master_dtype,
		.n_arrays = 1,
		.first = unit_shard_place(unit, plan, weights->rank) * unit->chunk};
	if (moments != NULL) {
		shard->arrays[1] = moments;
		shard->arrays[2] = element_at(shard->dtype, moments, unit->chunk);
		shard->n_arrays = 3;
	}
	return shard->arrays[0] != NULL;
}

void weights_put(
	const struct weights_shard *shard, int array, int64_t at, int64_t n, const float *from)
{
	for (int64_t i = 0; i < n; i++)
		element_put(shard->dtype, shard->arrays[array], at + i, from[i]);
}

static const void *find_element(
	const struct weights *weights, int parameter, int64_t element, int array, enum dtype *dtype)
{
	struct weights_shard shard;

	for (int u = 0; u < weights->program->n_units; u++) {
		const struct unit *unit = &weights->program->units[u];
		for (int i = 0; i < unit->n_slices; i++) {
			if (weights_parameter(weights, &unit->slices[i]) != parameter ||
				!weights_shard(weights, u, &shard) || array >= shard.n_arrays)
				continue;
			*dtype = shard.dtype;
			return element_of(shard.dtype, shard.arrays[array],
				unit->slices[i].offset + element - shard.first);
		}
	}
	return NULL;
}

const float *weights_element(
	const struct weights *weights, int parameter, int64_t element, int array)
{
	enum dtype dtype;
	const void *found = find_element(weights, parameter, element, array, &dtype);

	return found != NULL && dtype == DTYPE_FP32 ? found : NULL;
}

void weights_get(const struct weights *weights, int parameter, int64_t element, int array,
	int64_t n, float *to)
{
	enum dtype dtype = DTYPE_FP32;
	const void *from = find_element(weights, parameter, element, array, &dtype);

	for (int64_t i = 0; i < n; i++)
		to[i] = element_get(dtype, from, i);
}

/* One rank's shard of a unit's weights, or of its moments. */
struct part {
	enum dtype dtype;
	const void *data;
};

static void convert(enum dtype dtype, void *to, struct part from, int64_t n)
{
	if (dtype == from.dtype) {
		memcpy(to, from.data, (size_t)(n * dtype_bytes(dtype)));
		return;
	}
	for (int64_t i = 0; i < n; i++)
		element_put(dtype, to, i, element_get(from.dtype, from.data, i));
}

/* All-gathers shards of a unit as `dtype`. Other ranks can read only the heap, so a shard that lies
 * elsewhere (in the host's tier), or that has another dtype, is first copied into a block of it. */
static bool gather_part(const struct weights *weights, struct comm *comm, const struct unit *unit,
	struct part part, enum dtype dtype, void *output, struct error *error)
{
	const struct plan *plan = &weights->schedule->plan;
	const struct group shard = {
		.size = unit_shard_ranks(unit, plan), .stride = unit_shard_stride(unit, plan)};
	int64_t chunk = unit->chunk;
	struct heap *heap = &weights->buffers->heap;
	struct collective c = {.kind = COLLECTIVE_ALL_GATHER,
		.element = dtype == DTYPE_BF16 ? COMM_BF16 : COMM_FP32,
		.group = comm_group_of(&shard, weights->rank),
		.count = chunk,
		.input = part.data,
		.output = output,
		.step = -1,
		.op = -1,
		.unit = -1};

	if (dtype == part.dtype && heap_holds(heap, part.data))
		return comm_run(comm, &c);
	int block = heap_take(heap, chunk * dtype_bytes(dtype), error);
	if (block < 0)
		return false;
	convert(dtype, heap_address(heap, block), part, chunk);
	c.input = heap_address(heap, block);
	bool ok = comm_run(comm, &c);
	heap_give(heap, block);
	return ok;
}

/* Copies the host's master weights to the device's shard, and gathers the unit where every rank
 * keeps it whole. */
static bool spread_unit(
	const struct weights *weights, struct comm *comm, int index, struct error *error)
{
	const struct unit *unit = &weights->program->units[index];
	int64_t chunk = unit->chunk;
	enum dtype dtype = weights->schedule->plan.param_dtype;
	void *kept = resident(weights, BUFFER_UNSHARDED, index);
	bool frozen = unit_is_frozen(unit);
	struct part updated = {
		frozen ? dtype : weights->schedule->plan.master_dtype, master(weights, index)};

	if (resident(weights, BUFFER_MASTER_SHARD, index) != NULL &&
		resident(weights, BUFFER_PARAMETER_SHARD, index) != NULL)
		convert(dtype, resident(weights, BUFFER_PARAMETER_SHARD, index), updated, chunk);
	return kept == NULL || gather_part(weights, comm, unit, updated, dtype, kept, error);
}

bool weights_spread(const struct weights *weights, struct comm *comm, struct error *error)
{
	struct comm_counters counters = comm->counters;
	bool ok = true;

	for (int u = 0; u < weights->program->n_units && ok; u++)
		ok = spread_unit(weights, comm, u, error);
	comm->counters = counters; /* these are no operations of the schedule */
	return ok;
}

/* --- digest --- */

struct digester {
	const struct weights *weights;
	struct comm *comm;
	bool leads;                  /* this rank hashes, and the others only help to gather */
	XXH3_state_t **states;       /* of the slices of the unit */
	XXH128_canonical_t *digests; /* [n_parameters + 1], the last one of a copy */
	void *gathered;              /* of the master dtype */
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

/* Hashes elements as fp32, whatever dtype they are kept in. */
static void add_elements(XXH3_state_t *state, struct part part, int64_t first, int64_t n)
{
	float strip[WEIGHTS_STRIP];

	if (part.dtype == DTYPE_FP32) {
		XXH3_128bits_update(
			state, (const float *)part.data + first, (size_t)n * sizeof(float));
		return;
	}
	for (int64_t at = first; at < first + n; at += WEIGHTS_STRIP) {
		int64_t count = min_i64(WEIGHTS_STRIP, first + n - at);

		for (int64_t i = 0; i < count; i++)
			strip[i] = element_get(part.dtype, part.data, at + i);
		XXH3_128bits_update(state, strip, (size_t)count * sizeof(float));
	}
}

static const struct parameter *whole_parameter(
	const struct weights *w, const struct unit_slice *slice)
{
	return &model_whole(w->program->model)->parameters[weights_parameter(w, slice)];
}

/* --- parts of tensor ranks, or of expert ranks --- */

/* So many elements of each rank pass through the heap at once. */
enum { PARTS_STRIP = 1 << 14 };

/* Puts a parameter together from the parts of these ranks. */
struct parts {
	struct digester *digester;
	const struct unit_slice *slice;
	enum dtype dtype;
	char *whole; /* NULL on ranks that do not hash */
	void *strip; /* lies in the heap and holds a part of every tensor rank */
};

/* Checks that a parameter that all of them have whole is the same everywhere. */
static bool are_alike(const struct parts *p, int64_t first, int64_t n)
{
	const struct weights *w = p->digester->weights;
	size_t bytes = (size_t)(n * dtype_bytes(p->dtype));
	const char *strip = p->strip;

	if (model_parameter_is_cut(w->program->model, p->slice->parameter))
		return true;
	for (int64_t r = 1; r < model_parts(w->program->model); r++)
		if (memcmp(strip, strip + (size_t)r * bytes, bytes) != 0)
			return error_set(p->digester->error, EXIT_CODE_FAULT,
				"tensor ranks differ after the last step: "
				"0 and %lld hold other %s from element %lld on",
				(long long)r, whole_parameter(w, p->slice)->name, (long long)first);
	return true;
}

/* Puts elements [first, first + n) of one rank's part at their places in the whole parameter. */
static void place_part(const struct parts *p, int64_t rank, int64_t first, int64_t n)
{
	const struct model *model = p->digester->weights->program->model;
	int64_t size = dtype_bytes(p->dtype);
	const char *from = (const char *)p->strip + rank * n * size;
	struct parameter_run run;

	for (; n > 0; first += run.n, n -= run.n, from += run.n * size) {
		run = model_parameter_run(model, p->slice->parameter, rank, first, n);
		if (run.whole >= 0)
			memcpy(p->whole + run.whole * size, from, (size_t)(run.n * size));
	}
}

static bool gather_strip(const struct parts *p, int64_t first, int64_t n)
{
	const struct weights *w = p->digester->weights;
	const struct group group = {.size = model_parts(w->program->model), .stride = 1};
	bool ok = comm_run(p->digester->comm,
		&(struct collective){.kind = COLLECTIVE_ALL_GATHER,
			.element = p->dtype == DTYPE_BF16 ? COMM_BF16 : COMM_FP32,
			.group = comm_group_of(&group, w->rank),
			.count = n,
			.input = element_of(
				p->dtype, p->digester->gathered, p->slice->offset + first),
			.output = p->strip,
			.step = -1,
			.op = -1,
			.unit = -1});

	for (int64_t r = 0; r < group.size && ok && p->whole != NULL; r++)
		place_part(p, r, first, n);
	return ok && (p->whole == NULL || are_alike(p, first, n));
}

static bool gather_parts(struct parts *p)
{
	struct heap *heap = &p->digester->weights->buffers->heap;
	int64_t parts = model_parts(p->digester->weights->program->model);
	int64_t most = min_i64(p->slice->elements, PARTS_STRIP);
	int block = heap_take(heap, parts * most * dtype_bytes(p->dtype), p->digester->error);
	bool ok = block >= 0;

	if (ok)
		p->strip = heap_address(heap, block);
	for (int64_t at = 0; ok && at < p->slice->elements; at += PARTS_STRIP)
		ok = gather_strip(p, at, min_i64(PARTS_STRIP, p->slice->elements - at));
	if (block >= 0)
		heap_give(heap, block);
	return ok;
}

/* Hashes a slice of the gathered unit, put together from all ranks that have parts of it. */
static bool add_slice(struct digester *d, const struct unit *unit, int slice, enum dtype dtype)
{
	const struct parameter *parameter = whole_parameter(d->weights, &unit->slices[slice]);
	struct parts parts = {.digester = d, .slice = &unit->slices[slice], .dtype = dtype};
	struct arena arena = {0};

	if (d->leads)
		parts.whole = arena_alloc(
			&arena, (size_t)parameter->elements, (size_t)dtype_bytes(dtype));
	bool ok = gather_parts(&parts);
	if (ok && d->leads)
		add_elements(d->states[slice], (struct part){dtype, parts.whole}, 0,
			parameter->elements);
	arena_finish(&arena);
	return ok;
}

/* Gathers the weights (or the first, or the second moments) of a unit and hashes them parameter by
 * parameter. */
static bool add_tensor(struct digester *d, const struct unit *unit, struct part shard)
{
	struct part whole = {shard.dtype, d->gathered};
	const struct model *model = d->weights->program->model;
	bool cut = unit->of_experts || model->division.tensor > 1, ok;

	ok = gather_part(d->weights, d->comm, unit, shard, shard.dtype, d->gathered, d->error);
	for (int i = 0; ok && i < unit->n_slices; i++) {
		if (cut)
			ok = add_slice(d, unit, i, shard.dtype);
		else if (d->leads)
			add_elements(d->states[i], whole, unit->slices[i].offset,
				unit->slices[i].elements);
	}
	return ok;
}

/* Returns where the digest of a parameter goes. The first and the last stage may both have the tied
 * table, and the copy has a place of its own, at the end. */
static XXH128_canonical_t *place_of(const struct digester *d, const struct unit_slice *slice)
{
	const struct weights *w = d->weights;

	return &d->digests[model_parameter_is_copy(w->program->model, slice->parameter)
				   ? w->schedule->model->n_parameters
				   : weights_parameter(w, slice)];
}

static bool add_unit(struct digester *d, int index)
{
	const struct weights *w = d->weights;
	const struct unit *unit = &w->program->units[index];
	struct weights_shard shard;
	bool ok = weights_shard(w, index, &shard);

	for (int i = 0; i < unit->n_slices; i++)
		d->states[i] = begin_parameter(whole_parameter(w, &unit->slices[i]));
	for (int a = 0; ok && a < shard.n_arrays; a++)
		ok = add_tensor(d, unit, (struct part){shard.dtype, shard.arrays[a]});
	for (int i = 0; i < unit->n_slices; i++) {
		XXH128_canonicalFromHash(
			place_of(d, &unit->slices[i]), XXH3_128bits_digest(d->states[i]));
		XXH3_freeState(d->states[i]);
	}
	return ok;
}

/* Takes room for the gathered unit from the heap, where the step had it too. */
static bool add_unit_in_heap(struct digester *d, int index, struct error *error)
{
	const struct unit *unit = &d->weights->program->units[index];
	struct heap *heap = &d->weights->buffers->heap;

	if (unit->n_slices == 0)
		return true;
	const struct plan *plan = &d->weights->schedule->plan;
	int64_t bytes = unit->gathered *
			dtype_bytes(unit_is_frozen(unit) ? plan->param_dtype : plan->master_dtype);
	int block = heap_take(heap, bytes, error);
	if (block < 0)
		return false;
	d->gathered = heap_address(heap, block);
	bool ok = add_unit(d, index);
	heap_give(heap, block);
	return ok;
}

/* Checks that the first and the last stage have the same tied table. */
static bool copy_is_alike(const struct digester *d, struct error *error)
{
	const struct model *model = d->weights->schedule->model;
	int table = model->modules[model->n_modules - 1].tied_parameter;

	return table < 0 ||
	       memcmp(&d->digests[table], &d->digests[model->n_parameters], sizeof(*d->digests)) ==
		       0 ||
	       error_set(error, EXIT_CODE_FAULT,
		       "stages differ after the last step: "
		       "the first and the last one hold other %s",
		       model->parameters[table].name);
}

/* Each stage has the digests of its own parameters and zeros elsewhere, so their sum is all
 * digests. */
static bool join_stages(struct digester *d, int n, struct error *error)
{
	const struct weights *w = d->weights;
	int stages = w->schedule->n_classes;
	const struct group column = {.size = stages, .stride = d->comm->ranks / stages};
	struct heap *heap = &w->buffers->heap;
	int64_t bytes = n * (int64_t)sizeof(*d->digests);

	if (stages == 1)
		return true;
	int block = heap_take(heap, bytes, error);
	if (block < 0)
		return false;
	void *all = heap_address(heap, block);
	memcpy(all, d->digests, (size_t)bytes);
	bool ok = comm_run(d->comm, &(struct collective){.kind = COLLECTIVE_ALL_REDUCE,
					    .element = COMM_INT64,
					    .group = comm_group_of(&column, w->rank),
					    .count = bytes / (int64_t)sizeof(int64_t),
					    .input = all,
					    .output = all,
					    .step = -1,
					    .op = -1,
					    .unit = -1});
	memcpy(d->digests, all, (size_t)bytes);
	heap_give(heap, block);
	return ok && copy_is_alike(d, error);
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
		.digests = ARENA_ARRAY(&arena, XXH128_canonical_t, n + 1)};
	bool ok = true;

	d.leads = plan_shard_place(&schedule->plan, weights->rank) == 0 &&
		  plan_part_place(&schedule->plan, weights->rank) == 0;
	for (int u = 0; u < weights->program->n_units && ok; u++)
		ok = add_unit_in_heap(&d, u, error);
	ok = ok && join_stages(&d, n + 1, error);
	comm->counters = counters; /* these are no operations of the schedule */
	*digest =
		d.leads ? digest_of(d.digests, (size_t)n * sizeof(*d.digests)) : (struct digest){0};
	arena_finish(&arena);
	return ok;
}
