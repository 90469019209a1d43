/* Parts of the time bound: what waits for what whatever is prefetched, and what work hides. The
 * proof that uses them is in bound.c. */
#include "planner/bounds/bounds.h"

#include <math.h>

/* Blocks of transformers spend two thirds to nine tenths of their time on arithmetic. */
const double bound_shares[SHARES] = {
	1, 0.95, 0.92, 0.9, 0.88, 0.86, 0.84, 0.82, 0.8, 0.77, 0.74, 0.7, 0.6, 0.5};

/* --- contention ------------------------------------------------------------------------------- */

double bound_loss(const struct topology *topology, double multiprocessors)
{
	double all = (double)topology->device.multiprocessors;
	if (topology->device.kind != DEVICE_GPU || all <= 0)
		return 0;
	return fmin(multiprocessors / all, 0.5);
}

double bound_loss_beside(double loss, double share)
{
	return loss * share / (1 - loss + loss * share);
}

void bound_add_cover(const struct cost *cost, double cover[SHARES])
{
	for (int s = 0; s < SHARES; s++)
		cover[s] += fmax(0, cost->device - cost->arithmetic / bound_shares[s]);
}

double bound_contention(const double losses[COMMUNICATORS_MAX],
	const double communicators[COMMUNICATORS_MAX], double pauses, const double cover[SHARES])
{
	double most = 0;
	for (int set = 0; set <= COMMUNICATORS_MAX; set++) {
		for (int s = 0; s < SHARES; s++) {
			double all = 0, lost = 0;
			for (int e = 0; e < COMMUNICATORS_MAX; e++) {
				if ((set < COMMUNICATORS_MAX && e != set) ||
					communicators[e] <= pauses)
					continue;
				all += losses[e];
				lost += bound_loss_beside(losses[e], bound_shares[s]) *
					(communicators[e] - pauses);
			}
			most = fmax(
				most, lost - bound_loss_beside(fmin(all, 0.5), bound_shares[s]) *
						      cover[s]);
		}
	}
	return most;
}

/* --- paths ------------------------------------------------------------------------------------ */

/* Operations are numbered on from one step to the next: n_ops + i is operation i of the step after.
 */
struct walk {
	const struct schedule *schedule;
	const struct program *program;
	int from;
	double *ends; /* by number, from `from` on; s after its end; -INFINITY: it may be earlier */
	double streams[STREAM_COUNT], communicators[COMMUNICATORS_MAX]; /* of the last one there */
	double issued;       /* what the host works on itself keeps it from issuing more */
	const double *apart; /* by operation: > 0 counts elsewhere */
};

static int communicator_of(const struct schedule *schedule, const struct op *op)
{
	if (op_kind_class(op->kind) != OP_CLASS_COLLECTIVE)
		return -1;
	int communicator = schedule->groups[op->group].engine;
	return communicator < COMMUNICATORS_MAX ? communicator : -1;
}

static double start_of(const struct walk *walk, int number)
{
	int n = walk->program->n_ops, step = number / n * n, communicator;
	const struct op *op = &walk->program->ops[number % n];
	const int *waits = slice_of(walk->program, op->waits);
	double start = walk->streams[op->stream];
	for (int i = 0; i < op->waits.count; i++) {
		int other = step + waits[i];
		if (other >= walk->from)
			start = fmax(start, walk->ends[other - walk->from]);
	}
	communicator = communicator_of(walk->schedule, op);
	start = fmax(start, walk->issued);
	return communicator < 0 ? start : fmax(start, walk->communicators[communicator]);
}

static void set_end(struct walk *walk, int number, double end)
{
	const struct op *op = &walk->program->ops[number % walk->program->n_ops];
	int communicator = communicator_of(walk->schedule, op);
	walk->ends[number - walk->from] = end;
	walk->streams[op->stream] = fmax(walk->streams[op->stream], end);
	if (communicator >= 0)
		walk->communicators[communicator] = fmax(walk->communicators[communicator], end);
	if (op->stream == STREAM_HOST)
		walk->issued = fmax(walk->issued, end);
}

/* Seconds from the end of one operation to the start of a later one, at least: the longest path of
 * what waits for one another. What a load decides takes none, nor does what `apart` counts.
 * -INFINITY: neither waits. */
