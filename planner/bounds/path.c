/* The longest path through a pipeline's step. Each rank computes its passes in their order, and
 * each begins when what it needs has come from the stage before (backward: from the one behind).
 *
 * What a pass takes at least is read off a rank's own list of three micro-batches: every operation
 * begins when its stream is free and its waits are done, and takes what it takes alone; and all
 * that may happen ahead of a pass has happened when it begins. In a simulation neither operations
 * nor messages take less, so that no pass ends earlier. Of these three micro-batches the first and
 * the last gather and reduce; those of a step between them are as the middle one. What ranks that
 * divide the model exchange at the end of a pass is part of it where the next one waits for it.
 * What they exchange between two operations, beside others, slows these down (contention.c).
 *
 * Parameters may still be on the way when a step begins. The same list, gone through from the
 * beginning of the step as if no rank waited for another, says when the first forward of each chunk
 * ends at the earliest: all that it comes behind there it comes behind in a step, too.
 *
 * A rank has one stream for what it sends: a message leaves when the one before it has arrived. It
 * asks for a message when it has computed all that comes before (pass_messages), unless receives
 * are posted early; then only the message itself is counted.
 *
 * Backwards that are split in two, and passes that are computed together, are not followed. */
#include "planner/bounds/bounds.h"

#include <math.h>

#include "planner/bounds/parts.h"
#include "schedule/pipeline/pipeline.h"
#include "simulator/costs/costs.h"

enum way { FORWARD, BACKWARD, WAYS };
enum { FIRST, MIDDLE, LAST, PROBED };

/* Seconds between passes in which all that may happen ahead happens. */
#define APART 1e5

/* Seconds after a pass has begun. */
struct lasting {
	double sent;  /* until its result may be sent */
	double asked; /* until what the next one needs is asked for */
	double busy;  /* until the next one may begin */
	double held;  /* until all is exchanged */
};

/* The first forward of a chunk: when it ends at the earliest, s of the step, behind so many other
 * forwards. */
struct first {
	struct lasting ends;
	int before;
};

/* What a rank has to do. */
struct duty {
	struct lasting (*passes)[WAYS][PROBED]; /* by chunk */
	struct first *firsts;                   /* by chunk */
	double rest;                            /* s of the step after the last pass */
	int64_t message;                        /* bytes */
	/* Bytes that the rank sends (bound_wire): of a micro-batch in the middle; of all else. */
	double middle_wire, rest_wire;
};

struct seat {
	int n, next;           /* slots, and the first that has not begun */
	double now, asked;     /* s: the next pass may begin; its message is asked for */
	int n_sent, n_arrived; /* messages */
	double arrived;        /* the last one */
	struct pipeline_slot *slots;
	const struct duty *duty;
};

/* The result of a pass. */
struct result {
	double sent; /* < 0: not yet */
	int number;  /* of the messages of its rank */
};

struct path {
	struct pipeline pipeline;
	int n_stages;
	bool posts_early;
	int *blocks;                 /* by stage */
	const struct model **models; /* by rank */
	struct arena *arena;
	struct seat *seats;           /* by rank */
	double (*messages)[WAYS];     /* by rank: s to the next one, and to the one before */
	struct result *results[WAYS]; /* by stage and micro-batch */
};

/* --- what a rank has to do -------------------------------------------------------------------- */

/* Its list, gone through in order. */
struct walk {
	bool apart; /* passes; else each begins when it may, and no rank waits for another */
	const struct program *program;
	const struct cost *costs;
	double *ends, free[STREAM_COUNT]; /* by operation; by stream */
	double *losses;                   /* by operation: bound_loss */
	double (*beside)[SHARES];         /* by operation: bound_beside_ends */
	struct beside streams[STREAM_COUNT];
	int computed; /* the last operation of compute; -1 */
	const struct pipeline_slot *slots;
	int n, slot; /* the one that has begun; -1 */
	double latest;
	bool holds;    /* every pass has waited for what the one before exchanged */
	bool forwards; /* there was none but forwards, chunk by chunk */
	/* Parameters of every pass are gathered, behind what of the one before depends on which
	 * pass that is: they are taken to be there. */
	bool gathers_ahead;
	struct duty *duty;
	struct lasting other; /* of passes that are not asked for */
};

