/* Expert parallelism: ranks hold experts of their own, tokens go to them and come back
 * (docs/runtimes.md). Ranks first tell one another how many rows they have for each expert; the
 * host waits for that, because buffers are as large as it says. Backward knows it already.
 *
 * As torchtitan has it, the ranks that cut an expert get all its rows each. As Megatron-LM has it,
 * each gets those of its part of the residual stream, and they gather them; results are summed and
 * scattered again. The weights of rows go the same way behind them, and their gradients come back
 * before them. Its dispatcher of gathered tokens has all ranks gather those of each other. */
#include "schedule/passes/lower.h"

/* The weights of rows travel, because experts weigh them or because the tokens that they are of do.
 */
static bool sends_weights(const struct step *step)
{
	return runtime_of(step->plan->runtime)->experts.weighs_activations;
}

static bool sends_rows(const struct step *step)
{
	return step->group_expert >= 0 && !step->model->division.gathers_tokens;
}

/* Where all experts get as many rows, every rank knows the numbers without asking. */
static void add_counts(struct step *step, const struct action *action)
{
	if (step->plan->capacity_factor > 0)
		return;
	action_add_beside(step, action,
		step->group_expert_all >= 0 ? ACTION_GATHER_COUNTS : ACTION_COUNT_ROWS, 0);
}

static void add_to_experts(
	struct step *step, const struct action *action, unsigned flags, bool weighed)
{
	if (sends_rows(step))
		action_add_beside(step, action, ACTION_DISPATCH_ROWS, flags);
	if (sends_rows(step) && weighed)
		action_add_beside(step, action, ACTION_DISPATCH_ROWS, OF_WEIGHTS);
	if (step->group_expert_tensor >= 0)
		action_add_beside(step, action, ACTION_GATHER_ROWS, 0);
	if (step->group_expert_tensor >= 0 && weighed)
		action_add_beside(step, action, ACTION_GATHER_ROWS, OF_WEIGHTS);
}

static void add_from_experts(
	struct step *step, const struct action *action, unsigned flags, bool weighed)
{
	if (step->group_expert_tensor >= 0 && weighed)
		action_add_beside(step, action, ACTION_SCATTER_ROWS, flags | OF_WEIGHTS);
	if (step->group_expert_tensor >= 0)
		action_add_beside(step, action, ACTION_SCATTER_ROWS, flags);
	if (sends_rows(step) && weighed)
		action_add_beside(step, action, ACTION_COMBINE_ROWS, flags | OF_WEIGHTS);
	if (sends_rows(step))
		action_add_beside(step, action, ACTION_COMBINE_ROWS, flags);
}

static void add_experts(struct step *step, struct action action)
{
	bool back = action_makes_input(&action), weighed = sends_weights(step);
	bool reads = action_reads_input(step, &action), ends = action_ends_range(step, &action);
	action.flags |= ends ? LEAVES_ROWS : 0;
	if (reads && !back)
		add_counts(step, &action);
	if (reads)
		add_to_experts(step, &action, back ? 0 : OF_INPUT, weighed && !back);
	action_add(step, action);
	if (ends)
		add_from_experts(step, &action, back ? 0 : OF_INPUT, weighed && back);
}

/* Rows are sent again where what they are for is computed again. */
static bool has_exchanges(const struct action *action)
{
	return action->kind == ACTION_FORWARD || action->kind == ACTION_RECOMPUTE ||
	       action_makes_input(action);
}

void pass_experts(struct step *step)
{
	if (step->group_expert < 0 && step->group_expert_tensor < 0)
		return;
	struct action_list old = actions_begin(step);
	for (int i = 0; i < old.n; i++) {
		const struct action *action = &old.items[i];
		if (has_exchanges(action) && step->ranges[action->range].receives_rows)
			add_experts(step, *action);
		else
			action_add(step, *action);
	}
	actions_end(&old);
}

/* --- lowering ------------------------------------------------------------------------------------
 */

static int take_rows(struct lowering *l, int64_t bytes)
{
	return op_take_new(l, BUFFER_ROWS, -1, bytes, l->op.dtype);
}

/* An exchange of weights moves one number for each row, in a buffer that ends with it. */
static bool are_weights(struct lowering *l)
{
	if (!(l->at->flags & OF_WEIGHTS))
		return false;
	l->op.dtype = DTYPE_FP32;
	l->op.bytes = row_weights_bytes(l->step, l->op.bytes);
	int weights = take_rows(l, l->op.bytes);
	op_give(l, &weights);
	return true;
}

/* Takes the buffer that comes from the rows before, which end with it. */
static void pass_rows(struct lowering *l, int *rows, int64_t bytes)
{
	int made = take_rows(l, bytes);
	op_use(l, *rows);
	op_give(l, rows);
	*rows = made;
}

