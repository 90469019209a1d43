#include "reports/views/pipeline_passes.h"
#include "schedule/pipeline/pipeline.h"

#include <string.h>

/* Blue and green as in papers on pipelines. A loss counts as part of the forward pass before it,
 * recomputation as part of its backward pass. */
#define FORWARD                                                                                    \
	{                                                                                          \
		"forward", "#0072b2", '0', true                                                    \
	}
#define BACKWARD                                                                                   \
	{                                                                                          \
		"backward", "#009e73", 'A', true                                                   \
	}

static const struct pass_kind kinds[OP_KIND_COUNT] = {
	[OP_FORWARD] = FORWARD,
	[OP_LOSS] = FORWARD,
	[OP_RECOMPUTE] = BACKWARD,
	[OP_BACKWARD] = BACKWARD,
	[OP_BACKWARD_INPUT] = BACKWARD,
	[OP_BACKWARD_WEIGHT] = {"weights", "#56b4a0", 'a', true},
	[OP_OPTIMIZER] = {"optimizer", "#c9b700", 'o', false},
};

struct pass_kind pass_kind(enum op_kind kind)
{
	return kinds[kind];
}

int stage_count(const struct explained *explained)
{
	return explained->stages != NULL ? explained->whole->n_classes : 1;
}

static const struct timeline *timeline_of(const struct explained *explained, int stage)
{
	return explained->stages != NULL ? explained->stages[stage] : explained->predicted;
}

double pipeline_end(const struct explained *explained)
{
	double end = 0;

	for (int s = 0; s < stage_count(explained); s++) {
		const struct timeline *timeline = timeline_of(explained, s);
		double ends = timeline->begins + timeline_end(timeline);
		end = ends > end ? ends : end;
	}
	return end;
}

/* The chunk of a unit: what precedes the blocks belongs to the first stage, what follows them to
 * the last. */
static int chunk_of(
	const struct program *program, const struct op *op, const int *chunks, int n_chunks)
{
	const struct model *model = program->model;

	if (chunks == NULL || model == NULL || op->first_module < 0 ||
		op->first_module >= model->n_modules || op->kind == OP_OPTIMIZER)
		return 0;
	const struct module *module = &model->modules[op->first_module];
	if (module->layer >= 0)
		return chunks[module->layer];
	return module_kind_is_before_blocks(module->kind) ? 0 : n_chunks - 1;
}

/* The kind of pass of an operation. Parts of a block that follow one another are one backward
 * pass. */
static enum op_kind kind_of(const struct plan *plan, const struct op *op)
{
	bool splits = pipeline_splits_backward(plan->pipeline_schedule);

	return op_kind_is_backward(op->kind) && !splits ? OP_BACKWARD : op->kind;
}

static bool goes_on(const struct stage_pass *last, const struct stage_pass *next)
{
	return strcmp(kinds[last->kind].name, kinds[next->kind].name) == 0 &&
	       last->micro_batch == next->micro_batch && last->chunk == next->chunk;
}

int passes_of(const struct explained *explained, int stage, struct arena *arena,
	struct stage_pass **passes)
{
	const struct schedule *schedule =
		explained->stages != NULL ? explained->whole : explained->schedule;
	const struct timeline *timeline = timeline_of(explained, stage);
	const struct program *program = &schedule->programs[stage];
	struct stage_pass *found = ARENA_ARRAY(arena, struct stage_pass, program->n_ops);
	int n_chunks = plan_pipeline(&schedule->plan).chunks, n = 0;
	const int *chunks = NULL;

	if (n_chunks > 1 && schedule->model != NULL)
		plan_stage(&schedule->plan, schedule->model, stage, arena, &chunks);
	for (int i = 0; i < program->n_ops && i < timeline->n_ops; i++) {
		const struct op *op = &program->ops[i];
		struct stage_pass next = {kind_of(&schedule->plan, op), op->micro_batch,
			chunk_of(program, op, chunks, n_chunks),
			timeline->begins + timeline->spans[i].start,
			timeline->begins + timeline->spans[i].end};
		if (kinds[op->kind].first == 0)
			continue;
		if (n == 0 || !goes_on(&found[n - 1], &next)) {
			found[n++] = next;
			continue;
		}
		found[n - 1].kind = next.kind;
		found[n - 1].end = next.end > found[n - 1].end ? next.end : found[n - 1].end;
	}
	*passes = found;
	return n;
}