static enum way way_of(const struct pipeline_slot *slot)
{
	return slot->pass == PIPELINE_FORWARD ? FORWARD : BACKWARD;
}

static double begin_of(const struct walk *walk, int slot)
{
	return walk->apart ? APART * (slot + 1) : 0;
}

static double end_of(const struct walk *walk, int slot)
{
	return walk->apart ? begin_of(walk, slot + 1) : INFINITY;
}

static struct lasting *pass_at(struct walk *walk)
{
	const struct pipeline_slot *slot = &walk->slots[walk->slot];
	if (walk->apart)
		return &walk->duty->passes[slot->chunk][way_of(slot)][slot->micro_batch];
	return walk->forwards && slot->micro_batch == 0 ? &walk->duty->firsts[slot->chunk].ends
							: &walk->other;
}

static bool belongs(const struct walk *walk, int slot, const struct op *op)
{
	enum way way = op->kind == OP_FORWARD ? FORWARD : BACKWARD;
	return slot >= 0 && slot < walk->n && walk->slots[slot].micro_batch == op->micro_batch &&
	       way_of(&walk->slots[slot]) == way;
}

static bool exchanges(const struct op *op)
{
	return op->stream == STREAM_TENSOR || op->stream == STREAM_CONTEXT ||
	       op->stream == STREAM_EXPERT;
}

static double start_of(const struct walk *walk, const struct op *op)
{
	const int *waits = slice_of(walk->program, op->waits);
	double start = 0;
	for (int w = 0; w < op->waits.count; w++)
		if (waits[w] >= 0)
			start = fmax(start, walk->ends[waits[w]]);
	return start;
}

/* Does it wait for all that the pass before it has exchanged? */
static bool is_held(const struct walk *walk, const struct op *op, double exchanged)
{
	const int *waits = slice_of(walk->program, op->waits);
	for (int w = 0; w < op->waits.count; w++)
		if (waits[w] >= 0 && exchanges(&walk->program->ops[waits[w]]) &&
			walk->ends[waits[w]] >= exchanged)
			return true;
	return false;
}

/* False: the list is not in the order of the slots. */
static bool begin_slot(struct walk *walk, const struct op *op)
{
	if (op->kind == OP_LOSS || op_kind_class(op->kind) != OP_CLASS_COMPUTE ||
		belongs(walk, walk->slot, op))
		return true;
	if (walk->slot >= 0 && pass_at(walk)->held > pass_at(walk)->busy)
		walk->holds = walk->holds &&
			      is_held(walk, op, begin_of(walk, walk->slot) + pass_at(walk)->held);
	if (!belongs(walk, ++walk->slot, op))
		return false;
	const struct pipeline_slot *slot = &walk->slots[walk->slot];
	walk->forwards = walk->forwards && way_of(slot) == FORWARD &&
			 (walk->slot == 0 || slot->chunk >= slot[-1].chunk);
	if (!walk->apart && walk->forwards && slot->micro_batch == 0)
		walk->duty->firsts[slot->chunk].before = walk->slot;
	walk->free[STREAM_COMPUTE] = fmax(walk->free[STREAM_COMPUTE], begin_of(walk, walk->slot));
	return true;
}

/* Compute's stream of the pass that has begun, whatever runs on it (sums of gradients), unless it
 * waits for the message to the next one. */
static void note_end(struct walk *walk, const struct op *op, double end)
{
	if (walk->slot < 0 || end >= end_of(walk, walk->slot))
		return;
	if (op->stream == STREAM_COMPUTE)
		pass_at(walk)->busy = end - begin_of(walk, walk->slot);
	else if (exchanges(op))
		pass_at(walk)->held = end - begin_of(walk, walk->slot);
}

