/* The mesh as a picture: all ranks once for each axis, in the colour of their group. */
#include <string.h>

#include "reports/views/each.h"
#include "reports/views/svg.h"

enum { LEFT = 116, RIGHT = 216, TOP = 62, ROW = 44, CELL = 22, HIGH = 22, GAP = 8, SHOWN = 64 };

struct drawing {
	const struct explained *explained;
	int64_t ranks, node; /* in all; in a node */
	int n;               /* ranks that are drawn */
	double width;
};

static double place(const struct drawing *drawing, int rank)
{
	return LEFT + rank * CELL + (double)(rank / drawing->node) * GAP;
}

/* The group of a rank. Groups tile the ranks in blocks; all ranks are in the group of the two ends
 * of a pipeline. -1: it is in none. */
static int64_t group_of(const struct drawing *drawing, enum group_kind kind,
	const struct axis_figures *axis, int64_t rank)
{
	int64_t block = axis->ranks * axis->stride;

	if (kind != GROUP_EMBEDDING)
		return rank / block * axis->stride + rank % axis->stride;
	int64_t ends = drawing->ranks - axis->stride;
	return rank % axis->stride < ends ? rank % axis->stride : -1;
}

static void add_cell(const struct drawing *drawing, double y, int64_t group, int rank,
	struct text *words, struct text *text)
{
	const struct picture_box box = {place(drawing, rank), y, CELL - 1, HIGH};
	const char *fill = group < 0 ? "none" : picture_colors[group % PICTURE_COLORS];

	text_clear(words);
	text_printf(words, "%d", rank);
	picture_named_box(&box, fill, text_string(words), NULL, text);
	if (group == 0)
		picture_line(box.x + 1, y + HIGH + 3, box.x + CELL - 2, y + HIGH + 3, false, text);
}

static void add_axis(const struct drawing *drawing, enum group_kind kind, double y,
	struct text *words, struct text *text)
{
	const struct axis_figures *axis = &drawing->explained->prediction->axes[kind];
	char sent[32], exposed[32];

	text_clear(words);
	text_printf(words, "%s %lld", group_kind_names[kind], (long long)axis->ranks);
	picture_label(8, y + 10, "start", 12, text_string(words), text);
	text_clear(words);
	axis_link(drawing->explained->schedule->topology, axis, words);
	picture_label(8, y + 22, "start", 10, text_string(words), text);
	for (int r = 0; r < drawing->n; r++)
		add_cell(drawing, y, group_of(drawing, kind, axis, r), r, words, text);
	text_clear(words);
	text_add(words, "with rank 0: ");
	axis_ranks(axis, words);
	picture_label(drawing->width + 10, y + 10, "start", 11, text_string(words), text);
	text_clear(words);
	text_printf(words, "%s sent, %s exposed", format_bytes(sent, axis->wire_bytes),
		format_seconds(exposed, axis->exposed));
	picture_label(drawing->width + 10, y + 23, "start", 10, text_string(words), text);
}

static void add_nodes(
	const struct drawing *drawing, double bottom, struct text *words, struct text *text)
{
	for (int r = 0; r < drawing->n; r += (int)drawing->node) {
		double x = place(drawing, r);
		text_clear(words);
		text_printf(words, "node %lld", (long long)(r / drawing->node));
		picture_label(x, TOP - 14, "start", 11, text_string(words), text);
		picture_line(x - GAP / 2.0, TOP - 24, x - GAP / 2.0, bottom, true, text);
	}
}

static void add_all(struct drawing *drawing, int n_axes, struct text *text)
{
	const struct schedule *schedule = drawing->explained->schedule;
	struct text words = {0}, title = {0};
	int axis = 0;

	text_printf(&title, "Groups of %lld ranks: ", (long long)drawing->ranks);
	plan_add_axes(&schedule->plan, &title);
	text_add(&title, strategy_names[schedule->plan.strategy]);
	picture_begin((int)drawing->width + RIGHT, TOP + n_axes * ROW + 22, text_string(&title),
		"A row is an axis; ranks of one colour in it form a group and communicate, "
		"over the link that is named",
		false, text);
	picture_label(8, 20, "start", 14, text_string(&title), text);
	add_nodes(drawing, TOP + n_axes * ROW - 10, &words, text);
	for (int i = 0; i < GROUP_KIND_COUNT; i++)
		if (drawing->explained->prediction->axes[mesh_order[i]].ranks > 0)
			add_axis(drawing, mesh_order[i], TOP + axis++ * ROW, &words, text);
	text_clear(&words);
	text_add(&words, "Ranks of one colour in a row form a group there; "
			 "the group of rank 0 is underlined.");
	if (drawing->n < drawing->ranks)
		text_printf(&words, " The first %d ranks.", drawing->n);
	picture_label(8, TOP + n_axes * ROW + 8, "start", 11, text_string(&words), text);
	picture_end(text);
	text_finish(&words);
	text_finish(&title);
}

void picture_mesh(const struct explained *explained, struct text *text)
{
	const struct topology *topology = explained->schedule->topology;
	struct drawing drawing = {
		.explained = explained, .ranks = plan_ranks(&explained->schedule->plan)};

	drawing.node = topology != NULL ? topology->devices_per_node : drawing.ranks;
	drawing.n = (int)min_i64(drawing.ranks, SHOWN);
	drawing.width = place(&drawing, drawing.n - 1) + CELL;
	add_all(&drawing, prediction_axes(explained->prediction), text);
}
