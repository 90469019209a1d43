/* What stages of a pipeline send each other: the residual stream at the end of a stage, and its
 * gradient. */
#include "schedule/passes/lower.h"

static bool is_back(const struct lowering *l)
{
	return l->at->flags & IN_BACKWARD;
}

/* `distance` to the stage at the other end. */
static void set_message(struct lowering *l, int distance)
{
	const struct step *step = l->step;
	int rank, chunk, stage = pipeline_stage(&step->pipeline, step->class, l->at->chunk);
	pipeline_place(&step->pipeline, stage + distance, &rank, &chunk);
	l->op.group = is_back(l) ? step->group_backward : step->group_forward;
	l->op.bytes = residual_bytes(step);
	l->op.message = (struct message){.peer = rank,
		.chunk = l->op.kind == OP_SEND ? l->at->chunk : chunk,
		.direction = is_back(l) ? DIRECTION_BACKWARD : DIRECTION_FORWARD};
}

/* The input of the first range of the stage, or the output of the last one. */
static int *residual_at(struct lowering *l, bool is_output)
{
	int range = l->step->last_ranges[l->at->chunk];
	if (is_output)
		return &flight_of(l)->residuals[l->step->ranges[range].slot + 1];
	while (!l->step->ranges[range].first_of_chunk)
		range--;
	return &flight_of(l)->residuals[l->step->ranges[range].slot];
}

void lower_SEND(struct lowering *l)
{
	int *sent = is_back(l) ? &flight_of(l)->backward_work : residual_at(l, true);
	set_message(l, is_back(l) ? -1 : 1);
	op_use(l, *sent);
	if (is_back(l) || !runtime_of(l->step->plan->runtime)->keeps_stage_output)
		op_give(l, sent);
}

void lower_RECEIVE(struct lowering *l)
{
	int *received = is_back(l) ? &flight_of(l)->received : residual_at(l, false);
	set_message(l, is_back(l) ? 1 : -1);
	*received = op_take_new(l, is_back(l) ? BUFFER_RESIDUAL_GRADIENT : BUFFER_RESIDUAL, -1,
		l->op.bytes, l->step->plan->param_dtype);
}
