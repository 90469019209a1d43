/* Makes the shorter question by leaving out alike blocks and micro-batches. */
#include "schedule/fold/folding.h"

/* --- which blocks are alike ----------------------------------------------------------------------
 */

struct blocks {
	const struct plan *plan;
	const struct model *model;
	int *modules; /* per block */
	int n;
	const struct unit *units; /* NULL: every block has the same */
	int n_units;
	int *first_units; /* per block, and one more: its first unit */
};

static int end_of(const struct blocks *blocks, int block)
{
	return blocks->model->modules[blocks->modules[block]].end;
}

static bool modules_are_alike(const struct model *model, int one, int two, int n)
{
	const struct module *a = &model->modules[one], *b = &model->modules[two];
	for (int i = 0; i < n; i++)
		if (!model_leaves_are_alike(model, one + i, two + i))
			return false;
	int parameters = a[n - 1].first_parameter + a[n - 1].n_parameters - a[0].first_parameter;
	const struct parameter *p = &model->parameters[a->first_parameter];
	const struct parameter *q = &model->parameters[b->first_parameter];
	for (int i = 0; i < parameters; i++)
		if (p[i].elements != q[i].elements || p[i].shape[0] != q[i].shape[0] ||
			p[i].trainable != q[i].trainable)
			return false;
	return true;
}

/* Two blocks' units are alike if they have the same choices and lie as far from the beginning of
 * the block. */
static bool units_are_alike(const struct blocks *blocks, int one, int two)
{
	int n = blocks->first_units[one + 1] - blocks->first_units[one];
	const struct unit *a = &blocks->units[blocks->first_units[one]];
	const struct unit *b = &blocks->units[blocks->first_units[two]];
	int distance = blocks->modules[two] - blocks->modules[one];
	if (blocks->first_units[two + 1] - blocks->first_units[two] != n)
		return false;
	for (int u = 0; u < n; u++)
		if (b[u].module - a[u].module != distance ||
			b[u].end_module - a[u].end_module != distance ||
			a[u].gathered != b[u].gathered || a[u].parameters != b[u].parameters ||
			a[u].trained_parameters != b[u].trained_parameters ||
			a[u].reshard_group != b[u].reshard_group || a[u].offload != b[u].offload)
			return false;
	return true;
}

/* Nothing but blocks may lie between them. */
static bool are_alike(const struct blocks *blocks, int one, int two)
{
	int first = blocks->modules[one], second = blocks->modules[two];
	int n = end_of(blocks, one) - first;
	for (int b = one; b < two; b++)
		if (end_of(blocks, b) != blocks->modules[b + 1])
			return false;
	return end_of(blocks, two) - second == n &&
	       plan_block_checkpointing(blocks->plan, one) ==
		       plan_block_checkpointing(blocks->plan, two) &&
	       (blocks->units == NULL || units_are_alike(blocks, one, two)) &&
	       modules_are_alike(blocks->model, first, second, n);
}

/* Units are in preorder. */
static void find_first_units(struct blocks *blocks, struct arena *arena)
{
	int u = 0;
	blocks->first_units = ARENA_ARRAY(arena, int, blocks->n + 1);
	for (int b = 0; b < blocks->n; b++) {
		while (u < blocks->n_units && blocks->units[u].module < blocks->modules[b])
			u++;
		blocks->first_units[b] = u;
	}
	while (u < blocks->n_units && blocks->n > 0 &&
		blocks->units[u].module < end_of(blocks, blocks->n - 1))
		u++;
	blocks->first_units[blocks->n] = u;
}

/* Buckets and traces cut the model without regard to blocks, so those plans are not folded. */
static bool may_cut(const struct plan *plan)
{
	enum layout_kind layout = plan_layout(plan);
	return layout != LAYOUT_WHOLE && layout != LAYOUT_PARTITIONED;
}

/* True when every unit holds whole blocks, and all of these have the same choices. */
static bool has_plain_units(const struct plan *plan)
{
	return (plan->wrap.kind == WRAP_BLOCK || plan->wrap.kind == WRAP_BLOCKS) &&
	       plan->cpu_offload.n == 0 && plan->reshard_after_forward.n == 0;
}

static struct blocks blocks_of(
	struct arena *arena, const struct plan *plan, const struct model *model)
{
	struct blocks blocks = {.plan = plan, .model = model};
	blocks.modules = ARENA_ARRAY(arena, int, model->architecture.layers);
	for (int m = 0; m < model->n_modules; m++) {
		if (model->modules[m].kind != MODULE_BLOCK)
			continue;
		blocks.modules[blocks.n++] = m;
		m = model->modules[m].end - 1;
	}
	if (!has_plain_units(plan)) {
		struct unit *units;
		blocks.n_units = units_build(plan, model, arena, &units);
		blocks.units = units;
		find_first_units(&blocks, arena);
	}
	return blocks;
}

