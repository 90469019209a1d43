/* Lowers what happens to the parameters of units: their shards, copies of these, and what is
 * gathered. */
#include "schedule/passes/lower.h"

static const struct unit *unit_of(const struct lowering *l)
{
	return &l->step->units[l->at->unit];
}

static const struct resident *resident_of(const struct lowering *l)
{
	return &l->step->resident[l->at->unit];
}

static int64_t gathered_bytes(const struct lowering *l)
{
	return unit_whole_bytes(l->step, l->at->unit);
}

void lower_STAGE(struct lowering *l)
{
	struct live *live = live_of(l);
	int shard = resident_of(l)->parameter_shard;
	l->op.dtype = l->step->plan->master_dtype;
	l->op.bytes = l->step->buffers[shard].bytes;
	op_use(l, shard);
	live->staged = op_take_on(
		l, BUFFER_STAGED_SHARD, l->op.stream, l->at->unit, l->op.bytes, l->op.dtype);
	if (l->at->flags & DROPS)
		op_give(l, &live->staged);
}

/* torchao casts eagerly, with a scale that is known already: the product with it, the clamp and the
 * cast to fp8 move 4 + 4, 4 + 4 and 4 + 1 bytes an element (fsdp_utils.py, fsdp_pre_all_gather). */
static int64_t fp8_cast_bytes(int64_t elements)
{
	return elements * (5 * dtype_bytes(DTYPE_FP32) + dtype_bytes(DTYPE_FP8));
}

/* Casts the shard from the master dtype to the compute dtype, or to fp8, which is what the gather
 * reads. */
void lower_CAST_SHARD(struct lowering *l)
{
	struct live *live = live_of(l);
	int64_t chunk = unit_of(l)->chunk, frozen = chunk - unit_of(l)->trained_chunk;
	int64_t ranks = unit_shard_ranks(unit_of(l), l->step->plan);
	int64_t low = unit_of(l)->fp8_elements / ranks;
	l->op.bytes = (master_bytes(l) + compute_bytes(l)) * (unit_of(l)->trained_chunk - low) +
		      fp8_cast_bytes(low) + 2 * compute_bytes(l) * frozen;
	op_use(l, live->staged >= 0 ? live->staged : resident_of(l)->parameter_shard);
	op_give(l, &live->staged);
	live->low_precision = op_take_on(l, BUFFER_LOW_PRECISION_SHARD, l->op.stream, l->at->unit,
		unit_whole_bytes(l->step, l->at->unit) / ranks, l->step->plan->param_dtype);
	if (l->at->flags & DROPS)
		op_give(l, &live->low_precision);
}

void lower_COPY_WHOLE(struct lowering *l)
{
	l->op.bytes = (master_bytes(l) + compute_bytes(l)) * unit_of(l)->gathered;
	op_use(l, resident_of(l)->parameter_shard);
	live_of(l)->unsharded = op_take_on(l, BUFFER_COMPUTE_COPY, l->op.stream, l->at->unit,
		gathered_bytes(l), l->step->plan->param_dtype);
}

/* Uses what the gather reads; what was made for the gather ends with it. FSDP2 frees the part of a
 * smaller group when it has been copied out. */
static void use_shard(struct lowering *l)
{
	struct live *live = live_of(l);
	int *made = live->low_precision >= 0 ? &live->low_precision : &live->staged;
	if (live->resharded >= 0) {
		op_use(l, live->resharded);
		if (!l->step->method.copies_out)
			op_give(l, &live->resharded);
		return;
	}
	op_use(l, *made >= 0 ? *made : resident_of(l)->parameter_shard);
	op_give(l, made);
}

void lower_GATHER(struct lowering *l)
{
	bool copies = l->step->method.copies_out;
	int *output = copies ? &live_of(l)->gathered : &live_of(l)->unsharded;
	enum buffer_role role = copies ? BUFFER_GATHERED : BUFFER_UNSHARDED;
	int kept = resident_of(l)->kept, buffer = kept;
	l->op.bytes = gathered_bytes(l);
	l->op.group = live_of(l)->resharded >= 0 ? l->step->group_reshard[l->at->unit]
		      : unit_of(l)->of_experts   ? l->step->group_expert_shard
						 : l->step->group_gather;
	if (kept < 0) {
		buffer = buffer_new(l->step, role, STREAM_GATHER, l->at->unit, l->op.bytes,
			l->step->plan->param_dtype);
		op_take(l, buffer);
	}
	use_shard(l);
	op_use(l, buffer);
	*output = buffer;
}

/* FSDP2 copies parameters out of the gathered buffer on the compute stream. In implicit forward
 * mode the buffer of the unit before is released only here (docs/runtimes.md). */
void lower_COPY_OUT(struct lowering *l)
{
	struct live *live = live_of(l);
	bool implicit = !(l->at->flags & IN_BACKWARD) && !l->step->plan->forward_prefetch;
	l->op.bytes = 2 * gathered_bytes(l);
	live->unsharded = buffer_new(l->step, BUFFER_UNSHARDED, STREAM_COMPUTE, l->at->unit,
		gathered_bytes(l), l->step->plan->param_dtype);
	op_take(l, live->unsharded);
	op_use(l, live->gathered);
	op_use(l, live->unsharded);
	op_give(l, &l->implicit_gathered);
	if (implicit)
		l->implicit_gathered = live->gathered;
	else
		op_give(l, &live->gathered);
	op_give(l, &live->resharded);
	live->gathered = -1;
}

