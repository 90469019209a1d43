/* Gathers and reshards units where the hooks of FSDP1, of FSDP2 and of our own runtime do so
 * (docs/runtimes.md). The pass replaces the marks of hooks by actions. */
#include "schedule/passes/step.h"

/* Holds the state of a unit while the list is walked. */
struct gathered {
	bool is_whole;       /* compute can read it */
	bool is_gathered;    /* FSDP2: it is gathered, but not yet copied out */
	bool is_part;        /* it is resharded to a smaller group, which holds a part */
	bool prefetched;     /* its next hook finds the gather issued */
	bool backward_began; /* in this micro-batch: it needs no prefetch any more */
};

struct hooks {
	struct step *step;
	struct gathered *units;
	const struct action *at; /* the mark that is replaced */
	int n_passes;            /* passes of micro-batches that have begun */
};

static bool keeps(const struct hooks *hooks, int unit)
{
	return hooks->step->resident[unit].kept >= 0;
}

/* --- unshard -------------------------------------------------------------------------------------
 */

static struct action of_unit(const struct hooks *hooks, enum action_kind kind, int unit, int cause)
{
	struct action action = action_at(hooks->at, kind, unit);
	action.cause = cause;
	return action;
}

/* NO_SHARD under mixed precision gathers nothing, but makes a low-precision copy of the unit. Only
 * our runtime limits how many there are (pass_limit). */
static void copy_whole(struct hooks *hooks, int unit, int cause)
{
	struct gathered *state = &hooks->units[unit];
	if (!hooks->step->method.casts || state->is_whole || unit_is_offloaded(hooks->step, unit) ||
		!unit_is_trained(hooks->step, unit))
		return;
	action_add(hooks->step, of_unit(hooks, ACTION_LIMIT, unit, cause));
	action_add(hooks->step, of_unit(hooks, ACTION_COPY_WHOLE, unit, cause));
	state->is_whole = true;
}

/* FSDP's rate limiter may let the host wait here even when the unit is gathered already. */
static void unshard(struct hooks *hooks, int unit, int cause)
{
	struct gathered *state = &hooks->units[unit];
	if (!hooks->step->method.shards) {
		copy_whole(hooks, unit, cause);
		return;
	}
	if (state->is_whole || state->is_gathered) {
		struct action limit = of_unit(hooks, ACTION_LIMIT, unit, cause);
		limit.flags |= IS_PRESENT;
		action_add(hooks->step, limit);
		return;
	}
	struct action gather = of_unit(hooks, ACTION_GATHER, unit, cause);
	gather.flags |= state->is_part ? FROM_PART : 0;
	action_add_gather(hooks->step, gather, true);
	if (hooks->step->method.copies_out)
		state->is_gathered = true;
	else
		state->is_whole = true;
	/* FSDP2 frees the part when the unit has been copied out. */
	state->is_part = state->is_part && hooks->step->method.copies_out;
}

static void copy_out(struct hooks *hooks, int unit)
{
	struct gathered *state = &hooks->units[unit];
	if (!state->is_gathered)
		return;
	action_add(hooks->step, of_unit(hooks, ACTION_COPY_OUT, unit, -1));
	*state = (struct gathered){.is_whole = true,
		.prefetched = state->prefetched,
		.backward_began = state->backward_began};
}

/* --- reshard -------------------------------------------------------------------------------------
 */

/* Is there memory to free: the whole unit, or a part that no gather will free? */
static bool is_held(const struct gathered *state)
{
	return state->is_whole || (state->is_part && !state->is_gathered);
}

/* Also frees a part from which backward did not gather. */
static void reshard(struct hooks *hooks, int unit, bool keeps_part, enum stream stream)
{
	struct gathered *state = &hooks->units[unit];
	struct action action = of_unit(hooks, ACTION_RESHARD, unit, -1);
	if (!is_held(state) || (state->is_part && keeps_part) || keeps(hooks, unit))
		return;
	action.stream = stream;
	action.flags |= keeps_part ? KEEPS_PART : 0;
	action_add(hooks->step, action);
	state->is_whole = false;
	state->is_part = keeps_part;
}

static void reshard_after_forward(struct hooks *hooks, int unit)
{
	const struct method *method = &hooks->step->method;
	int64_t group = hooks->step->units[unit].reshard_group;
	bool free_copy = !method->shards && method->casts;
	if (free_copy || (method->shards && group != 0))
		reshard(hooks, unit, group > 0, STREAM_COMPUTE);
}

