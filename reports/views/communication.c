/* The view of communication: collectives, their groups, bytes and the computation beside them, for
 * the plan and for every other strategy with the same knobs. */
#include <string.h>

#include "reports/views/collective_order.h"
#include "reports/views/each.h"

static void add_group(const struct schedule *schedule, const struct op *op, struct grid *grid)
{
	const struct group *group = &schedule->groups[op->group];

	if (group->stride > 1)
		grid_add(grid, "%s %lld, stride %lld", group_kind_names[group->kind],
			(long long)group->size, (long long)group->stride);
	else
		grid_add(grid, "%s %lld", group_kind_names[group->kind], (long long)group->size);
}

static void add_behind(
	const struct schedule *schedule, const struct carried *carried, struct grid *grid)
{
	struct text text = {0};

	if (carried->takes > 0 && carried->exposed < carried->takes && carried->behind >= 0)
		operation_label(schedule, &schedule->programs[0].ops[carried->behind], &text);
	else
		text_add(&text, carried->takes > 0 ? "nothing" : "-");
	grid_add(grid, "%s", text_string(&text));
	text_finish(&text);
}

static void add_carried(
	const struct schedule *schedule, const struct carried *carried, struct grid *grid)
{
	const struct op *op = &schedule->programs[0].ops[carried->op];
	bool exposed = carried->exposed > 0.05 * carried->takes && carried->takes > 0;
	struct text label = {0};

	operation_label(schedule, op, &label);
	grid_row(grid, exposed ? GRID_WARNING : GRID_PLAIN);
	grid_add(grid, "%d", carried->op);
	grid_add(grid, "%s", text_string(&label));
	text_finish(&label);
	add_group(schedule, op, grid);
	grid_add_bytes(grid, (double)op->bytes);
	grid_add_seconds(grid, carried->takes);
	grid_add_seconds(grid, carried->exposed);
	add_behind(schedule, carried, grid);
}

static void add_collectives(
	const struct explained *explained, const struct style *style, struct text *text)
{
	static const struct grid_column columns[] = {{"op", GRID_RIGHT}, {"collective", GRID_WRAP},
		{"group", GRID_LEFT}, {"bytes", GRID_RIGHT}, {"takes", GRID_RIGHT},
		{"exposed", GRID_RIGHT}, {"behind", GRID_WRAP}};
	const struct schedule *schedule = explained->schedule;
	struct arena arena = {0};
	struct carried *carried;
	struct grid grid;
	int n = carried_of(schedule, explained->predicted, &arena, &carried);

	text_add(text, "Every collective in issue order; exposed: nothing else runs meanwhile\n");
	grid_init(&grid, columns, COUNT_OF(columns));
	for (int i = 0; i < n; i++)
		add_carried(schedule, &carried[i], &grid);
	put_text(&grid, style, text);
	arena_finish(&arena);
}

/* Units with one pattern share a line: "model.layers.0 to model.layers.30". */
static void add_patterns(
	const struct schedule *schedule, const struct style *style, struct text *text)
{
	static const struct grid_column columns[] = {{"unit", GRID_WRAP}, {"units", GRID_RIGHT},
		{"gathered", GRID_RIGHT}, {"a micro-batch", GRID_LEFT}, {"the last", GRID_WRAP}};
	int last = (int)schedule->plan.grad_accum - 1;
	struct text pattern = {0}, next = {0};
	struct grid grid;

	grid_init(&grid, columns, COUNT_OF(columns) - (last == 0));
	for (int u = 0, end; u < schedule->programs->n_units; u = end) {
		text_clear(&pattern);
		unit_pattern(schedule, u, 0, &pattern);
		for (end = u + 1; end < schedule->programs->n_units; end++) {
			text_clear(&next);
			unit_pattern(schedule, end, 0, &next);
			if (strcmp(text_string(&next), text_string(&pattern)) != 0 ||
				schedule->programs->units[end].gathered !=
					schedule->programs->units[u].gathered)
				break;
		}
		grid_row(&grid, GRID_PLAIN);
		grid_add(&grid, end - u > 1 ? "%s to %s" : "%s",
			or_empty(schedule->programs->units[u].name),
			or_empty(schedule->programs->units[end - 1].name));
		grid_add_count(&grid, end - u);
		grid_add_count(&grid, schedule->programs->units[u].gathered);
		grid_add(&grid, "%s", text_string(&pattern));
		if (last > 0) {
			text_clear(&next);
			unit_pattern(schedule, u, last, &next);
			grid_add(&grid, "%s", text_string(&next));
		}
	}
	put_text(&grid, style, text);
	text_finish(&pattern);
	text_finish(&next);
}

