/* Computes a forward and a backward pass of two micro-batches together, so that the rows of one
 * travel to experts and back while the other one is computed. Both go through their blocks side by
 * side, the forward from its first block on, the backward from its last one. The host issues, in
 * this order (Megatron-Core d98e8a64, models/common/model_chunk_schedule_plan.py):
 *
 *   rows      gradients to experts         rows to them, gradients back       results back
 *   compute   forward up to the router     experts, backward then forward     the rest backward
 *
 * Each waits for its own micro-batch alone (PAIRED; waits.c). */
#include "schedule/passes/step.h"

/* What a pass does with a block, part by part. One without experts, or without ranks that share
 * them out, has the first part alone in forward, and the last one alone in backward. */
enum { PARTS = 4 };
enum forward_part { UP_TO_ROUTER, ROWS_TO_EXPERTS, EXPERTS_FORWARD, RESULTS_BACK };
enum backward_part { GRADIENTS_TO_EXPERTS, EXPERTS_BACKWARD, GRADIENTS_BACK, DOWN_FROM_ROUTER };

struct block {
	int begins[PARTS + 1]; /* where each part begins in the list; the last one's end */
};

/* A pass: actions [first, end) of the list, of which those before the first block and those from
 * `tail` on belong to none. */
struct through {
	int first, tail, end;
	int n;
	struct block *blocks; /* in the order in which the pass comes to them */
};

static bool moves_rows(const struct action *action)
{
	return action->stream == STREAM_EXPERT;
}

static bool computes_experts(const struct step *step, const struct action *action)
{
	return (action->kind == ACTION_FORWARD || action->kind == ACTION_BACKWARD) &&
	       step->ranges[action->range].receives_rows;
}

static int forward_part(const struct step *step, const struct action *action, int part)
{
	if (computes_experts(step, action))
		return EXPERTS_FORWARD;
	if (moves_rows(action))
		return part < EXPERTS_FORWARD ? ROWS_TO_EXPERTS : RESULTS_BACK;
	return part;
}

static int backward_part(const struct step *step, const struct action *action, int part)
{
	if (computes_experts(step, action))
		return EXPERTS_BACKWARD;
	if (action->kind == ACTION_BACKWARD)
		return DOWN_FROM_ROUTER;
	if (moves_rows(action) && part == EXPERTS_BACKWARD)
		return GRADIENTS_BACK;
	return part;
}

/* --- a pass, block by block ------------------------------------------------------------------- */

static int layer_of(const struct step *step, const struct action *action)
{
	return action->range >= 0 ? step->ranges[action->range].layer : -1;
}

/* Parts that were left out are empty. */
static void begin_parts(struct block *block, int from, int to, int at)
{
	for (int part = from; part <= to; part++)
		block->begins[part] = at;
}

static void end_block(struct through *pass, int part, int at)
{
	if (pass->n > 0)
		begin_parts(&pass->blocks[pass->n - 1], part + 1, PARTS, at);
}

static bool leaves_blocks(const struct step *step, const struct action *action, bool any)
{
	return action->kind == ACTION_PASS_ENDS ||
	       (any && action->range >= 0 && layer_of(step, action) < 0);
}

static struct through through_of(
	struct step *step, const struct action_list *list, int first, int end)
{
	struct through pass = {first, first, end, 0, NULL};
	bool back = list->items[first].flags & IN_BACKWARD;
	int part = 0, layer = -1;
	pass.blocks = ARENA_ARRAY(step->arena, struct block, step->model->architecture.layers);
	for (; pass.tail < end; pass.tail++) {
		const struct action *action = &list->items[pass.tail];
		int before = part;
		if (leaves_blocks(step, action, pass.n > 0))
			break;
		if (layer_of(step, action) >= 0 && layer_of(step, action) != layer) {
			end_block(&pass, part, pass.tail);
			layer = layer_of(step, action);
			part = before = 0;
			pass.blocks[pass.n++].begins[0] = pass.tail;
		}
		if (pass.n == 0)
			continue;
		part = back ? backward_part(step, action, part) : forward_part(step, action, part);
		if (part > before)
			begin_parts(&pass.blocks[pass.n - 1], before + 1, part, pass.tail);
	}
	end_block(&pass, part, pass.tail);
	return pass;
}

/* --- two of them side by side ----------------------------------------------------------------- */

static void add(struct step *step, const struct action_list *list, int first, int end)
{
	for (int i = first; i < end; i++)
		action_add(step, list->items[i]);
}

static void add_part(struct step *step, const struct action_list *list, const struct through *pass,
	int i, int part)
{
	if (i < pass->n)
		add(step, list, pass->blocks[i].begins[part], pass->blocks[i].begins[part + 1]);
}

static void add_head(struct step *step, const struct action_list *list, const struct through *pass)
{
	add(step, list, pass->first, pass->n > 0 ? pass->blocks[0].begins[0] : pass->tail);
}

static void add_pair(struct step *step, const struct action_list *list,
	const struct through *forward, const struct through *backward)
{
	add_head(step, list, forward);
	add_head(step, list, backward);
	for (int i = 0; i < forward->n || i < backward->n; i++) {
		add_part(step, list, backward, i, GRADIENTS_TO_EXPERTS);
		add_part(step, list, forward, i, UP_TO_ROUTER);
		add_part(step, list, backward, i, EXPERTS_BACKWARD);
		add_part(step, list, forward, i, ROWS_TO_EXPERTS);
		add_part(step, list, backward, i, GRADIENTS_BACK);
		add_part(step, list, forward, i, EXPERTS_FORWARD);
		add_part(step, list, forward, i, RESULTS_BACK);
		add_part(step, list, backward, i, DOWN_FROM_ROUTER);
	}
	add(step, list, forward->tail, forward->end);
	add(step, list, backward->tail, backward->end);
}

static int end_of_pass(const struct action_list *list, int first)
{
	int end = first + 1;
	while (end < list->n && list->items[end].kind != ACTION_PASS_BEGINS)
		end++;
	return end;
}

void pass_pairs(struct step *step)
{
	if (!step->pipeline.pairs)
		return;
	struct action_list old = actions_begin(step);
	for (int i = 0; i < old.n;) {
		const struct action *action = &old.items[i];
		bool begins = action->kind == ACTION_PASS_BEGINS && (action->flags & PAIRED) &&
			      !(action->flags & IN_BACKWARD);
		if (!begins) {
			action_add(step, old.items[i++]);
			continue;
		}
		int middle = end_of_pass(&old, i), end = end_of_pass(&old, middle);
		struct through forward = through_of(step, &old, i, middle);
		struct through backward = through_of(step, &old, middle, end);
		add_pair(step, &old, &forward, &backward);
		i = end;
	}
	actions_end(&old);
}
