/* Finds what repeats in the list of the shorter question: the sweeps over its blocks, and in each
 * sweep the operations of the block that stands for others. These must be like the operations of
 * its neighbour. */
#include "schedule/fold/folding.h"

#include <string.h>

/* --- groups of blocks ----------------------------------------------------------------------------
 */

static bool is_repeated(const struct shorter *shorter, int layer)
{
	return shorter->times[layer] > 1;
}

/* A group begins with every period-th block. */
static void make_groups(struct folding *f)
{
	const struct shorter *shorter = f->shorter;
	int n = (int)shorter->model.architecture.layers, period = shorter->period, run = 0;
	f->group_of = ARENA_ARRAY(f->arena, int, n);
	f->run_of = ARENA_ARRAY(f->arena, int, n);
	for (int l = 0; l < n; l++)
		f->group_of[l] = l / period;
	f->n_groups = (n + period - 1) / period;
	for (int g = 0; g < f->n_groups; g++)
		f->run_of[g] = is_repeated(shorter, g * period) ? run++ : -1;
}

static int group_of_unit(const struct folding *f, int unit)
{
	int layer =
		unit >= 0 ? f->shorter->model.modules[f->program->units[unit].module].layer : -1;
	return layer >= 0 ? f->group_of[layer] : -1;
}

/* --- sweeps --------------------------------------------------------------------------------------
 */

static void add_sweep(struct folding *f, bool is_down)
{
	if (f->n_sweeps == f->sweep_capacity)
		return;
	struct sweep *sweep = &f->sweeps[f->n_sweeps++];
	sweep->start = ARENA_ARRAY(f->arena, int, f->n_groups);
	memset(sweep->start, -1, (size_t)f->n_groups * sizeof(int));
	sweep->is_down = is_down;
}

static bool is_backward(const struct op *op)
{
	return op_kind_is_backward(op->kind) || op->kind == OP_RECOMPUTE;
}

/* An operation belongs to the group of the block that it computes, or of the block whose hook
 * issued it. */
static int group_of_op(const struct folding *f, const struct op *op)
{
	if (op->layer >= 0)
		return f->group_of[op->layer];
	return group_of_unit(f, op->cause >= 0 ? op->cause : op->unit);
}

/* What follows the last group of the last sweep belongs to no block, so this group is taken to be
 * as long as the one before it. */
static void end_sweep(struct folding *f, int group, int end)
{
	const struct sweep *sweep = &f->sweeps[f->n_sweeps - 1];
	int before = sweep->is_down ? group + 1 : group - 1;
	if (group < 0 || before < 0 || before >= f->n_groups || sweep->start[before] < 0)
		return;
	bool is_part = (group + 1) * f->shorter->period > f->shorter->model.architecture.layers;
	int n = is_part ? 0 : sweep->start[group] - sweep->start[before];
	for (int x = sweep->start[group] + n; x < end; x++)
		f->regions[x].group = -1;
}

static void find_sweeps(struct folding *f)
{
	int micro_batch = -2, group = -1;
	bool is_down = false;
	for (int x = 0; x < f->program->n_ops; x++) {
		const struct op *op = &f->program->ops[x];
		bool turns = op->micro_batch != micro_batch;
		bool goes_down = !turns && (is_down || (micro_batch >= 0 && is_backward(op)));
		int here = group_of_op(f, op);
		if (turns || goes_down != is_down ||
			(micro_batch < 0 && here >= 0 && here < group)) {
			if (f->n_sweeps > 0)
				end_sweep(f, group, x);
			add_sweep(f, goes_down);
			group = -1;
		}
		micro_batch = op->micro_batch;
		is_down = goes_down;
		struct sweep *sweep = &f->sweeps[f->n_sweeps - 1];
		if (here >= 0 && (group < 0 || (is_down ? here < group : here > group))) {
			group = here;
			sweep->start[group] = x;
		}
		f->regions[x] = (struct region){f->n_sweeps - 1, group};
	}
	end_sweep(f, group, f->program->n_ops);
}

/* --- laps ----------------------------------------------------------------------------------------
 */

/* A number either goes on with the block or stays the same. */
static bool goes_on(int one, int two, int step)
{
	return two == one || two == one + step;
}

static bool buffers_are_alike(const struct folding *f, struct slice one, struct slice two)
{
	const int *a = slice_of(f->program, one), *b = slice_of(f->program, two);
	if (one.count != two.count)
		return false;
	for (int i = 0; i < one.count; i++) {
		const struct buffer *p = &f->program->buffers[a[i]],
				    *q = &f->program->buffers[b[i]];
		if (p->role != q->role || p->pool != q->pool || p->bytes != q->bytes ||
			p->dtype != q->dtype)
			return false;
	}
	return true;
}

