/* Tensor parallelism: says what the ranks that cut the model's layers exchange (docs/runtimes.md).
 * Between the column-parallel and the row-parallel layers every rank has all tokens. Without
 * sequence parallelism it has them on the residual stream too: partial sums are reduced behind a
 * row-parallel layer, and in backward behind a column-parallel one. With sequence parallelism they
 * are scattered there, and gathered on the way back.
 *
 * Asynchronously (torch/_inductor/fx_passes/micro_pipeline_tp.py,
 * torch/distributed/_symmetric_memory), a gather and the products that read it, or a product and
 * the sum of what it makes, are one operation of as many chunks as there are ranks: while one chunk
 * is multiplied, the next one is copied. This happens in the blocks, which are compiled, where the
 * product itself stands next to the exchange. It does not where there is a bias (another operator),
 * where what was gathered is cast first, or in the backward of column-parallel layers, whose
 * gradients are added up before they are scattered. Transformer Engine's layers do the same by
 * themselves, with or without a bias (comm_gemm_overlap), and what Megatron-LM exchanges beside
 * products stays there. */
#include "schedule/passes/sizes.h"

static void add_gather(struct step *step, const struct action *at, unsigned flags)
{
	if (step->plan->sequence_parallel)
		action_add_beside(step, at, ACTION_GATHER_TOKENS, flags);
}

static bool takes_bias(const struct step *step, int leaf)
{
	return !module_has_bias(&step->model->modules[leaf]) ||
	       runtime_of(step->plan->runtime)->layers_exchange;
}

/* Either the input of the range is gathered, or the gradient of what it returns. */
static bool is_gathered_beside(const struct step *step, const struct range *range, bool is_input)
{
	int leaf = is_input ? range->first_module : range->end_module - 1;
	bool cast = fp8_converts(step->plan, step->model, leaf) && !fp8_is_gathered(step->plan);
	if (cast || leaf_side(step, leaf) != (is_input ? SIDE_INPUT : SIDE_OUTPUT))
		return false;
	return !is_input || (takes_bias(step, leaf) && !range->first_of_slot);
}

static bool is_summed_beside(const struct step *step, const struct range *range)
{
	return leaf_side(step, range->first_module) == SIDE_OUTPUT &&
	       takes_bias(step, range->first_module);
}

static void add_to_peers(
	struct step *step, const struct action *at, enum action_kind kind, unsigned flags)
{
	struct action *exchange;
	action_add_beside(step, at, kind, flags | BESIDE);
	exchange = &step->actions.items[step->actions.n - 1];
	exchange->stream = STREAM_PEER;
	exchange->first_module = at->first_module;
	exchange->end_module = at->end_module;
}

static void add_compute_beside(struct step *step, const struct action *at, unsigned flags)
{
	struct action compute = *at;
	compute.flags |= BESIDE | flags;
	action_add(step, compute);
}

/* Of the two matrices of an adapter one is cut where the other is whole. Between them ranks
 * exchange a few numbers a token, behind column-parallel A or before row-parallel B. They wait for
 * it, before the compute of the range here. */
static void add_adapters(struct step *step, const struct action *at)
{
	const struct range *range = &step->ranges[at->range];
	bool back = !(at->kind == ACTION_FORWARD || at->kind == ACTION_RECOMPUTE);
	for (int m = range->first_module; m < range->end_module; m++) {
		const struct module *module = &step->model->modules[m];
		enum tensor_cut cut = module_cut(module->kind);
		if (module->adapter < 0 || cut == CUT_NOT)
			continue;
		action_add_beside(step, at,
			(cut == CUT_ROWS) == back ? ACTION_SCATTER_ADAPTER : ACTION_GATHER_ADAPTER,
			0);
		struct action *exchange = &step->actions.items[step->actions.n - 1];
		exchange->first_module = m;
		exchange->end_module = m + 1;
	}
}

/* Adds the compute, and the sum of what it leaves behind. */
static void add_summed(struct step *step, const struct action *at, bool is_summed)
{
	struct action compute = *at;
	compute.flags |= is_summed ? LEAVES_SUM : 0;
	action_add(step, compute);
	if (is_summed)
		action_add_beside(step, at,
			step->plan->sequence_parallel ? ACTION_SCATTER_TOKENS
						      : ACTION_REDUCE_TOKENS,
			0);
}

