/* Lower bounds of step time, memory and traffic. The arguments:
 *
 * Time. (1) Operations of the compute stream run one after the other, none faster than alone.
 * Between two neighbours it stands still for as long as what the second waits for takes after the
 * first: the first gather of a step, the last reduction (time.c). (2) Collectives of one
 * communicator run one after the other, none faster than alone, and between a step's last and the
 * next one's first there are the optimizer and all else that those two wait for. While the host
 * updates what is offloaded, which begins when all is computed and reduced, it issues nothing: both
 * stand still. The optimizer closes a step and the next one's gathers wait for it, so steps do not
 * overlap on either, and a step takes at least each sum. Where the training loop reads the loss
 * once a step, as all runtimes' loops do, nothing of a step is issued before the one before it has
 * ended, and it ends after the last of it was issued: then what the issuing thread spends is such a
 * sum, with what it carries out itself, and so are the copies to the host with the update there
 * that waits for them, and the copies to the device, with that update where they come before it.
 * Where the data loader has a rate, a step takes at least as long as it takes for the step's
 * tokens.
 *
 * (3) While a collective of a communicator runs, at least c of n multiprocessors are taken, and
 * arithmetic takes a = n / (n - c) times as long. An operation of w seconds alone, of which a share
 * f is arithmetic, then takes w (1 + (a - 1) f); of each second beside a collective it loses l(f) =
 * 1 - 1 / (1 + (a - 1) f). Let W be the sum of w, P the pauses of (1), C the collectives' time, X
 * what of it overlaps compute and x_i beside operation i, L what compute loses. Collectives that
 * do not overlap compute fall into its pauses, so a step takes W + L + max(P, C - X). For any share
 * g, L = sum l(f_i) x_i >= l(g) X - sum (l(g) - l(f_i)) x_i over operations with f_i < g, and x_i
 * is at most the time that operation i takes: L >= l(g) (X - sum w_i (1 - f_i / g)). That grows
 * slower than X, so X = C - P is the least: W + P + l(g) (C - P - sum w_i (1 - f_i / g)), for every
 * g. Beside the optimizer there is no collective: it is not in the last sum. Of several
 * communicators that run at once each takes its multiprocessors, and l grows faster than they do:
 * the sum of l(g) (C - P) over communicators counts, and before the last sum the l(g) of all
 * together.
 *
 * (4) Collectives that run at once share the network, and a device's port of the fabric, in equal
 * parts: what fills a link of its own for s seconds takes s seconds of it beside others too. So a
 * step takes at least the sum of what its collectives take of a link, and the pause of (2) between
 * the last of them and the next step's first, whichever communicators these are of.
 *
 * (5) A gradient exists after the loss. All that the compute stream does up to the last loss runs
 * before the last micro-batch's reductions begin; those of a communicator run one after the other;
 * the next step's first computation waits for the optimizer, which waits for the last of them. So a
 * step takes at least the sum of the three; those of all communicators together take as long as
 * they take of the network.
 *
 * (6) Between a loss and the next micro-batch's first computation there are collectives of a
 * communicator of which the first waits for that loss, and for the last of which that computation
 * waits. So forward and these take turns, and a step takes at least the sum of both; so do backward
 * and the collectives between its end and the next loss.
 *
 * Sums over a step of n micro-batches: the first, n - 2 alike in the middle, the last, and what the
 * step does once; three micro-batches show them all.
 *
 * Memory. A block lives from its taking to its giving operation, and all its uses are between. So
 * while the compute stream runs an operation, every buffer is there that it has touched before (or
 * touches now) and will touch later (or touches now). At the loss of the last micro-batch that is
 * everything saved for backward, the resident buffers, the parameters that are not resharded and
 * the gradients of earlier micro-batches: the first is the load's, the rest the shape's. At the
 * optimizer it is what the shape has there, whatever was saved before. Context and communicators
 * come on top. bounds_tighten looks at all operations of the plan's own first and last micro-batch.
 * On a GPU an allocator reserves memory for each stream apart (memory.c), which takes more;
 * but it can give some back, and then the plan is tight: this is a bound of plans that fit with
 * room.
 */
