/* Chooses the method of attention over the tokens of all context ranks. */
#include "executor/compute/context.h"

static const struct context_calls *method_of(const struct leaf *leaf)
{
	static const struct context_calls *const methods[] = {
		[CONTEXT_ALL_GATHER] = &context_by_gather,
		[CONTEXT_RING] = &context_by_ring,
		[CONTEXT_ALL_TO_ALL] = &context_by_heads};

	return methods[leaf->compute->schedule->plan.context_method];
}

void *context_given(const struct leaf *leaf)
{
	return method_of(leaf)->given(leaf);
}

void context_attention(const struct leaf *leaf, const struct attention *attention)
{
	method_of(leaf)->attention(leaf, attention);
}

void context_attention_backward(const struct leaf *leaf, const struct attention_backward *backward)
{
	method_of(leaf)->backward(leaf, backward);
}

bool context_turns_at_once(const struct compute *c)
{
	return c->chunks > 0 && c->schedule->plan.context_method != CONTEXT_ALL_GATHER;
}

void context_take_results(const struct leaf *leaf)
{
	if (leaf->compute->chunks > 0 && method_of(leaf)->take_results != NULL)
		method_of(leaf)->take_results(leaf);
}

bool context_returns_gradients(const struct leaf *leaf)
{
	return leaf->compute->chunks > 0 && leaf_module(leaf)->layer >= 0 &&
	       leaf_siblings(leaf)->of[MODULE_ATTENTION_CORE] == leaf->module + 1;
}

void context_take_gradients(const struct leaf *leaf, const struct attention_backward *gradients)
{
	method_of(leaf)->take_gradients(leaf, gradients);
}
