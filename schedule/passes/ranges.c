/* Finds what is gathered and reduced together: units, or buckets where nothing is gathered; and the
 * order in which a forward pass meets units and leaves. Leaves of one slot that follow one another
 * form one range. */
#include "schedule/passes/sizes.h"

/* A unit inside of a block is repeated with it. */
static int times_of(const struct step *step, const struct unit *unit)
{
	int layer = step->model->modules[unit->module].layer;
	return step->times != NULL && layer >= 0 ? step->times[layer] : 1;
}

/* Where stages are laid as a V, one rank has both ends of the model. They then belong to the roots
 * of two modules. */
static bool has_both_ends(const struct step *step)
{
	return step->pipeline.ranks > 1 && chunk_has_loss(step, step->pipeline.chunks - 1) &&
	       pipeline_stage(&step->pipeline, step->class, 0) == 0;
}

/* Returns for each parameter which of the rank's stages it belongs to. */
static const int *chunks_of_parameters(const struct step *step)
{
	const struct model *model = step->model;
	int *chunks = ARENA_ARRAY(step->arena, int, model->n_parameters), end = 0;
	for (int p = 0; p < model->n_parameters; p++) {
		int layer = model->modules[model->parameters[p].module].layer;
		chunks[p] = layer >= 0 ? step->chunks[layer] : end;
		end = layer >= 0 ? step->pipeline.chunks - 1 : end;
	}
	return chunks;
}

static int build(struct step *step)
{
	struct plan plan = *step->plan;
	plan.wrap.head = plan.wrap.head || has_both_ends(step);
	const int *chunks = step->pipeline.chunks > 1 ? chunks_of_parameters(step) : NULL;
	return step->method.reduces == REDUCES_BUCKETS
		       ? buckets_build(step->plan, step->model, chunks, step->arena, &step->units)
		       : units_build(&plan, step->model, step->arena, &step->units);
}

void pass_units(struct step *step)
{
	if (step->units == NULL)
		step->n_units = build(step);
	for (int u = 0; u < step->n_units; u++)
		step->units[u].times = times_of(step, &step->units[u]);
}

/* --- ranges --------------------------------------------------------------------------------------
 */

struct walk {
	struct step *step;
	int stack[64];
	int depth, next_unit; /* units are in preorder */
	int n_post;
};

static void add_visit(struct step *step, enum visit_kind kind, int unit, int range)
{
	step->visits[step->n_visits++] = (struct visit){kind, unit, range};
}

static void enter_units(struct walk *walk, int module)
{
	struct step *step = walk->step;
	while (walk->next_unit < step->n_units && step->units[walk->next_unit].module == module) {
		int u = walk->next_unit++;
		add_visit(step, VISIT_ENTER, u, -1);
		step->pre_place[u] = step->n_order;
		step->pre_order[step->n_order++] = u;
		walk->stack[walk->depth++] = u;
	}
}

static void exit_units(struct walk *walk, int module)
{
	struct step *step = walk->step;
	while (walk->depth > 0 && step->units[walk->stack[walk->depth - 1]].end_module <= module) {
		int u = walk->stack[--walk->depth];
		add_visit(step, VISIT_EXIT, u, -1);
		step->post_place[u] = walk->n_post;
		step->post_order[walk->n_post++] = u;
	}
}

/* Embeddings, their norm and projection come before block 0, the final norm and the head after the
 * last block. */
static int slot_of(const struct model *model, int module)
{
	int layer = model->modules[module].layer;
	if (layer >= 0)
		return layer;
	return module_kind_is_before_blocks(model->modules[module].kind)
		       ? -1
		       : (int)model->architecture.layers;
}

static bool is_on_stream(const struct step *step, int leaf)
{
	return module_is_on_stream(&step->model->division, step->model->modules[leaf].kind);
}

static bool is_of_experts(const struct step *step, int leaf)
{
	return step->model->modules[step->model->modules[leaf].parent].kind == MODULE_EXPERTS;
}