/* FSDP1 under no_sync keeps units that it does not reshard after forward either. Otherwise it
 * reshards in the hook of the flat gradient and on the stream of that hook, so that the next gather
 * can have the memory at once. FSDP2 reshards after every backward, and in a pipeline after the
 * last backward of the step (docs/runtimes.md). */
static void reshard_after_backward(struct hooks *hooks, int unit)
{
	const struct step *step = hooks->step;
	bool is_trained = unit_is_trained(step, unit);
	bool reshards = step->units[unit].module == 0 ? strategy_reshards(step->plan->strategy)
						      : step->units[unit].reshard_group != 0;
	if (step->pipeline.ranks > 1)
		reshards = false;
	else
		reshards = reshards || step->method.reshards_always;
	if (reshards || (hooks->at->flags & SYNCHRONISES))
		reshard(hooks, unit, false, is_trained ? step->method.flattens_on : STREAM_COMPUTE);
}

/* --- prefetch ------------------------------------------------------------------------------------
 */

/* Returns the unit of the same pass whose hook comes next in that direction, or -1. Units of
 * experts lie inside of a block. A block skips them, so its neighbour is another block. */
static int neighbour(const struct hooks *hooks, const int *order, int place, int direction)
{
	const struct step *step = hooks->step;
	bool skips = !step->units[order[place]].of_experts;
	int i = place + direction;
	while (skips && i >= 0 && i < step->n_order && step->units[order[i]].of_experts)
		i += direction;
	bool is_there =
		i >= 0 && i < step->n_order && unit_is_in_chunk(step, order[i], hooks->at->chunk);
	return is_there ? order[i] : -1;
}

static void prefetch(struct hooks *hooks, int unit, int cause)
{
	if (unit < 0 || !unit_has_parameters(hooks->step, unit) || hooks->units[unit].prefetched)
		return;
	if ((hooks->at->flags & IN_BACKWARD) && hooks->units[unit].backward_began)
		return;
	unshard(hooks, unit, cause);
	hooks->units[unit].prefetched = true;
}

/* torchtitan prefetches a block together with its experts, which are units of their own, from the
 * block before: between the two the host waits for the counts of rows, and would issue them late.
 */
static void prefetch_block(struct hooks *hooks, int unit, int cause)
{
	const struct step *step = hooks->step;
	prefetch(hooks, unit, cause);
	for (int u = unit + 1; unit >= 0 && u < step->n_units && step->units[u].of_experts; u++)
		prefetch(hooks, u, cause);
}

static void prefetch_forward(struct hooks *hooks, int unit)
{
	const struct step *step = hooks->step;
	if (step->plan->forward_prefetch && !step->units[unit].of_experts)
		prefetch_block(
			hooks, neighbour(hooks, step->pre_order, step->pre_place[unit], 1), unit);
}

static void prefetch_backward(struct hooks *hooks, int unit, enum prefetch when)
{
	const struct step *step = hooks->step;
	int next = neighbour(hooks, step->post_order, step->post_place[unit], -1);
	if (step->plan->prefetch == when && next >= 0 && unit_goes_back(step, next))
		prefetch_block(hooks, next, unit);
}

/* --- hooks ---------------------------------------------------------------------------------------
 */

static void use(struct hooks *hooks, int unit)
{
	if (!hooks->units[unit].prefetched)
		unshard(hooks, unit, -1);
	hooks->units[unit].prefetched = false;
	copy_out(hooks, unit);
}

static void pre_forward(struct hooks *hooks, int unit)
{
	use(hooks, unit);
	prefetch_forward(hooks, unit);
}

/* The unit stays for its backward, whose hook must not gather it again. */
static void pre_recompute(struct hooks *hooks, int unit)
{
	if (hooks->units[unit].is_whole)
		return;
	use(hooks, unit);
	hooks->units[unit].prefetched = true;
}

static void post_recompute(struct hooks *hooks, int unit)
{
	if (hooks->units[unit].backward_began)
		return;
	reshard_after_forward(hooks, unit);
	hooks->units[unit].prefetched = false;
}

static void pre_backward(struct hooks *hooks, int unit)
{
	hooks->units[unit].backward_began = true;
	use(hooks, unit);
	prefetch_backward(hooks, unit, PREFETCH_PRE);
}

