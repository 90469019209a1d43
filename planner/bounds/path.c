/* The longest path through a pipeline's step. Each rank computes its passes in their order, and
 * each begins when what it needs has come from the stage before (backward: from the one behind),
 * and takes what duty.c says.
 *
 * A rank has one stream for what it sends: a message leaves when the one before it has arrived. It
 * asks for a message when it has computed all that comes before (pass_messages), unless receives
 * are posted early; then only the message itself is counted.
 *
 * A forward and a backward that are computed together share the compute stream, so that both take
 * at least as long as their compute one after the other, with what the rows beside it take of it
 * (bounds.c, (3)); and each at least as long as it takes alone. Backwards that are split in two are
 * not followed. A step also takes what the issuing thread of any rank needs for all of it. */
#include "planner/bounds/bounds.h"

#include <math.h>

#include "planner/bounds/duty.h"
#include "schedule/pipeline/pipeline.h"
#include "simulator/costs/costs.h"

struct seat {
	int n, next;           /* slots, and the first that has not begun */
	double now, asked;     /* s: the next pass may begin; its message is asked for */
	int n_sent, n_arrived; /* messages */
	double arrived;        /* the last one */
	double came; /* of two that are computed together: the forward's message; < 0: not yet */
	double *together; /* by place_of of both; 0: not found out yet */
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
	if (slot->micro_batch > 0 || duty_way(slot) != FORWARD || seat->next < first->before)
		return ends;
	ends.sent = fmax(ends.sent, first->ends.sent);
	ends.asked = fmax(ends.asked, first->ends.asked);
	ends.busy = fmax(ends.busy, first->ends.busy);
	return ends;
}

/* Of the pass of a slot. */
struct turn {
	const struct pipeline_slot *slot;
	enum way way;
	int stage;
	const struct lasting *pass;
	const struct beside_pass *beside;
};

static struct turn turn_of(const struct path *path, int rank, int slot)
{
	const struct seat *seat = &path->seats[rank];
	struct turn turn = {.slot = &seat->slots[slot], .way = duty_way(&seat->slots[slot])};
	int chunk = turn.slot->chunk, probed = probed_of(path, turn.slot->micro_batch);
	turn.stage = pipeline_stage(&path->pipeline, rank, chunk);
	turn.pass = &seat->duty->passes[chunk][turn.way][probed];
	turn.beside = &seat->duty->besides[chunk][turn.way][probed];
	return turn;
}

/* When its message has come; < 0: not yet. */
static double come(const struct path *path, int rank, const struct turn *turn)
{
	return ready(
		path, turn->stage, turn->way, turn->slot->micro_batch, path->seats[rank].asked);
}

static void send(const struct path *path, struct seat *seat, const struct turn *turn, double sent)
{
	*result_at(path, turn->stage, turn->way, turn->slot->micro_batch) =
		(struct result){sent, seat->n_sent};
	seat->n_sent += goes_on_to(path, turn->stage, turn->way == FORWARD ? 1 : -1);
}

static bool take_one(const struct path *path, int rank)
{
	struct seat *seat = &path->seats[rank];
	const struct turn turn = turn_of(path, rank, seat->next);
	double came = come(path, rank, &turn);
	if (came < 0)
		return false;
	const struct lasting ends = ends_of(seat, turn.slot, fmax(came, seat->now), turn.pass);
	send(path, seat, &turn, ends.sent);
	seat->asked = ends.asked;
	seat->now = ends.busy;
	seat->next++;
	return true;
}

/* Their compute, or the rows between it, which travel one after the other. */
static double find_together(const struct turn *forward, const struct turn *backward)
{
	const struct beside_pass *one = forward->beside, *other = backward->beside;
	double losses[COMMUNICATORS_MAX] = {fmin(one->loss, other->loss)};
	double rows[COMMUNICATORS_MAX] = {one->rows + other->rows}, cover[SHARES];
	for (int s = 0; s < SHARES; s++)
		cover[s] = one->cover[s] + other->cover[s];
	double busy = one->pass.busy + other->pass.busy;
	return fmax(rows[0], busy + (rows[0] > 0 ? bound_contention(losses, rows, cover) : 0));
}

