#include "reports/views/slices.h"

#include <string.h>

int runs_of(const struct unit *unit, struct arena *arena, struct run **runs)
{
	struct run *found = ARENA_ARRAY(arena, struct run, 2 * unit->n_slices + 2);
	int64_t at = 0;
	int n = 0;

	for (int s = 0; s < unit->n_slices; s++) {
		const struct unit_slice *slice = &unit->slices[s];
		if (slice->offset > at)
			found[n++] = (struct run){-1, at, slice->offset - at};
		found[n++] = (struct run){s, slice->offset, slice->elements};
		at = slice->offset + slice->elements;
	}
	if (unit->gathered > at)
		found[n++] = (struct run){-1, at, unit->gathered - at};
	*runs = found;
	return n;
}

struct cut cut_of(const struct parameter *parameter, int64_t ranks)
{
	int64_t dimension = parameter->shape[0];
	struct cut cut = {.rows = (dimension + ranks - 1) / ranks};

	cut.row_elements = parameter->elements / dimension;
	cut.whole = dimension / cut.rows;
	cut.rest = dimension % cut.rows;
	cut.padding = (cut.rows * ranks - dimension) * cut.row_elements;
	return cut;
}

bool layout_is_whole(const struct schedule *schedule)
{
	return runtime_of(schedule->plan.runtime)->layout == LAYOUT_WHOLE ||
	       !strategy_shards(schedule->plan.strategy);
}

bool layout_is_per_parameter(const struct schedule *schedule)
{
	return !layout_is_whole(schedule) &&
	       runtime_of(schedule->plan.runtime)->layout == LAYOUT_PER_PARAMETER;
}

static bool same_layout(const struct unit *a, const struct unit *b)
{
	if (a->n_slices != b->n_slices || a->elements != b->elements || a->chunk != b->chunk)
		return false;
	for (int i = 0; i < a->n_slices; i++) {
		if (a->slices[i].offset != b->slices[i].offset ||
			a->slices[i].elements != b->slices[i].elements)
			return false;
	}
	return true;
}

int layout_like(const struct schedule *schedule, int u)
{
	for (int i = 0; i < u; i++) {
		if (same_layout(&schedule->programs->units[i], &schedule->programs->units[u]))
			return i;
	}
	return u;
}

const char *short_name(const struct schedule *schedule, const struct unit *unit, int slice)
{
	int parameter = unit->slices[slice].parameter;
	size_t length = strlen(or_empty(unit->name));

	if (schedule->programs->model == NULL || parameter < 0 ||
		parameter >= schedule->programs->model->n_parameters)
		return "";
	const char *name = or_empty(schedule->programs->model->parameters[parameter].name);
	bool inside = length > 0 && strncmp(name, unit->name, length) == 0 && name[length] == '.';
	return inside ? name + length + 1 : name;
}
