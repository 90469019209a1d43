/* Finds what operations wait for, as positions in the list that is carried out. An index of the
 * shorter list is right for one iteration only, so we find out what it means. */
#include "schedule/fold/folding.h"

static const struct lap *lap_of(const struct folding *f, int op)
{
	return f->laps_of[op] >= 0 ? &f->laps[f->laps_of[op]] : NULL;
}

/* --- blocks --------------------------------------------------------------------------------------
 */

/* Asks about one index of an operation: an operation that it waits for, or the place where a buffer
 * that it gives back or uses was taken. */
struct asking {
	int op;
	enum fold_list list;
	int i;
};

struct slice fold_slice(const struct folding *f, int op, enum fold_list list)
{
	const struct op *o = &f->program->ops[op];
	if (list == WAITS)
		return o->waits;
	if (list == HOST_WAITS)
		return o->host_waits;
	return list == GIVES ? o->gives : o->uses;
}

static struct slice slice_asked(const struct folding *f, struct asking asking)
{
	return fold_slice(f, asking.op, asking.list);
}

static bool is_of_buffer(struct asking asking)
{
	return asking.list == GIVES || asking.list == USES;
}

static int index_asked(const struct folding *f, struct asking asking)
{
	return slice_asked(f, asking).first + asking.i;
}

/* A negative target is an operation of the step before. */
static int target_of(const struct folding *f, struct asking asking)
{
	int item = f->program->indices[index_asked(f, asking)];
	if (!is_of_buffer(asking))
		return item;
	int taker = f->takers[item];
	return taker > asking.op ? taker - f->program->n_ops : taker;
}

/* Returns the same operation of the neighbouring block, -1 if there is none: as many of its kind
 * stand before it. A block at an end, with nothing to prefetch, is shorter than others. */
static int op_beside(const struct folding *f, int op, int by)
{
	const struct op *ops = f->program->ops;
	const struct region *region = &f->regions[op];
	const int *start = f->sweeps[region->sweep].start;
	int n = 0, group = region->group + by;
	for (int x = start[region->group]; x < op; x++)
		n += ops[x].kind == ops[op].kind;
	for (int x = start[group]; x >= 0 && x < f->program->n_ops; x++) {
		if (f->regions[x].sweep != region->sweep || f->regions[x].group != group)
			return -1;
		if (ops[x].kind == ops[op].kind && n-- == 0)
			return x;
	}
	return -1;
}

/* True when the same operation of the neighbouring block waits for the same operation of another
 * block, as far away. */
static bool is_moving(const struct folding *f, struct asking asking, int target, int repeated)
{
	const struct region *region = &f->regions[asking.op], *at = &f->regions[target];
	const int *there = f->sweeps[at->sweep].start;
	int by = region->group < repeated ? 1 : -1;
	struct asking other = asking;
	if (at->group + by < 0 || at->group + by >= f->n_groups)
		return false;
	other.op = op_beside(f, asking.op, by);
	if (other.op < 0 || slice_asked(f, other).count <= asking.i)
		return false;
	int next = target_of(f, other);
	next += next < 0 ? f->program->n_ops : 0;
	return f->regions[next].sweep == at->sweep && f->regions[next].group == at->group + by &&
	       next - there[at->group + by] == target - there[at->group];
}

/* Returns the repeated group between two groups, or the second one if that is repeated itself; else
 * -1. */
static int repeated_between(const struct folding *f, int from, int to)
{
	for (int g = to; g != from; g += to < from ? 1 : -1)
		if (f->run_of[g] >= 0)
			return g;
	return -1;
}

static int position_of_last(const struct folding *f, int target)
{
	const struct lap *lap = lap_of(f, target);
	return f->bases[target] + (lap != NULL ? (lap->times - 1) * lap->n : 0);
}

/* Both operations belong to groups of blocks. If the target moves with the block, it is as far away
 * in the whole list as the shorter list says. */
static int position_across(const struct folding *f, struct asking asking, int target)
{
	int from = f->regions[asking.op].group, to = f->regions[target].group;
	int repeated = repeated_between(f, from, to);
	if (repeated < 0 || !is_moving(f, asking, target, repeated))
		return position_of_last(f, target);
	int at = f->lap_at[f->regions[target].sweep * RUNS_MAX + f->run_of[repeated]];
	if (at < 0)
		return f->bases[target];
	const struct lap *lap = &f->laps[at];
	const struct sweep *sweep = &f->sweeps[lap->sweep];
	int sign = sweep->is_down ? -1 : 1, d = sign * (to - repeated);
	if (sweep->start[to] - lap->first != d * lap->n)
		return f->bases[target];
	int iteration = (from > repeated) != sweep->is_down ? lap->times - 1 : 0;
	return f->bases[lap->first] + (iteration + d) * lap->n + target - sweep->start[to];
}

