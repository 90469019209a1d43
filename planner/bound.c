/* Lower bounds of step time, memory and traffic. The arguments:
 *
 * Time. (1) Operations of the compute stream run one after the other, none faster than alone. (2)
 * Collectives of one engine run one after the other, none faster than alone. The optimizer closes a
 * step and the next one's gathers wait for it, so steps do not overlap on either, and a step takes
 * at least each sum. (The host does run ahead of a step: its sum bounds nothing.) (3) While a
 * collective of an engine runs, at least c multiprocessors are taken, and arithmetic takes a = n /
 * (n - c) times as long. Let W be the sum of (1), of which A is arithmetic, C the sum of (2), X the
 * time during which both run, and L what compute loses meanwhile. Outside of X compute does at most
 * W + L - X seconds of arithmetic, so it does at least A - (W + L - X) inside, and loses a - 1 for
 * each: L >= (1 - 1/a) (X - (W - A)). The step takes W + L + C - X at least, which is least for X =
 * C: W + (1 - 1/a) (C - (W - A)).
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
 */
#include "planner/bound_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simulator/collective.h"
#include "simulator/simulator.h"

enum { PROBED_MICRO_BATCHES = 3 };

struct load {
	const struct plan *plan;    /* the first that has it */
	double compute, arithmetic; /* s per micro-batch */
	int64_t saved;              /* bytes at the loss */
};

struct shape {
	const struct plan *plan;
	struct work middle, rest; /* of a micro-batch in the middle; of everything else */
	double multiprocessors[ENGINES_MAX]; /* that each of its collectives takes, at least */
	int64_t at_loss;                     /* bytes, without the load */
	int64_t at_end;                      /* bytes at the optimizer */
	int64_t fixed;                       /* bytes outside of buffers */
};

struct prober {
	const struct question *question;
	struct arena arena;
	int n_loads, load_capacity, n_shapes, shape_capacity;
	struct load *loads;
	struct shape *shapes;
	int64_t probes;
	struct bound_ignored ignored;
};

/* --- probes --------------------------------------------------------------------------------------
 */

int64_t bound_micro_batches(const struct plan *plan)
{
	return min_i64(plan->grad_accum, PROBED_MICRO_BATCHES);
}

bool bound_probe(const struct question *question, struct arena *arena, const struct plan *plan,
	int64_t micro_batch, int64_t grad_accum, struct schedule **schedule, struct cost **costs,
	struct error *error)
{
	struct plan small = *plan;
	struct error mine = {0};
	small.micro_batch = micro_batch;
	small.grad_accum = grad_accum;
	small.global_batch = micro_batch * grad_accum * plan_data_parallel(plan);
	arena_reset(arena);
	*schedule = NULL;
	if (!schedule_build(arena, &small, question->model, question->topology, schedule, &mine)) {
		*schedule = NULL;
		return mine.code == EXIT_CODE_USAGE ||
		       error_set(error, mine.code, "%s", mine.message);
	}
	*costs = ARENA_ARRAY(arena, struct cost, (*schedule)->programs[0].n_ops);
	cost_operations(*schedule, 0, *costs);
	return true;
}

static bool probe(struct prober *prober, const struct plan *plan, int64_t micro_batch,
	int64_t grad_accum, struct schedule **schedule, struct cost **costs, struct error *error)
{
	prober->probes++;
	return bound_probe(prober->question, &prober->arena, plan, micro_batch, grad_accum,
		schedule, costs, error);
}

bool bound_is_load(const struct buffer *buffer)
{
	static const bool load[BUFFER_ROLE_COUNT] = {[BUFFER_RESIDUAL] = true,
		[BUFFER_ACTIVATIONS] = true,
		[BUFFER_LOGITS] = true,
		[BUFFER_LOSS_WORK] = true,
		[BUFFER_TOKENS] = true};
	return load[buffer->role];
}

static bool is_shape(const struct buffer *buffer)
{
	return !bound_is_load(buffer);
}

/* What is there at the loss whatever is prefetched: gather buffers come and go. */
bool bound_is_kept(const struct buffer *buffer)
{
	static const bool kept[BUFFER_ROLE_COUNT] = {[BUFFER_UNSHARDED] = true,
		[BUFFER_RESHARDED] = true,
		[BUFFER_COMPUTE_COPY] = true,
		[BUFFER_GRADIENT] = true,
		[BUFFER_FLAT_GRADIENT] = true,
		[BUFFER_GRADIENT_SHARD] = true};
	return buffer->resident || kept[buffer->role];
}

