/* Lowers the gradients of buckets: those of DDP, and of ZeRO with whole parameters. */
#include "schedule/passes/lower.h"

static const struct unit *bucket_of(const struct lowering *l)
{
	return &l->step->units[l->at->unit];
}

static bool is_copied_back(const struct lowering *l)
{
	return l->step->method.buckets == BUCKETS_COPIED_BACK;
}

/* --- compute -------------------------------------------------------------------------------------
 */

static int module_of(const struct step *step, const struct unit_slice *slice)
{
	return step->model->parameters[slice->parameter].module;
}

static struct reach reach_of(const struct step *step, int unit)
{
	const struct unit *u = &step->units[unit];
	struct reach reach = {.in_order = true};
	for (int i = 0, before = -1; i < u->n_slices; i++) {
		int module = module_of(step, &u->slices[i]);
		if (i == 0 || module < reach.first_module)
			reach.first_module = module;
		if (i == 0 || module >= reach.end_module)
			reach.end_module = module + 1;
		reach.in_order = reach.in_order && module >= before;
		before = module;
	}
	return reach;
}

/* Returns the first slice that may belong to the range. */
static int first_slice(const struct lowering *l, int unit, const struct range *r)
{
	const struct unit *u = &l->step->units[unit];
	int first = 0, end = u->n_slices;
	while (l->reaches[unit].in_order && first < end) {
		int middle = first + (end - first) / 2;
		if (module_of(l->step, &u->slices[middle]) < r->first_module)
			first = middle + 1;
		else
			end = middle;
	}
	return first;
}

static bool holds(const struct lowering *l, int unit, const struct range *r)
{
	const struct unit *u = &l->step->units[unit];
	for (int i = first_slice(l, unit, r); i < u->n_slices; i++) {
		int module = module_of(l->step, &u->slices[i]);
		if (module >= r->first_module && module < r->end_module)
			return true;
	}
	return false;
}

/* --- the buckets of a range ------------------------------------------------------------------- */

static void join(struct holders *all, struct holders some)
{
	if (some.end == 0)
		return;
	all->first = all->end == 0 || some.first < all->first ? some.first : all->first;
	all->end = some.end > all->end ? some.end : all->end;
}

static void find_holders(struct lowering *l)
{
	const struct step *step = l->step;
	l->holders = ARENA_ARRAY(step->arena, struct holders, step->model->n_modules);
	for (int u = 0; u < step->n_units; u++)
		for (int i = 0; i < step->units[u].n_slices; i++)
			join(&l->holders[module_of(step, &step->units[u].slices[i])],
				(struct holders){u, u + 1});
}

/* Returns the units that hold what the range reads. */
static struct holders holders_of(struct lowering *l, const struct range *r, int tied)
{
	struct holders all = {0};
	if (l->holders == NULL)
		find_holders(l);
	for (int m = r->first_module; m < r->end_module; m++)
		join(&all, l->holders[m]);
	if (tied >= 0)
		join(&all, l->holders[l->step->model->parameters[tied].module]);
	return all;
}

/* Returns the buffer of a bucket that compute reads. */
static int weights_of(const struct step *step, int unit)
{
	const struct resident *resident = &step->resident[unit];
	return resident->whole >= 0 ? resident->whole : resident->parameter_shard;
}

/* Compute reads parameters from all buckets of the range or from its cached copy, and frozen ones
 * from where they are. */
void op_use_bucket_weights(struct lowering *l, int range, int copy)
{
	const struct step *step = l->step;
	const struct range *r = &step->ranges[range];
	int tied = step->model->modules[r->end_module - 1].tied_parameter;
	op_use(l, copy);
	if (copy >= 0 && !l->has_frozen)
		return;
	const struct holders holders = holders_of(l, r, tied);
	for (int u = holders.first; u < holders.end; u++) {
		struct reach *reach = &l->reaches[u];
		if (copy >= 0 && unit_is_trained(step, u))
			continue;
		if (reach->end_module == 0)
			*reach = reach_of(step, u);
		bool meets =
			reach->first_module < r->end_module && reach->end_module > r->first_module;
		if ((meets && holds(l, u, r)) ||
			(tied >= 0 && unit_has_slice(&step->units[u], tied)))
			op_use(l, weights_of(step, u));
	}
}

/* DeepSpeed collects gradients in one buffer, which is taken when backward makes the first one. */
static void take_collector(struct lowering *l)
{
	int64_t elements = l->step->method.collector_elements;
	if (elements > 0 && l->collector < 0)
		l->collector = op_take_new(l, BUFFER_BUCKET, -1, elements * compute_bytes(l),
			l->step->plan->param_dtype);
}

