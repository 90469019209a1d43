/* What a micro-batch computes and saves: one small schedule a load, or the difference of others. */
#include "planner/bounds/sampler.h"

#include "schedule/fold/fold.h"
#include "simulator/devices/devices.h"

/* Of blocks that are all alike, behind dense ones; a model of one more says what each takes. */
enum { PROBED_BLOCKS = 4 };

/* The whole model on each rank: bounds.c and stages.c share it out. */
static void without_stages(struct plan *plan)
{
	plan->mesh.pipeline = 1;
	plan->pipeline_schedule = PIPELINE_1F1B;
	plan->virtual_stages = 0;
	plan->layers_per_stage = (struct rows){0};
}

const struct plan *sampler_keep(struct sampler *sampler, const struct plan *plan)
{
	struct plan *kept = ARENA_NEW(&sampler->models, struct plan);
	*kept = *plan;
	return kept;
}

bool sampler_serves(const struct plan *measured, const struct plan *plan)
{
	const uint64_t batch = KNOB_BIT(KNOB_MICRO_BATCH) | KNOB_BIT(KNOB_GRAD_ACCUM) |
			       KNOB_BIT(KNOB_GLOBAL_BATCH);
	return plan_divides_alike(measured, plan) && knobs_alike_but(batch, measured, plan);
}

struct sample sample_take(struct sampler *sampler, const struct model *model,
	const struct plan *plan, int64_t micro_batch, int64_t grad_accum)
{
	const struct question *question = sampler->question;
	struct plan small = plan_with_batch(plan, micro_batch, grad_accum);
	struct sample sample;
	without_stages(&small);
	arena_reset(&sampler->arena);
	const struct division division = plan_division(plan);
	sample.schedule = schedule_fold(&sampler->arena, &small,
		divided_model(&sampler->divided, model, &division), question->topology);
	sample.costs =
		ARENA_ARRAY(&sampler->arena, struct cost, sample.schedule->programs[0].n_ops);
	cost_operations(sample.schedule, 0, sample.costs);
	sample.issue = bound_issue(sample.schedule, 0, sample.costs, &sampler->arena);
	return sample;
}

/* --- measuring ------------------------------------------------------------------------------- */

static bool is_of_blocks(const struct buffer *buffer)
{
	return bound_is_load(buffer) && buffer->end_module > 0 && buffer->layer >= 0;
}

static void add_to_stages(const struct program *program, const struct op *op, double seconds,
	struct stage_load *stages)
{
	if (op->layer >= 0)
		stages->blocks += seconds;
	else if (op->end_module == program->model->n_modules)
		stages->head += seconds;
	else
		*(op->kind == OP_LOSS ? &stages->loss : &stages->embedding) += seconds;
}

/* One micro-batch alone waits for its rows. Beside another one it need not. */
static bool holds_up(const struct sample *sample, int index)
{
	const struct program *program = &sample->schedule->programs[0];
	bool beside = sample->schedule->plan.expert_overlap &&
		      program->ops[index].stream == STREAM_EXPERT;
	return !beside && bound_holds_up(program, index);
}

/* Computes, or exchanges what is computed: in each micro-batch. */
static bool is_of_passes(const struct op *op)
{
	return op_kind_class(op->kind) == OP_CLASS_COMPUTE || op->stream == STREAM_TENSOR ||
	       op->stream == STREAM_PEER || op->stream == STREAM_CONTEXT ||
	       op->stream == STREAM_EXPERT;
}

static void measure_stages(struct sampler *sampler, const struct sample *sample,
	const struct stands *stands, struct load *load)
{
	const struct program *program = &sample->schedule->programs[0];
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		bool waits = holds_up(sample, i);
		if (op->layer >= 0 && is_of_passes(op))
			load->stages.issue += program_times(program, i) * sample->issue[i];
		if (!waits && op_kind_class(op->kind) != OP_CLASS_COMPUTE)
			continue;
		double seconds = program_times(program, i) * sample->costs[i].device;
		add_to_stages(program, op, seconds, &load->stages);
		if (waits)
			add_to_stages(program, op, seconds, &load->waits);
	}
	load->stages.saved = (double)bound_standing(stands, is_of_blocks, OP_LOSS, &sampler->arena);
}