#include "planner/bounds/bounds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/memory/memory.h"
#include "simulator/costs/costs.h"
#include "simulator/simulator.h"

enum { PROBED_MICRO_BATCHES = 3 };

struct load {
	const struct plan *plan;              /* the first that has it */
	double compute, issue, cover[SHARES]; /* s per micro-batch */
	double before;                        /* s of compute up to the loss */
	struct bound_edges edges;
	int64_t saved; /* bytes at the loss */
};

struct shape {
	const struct plan *plan;
	struct work middle, rest; /* of a micro-batch in the middle; of everything else */
	struct bound_communication communication;
	int64_t at_loss; /* bytes, without the load */
	int64_t at_end;  /* bytes at the optimizer */
	int64_t fixed;   /* bytes outside of buffers */
};

struct sampler {
	const struct question *question;
	struct arena arena;
	int n_loads, load_capacity, n_shapes, shape_capacity;
	struct load *loads;
	struct shape *shapes;
	int64_t samples;
	struct bound_ignored ignored;
};

/* --- samples ---------------------------------------------------------------------------------- */

int64_t bound_micro_batches(const struct plan *plan)
{
	return min_i64(plan->grad_accum, PROBED_MICRO_BATCHES);
}

bool bound_sample(const struct question *question, struct arena *arena, const struct plan *plan,
	int64_t micro_batch, int64_t grad_accum, struct sample *sample, struct error *error)
{
	struct plan small = *plan;
	struct error mine = {0};
	small.micro_batch = micro_batch;
	small.grad_accum = grad_accum;
	small.global_batch = micro_batch * grad_accum * plan_data_parallel(plan);
	arena_reset(arena);
	*sample = (struct sample){0};
	if (!schedule_build(
		    arena, &small, question->model, question->topology, &sample->schedule, &mine)) {
		sample->schedule = NULL;
		return error_is_refusal(&mine, error);
	}
	sample->costs = ARENA_ARRAY(arena, struct cost, sample->schedule->programs[0].n_ops);
	cost_operations(sample->schedule, 0, sample->costs);
	return true;
}

/* Gathers ahead in forward wait for more, not for less. */
struct plan bound_usual(const struct plan *plan)
{
	struct plan usual = *plan;
	usual.forward_prefetch = false;
	return usual;
}

static bool take(struct sampler *sampler, const struct plan *plan, int64_t micro_batch,
	int64_t grad_accum, struct sample *sample, struct error *error)
{
	sampler->samples++;
	return bound_sample(
		sampler->question, &sampler->arena, plan, micro_batch, grad_accum, sample, error);
}

static bool is_shape(const struct buffer *buffer)
{
	return !bound_is_load(buffer);
}

static int64_t most_at(const struct program *program, const int64_t *live, enum op_kind kind)
{
	int64_t most = 0;
	for (int i = 0; i < program->n_ops; i++)
		if (program->ops[i].kind == kind)
			most = max_i64(most, live[i]);
	return most;
}

/* --- loads ------------------------------------------------------------------------------------ */

static bool measure_load(
	struct sampler *sampler, const struct plan *plan, struct load *load, struct error *error)
{
	struct sample sample;
	*load = (struct load){.plan = plan};
	if (!take(sampler, plan, plan->micro_batch, 1, &sample, error))
		return false;
	if (sample.schedule == NULL)
		return true;
	const struct schedule *schedule = sample.schedule;
	const struct cost *costs = sample.costs;
	const struct program *program = &schedule->programs[0];
	const double *issue = bound_issue(schedule, costs, &sampler->arena);
	int loss = bound_last_loss(program);
	for (int i = 0; i < program->n_ops; i++) {
		if (op_kind_class(program->ops[i].kind) != OP_CLASS_COMPUTE)
			continue;
		load->compute += costs[i].device;
		load->before += i <= loss ? costs[i].device : 0;
		load->issue += bound_issue_of_load(schedule, &program->ops[i], issue[i]);
		bound_add_cover(&costs[i], load->cover);
	}
	load->edges = bound_edges(program, costs);
	load->saved = most_at(
		program, bound_surely_live(program, bound_is_load, &sampler->arena), OP_LOSS);
	return true;
}