/* True when ranks exchange something between two leaves that follow one another: tokens between a
 * leaf on the residual stream and one that is not, or beside the products of one leaf alone where
 * these go by chunks; keys and values before attention, if it is computed in rounds, and also
 * something behind it if it is computed for other heads; rows before and behind experts. */
static bool is_apart(const struct step *step, int leaf, int next)
{
	const struct mesh *mesh = &step->plan->mesh;
	bool core = step->model->modules[next].kind == MODULE_ATTENTION_CORE;
	bool behind = step->model->modules[leaf].kind == MODULE_ATTENTION_CORE &&
		      (step->plan->context_method == CONTEXT_ALL_TO_ALL ||
			      plan_attention_rounds(step->plan) > 1);
	return (mesh->tensor > 1 && is_on_stream(step, leaf) != is_on_stream(step, next)) ||
	       leaf_side(step, leaf) != leaf_side(step, next) ||
	       (mesh->context > 1 && (core || behind)) ||
	       (division_sends_rows(&step->model->division) &&
		       is_of_experts(step, leaf) != is_of_experts(step, next));
}

static void add_leaf(struct walk *walk, int module)
{
	struct step *step = walk->step;
	int slot = slot_of(step->model, module), last = step->n_visits - 1;
	bool follows = last >= 0 && step->visits[last].kind == VISIT_RANGE &&
		       step->ranges[step->n_ranges - 1].slot == slot &&
		       !is_apart(step, step->ranges[step->n_ranges - 1].end_module - 1, module);
	if (!follows) {
		struct range *before =
			step->n_ranges > 0 ? &step->ranges[step->n_ranges - 1] : NULL;
		bool is_first = before == NULL || before->slot != slot;
		int unit = walk->depth > 0 ? walk->stack[walk->depth - 1]
					   : -1; /* with buckets no unit is gathered */
		add_visit(step, VISIT_RANGE, unit, step->n_ranges);
		if (!is_first)
			before->last_of_slot = false;
		step->ranges[step->n_ranges++] = (struct range){
			.unit = unit,
			.first_module = module,
			.layer = step->model->modules[module].layer,
			.slot = slot,
			.first_of_slot = is_first,
			.last_of_slot = true,
			.visit = step->n_visits - 1,
		};
	}
	step->ranges[step->n_ranges - 1].end_module = module + 1;
}

/* Returns the slot with the first trained parameter. It is computed again and released as a
 * whole. */
static int find_first_back(const struct step *step)
{
	int range = 0;
	while (step->ranges[range].end_module <= step->model->first_trained)
		range++;
	return slot_begin(step, range);
}

/* Finds before and behind which ranges something is exchanged. A slot begins and ends on the
 * residual stream. The exceptions are the tokens themselves, and logits, which stay cut. */
static void find_exchanges(struct step *step)
{
	const struct mesh *mesh = &step->plan->mesh;
	for (int r = 0; r < step->n_ranges; r++) {
		struct range *range = &step->ranges[r];
		bool inside = mesh->tensor > 1 && !is_on_stream(step, range->first_module);
		bool from = range->first_of_slot || is_on_stream(step, range[-1].first_module);
		bool to = range->last_of_slot || is_on_stream(step, range[1].first_module);
		range->leaves_stream = inside && from && range->slot >= 0;
		range->joins_stream = inside && to && !range_has_head(step, r);
		range->gathers_keys =
			mesh->context > 1 &&
			step->model->modules[range->first_module].kind == MODULE_ATTENTION_CORE;
		range->receives_rows = division_sends_rows(&step->model->division) &&
				       is_of_experts(step, range->first_module);
	}
}

/* --- buckets -------------------------------------------------------------------------------------
 */

/* The owner of a parameter is the range whose backward completes it. Ranges and parameters are both
 * in module order. The gradient of a tied weight belongs to the range of the head, which backward
 * meets first. */
static void find_owners(struct step *step)
{
	const struct model *model = step->model;
	int range = 0, tied = model->modules[model->n_modules - 1].tied_parameter;
	step->owners = ARENA_ARRAY(step->arena, int, model->n_parameters);
	step->holders = ARENA_ARRAY(step->arena, int, model->n_parameters);
	for (int p = 0; p < model->n_parameters; p++) {
		while (step->ranges[range].end_module <= model->parameters[p].module)
			range++;
		step->owners[p] = range;
		step->holders[p] = p == tied ? step->n_ranges - 1 : range;
	}
}