static void measure_load_of(struct sampler *sampler, const struct model *model,
	const struct plan *plan, struct load *load)
{
	struct sample sample = sample_take(sampler, model, plan, plan->micro_batch, 1);
	const struct program *program = &sample.schedule->programs[0];
	*load = (struct load){.plan = plan};
	for (int i = 0; i < program->n_ops; i++) {
		double times = program_times(program, i);
		if (holds_up(&sample, i))
			load->exchanges += times * sample.costs[i].device;
		if (op_kind_class(program->ops[i].kind) != OP_CLASS_COMPUTE)
			continue;
		load->compute += times * sample.costs[i].device;
		load->issue += times * bound_issue_of_load(
					       sample.schedule, &program->ops[i], sample.issue[i]);
		bound_add_cover(&sample.costs[i], times, load->cover);
	}
	const struct stands stands = bound_stands(&sample.schedule->programs[0], &sampler->arena);
	load->saved = bound_standing(&stands, bound_is_load, OP_LOSS, &sampler->arena);
	measure_stages(sampler, &sample, &stands, load);
}

static void add_stages(double times, const struct stage_load *other, struct stage_load *stages)
{
	stages->blocks += times * other->blocks;
	stages->head += times * other->head;
	stages->embedding += times * other->embedding;
	stages->loss += times * other->loss;
	stages->issue += times * other->issue;
	stages->saved += times * other->saved;
}

/* Adds another load so many times. */
static void add_load(double times, const struct load *other, struct load *load)
{
	load->compute += times * other->compute;
	load->exchanges += times * other->exchanges;
	load->issue += times * other->issue;
	for (int s = 0; s < SHARES; s++)
		load->cover[s] += times * other->cover[s];
	load->saved += (int64_t)times * other->saved;
	add_stages(times, &other->stages, &load->stages);
	add_stages(times, &other->waits, &load->waits);
}

/* Of so many blocks more. */
static void extend_load(double more, const struct load *fewer, struct load *load)
{
	const struct load few = *load;
	add_load(more, &few, load);
	add_load(-more, fewer, load);
}

/* Lists with buckets do not fold (schedule/fold), but a load is the same whatever blocks a bucket
 * has: sums over blocks, of which all but those at the ends are alike. */
void load_measure(struct sampler *sampler, const struct plan *plan, struct load *load)
{
	const struct model *model = sampler->question->model, *const *few = sampler->few;
	struct load fewer;
	if (few[0] == NULL || plan_layout(plan) != LAYOUT_WHOLE ||
		plan->activation_checkpointing.n > 0) {
		measure_load_of(sampler, model, plan, load);
		return;
	}
	measure_load_of(sampler, few[0], plan, &fewer);
	measure_load_of(sampler, few[1], plan, load);
	extend_load(
		(double)(model->architecture.layers - few[1]->architecture.layers), &fewer, load);
}

/* The same model of few blocks, where all are of one kind but for dense ones before them. */
void sampler_make_few(struct sampler *sampler)
{
	struct architecture a = sampler->question->model->architecture;
	struct error error = {0};
	int64_t few = a.dense_layers + PROBED_BLOCKS;
	if (a.layers <= few + 1 || a.encoder_layers > 0 || a.moe_every > 1 ||
		!trainable_is_all(&a.trainable))
		return;
	for (int i = 0; i < COUNT_OF(sampler->few); i++) {
		struct model *model;
		a.layers = few + i;
		sampler->few[i] = model_build(&sampler->models, &a, &model, &error) ? model : NULL;
	}
}

/* --- looking up ------------------------------------------------------------------------------- */

/* Leaves that save nothing are computed again only when their range saves something: what is
 * recomputed depends on the wrap policy. */
static bool same_load_but(uint64_t knobs, const struct plan *a, const struct plan *b)
{
	return plan_divides_alike(a, b) && knobs_alike_but(knobs, a, b) &&
	       (!plan_checkpoints(a, CHECKPOINTING_FULL) || wrap_equal(&a->wrap, &b->wrap));
}

/* Of what saves more than `limit` with a smaller micro-batch, that load is a bound. */
static bool suffices(const struct sampler *sampler, const struct load *load,
	const struct plan *plan, int64_t limit)
{
	bool is_more = load->saved > limit && load->plan->micro_batch < plan->micro_batch;
	uint64_t smaller = is_more ? KNOB_BIT(KNOB_MICRO_BATCH) : 0;
	if (!is_more && load->plan->micro_batch != plan->micro_batch)
		return false;
	return same_load_but(sampler->no_load | smaller, load->plan, plan);
}

/* Loads that differ in what is freed last stand near. */
enum { NEAR = 400 };