static void add_sum(const struct schedule *schedule, enum op_kind kind, struct grid *grid)
{
	struct collective_sum sum = collective_sum(schedule, kind);
	char bytes[32];

	if (sum.count == 0)
		grid_add(grid, "-");
	else
		grid_add(grid, "%d, %s", sum.count, format_bytes(bytes, (double)sum.bytes));
}

/* Shows the unit in the middle of the model, which most units equal. `runtime` is named above the
 * table. */
static void add_strategy(
	const struct schedule *schedule, const char *runtime, bool own, struct grid *grid)
{
	static const enum op_kind kinds[] = {OP_ALL_GATHER, OP_REDUCE_SCATTER, OP_ALL_REDUCE};
	/* Kinds without a column, which experts, contexts and pipelines have. */
	static const enum op_kind others[] = {OP_ALL_TO_ALL, OP_SEND_RECV, OP_SEND};
	const struct plan *plan = &schedule->plan;
	struct text pattern = {0};
	double wire = 0;

	grid_row(grid, own ? GRID_GOOD : GRID_PLAIN);
	if (strategy_is_hybrid(plan->strategy))
		grid_add(grid, "%s/%lld%s", strategy_names[plan->strategy],
			(long long)plan->mesh.shard, own ? " *" : "");
	else
		grid_add(grid, "%s%s", strategy_names[plan->strategy], own ? " *" : "");
	unit_pattern(
		schedule, schedule->programs->n_units / 2, (int)plan->grad_accum - 1, &pattern);
	if (strcmp(runtime_names[plan->runtime], runtime) != 0)
		text_printf(&pattern, " (%s)", runtime_names[plan->runtime]);
	grid_add(grid, "%s", text_string(&pattern));
	for (int k = 0; k < COUNT_OF(kinds); k++) {
		add_sum(schedule, kinds[k], grid);
		wire += collective_sum(schedule, kinds[k]).wire_bytes;
	}
	for (int k = 0; k < COUNT_OF(others); k++)
		wire += collective_sum(schedule, others[k]).wire_bytes;
	grid_add_bytes(grid, wire);
	text_finish(&pattern);
}

static void add_strategies(
	const struct schedule *schedule, const struct style *style, struct text *text)
{
	static const struct grid_column columns[] = {{"strategy", GRID_LEFT},
		{"middle unit", GRID_WRAP}, {"all-gather", GRID_RIGHT},
		{"reduce-scatter", GRID_RIGHT}, {"all-reduce", GRID_RIGHT},
		{"sent/rank", GRID_RIGHT}};
	const char *runtime = runtime_names[schedule->plan.runtime];
	struct grid grid;

	text_printf(text, "The same knobs under every strategy of %s (* this plan)\n", runtime);
	grid_init(&grid, columns, COUNT_OF(columns));
	for (int s = 0; s < STRATEGY_COUNT; s++) {
		struct arena arena = {0};
		struct schedule *other;
		struct error why = {0};
		if (s == (int)schedule->plan.strategy)
			add_strategy(schedule, runtime, true, &grid);
		else if (with_strategy(schedule, (enum strategy)s, &arena, &other, &why))
			add_strategy(other, runtime, false, &grid);
		arena_finish(&arena);
	}
	put_text(&grid, style, text);
}

static const char legend[] =
	"G all-gather, F forward, | parameters freed, L loss, r recompute, B backward\n"
	"(W of weights), S reduce-scatter, A all-reduce, h and d copies from and to the\n"
	"host; the number behind a collective is the size of its group\n\n";

void view_communication(
	const struct explained *explained, const struct style *style, struct text *text)
{
	const struct schedule *schedule = explained->schedule;
	int64_t copies = schedule->plan.mesh.replicate, shards = plan_shard_ranks(&schedule->plan);
	struct text heading = {0};

	text_add(&heading, "Communication of a step under ");
	plan_add_axes(&schedule->plan, &heading);
	text_printf(&heading, "%s: %lld ranks, %lld replica%s of %lld shard%s\n\n",
		strategy_names[schedule->plan.strategy], (long long)plan_ranks(&schedule->plan),
		(long long)copies, copies == 1 ? "" : "s", (long long)shards,
		shards == 1 ? "" : "s");
	put_lines(text_string(&heading), 0, style, text);
	text_finish(&heading);
	add_patterns(schedule, style, text);
	text_add(text, legend);
	if (schedule->model != NULL && schedule->topology != NULL)
		add_strategies(schedule, style, text);
	add_collectives(explained, style, text);
}