/* Backward adds to the fp32 copies of its parameters, and to the copy of the table that the head is
 * tied to. */
static void use_copies(struct lowering *l, int range)
{
	const struct step *step = l->step;
	const struct range *r = &step->ranges[range];
	int tied = step->model->modules[r->end_module - 1].tied_parameter;
	const struct holders holders = holders_of(l, r, tied);
	for (int u = holders.first; u < holders.end; u++)
		if (holds(l, u, r) || (tied >= 0 && unit_has_slice(&step->units[u], tied)))
			op_use(l, step->resident[u].gradient);
}

/* Gradients appear range by range, DDP's in the dtype of the parameters. They stay until they are
 * collected or the optimizer has read them, and later micro-batches add to them. */
void op_take_bucket_gradient(struct lowering *l)
{
	enum dtype dtype =
		is_copied_back(l) ? l->step->plan->master_dtype : l->step->plan->param_dtype;
	enum buffer_role role = is_copied_back(l) ? BUFFER_GRADIENT_SHARD : BUFFER_GRADIENT;
	int range = l->at->range, *gradient = &l->range_gradients[range];
	if (l->step->method.adds_at_once) {
		use_copies(l, range);
		return;
	}
	int64_t elements = op_take_gradient_elements(l, range, dtype);
	if (elements > 0 && *gradient < 0) {
		*gradient = buffer_new(
			l->step, role, STREAM_COMPUTE, -1, elements * dtype_bytes(dtype), dtype);
		if (is_copied_back(l))
			l->step->buffers[*gradient].layer = l->step->ranges[range].layer;
		else
			buffer_set_range(l, *gradient, range);
		op_take(l, *gradient);
	}
	op_use(l, *gradient);
	take_collector(l);
}

/* Uses the ranges that hold gradients of the bucket's parameters. */
static void use_bucket_gradients(struct lowering *l)
{
	for (int i = 0; i < bucket_of(l)->n_slices; i++)
		op_use(l, l->range_gradients[l->step->holders[bucket_of(l)->slices[i].parameter]]);
}

void op_use_all_bucket_gradients(struct lowering *l)
{
	for (int r = 0; r < l->step->n_ranges; r++)
		op_use(l, l->range_gradients[r]);
}

void op_give_all_bucket_gradients(struct lowering *l)
{
	for (int r = 0; r < l->step->n_ranges; r++) {
		op_use(l, l->range_gradients[r]);
		op_give(l, &l->range_gradients[r]);
	}
}

/* --- reductions ----------------------------------------------------------------------------------
 */

static int64_t reduced_bytes(const struct lowering *l)
{
	return bucket_of(l)->gathered * dtype_bytes(l->step->plan->reduce_dtype);
}

/* DDP keeps the bucket between steps, in the dtype of the parameters. */
static int64_t ddp_bytes(const struct lowering *l)
{
	return bucket_of(l)->elements * master_bytes(l);
}

void lower_FILL_BUCKET(struct lowering *l)
{
	l->op.dtype = l->step->plan->master_dtype;
	l->op.bytes = 2 * ddp_bytes(l);
	use_bucket_gradients(l);
	op_use(l, l->step->resident[l->at->unit].reduce_input);
}

void lower_EMPTY_BUCKET(struct lowering *l)
{
	l->op.dtype = l->step->plan->master_dtype;
	l->op.bytes = 2 * ddp_bytes(l);
	op_use(l, l->step->resident[l->at->unit].reduce_input);
	use_bucket_gradients(l);
}

/* Gradients are copied into the collecting buffer, and their own buffers become free. */
void lower_COLLECT_RANGE(struct lowering *l)
{
	int *gradient = &l->range_gradients[l->at->range];
	l->op.bytes = 2 * l->step->buffers[*gradient].bytes;
	op_use(l, *gradient);
	op_give(l, gradient);
	op_use(l, l->collector);
}

/* Makes a flat copy of the bucket in the dtype that is reduced. DeepSpeed has divided it before. */
void lower_FLATTEN_BUCKET(struct lowering *l)
{
	enum dtype dtype = l->step->plan->reduce_dtype;
	int64_t n = bucket_of(l)->gathered;
	bool late = l->step->method.reduces_late, collects = l->collector >= 0;
	l->op.dtype = dtype;
	l->op.bytes = n * (compute_bytes(l) + dtype_bytes(dtype));
	l->op.bytes += collects ? 2 * n * compute_bytes(l) : 0;
	l->op.bytes += collects && late ? 2 * n * compute_bytes(l) : 0;
	op_use(l, l->collector);
	if (!collects || late)
		use_bucket_gradients(l);
	live_of(l)->reducing =
		op_take_new(l, BUFFER_REDUCE_INPUT, l->at->unit, reduced_bytes(l), dtype);
}