static double path(const struct schedule *schedule, const struct cost *costs, const double *apart,
	int from, int to)
{
	struct arena arena = {0};
	struct walk walk = {.schedule = schedule,
		.program = &schedule->programs[0],
		.from = from,
		.issued = -INFINITY,
		.apart = apart,
		.ends = ARENA_ARRAY(&arena, double, to - from + 1)};
	int n = walk.program->n_ops;
	for (int s = 0; s < STREAM_COUNT; s++)
		walk.streams[s] = -INFINITY;
	for (int e = 0; e < COMMUNICATORS_MAX; e++)
		walk.communicators[e] = -INFINITY;
	set_end(&walk, from, 0);
	for (int i = from + 1; i < to; i++) {
		const struct op *op = &walk.program->ops[i % n];
		bool none = op_kind_class(op->kind) == OP_CLASS_COMPUTE || apart[i % n] > 0;
		set_end(&walk, i, start_of(&walk, i) + (none ? 0 : costs[i % n].device));
	}
	double start = start_of(&walk, to);
	arena_finish(&arena);
	return start;
}

/* --- pauses ----------------------------------------------------------------------------------- */

bool bound_is_update(enum op_kind kind)
{
	return kind == OP_GRADIENT_NORM || kind == OP_CLIP_GRADIENTS || kind == OP_OPTIMIZER;
}

/* What ends a micro-batch or a step. */
static bool closes(enum op_kind kind)
{
	return kind == OP_END_BACKWARD || bound_is_update(kind);
}

/* The host updates what is offloaded: it waits for all that was computed and reduced, and issues
 * nothing meanwhile. Collectives between updates (ours, that gather what was updated) could run on:
 * then it is part of the paths. */
static void find_host(
	const struct schedule *schedule, const struct cost *costs, struct bound_pauses *pauses)
{
	const struct program *program = &schedule->programs[0];
	bool updating = false, gathers = false, alone = true;
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		updating = updating || op->kind == OP_OPTIMIZER;
		gathers = gathers || (updating && op_kind_class(op->kind) == OP_CLASS_COLLECTIVE);
		if (gathers && op->kind == OP_OPTIMIZER && op->stream == STREAM_HOST)
			alone = false;
	}
	for (int i = 0; i < program->n_ops && alone; i++) {
		const struct op *op = &program->ops[i];
		if (op->stream == STREAM_HOST && bound_is_update(op->kind))
			pauses->host[i] = costs[i].device;
	}
}

/* Prefetching moves gathers inside forward and backward; the first of a step and what the end of
 * backward waits for stay where they are. */
static void find_stalls(
	const struct schedule *schedule, const struct cost *costs, struct bound_pauses *pauses)
{
	const struct program *program = &schedule->programs[0];
	int first = -1, last = -1;
	for (int i = 0; i < program->n_ops; i++) {
		if (program->ops[i].stream != STREAM_COMPUTE)
			continue;
		if (last >= 0 && closes(program->ops[i].kind))
			pauses->stalls[i] = fmax(0, path(schedule, costs, pauses->host, last, i));
		first = first < 0 ? i : first;
		last = i;
	}
	if (first >= 0)
		pauses->stalls[first] =
			fmax(0, path(schedule, costs, pauses->host, last, program->n_ops + first));
}

/* Of the compute stream between two operations, without both and without loads. */
static double busy_between(const struct schedule *schedule, const struct cost *costs,
	const struct bound_pauses *pauses, int from, int to)
{
	const struct op *ops = schedule->programs[0].ops;
	double busy = pauses->stalls[to];
	for (int i = from + 1; i < to; i++) {
		busy += pauses->stalls[i];
		if (ops[i].stream == STREAM_COMPUTE &&
			op_kind_class(ops[i].kind) != OP_CLASS_COMPUTE)
			busy += costs[i].device;
	}
	return busy;
}

/* The blocks of a step: the first operation of forward, the last of backward; -1: none. */
static void find_blocks(const struct program *program, int *first, int *last)
{
	*first = *last = -1;
	for (int i = 0; i < program->n_ops; i++) {
		if (op_kind_class(program->ops[i].kind) != OP_CLASS_COMPUTE ||
			program->ops[i].layer < 0)
			continue;
		*first = *first < 0 ? i : *first;
		*last = i;
	}
}