/* Backward visits ranges in descending order, so a bucket is complete at its least one. */
static void find_ends_of_buckets(struct step *step)
{
	step->bucket_done = ARENA_ARRAY(step->arena, int, step->n_units);
	for (int u = 0; u < step->n_units; u++) {
		step->bucket_done[u] = unit_is_trained(step, u) ? step->n_ranges : -1;
		for (int i = 0; i < step->units[u].n_slices; i++) {
			int range = step->owners[step->units[u].slices[i].parameter];
			if (range < step->bucket_done[u])
				step->bucket_done[u] = range;
		}
	}
}

/* --- stages of the rank --------------------------------------------------------------------------
 */

static int chunk_of(const struct step *step, const struct range *range)
{
	if (range->layer >= 0)
		return step->chunks[range->layer];
	return range->slot < 0 ? 0 : step->pipeline.chunks - 1;
}

static void meet(struct chunks *chunks, int chunk)
{
	chunks->first = chunks->first < 0 ? chunk : chunks->first;
	chunks->last = chunk;
}

/* Ranges are in the order of the stages. */
static void find_chunks(struct step *step)
{
	step->unit_chunks = ARENA_ARRAY(step->arena, struct chunks, step->n_units);
	step->last_ranges = ARENA_ARRAY(step->arena, int, step->pipeline.chunks);
	for (int r = 0; r < step->n_ranges; r++) {
		struct range *range = &step->ranges[r];
		range->chunk = chunk_of(step, range);
		range->first_of_chunk = r == 0 || range[-1].chunk != range->chunk;
		step->last_ranges[range->chunk] = r;
	}
	for (int c = 0; c < step->pipeline.chunks; c++)
		step->ranges[step->last_ranges[c]].last_of_chunk = true;
}

/* A unit belongs to the stages of the leaves that it gathers itself. A unit without any is met in
 * all stages. */
static void find_chunks_of_units(struct step *step)
{
	for (int u = 0; u < step->n_units; u++)
		step->unit_chunks[u] = (struct chunks){-1, -1};
	for (int r = 0; r < step->n_ranges; r++)
		if (step->ranges[r].unit >= 0)
			meet(&step->unit_chunks[step->ranges[r].unit], step->ranges[r].chunk);
	for (int u = 0; u < step->n_units; u++)
		if (step->unit_chunks[u].first < 0)
			step->unit_chunks[u] = (struct chunks){0, step->pipeline.chunks - 1};
}

void pass_ranges(struct step *step)
{
	const struct model *model = step->model;
	struct walk walk = {.step = step};
	step->visits = ARENA_ARRAY(step->arena, struct visit, model->n_modules + 2 * step->n_units);
	step->ranges = ARENA_ARRAY(step->arena, struct range, model->n_modules);
	step->pre_order = ARENA_ARRAY(step->arena, int, step->n_units);
	step->post_order = ARENA_ARRAY(step->arena, int, step->n_units);
	step->pre_place = ARENA_ARRAY(step->arena, int, step->n_units);
	step->post_place = ARENA_ARRAY(step->arena, int, step->n_units);
	for (int m = 0; m < model->n_modules; m++) {
		exit_units(&walk, m);
		if (step->method.reduces != REDUCES_BUCKETS)
			enter_units(&walk, m);
		if (module_kind_is_leaf(model->modules[m].kind))
			add_leaf(&walk, m);
	}
	exit_units(&walk, model->n_modules);
	step->first_back = find_first_back(step);
	find_exchanges(step);
	find_chunks(step);
	find_chunks_of_units(step);
	for (int r = 0; r < step->n_ranges; r++)
		step->ranges[r].saved_bytes = range_saved_bytes(step, r);
	if (step->method.reduces != REDUCES_BUCKETS)
		return;
	find_owners(step);
	find_ends_of_buckets(step);
}