/* --- shapes ----------------------------------------------------------------------------------- */

/* What a collective sends depends on its group, its bytes and the runtime's algorithm only. */
static double wire(const struct schedule *schedule, const struct op *op)
{
	const struct group *group = &schedule->groups[op->group];
	if (schedule->topology->nodes > 1)
		return collective_node_egress(schedule->topology,
			runtime_of(schedule->plan.runtime), op->kind, group, op->bytes);
	return collective_wire_bytes(op->kind, group->size, op->bytes);
}

static void add_collective(struct shape *shape, const struct schedule *schedule, int index,
	const struct cost *cost, const struct bound_pauses *pauses, struct work *work)
{
	const struct op *op = &schedule->programs[0].ops[index];
	int communicator = schedule->groups[op->group].engine;
	work->wire += wire(schedule, op);
	if (communicator >= COMMUNICATORS_MAX || cost->device <= 0)
		return;
	shape->communication.multiprocessors[communicator] =
		fmin(shape->communication.multiprocessors[communicator], cost->multiprocessors);
	bound_add_collective(schedule, index, cost, pauses, work);
}

static void add_operation(struct shape *shape, const struct schedule *schedule, int index,
	const struct cost *cost, double issue, const struct bound_pauses *pauses)
{
	const struct op *op = &schedule->programs[0].ops[index];
	enum op_class class = op_kind_class(op->kind);
	bool middle = op->micro_batch > 0 && op->micro_batch < (int)schedule->plan.grad_accum - 1;
	struct work *work = middle ? &shape->middle : &shape->rest;
	work->stalls += pauses->stalls[index] + pauses->host[index];
	work->alone += pauses->host[index];
	if (class == OP_CLASS_COMPUTE)
		return; /* it belongs to the load */
	work->issue += issue;
	bound_add_copy(op, cost, work);
	if (class == OP_CLASS_COLLECTIVE)
		add_collective(shape, schedule, index, cost, pauses, work);
	if (class == OP_CLASS_COLLECTIVE || op->stream != STREAM_COMPUTE)
		return;
	work->compute += cost->device;
	work->cover += bound_hides(pauses, op) ? cost->device : 0;
}

int64_t bound_fixed_bytes(const struct schedule *schedule)
{
	struct fixed_memory fixed = schedule_fixed_memory(schedule);
	return fixed.context + fixed.communicators;
}

static bool measure_shape(
	struct sampler *sampler, const struct plan *plan, struct shape *shape, struct error *error)
{
	struct sample sample;
	*shape = (struct shape){.plan = plan};
	struct plan usual = bound_usual(plan);
	if (!take(sampler, &usual, 1, bound_micro_batches(plan), &sample, error))
		return false;
	if (sample.schedule == NULL)
		return true;
	const struct schedule *schedule = sample.schedule;
	const struct cost *costs = sample.costs;
	const struct program *program = &schedule->programs[0];
	struct bound_pauses pauses = bound_pauses(schedule, costs, &sampler->arena);
	const double *issue = bound_issue(schedule, costs, &sampler->arena);
	shape->communication = pauses.communication;
	for (int i = 0; i < program->n_ops; i++)
		add_operation(shape, schedule, i, &costs[i], issue[i], &pauses);
	shape->at_loss = most_at(
		program, bound_surely_live(program, bound_is_kept, &sampler->arena), OP_LOSS);
	shape->at_end = most_at(
		program, bound_surely_live(program, is_shape, &sampler->arena), OP_OPTIMIZER);
	shape->fixed = bound_fixed_bytes(schedule);
	return true;
}

/* --- looking up ------------------------------------------------------------------------------- */