/* --- what is taken out ---------------------------------------------------------------------------
 */

/* Blocks [first, end) are alike. Those behind the repeated one go, except that the last ones
 * stay. */
static void cut_run(
	struct shorter *shorter, const struct blocks *blocks, struct kept kept, int first, int end)
{
	const struct model *model = blocks->model;
	int period = shorter->period, n = (end - first) / period,
	    out = n - kept.head - 1 - kept.tail;
	if (out <= 0 || shorter->n_cuts == RUNS_MAX)
		return;
	struct cut cut = {.layer = first + (kept.head + 1) * period,
		.n_layers = out * period,
		.times = out + 1};
	int behind = cut.layer + cut.n_layers;
	cut.module = blocks->modules[cut.layer];
	cut.n_modules = blocks->modules[behind] - cut.module;
	cut.parameter = model->modules[cut.module].first_parameter;
	cut.n_parameters = model->modules[blocks->modules[behind]].first_parameter - cut.parameter;
	shorter->cuts[shorter->n_cuts++] = cut;
}

static void find_cuts(struct shorter *shorter, const struct blocks *blocks, struct kept kept)
{
	int period = shorter->period, end;
	for (int first = 0; first + period < blocks->n; first = end) {
		for (end = first + period; end < blocks->n && are_alike(blocks, end - period, end);)
			end++;
		cut_run(shorter, blocks, kept, (int)round_up(first, period), end);
		if (end == first + period)
			end = first + 1;
	}
}

static int period_of(const struct plan *plan, const struct model *model)
{
	int64_t wrapped = plan->wrap.kind == WRAP_BLOCKS ? plan->wrap.argument : 1;
	int64_t experts = max_i64(1, model->architecture.moe_every);
	if (wrapped > model->architecture.layers)
		return (int)model->architecture.layers;
	return (int)(wrapped % experts == 0 ? wrapped : wrapped * experts);
}

/* --- the model -----------------------------------------------------------------------------------
 */

static int without(const struct shorter *shorter, int module)
{
	int out = 0;
	for (int c = 0; c < shorter->n_cuts; c++)
		if (module >= shorter->cuts[c].module + shorter->cuts[c].n_modules)
			out += shorter->cuts[c].n_modules;
	return module - out;
}

static int parameter_without(const struct shorter *shorter, int parameter)
{
	int out = 0;
	for (int c = 0; c < shorter->n_cuts; c++)
		if (parameter >= shorter->cuts[c].parameter + shorter->cuts[c].n_parameters)
			out += shorter->cuts[c].n_parameters;
	return parameter - out;
}

static int layer_without(const struct shorter *shorter, int layer)
{
	int out = 0;
	for (int c = 0; c < shorter->n_cuts; c++)
		if (layer >= shorter->cuts[c].layer + shorter->cuts[c].n_layers)
			out += shorter->cuts[c].n_layers;
	return layer - out;
}

static struct module module_without(const struct shorter *shorter, struct module module)
{
	if (module.parent >= 0)
		module.parent = without(shorter, module.parent);
	if (module.layer >= 0)
		module.layer = layer_without(shorter, module.layer);
	if (module.tied_parameter >= 0)
		module.tied_parameter = parameter_without(shorter, module.tied_parameter);
	if (module.adapter >= 0)
		module.adapter = parameter_without(shorter, module.adapter);
	module.end = without(shorter, module.end);
	module.first_parameter = parameter_without(shorter, module.first_parameter);
	return module;
}

static void make_model(struct shorter *shorter, struct arena *arena, const struct model *model)
{
	struct model *short_one = &shorter->model;
	*short_one = *model;
	if (shorter->n_cuts == 0)
		return;
	const struct cut *last = &shorter->cuts[shorter->n_cuts - 1];
	const struct cut *cut = shorter->cuts;
	short_one->n_modules = without(shorter, model->n_modules);
	short_one->first_trained = without(shorter, model->first_trained);
	short_one->n_parameters = parameter_without(shorter, model->n_parameters);
	short_one->modules = ARENA_ARRAY(arena, struct module, short_one->n_modules);
	short_one->parameters = ARENA_ARRAY(arena, struct parameter, short_one->n_parameters);
	for (int m = 0, n = 0; m < model->n_modules; m++) {
		if (cut <= last && m == cut->module) {
			m += cut->n_modules;
			cut++;
		}
		short_one->modules[n++] = module_without(shorter, model->modules[m]);
	}
	cut = shorter->cuts;
	for (int p = 0, n = 0; p < model->n_parameters; p++) {
		if (cut <= last && p == cut->parameter) {
			p += cut->n_parameters;
			cut++;
		}
		short_one->parameters[n] = model->parameters[p];
		short_one->parameters[n].module = without(shorter, model->parameters[p].module);
		n++;
	}
	for (int c = 0; c < shorter->n_cuts; c++) {
		if (shorter->cuts[c].layer < model->architecture.encoder_layers)
			short_one->architecture.encoder_layers -= shorter->cuts[c].n_layers;
		short_one->architecture.layers -= shorter->cuts[c].n_layers;
	}
}

