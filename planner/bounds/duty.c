/* What a rank of a pipeline has to do in a step: what each of its passes takes at least.
 *
 * It is read off a rank's own list of three micro-batches: every operation begins when its stream
 * is free and its waits are done, and takes what it takes alone; and all that may happen ahead of a
 * pass has happened when it begins. In a simulation neither operations nor messages take less, so
 * that no pass ends earlier. Of these three micro-batches the first and the last gather and reduce;
 * those of a step between them are as the middle one. What ranks that divide the model exchange at
 * the end of a pass is part of it where the next one waits for it. What they exchange between two
 * operations, beside others, slows these down (contention.c).
 *
 * Parameters may still be on the way when a step begins. The same list, gone through from the
 * beginning of the step as if no rank waited for another, says when the first forward of each chunk
 * ends at the earliest: all that it comes behind there it comes behind in a step, too.
 *
 * Passes of two micro-batches that are computed together (--expert-overlap) are read off apart, and
 * once more without the rows that travel meanwhile. */
#include "planner/bounds/duty.h"

#include <math.h>

#include "planner/bounds/bounds.h"
#include "schedule/pipeline/pipeline.h"
#include "simulator/costs/costs.h"

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
	bool without_rows;
	double rows, loss; /* s of exchanges since the last compute of the pass; bound_loss */
	struct duty *duty;
	struct lasting other; /* of passes that are not asked for */
};

enum way duty_way(const struct pipeline_slot *slot)
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
	if (walk->without_rows)
		return &walk->duty->besides[slot->chunk][duty_way(slot)][slot->micro_batch].pass;
	if (walk->apart)
		return &walk->duty->passes[slot->chunk][duty_way(slot)][slot->micro_batch];
	return walk->forwards && slot->micro_batch == 0 ? &walk->duty->firsts[slot->chunk].ends
							: &walk->other;
}

static bool belongs(const struct walk *walk, int slot, const struct op *op)
{
	enum way way = op->kind == OP_FORWARD ? FORWARD : BACKWARD;
	return slot >= 0 && slot < walk->n && walk->slots[slot].micro_batch == op->micro_batch &&
	       duty_way(&walk->slots[slot]) == way;
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
	walk->rows = 0;
	const struct pipeline_slot *slot = &walk->slots[walk->slot];
	walk->forwards = walk->forwards && duty_way(slot) == FORWARD &&
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

static struct beside_pass *beside_at(const struct walk *walk)
{
	const struct pipeline_slot *slot = &walk->slots[walk->slot];
	return &walk->duty->besides[slot->chunk][duty_way(slot)][slot->micro_batch];
}

/* Rows come when they are asked for. */
static void leave_out(struct walk *walk, int index)
{
	const struct op *op = &walk->program->ops[index];
	walk->ends[index] = start_of(walk, op);
	memset(walk->beside[index], 0, sizeof(walk->beside[index]));
	walk->rows += walk->costs[index].device;
	walk->loss = fmin(walk->loss, walk->losses[index]);
}

/* Compute of a pass, and the rows that have travelled since the last of it. */
static void add_beside(struct walk *walk, int index)
{
	struct beside_pass *pass = beside_at(walk);
	bound_add_cover(&walk->costs[index], 1, pass->cover);
	pass->rows += walk->rows;
	pass->loss = fmin(pass->loss, walk->loss);
	walk->rows = 0;
}

/* What is received has come when the next pass begins. */
static void carry_out(struct walk *walk, int index)
{
	const struct op *op = &walk->program->ops[index];
	if (walk->without_rows && op->stream == STREAM_EXPERT) {
		leave_out(walk, index);
		return;
	}
	if (walk->without_rows && op->stream == STREAM_COMPUTE && walk->slot >= 0)
		add_beside(walk, index);
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

static void find_sums(const struct schedule *schedule, int rank, const struct cost *costs,
	struct arena *arena, struct duty *duty)
{
	const struct program *program = &schedule->programs[rank];
	const double *issue = bound_issue(schedule, rank, costs, arena);
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		bool middle = op->micro_batch == MIDDLE;
		*(middle ? &duty->middle_wire : &duty->rest_wire) += bound_wire(schedule, rank, op);
		*(middle ? &duty->middle_issue : &duty->rest_issue) += issue[i];
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

static void init_besides(struct duty *duty, int chunks, struct arena *arena)
{
	duty->besides = arena_alloc(arena, (size_t)chunks, sizeof(*duty->besides));
	for (int c = 0; c < chunks; c++)
		for (int way = 0; way < WAYS; way++)
			for (int m = 0; m < PROBED; m++)
				duty->besides[c][way][m].loss = INFINITY;
}

/* Where passes are computed together, the next one waits for its own rows alone. */
static bool walk_passes(const struct walk *list, const struct plan *plan, int chunks, double *rest)
{
	struct walk apart = *list;
	apart.apart = true;
	apart.gathers_ahead = strategy_reshards(plan->strategy);
	if (!walk_through(&apart))
		return false;
	if (apart.holds && !plan->expert_overlap)
		hold_up(apart.duty, chunks);
	*rest = apart.latest - begin_of(&apart, apart.slot) - pass_at(&apart)->busy;
	return true;
}

bool duty_measure(const struct pipeline *pipeline, const struct model *const *models,
	const struct plan *plan, const struct model *model, const struct topology *topology,
	int rank, struct arena *arena, struct duty *duty)
{
	struct plan probed = plan_with_micro_batches(plan, PROBED);
	struct pipeline apart = *pipeline;
	struct pipeline_slot *slots;
	probed.expert_overlap = apart.pairs = false;
	struct schedule *schedule = schedule_emit_class(arena, &probed, model, topology, rank);
	const struct program *program = &schedule->programs[rank];
	/* How much the slowest device of all takes longer depends on what others have to do. */
	for (int k = 0; k < pipeline->ranks; k++)
		schedule->programs[k].model = models[k];
	struct cost *costs = ARENA_ARRAY(arena, struct cost, program->n_ops);
	cost_operations(schedule, rank, costs);
	int n = pipeline_order(&apart, rank, arena, &slots), chunks = pipeline->chunks;
	struct walk list = {.program = program,
		.costs = costs,
		.losses = ARENA_ARRAY(arena, double, program->n_ops),
		.beside = arena_alloc(arena, (size_t)program->n_ops, sizeof(*list.beside)),
		.ends = ARENA_ARRAY(arena, double, program->n_ops),
		.slots = slots,
		.n = n,
		.duty = duty};
	find_losses(&list, topology);
	find_sums(schedule, rank, costs, arena, duty);
	struct walk whole = list, without = list;
	without.apart = without.without_rows = true;
	without.loss = INFINITY;
	duty->passes = arena_alloc(arena, (size_t)chunks, sizeof(*duty->passes));
	duty->firsts = ARENA_ARRAY(arena, struct first, chunks);
	init_besides(duty, chunks, arena);
	return walk_through(&whole) && walk_passes(&list, plan, chunks, &duty->rest) &&
	       (!plan->expert_overlap || walk_through(&without));
}