/* In FSDP2 with a group size each rank keeps 1/k of the unit (docs/runtimes.md). */
static void keep_part(struct lowering *l)
{
	struct live *live = live_of(l);
	live->resharded = buffer_new(l->step, BUFFER_RESHARDED, STREAM_COMPUTE, l->at->unit,
		gathered_bytes(l) / unit_of(l)->reshard_group, l->step->plan->param_dtype);
	op_take(l, live->resharded);
	op_use(l, live->unsharded);
	op_use(l, live->resharded);
}

void lower_RESHARD(struct lowering *l)
{
	struct live *live = live_of(l);
	int *freed = live->unsharded >= 0 ? &live->unsharded : &live->resharded;
	if (l->at->flags & KEEPS_PART)
		keep_part(l);
	op_use(l, *freed);
	op_give(l, freed);
	if (l->at->flags & RELEASES_INPUT)
		op_give(l, &l->input_in_flight);
}

/* --- DDP and ZeRO with whole parameters ----------------------------------------------------------
 */

void lower_CAST_RANGE(struct lowering *l)
{
	int range = l->at->range;
	int64_t elements = range_parameters(l->step, range);
	op_set_range(l, range);
	l->op.bytes = elements * (master_bytes(l) + compute_bytes(l));
	int copy = buffer_new(l->step, BUFFER_COMPUTE_COPY, STREAM_COMPUTE, -1,
		elements * compute_bytes(l), l->step->plan->param_dtype);
	l->step->buffers[copy].layer = l->step->ranges[range].layer;
	op_take(l, copy);
	op_use_bucket_weights(l, range, -1);
	op_use(l, copy);
	flight_of(l)->copies[range] = copy;
}

/* The updated master comes in on compute's stream, where it is cast. */
void lower_STAGE_MASTER(struct lowering *l)
{
	int master = resident_of(l)->master_shard;
	l->op.dtype = l->step->plan->master_dtype;
	l->op.bytes = l->step->buffers[master].bytes;
	op_use(l, master);
	live_of(l)->staged =
		op_take_new(l, BUFFER_STAGED_SHARD, l->at->unit, l->op.bytes, l->op.dtype);
}

/* While parts are gathered in copies, there are the rank's own part, the part of each rank, and all
 * of them once more, because ProcessGroupNCCL wants lists. They are filled, brought in order and
 * copied back. */
static void take_copies(struct lowering *l, int64_t part)
{
	enum { PASSES = 6 };
	int64_t ranks = l->step->schedule->groups[l->step->group_gather].size;
	for (int64_t i = 0; i < ranks + 2; i++) {
		int64_t bytes = i <= ranks ? part : ranks * part;
		int copy = op_take_new(l, BUFFER_LOW_PRECISION_SHARD, -1, bytes, l->op.dtype);
		op_give(l, &copy);
	}
	l->op.bytes += PASSES * ranks * part;
}

/* Casts to fp8 by way of a copy of everything in the compute dtype. With one scale for a tensor,
 * its largest element is found in a pass of its own (Transformer Engine, quantize_master_weights).
 */
static void cast_to_fp8(struct lowering *l)
{
	int64_t copied = 0, width = compute_bytes(l),
		passes = l->step->plan->fp8 == FP8_DELAYED ? 1 : 2;
	for (int u = 0; u < l->step->n_units; u++)
		if (unit_is_trained(l->step, u))
			copied += l->step->units[u].fp8_elements /
				  unit_shard_ranks(&l->step->units[u], l->step->plan);
	if (copied == 0)
		return;
	int copy = op_take_new(
		l, BUFFER_LOW_PRECISION_SHARD, -1, copied * width, l->step->plan->param_dtype);
	op_give(l, &copy);
	l->op.bytes += copied * passes * width + fp8_bytes(l->step->plan, copied);
}

/* Updated shards are cast into the rank's part of the whole parameters. */
void lower_CAST_WHOLE(struct lowering *l)
{
	int64_t chunks = 0;
	for (int u = 0; u < l->step->n_units; u++) {
		struct live *live = &l->units[u];
		op_use_another(
			l, live->staged >= 0 ? live->staged : l->step->resident[u].parameter_shard);
		op_give(l, &live->staged);
		chunks += l->step->units[u].trained_chunk;
	}
	l->op.bytes = chunks * (master_bytes(l) + compute_bytes(l));
	cast_to_fp8(l);
	op_use(l, l->step->whole);
	const struct zero_rules *zero = runtime_of(l->step->plan->runtime)->zero;
	if (l->step->group_gather >= 0 && zero != NULL && zero->copies_gathered)
		take_copies(l, chunks * compute_bytes(l));
}

/* Updated shards are cast into the rank's part of each bucket. */
void lower_CAST_BUCKETS(struct lowering *l)
{
	lower_CAST_WHOLE(l);
	for (int u = 0; u < l->step->n_units; u++)
		op_use_another(l, l->step->resident[u].whole);
}

/* The whole parameters are gathered in place. */
void lower_GATHER_WHOLE(struct lowering *l)
{
	l->op.bytes = l->step->buffers[l->step->whole].bytes;
	l->op.group = l->step->group_gather;
	op_use(l, l->step->whole);
}

/* --- offload -------------------------------------------------------------------------------------
 */

void lower_RETURN_SHARD(struct lowering *l)
{
	const struct resident *resident = resident_of(l);
	l->op.bytes = l->step->buffers[resident->parameter_shard].bytes;
	op_use(l, resident->host_copy >= 0 ? resident->host_copy : resident->master_shard);
	op_use(l, resident->parameter_shard);
}
