/* Lower bounds of step time, memory and traffic. The arguments:
 *
 * Time. (1) Operations of the compute stream run one after the other, none faster than alone.
 * (2) So do collectives of one communicator. While the host updates what is offloaded, which begins
 * when all is computed and reduced, it issues nothing: both stand still. The optimizer closes a
 * step and the next one's gathers wait for it, so steps do not overlap on either, and a step takes
 * at least each sum. Where the training loop reads the loss once a step, as all runtimes' loops do,
 * nothing of a step is issued before the one before it has ended, and it ends after the last of it
 * was issued: then what the issuing thread spends is such a sum, with what it carries out itself,
 * and so are the copies to the host with the update there that waits for them, and the copies to
 * the device, with that update where they come before it. Where the data loader has a rate, a step
 * takes at least as long as it takes for the step's tokens.
 *
 * (3) While a collective of a communicator runs, at least c of n multiprocessors are taken, and
 * arithmetic takes a = n / (n - c) times as long. An operation of w seconds alone, of which a share
 * f is arithmetic, then takes w (1 + (a - 1) f); of each second beside a collective it loses l(f) =
 * 1 - 1 / (1 + (a - 1) f). Let W be the sum of w, C the collectives' time, X what of it overlaps
 * compute and x_i beside operation i, L what compute loses. A step takes at least W + L + C - X.
 * For any share g, L = sum l(f_i) x_i >= l(g) X - sum (l(g) - l(f_i)) x_i over operations with f_i
 * < g, and x_i is at most the time that operation i takes: L >= l(g) (X - sum w_i (1 - f_i / g)).
 * That grows slower than X, so X = C is the least: W + l(g) (C - sum w_i (1 - f_i / g)), for every
 * g. Of several communicators that run at once each takes its multiprocessors, and l grows faster
 * than they do: the sum of l(g) C over communicators counts, and before the last sum the l(g) of
 * all together. Where it is known that compute stands still for G seconds (gaps.c), and for what
 * ranks that divide the model exchange while it waits, a step takes that much longer, and X is at
 * most C - G: nothing runs beside compute then.
 *
 * (4) Collectives that run at once share the network, and a device's port of the fabric, in equal
 * parts: what fills a link of its own for s seconds takes s seconds of it beside others too. So a
 * step takes at least the sum of what its collectives take of a link.
 *
 * Sums over a step of n micro-batches: the first, n - 2 alike in the middle, the last, and what the
 * step does once; three micro-batches show them all.
 *
 * Memory. A block lives from its taking to its giving operation, and all its uses are between. So
 * while the compute stream runs an operation, every buffer is there that it has touched before (or
 * touches now) and will touch later (or touches now). At the loss of the last micro-batch that is
 * everything saved for backward, the resident buffers, the parameters that are not resharded and
 * the gradients of earlier micro-batches: the first is the load's, the rest the shape's. At the
 * optimizer it is what the shape has there, whatever was saved before. Where a plan's own schedule
 * is at hand, so is its ledger: an allocator takes and gives blocks in the order of the list, or
 * gives them later, so that at least the ledger's peak is there. Context and communicators are
 * added; what an allocator reserves beyond is not. The host's memory holds the states that are
 * offloaded (space/states.c). */
#include "planner/bounds/bounds.h"

#include <math.h>
#include <stdlib.h>

#include "planner/bounds/sampler.h"
#include "schedule/memory/memory.h"

/* The first, one in the middle and the last; or the only one. */
enum { PROBED_MICRO_BATCHES = 3 };

struct shape {
	const struct plan *plan;
	struct work middle, rest; /* of a micro-batch in the middle; of everything else */
	double multiprocessors[COMMUNICATORS_MAX]; /* that each collective takes at least; INFINITY:
						      there is none */
	int64_t at_loss;                           /* bytes, without the load */
	int64_t at_end;                            /* bytes at the optimizer */
	int64_t fixed;                             /* bytes outside of buffers */
};