static void receive(struct walk *walk, const struct op *op, double start)
{
	walk->duty->message = op->bytes;
	if (walk->slot >= 0)
		pass_at(walk)->asked = fmax(0, start - begin_of(walk, walk->slot));
}

/* When an operation of compute may start, by the exchanges that it waits for: these have run beside
 * compute. s; 0: it waits for none. */
static double beside_of(const struct walk *walk, const struct op *op)
{
	const int *waits = slice_of(walk->program, op->waits);
	double start = 0;
	for (int w = 0; w < op->waits.count && op->stream == STREAM_COMPUTE; w++) {
		if (waits[w] < 0)
			continue; /* of the step before */
		const struct op *other = &walk->program->ops[waits[w]];
		if (exchanges(other))
			start = fmax(start, bound_beside_start(&walk->streams[other->stream],
						    walk->beside[waits[w]]));
	}
	return start;
}

static bool waits_for(const struct walk *walk, const struct op *op, int other)
{
	const int *waits = slice_of(walk->program, op->waits);
	bool found = false;
	for (int w = 0; w < op->waits.count && !found; w++)
		found = waits[w] == other;
	return found;
}

static void note_beside(struct walk *walk, const struct op *op, int index)
{
	const struct cost *cost = &walk->costs[index];
	struct beside *own = &walk->streams[op->stream];
	if (op->stream == STREAM_COMPUTE) {
		walk->computed = index;
		for (int s = 0; s < STREAM_COUNT; s++)
			if (walk->streams[s].most > 0)
				bound_beside_compute(&walk->streams[s], cost);
	}
	if (!exchanges(op))
		return;
	if (walk->computed >= 0 && waits_for(walk, op, walk->computed))
		bound_beside_collective(
			own, walk->losses[index], cost->device, walk->ends[walk->computed]);
	bound_beside_ends(own, walk->beside[index]);
}

/* What is received has come when the next pass begins. */
static void carry_out(struct walk *walk, int index)
{
	const struct op *op = &walk->program->ops[index];
	if (walk->gathers_ahead && op->stream == STREAM_GATHER)
		return;
	double start = fmax(start_of(walk, op), beside_of(walk, op)),
	       end = fmax(start, walk->free[op->stream]);
	if (op_kind_class(op->kind) != OP_CLASS_MESSAGE) {
		end += walk->costs[index].device;
		walk->free[op->stream] = end;
		walk->latest = fmax(walk->latest, end);
	} else if (op->kind == OP_RECV) {
		end = walk->apart ? begin_of(walk, walk->slot + 1) : start;
		receive(walk, op, start);
	} else {
		pass_at(walk)->sent = start - begin_of(walk, walk->slot);
	}
	walk->ends[index] = end;
	note_beside(walk, op, index);
	note_end(walk, op, end);
}

static bool walk_through(struct walk *walk)
{
	walk->slot = walk->computed = -1;
	walk->forwards = walk->holds = true;
	for (int i = 0; i < walk->program->n_ops; i++) {
		if (!begin_slot(walk, &walk->program->ops[i]))
			return false;
		carry_out(walk, i);
	}
	return walk->slot == walk->n - 1;
}

static void find_losses(struct walk *walk, const struct topology *topology)
{
	for (int i = 0; i < walk->program->n_ops; i++) {
		const struct op *op = &walk->program->ops[i];
		if (!exchanges(op))
			continue;
		walk->losses[i] = bound_loss(topology, walk->costs[i].multiprocessors);
		walk->streams[op->stream].most =
			fmax(walk->streams[op->stream].most, walk->losses[i]);
	}
}

static void find_wire(const struct schedule *schedule, int rank, struct duty *duty)
{
	const struct program *program = &schedule->programs[rank];
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		bool middle = op->micro_batch == MIDDLE;
		*(middle ? &duty->middle_wire : &duty->rest_wire) += bound_wire(schedule, rank, op);
	}
}