static int last_of_compute(const struct program *program)
{
	int last = program->n_ops - 1;
	while (last >= 0 && program->ops[last].stream != STREAM_COMPUTE)
		last--;
	return last;
}

/* The first block waits for the gathers of its own unit and of the embedding's, and the optimizer
 * for both reductions: more than what the embedding computes meanwhile. */
static void find_edges(
	const struct schedule *schedule, const struct cost *costs, struct bound_pauses *pauses)
{
	const struct program *program = &schedule->programs[0];
	int first, last, end = last_of_compute(program), update = end;
	find_blocks(program, &first, &last);
	pauses->communication.front = pauses->communication.back = -INFINITY;
	if (first < 0)
		return;
	while (update > last && program->ops[update].kind == OP_OPTIMIZER)
		update--;
	while (update < end && program->ops[update].kind != OP_OPTIMIZER)
		update++;
	pauses->communication.front =
		path(schedule, costs, pauses->host, end, program->n_ops + first) -
		busy_between(schedule, costs, pauses, -1, first);
	pauses->communication.back = path(schedule, costs, pauses->host, last, update) -
				     busy_between(schedule, costs, pauses, last, update);
}

struct bound_edges bound_edges(const struct program *program, const struct cost *costs)
{
	struct bound_edges edges = {0, 0};
	int first, last;
	find_blocks(program, &first, &last);
	for (int i = 0; i < program->n_ops && first >= 0; i++) {
		if (op_kind_class(program->ops[i].kind) != OP_CLASS_COMPUTE)
			continue;
		edges.lead += i < first ? costs[i].device : 0;
		edges.trail += i > last ? costs[i].device : 0;
	}
	return edges;
}

double bound_edge_stalls(
	const struct bound_edges *edges, const struct bound_communication *communication)
{
	return fmax(0, communication->front - edges->lead) +
	       fmax(0, communication->back - edges->trail);
}

struct bound_communication bound_less_communication(
	const struct bound_communication *a, const struct bound_communication *b)
{
	struct bound_communication less = {.front = fmin(a->front, b->front),
		.back = fmin(a->back, b->back),
		.late_network = fmin(a->late_network, b->late_network)};
	for (int e = 0; e < COMMUNICATORS_MAX; e++) {
		less.idle[e] = fmin(a->idle[e], b->idle[e]);
		less.multiprocessors[e] = fmin(a->multiprocessors[e], b->multiprocessors[e]);
		less.late[e] = fmin(a->late[e], b->late[e]);
	}
	for (int l = 0; l < LINKS; l++)
		less.links[l] = fmin(a->links[l], b->links[l]);
	return less;
}

/* The first and last operation of a communicator, or of a kind on the compute stream; -1: none. */
struct ends {
	int first, last;
};

static struct ends ends_of(const struct schedule *schedule, int communicator, enum op_kind kind)
{
	const struct program *program = &schedule->programs[0];
	struct ends ends = {-1, -1};
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		if (communicator >= 0 ? communicator_of(schedule, op) != communicator
				      : op->kind != kind || op->stream != STREAM_COMPUTE)
			continue;
		ends.first = ends.first < 0 ? i : ends.first;
		ends.last = i;
	}
	return ends;
}

static void find_idle(
	const struct schedule *schedule, const struct cost *costs, struct bound_pauses *pauses)
{
	int n = schedule->programs[0].n_ops;
	struct ends update = ends_of(schedule, -1, OP_OPTIMIZER);
	double host = 0;
	for (int i = 0; i < n; i++)
		host += pauses->host[i];
	pauses->updates_alone = update.first >= 0;
	for (int e = 0; e < COMMUNICATORS_MAX; e++) {
		struct ends ends = ends_of(schedule, e, OP_KIND_COUNT);
		if (ends.first < 0)
			continue;
		pauses->communication.idle[e] = host + fmax(0, path(schedule, costs, pauses->host,
								       ends.last, n + ends.first));
		pauses->updates_alone =
			pauses->updates_alone && ends.last < update.first &&
			isfinite(path(schedule, costs, pauses->host, ends.last, update.first)) &&
			isfinite(path(schedule, costs, pauses->host, update.last, n + ends.first));
	}
}

/* --- late reductions, and links --------------------------------------------------------------- */