static int64_t probed_micro_batches(const struct plan *plan)
{
	return plan->grad_accum > 1 ? PROBED_MICRO_BATCHES : 1;
}

/* --- shapes ----------------------------------------------------------------------------------- */

static void add_collective(struct shape *shape, const struct schedule *schedule,
	const struct op *op, const struct cost *cost, double times, struct work *work)
{
	int communicator = schedule->groups[op->group].engine;
	work->wire += times * bound_wire(schedule, 0, op);
	if (communicator >= COMMUNICATORS_MAX || cost->device <= 0)
		return;
	shape->multiprocessors[communicator] =
		fmin(shape->multiprocessors[communicator], cost->multiprocessors);
	work->communicators[communicator] += times * cost->device;
	for (int l = 0; l < LINKS; l++)
		work->links[l] +=
			times * cost->device * bound_link_load(schedule, cost, (enum bound_link)l);
}

/* The host updates what is offloaded: it waits for all that was computed and reduced, and issues
 * nothing meanwhile. Collectives between updates (ours, that gather what was updated) run on. */
static bool host_updates_alone(const struct program *program)
{
	bool updating = false, gathers = false;
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		updating = updating || op->kind == OP_OPTIMIZER;
		gathers = gathers || (updating && op_kind_class(op->kind) == OP_CLASS_COLLECTIVE);
		if (gathers && op->kind == OP_OPTIMIZER && op->stream == STREAM_HOST)
			return false;
	}
	return true;
}

static void add_operation(
	struct shape *shape, const struct sample *sample, int index, bool host_alone)
{
	const struct schedule *schedule = sample->schedule;
	const struct op *op = &schedule->programs[0].ops[index];
	const struct cost *cost = &sample->costs[index];
	double times = program_times(&schedule->programs[0], index);
	enum op_class class = op_kind_class(op->kind);
	bool middle = op->micro_batch > 0 && op->micro_batch < (int)schedule->plan.grad_accum - 1;
	struct work *work = middle ? &shape->middle : &shape->rest;
	if (host_alone && op->stream == STREAM_HOST && bound_is_update(op->kind))
		work->alone += times * cost->device;
	if (class == OP_CLASS_COMPUTE)
		return; /* it belongs to the load */
	work->issue += times * sample->issue[index];
	bound_add_copy(op, cost, times, work);
	if (class == OP_CLASS_COLLECTIVE)
		add_collective(shape, schedule, op, cost, times, work);
	if (class == OP_CLASS_COLLECTIVE || op->stream != STREAM_COMPUTE)
		return;
	work->compute += times * cost->device;
	work->cover += times * cost->device;
}

/* The plan whose shape speaks for all ways to prefetch: gathers ahead in forward wait for more, not
 * for less. */
static struct plan usual_of(const struct plan *plan)
{
	struct plan usual = *plan;
	usual.forward_prefetch = false;
	return usual;
}

static bool is_shape(const struct buffer *buffer)
{
	return !bound_is_load(buffer);
}

static void measure_shape(struct sampler *sampler, const struct plan *plan, struct shape *shape)
{
	struct plan usual = usual_of(plan);
	struct sample sample = sample_take(
		sampler, sampler->question->model, &usual, 1, probed_micro_batches(plan));
	*shape = (struct shape){.plan = plan, .fixed = bound_fixed_bytes(sample.schedule)};
	for (int e = 0; e < COMMUNICATORS_MAX; e++)
		shape->multiprocessors[e] = INFINITY;
	bool host_alone = host_updates_alone(&sample.schedule->programs[0]);
	for (int i = 0; i < sample.schedule->programs[0].n_ops; i++)
		add_operation(shape, &sample, i, host_alone);
	const struct gaps gaps = bound_gaps(sample.schedule, sample.costs, &sampler->arena);
	shape->middle.gaps = gaps.middle;
	shape->rest.gaps = gaps.rest;
	const struct stands stands = bound_stands(&sample.schedule->programs[0], &sampler->arena);
	shape->at_loss = bound_standing(&stands, bound_is_kept, OP_LOSS, &sampler->arena);
	shape->at_end = bound_standing(&stands, is_shape, OP_OPTIMIZER, &sampler->arena);
}

