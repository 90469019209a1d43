/* Lowers the gradients of units, from what backward writes to the shard that the optimizer
 * reads. */
#include "schedule/passes/lower.h"

static const struct unit *unit_of(const struct lowering *l)
{
	return &l->step->units[l->at->unit];
}

static enum dtype gradient_dtype(const struct lowering *l)
{
	return plan_gradient_dtype(l->step->plan);
}

static enum dtype shard_dtype(const struct lowering *l)
{
	return plan_gradient_shard_dtype(l->step->plan);
}

static int64_t shard_bytes(const struct lowering *l)
{
	return dtype_bytes(shard_dtype(l));
}

/* Can a reduction write the shard itself? */
static bool is_direct(struct lowering *l)
{
	return gradient_dtype(l) == shard_dtype(l) && live_of(l)->gradient_shard < 0;
}

/* --- backward writes -----------------------------------------------------------------------------
 */

int64_t op_take_gradient_elements(struct lowering *l, int range, enum dtype dtype)
{
	int64_t tied = range_tied_parameters(l->step, range);
	if (tied > 0) {
		int addend = op_take_new(l, BUFFER_GRADIENT, l->step->ranges[range].unit,
			tied * dtype_bytes(dtype), dtype);
		op_give(l, &addend);
	}
	return range_parameters(l->step, range) - tied;
}

/* PyTorch's autograd makes a gradient for each parameter, in the compute dtype. */
static void take_range_gradient(struct lowering *l)
{
	enum dtype dtype = l->step->plan->param_dtype;
	int64_t elements = op_take_gradient_elements(l, l->at->range, dtype);
	if (elements == 0)
		return;
	int buffer =
		op_take_new(l, BUFFER_GRADIENT, l->at->unit, elements * compute_bytes(l), dtype);
	buffer_set_range(l, buffer, l->at->range);
	number_add(&live_of(l)->range_gradients, buffer);
}

/* Ours has one gradient for the whole unit and adds to it in place. Under NO_SHARD the first
 * gradient is the gradient shard itself, unless it is reduced in another dtype than the optimizer
 * reads. */
static void take_whole_gradient(struct lowering *l)
{
	struct live *live = live_of(l);
	bool is_shard = !l->step->method.shards && is_direct(l);
	if (live->gradient >= 0) {
		op_use(l, live->gradient);
		return;
	}
	live->gradient = op_take_new(l, is_shard ? BUFFER_GRADIENT_SHARD : BUFFER_GRADIENT,
		l->at->unit, unit_of(l)->trained_gathered * reduce_bytes(l), gradient_dtype(l));
	if (is_shard)
		live->gradient_shard = live->gradient;
}

void op_take_unit_gradient(struct lowering *l)
{
	if (!unit_is_trained(l->step, l->at->unit))
		return;
	if (l->step->method.gradients == GRADIENT_OF_RANGE)
		take_range_gradient(l);
	else
		take_whole_gradient(l);
}

static void give_range_gradients(struct lowering *l)
{
	struct numbers *gradients = &live_of(l)->range_gradients;
	for (int i = 0; i < gradients->n; i++) {
		op_use(l, gradients->items[i]);
		op_give(l, &gradients->items[i]);
	}
	gradients->n = 0;
}

/* In FSDP1 autograd's backward of the split concatenates gradients, on the stream of the views and
 * in its memory, which needs twice the unit's gradient for a moment. Under no_sync the result is
 * added to the flat gradient that is already there. */
void lower_FLATTEN(struct lowering *l)
{
	struct live *live = live_of(l);
	int64_t bytes = unit_of(l)->trained_elements * compute_bytes(l);
	l->op.bytes = 2 * bytes;
	give_range_gradients(l);
	int flat = op_take_on(l, BUFFER_FLAT_GRADIENT, l->op.stream, l->at->unit, bytes,
		l->step->plan->param_dtype);
	if (live->gradient < 0) {
		live->gradient = flat;
		return;
	}
	op_use(l, live->gradient);
	op_give(l, &flat);
	l->op.bytes += 3 * bytes;
}

/* --- what goes into a reduction --------------------------------------------------------------- */

/* The parameters lie one behind the other, aligned. The operation belongs to no unit, because no
 * gradient leaves by it. */