/* Uses what says where rows go, and what they are made of: tensors of the router and of the
 * experts. */
static void use_routed(struct lowering *l)
{
	const struct flight *flight = flight_of(l);
	for (int r = l->at->range - 1; r <= l->at->range; r++) {
		op_use(l, flight->saved[r]);
		op_use(l, flight->results[r]);
	}
}

/* Ours sends counts that it has put together itself. */
void lower_COUNT_ROWS(struct lowering *l)
{
	l->op.dtype = DTYPE_INT64;
	op_set_exchange(l, l->step->group_expert, row_counts_bytes(l->step));
	int counts = take_rows(l, l->op.bytes);
	if (l->step->method.adds_in_compute) {
		int sent = take_rows(l, l->op.bytes);
		use_routed(l);
		op_give(l, &sent);
	}
	op_give(l, &counts);
}

void lower_GATHER_COUNTS(struct lowering *l)
{
	lower_COUNT_ROWS(l);
	l->op.group = l->step->group_expert_all;
}

/* Returns the room for rows that come from other expert ranks. */
static int64_t row_room(const struct lowering *l)
{
	return l->step->method.adds_in_compute ? row_room_bytes(l->step) : l->op.bytes;
}

/* Backward through the weighed sum, before the gradients of results are sent as rows. */
static int take_weighing(struct lowering *l, int64_t rows)
{
	int64_t more = l->work.results - rows;
	return more > 0 ? op_take_new(l, BUFFER_BACKWARD_WORK, -1, more, DTYPE_FP32) : -1;
}

/* The rank's own rows in the order of their experts are a copy, which ends with this operation. */
void lower_DISPATCH_ROWS(struct lowering *l)
{
	op_set_exchange(l, l->step->group_expert, arrived_rows_bytes(l->step));
	if (are_weights(l))
		return;
	int sent = take_rows(l, sent_rows_bytes(l->step));
	flight_of(l)->rows[l->at->range] = take_rows(l, row_room(l));
	int weighing = -1;
	if (!(l->at->flags & OF_INPUT))
		weighing = take_weighing(l, sent_rows_bytes(l->step) + row_room(l));
	if (l->step->method.adds_in_compute) {
		use_routed(l);
		if (!(l->at->flags & OF_INPUT))
			op_use_stream_gradient(l);
	}
	op_give(l, &sent);
	op_give(l, &weighing);
}

/* Gathers the rows that have arrived or, if all experts are here, the rank's own; or tokens, which
 * are there. */
void lower_GATHER_ROWS(struct lowering *l)
{
	int *rows = &flight_of(l)->rows[l->at->range];
	op_set_exchange(l, l->step->group_expert_tensor, gathered_rows_bytes(l->step));
	if (are_weights(l))
		return;
	if (*rows < 0 && !l->step->model->division.gathers_tokens)
		*rows = take_rows(l, arrived_rows_bytes(l->step));
	pass_rows(l, rows, l->op.bytes);
}

/* Results that come back lie among the saved tensors, unless nobody keeps them. */
static void return_rows(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	bool is_result = l->at->flags & OF_INPUT;
	bool keeps = !l->step->rules.weighs_activations && !l->step->model->division.gathers_tokens;
	op_use(l, flight->rows_leaving);
	op_give(l, &flight->rows_leaving);
	if (is_result && keeps) {
		op_use(l, flight->saved[l->at->range]);
		return;
	}
	flight->rows_returned = take_rows(l, returned_rows_bytes(l->step));
	if (is_result)
		op_give(l, &flight->rows_returned);
}

void lower_SCATTER_ROWS(struct lowering *l)
{
	op_set_exchange(l, l->step->group_expert_tensor, gathered_rows_bytes(l->step));
	if (are_weights(l))
		return;
	if (!sends_rows(l->step))
		return_rows(l);
	else
		pass_rows(l, &flight_of(l)->rows_leaving, arrived_rows_bytes(l->step));
}

/* Ours adds up a token's results and the residual stream when all of them are there. */
void lower_COMBINE_ROWS(struct lowering *l)
{
	bool ours = l->step->method.adds_in_compute;
	op_set_exchange(l, l->step->group_expert, arrived_rows_bytes(l->step));
	if (are_weights(l))
		return;
	return_rows(l);
	if (!ours)
		return;
	use_routed(l);
	if (!(l->at->flags & OF_INPUT) || (l->at->flags & IN_BACKWARD))
		return;
	op_use(l, flight_of(l)->residuals[l->step->ranges[l->at->range].slot + 1]);
	op_give_dropped(l);
}