/* --- looking up ------------------------------------------------------------------------------- */

/* What is computed again is gathered for backward anyway, exchanged with nobody and kept nowhere.
 * Units by size end within blocks, and DeepSpeed's trace gathers as modules are called. */
static bool recomputes_for_itself(const struct plan *plan)
{
	const struct mesh *mesh = &plan->mesh;
	return plan->wrap.kind != WRAP_SIZE && plan->strategy != STRATEGY_ZERO_3 &&
	       mesh->tensor == 1 && mesh->context == 1 && mesh->expert == 1 &&
	       plan->activation_offload == ACTIVATIONS_STAY;
}

static bool same_shape(const struct sampler *sampler, const struct plan *a, const struct plan *b)
{
	uint64_t no_shape = sampler->no_shape;
	if (recomputes_for_itself(a) && recomputes_for_itself(b))
		no_shape |=
			KNOB_BIT(KNOB_ACTIVATION_CHECKPOINTING) | KNOB_BIT(KNOB_RECOMPUTE_MODULES);
	return a->mesh.shard == b->mesh.shard && plan_divides_alike(a, b) &&
	       probed_micro_batches(a) == probed_micro_batches(b) &&
	       knobs_alike_but(no_shape, a, b);
}

/* What was measured by an earlier search, whose ranks send alike. */
static bool find_earlier_shape(
	const struct sampler *sampler, const struct plan *plan, struct shape *shape)
{
	const struct earlier *earlier = sampler->question->earlier;
	if (earlier == NULL || !earlier->sends_alike)
		return false;
	for (int i = 0; i < earlier->sampler->n_shapes; i++) {
		*shape = earlier->sampler->shapes[i];
		if (shape->plan->mesh.shard == plan->mesh.shard &&
			shape->plan->mesh.replicate == plan->mesh.replicate &&
			probed_micro_batches(shape->plan) == probed_micro_batches(plan) &&
			sampler_serves(shape->plan, plan))
			return true;
	}
	return false;
}

/* From the newest: plans of one shape follow one another. */
static const struct shape *find_shape(struct sampler *sampler, const struct plan *plan)
{
	int i = sampler->n_shapes - 1;
	while (i >= 0 && !same_shape(sampler, sampler->shapes[i].plan, plan))
		i--;
	if (i < 0) {
		struct shape shape;
		if (!find_earlier_shape(sampler, plan, &shape))
			measure_shape(sampler, plan, &shape);
		shape.plan = sampler_keep(sampler, plan);
		i = sampler->n_shapes++;
		sampler->shapes = array_grow(sampler->shapes, &sampler->shape_capacity,
			sampler->n_shapes, sizeof(*sampler->shapes));
		sampler->shapes[i] = shape;
	}
	return &sampler->shapes[i];
}

/* --- bounds ----------------------------------------------------------------------------------- */

static struct work work_of_step(const struct plan *plan, const struct shape *shape)
{
	struct work work = shape->rest;
	work_add(&work, &shape->middle, fmax(0, (double)plan->grad_accum - 2));
	return work;
}

/* (2) and (4) */
static double queues_bound(const struct topology *topology, const struct plan *plan,
	const struct load *load, const struct work *work)
{
	double time = bound_issue_once(plan, topology) + (double)plan->grad_accum * load->issue +
		      work->issue;
	int alone = bound_first_way_alone(plan);
	for (int way = 0; way < 2; way++)
		time = fmax(time, work->copies[way] + (way >= alone ? work->alone : 0));
	for (int e = 0; e < COMMUNICATORS_MAX; e++)
		time = fmax(time, work->communicators[e] + work->alone);
	for (int l = 0; l < LINKS; l++)
		time = fmax(time, work->links[l]);
	return fmax(time, plan_loader_time(plan));
}

