/* Numbers units, layers, modules and the buffers that live between steps as in the whole step.
 * Numbers of a repeated group of blocks go on with the group. */
#include "schedule/fold/listing.h"

/* --- their numbers in the whole step ---------------------------------------------------------- */

static int group_of_unit(const struct listing_work *w, int unit)
{
	const struct folding *f = w->f;
	int layer = f->shorter->model.modules[f->program->units[unit].module].layer;
	return layer >= 0 ? f->group_of[layer] : -1;
}

static int group_of_buffer(const struct listing_work *w, int buffer)
{
	int unit = w->f->program->buffers[buffer].unit;
	return unit >= 0 ? group_of_unit(w, unit) : -1;
}

static int group_of(const struct listing_work *w, enum space space, int value)
{
	const struct folding *f = w->f;
	int layer = value;
	switch (space) {
	case UNITS:
		return group_of_unit(w, value);
	case RESIDENTS:
		return group_of_buffer(w, value);
	case MODULES:
		layer = f->shorter->model.modules[value].layer;
		return layer >= 0 ? f->group_of[layer] : -1;
	case LAYERS:
		break;
	}
	return layer / f->shorter->period; /* the end of the last block has a number too */
}

static bool is_run(const struct folding *f, int group)
{
	return group >= 0 && group < f->n_groups && f->run_of[group] >= 0;
}

static int times_of(const struct folding *f, int group)
{
	return is_run(f, group) ? f->shorter->times[group * f->shorter->period] : 1;
}

/* Returns the group's number in the whole step; for a repeated group that of its first copy. */
static int whole_group(const struct folding *f, int group)
{
	int whole = group;
	for (int g = 0; g < group && g < f->n_groups; g++)
		whole += times_of(f, g) - 1;
	return whole;
}

/* Gives numbers to [0, n). The copies of a repeated group get numbers one after the other. */
static bool number_all(struct listing_work *w, enum space space, int n)
{
	struct numbering *numbering = &w->spaces[space];
	int whole = 0;
	numbering->first = ARENA_ARRAY(w->f->arena, int, n);
	for (int i = 0; i < n; i++) {
		int group = group_of(w, space, i), end = i + 1;
		if (!is_run(w->f, group)) {
			numbering->first[i] = whole++;
			continue;
		}
		while (end < n && group_of(w, space, end) == group)
			end++;
		int *by = &numbering->by[w->f->run_of[group]];
		if (*by != 0)
			return false;
		*by = end - i;
		for (int k = i; k < end; k++)
			numbering->first[k] = whole++;
		whole += (times_of(w->f, group) - 1) * *by;
		i = end - 1;
	}
	numbering->n = whole;
	return true;
}

static int count_residents(const struct program *program)
{
	int n = 0;
	while (n < program->n_buffers && program->buffers[n].resident)
		n++;
	return n;
}

bool listing_find_spaces(struct listing_work *w)
{
	const struct folding *f = w->f;
	const struct model *model = &f->shorter->model;
	return number_all(w, UNITS, f->program->n_units) &&
	       number_all(w, LAYERS, (int)model->architecture.layers + 1) &&
	       number_all(w, MODULES, model->n_modules) &&
	       number_all(w, RESIDENTS, count_residents(f->program));
}

/* --- what an operation names ---------------------------------------------------------------------
 */

/* Returns the value in the shorter list, or -1 if the operation names nothing. */
static int value_of(const struct listing_work *w, int op, struct named named)
{
	const struct program *program = w->f->program;
	const struct op *o = &program->ops[op];
	struct slice slice = named.what == OF_USED ? o->uses : o->takes;
	if (named.what == OF_OP) {
		const int values[] = {
			o->unit, o->layer, o->end_module > o->first_module ? o->first_module : -1};
		return values[named.space];
	}
	if (named.what == OF_CAUSE)
		return o->cause;
	if (named.i >= slice.count)
		return -1;
	int buffer = slice_of(program, slice)[named.i];
	const struct buffer *b = &program->buffers[buffer];
	const int values[] = {
		b->unit, b->layer, b->end_module > b->first_module ? b->first_module : -1, buffer};
	return values[named.space];
}

static struct going stays(const struct listing_work *w, enum space space, int value)
{
	const struct numbering *numbering = &w->spaces[space];
	int group = group_of(w, space, value), last = 0;
	if (is_run(w->f, group))
		last = (times_of(w->f, group) - 1) * numbering->by[w->f->run_of[group]];
	return (struct going){numbering->first[value] + last, 0};
}

/* Finds the name in each iteration: it is as many groups away from the repeated one as in the
 * shorter list. */
static bool name_in_lap(
	const struct listing_work *w, int op, struct named named, int value, struct going *going)
{
	const struct folding *f = w->f;
	const struct lap *lap = &f->laps[f->laps_of[op]];
	const struct numbering *numbering = &w->spaces[named.space];
	int next = value_of(w, op + lap->neighbour, named);
	int group = group_of(w, named.space, value), by = numbering->by[lap->run];
	bool is_down = f->sweeps[lap->sweep].is_down;
	int beside = (lap->neighbour > 0) != is_down ? 1 : -1;
	if (next == value) {
		*going = stays(w, named.space, value);
		return !is_run(f, group);
	}
	if (next - value != beside * by || group < 0)
		return false;
	int first = is_down ? lap->times - 1 : 0, behind = group > lap->group ? lap->times - 1 : 0;
	*going =
		(struct going){numbering->first[value] + (first - behind) * by, is_down ? -by : by};
	return true;
}

/* Returns the repeated group between two groups, or the second one if that is repeated itself; else
 * -1. */
static int repeated_between(const struct folding *f, int from, int to)
{
	for (int g = to; g != from; g += to < from ? 1 : -1)
		if (is_run(f, g))
			return g;
	return -1;
}

/* True when the operation names another group than its own, and the same operation of the block
 * beside it names the group beside that one. */
static bool is_moving(
	const struct listing_work *w, int op, struct named named, int value, int repeated)
{
	const struct folding *f = w->f;
	const struct region *region = &f->regions[op];
	const int *start = f->sweeps[region->sweep].start;
	int by = region->group < repeated ? 1 : -1, beside = region->group + by;
	if (beside < 0 || beside >= f->n_groups || start[beside] < 0)
		return false;
	int other = op + start[beside] - start[region->group];
	if (other < 0 || other >= f->program->n_ops)
		return false;
	return value_of(w, other, named) - value ==
	       by * w->spaces[named.space].by[f->run_of[repeated]];
}

static struct going name_outside(
	const struct listing_work *w, int op, struct named named, int value)
{
	const struct folding *f = w->f;
	const struct numbering *numbering = &w->spaces[named.space];
	int from = f->regions[op].group, to = group_of(w, named.space, value);
	int repeated = from >= 0 && to >= 0 ? repeated_between(f, from, to) : -1;
	if (repeated < 0 || !is_moving(w, op, named, value, repeated))
		return stays(w, named.space, value);
	int further = whole_group(f, from) + to - from - whole_group(f, to);
	return (struct going){
		numbering->first[value] + further * numbering->by[f->run_of[repeated]], 0};
}

bool listing_name(const struct listing_work *w, int op, struct named named, struct going *going)
{
	int value = value_of(w, op, named);
	*going = (struct going){value, 0};
	if (value < 0)
		return w->f->laps_of[op] < 0 ||
		       value_of(w, op + w->f->laps[w->f->laps_of[op]].neighbour, named) < 0;
	if (w->f->laps_of[op] >= 0)
		return name_in_lap(w, op, named, value, going);
	*going = name_outside(w, op, named, value);
	return true;
}
