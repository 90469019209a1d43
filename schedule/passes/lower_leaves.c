/* DeepSpeed's ZeRO-3 gathers leaves alone or side by side, and collects their gradients. */
#include "schedule/passes/lower.h"

static const int *leaves_of(const struct lowering *l)
{
	return l->step->lists.items + l->at->units.first;
}

static int64_t elements_of(const struct lowering *l)
{
	int64_t elements = 0;
	for (int i = 0; i < l->at->units.count; i++)
		elements += l->step->units[leaves_of(l)[i]].gathered;
	return elements;
}

static int64_t leaf_bytes(const struct lowering *l)
{
	return l->step->units[l->at->unit].gathered * compute_bytes(l);
}

/* --- parameters ----------------------------------------------------------------------------------
 */

void lower_GATHER_LEAF(struct lowering *l)
{
	l->op.bytes = leaf_bytes(l);
	l->op.group = l->step->group_gather;
	op_use(l, l->step->resident[l->at->unit].low_precision);
	live_of(l)->unsharded = op_take_on(l, BUFFER_UNSHARDED, STREAM_GATHER, l->at->unit,
		l->op.bytes, l->step->plan->param_dtype);
}

void lower_PACK_LEAVES(struct lowering *l)
{
	int64_t bytes = elements_of(l) * compute_bytes(l);
	l->op.bytes = 2 * bytes / plan_shard_ranks(l->step->plan);
	for (int i = 0; i < l->at->units.count; i++)
		op_use(l, l->step->resident[leaves_of(l)[i]].low_precision);
	int flat = op_take_on(
		l, BUFFER_GATHERED, STREAM_GATHER, -1, bytes, l->step->plan->param_dtype);
	for (int i = 0; i < l->at->units.count; i++)
		l->units[leaves_of(l)[i]].gathered = flat;
}

void lower_GATHER_LEAVES(struct lowering *l)
{
	l->op.bytes = elements_of(l) * compute_bytes(l);
	l->op.group = l->step->group_gather;
	op_use(l, l->units[leaves_of(l)[0]].gathered);
}

void lower_UNPACK_LEAF(struct lowering *l)
{
	struct live *live = live_of(l);
	int kept = l->step->resident[l->at->unit].kept;
	l->op.bytes = 2 * leaf_bytes(l);
	op_use(l, live->gathered);
	live->unsharded = kept;
	if (kept < 0) {
		live->unsharded = buffer_new(l->step, BUFFER_UNSHARDED, STREAM_GATHER, l->at->unit,
			leaf_bytes(l), l->step->plan->param_dtype);
		op_take(l, live->unsharded);
	}
	op_use(l, live->unsharded);
	if (l->at->flags & LAST)
		op_give(l, &live->gathered);
	live->gathered = -1;
}

void lower_RELEASE_LEAF(struct lowering *l)
{
	op_use(l, live_of(l)->unsharded);
	op_give(l, &live_of(l)->unsharded);
}

void lower_CAST_LEAVES(struct lowering *l)
{
	int64_t chunks = 0;
	for (int u = 0; u < l->step->n_units; u++) {
		if (!unit_has_parameters(l->step, u))
			continue;
		op_use_another(l, l->step->resident[u].parameter_shard);
		op_use_another(l, l->step->resident[u].low_precision);
		chunks += l->step->units[u].chunk;
	}
	l->op.bytes = chunks * (master_bytes(l) + compute_bytes(l));
}

/* --- gradients -----------------------------------------------------------------------------------
 */

void lower_COLLECT_LEAF(struct lowering *l)
{
	struct numbers *gradients = &live_of(l)->range_gradients;
	l->op.unit = -1;
	l->op.bytes = 2 * leaf_bytes(l);
	for (int i = 0; i < gradients->n; i++) {
		op_use(l, gradients->items[i]);
		op_give(l, &gradients->items[i]);
	}
	gradients->n = 0;
	op_use(l, l->step->collector);
}

void lower_CAST_COLLECTED(struct lowering *l)
{
	enum dtype dtype = l->step->plan->reduce_dtype;
	int64_t reduce = dtype_bytes(dtype), elements = elements_of(l);
	l->op.dtype = dtype;
	l->op.bytes = elements * (compute_bytes(l) + 3 * reduce); /* cast and division */
	op_use(l, l->step->collector);
	l->collector =
		op_take_on(l, BUFFER_REDUCE_INPUT, STREAM_REDUCE, -1, elements * reduce, dtype);
}

void lower_SCATTER_COLLECTED(struct lowering *l)
{
	enum dtype dtype = l->step->plan->reduce_dtype;
	l->op.dtype = dtype;
	l->op.bytes = l->step->buffers[l->collector].bytes;
	l->op.group = l->step->group_reduce;
	op_use(l, l->collector);
	for (int i = 0; i < l->at->units.count; i++) {
		int unit = leaves_of(l)[i];
		l->units[unit].reducing = buffer_new(l->step, BUFFER_REDUCE_OUTPUT, STREAM_REDUCE,
			unit, l->step->units[unit].chunk * dtype_bytes(dtype), dtype);
		op_take(l, l->units[unit].reducing);
		op_use_another(l, l->units[unit].reducing);
	}
	op_give(l, &l->collector);
}

void lower_ADD_PARTITIONS(struct lowering *l)
{
	l->op.dtype = l->step->plan->param_dtype;
	for (int i = 0; i < l->at->units.count; i++) {
		struct live *live = &l->units[leaves_of(l)[i]];
		int64_t partition = l->step->buffers[live->gradient_shard].bytes;
		l->op.bytes += l->step->buffers[live->reducing].bytes +
			       (l->at->micro_batch > 0 ? 2 : 1) * partition;
		op_use_another(l, live->reducing);
		op_use_another(l, live->gradient_shard);
		op_give(l, &live->reducing);
	}
}

void lower_END_PARTITIONS(struct lowering *l)
{
	(void)l; /* compute waits, and nothing else happens */
}
