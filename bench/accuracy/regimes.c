/* Errors where communication decides: by its exposed share of the predicted step, by the number of
 * nodes, and by both; and families of rows (same source, same model) with errors of one sign. */
#include "accuracy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_CLASSES = 5, REGIMES = 3, KEYS_MAX = 256 };

static const char *const regime_names[REGIMES] = {"< 5 %", "5 to 25 %", "> 25 %"};
static const struct {
	const char *name;
	int64_t most;
} node_classes[NODE_CLASSES] = {
	{"1", 1}, {"2-4", 4}, {"5-16", 16}, {"17-64", 64}, {"more", INT64_MAX}};

static int row_regime(const struct row *row)
{
	double share = row_exposed_share(row);

	return share < 0.05 ? 0 : share <= 0.25 ? 1 : 2;
}

static int node_class(const struct row *row)
{
	int class = 0;

	while (row->nodes > node_classes[class].most)
		class ++;
	return class;
}

/* --- sets of rows ----------------------------------------------------------------------------- */

struct set {
	const char *name;
	int order;
	struct sample errors;
	int inside;
	double widest;
};

static void set_add(struct set *set, const struct row *row, struct arena *arena)
{
	sample_add(arena, &set->errors, row_time_error(row));
	set->inside += row_inside(row);
	set->widest = fmax(set->widest, row_half_width(row));
}

static void print_set(const struct set *set)
{
	struct summary s = sample_summary(&set->errors);

	if (s.n == 0)
		return;
	printf("| %s | %d | %+.1f | %.1f | %.1f | %.0f | %.1f |\n", set->name, s.n, 100 * s.bias,
		100 * s.median, 100 * s.p90, 100.0 * set->inside / s.n, 100 * set->widest);
}

static void print_head(const char *title)
{
	printf("\n%s:\n\n| | n | bias %% | median %% | p90 %% | inside 80 %% | widest +- %% |\n"
	       "|---|---:|---:|---:|---:|---:|---:|\n",
		title);
}

/* The group of a row, and the position of that group in its table (then by name). */
struct key {
	const char *name;
	int order;
};

static struct key by_regime(const struct row *row, struct arena *arena)
{
	(void)arena;
	return (struct key){regime_names[row_regime(row)], row_regime(row)};
}

static struct key by_nodes(const struct row *row, struct arena *arena)
{
	(void)arena;
	return (struct key){node_classes[node_class(row)].name, node_class(row)};
}

static struct key by_both(const struct row *row, struct arena *arena)
{
	struct key regime = by_regime(row, arena), nodes = by_nodes(row, arena);

	return (struct key){arena_printf(arena, "%s, nodes: %s", regime.name, nodes.name),
		regime.order * NODE_CLASSES + nodes.order};
}

static struct key held_out(const struct row *row, struct key key, struct arena *arena)
{
	bool fitted = row->part == PART_CALIBRATION;

	key.name = arena_printf(arena, "%s: %s", fitted ? "calibrating" : "held out", key.name);
	key.order += fitted ? KEYS_MAX : 0;
	return key;
}

static struct key by_held_out_regime(const struct row *row, struct arena *arena)
{
	return held_out(row, by_regime(row, arena), arena);
}

static struct key by_held_out_nodes(const struct row *row, struct arena *arena)
{
	return held_out(row, by_nodes(row, arena), arena);
}

static struct key by_strategy(const struct row *row, struct arena *arena)
{
	(void)arena;
	return (struct key){row_cell(row, "strategy"), 0};
}

static struct key by_runtime(const struct row *row, struct arena *arena)
{
	(void)arena;
	return (struct key){row_cell(row, "runtime"), 0};
}

static struct key by_source(const struct row *row, struct arena *arena)
{
	(void)arena;
	return (struct key){row->source, 0};
}

static struct key by_mix(const struct row *row, struct arena *arena)
{
	return (struct key){arena_printf(arena, "%s, %s", row->source, row_mix(row, arena)), 0};
}

static int compare_sets(const void *left, const void *right)
{
	const struct set *a = left, *b = right;

	return a->order != b->order ? a->order - b->order : strcmp(a->name, b->name);
}

static void print_by(const struct row_list *rows, const char *title,
	struct key (*key_of)(const struct row *row, struct arena *arena), struct arena *arena)
{
	struct set sets[KEYS_MAX] = {0};
	int n = 0;

	for (int i = 0; i < rows->n; i++) {
		const struct row *row = &rows->of[i];
		int at = 0;
		if (!row_has_time(row))
			continue;
		struct key key = key_of(row, arena);
		while (at < n && strcmp(sets[at].name, key.name) != 0)
			at++;
		if (at == KEYS_MAX)
			abort();
		n += at == n;
		sets[at].name = key.name;
		sets[at].order = key.order;
		set_add(&sets[at], row, arena);
	}
	qsort(sets, (size_t)n, sizeof(*sets), compare_sets);
	print_head(title);
	for (int i = 0; i < n; i++)
		print_set(&sets[i]);
}

