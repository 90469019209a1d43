/* Context parallelism: attention of a rank's own queries over the keys and values of all ranks.
 * All-gather (Llama 3, 2407.21783): keys and values are gathered, and the rank's part of their
 * gradients is reduce-scattered. Ring (2310.01889; torch, Transformer Engine): attention is
 * computed in rounds, one block of keys each; meanwhile the block is on its way to the next rank.
 * torch computes the same rounds on gathered keys. All-to-all (2309.14509): ranks exchange some
 * tokens of all heads for all tokens of some heads, and back. */
#include "schedule/passes/step.h"

static void add_gathered(struct step *step, struct action action)
{
	bool back = action_makes_input(&action);
	if (action_reads_input(step, &action))
		action_add_beside(step, &action, ACTION_GATHER_KEYS, 0);
	action.flags |= back ? LEAVES_KEYS : 0;
	action_add(step, action);
	if (back)
		action_add_beside(step, &action, ACTION_SCATTER_KEYS, 0);
}

/* Our own runtime saves the results that have come back, so forward leaves its results
 * (LEAVES_KEYS) as backward leaves gradients. */
static void add_by_heads(struct step *step, struct action action)
{
	bool back = action_makes_input(&action);
	action_add_beside(step, &action, ACTION_CUT_HEADS, back ? 0 : OF_INPUT);
	action.flags |= back || step->method.adds_in_compute ? LEAVES_KEYS : 0;
	action_add(step, action);
	action_add_beside(step, &action, ACTION_JOIN_HEADS, back ? 0 : OF_INPUT);
}

/* Adds a round beside the action itself, which alone has weights and tensors of its own. */
static void add_round(
	struct step *step, const struct action *at, enum action_kind kind, unsigned flags)
{
	struct action round = action_at(at, kind, -1);
	round.range = at->range;
	round.flags |= IN_ROUNDS | flags;
	action_add(step, round);
}

/* Brings keys and values for the next round. Where they are gathered, all come beside the first. */
static void bring_keys(struct step *step, const struct action *action, unsigned flags)
{
	if (step->plan->context_method == CONTEXT_RING)
		action_add_beside(step, action, ACTION_ROTATE_KEYS, flags);
	else if (flags & FIRST)
		action_add_beside(step, action, ACTION_GATHER_KEYS, IN_ROUNDS);
}

/* The action is the first round of forward, because it takes the buffers that later rounds fill.
 * With gathered keys all later rounds are one operation: nothing arrives between them. */
static void add_ring(struct step *step, struct action action)
{
	int64_t rounds = plan_attention_rounds(step->plan);
	enum action_kind other =
		action.kind == ACTION_FORWARD ? ACTION_ROUND_FORWARD : ACTION_ROUND_RECOMPUTE;
	bring_keys(step, &action, OF_INPUT | FIRST);
	action.flags |= IN_ROUNDS;
	action_add(step, action);
	for (int64_t r = 1; r < rounds - 1 && step->plan->context_method == CONTEXT_RING; r++) {
		bring_keys(step, &action, OF_INPUT);
		add_round(step, &action, other, 0);
	}
	add_round(step, &action, other, ENDS_ROUNDS);
}

/* The action is the last round of backward, because it gives back the buffers that earlier rounds
 * read. Gradients of keys follow their keys by one round. */
static void add_ring_back(struct step *step, struct action action)
{
	const struct ring_rules *ring = runtime_of(step->plan->runtime)->ring;
	int64_t rounds = plan_attention_rounds(step->plan);
	bool apart = ring->sends_sums_apart;
	for (int64_t r = 0; r < rounds - 1; r++) {
		unsigned first = r == 0 ? FIRST : 0;
		bring_keys(step, &action, apart || r == 0 ? OF_INPUT | first : 0);
		add_round(step, &action, ACTION_ROUND_BACKWARD, first);
		if (apart && !(first && ring->keeps_own_sums))
			action_add_beside(step, &action, ACTION_ROTATE_SUMS, 0);
	}
	if (!apart)
		action_add_beside(step, &action, ACTION_ROTATE_SUMS, 0);
	action.flags |= IN_ROUNDS | ENDS_ROUNDS;
	action_add(step, action);
	if (apart)
		action_add_beside(step, &action, ACTION_ROTATE_SUMS, 0);
}

static void add_attention(struct step *step, const struct action *action)
{
	if (step->plan->context_method == CONTEXT_ALL_TO_ALL)
		add_by_heads(step, *action);
	else if (plan_attention_rounds(step->plan) == 1)
		add_gathered(step, *action);
	else if (action_makes_input(action))
		add_ring_back(step, *action);
	else
		add_ring(step, *action);
}

void pass_context(struct step *step)
{
	if (step->group_context < 0)
		return;
	struct action_list old = actions_begin(step);
	for (int i = 0; i < old.n; i++) {
		const struct action *action = &old.items[i];
		bool computes = action->kind == ACTION_FORWARD ||
				action->kind == ACTION_RECOMPUTE || action_makes_input(action);
		if (computes && step->ranges[action->range].gathers_keys)
			add_attention(step, action);
		else
			action_add(step, *action);
	}
	actions_end(&old);
}
