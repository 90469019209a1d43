/* A table of the axes of a plan: which ranks communicate, over which link, and how long. */
#include "reports/text/text.h"

/* The axes, the innermost first. */
const enum group_kind mesh_order[GROUP_KIND_COUNT] = {GROUP_TENSOR, GROUP_CONTEXT,
	GROUP_EXPERT_TENSOR, GROUP_EXPERT, GROUP_EXPERT_ALL, GROUP_EXPERT_SHARD, GROUP_SHARD,
	GROUP_RESHARD, GROUP_REPLICATE, GROUP_WORLD, GROUP_PIPELINE, GROUP_EMBEDDING};

void axis_ranks(const struct axis_figures *axis, struct text *text)
{
	enum { SHOWN = 4 };
	long long last = (long long)((axis->ranks - 1) * axis->stride);

	if (axis->stride == 1 && axis->ranks > 2) {
		text_printf(text, "0-%lld", last);
		return;
	}
	bool all = axis->ranks <= SHOWN;
	for (int i = 0; i < (all ? axis->ranks : 2); i++)
		text_printf(text, "%s%lld", i > 0 ? "," : "", (long long)(i * axis->stride));
	if (!all)
		text_printf(text, ",..,%lld", last);
}

void axis_link(const struct topology *topology, const struct axis_figures *axis, struct text *text)
{
	if (topology == NULL)
		return;
	struct placement placement = topology_place(topology, axis->ranks, axis->stride);
	if (placement.nodes == 1 || placement.ranks_per_node > 1)
		text_add(text, fabric_kind_names[topology->fabric.kind]);
	if (placement.nodes > 1)
		text_printf(text, "%s%s", placement.ranks_per_node > 1 ? ", " : "",
			network_kind_names[topology->network.kind]);
}

static void add_axis(const struct topology *topology, const struct prediction *prediction,
	enum group_kind kind, struct grid *grid)
{
	const struct axis_figures *axis = &prediction->axes[kind];
	struct text words = {0};

	grid_row(grid, GRID_PLAIN);
	grid_add(grid, "%s", group_kind_names[kind]);
	grid_add_count(grid, axis->ranks);
	axis_ranks(axis, &words);
	grid_add(grid, "%s", text_string(&words));
	text_clear(&words);
	grid_add_count(grid, axis->stride);
	axis_link(topology, axis, &words);
	grid_add(grid, "%s", text_string(&words));
	grid_add_bytes(grid, axis->wire_bytes);
	grid_add_seconds(grid, axis->time);
	grid_add_seconds(grid, axis->exposed);
	grid_add_percent(
		grid, prediction->step_time > 0 ? axis->exposed / prediction->step_time : 0);
	text_finish(&words);
}

bool mesh_grid(const struct topology *topology, const struct prediction *prediction, int least,
	struct grid *grid)
{
	static const struct grid_column columns[] = {{"axis", GRID_LEFT}, {"ranks", GRID_RIGHT},
		{"with rank 0", GRID_LEFT}, {"stride", GRID_RIGHT}, {"link", GRID_LEFT},
		{"sent", GRID_RIGHT}, {"time", GRID_RIGHT}, {"exposed", GRID_RIGHT},
		{"share", GRID_RIGHT}};

	if (prediction_axes(prediction) < least)
		return false;
	grid_init(grid, columns, COUNT_OF(columns));
	for (int i = 0; i < GROUP_KIND_COUNT; i++)
		if (prediction->axes[mesh_order[i]].ranks > 0)
			add_axis(topology, prediction, mesh_order[i], grid);
	return true;
}