static bool ops_are_alike(const struct folding *f, const struct op *one, const struct op *two)
{
	return one->kind == two->kind && one->stream == two->stream && one->bytes == two->bytes &&
	       one->rounds == two->rounds && one->group == two->group && one->dtype == two->dtype &&
	       one->waits.count == two->waits.count &&
	       one->host_waits.count == two->host_waits.count &&
	       (one->unit < 0) == (two->unit < 0) && (one->cause < 0) == (two->cause < 0) &&
	       one->end_module - one->first_module == two->end_module - two->first_module &&
	       buffers_are_alike(f, one->takes, two->takes) &&
	       buffers_are_alike(f, one->gives, two->gives);
}

/* Units and causes must go on exactly as blocks do, or not at all. */
static bool blocks_go_on(
	const struct folding *f, const struct op *one, const struct op *two, int by)
{
	int units = group_of_unit(f, two->unit) - group_of_unit(f, one->unit);
	int causes = group_of_unit(f, two->cause) - group_of_unit(f, one->cause);
	return one->micro_batch == two->micro_batch &&
	       goes_on(one->layer, two->layer, by * f->shorter->period) && goes_on(0, units, by) &&
	       (units != 0 || one->unit == two->unit) && goes_on(0, causes, by);
}

static bool copies_are_alike(const struct folding *f, const struct lap *lap, int distance, int by)
{
	if (lap->first + distance < 0 || lap->first + lap->n + distance > f->program->n_ops)
		return false;
	for (int x = lap->first; x < lap->first + lap->n; x++) {
		const struct op *one = &f->program->ops[x], *two = one + distance;
		if (!ops_are_alike(f, one, two) || !blocks_go_on(f, one, two, by))
			return false;
	}
	return true;
}

static int start_of(const struct sweep *sweep, int group, int n_groups)
{
	return group >= 0 && group < n_groups ? sweep->start[group] : -1;
}

static bool add_lap(struct folding *f, int s, int group)
{
	const struct sweep *sweep = &f->sweeps[s];
	int by = sweep->is_down ? -1 : 1, run = f->run_of[group];
	int first = sweep->start[group], next = start_of(sweep, group + by, f->n_groups);
	int behind = start_of(sweep, group + 2 * by, f->n_groups);
	int before = start_of(sweep, group - by, f->n_groups);
	struct lap lap = {.first = first,
		.n = next - first,
		.times = f->shorter->times[group * f->shorter->period],
		.sweep = s,
		.group = group,
		.run = run};
	if (next < 0 || f->n_laps == f->lap_capacity)
		return false;
	if (behind - next == lap.n && copies_are_alike(f, &lap, lap.n, by))
		lap.neighbour = lap.n;
	else if (before >= 0 && first - before == lap.n && copies_are_alike(f, &lap, -lap.n, -by))
		lap.neighbour = -lap.n;
	else
		return false;
	if (f->frees_pending[next] != f->frees_pending[first])
		return false;
	f->lap_at[s * RUNS_MAX + run] = f->n_laps;
	for (int x = first; x < next; x++) {
		f->laps_of[x] = f->n_laps;
		lap.frees = lap.frees || f->program->ops[x].kind == OP_RESHARD;
	}
	f->laps[f->n_laps++] = lap;
	return true;
}

static bool find_laps(struct folding *f)
{
	for (int s = 0; s < f->n_sweeps; s++)
		for (int i = 0; i < f->n_groups; i++) {
			int group = f->sweeps[s].is_down ? f->n_groups - 1 - i : i;
			if (f->run_of[group] >= 0 && f->sweeps[s].start[group] >= 0 &&
				!add_lap(f, s, group))
				return false;
		}
	return true;
}

/* Tensor ranks add up the gradients that they have alike leaf by leaf, behind all blocks of a unit.
 * If a unit holds several blocks, this is no part of a block's sweep, and blocks are not folded. */
static bool leaves_are_in_laps(const struct folding *f)
{
	const struct shorter *shorter = f->shorter;
	for (int x = 0; x < f->program->n_ops; x++) {
		const struct op *op = &f->program->ops[x];
		if (op->kind != OP_ALL_REDUCE || op->end_module == 0 || f->laps_of[x] >= 0)
			continue;
		int layer = shorter->model.modules[op->first_module].layer;
		if (layer >= 0 && is_repeated(shorter, layer))
			return false;
	}
	return true;
}