/* The hook of nanotron reduces DDP's bucket, then adds it to the fp32 copy. */
void lower_ADD_IN_HOOK(struct lowering *l)
{
	int64_t n = bucket_of(l)->gathered;
	l->op.bytes = n * (3 * compute_bytes(l) + 2 * dtype_bytes(l->step->plan->reduce_dtype));
	use_bucket_gradients(l);
	op_use(l, l->step->resident[l->at->unit].reduce_input);
	op_use(l, l->step->resident[l->at->unit].gradient);
}

void lower_REDUCE_BUCKET(struct lowering *l)
{
	const struct resident *resident = &l->step->resident[l->at->unit];
	l->op.group = unit_group(l->step, l->at->unit);
	l->op.dtype = is_copied_back(l) ? l->step->plan->master_dtype : l->step->plan->reduce_dtype;
	l->op.bytes = is_copied_back(l) ? ddp_bytes(l) : reduced_bytes(l);
	switch (l->step->method.buckets) {
	case BUCKETS_COPIED_BACK:
		op_use(l, resident->reduce_input);
		break;
	case BUCKETS_ADDED_UP:
		op_use(l, resident->gradient);
		break;
	case BUCKETS_CUT:
		op_use(l, live_of(l)->reducing);
		break;
	}
}

/* The reduction works in place: the optimizer reads the rank's slice of the fp32 copy. */
void lower_SCATTER_BUCKET(struct lowering *l)
{
	l->op.group = unit_group(l->step, l->at->unit);
	l->op.dtype = l->step->plan->reduce_dtype;
	l->op.bytes = reduced_bytes(l);
	op_use(l, l->step->resident[l->at->unit].gradient);
}

/* The gather of updated slices works in place too. */
void lower_GATHER_BUCKET(struct lowering *l)
{
	l->op.group = unit_group(l->step, l->at->unit);
	l->op.bytes = unit_whole_bytes(l->step, l->at->unit);
	op_use(l, l->step->resident[l->at->unit].whole);
}

/* Ranks that have the same slice reduce it among themselves. */
void lower_REDUCE_SLICE(struct lowering *l)
{
	lower_SCATTER_BUCKET(l);
	l->op.group = l->step->group_replicate;
	l->op.bytes = bucket_of(l)->chunk * dtype_bytes(l->op.dtype);
}

/* The rank's slice is copied out of the reduced bucket, or added to that of earlier micro-batches,
 * and cast before it leaves for the host. */
void lower_KEEP_SLICE(struct lowering *l)
{
	struct live *live = live_of(l);
	const struct plan *plan = l->step->plan;
	int64_t chunk = bucket_of(l)->chunk;
	int64_t copied = l->step->method.copies_back ? bucket_of(l)->gathered : chunk;
	enum dtype dtype =
		unit_is_offloaded(l->step, l->at->unit) ? plan->master_dtype : plan->param_dtype;
	int64_t width = dtype_bytes(dtype);
	l->op.dtype = dtype;
	l->op.bytes = copied * (dtype_bytes(plan->reduce_dtype) + width);
	op_use(l, live->reducing);
	if (live->gradient_shard < 0)
		live->gradient_shard = op_take_on(
			l, BUFFER_GRADIENT_SHARD, l->op.stream, l->at->unit, chunk * width, dtype);
	else
		l->op.bytes += chunk * width;
	op_use(l, live->gradient_shard);
	op_give(l, &live->reducing);
}

/* --- the end of backward -------------------------------------------------------------------------
 */

/* nanotron adds to the fp32 copy when backward ends. */
void lower_ADD_TO_COPIES(struct lowering *l)
{
	int64_t width = compute_bytes(l) + 2 * dtype_bytes(l->step->plan->reduce_dtype);
	for (int u = 0; u < l->step->n_units; u++) {
		l->op.bytes += l->step->units[u].trained_parameters * width;
		op_use_another(l, l->step->resident[u].gradient);
	}
	op_give_all_bucket_gradients(l);
}

/* Compute has waited for the reductions, so what only they needed is free. */
void lower_RELEASE_GRADIENTS(struct lowering *l)
{
	op_give_all_bucket_gradients(l);
	op_use(l, l->collector);
	op_give(l, &l->collector);
}