static void post_backward(struct hooks *hooks, int unit)
{
	reshard_after_backward(hooks, unit);
	prefetch_backward(hooks, unit, PREFETCH_POST);
}

/* --- stages --------------------------------------------------------------------------------------
 */

/* With several stages on a rank, PyTorch's pipelines gather FSDP2's units stage by stage and ahead
 * of time: the units of the next three stages that the rank computes. The units of all other stages
 * are resharded (torch.distributed.pipelining.schedules, _add_unshard_reshard). */
enum { STAGES_AHEAD = 3 };

static bool stands_in(const int *chunks, int n, int chunk)
{
	int i = 0;
	while (i < n && chunks[i] != chunk)
		i++;
	return i < n;
}

/* Finds the stages that the rank computes next, each once; returns how many. */
static int find_next(const struct hooks *hooks, int chunks[STAGES_AHEAD])
{
	const struct step *step = hooks->step;
	int n = 0;
	for (int i = hooks->n_passes; i < step->n_passes && n < STAGES_AHEAD; i++)
		if (!stands_in(chunks, n, step->order[i].chunk))
			chunks[n++] = step->order[i].chunk;
	return n;
}

/* Calls `act` for the units of a stage, in the order of their forward hooks. */
static void for_stage(struct hooks *hooks, int chunk, void (*act)(struct hooks *, int unit))
{
	const struct step *step = hooks->step;
	for (int i = 0; i < step->n_order; i++) {
		int unit = step->pre_order[i];
		if (unit_has_parameters(step, unit) && unit_is_in_chunk(step, unit, chunk))
			act(hooks, unit);
	}
}

static void reshard_ahead(struct hooks *hooks, int unit)
{
	reshard(hooks, unit, false, STREAM_COMPUTE);
}

static void unshard_ahead(struct hooks *hooks, int unit)
{
	if (!hooks->units[unit].is_whole && !hooks->units[unit].is_gathered)
		unshard(hooks, unit, -1);
}

static void gather_stages(struct hooks *hooks)
{
	const struct step *step = hooks->step;
	if (step->pipeline.chunks == 1 || !step->method.copies_out)
		return;
	int next[STAGES_AHEAD], n = find_next(hooks, next);
	for (int c = 0; c < step->pipeline.chunks; c++)
		if (!stands_in(next, n, c))
			for_stage(hooks, c, reshard_ahead);
	for (int i = 0; i < n; i++)
		for_stage(hooks, next[i], unshard_ahead);
	for_stage(hooks, hooks->at->chunk, copy_out);
}

/* False when the action is not a mark that this pass replaces. */
static bool replace(struct hooks *hooks)
{
	static void (*const replacements[ACTION_KIND_COUNT])(struct hooks *, int unit) = {
		[ACTION_PRE_FORWARD] = pre_forward,
		[ACTION_POST_FORWARD] = reshard_after_forward,
		[ACTION_PRE_RECOMPUTE] = pre_recompute,
		[ACTION_POST_RECOMPUTE] = post_recompute,
		[ACTION_PRE_BACKWARD] = pre_backward,
		[ACTION_POST_BACKWARD] = post_backward,
	};
	if (replacements[hooks->at->kind] == NULL)
		return false;
	if (unit_has_parameters(hooks->step, hooks->at->unit))
		replacements[hooks->at->kind](hooks, hooks->at->unit);
	return true;
}

static void begin_pass(struct hooks *hooks)
{
	for (int u = 0; u < hooks->step->n_units; u++)
		hooks->units[u].backward_began = false;
	gather_stages(hooks);
	hooks->n_passes++;
}

void pass_gather_by_hook(struct step *step)
{
	struct hooks hooks = {.step = step};
	if (step->method.gathers != GATHERS_BY_HOOK)
		return;
	struct action_list old = actions_begin(step);
	hooks.units = ARENA_ARRAY(step->arena, struct gathered, step->n_units);
	for (int u = 0; u < step->n_units; u++)
		hooks.units[u].is_whole = keeps(&hooks, u);
	for (int i = 0; i < old.n; i++) {
		hooks.at = &old.items[i];
		if (!replace(&hooks))
			action_add(step, *hooks.at);
		if (hooks.at->kind == ACTION_PASS_BEGINS)
			begin_pass(&hooks);
	}
	actions_end(&old);
}
