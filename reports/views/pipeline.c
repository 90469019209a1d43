/* The view of a pipeline: which micro-batch each stage computes at each moment. */
#include "schedule/pipeline/pipeline.h"
#include "reports/views/each.h"
#include "reports/views/pipeline_passes.h"

enum { NAME_WIDTH = 10, DEFAULT_WIDTH = 100, MAX_CELLS = 400, MICRO_BATCHES_SHOWN = 10 };

/* The letter of a micro-batch: a digit in forward, a letter in backward. */
static char letter_of(const struct stage_pass *pass)
{
	struct pass_kind kind = pass_kind(pass->kind);

	return (char)(kind.first + (kind.counts ? pass->micro_batch % MICRO_BATCHES_SHOWN : 0));
}

struct cells {
	int n;
	double width; /* s */
	double most[MAX_CELLS];
	char letters[MAX_CELLS + 1];
};

/* Adds a pass to the cells that it covers. A cell shows what fills most of it. */
static void fill(struct cells *cells, const struct stage_pass *pass)
{
	int first = (int)(pass->start / cells->width);

	for (int i = first < 0 ? 0 : first; i < cells->n && i * cells->width < pass->end; i++) {
		double from = i * cells->width, to = from + cells->width;
		double share = (pass->end < to ? pass->end : to) -
			       (pass->start > from ? pass->start : from);

		if (share <= cells->most[i])
			continue;
		cells->most[i] = share;
		cells->letters[i] = letter_of(pass);
	}
}

static void add_stage(
	const struct explained *explained, int stage, int n, double end, struct text *text)
{
	struct cells cells = {.n = n, .width = end / n};
	struct arena arena = {0};
	struct stage_pass *passes;
	int n_passes = passes_of(explained, stage, &arena, &passes);

	for (int i = 0; i < n; i++)
		cells.letters[i] = '.';
	for (int i = 0; i < n_passes; i++)
		fill(&cells, &passes[i]);
	text_printf(text, "stage %-3d %s\n", stage, cells.letters);
	arena_finish(&arena);
}

void view_pipeline(const struct explained *explained, const struct style *style, struct text *text)
{
	int n = (style->width > 0 ? style->width : DEFAULT_WIDTH) - NAME_WIDTH;
	char buffer[32];
	struct text legend = {0};
	bool splits = pipeline_splits_backward(explained->schedule->plan.pipeline_schedule);

	if (explained->stages == NULL) {
		put_lines(
			"There is one stage: every rank holds all blocks of the model. --pipeline "
			"N cuts it into N stages, which this view shows.\n",
			0, style, text);
		return;
	}
	n = n < 20 ? 20 : n > MAX_CELLS ? MAX_CELLS : n;
	for (int c = 0; c < stage_count(explained); c++)
		add_stage(explained, c, n, pipeline_end(explained), text);
	text_printf(&legend,
		"\nA column is %s. 0 to 9: forward of a micro-batch, by its last digit; A to J: "
		"its backward%s.\no: the optimizer. A point: nothing is computed for most of it.\n",
		format_seconds(buffer, pipeline_end(explained) / n),
		splits ? ", a to j: that of weights" : "");
	put_lines(text_string(&legend), 0, style, text);
	text_finish(&legend);
}