/* The next pass begins when all is exchanged. */
static void hold_up(struct duty *duty, int chunks)
{
	for (int c = 0; c < chunks; c++)
		for (int way = 0; way < WAYS; way++)
			for (int m = 0; m < PROBED; m++) {
				struct lasting *pass = &duty->passes[c][way][m];
				pass->busy = fmax(pass->busy, pass->held);
			}
}

static bool measure_duty(const struct path *path, const struct plan *plan,
	const struct model *model, const struct topology *topology, int rank, struct duty *duty)
{
	const struct plan probed = plan_with_micro_batches(plan, PROBED);
	struct pipeline_slot *slots;
	struct schedule *schedule =
		schedule_emit_class(path->arena, &probed, model, topology, rank);
	const struct program *program = &schedule->programs[rank];
	/* How much the slowest device of all takes longer depends on what others have to do. */
	for (int k = 0; k < path->pipeline.ranks; k++)
		schedule->programs[k].model = path->models[k];
	struct cost *costs = ARENA_ARRAY(path->arena, struct cost, program->n_ops);
	cost_operations(schedule, rank, costs);
	int n = pipeline_order(&path->pipeline, rank, path->arena, &slots);
	struct walk list = {.program = program,
		.costs = costs,
		.losses = ARENA_ARRAY(path->arena, double, program->n_ops),
		.beside = arena_alloc(path->arena, (size_t)program->n_ops, sizeof(*list.beside)),
		.ends = ARENA_ARRAY(path->arena, double, program->n_ops),
		.slots = slots,
		.n = n,
		.duty = duty};
	find_losses(&list, topology);
	find_wire(schedule, rank, duty);
	struct walk walk = list, apart = list;
	int chunks = path->pipeline.chunks;
	apart.apart = true;
	apart.gathers_ahead = strategy_reshards(plan->strategy);
	duty->passes = arena_alloc(path->arena, (size_t)chunks, sizeof(*duty->passes));
	duty->firsts = ARENA_ARRAY(path->arena, struct first, chunks);
	if (!walk_through(&walk) || !walk_through(&apart))
		return false;
	if (apart.holds)
		hold_up(duty, chunks);
	duty->rest = apart.latest - begin_of(&apart, apart.slot) - pass_at(&apart)->busy;
	return true;
}

static bool holds_alike(const struct model *one, const struct model *other)
{
	bool alike = one->n_modules == other->n_modules && one->n_parameters == other->n_parameters;
	for (int m = 0; m < one->n_modules && alike; m++) {
		const struct module *a = &one->modules[m], *b = &other->modules[m];
		alike = a->kind == b->kind && a->layer == b->layer &&
			a->n_parameters == b->n_parameters;
	}
	for (int p = 0; p < one->n_parameters && alike; p++)
		alike = one->parameters[p].elements == other->parameters[p].elements;
	return alike;
}

/* Has the rank before it alike blocks in each chunk, and neither of them the embedding or the head?
 * Some blocks have experts, and some have none. */
static bool is_as_before(const struct path *path, const struct plan *plan, int rank)
{
	const struct pipeline *pipeline = &path->pipeline;
	bool alike = rank > 1 && rank < pipeline->ranks - 1 &&
		     plan->activation_checkpointing.n == 0 && plan->reshard_after_forward.n == 0 &&
		     plan->cpu_offload.n == 0;
	for (int c = 0; c < pipeline->chunks && alike; c++) {
		int stage = pipeline_stage(pipeline, rank, c);
		alike = path->blocks[stage] == path->blocks[pipeline_stage(pipeline, rank - 1, c)];
	}
	return alike && holds_alike(path->models[rank], path->models[rank - 1]);
}

/* --- the path --------------------------------------------------------------------------------- */

static struct result *result_at(const struct path *path, int stage, enum way way, int micro_batch)
{
	return &path->results[way][stage * path->pipeline.micro_batches + micro_batch];
}