void report_regimes(const struct row_list *rows, struct arena *arena)
{
	printf("\n## Regimes and scale\n\nAll parts together unless a line says which. The regime "
	       "is the exposed communication's share of the predicted step.\n");
	print_by(rows, "By regime", by_regime, arena);
	print_by(rows, "By nodes", by_nodes, arena);
	print_by(rows, "By regime and nodes", by_both, arena);
	print_by(rows, "By regime, held out (test, found later) or not", by_held_out_regime, arena);
	print_by(rows, "By nodes, held out or not", by_held_out_nodes, arena);
	print_by(rows, "By strategy", by_strategy, arena);
	print_by(rows, "By runtime", by_runtime, arena);
	print_by(rows, "By source", by_source, arena);
	print_by(rows, "By source and mix", by_mix, arena);
}

/* --- families --------------------------------------------------------------------------------- */

struct family {
	const char *source, *name;
	int n;
	double least, most; /* signed errors */
};

static struct family *family_of(struct family *families, int *n, const struct row *row)
{
	int at = 0;

	while (at < *n && (strcmp(families[at].source, row->source) != 0 ||
				  strcmp(families[at].name, row->family) != 0))
		at++;
	if (at == KEYS_MAX)
		abort();
	if (at == *n)
		families[(*n)++] =
			(struct family){row->source, row->family, 0, INFINITY, -INFINITY};
	return &families[at];
}

void report_families(const struct row_list *rows)
{
	struct family families[KEYS_MAX];
	int n = 0, to_one_side = 0, beyond = 0;

	for (int i = 0; i < rows->n; i++) {
		const struct row *row = &rows->of[i];
		if (!row_has_time(row))
			continue;
		struct family *family = family_of(families, &n, row);
		family->n++;
		family->least = fmin(family->least, row_time_error(row));
		family->most = fmax(family->most, row_time_error(row));
	}
	printf("\n### Families that err to one side\n\nSame source, same model, two rows or more, "
	       "all predicted too short or all too long: the row that is nearest to the truth.\n\n"
	       "| source | model | n | nearest %% | farthest %% |\n|---|---|---:|---:|---:|\n");
	for (int i = 0; i < n; i++) {
		const struct family *f = &families[i];
		bool negative = f->most < 0, one_side = negative || f->least > 0;
		double nearest = negative ? f->most : f->least;
		if (f->n < 2 || !one_side)
			continue;
		to_one_side++;
		beyond += fabs(nearest) > 0.06;
		printf("| %s | %s | %d | %+.1f | %+.1f |\n", f->source, f->name, f->n,
			100 * nearest, 100 * (negative ? f->least : f->most));
	}
	printf("\n%d of %d families; %d by more than 6 %% in every row.\n", to_one_side, n, beyond);
}

/* --- what a part explains --------------------------------------------------------------------- */

enum { SETS = REGIMES + NODE_CLASSES };

/* Groups are made by the whole model, whatever the errors belong to. */
static void fill_sets(const struct row_list *rows, const struct row_list *errors_of,
	struct set sets[SETS], struct arena *arena)
{
	for (int i = 0; i < SETS; i++)
		sets[i] = (struct set){0};
	for (int i = 0; i < rows->n; i++) {
		const struct row *row = &rows->of[i], *other = &errors_of->of[i];
		if (!row_has_time(row) || !row_has_time(other))
			continue;
		set_add(&sets[row_regime(row)], other, arena);
		set_add(&sets[REGIMES + node_class(row)], other, arena);
	}
}

static void print_sets(const char *name, const struct set sets[SETS])
{
	printf("| %s |", name);
	for (int i = 0; i < SETS; i++) {
		struct summary s = sample_summary(&sets[i].errors);
		printf(" %+.1f, %.1f |", 100 * s.bias, 100 * s.median);
	}
	printf("\n");
}

static void print_without(const struct catalogue *catalogue, const struct row_list *rows,
	enum cost_part part, struct arena *arena)
{
	struct catalogue other = *catalogue;
	struct row_list copy = {rows->n, rows->n, ARENA_ARRAY(arena, struct row, rows->n)};
	struct set sets[SETS];
	struct arena scratch = {0};

	other.without = 1u << part;
	for (int i = 0; i < rows->n; i++) {
		copy.of[i] = rows->of[i];
		row_predict(&other, &copy.of[i], arena, &scratch);
		arena_reset(&scratch);
	}
	arena_finish(&scratch);
	fill_sets(rows, &copy, sets, arena);
	print_sets(arena_printf(arena, "without %s", cost_part_names[part]), sets);
}

void report_parts(
	const struct catalogue *catalogue, const struct row_list *rows, struct arena *arena)
{
	struct set sets[SETS];

	printf("\n### What each part of the model explains\n\nBias and median error in percent, "
	       "the "
	       "sets as above, with the part switched off.\n\n| |");
	for (int i = 0; i < REGIMES; i++)
		printf(" %s |", regime_names[i]);
	for (int i = 0; i < NODE_CLASSES; i++)
		printf(" nodes: %s |", node_classes[i].name);
	printf("\n|---|");
	for (int i = 0; i < SETS; i++)
		printf("---:|");
	printf("\n");
	fill_sets(rows, rows, sets, arena);
	print_sets("the model", sets);
	for (int part = 0; part < COST_PART_COUNT; part++)
		print_without(catalogue, rows, (enum cost_part)part, arena);
}