/* Plans are alike in what is computed, or in what is kept and moved, when they differ only in knobs
 * that do not matter for it. A knob without these roles matters for both. */
struct bound_ignored bound_ignored(void)
{
	return (struct bound_ignored){knobs_of_role(KNOB_NO_LOAD), knobs_of_role(KNOB_NO_SHAPE)};
}

/* Leaves that save nothing are computed again only when their range saves something: what is
 * recomputed depends on the wrap policy. */
bool bound_same_load(
	const struct bound_ignored *ignored, const struct plan *a, const struct plan *b)
{
	return knobs_alike_but(ignored->load, a, b) &&
	       (!plan_checkpoints(a, CHECKPOINTING_FULL) || wrap_equal(&a->wrap, &b->wrap));
}

bool bound_same_shape(
	const struct bound_ignored *ignored, const struct plan *a, const struct plan *b)
{
	return a->mesh.shard == b->mesh.shard && bound_micro_batches(a) == bound_micro_batches(b) &&
	       knobs_alike_but(ignored->shape, a, b);
}

static bool find_load(struct sampler *sampler, const struct plan *plan, const struct load **load,
	struct error *error)
{
	int i = 0;
	while (i < sampler->n_loads &&
		!bound_same_load(&sampler->ignored, sampler->loads[i].plan, plan))
		i++;
	if (i == sampler->n_loads) {
		sampler->loads = array_grow(
			sampler->loads, &sampler->load_capacity, i + 1, sizeof(*sampler->loads));
		if (!measure_load(sampler, plan, &sampler->loads[sampler->n_loads++], error))
			return false;
	}
	*load = &sampler->loads[i];
	return true;
}

/* From the newest: plans of one shape follow one another. */
static bool find_shape(struct sampler *sampler, const struct plan *plan, const struct shape **shape,
	struct error *error)
{
	int i = sampler->n_shapes - 1;
	while (i >= 0 && !bound_same_shape(&sampler->ignored, sampler->shapes[i].plan, plan))
		i--;
	if (i < 0) {
		i = sampler->n_shapes;
		sampler->shapes = array_grow(
			sampler->shapes, &sampler->shape_capacity, i + 1, sizeof(*sampler->shapes));
		if (!measure_shape(sampler, plan, &sampler->shapes[sampler->n_shapes++], error))
			return false;
	}
	*shape = &sampler->shapes[i];
	return true;
}

/* --- bounds ----------------------------------------------------------------------------------- */

static struct work work_of_step(const struct plan *plan, const struct shape *shape)
{
	struct work work = shape->rest;
	work_add(&work, &shape->middle, fmax(0, (double)plan->grad_accum - 2));
	return work;
}

/* (4) to (6) */
static double links_bound(const struct plan *plan, const struct load *load,
	const struct shape *shape, const struct work *work)
{
	const struct bound_communication *c = &shape->communication;
	double before = ((double)plan->grad_accum - 1) * load->compute + load->before;
	double time = before + work->late_network + c->late_network;
	for (int l = 0; l < LINKS; l++)
		time = fmax(time, work->links[l] + c->links[l]);
	for (int e = 0; e < COMMUNICATORS_MAX; e++)
		time = fmax(time, before + work->late[e] + c->late[e]);
	for (int e = 0; e < COMMUNICATORS_MAX; e++) {
		time = fmax(time, (double)plan->grad_accum * load->before +
					  work->halves[e][BESIDE_FORWARD_NOT]);
		time = fmax(time, (double)plan->grad_accum * (load->compute - load->before) +
					  work->halves[e][BESIDE_BACKWARD_NOT]);
	}
	return time;
}

/* (2) */
static double queues_bound(const struct plan *plan, const struct load *load,
	const struct shape *shape, const struct work *work)
{
	double time = bound_issue_once(plan) + (double)plan->grad_accum * load->issue + work->issue;
	int alone = bound_first_way_alone(plan);
	for (int way = 0; way < 2; way++)
		time = fmax(time, work->copies[way] + (way >= alone ? work->alone : 0));
	for (int e = 0; e < COMMUNICATORS_MAX; e++)
		time = fmax(time, work->communicators[e] + shape->communication.idle[e]);
	return fmax(time, fmax(plan_loader_time(plan), links_bound(plan, load, shape, work)));
}