int bound_last_loss(const struct program *program)
{
	int loss = program->n_ops - 1;
	while (loss >= 0 && program->ops[loss].kind != OP_LOSS)
		loss--;
	return loss;
}

static bool reduces(const struct op *op)
{
	return op_kind_class(op->kind) == OP_CLASS_COLLECTIVE && op->kind != OP_ALL_GATHER;
}

/* On GPUs; threads of a host share its network in another way. */
static double link_load(
	const struct schedule *schedule, const struct cost *cost, enum bound_link link)
{
	if (schedule->topology->device.kind != DEVICE_GPU)
		return 0;
	return link == LINK_NETWORK ? cost->network_load : cost->fabric_load;
}

/* The reductions of a communicator from the first that waits for the last loss on; behind them the
 * next step's first computation waits for the last. */
static void find_late(const struct schedule *schedule, const struct cost *costs, int communicator,
	int first_compute, struct bound_pauses *pauses)
{
	const struct program *program = &schedule->programs[0];
	int n = program->n_ops, loss = bound_last_loss(program), first = n, last = -1;
	double before = -INFINITY;
	bool on_network = false;
	for (int i = loss + 1; i < n && loss >= 0; i++) {
		if (!reduces(&program->ops[i]) ||
			communicator_of(schedule, &program->ops[i]) != communicator)
			continue;
		if (first == n)
			before = path(schedule, costs, pauses->host, loss, i);
		if (isinf(before))
			continue;
		first = first < i ? first : i;
		last = i;
		on_network = on_network || link_load(schedule, &costs[i], LINK_NETWORK) > 0;
	}
	if (last < 0)
		return;
	double after = path(schedule, costs, pauses->host, last, n + first_compute);
	pauses->communication.late[communicator] = before + after;
	pauses->late[communicator] = first;
	if (on_network)
		pauses->communication.late_network =
			isinf(pauses->communication.late_network)
				? after
				: fmin(pauses->communication.late_network, after);
}

static void find_all_late(
	const struct schedule *schedule, const struct cost *costs, struct bound_pauses *pauses)
{
	const struct program *program = &schedule->programs[0];
	int first = 0;
	while (first < program->n_ops && program->ops[first].stream != STREAM_COMPUTE)
		first++;
	pauses->communication.late_network = -INFINITY;
	for (int e = 0; e < COMMUNICATORS_MAX; e++) {
		pauses->communication.late[e] = -INFINITY;
		pauses->late[e] = program->n_ops;
		if (first < program->n_ops)
			find_late(schedule, costs, e, first, pauses);
	}
}

/* --- halves of micro-batches ------------------------------------------------------------------ */

/* Of one step and the next, by number: from the end of `from` to the start of `to` nothing else
 * decides than what waits for one another. */
struct stretch {
	int from, to;
	enum bound_half half;
};

/* The communicator's collectives that wait for the beginning of the stretch and that its end waits
 * for. */
static void find_half(const struct schedule *schedule, const struct cost *costs, int communicator,
	const struct stretch *stretch, struct bound_pauses *pauses)
{
	const struct program *program = &schedule->programs[0];
	int n = program->n_ops, first = stretch->from + 1, last = stretch->to - 1;
	while (first < stretch->to &&
		(communicator_of(schedule, &program->ops[first % n]) != communicator ||
			isinf(path(schedule, costs, pauses->host, stretch->from, first))))
		first++;
	while (last >= first &&
		(communicator_of(schedule, &program->ops[last % n]) != communicator ||
			isinf(path(schedule, costs, pauses->host, last, stretch->to))))
		last--;
	for (int i = first; i <= last; i++)
		if (communicator_of(schedule, &program->ops[i % n]) == communicator)
			pauses->halves[stretch->half][i % n] = true;
}

/* What a micro-batch computes: its first operation, its loss, its last one; -1: none. */
struct computed {
	int first, loss, last;
};

static struct computed computed_of(const struct program *program, int micro_batch)
{
	struct computed computed = {-1, -1, -1};
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		if (op_kind_class(op->kind) != OP_CLASS_COMPUTE || op->micro_batch != micro_batch)
			continue;
		computed.first = computed.first < 0 ? i : computed.first;
		computed.loss = op->kind == OP_LOSS ? i : computed.loss;
		computed.last = i;
	}
	return computed;
}