/* To an operation outside of laps, what is repeated is where it was carried out last. */
static int position_from_outside(const struct folding *f, struct asking asking, int target)
{
	if (f->regions[asking.op].group >= 0 && f->regions[target].group >= 0)
		return position_across(f, asking, target);
	return position_of_last(f, target);
}

/* Returns the last lap between a target and the operation that waits for it in which anything is
 * freed, or NULL. */
static const struct lap *lap_between(const struct folding *f, int op, int target, bool is_before)
{
	const struct lap *before = NULL;
	for (int l = f->n_laps - 1; l >= 0; l--) {
		const struct lap *lap = &f->laps[l];
		if (!lap->frees)
			continue;
		if (lap->first < op && (is_before || lap->first > target))
			return lap;
		if (is_before && lap->first > target && before == NULL)
			before = lap;
	}
	return before;
}

/* The host waits for what was freed a fixed number of frees ago, so behind a lap it waits for what
 * the lap freed. False when the list does not say which free that is. */
static bool find_freed(const struct folding *f, struct asking asking, int target, struct law *law)
{
	const struct lap *lap = lap_between(f, asking.op, target, law->is_before);
	const struct region *region = &f->regions[target];
	law->first = position_of_last(f, target);
	if (lap == NULL)
		return true;
	int start = region->group >= 0 ? f->sweeps[region->sweep].start[region->group] : -1;
	int d = (region->group - lap->group) * (f->sweeps[lap->sweep].is_down ? -1 : 1);
	law->first = f->bases[target] + (lap->times - 1) * lap->n;
	return region->group >= 0 && region->sweep == lap->sweep && -d < lap->times &&
	       start - lap->first == d * lap->n &&
	       f->program->ops[lap->first + target - start].kind == f->program->ops[target].kind;
}

/* The target is `d` groups away from the operation that waits, in each iteration. */
static bool law_of_moving(
	const struct folding *f, const struct lap *lap, int target, int next, struct law *law)
{
	const struct region *region = &f->regions[target];
	if (region->group < 0 || region->sweep != f->regions[next].sweep)
		return false;
	const struct sweep *sweep = &f->sweeps[region->sweep];
	int there = f->lap_at[region->sweep * RUNS_MAX + lap->run];
	int by = (lap->neighbour > 0) != f->sweeps[lap->sweep].is_down ? 1 : -1;
	int d = region->group - lap->group, sign = sweep->is_down ? -1 : 1;
	int start = sweep->start[region->group],
	    start_of_next = sweep->start[f->regions[next].group];
	if (there < 0 || f->regions[next].group != region->group + by ||
		next - start_of_next != target - start)
		return false;
	const struct lap *other = &f->laps[there];
	if (start - other->first != sign * d * other->n)
		return false;
	bool same_way = sweep->is_down == f->sweeps[lap->sweep].is_down;
	int iteration = (same_way ? 0 : other->times - 1) + sign * d;
	law->first = f->bases[other->first] + iteration * other->n + target - start;
	law->inner = same_way ? other->n : -other->n;
	return true;
}

/* An operation of no block gives back the buffers of all blocks, from the first one on. */
static int position_of_taken(const struct folding *f, struct asking asking, int target)
{
	int buffer = f->program->indices[index_asked(f, asking)];
	bool for_all = is_of_buffer(asking) && lap_of(f, target) != NULL &&
		       buffers_at_once(f->program, &f->program->ops[asking.op], buffer) > 1;
	return for_all ? f->bases[target] : position_from_outside(f, asking, target);
}

/* No operation takes a buffer that lives between steps, so there is no place to find. */
static bool is_asked(const struct folding *f, struct asking asking)
{
	if (asking.i >= slice_asked(f, asking).count)
		return false;
	return !is_of_buffer(asking) || f->takers[f->program->indices[index_asked(f, asking)]] >= 0;
}

static bool find_law(const struct folding *f, struct asking asking)
{
	int n_ops = f->program->n_ops, target = target_of(f, asking);
	struct law *law = &f->laws[index_asked(f, asking)];
	const struct lap *lap = lap_of(f, asking.op);
	law->is_before = target < 0;
	target += law->is_before ? n_ops : 0;
	law->inner = 0;
	if (lap == NULL && asking.list == HOST_WAITS && f->n_laps > 0)
		return find_freed(f, asking, target, law);
	if (lap == NULL) {
		law->first = position_of_taken(f, asking, target);
		return true;
	}
	const struct asking beside = {asking.op + lap->neighbour, asking.list, asking.i};
	if (!is_asked(f, beside))
		return false;
	int next = target_of(f, beside);
	if ((next < 0) != law->is_before)
		return false;
	next += next < 0 ? n_ops : 0;
	if (next != target)
		return law_of_moving(f, lap, target, next, law);
	const struct lap *other = lap_of(f, target);
	law->first = position_of_last(f, target);
	return other == NULL || other->run != lap->run;
}

/* --- micro-batches -------------------------------------------------------------------------------
 */

