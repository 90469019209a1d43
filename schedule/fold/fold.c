/* Makes a schedule that says only once what a step repeats. The passes build the list of a shorter
 * question; what is kept of that list is numbered as in the question that was asked. */
#include "schedule/fold/folding.h"
#include "schedule/passes/passes.h"

static struct schedule *build_short(struct arena *arena, const struct shorter *shorter,
	const struct topology *topology, const int **frees_pending)
{
	struct step *step = step_begin(arena, &shorter->plan, &shorter->model, topology, 0);
	step_repeat(step, shorter->times, shorter->units, shorter->n_units);
	step_run(step);
	*frees_pending = step_frees_pending(step);
	return step_end(step);
}

/* --- the numbers of the question -------------------------------------------------------------- */

static int end_of_modules(const struct shorter *shorter, int end)
{
	return end > 0 ? shorter_module(shorter, end - 1) + 1 : 0;
}

static void number_units(const struct folding *f)
{
	const struct shorter *shorter = f->shorter;
	for (int u = 0; u < f->program->n_units; u++) {
		struct unit *unit = &f->program->units[u];
		unit->module = shorter_module(shorter, unit->module);
		unit->end_module = end_of_modules(shorter, unit->end_module);
		for (int i = 0; i < unit->n_slices && shorter->units == NULL; i++)
			unit->slices[i].parameter =
				shorter_parameter(shorter, unit->slices[i].parameter);
	}
}

static void number_buffers(const struct folding *f)
{
	const struct shorter *shorter = f->shorter;
	for (int b = 0; b < f->program->n_buffers; b++) {
		struct buffer *buffer = &f->program->buffers[b];
		if (buffer->layer >= 0)
			buffer->layer = shorter_layer(shorter, buffer->layer);
		if (buffer->end_module > 0)
			buffer->first_module = shorter_module(shorter, buffer->first_module);
		buffer->end_module = end_of_modules(shorter, buffer->end_module);
	}
}

static void number_ops(const struct folding *f)
{
	const struct shorter *shorter = f->shorter;
	for (int x = 0; x < f->program->n_ops; x++) {
		struct op *op = &f->program->ops[x];
		if (op->layer >= 0)
			op->layer = shorter_layer(shorter, op->layer);
		if (op->end_module > 0)
			op->first_module = shorter_module(shorter, op->first_module);
		op->end_module = end_of_modules(shorter, op->end_module);
		if (shorter->first_micro_batch >= 0 && op->micro_batch > shorter->first_micro_batch)
			op->micro_batch += shorter->micro_batch_times - 1;
	}
}

static void keep_loops(const struct folding *f)
{
	struct program *program = f->program;
	int outer = -1;
	bool is_added = f->body_n == 0;
	program->loops = ARENA_ARRAY(f->arena, struct loop, f->n_laps + 1);
	for (int i = 0; i <= f->n_laps; i++) {
		const struct lap *lap = i < f->n_laps ? &f->laps[i] : NULL;
		if (!is_added && (lap == NULL || lap->first >= f->body_first)) {
			outer = program->n_loops;
			program->loops[program->n_loops++] = (struct loop){
				f->body_first, f->body_n, f->shorter->micro_batch_times, -1, 0};
			is_added = true;
		}
		if (lap == NULL)
			continue;
		bool inside = outer >= 0 && lap->first < f->body_first + f->body_n;
		int by = f->sweeps[lap->sweep].is_down ? -1 : 1;
		program->loops[program->n_loops++] = (struct loop){lap->first, lap->n, lap->times,
			inside ? outer : -1, by * f->shorter->period};
	}
}

/* Returns NULL if the step does not repeat exactly. */
static struct schedule *fold(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology, struct kept kept, bool lists)
{
	struct shorter shorter;
	if (!shorter_make(&shorter, arena, plan, model, kept))
		return NULL;
	struct folding f = {.arena = arena, .shorter = &shorter};
	f.schedule = build_short(arena, &shorter, topology, &f.frees_pending);
	f.program = f.schedule->programs;
	if (!fold_find_loops(&f))
		return NULL;
	keep_loops(&f);
	if (!fold_find_places(&f) || (lists && !fold_list_all(&f, model, plan)))
		return NULL;
	number_units(&f);
	number_buffers(&f);
	number_ops(&f);
	fold_join_next(&f);
	f.schedule->plan = *plan;
	f.program->model = model;
	f.schedule->model = model_whole(model);
	return f.schedule;
}

/* At either end we keep as few blocks as differ there, which depends on how far hooks reach: the
 * host waits for what was freed two blocks ago, and prefetching gathers for the next block. One
 * more block shows that neighbours are alike. */
static struct kept kept_by(const struct plan *plan)
{
	const struct runtime *runtime = runtime_of(plan->runtime);
	bool reshards = strategy_reshards(plan->strategy);
	if (strategy_keeps_parameters(plan->strategy))
		return (struct kept){1, 1};
	if (runtime->copies_out)
		return (struct kept){2, plan->grad_accum > 1 ? 2 : 1};
	if (runtime->delays_post_backward && plan->forward_prefetch)
		return (struct kept){3, 3};
	if (!plan->limit_all_gathers)
		return (struct kept){2, 1};
	return (struct kept){reshards && plan->prefetch == PREFETCH_PRE ? 3 : 2, 2};
}

/* Our compute also waits for the gradient of the third unit before. Under NO_SHARD gradients stay,
 * unless they are cast, added to earlier ones or offloaded. */
static bool limits_gradients(const struct plan *plan)
{
	bool leave = strategy_shards(plan->strategy) || plan_offloads_any(plan) ||
		     plan_gradient_dtype(plan) != plan_gradient_shard_dtype(plan) ||
		     (plan->sync_each_micro_batch && plan->grad_accum > 1);
	return runtime_of(plan->runtime)->limits_gradients && leave &&
	       plan->wrap.kind != WRAP_MODEL;
}

static struct schedule *fold_or_build(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology, bool lists)
{
	if (plan->mesh.pipeline > 1)
		return steps_run(arena, plan, model, topology);
	model = plan_model(plan, model, arena);
	struct kept tries[] = {kept_by(plan), {3, 3}, {0, 0}};
	if (limits_gradients(plan)) {
		tries[0].tail = tries[0].head > 1 ? 3 : 4;
		tries[1].tail = 4; /* where the last block is not as others */
		/* The last reduction of all waits for the copies of the first blocks. */
		if (plan_offloads_any(plan))
			tries[0].head = tries[1].head = 3;
	}
	for (int i = 0; i < COUNT_OF(tries); i++) {
		struct schedule *schedule = fold(arena, plan, model, topology, tries[i], lists);
		if (schedule != NULL)
			return schedule;
	}
	return steps_run(arena, plan, model, topology);
}

struct schedule *schedule_fold(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology)
{
	return fold_or_build(arena, plan, model, topology, false);
}

struct schedule *schedule_fold_printable(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology)
{
	return fold_or_build(arena, plan, model, topology, true);
}