/* Where the result of a pass goes, or comes from; the rank's own too. */
static int rank_at(const struct path *path, int stage)
{
	int rank, chunk;
	pipeline_place(&path->pipeline, stage, &rank, &chunk);
	return rank;
}

/* Is it a message? The rank of the last stage turns, and stages of one rank hand over. */
static bool goes_on_to(const struct path *path, int stage, int distance)
{
	int to = stage + distance;
	return to >= 0 && to < path->n_stages && rank_at(path, to) != rank_at(path, stage);
}

/* When it has come, and when the rank may ask for it; < 0: not yet. */
static double arrival(
	const struct path *path, const struct result *result, int from, enum way way, double asked)
{
	struct seat *seat = &path->seats[from];
	double message = path->messages[from][way];
	if (path->posts_early)
		return result->sent + message;
	if (result->number != seat->n_arrived)
		return -1;
	seat->n_arrived++;
	seat->arrived = fmax(fmax(result->sent, seat->arrived), asked) + message;
	return seat->arrived;
}

/* When what the pass needs is there, which the rank asks for at a time; < 0: not yet. */
static double ready(const struct path *path, int stage, enum way way, int micro_batch, double asked)
{
	bool turns = way == BACKWARD && stage == path->n_stages - 1;
	int from = way == FORWARD ? stage - 1 : stage + !turns;
	if (from < 0)
		return 0;
	const struct result *result = result_at(path, from, turns ? FORWARD : way, micro_batch);
	if (result->sent < 0 || rank_at(path, from) == rank_at(path, stage))
		return result->sent;
	return arrival(path, result, rank_at(path, from), way, asked);
}

static int probed_of(const struct path *path, int micro_batch)
{
	int last = path->pipeline.micro_batches - 1;
	return micro_batch == 0 ? FIRST : micro_batch == last ? LAST : MIDDLE;
}

/* Of a pass that begins then, s of the step. */
static struct lasting ends_of(const struct seat *seat, const struct pipeline_slot *slot,
	double begin, const struct lasting *pass)
{
	struct lasting ends = {begin + pass->sent, begin + pass->asked, begin + pass->busy, 0};
	const struct first *first = &seat->duty->firsts[slot->chunk];
	if (slot->micro_batch > 0 || way_of(slot) != FORWARD || seat->next < first->before)
		return ends;
	ends.sent = fmax(ends.sent, first->ends.sent);
	ends.asked = fmax(ends.asked, first->ends.asked);
	ends.busy = fmax(ends.busy, first->ends.busy);
	return ends;
}

/* As many of the rank's passes as may begin. Were there any? */
static bool go_on(struct path *path, int rank)
{
	struct seat *seat = &path->seats[rank];
	int first = seat->next;
	for (; seat->next < seat->n; seat->next++) {
		const struct pipeline_slot *slot = &seat->slots[seat->next];
		enum way way = way_of(slot);
		int stage = pipeline_stage(&path->pipeline, rank, slot->chunk);
		double begin = ready(path, stage, way, slot->micro_batch, seat->asked);
		const struct lasting *pass =
			&seat->duty->passes[slot->chunk][way][probed_of(path, slot->micro_batch)];
		if (begin < 0)
			break;
		const struct lasting ends = ends_of(seat, slot, fmax(begin, seat->now), pass);
		*result_at(path, stage, way, slot->micro_batch) =
			(struct result){ends.sent, seat->n_sent};
		seat->n_sent += goes_on_to(path, stage, way == FORWARD ? 1 : -1);
		seat->asked = ends.asked;
		seat->now = ends.busy;
	}
	return seat->next > first;
}

static double follow(struct path *path)
{
	bool any = true;
	double last = 0;
	while (any) {
		any = false;
		for (int k = 0; k < path->pipeline.ranks; k++)
			any = go_on(path, k) || any;
	}
	for (int k = 0; k < path->pipeline.ranks; k++)
		last = fmax(last, path->seats[k].now + path->seats[k].duty->rest);
	return last;
}

