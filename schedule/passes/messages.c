/* Messages between stages of a pipeline. A forward pass through a stage receives activations from
 * the stage before and sends its own to the next one; a backward pass does the same with gradients
 * in the other direction. Stages of one rank hand them over without a message. The weight part of a
 * backward neither receives nor sends. */
#include "schedule/passes/step.h"

struct posting {
	int pass;    /* the next pass of the rank */
	int n, next; /* receives that are posted early, and the next of them */
	struct pipeline_receive *receives;
};

/* Posts the receives that are due before the next pass. They carry no flight, because the passes
 * that they are for have not begun. */
static void post(struct step *step, struct posting *posting)
{
	for (; posting->next < posting->n &&
		posting->receives[posting->next].before <= posting->pass;
		posting->next++) {
		const struct pipeline_receive *receive = &posting->receives[posting->next];
		struct action action = action_of_step(ACTION_RECEIVE, -1);
		action.flags = receive->is_backward ? IN_BACKWARD : 0;
		action.micro_batch = receive->micro_batch;
		action.chunk = receive->chunk;
		action_add(step, action);
	}
	posting->pass++;
}

/* Adds a message to or from the stage at that distance, if there is one, or `mark` where that stage
 * is on the same rank. True when it added a message. */
static bool add(struct step *step, const struct action *at, int distance, enum action_kind message,
	enum action_kind mark)
{
	const struct pipeline *pipeline = &step->pipeline;
	int stage = pipeline_stage(pipeline, step->class, at->chunk) + distance;
	int rank, chunk;
	if (stage < 0 || stage >= pipeline->ranks * pipeline->chunks || at->flags & WEIGHT_PART)
		return false;
	pipeline_place(pipeline, stage, &rank, &chunk);
	action_add(step, action_at(at, rank == step->class ? mark : message, -1));
	return rank != step->class;
}

/* Adds the receive, and the gather of the parts that other tensor ranks have received. */
static void add_received(struct step *step, const struct action *at, int distance, bool early)
{
	enum action_kind kind = early ? ACTION_TAKE_OVER : ACTION_RECEIVE;
	if (add(step, at, distance, kind, ACTION_TAKE_OVER) && step->plan->scatter_gather)
		action_add(step, action_at(at, ACTION_GATHER_MESSAGE, -1));
}

void pass_messages(struct step *step)
{
	if (step->pipeline.ranks == 1)
		return;
	bool early = pipeline_receives_early(&step->pipeline);
	struct posting posting = {0};
	if (early)
		posting.n = pipeline_receives(
			&step->pipeline, step->class, step->arena, &posting.receives);
	struct action_list old = actions_begin(step);
	for (int i = 0; i < old.n; i++) {
		const struct action *action = &old.items[i];
		int onwards = action->flags & IN_BACKWARD ? -1 : 1;
		if (action->kind == ACTION_PASS_BEGINS)
			post(step, &posting);
		action_add(step, *action);
		if (action->kind == ACTION_PASS_BEGINS)
			add_received(step, action, -onwards, early);
		else if (action->kind == ACTION_PASS_ENDS)
			add(step, action, onwards, ACTION_SEND, ACTION_HAND_OVER);
	}
	actions_end(&old);
}