static void find_bases(struct folding *f)
{
	int base = 0;
	for (int x = 0; x < f->program->n_ops; x++) {
		int lap = f->laps_of[x];
		f->bases[x] = base++;
		if (lap >= 0 && x == f->laps[lap].first + f->laps[lap].n - 1)
			base += (f->laps[lap].times - 1) * f->laps[lap].n;
	}
	f->bases[f->program->n_ops] = f->n_bases = base;
}

/* --- micro-batches -------------------------------------------------------------------------------
 */

/* Also finds what follows the last of them. */
static void find_first_of_micro_batches(struct folding *f)
{
	int n = 0, end = (int)f->shorter->plan.grad_accum;
	f->micro_batches = ARENA_ARRAY(f->arena, int, end + 1);
	for (int x = 0; x < f->program->n_ops && n <= end; x++)
		if (f->program->ops[x].micro_batch == (n < end ? n : -1))
			f->micro_batches[n++] = x;
	if (n == end)
		f->micro_batches[n] = f->program->n_ops;
}

static bool micro_batches_are_alike(const struct folding *f, int one, int two, int n)
{
	for (int i = 0; i < n; i++) {
		const struct op *a = &f->program->ops[one + i], *b = &f->program->ops[two + i];
		if (!ops_are_alike(f, a, b) || a->unit != b->unit || a->layer != b->layer ||
			a->cause != b->cause || a->first_module != b->first_module ||
			b->micro_batch != a->micro_batch + 1 ||
			(f->laps_of[one + i] >= 0) != (f->laps_of[two + i] >= 0))
			return false;
	}
	return true;
}

static bool find_micro_batch(struct folding *f)
{
	int m = f->shorter->first_micro_batch;
	if (m < 0)
		return true;
	find_first_of_micro_batches(f);
	int first = f->micro_batches[m], next = f->micro_batches[m + 1];
	int behind = f->micro_batches[m + 2];
	f->body_first = first;
	f->body_n = next - first;
	f->micro_first = f->bases[first];
	f->micro_n = f->bases[next] - f->bases[first];
	return behind - next == next - first && f->bases[behind] - f->bases[next] == f->micro_n &&
	       micro_batches_are_alike(f, first, next, f->body_n);
}

/* --- buffers -------------------------------------------------------------------------------------
 */

static void find_takers(struct folding *f)
{
	const struct program *program = f->program;
	f->takers = ARENA_ARRAY(f->arena, int, program->n_buffers);
	memset(f->takers, -1, (size_t)program->n_buffers * sizeof(int));
	for (int x = 0; x < program->n_ops; x++)
		for (int i = 0; i < program->ops[x].takes.count; i++)
			f->takers[slice_of(program, program->ops[x].takes)[i]] = x;
}

/* A buffer that lives between steps exists once for every unit, and one that a loop takes once for
 * every iteration. */
static void find_times(struct folding *f)
{
	for (int b = 0; b < f->program->n_buffers; b++) {
		struct buffer *buffer = &f->program->buffers[b];
		int taker = f->takers[b];
		if (buffer->resident && buffer->unit >= 0)
			buffer->times = f->program->units[buffer->unit].times;
		else if (taker >= 0 && f->laps_of[taker] >= 0)
			buffer->times = f->laps[f->laps_of[taker]].times;
	}
}

bool fold_find_loops(struct folding *f)
{
	int n_ops = f->program->n_ops;
	make_groups(f);
	f->sweep_capacity = 2 * (int)f->shorter->plan.grad_accum + 8;
	f->sweeps = ARENA_ARRAY(f->arena, struct sweep, f->sweep_capacity);
	f->lap_capacity = f->sweep_capacity * RUNS_MAX;
	f->laps = ARENA_ARRAY(f->arena, struct lap, f->lap_capacity);
	f->lap_at = ARENA_ARRAY(f->arena, int, f->lap_capacity);
	memset(f->lap_at, -1, (size_t)f->lap_capacity * sizeof(int));
	f->regions = ARENA_ARRAY(f->arena, struct region, n_ops);
	f->laps_of = ARENA_ARRAY(f->arena, int, n_ops);
	memset(f->laps_of, -1, (size_t)n_ops * sizeof(int));
	f->bases = ARENA_ARRAY(f->arena, int, n_ops + 1);
	find_sweeps(f);
	if (f->n_sweeps == f->sweep_capacity || !find_laps(f) || !leaves_are_in_laps(f))
		return false;
	find_bases(f);
	find_takers(f);
	find_times(f);
	return find_micro_batch(f);
}