/* --- what must be there -------------------------------------------------------------------------
 */

static void touch(
	struct touches *touches, const struct program *program, struct slice slice, int op)
{
	const int *buffers = slice_of(program, slice);
	for (int i = 0; i < slice.count; i++) {
		struct touches *t = &touches[buffers[i]];
		t->first = t->first < op ? t->first : op;
		t->last = t->last > op ? t->last : op;
	}
}

struct touches *bound_touches(const struct program *program, struct arena *arena)
{
	struct touches *touches = ARENA_ARRAY(arena, struct touches, program->n_buffers);
	for (int i = 0; i < program->n_buffers; i++) {
		bool resident = program->buffers[i].resident;
		touches[i] = (struct touches){
			resident ? 0 : program->n_ops, resident ? program->n_ops - 1 : -1};
	}
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		if (op->stream != STREAM_COMPUTE)
			continue;
		touch(touches, program, op->takes, i);
		touch(touches, program, op->uses, i);
		touch(touches, program, op->gives, i);
	}
	return touches;
}

/* Bytes that are surely there while each operation of the compute stream runs; `filter` may be
 * NULL. */
static int64_t *surely_live(const struct program *program,
	bool (*filter)(const struct buffer *buffer), struct arena *arena)
{
	struct touches *touches = bound_touches(program, arena);
	int64_t *live = ARENA_ARRAY(arena, int64_t, program->n_ops + 1);
	for (int i = 0; i < program->n_buffers; i++) {
		const struct buffer *buffer = &program->buffers[i];
		if (touches[i].first > touches[i].last || buffer_in_host(buffer) ||
			(filter != NULL && !filter(buffer)))
			continue;
		live[touches[i].first] += buffer->bytes;
		live[touches[i].last + 1] -= buffer->bytes;
	}
	for (int i = 0; i < program->n_ops; i++)
		live[i + 1] += live[i];
	return live;
}

static int64_t most_at(const struct program *program, const int64_t *live, enum op_kind kind)
{
	int64_t most = 0;
	for (int i = 0; i < program->n_ops; i++)
		if (program->ops[i].kind == kind)
			most = max_i64(most, live[i]);
	return most;
}

/* --- loads --------------------------------------------------------------------------------------
 */

static bool probe_load(
	struct prober *prober, const struct plan *plan, struct load *load, struct error *error)
{
	struct schedule *schedule;
	struct cost *costs;
	*load = (struct load){.plan = plan};
	if (!probe(prober, plan, plan->micro_batch, 1, &schedule, &costs, error))
		return false;
	if (schedule == NULL)
		return true;
	const struct program *program = &schedule->programs[0];
	for (int i = 0; i < program->n_ops; i++) {
		if (op_kind_class(program->ops[i].kind) != OP_CLASS_COMPUTE)
			continue;
		load->compute += costs[i].device;
		load->arithmetic += costs[i].arithmetic;
	}
	load->saved =
		most_at(program, surely_live(program, bound_is_load, &prober->arena), OP_LOSS);
	return true;
}

/* --- shapes --------------------------------------------------------------------------------------
 */

/* What a collective sends depends on its group, its bytes and the runtime's algorithm only. */
static double wire(const struct schedule *schedule, const struct op *op)
{
	const struct group *group = &schedule->groups[op->group];
	if (schedule->topology->nodes > 1)
		return collective_node_egress(schedule->topology,
			runtime_of(schedule->plan.runtime), op->kind, group, op->bytes);
	return collective_wire_bytes(op->kind, group->size, op->bytes);
}

static void add_collective(struct shape *shape, const struct schedule *schedule,
	const struct op *op, const struct cost *cost, struct work *work)
{
	int engine = schedule->groups[op->group].engine;
	double *least = &shape->multiprocessors[engine];
	work->wire += wire(schedule, op);
	if (engine >= ENGINES_MAX || cost->device <= 0)
		return;
	*least = work->engines[engine] > 0 ? fmin(*least, cost->multiprocessors)
					   : cost->multiprocessors;
	work->engines[engine] += cost->device;
}

