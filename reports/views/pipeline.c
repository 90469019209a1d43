/* The pipeline: which micro-batch every stage computes, moment by moment. */
#include "reports/views/each.h"

enum { NAME_WIDTH = 10, DEFAULT_WIDTH = 100, MAX_CELLS = 400, MICRO_BATCHES_SHOWN = 10 };

/* Of one micro-batch a digit in forward, a letter in backward. */
static const struct {
	char first; /* of the micro-batches; 0: it is not drawn */
	bool counts;
} letters[OP_KIND_COUNT] = {
	[OP_FORWARD] = {'0', true},
	[OP_LOSS] = {'0', true},
	[OP_RECOMPUTE] = {'A', true},
	[OP_BACKWARD] = {'A', true},
	[OP_OPTIMIZER] = {'o', false},
};

static char letter_of(const struct op *op)
{
	int micro_batch = letters[op->kind].counts ? op->micro_batch % MICRO_BATCHES_SHOWN : 0;

	return (char)(letters[op->kind].first + micro_batch);
}

struct cells {
	int n;
	double width; /* s */
	double most[MAX_CELLS];
	char letters[MAX_CELLS + 1];
};

/* What a cell shows is what it has most of. */
static void fill(struct cells *cells, const struct span *span, char letter)
{
	int first = (int)(span->start / cells->width);

	for (int i = first < 0 ? 0 : first; i < cells->n && i * cells->width < span->end; i++) {
		double from = i * cells->width, to = from + cells->width;
		double share = (span->end < to ? span->end : to) -
			       (span->start > from ? span->start : from);

		if (share <= cells->most[i])
			continue;
		cells->most[i] = share;
		cells->letters[i] = letter;
	}
}

static void add_stage(
	const struct explained *explained, int stage, int n, double step, struct text *text)
{
	const struct program *program = &explained->whole->programs[stage];
	const struct timeline *timeline = explained->stages[stage];
	struct cells cells = {.n = n, .width = step / n};

	for (int i = 0; i < n; i++)
		cells.letters[i] = '.';
	for (int i = 0; i < program->n_ops; i++) {
		char letter = letter_of(&program->ops[i]);

		if (letter != '\0')
			fill(&cells, &timeline->spans[i], letter);
	}
	text_printf(text, "stage %-3d %s\n", stage, cells.letters);
}

void view_pipeline(const struct explained *explained, const struct style *style, struct text *text)
{
	int n = (style->width > 0 ? style->width : DEFAULT_WIDTH) - NAME_WIDTH;
	char buffer[32];

	if (explained->stages == NULL) {
		text_add(text, "There is one stage: every rank holds all blocks of the model. "
			       "--pipeline N "
			       "cuts it into N stages, which this view shows.\n");
		return;
	}
	n = n < 20 ? 20 : n > MAX_CELLS ? MAX_CELLS : n;
	for (int c = 0; c < explained->whole->n_classes; c++)
		add_stage(explained, c, n, explained->stages[0]->step_time, text);
	text_printf(text,
		"\nA column is %s. 0 to 9: forward of a micro-batch, by its last digit; A to J: "
		"its "
		"backward.\no: the optimizer. A point: nothing is computed for most of it.\n",
		format_seconds(buffer, explained->stages[0]->step_time / n));
}