static bool is_followed(const struct path *path)
{
	struct pipeline_slot *slots;
	int n = pipeline_order(&path->pipeline, 0, path->arena, &slots);
	for (int i = 0; i < n; i++)
		if (slots[i].with_next ||
			(slots[i].pass != PIPELINE_FORWARD && slots[i].pass != PIPELINE_BACKWARD))
			return false;
	return true;
}

static bool measure(struct path *path, const struct plan *plan, const struct model *model,
	const struct topology *topology)
{
	int64_t apart = plan_reduce_ranks(plan) * plan->mesh.tensor;
	int n = path->pipeline.ranks;
	path->seats = ARENA_ARRAY(path->arena, struct seat, n);
	path->messages = arena_alloc(path->arena, (size_t)n, sizeof(*path->messages));
	path->models = ARENA_ARRAY(path->arena, const struct model *, n);
	for (int k = 0; k < n; k++)
		path->models[k] = plan_stage(plan, model, k, path->arena, &(const int *){NULL});
	for (int k = 0; k < n; k++) {
		struct duty *duty = ARENA_NEW(path->arena, struct duty);
		struct seat *seat = &path->seats[k];
		seat->duty = is_as_before(path, plan, k) ? path->seats[k - 1].duty : duty;
		if (seat->duty == duty && !measure_duty(path, plan, model, topology, k, duty))
			return false;
		path->messages[k][FORWARD] =
			cost_message(topology, apart, k, (k + 1) % n, seat->duty->message);
		path->messages[k][BACKWARD] =
			cost_message(topology, apart, k, (k + n - 1) % n, seat->duty->message);
	}
	return true;
}

static void begin_step(struct path *path, int micro_batches)
{
	int n = path->n_stages * micro_batches;
	path->pipeline.micro_batches = micro_batches;
	path->posts_early = pipeline_receives_early(&path->pipeline);
	for (int k = 0; k < path->pipeline.ranks; k++) {
		struct seat *seat = &path->seats[k];
		seat->now = seat->asked = seat->arrived = 0;
		seat->next = seat->n_sent = seat->n_arrived = 0;
		seat->n = pipeline_order(&path->pipeline, k, path->arena, &seat->slots);
	}
	for (int way = 0; way < WAYS; way++) {
		path->results[way] = ARENA_ARRAY(path->arena, struct result, n);
		for (int i = 0; i < n; i++)
			path->results[way][i].sent = -1;
	}
}

/* A prediction has the traffic of the rank that needs the most memory: here it may be any. */
static double least_wire(const struct path *path, int64_t micro_batches)
{
	double least = INFINITY;
	for (int k = 0; k < path->pipeline.ranks; k++) {
		const struct duty *duty = path->seats[k].duty;
		double more = (double)(micro_batches - PROBED + 1);
		least = fmin(least, duty->rest_wire + more * duty->middle_wire);
	}
	return least;
}

bool bounds_path(const struct plan *plan, const struct model *model,
	const struct topology *topology, struct bound *bound, struct arena *arena)
{
	struct path path = {.pipeline = plan_pipeline(plan), .arena = arena};
	struct error error = {0};
	path.n_stages = path.pipeline.ranks * path.pipeline.chunks;
	path.blocks = ARENA_ARRAY(arena, int, path.n_stages);
	path.pipeline.micro_batches = PROBED;
	*bound = (struct bound){0};
	if (plan->grad_accum < PROBED || !plan_split(plan, model, path.blocks, &error) ||
		!is_followed(&path) || !measure(&path, plan, model, topology))
		return false;
	begin_step(&path, (int)plan->grad_accum);
	bound->time = follow(&path) * (1 - 1e-6); /* APART takes some of its digits */
	bound->network = least_wire(&path, plan->grad_accum) * (1 - 1e-9);
	return true;
}
