/* The view of FSDP units: what is gathered and reduced together, its layout, and who owns which
 * elements. */
#include "reports/views/each.h"
#include "reports/views/slices.h"

/* Adds rows of units; consecutive units with equal layout share a row. */
static void add_units(const struct schedule *schedule, int first, int n, struct grid *grid)
{
	const struct unit *unit = &schedule->programs->units[first];
	int64_t padding = unit->gathered - unit->parameters;

	grid_row(grid, GRID_PLAIN);
	if (n > 1)
		grid_add(grid, "%s to %s", or_empty(unit->name),
			or_empty(schedule->programs->units[first + n - 1].name));
	else
		grid_add(grid, "%s", or_empty(unit->name));
	grid_add_count(grid, n);
	grid_add_count(grid, unit->n_slices);
	grid_add_count(grid, unit->parameters);
	grid_add_count(grid, padding);
	grid_add_count(grid, unit->gathered);
	grid_add_count(grid, unit->chunk);
}

static void units_grid(const struct schedule *schedule, struct grid *grid)
{
	static const struct grid_column columns[] = {{"unit", GRID_WRAP}, {"units", GRID_RIGHT},
		{"tensors", GRID_RIGHT}, {"parameters", GRID_RIGHT}, {"padding", GRID_RIGHT},
		{"gathered", GRID_RIGHT}, {"per rank", GRID_RIGHT}};

	grid_init(grid, columns, COUNT_OF(columns));
	for (int u = 0, n; u < schedule->programs->n_units; u += n) {
		n = 1;
		while (u + n < schedule->programs->n_units &&
			layout_like(schedule, u + n) == layout_like(schedule, u))
			n++;
		add_units(schedule, u, n, grid);
	}
}

static const char *parameter_name(const struct schedule *schedule, int parameter)
{
	const struct model *model = schedule->programs->model;

	if (model == NULL || parameter < 0 || parameter >= model->n_parameters)
		return "";
	return or_empty(model->parameters[parameter].name);
}

static void add_owners(const struct schedule *schedule, const struct unit *unit,
	const struct unit_slice *slice, struct grid *grid)
{
	enum layout_kind layout = plan_layout(&schedule->plan);

	if (layout == LAYOUT_WHOLE || !strategy_shards(schedule->plan.strategy)) {
		grid_add(grid, "every rank");
	} else if (layout == LAYOUT_PER_PARAMETER) {
		grid_add(grid, "every rank, rows split");
	} else if (unit->chunk > 0 && slice->elements > 0) {
		int64_t first = slice->offset / unit->chunk;
		int64_t last = (slice->offset + slice->elements - 1) / unit->chunk;
		if (first == last)
			grid_add(grid, "rank %lld", (long long)first);
		else
			grid_add(grid, "ranks %lld to %lld", (long long)first, (long long)last);
	}
}

/* Adds a slice with its own padding, which follows it up to the next slice or the end of the
 * unit. */
static void add_slice(
	const struct schedule *schedule, const struct unit *unit, int s, struct grid *grid)
{
	const struct unit_slice *slice = &unit->slices[s];
	int64_t end = s + 1 < unit->n_slices ? unit->slices[s + 1].offset : unit->gathered;

	grid_row(grid, GRID_PLAIN);
	grid_add(grid, "%s", parameter_name(schedule, slice->parameter));
	if (!layout_is_per_parameter(schedule))
		grid_add_count(grid, slice->offset);
	grid_add_count(grid, slice->elements);
	grid_add_count(grid, end - slice->offset - slice->elements);
	add_owners(schedule, unit, slice, grid);
}

static void add_layout(
	const struct schedule *schedule, int u, const struct style *style, struct text *text)
{
	static const struct grid_column columns[] = {{"parameter", GRID_LEFT},
		{"offset", GRID_RIGHT}, {"elements", GRID_RIGHT}, {"padding", GRID_RIGHT},
		{"owned by", GRID_LEFT}};
	/* FSDP2 shards each parameter by itself, so a parameter has no offset in a unit. */
	static const struct grid_column apart[] = {{"parameter", GRID_LEFT},
		{"elements", GRID_RIGHT}, {"padding", GRID_RIGHT}, {"owned by", GRID_LEFT}};
	const struct unit *unit = &schedule->programs->units[u];
	struct grid grid;

	if (layout_is_per_parameter(schedule))
		grid_init(&grid, apart, COUNT_OF(apart));
	else
		grid_init(&grid, columns, COUNT_OF(columns));
	for (int s = 0; s < unit->n_slices; s++)
		add_slice(schedule, unit, s, &grid);
	put_text(&grid, style, text);
}

void view_units(const struct explained *explained, const struct style *style, struct text *text)
{
	const struct schedule *schedule = explained->schedule;
	struct grid grid;

	text_printf(text, "%d units, elements; shard group of %lld ranks\n\n",
		schedule->programs->n_units, (long long)schedule->plan.mesh.shard);
	units_grid(schedule, &grid);
	put_text(&grid, style, text);
	for (int u = 0; u < schedule->programs->n_units; u++) {
		int alike = 0;
		if (layout_like(schedule, u) != u || schedule->programs->units[u].n_slices == 0)
			continue;
		for (int i = u + 1; i < schedule->programs->n_units; i++)
			alike += layout_like(schedule, i) == u;
		text_add(text, "Layout of ");
		add_terminal(text, schedule->programs->units[u].name);
		if (alike > 0)
			text_printf(text, " (and of %d more units)", alike);
		text_add_char(text, '\n');
		add_layout(schedule, u, style, text);
	}
}