static double time_bound(const struct topology *topology, const struct plan *plan,
	const struct load *load, const struct shape *shape)
{
	double n = (double)plan->grad_accum;
	struct work work = work_of_step(plan, shape);
	double stalls = work.stalls + bound_edge_stalls(&load->edges, &shape->communication);
	double busy = n * load->compute + work.compute + stalls;
	double cover[SHARES], losses[COMMUNICATORS_MAX];
	for (int s = 0; s < SHARES; s++)
		cover[s] = n * load->cover[s] + work.cover;
	for (int e = 0; e < COMMUNICATORS_MAX; e++)
		losses[e] = bound_loss(topology, shape->communication.multiprocessors[e]);
	double time = fmax(queues_bound(plan, load, shape, &work),
		busy + bound_contention(losses, work.communicators, stalls, cover));
	return time * (1 - 1e-9); /* sums in another order than the simulator's */
}

static int64_t memory_bound(const struct load *load, const struct shape *shape)
{
	return max_i64(shape->at_loss + load->saved, shape->at_end) + shape->fixed;
}

static bool bound_of(
	struct sampler *sampler, const struct plan *plan, struct bound *bound, struct error *error)
{
	const struct load *load;
	const struct shape *shape;
	if (!find_load(sampler, plan, &load, error) || !find_shape(sampler, plan, &shape, error))
		return false;
	*bound = (struct bound){.time = time_bound(sampler->question->topology, plan, load, shape),
		.memory = memory_bound(load, shape),
		.compute = (double)plan->grad_accum * load->compute * (1 - 1e-9),
		.network = work_of_step(plan, shape).wire * (1 - 1e-9)};
	return true;
}

bool bounds_build(const struct question *question, const struct space *space, struct bounds *bounds,
	struct error *error)
{
	struct sampler sampler = {.question = question, .ignored = bound_ignored()};
	bool ok = true;
	bounds->of = array_grow(NULL, &(int){0}, space->n, sizeof(*bounds->of));
	for (int i = 0; i < space->n && ok; i++)
		ok = bound_of(&sampler, &space->plans[i], &bounds->of[i], error);
	bounds->samples = sampler.samples;
	arena_finish(&sampler.arena);
	free(sampler.loads);
	free(sampler.shapes);
	return ok;
}

struct plan bounds_small(const struct plan *plan)
{
	struct plan small = *plan;
	small.grad_accum = min_i64(plan->grad_accum, 2);
	small.global_batch = plan->micro_batch * small.grad_accum * plan_data_parallel(plan);
	return small;
}

static int64_t surely_live_peak(const struct program *program, struct arena *arena)
{
	int64_t *live = bound_surely_live(program, NULL, arena), peak = 0;
	for (int i = 0; i < program->n_ops; i++)
		peak = max_i64(peak, live[i]);
	return peak;
}

void bounds_tighten(const struct schedule *schedule, struct arena *arena, struct bound *bound)
{
	int64_t peak = surely_live_peak(&schedule->programs[0], arena);
	bound->memory = max_i64(bound->memory, peak + bound_fixed_bytes(schedule));
}

int64_t bounds_with_room(
	const struct question *question, const struct plan *plan, struct arena *arena)
{
	struct plan two = bounds_small(plan);
	arena_reset(arena);
	const struct schedule *schedule =
		schedule_emit(arena, &two, question->model, question->topology);
	const struct program *program = &schedule->programs[0];
	struct bound_pools pools = bound_pools(program);
	return (bound_has_pools(question->topology, plan) ? bound_pools_total(&pools)
							  : surely_live_peak(program, arena)) +
	       bound_fixed_bytes(schedule);
}

void bounds_finish(struct bounds *bounds)
{
	free(bounds->of);
	*bounds = (struct bounds){0};
}