void lower_REDUCE_STREAM(struct lowering *l)
{
	const struct model *model = l->step->model;
	const struct module *module = &model->modules[l->at->first_module];
	int64_t row = runtime_of(l->step->plan->runtime)->alignment_bytes / compute_bytes(l);
	int64_t elements = 0;
	for (int i = 0; i < module->n_parameters; i++)
		elements = round_up(elements, row) +
			   model->parameters[module->first_parameter + i].elements;
	l->op.unit = -1;
	l->op.group = l->step->group_tensor;
	l->op.dtype = gradient_dtype(l);
	l->op.bytes = elements * reduce_bytes(l);
	l->op.layer = module->layer;
	l->op.first_module = l->at->first_module;
	l->op.end_module = l->at->end_module;
	op_use(l, live_of(l)->gradient);
}

/* FSDP2 keeps unsharded gradients in the reduce dtype when it does not synchronise. */
void lower_KEEP_UNSHARDED(struct lowering *l)
{
	struct live *live = live_of(l);
	int64_t elements = unit_of(l)->trained_parameters;
	l->op.bytes = elements * (compute_bytes(l) + reduce_bytes(l));
	give_range_gradients(l);
	if (live->gradient < 0)
		live->gradient = op_take_new(l, BUFFER_GRADIENT, l->at->unit,
			elements * reduce_bytes(l), gradient_dtype(l));
	else
		l->op.bytes += elements * reduce_bytes(l);
	op_use(l, live->gradient);
}

/* FSDP1 casts to the reduce dtype and does the first part of the division, on the reduce stream. */
void lower_CAST_FLAT(struct lowering *l)
{
	struct live *live = live_of(l);
	int64_t n = unit_of(l)->trained_elements;
	bool has_others = l->step->method.shards || l->step->group_replicate >= 0;
	bool is_shard = !l->step->method.shards && is_direct(l);
	l->op.dtype = gradient_dtype(l);
	l->op.bytes = 2 * n * reduce_bytes(l); /* the division reads and writes */
	op_use(l, live->gradient);
	live->reducing = live->gradient;
	if (gradient_dtype(l) == l->step->plan->param_dtype)
		return;
	l->op.bytes += n * (compute_bytes(l) + reduce_bytes(l));
	live->reducing = op_take_on(l, is_shard ? BUFFER_GRADIENT_SHARD : BUFFER_REDUCE_INPUT,
		STREAM_REDUCE, l->at->unit, n * reduce_bytes(l), gradient_dtype(l));
	if (is_shard)
		live->gradient_shard = live->reducing;
	if (!has_others)
		op_give(l, &live->gradient);
}

/* FSDP2 copies gradients, rank by rank, into the reduction's input, on the compute stream. Before
 * that it adds them to what earlier micro-batches left, in the dtype of that. */
void lower_COPY_IN(struct lowering *l)
{
	struct live *live = live_of(l);
	int64_t gathered = unit_of(l)->trained_gathered;
	bool is_kept = live->gradient >= 0 && live->range_gradients.n == 0;
	l->op.dtype = gradient_dtype(l);
	l->op.bytes = gathered * ((is_kept ? reduce_bytes(l) : compute_bytes(l)) + reduce_bytes(l));
	if (live->gradient >= 0 && !is_kept)
		l->op.bytes += 3 * gathered * reduce_bytes(l);
	give_range_gradients(l);
	live->reducing = buffer_new(l->step, BUFFER_REDUCE_INPUT, STREAM_COMPUTE, l->at->unit,
		gathered * reduce_bytes(l), gradient_dtype(l));
	op_take(l, live->reducing);
	op_use(l, live->gradient);
	op_give(l, &live->gradient);
	op_use(l, live->reducing);
}

/* --- reductions ----------------------------------------------------------------------------------
 */

/* Returns what is reduced: what a cast or a copy has made, or else the gradient itself. */
static int input_of(const struct lowering *l)
{
	const struct live *live = &l->units[l->at->unit];
	return live->reducing >= 0 ? live->reducing : live->gradient;
}

/* FSDP1 and our runtime free the input when the reduction ends, FSDP2 only when compute has waited
 * for it. */
void lower_SCATTER(struct lowering *l)
{
	struct live *live = live_of(l);
	bool direct = is_direct(l) && !(l->at->flags & IS_PARTIAL);
	int input = input_of(l);
	l->op.dtype = gradient_dtype(l);
	l->op.bytes = unit_of(l)->trained_gathered * reduce_bytes(l);
	l->op.group = unit_of(l)->of_experts ? l->step->group_expert_shard : l->step->group_reduce;
	int output = buffer_new(l->step, direct ? BUFFER_GRADIENT_SHARD : BUFFER_REDUCE_OUTPUT,
		STREAM_REDUCE, l->at->unit, unit_of(l)->trained_chunk * reduce_bytes(l),
		l->op.dtype);
	if (direct)
		live->gradient_shard = output;
	op_take(l, output);
	op_use(l, input);
	op_use(l, output);
	live->reducing = output;
	if ((l->at->flags & IS_PARTIAL) && live->partial < 0) {
		live->partial = output;
		live->reducing = -1;
	}
	if (l->step->method.copies_out) {
		l->input_in_flight = input;
		return;
	}
	if (live->gradient == input)
		live->gradient = -1;
	op_give(l, &input);
	op_give(l, &live->gradient);
}