static int micro_batches_behind(const struct folding *f)
{
	return (f->shorter->micro_batch_times - 1) * f->micro_n;
}

/* From outside of the repeated micro-batch, and from the next step, the last one is meant. */
static int position_of(const struct folding *f, int base)
{
	return base >= f->micro_first && f->micro_n > 0 ? base + micro_batches_behind(f) : base;
}

static bool is_in_body(const struct folding *f, int op)
{
	return op >= f->body_first && op < f->body_first + f->body_n;
}

/* True when the first and the last target are on the same side of the repeated micro-batch. */
static bool place_from_outside(
	const struct folding *f, const struct law *law, int times, struct position *place)
{
	int first = position_of(f, law->first), last = law->first + (times - 1) * law->inner;
	*place = (struct position){first, law->inner, 0};
	return position_of(f, last) - first == last - law->first;
}

/* Asks the same of the micro-batch before. `op` is -1 if there is none. */
static struct asking of_micro_batch_before(const struct folding *f, struct asking asking)
{
	const struct op *ops = f->program->ops;
	int m = ops[asking.op].micro_batch;
	struct asking before = asking;
	before.op = -1;
	if (m <= 0)
		return before;
	before.op = asking.op - f->micro_batches[m] + f->micro_batches[m - 1];
	bool same = ops[before.op].kind == ops[asking.op].kind &&
		    ops[before.op].unit == ops[asking.op].unit &&
		    slice_asked(f, before).count > asking.i;
	before.op = same ? before.op : -1;
	return before;
}

/* An operation behind the repeated micro-batch waits for one before it. It is either the operation
 * that the micro-batch before waits for, or one that lies as far back. */
static bool find_place_far_back(const struct folding *f, struct asking asking)
{
	int index = index_asked(f, asking);
	struct asking before = of_micro_batch_before(f, asking);
	if (before.op < 0)
		return asking.list == WAITS; /* it was gathered once and stays */
	int distance = f->laws[index].first - f->laws[index_asked(f, before)].first;
	if (distance == f->micro_n)
		f->program->places[index].first += micro_batches_behind(f);
	return distance == 0 || distance == f->micro_n;
}

static bool find_place_in_body(const struct folding *f, struct asking asking, int times)
{
	struct asking behind = {asking.op + f->body_n, asking.list, asking.i};
	int index = index_asked(f, asking);
	if (!is_asked(f, behind))
		return false;
	const struct law *law = &f->laws[index], *next = &f->laws[index_asked(f, behind)];
	struct position *place = &f->program->places[index];
	if (law->inner != next->inner || law->is_before != next->is_before)
		return false;
	*place = (struct position){law->first, law->inner, 0};
	if (next->first == law->first)
		return place_from_outside(f, law, times, place) &&
		       (law->is_before || law->first < f->micro_first);
	place->outer = f->micro_n;
	return !law->is_before && next->first == law->first + f->micro_n;
}

static bool find_place(const struct folding *f, struct asking asking)
{
	int index = index_asked(f, asking);
	const struct law *law = &f->laws[index];
	struct position *place = &f->program->places[index];
	int times = f->laps_of[asking.op] >= 0 ? f->laps[f->laps_of[asking.op]].times : 1;
	bool is_far_back = asking.op >= f->body_first + f->body_n && f->body_n > 0 &&
			   law->first < f->micro_first && !law->is_before && !is_of_buffer(asking);
	if (is_in_body(f, asking.op) ? !find_place_in_body(f, asking, times)
				     : !place_from_outside(f, law, times, place))
		return false;
	if (is_far_back && !find_place_far_back(f, asking))
		return false;
	if (law->is_before && asking.list == HOST_WAITS && law->first < f->micro_first)
		return false;
	if (law->is_before)
		place->first -= f->program->n_carried_out;
	return true;
}

/* Calls `find` for every index in the lists from `first` to `last`. */
static bool find_all(const struct folding *f, enum fold_list first, enum fold_list last,
	bool (*find)(const struct folding *f, struct asking))
{
	for (int x = 0; x < f->program->n_ops; x++)
		for (enum fold_list list = first; list <= last; list++) {
			struct asking asking = {x, list, 0};
			int n = slice_asked(f, asking).count;
			for (asking.i = 0; asking.i < n; asking.i++)
				if (is_asked(f, asking) && !find(f, asking))
					return false;
		}
	return true;
}

bool fold_find_places(struct folding *f)
{
	f->laws = ARENA_ARRAY(f->arena, struct law, f->program->n_indices);
	f->program->places = ARENA_ARRAY(f->arena, struct position, f->program->n_indices);
	f->program->n_carried_out = f->n_bases + micro_batches_behind(f);
	return find_all(f, WAITS, GIVES, find_law) && find_all(f, WAITS, GIVES, find_place);
}

bool fold_find_uses(const struct folding *f)
{
	return find_all(f, USES, USES, find_law) && find_all(f, USES, USES, find_place);
}