static void find_halves(
	const struct schedule *schedule, const struct cost *costs, struct bound_pauses *pauses)
{
	const struct program *program = &schedule->programs[0];
	int n = program->n_ops, batches = (int)schedule->plan.grad_accum;
	for (int m = 0; m < batches; m++) {
		struct computed this = computed_of(program, m);
		struct computed next = computed_of(program, (m + 1) % batches);
		int step = m + 1 < batches ? 0 : n;
		struct stretch stretches[] = {{this.loss, step + next.first, BESIDE_FORWARD_NOT},
			{this.last, step + next.loss, BESIDE_BACKWARD_NOT}};
		for (int e = 0; e < COMMUNICATORS_MAX && this.loss >= 0 && next.loss >= 0; e++) {
			if (ends_of(schedule, e, OP_KIND_COUNT).first < 0)
				continue;
			for (int h = 0; h < HALVES; h++)
				find_half(schedule, costs, e, &stretches[h], pauses);
		}
	}
}

static bool uses_link(const struct schedule *schedule, const struct cost *costs, int communicator,
	enum bound_link link)
{
	const struct program *program = &schedule->programs[0];
	for (int i = 0; i < program->n_ops; i++)
		if (communicator_of(schedule, &program->ops[i]) == communicator &&
			link_load(schedule, &costs[i], link) > 0)
			return true;
	return false;
}

/* The last collective on a link and the next step's first are the last and the first of some
 * communicators. */
static void find_links(
	const struct schedule *schedule, const struct cost *costs, struct bound_pauses *pauses)
{
	int n = schedule->programs[0].n_ops;
	for (int l = 0; l < LINKS; l++) {
		bool uses[COMMUNICATORS_MAX];
		double least = INFINITY;
		for (int e = 0; e < COMMUNICATORS_MAX; e++)
			uses[e] = uses_link(schedule, costs, e, (enum bound_link)l);
		for (int e = 0; e < COMMUNICATORS_MAX; e++)
			for (int f = 0; f < COMMUNICATORS_MAX; f++)
				if (uses[e] && uses[f] && least > 0)
					least = fmin(least,
						path(schedule, costs, pauses->host,
							ends_of(schedule, e, OP_KIND_COUNT).last,
							n + ends_of(schedule, f, OP_KIND_COUNT)
									.first));
		pauses->communication.links[l] = isinf(least) ? 0 : fmax(0, least);
	}
}

void bound_add_collective(const struct schedule *schedule, int index, const struct cost *cost,
	const struct bound_pauses *pauses, struct work *work)
{
	const struct op *op = &schedule->programs[0].ops[index];
	int e = communicator_of(schedule, op);
	if (e < 0 || cost->device <= 0)
		return;
	work->communicators[e] += cost->device;
	for (int l = 0; l < LINKS; l++)
		work->links[l] += cost->device * link_load(schedule, cost, (enum bound_link)l);
	for (int h = 0; h < HALVES; h++)
		work->halves[e][h] += pauses->halves[h][index] ? cost->device : 0;
	if (index < pauses->late[e] || !reduces(op))
		return;
	work->late[e] += cost->device;
	work->late_network += cost->device * link_load(schedule, cost, LINK_NETWORK);
}

struct bound_pauses bound_pauses(
	const struct schedule *schedule, const struct cost *costs, struct arena *arena)
{
	struct bound_pauses pauses = {
		.stalls = ARENA_ARRAY(arena, double, schedule->programs[0].n_ops),
		.host = ARENA_ARRAY(arena, double, schedule->programs[0].n_ops)};
	find_host(schedule, costs, &pauses);
	for (int e = 0; e < COMMUNICATORS_MAX; e++)
		pauses.communication.multiprocessors[e] = INFINITY;
	find_stalls(schedule, costs, &pauses);
	find_edges(schedule, costs, &pauses);
	find_idle(schedule, costs, &pauses);
	find_all_late(schedule, costs, &pauses);
	find_links(schedule, costs, &pauses);
	for (int h = 0; h < HALVES; h++)
		pauses.halves[h] = ARENA_ARRAY(arena, bool, schedule->programs[0].n_ops);
	find_halves(schedule, costs, &pauses);
	return pauses;
}

bool bound_hides(const struct bound_pauses *pauses, const struct op *op)
{
	return op->kind != OP_OPTIMIZER || !pauses->updates_alone;
}