static double time_bound(const struct topology *topology, const struct plan *plan,
	const struct load *load, const struct shape *shape)
{
	double n = (double)plan->grad_accum;
	struct work work = work_of_step(plan, shape);
	double cover[SHARES], losses[COMMUNICATORS_MAX];
	/* While the host updates, it is not known what of them is left. */
	double gaps = work.alone > 0 ? 0 : work.gaps + n * load->exchanges;
	for (int s = 0; s < SHARES; s++)
		cover[s] = n * load->cover[s] + work.cover;
	double time = queues_bound(topology, plan, load, &work);
	for (int e = 0; e < COMMUNICATORS_MAX; e++) {
		work.communicators[e] = fmax(0, work.communicators[e] - gaps);
		losses[e] = bound_loss(topology, shape->multiprocessors[e]);
	}
	time = fmax(time, n * load->compute + work.compute + work.alone + gaps +
				  bound_contention(losses, work.communicators, cover));
	return time * (1 - 1e-9); /* sums in another order than the simulator's */
}

static int64_t memory_bound(const struct load *load, const struct shape *shape)
{
	return max_i64(shape->at_loss + load->saved, shape->at_end) + shape->fixed;
}

static struct bound bound_of_stages(
	struct sampler *sampler, const struct plan *plan, const struct model *part)
{
	const struct load *load = load_find(sampler, plan, INT64_MAX);
	double time = bound_stages_time(sampler->question->topology, plan, part, &load->stages);
	return (struct bound){.time = fmax(time, plan_loader_time(plan)),
		.memory = bound_stages_memory(plan, part, &load->stages),
		.whole = true};
}

static struct bound bound_with_shape(
	struct sampler *sampler, const struct plan *plan, const struct load *load)
{
	const struct shape *shape = find_shape(sampler, plan);
	return (struct bound){.time = time_bound(sampler->question->topology, plan, load, shape),
		.memory = memory_bound(load, shape),
		.network = work_of_step(plan, shape).wire * (1 - 1e-9),
		.whole = true};
}

/* Whatever its shape is. */
static struct bound bound_of_load(const struct plan *plan, const struct load *load)
{
	double time = (double)plan->grad_accum * fmax(load->compute, load->issue);
	return (struct bound){
		.time = fmax(time, plan_loader_time(plan)) * (1 - 1e-9), .memory = load->saved};
}

static const struct model *part_of(struct sampler *sampler, const struct plan *plan)
{
	const struct division division = plan_division(plan);
	return divided_model(&sampler->divided, sampler->question->model, &division);
}

/* Bytes of states that the fullest rank surely holds. A stage has an unknown part of `part`. */
static double states_of(const struct plan *plan, const struct model *part, double mean)
{
	if (plan->mesh.pipeline > 1)
		return mean;
	return fmax(bound_states(plan, part), mean);
}

/* Where the states alone are too large for a device or for a node's memory, neither load nor shape
 * is looked at. A load is of the whole model, of which a stage saves a part: it says nothing of
 * what is too large for a stage. */
static struct bound bound_of(struct sampler *sampler, const struct plan *plan, int64_t limit)
{
	const struct model *part = part_of(sampler, plan);
	const struct states mean = states_mean(sampler->question, plan);
	double states = states_of(plan, part, mean.on_device);
	struct bound bound = {.memory = (int64_t)states};
	if (states <= (double)limit && !states_overflow(sampler->question, plan))
		bound = plan->mesh.pipeline > 1
				? bound_of_stages(sampler, plan, part)
				: bound_of_load(plan, load_find(sampler, plan, limit));
	bound.host = (int64_t)mean.in_node;
	return bound;
}

static int64_t limit_of(const struct question *question)
{
	return device_limit(question->topology, question->memory_limit_bytes);
}