/* Leaves out the units inside of what was taken out. */
static void make_units(struct shorter *shorter, struct arena *arena, const struct blocks *blocks)
{
	const struct cut *cut = shorter->cuts, *end = cut + shorter->n_cuts;
	if (blocks->units == NULL || shorter->n_cuts == 0)
		return;
	shorter->units = ARENA_ARRAY(arena, struct unit, blocks->n_units);
	for (int u = 0; u < blocks->n_units; u++) {
		const struct unit *unit = &blocks->units[u];
		while (cut < end && unit->module >= cut->module + cut->n_modules)
			cut++;
		if (cut < end && unit->module >= cut->module)
			continue;
		struct unit *kept = &shorter->units[shorter->n_units++];
		*kept = *unit;
		kept->module = without(shorter, unit->module);
		kept->end_module = without(shorter, unit->end_module);
	}
}

static void make_times(struct shorter *shorter, struct arena *arena)
{
	int n = (int)shorter->model.architecture.layers;
	shorter->times = ARENA_ARRAY(arena, int, n);
	for (int l = 0; l < n; l++)
		shorter->times[l] = 1;
	for (int c = 0; c < shorter->n_cuts; c++) {
		int behind =
			layer_without(shorter, shorter->cuts[c].layer + shorter->cuts[c].n_layers);
		for (int i = 1; i <= shorter->period; i++)
			shorter->times[behind - i] = shorter->cuts[c].times;
	}
}

/* --- the plan ------------------------------------------------------------------------------------
 */

/* The first micro-batch leaves gradients, to which later ones are added. Where each micro-batch
 * reduces its gradients, that takes more operations, and what the second one waits for is not as
 * far back. With a single unit, what is waited for is one micro-batch further back. The last
 * micro-batch stays behind the repeated one. Where only the last one reduces over all ranks, one
 * more stays, which shows that neighbours are alike. */
static void make_plan(struct shorter *shorter, struct arena *arena, const struct plan *plan)
{
	int first = 1 + plan->sync_each_micro_batch + (plan->wrap.kind == WRAP_MODEL);
	bool ends_alike = plan->sync_each_micro_batch && !plan->late_all_reduce;
	int64_t kept = first + 1 + (ends_alike ? 1 : 2);
	struct rows *rows = &shorter->plan.activation_checkpointing;
	shorter->plan = *plan;
	shorter->first_micro_batch = -1;
	shorter->micro_batch_times = 1;
	if (plan->grad_accum > kept) {
		shorter->first_micro_batch = first;
		shorter->micro_batch_times = (int)(plan->grad_accum - kept + 1);
		shorter->plan.grad_accum = kept;
	}
	if (rows->n == 0 || shorter->n_cuts == 0)
		return;
	int32_t n = (int32_t)shorter->model.architecture.layers;
	int32_t *of = ARENA_ARRAY(arena, int32_t, n);
	for (int l = 0; l < n; l++)
		of[l] = (int32_t)plan_block_checkpointing(plan, shorter_layer(shorter, l));
	*rows = (struct rows){rows->text, rows->all, n, of};
}

bool shorter_make(struct shorter *shorter, struct arena *arena, const struct plan *plan,
	const struct model *model, struct kept kept)
{
	*shorter = (struct shorter){.period = period_of(plan, model)};
	struct blocks blocks = {0};
	if (kept.head > 0 && may_cut(plan)) {
		blocks = blocks_of(arena, plan, model);
		find_cuts(shorter, &blocks, kept);
		make_units(shorter, arena, &blocks);
	}
	make_model(shorter, arena, model);
	make_times(shorter, arena);
	make_plan(shorter, arena, plan);
	return shorter->n_cuts > 0 || shorter->first_micro_batch >= 0;
}

/* --- numbers of the question ------------------------------------------------------------------ */

int shorter_layer(const struct shorter *shorter, int layer)
{
	for (int c = 0; c < shorter->n_cuts; c++)
		if (layer >= shorter->cuts[c].layer)
			layer += shorter->cuts[c].n_layers;
	return layer;
}

int shorter_module(const struct shorter *shorter, int module)
{
	for (int c = 0; c < shorter->n_cuts; c++)
		if (module >= shorter->cuts[c].module)
			module += shorter->cuts[c].n_modules;
	return module;
}

int shorter_parameter(const struct shorter *shorter, int parameter)
{
	for (int c = 0; c < shorter->n_cuts; c++)
		if (parameter >= shorter->cuts[c].parameter)
			parameter += shorter->cuts[c].n_parameters;
	return parameter;
}
