/* What stages of a pipeline send each other: a pass through a stage begins with the activations of
 * the stage before (backward: with their gradients, from the stage behind), and ends with its own
 * on their way. Stages of one rank hand them over without a message. */
#include "schedule/passes/step.h"

/* Is there a stage so far on, of another rank? */
static bool has_other_end(const struct step *step, const struct action *at, int distance)
{
	const struct pipeline *pipeline = &step->pipeline;
	int stage = pipeline_stage(pipeline, step->class, at->chunk) + distance;
	int rank, chunk;
	if (stage < 0 || stage >= pipeline->ranks * pipeline->chunks)
		return false;
	pipeline_place(pipeline, stage, &rank, &chunk);
	return rank != step->class;
}

static void add(struct step *step, const struct action *at, enum action_kind kind, int distance)
{
	if (has_other_end(step, at, distance))
		action_add(step, action_at(at, kind, -1));
}

void pass_messages(struct step *step)
{
	if (step->pipeline.ranks == 1)
		return;
	struct action_list old = actions_begin(step);
	for (int i = 0; i < old.n; i++) {
		const struct action *action = &old.items[i];
		int onwards = action->flags & IN_BACKWARD ? -1 : 1;
		action_add(step, *action);
		if (action->kind == ACTION_PASS_BEGINS)
			add(step, action, ACTION_RECEIVE, -onwards);
		else if (action->kind == ACTION_PASS_ENDS)
			add(step, action, ACTION_SEND, onwards);
	}
	actions_end(&old);
}