void bounds_build(const struct question *question, const struct space *space, struct bounds *bounds)
{
	struct sampler *sampler = calloc(1, sizeof(*sampler));
	int64_t limit = limit_of(question);
	if (sampler == NULL)
		base_out_of_memory(sizeof(*sampler));
	*sampler = (struct sampler){.question = question,
		.no_load = knobs_of_role(KNOB_NO_LOAD),
		.no_shape = knobs_of_role(KNOB_NO_SHAPE)};
	sampler_make_few(sampler);
	bounds->sampler = sampler;
	bounds->of = array_grow(NULL, &(int){0}, space->n, sizeof(*bounds->of));
	for (int i = 0; i < space->n; i++)
		bounds->of[i] = bound_of(sampler, &space->plans[i], limit);
	bounds_release(bounds); /* a search has use for the memory */
}

void bounds_release(struct bounds *bounds)
{
	arena_finish(&bounds->sampler->arena);
}

const struct divided_models *bounds_models(const struct bounds *bounds)
{
	return &bounds->sampler->divided;
}

void bounds_complete(struct bounds *bounds, const struct space *space, int index)
{
	struct sampler *sampler = bounds->sampler;
	const struct plan *plan = &space->plans[index];
	struct bound *bound = &bounds->of[index];
	if (bound->whole)
		return;
	const struct bound before = *bound;
	*bound = plan->mesh.pipeline > 1
			 ? bound_of_stages(sampler, plan, part_of(sampler, plan))
			 : bound_with_shape(sampler, plan, load_find(sampler, plan, INT64_MAX));
	bound->time = fmax(bound->time, before.time);
	bound->memory = max_i64(bound->memory, before.memory);
	bound->host = before.host;
}

void bounds_complete_all(struct bounds *bounds, const struct space *space)
{
	int64_t limit = limit_of(bounds->sampler->question);
	for (int i = 0; i < space->n; i++)
		if (bounds->of[i].memory <= limit)
			bounds_complete(bounds, space, i);
}

struct block_load bounds_block(const struct question *question, const struct plan *plan)
{
	struct sampler sampler = {.question = question};
	struct load load;
	load_measure(&sampler, plan, &load);
	const struct division division = plan_division(plan);
	const struct model *part = divided_model(&sampler.divided, question->model, &division);
	double blocks = (double)part->architecture.layers;
	struct block_load found = {.block = load.stages.blocks / blocks,
		.embedding = load.stages.embedding,
		.head = load.stages.head + load.stages.loss,
		.saved = load.stages.saved / blocks,
		.states = bound_block_states(plan, part)};
	divided_models_finish(&sampler.divided);
	arena_finish(&sampler.arena);
	return found;
}

int64_t bounds_memory(const struct schedule *schedule, int class, struct arena *arena)
{
	const struct stands stands = bound_stands(&schedule->programs[class], arena);
	int64_t standing = bound_standing(&stands, NULL, OP_KIND_COUNT, arena);
	struct ledger ledger;
	schedule_ledger(schedule, class, NULL, &ledger);
	return max_i64(standing, ledger.peak_bytes) + bound_fixed_bytes(schedule);
}

struct sampler *bounds_leave(struct bounds *bounds)
{
	struct sampler *sampler = bounds->sampler;
	bounds->sampler = NULL;
	if (sampler == NULL)
		return NULL;
	divided_models_finish(&sampler->divided);
	arena_finish(&sampler->arena);
	return sampler;
}

void sampler_free(struct sampler *sampler)
{
	if (sampler != NULL) {
		divided_models_finish(&sampler->divided);
		arena_finish(&sampler->arena);
		arena_finish(&sampler->models);
		free(sampler->loads);
		free(sampler->shapes);
	}
	free(sampler);
}

void bounds_finish(struct bounds *bounds)
{
	sampler_free(bounds->sampler);
	free(bounds->of);
	*bounds = (struct bounds){0};
}