static void add_operation(struct shape *shape, const struct schedule *schedule, const struct op *op,
	const struct cost *cost)
{
	enum op_class class = op_kind_class(op->kind);
	bool middle = op->micro_batch > 0 && op->micro_batch < (int)schedule->plan.grad_accum - 1;
	struct work *work = middle ? &shape->middle : &shape->rest;
	if (class == OP_CLASS_COLLECTIVE)
		add_collective(shape, schedule, op, cost, work);
	else if (class != OP_CLASS_COMPUTE && op->stream == STREAM_COMPUTE)
		work->compute += cost->device; /* COMPUTE belongs to the load */
}

int64_t bound_fixed_bytes(const struct schedule *schedule)
{
	struct fixed_memory fixed = schedule_fixed_memory(schedule);
	return fixed.context + fixed.communicators;
}

static bool probe_shape(
	struct prober *prober, const struct plan *plan, struct shape *shape, struct error *error)
{
	struct schedule *schedule;
	struct cost *costs;
	*shape = (struct shape){.plan = plan};
	if (!probe(prober, plan, 1, bound_micro_batches(plan), &schedule, &costs, error))
		return false;
	if (schedule == NULL)
		return true;
	const struct program *program = &schedule->programs[0];
	for (int i = 0; i < program->n_ops; i++)
		add_operation(shape, schedule, &program->ops[i], &costs[i]);
	shape->at_loss =
		most_at(program, surely_live(program, bound_is_kept, &prober->arena), OP_LOSS);
	shape->at_end =
		most_at(program, surely_live(program, is_shape, &prober->arena), OP_OPTIMIZER);
	shape->fixed = bound_fixed_bytes(schedule);
	return true;
}

/* --- looking up ----------------------------------------------------------------------------------
 */

static bool differ_only_in(const struct plan *a, const struct plan *b, uint64_t ignored)
{
	for (int i = 0; i < n_plan_fields; i++) {
		const struct field one[] = {plan_fields[i], FIELD_END};
		if (!(ignored >> i & 1) && !fields_equal(one, a, b))
			return false;
	}
	return true;
}

static uint64_t bits_of(const char *const *names)
{
	uint64_t bits = 0;
	for (int i = 0; names[i] != NULL; i++)
		bits |= UINT64_C(1) << plan_field_index(names[i]);
	return bits;
}

/* Plans are alike in what is computed, or in what is kept and moved, when they differ only in knobs
 * that do not matter for it. A knob that is not listed here matters for both. */
struct bound_ignored bound_ignored(void)
{
	static const char *const no_load[] = {"strategy", "reshard_after_forward", "wrap",
		"prefetch", "forward_prefetch", "limit_all_gathers", "grad_accum", "global_batch",
		"sync_each_micro_batch", "reduce_dtype", NULL};
	static const char *const no_shape[] = {"prefetch", "forward_prefetch", "limit_all_gathers",
		"micro_batch", "grad_accum", "global_batch", NULL};
	return (struct bound_ignored){bits_of(no_load), bits_of(no_shape)};
}

/* Leaves that save nothing are computed again only when their range saves something: what is
 * recomputed depends on the wrap policy. */
bool bound_same_load(
	const struct bound_ignored *ignored, const struct plan *a, const struct plan *b)
{
	return differ_only_in(a, b, ignored->load) &&
	       (!plan_checkpoints(a, CHECKPOINTING_FULL) || strcmp(a->wrap, b->wrap) == 0);
}

bool bound_same_shape(
	const struct bound_ignored *ignored, const struct plan *a, const struct plan *b)
{
	return a->mesh.shard == b->mesh.shard && bound_micro_batches(a) == bound_micro_batches(b) &&
	       differ_only_in(a, b, ignored->shape);
}

static bool find_load(struct prober *prober, const struct plan *plan, const struct load **load,
	struct error *error)
{
	int i = 0;
	while (i < prober->n_loads &&
		!bound_same_load(&prober->ignored, prober->loads[i].plan, plan))
		i++;
	if (i == prober->n_loads) {
		prober->loads = array_grow(
			prober->loads, &prober->load_capacity, i + 1, sizeof(*prober->loads));
		if (!probe_load(prober, plan, &prober->loads[prober->n_loads++], error))
			return false;
	}
	*load = &prober->loads[i];
	return true;
}