static int place_of(const struct path *path, const struct turn *turn)
{
	return turn->slot->chunk * PROBED + probed_of(path, turn->slot->micro_batch);
}

/* Of a forward and a backward that are computed together. */
static double together(const struct path *path, struct seat *seat, const struct turn *one,
	const struct turn *other)
{
	int n = path->pipeline.chunks * PROBED;
	double *found = &seat->together[place_of(path, one) * n + place_of(path, other)];
	if (*found == 0)
		*found = find_together(one, other);
	return *found;
}

/* Of a stage without the head: when all is computed, so is the backward. */
static bool ends_both(
	const struct path *path, const struct turn *forward, const struct turn *backward)
{
	return forward->stage < path->n_stages - 1 &&
	       path->blocks[forward->stage] <= path->blocks[backward->stage];
}

/* Compute begins with the forward. The backward's message may come later. */
static bool take_pair(const struct path *path, int rank)
{
	struct seat *seat = &path->seats[rank];
	struct turn forward = turn_of(path, rank, seat->next);
	if (seat->came < 0)
		seat->came = come(path, rank, &forward);
	if (seat->came < 0)
		return false;
	struct turn backward = turn_of(path, rank, seat->next + 1);
	double came = come(path, rank, &backward);
	if (came < 0)
		return false;
	double begin = fmax(seat->came, seat->now), alone = fmax(came, seat->now);
	double end = begin + together(path, seat, &forward, &backward);
	bool both = ends_both(path, &forward, &backward);
	send(path, seat, &forward, begin + forward.pass->sent);
	send(path, seat, &backward, fmax(alone + backward.pass->sent, both ? end : 0));
	seat->now = fmax(end, fmax(begin + forward.pass->busy, alone + backward.pass->busy));
	seat->asked = seat->now;
	seat->came = -1;
	seat->next += 2;
	return true;
}

/* As many of the rank's passes as may begin. Was there anything to do? */
static bool go_on(struct path *path, int rank)
{
	struct seat *seat = &path->seats[rank];
	int first = seat->next;
	double came = seat->came;
	bool goes = true;
	while (goes && seat->next < seat->n)
		goes = seat->slots[seat->next].with_next ? take_pair(path, rank)
							 : take_one(path, rank);
	return seat->next > first || seat->came != came;
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
		if ((slots[i].with_next && !path->pipeline.pairs) ||
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
		if (seat->duty == duty && !duty_measure(&path->pipeline, path->models, plan, model,
						  topology, k, path->arena, duty))
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
	int n = path->n_stages * micro_batches, places = path->pipeline.chunks * PROBED;
	path->pipeline.micro_batches = micro_batches;
	path->posts_early = pipeline_receives_early(&path->pipeline);
	for (int k = 0; k < path->pipeline.ranks; k++) {
		struct seat *seat = &path->seats[k];
		seat->now = seat->asked = seat->arrived = 0;
		seat->next = seat->n_sent = seat->n_arrived = 0;
		seat->came = -1;
		seat->together = ARENA_ARRAY(path->arena, double, places *places);
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

static double longest_issue(const struct path *path, int64_t micro_batches)
{
	double longest = 0;
	for (int k = 0; k < path->pipeline.ranks; k++) {
		const struct duty *duty = path->seats[k].duty;
		double more = (double)(micro_batches - PROBED + 1);
		longest = fmax(longest, duty->rest_issue + more * duty->middle_issue);
	}
	return longest;
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
	/* APART takes some of its digits. */
	bound->time = fmax(follow(&path), longest_issue(&path, plan->grad_accum)) * (1 - 1e-6);
	bound->network = least_wire(&path, plan->grad_accum) * (1 - 1e-9);
	return true;
}