/* The newest before this one whose plan differs in these knobs alone; NULL: none is near. */
static const struct load *find_beside(const struct sampler *sampler, const struct load *before,
	uint64_t knobs, const struct plan *plan)
{
	int i = (int)(before - sampler->loads), end = sampler->n_loads - NEAR;
	for (i--; i >= 0 && i >= end; i--) {
		const struct load *load = &sampler->loads[i];
		if (load->plan->mesh.pipeline == plan->mesh.pipeline &&
			load->plan->micro_batch == plan->micro_batch &&
			same_load_but(sampler->no_load | knobs, load->plan, plan))
			return load;
	}
	return NULL;
}

/* The loss comes after all blocks: what it adds is the same whatever these save and compute again.
 * So a load is that of other blocks and this loss, and what these blocks add with another loss.
 * False: those three were not measured. */
static bool add_up_load(const struct sampler *sampler, const struct plan *plan, struct load *load)
{
	const uint64_t loss = KNOB_BIT(KNOB_LOSS);
	const uint64_t blocks = KNOB_BIT(KNOB_ACTIVATION_CHECKPOINTING) |
				KNOB_BIT(KNOB_RECOMPUTE_MODULES) |
				KNOB_BIT(KNOB_ACTIVATION_OFFLOAD);
	const struct load *end = &sampler->loads[sampler->n_loads];
	const struct load *same_loss = end, *same_blocks, *neither;
	while ((same_loss = find_beside(sampler, same_loss, blocks, plan)) != NULL) {
		struct plan other = *same_loss->plan;
		same_blocks = end;
		while ((same_blocks = find_beside(sampler, same_blocks, loss, plan)) != NULL) {
			other.loss = same_blocks->plan->loss;
			if ((neither = find_beside(sampler, end, 0, &other)) == NULL)
				continue;
			*load = *same_loss;
			load->plan = plan;
			add_load(1, same_blocks, load);
			add_load(-1, neither, load);
			return true;
		}
	}
	return false;
}

/* --- of another pipeline, or another search --------------------------------------------------- */

/* The slowest of a stage's ranks is as slow as there are many. */
static double slowdown_of(const struct question *question, const struct plan *plan)
{
	return straggler_of(question->topology, plan_ranks(plan) / plan->mesh.pipeline);
}

/* Compute takes so many times as long; exchanges do not. */
static void stretch_load(double times, struct load *load)
{
	const struct load as_it_was = *load;
	double more = times - 1;
	if (more == 0)
		return;
	load->compute += more * as_it_was.compute;
	for (int s = 0; s < SHARES; s++)
		load->cover[s] += more * as_it_was.cover[s];
	add_stages(more, &as_it_was.stages, &load->stages);
	add_stages(-more, &as_it_was.waits, &load->stages);
	load->stages.saved = as_it_was.stages.saved;
	load->stages.issue = as_it_was.stages.issue;
}

static const struct load *load_at_length(
	struct sampler *sampler, const struct load *load, const struct plan *plan)
{
	const struct question *question = sampler->question;
	if (load->plan->mesh.pipeline == plan->mesh.pipeline)
		return load;
	sampler->at_length = *load;
	stretch_load(slowdown_of(question, plan) / slowdown_of(question, load->plan),
		&sampler->at_length);
	return &sampler->at_length;
}

/* What was measured by an earlier search, unless it has exchanges and these take another time. Most
 * searches ask for loads in the same order. */
static bool find_earlier_load(
	const struct sampler *sampler, const struct plan *plan, struct load *load)
{
	const struct earlier *earlier = sampler->question->earlier;
	int n = earlier != NULL ? earlier->sampler->n_loads : 0;
	for (int i = 0; i < n; i++) {
		const struct load *other = &earlier->sampler->loads[(sampler->n_loads + i) % n];
		if (other->plan->micro_batch != plan->micro_batch ||
			(other->exchanges > 0 && !earlier->sends_alike) ||
			!sampler_serves(other->plan, plan))
			continue;
		*load = *other;
		stretch_load(slowdown_of(sampler->question, plan) /
				     slowdown_of(earlier->sampler->question, other->plan),
			load);
		return true;
	}
	return false;
}

const struct load *load_find(struct sampler *sampler, const struct plan *plan, int64_t limit)
{
	struct load load;
	int i = 0;
	while (i < sampler->n_loads && !suffices(sampler, &sampler->loads[i], plan, limit))
		i++;
	if (i == sampler->n_loads) {
		if (!find_earlier_load(sampler, plan, &load) && !add_up_load(sampler, plan, &load))
			load_measure(sampler, plan, &load);
		load.plan = sampler_keep(sampler, plan);
		sampler->loads = array_grow(
			sampler->loads, &sampler->load_capacity, i + 1, sizeof(*sampler->loads));
		sampler->loads[sampler->n_loads++] = load;
	}
	return load_at_length(sampler, &sampler->loads[i], plan);
}
