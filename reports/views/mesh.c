/* The view of the mesh: the ranks of each axis's groups, and the links between them. */
#include "reports/views/each.h"

void view_mesh(const struct explained *explained, const struct style *style, struct text *text)
{
	const struct schedule *schedule = explained->schedule;
	const struct plan *plan = &schedule->plan;
	struct grid grid;

	text_printf(
		text, "%lld rank%s", (long long)plan_ranks(plan), plan_ranks(plan) == 1 ? "" : "s");
	if (schedule->topology != NULL)
		text_printf(text, ", %lld a node", (long long)schedule->topology->devices_per_node);
	text_add(text, ": ");
	plan_add_axes(plan, text);
	text_printf(text, "%s\n\n", strategy_names[plan->strategy]);
	if (!mesh_grid(schedule->topology, explained->prediction, 1, &grid)) {
		text_add(text, "Every rank is alone: nothing is communicated.\n");
		return;
	}
	put_text(&grid, style, text);
	put_lines("Sent by one rank in a step. Exposed: nothing is computed meanwhile; "
		  "two axes at once count twice.",
		0, style, text);
}