/* Where the last layer of a block is not computed again, nor is what comes behind it. */
static void add_forward(struct step *step, const struct action *action)
{
	const struct range *range = &step->ranges[action->range];
	bool recomputed = action->kind == ACTION_RECOMPUTE;
	bool needed = !recomputed || !range->last_of_slot || step->method.recomputes_to_end;
	bool gathers = range->leaves_stream && action_reads_input(step, action);
	bool sums = range->joins_stream && action_ends_range(step, action) && needed;
	if (gathers && is_gathered_beside(step, range, true)) {
		add_to_peers(step, action, ACTION_GATHER_TOKENS, OF_INPUT);
		add_compute_beside(step, action, 0);
		return;
	}
	if (sums && is_summed_beside(step, range)) {
		add_compute_beside(step, action, LEAVES_SUM);
		add_to_peers(step, action, ACTION_SCATTER_TOKENS, 0);
		action_add_beside(step, action, ACTION_ADD_SUM, BESIDE);
		return;
	}
	if (gathers)
		add_gather(step, action, OF_INPUT);
	add_summed(step, action, sums);
	/* Elsewhere the next compute adds the sum, but here that belongs to another stage. */
	if (!recomputed && range->joins_stream && range->last_of_chunk &&
		step->method.adds_in_compute)
		action_add_beside(step, action, ACTION_ADD_SUM, 0);
}

/* Returns the end of the column-parallel layers that a range begins with. */
static int columns_end(const struct step *step, const struct range *range)
{
	const struct module *modules = step->model->modules;
	int m = range->first_module;
	while (m < range->end_module && module_is_linear(modules[m].kind) &&
		!module_kind_is_of_experts(modules[m].kind))
		m++;
	return m;
}

/* Does backward gather the input again, for the gradients of weights? Where these are frozen it
 * does not, and an adapter has kept its own. */
static bool gathers_again(const struct step *step, const struct range *range)
{
	bool frozen = false, trained = false;
	for (int m = range->first_module; m < range->end_module; m++) {
		const struct module *module = &step->model->modules[m];
		bool linear = module_is_linear(module->kind);
		frozen = frozen || (linear && module->weight_frozen);
		trained = trained || (linear && !module->weight_frozen);
	}
	return (trained || !frozen) && !step->rules.keeps_gathered_input;
}

/* Column-parallel layers are computed by themselves: their input comes in beside dX, which is
 * summed beside dW. */
static void add_overlapped(struct step *step, const struct action *action)
{
	const struct range *range = &step->ranges[action->range];
	struct action part = *action;
	part.flags |= BESIDE;
	part.first_module = columns_end(step, range);
	part.end_module = range->end_module;
	if (part.first_module < part.end_module)
		action_add(step, part);
	if (gathers_again(step, range))
		add_gather(step, action, OF_INPUT | BESIDE);
	part.end_module = part.first_module;
	part.first_module = range->first_module;
	part.kind = ACTION_BACKWARD_INPUT;
	add_summed(step, &part, true);
	part.kind = ACTION_BACKWARD_WEIGHT;
	action_add(step, part);
}

/* dX is made chunk by chunk of the gradient that comes in, and dW needs all of it. */
static void add_beside_gradient(struct step *step, const struct action *action)
{
	struct action part = *action;
	add_to_peers(step, action, ACTION_GATHER_TOKENS, 0);
	part.kind = ACTION_BACKWARD_INPUT;
	add_compute_beside(step, &part, 0);
	part.kind = ACTION_BACKWARD_WEIGHT;
	add_compute_beside(step, &part, 0);
}

/* Backward gathers the gradient of what the range returned, and its input again. */
static void add_backward(struct step *step, const struct action *action)
{
	const struct range *range = &step->ranges[action->range];
	bool overlaps = runtime_of(step->plan->runtime)->overlaps_exchanges &&
			!step->plan->serial_tensor && range->leaves_stream &&
			columns_end(step, range) > range->first_module;
	if (range->joins_stream && is_gathered_beside(step, range, false)) {
		add_beside_gradient(step, action);
		return;
	}
	if (range->joins_stream)
		add_gather(step, action, 0);
	if (overlaps) {
		add_overlapped(step, action);
		return;
	}
	if (range->leaves_stream && gathers_again(step, range))
		add_gather(step, action, OF_INPUT);
	add_summed(step, action, range->leaves_stream);
}

/* The loss needs the largest logit of a token, its sum of exponentials and the logit of its target:
 * one after the other, or those of every rank's part of the vocabulary at once. */
static void add_loss(struct step *step, const struct action *action)
{
	bool gathers = step->method.adds_in_compute;
	for (int i = 0; i < (gathers ? 1 : LOSS_PARTS); i++)
		action_add_beside(
			step, action, gathers ? ACTION_GATHER_LOSS : ACTION_REDUCE_LOSS, 0);
	action_add(step, *action);
}

void pass_tensor(struct step *step)
{
	if (step->group_tensor < 0)
		return;
	struct action_list old = actions_begin(step);
	for (int i = 0; i < old.n; i++) {
		const struct action *action = &old.items[i];
		bool ahead = action->kind == ACTION_FORWARD || action->kind == ACTION_RECOMPUTE;
		if (ahead || action_makes_input(action))
			add_adapters(step, action);
		if (ahead)
			add_forward(step, action);
		else if (action_makes_input(action))
			add_backward(step, action);
		else if (action->kind == ACTION_LOSS)
			add_loss(step, action);
		else
			action_add(step, *action);
	}
	actions_end(&old);
}