/* Adds to the sum over micro-batches of what was reduced over the shard group, in the reduce
 * dtype. */
static void add_to(struct lowering *l, int sum, int *more)
{
	l->op.dtype = gradient_dtype(l);
	l->op.bytes = 3 * unit_of(l)->chunk * reduce_bytes(l);
	op_use(l, *more);
	op_use(l, sum);
	op_give(l, more);
}

void lower_KEEP_PARTIAL(struct lowering *l)
{
	struct live *live = live_of(l);
	add_to(l, live->partial, &live->reducing);
}

void lower_ADD_PARTIAL(struct lowering *l)
{
	struct live *live = live_of(l);
	add_to(l, live->reducing, &live->partial);
}

void lower_REDUCE_REPLICAS(struct lowering *l)
{
	struct live *live = live_of(l);
	int buffer = input_of(l);
	l->op.dtype = gradient_dtype(l);
	l->op.bytes = unit_of(l)->trained_chunk * reduce_bytes(l);
	l->op.group = unit_of(l)->of_experts && !l->step->method.shards
			      ? l->step->group_expert_shard
			      : l->step->group_replicate;
	op_use(l, buffer);
	/* Under NO_SHARD, FSDP1 has cast the flat gradient, which is still in the compute dtype. */
	if (!l->step->method.shards && live->gradient != buffer)
		op_give(l, &live->gradient);
}

/* Does the rest of the division, the cast to the master dtype, and the sum over micro-batches. */
void lower_ACCUMULATE(struct lowering *l)
{
	struct live *live = live_of(l);
	int64_t chunk = unit_of(l)->trained_chunk;
	int reduced = input_of(l);
	l->op.dtype = shard_dtype(l);
	op_use(l, reduced);
	if (l->at->flags & IN_PLACE) {
		l->op.bytes = 2 * chunk * reduce_bytes(l);
		return;
	}
	l->op.bytes = chunk * (reduce_bytes(l) + shard_bytes(l));
	if (live->gradient_shard < 0)
		live->gradient_shard = op_take_on(l, BUFFER_GRADIENT_SHARD, l->op.stream,
			l->at->unit, chunk * shard_bytes(l), shard_dtype(l));
	else
		l->op.bytes += chunk * shard_bytes(l);
	op_use(l, live->gradient_shard);
	if (live->gradient == reduced)
		live->gradient = -1;
	op_give(l, &reduced);
}

/* The next backward begins a gradient of its own. */
void lower_gradient_done(struct live *live)
{
	live->reducing = -1;
	if (live->gradient == live->gradient_shard)
		live->gradient = -1;
}

/* In FSDP2 compute has waited for the last reduction, whose input is released. */
void lower_END_BACKWARD(struct lowering *l)
{
	op_give(l, &l->input_in_flight);
}

/* --- offload -------------------------------------------------------------------------------------
 */

/* The reduced gradient leaves the device. Later ones land beside the first. */
void lower_UNSTAGE(struct lowering *l)
{
	struct live *live = live_of(l);
	lower_gradient_done(live);
	const struct buffer *shard = &l->step->buffers[live->gradient_shard];
	bool is_first = l->at->flags & FIRST;
	int landing = is_first ? l->step->resident[l->at->unit].host_gradient : -1;
	l->op.dtype = shard->dtype;
	l->op.bytes = shard->bytes;
	op_use(l, live->gradient_shard);
	if (landing < 0) {
		landing =
			buffer_new(l->step, is_first ? BUFFER_GRADIENT_SHARD : BUFFER_REDUCE_OUTPUT,
				STREAM_HOST, l->at->unit, l->op.bytes, l->op.dtype);
		op_take(l, landing);
	}
	op_use(l, landing);
	op_give(l, &live->gradient_shard);
	if (is_first)
		live->host_gradient = landing;
	else
		live->reducing = landing;
}

void lower_ADD_ON_HOST(struct lowering *l)
{
	struct live *live = live_of(l);
	const struct buffer *landed = &l->step->buffers[live->reducing];
	l->op.dtype = landed->dtype;
	l->op.bytes = 3 * landed->bytes;
	op_use(l, live->reducing);
	op_use(l, live->host_gradient);
	op_give(l, &live->reducing);
}