/* From the newest: plans of one shape follow one another. */
static bool find_shape(struct prober *prober, const struct plan *plan, const struct shape **shape,
	struct error *error)
{
	int i = prober->n_shapes - 1;
	while (i >= 0 && !bound_same_shape(&prober->ignored, prober->shapes[i].plan, plan))
		i--;
	if (i < 0) {
		i = prober->n_shapes;
		prober->shapes = array_grow(
			prober->shapes, &prober->shape_capacity, i + 1, sizeof(*prober->shapes));
		if (!probe_shape(prober, plan, &prober->shapes[prober->n_shapes++], error))
			return false;
	}
	*shape = &prober->shapes[i];
	return true;
}

/* --- bounds --------------------------------------------------------------------------------------
 */

static double total(const struct plan *plan, double middle, double rest)
{
	return rest + fmax(0, (double)plan->grad_accum - 2) * middle;
}

double bound_loss(const struct topology *topology, double multiprocessors)
{
	double all = (double)topology->device.multiprocessors;
	if (topology->device.kind != DEVICE_GPU || all <= 0)
		return 0;
	return fmin(multiprocessors / all, 0.5);
}

/* What collectives of one engine take away from arithmetic, s: (1 - 1/a) (C - (W - A)). */
static double contention(const struct topology *topology, double communication,
	double multiprocessors, double not_arithmetic)
{
	return bound_loss(topology, multiprocessors) * fmax(0, communication - not_arithmetic);
}

static double time_bound(const struct topology *topology, const struct plan *plan,
	const struct load *load, const struct shape *shape)
{
	double n = (double)plan->grad_accum;
	double compute =
		n * load->compute + total(plan, shape->middle.compute, shape->rest.compute);
	double not_arithmetic = compute - n * load->arithmetic, time = compute;
	for (int e = 0; e < ENGINES_MAX; e++) {
		double engine = total(plan, shape->middle.engines[e], shape->rest.engines[e]);
		time = fmax(time, engine);
		time = fmax(time, compute + contention(topology, engine, shape->multiprocessors[e],
						    not_arithmetic));
	}
	return time * (1 - 1e-9); /* sums in another order than the simulator's */
}

static int64_t memory_bound(const struct load *load, const struct shape *shape)
{
	return max_i64(shape->at_loss + load->saved, shape->at_end) + shape->fixed;
}

static bool bound_of(
	struct prober *prober, const struct plan *plan, struct bound *bound, struct error *error)
{
	const struct load *load;
	const struct shape *shape;
	if (!find_load(prober, plan, &load, error) || !find_shape(prober, plan, &shape, error))
		return false;
	*bound = (struct bound){.time = time_bound(prober->question->topology, plan, load, shape),
		.memory = memory_bound(load, shape),
		.compute = (double)plan->grad_accum * load->compute * (1 - 1e-9),
		.network = total(plan, shape->middle.wire, shape->rest.wire) * (1 - 1e-9)};
	return true;
}

bool bounds_build(const struct question *question, const struct space *space, struct bounds *bounds,
	struct error *error)
{
	struct prober prober = {.question = question, .ignored = bound_ignored()};
	bool ok = true;
	bounds->of = array_grow(NULL, &(int){0}, space->n, sizeof(*bounds->of));
	for (int i = 0; i < space->n && ok; i++)
		ok = bound_of(&prober, &space->plans[i], &bounds->of[i], error);
	bounds->probes = prober.probes;
	arena_finish(&prober.arena);
	free(prober.loads);
	free(prober.shapes);
	return ok;
}

bool bounds_tighten(const struct question *question, const struct plan *plan, struct arena *arena,
	struct bound *bound, struct error *error)
{
	struct plan two = *plan;
	struct schedule *schedule;
	struct error mine = {0};
	int64_t peak = 0;
	two.grad_accum = min_i64(plan->grad_accum, 2);
	two.global_batch = plan->micro_batch * two.grad_accum * plan_data_parallel(plan);
	arena_reset(arena);
	if (!schedule_build(arena, &two, question->model, question->topology, &schedule, &mine))
		return mine.code == EXIT_CODE_USAGE ||
		       error_set(error, mine.code, "%s", mine.message);
	const struct program *program = &schedule->programs[0];
	int64_t *live = surely_live(program, NULL, arena);
	for (int i = 0; i < program->n_ops; i++)
		peak = max_i64(peak, live[i]);
	bound->memory = max_i64(bound->memory, peak + bound_fixed_bytes(schedule));
	return true;
}

void bounds_finish(struct bounds *bounds)
{
	free(bounds->of);
	*bounds = (struct bounds){0};
}
