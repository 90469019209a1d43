/* The integer programme of a subproblem: rows that are sums over its choices, each a bound of time
 * (bound.c) or of memory, and the plan that a choice stands for. */
#include "planner/mixed/mix.h"

#include <math.h>
#include <string.h>

/* --- bounds ----------------------------------------------------------------------------------- */

#define ROUNDING (1 - 1e-9) /* sums in another order than the simulator's */

/* The memories of the programme. */
enum { AT_LOSS, AT_END, MEMORIES };

/* A row of the programme is the sum of what a step has of these, each times its weight. */
struct weights {
	double compute, stalls, cover, alone, issue, copies[2], communicators[COMMUNICATORS_MAX];
	double links[LINKS], until_loss, late[COMMUNICATORS_MAX], late_network;
	double forward, backward, halves[COMMUNICATORS_MAX][HALVES];
	int share; /* of cover */
};

static double work_sum(const struct weights *weights, const struct work *work)
{
	double sum = weights->compute * work->compute + weights->stalls * work->stalls +
		     weights->cover * work->cover + weights->alone * work->alone +
		     weights->issue * work->issue;
	for (int way = 0; way < 2; way++)
		sum += weights->copies[way] * work->copies[way];
	for (int e = 0; e < COMMUNICATORS_MAX; e++)
		sum += weights->communicators[e] * work->communicators[e] +
		       weights->late[e] * work->late[e];
	for (int e = 0; e < COMMUNICATORS_MAX; e++)
		for (int h = 0; h < HALVES; h++)
			sum += weights->halves[e][h] * work->halves[e][h];
	for (int l = 0; l < LINKS; l++)
		sum += weights->links[l] * work->links[l];
	return sum + weights->late_network * work->late_network;
}

static void add_row(const struct subproblem *subproblem, const struct weights *weights,
	double constant, struct arena *arena, struct programme *p)
{
	struct programme_row *row = &p->rows[p->n_rows++];
	double n = (double)subproblem->plan.grad_accum;
	row->constant = constant;
	for (int c = MIX_FULL; c <= MIX_SOME; c++) {
		const struct mix_load *load = &subproblem->loads[c];
		double *term = ARENA_ARRAY(arena, double, p->sizes[c]);
		for (int k = 0; k < p->sizes[c]; k++)
			term[k] = n * (weights->compute * load->compute[k] +
					      weights->issue * load->issue[k] +
					      weights->cover * load->cover[k][weights->share] +
					      weights->forward * load->before[k] +
					      weights->backward *
						      (load->compute[k] - load->before[k])) +
				  weights->until_loss *
					  ((n - 1) * load->compute[k] + load->before[k]);
		row->term[c] = term;
	}
	for (int c = MIX_UNITS; c <= MIX_STAYS; c++) {
		const struct work *works = c == MIX_UNITS ? subproblem->moved : subproblem->hosted;
		double *term = ARENA_ARRAY(arena, double, p->sizes[c]);
		for (int k = 0; k < p->sizes[c]; k++)
			term[k] = work_sum(weights, &works[k]);
		row->term[c] = term;
	}
}

/* (3) for the communicators of a set, and one share. */
static struct weights contention_weights(
	const double losses[COMMUNICATORS_MAX], unsigned set, int share)
{
	struct weights weights = {.compute = 1, .stalls = 1, .share = share};
	double all = 0;
	for (int e = 0; e < COMMUNICATORS_MAX; e++) {
		if (!(set >> e & 1))
			continue;
		weights.communicators[e] = bound_loss_beside(losses[e], bound_shares[share]);
		weights.stalls -= weights.communicators[e];
		all += losses[e];
	}
	weights.cover = -bound_loss_beside(fmin(all, 0.5), bound_shares[share]);
	return weights;
}

/* Of the mix that checkpoints nothing and keeps nothing. */
static double value_there(const struct subproblem *subproblem, const struct weights *weights)
{
	const struct mix_load *load = &subproblem->loads[MIX_FULL];
	return work_sum(weights, &subproblem->moved[0]) + (double)subproblem->plan.grad_accum *
								  weights->cover *
								  load->cover[0][weights->share];
}

/* With the share that says most about that mix: the others' are alike. */
static void add_contention(const struct subproblem *subproblem,
	const double losses[COMMUNICATORS_MAX], unsigned set, double edges, struct arena *arena,
	struct programme *p)
{
	struct weights best = contention_weights(losses, set, 0);
	for (int share = 1; share < SHARES; share++) {
		struct weights weights = contention_weights(losses, set, share);
		if (value_there(subproblem, &weights) + weights.stalls * edges >
			value_there(subproblem, &best) + best.stalls * edges)
			best = weights;
	}
	add_row(subproblem, &best, best.stalls * edges, arena, p);
}

/* What the issuing thread does, and the copies to and from the host. */
static void add_queues(
	const struct subproblem *subproblem, struct arena *arena, struct programme *p)
{
	add_row(subproblem, &(struct weights){.issue = 1}, bound_issue_once(&subproblem->plan),
		arena, p);
	int alone = bound_first_way_alone(&subproblem->plan);
	for (int way = 0; way < 2 && plan_offloads_any(&subproblem->plan); way++) {
		struct weights copies = {.alone = way >= alone};
		copies.copies[way] = 1;
		add_row(subproblem, &copies, 0, arena, p);
	}
}

/* Some choice makes the last row more than the least that compute takes. */
static void drop_if_idle(struct programme *p)
{
	const struct programme_row *compute = &p->rows[0], *row = &p->rows[p->n_rows - 1];
	double least = compute->constant, most = row->constant;
	for (int c = 0; c < MIX_CHOICES; c++) {
		double low = INFINITY, high = -INFINITY;
		for (int k = 0; k < p->sizes[c]; k++) {
			low = fmin(low, compute->term[c][k]);
			high = fmax(high, row->term[c][k]);
		}
		least += low;
		most += high;
	}
	p->n_rows -= most <= least;
}

/* (4) to (6) of bounds.c. */
static void add_links(const struct subproblem *subproblem, struct arena *arena, struct programme *p)
{
	const struct bound_communication *c = &subproblem->communication;
	for (int l = 0; l < LINKS; l++) {
		struct weights link = {0};
		link.links[l] = 1;
		add_row(subproblem, &link, c->links[l], arena, p);
		drop_if_idle(p);
	}
	for (int e = 0; e < COMMUNICATORS_MAX; e++) {
		struct weights late = {.until_loss = 1};
		late.late[e] = 1;
		if (isinf(c->late[e]))
			continue;
		add_row(subproblem, &late, c->late[e], arena, p);
		drop_if_idle(p);
	}
	for (int e = 0; e < COMMUNICATORS_MAX; e++)
		for (int h = 0; h < HALVES; h++) {
			struct weights half = {.forward = h == BESIDE_FORWARD_NOT,
				.backward = h == BESIDE_BACKWARD_NOT};
			half.halves[e][h] = 1;
			add_row(subproblem, &half, 0, arena, p);
			drop_if_idle(p);
		}
	if (isinf(c->late_network))
		return;
	add_row(subproblem, &(struct weights){.until_loss = 1, .late_network = 1}, c->late_network,
		arena, p);
	drop_if_idle(p);
}

/* (1) to (6) of bounds.c. */
static void fill_rows(const struct topology *topology, const struct subproblem *subproblem,
	struct arena *arena, struct programme *p)
{
	double edges = bound_edge_stalls(&subproblem->edges, &subproblem->communication);
	double losses[COMMUNICATORS_MAX];
	unsigned all = 0;
	add_row(subproblem, &(struct weights){.compute = 1, .stalls = 1}, edges, arena, p);
	add_queues(subproblem, arena, p);
	for (int e = 0; e < COMMUNICATORS_MAX; e++) {
		struct weights communicator = {0};
		losses[e] = bound_loss(topology, subproblem->communication.multiprocessors[e]);
		if (!isfinite(subproblem->communication.multiprocessors[e]))
			continue; /* no collective */
		communicator.communicators[e] = 1;
		communicator.alone = subproblem->hosts > 0; /* else it is in `idle` */
		add_row(subproblem, &communicator, subproblem->communication.idle[e], arena, p);
		if (losses[e] <= 0)
			continue;
		add_contention(subproblem, losses, 1u << e, edges, arena, p);
		if (subproblem->moved[0].communicators[e] > subproblem->moved[0].stalls + edges)
			all |= 1u << e;
	}
	if (all & (all - 1))
		add_contention(subproblem, losses, all, edges, arena, p);
	add_links(subproblem, arena, p);
}

void mix_programme(const struct topology *topology, const struct subproblem *subproblem,
	int64_t limit, struct arena *arena, struct programme *programme)
{
	int most = 0;
	for (int c = 0; c < MIX_CHOICES; c++)
		most = most > subproblem->sizes[c] ? most : subproblem->sizes[c];
	const int64_t *none = ARENA_ARRAY(arena, int64_t, most);
	*programme = (struct programme){.n_groups = MIX_CHOICES,
		.n_memories = MEMORIES,
		.ordered = subproblem->knobs.selective};
	memcpy(programme->sizes, subproblem->sizes, sizeof(subproblem->sizes));
	programme->memories[AT_LOSS] =
		(struct programme_memory){limit - subproblem->fixed - subproblem->apart,
			{subproblem->loads[MIX_FULL].saved, subproblem->loads[MIX_SOME].saved,
				subproblem->kept, subproblem->hosted_kept}};
	programme->memories[AT_END] = (struct programme_memory){
		limit - subproblem->fixed, {none, none, none, subproblem->at_end}};
	fill_rows(topology, subproblem, arena, programme);
}

struct bound mix_bound(const struct topology *topology, const struct subproblem *subproblem,
	const int mix[MIX_CHOICES])
{
	struct arena arena = {0};
	struct programme programme;
	mix_programme(topology, subproblem, 0, &arena, &programme);
	struct bound bound = {.time = programme_objective(&programme, mix) * ROUNDING,
		.memory = max_i64(programme_bytes(&programme, AT_LOSS, mix) + subproblem->apart,
				  programme_bytes(&programme, AT_END, mix)) +
			  subproblem->fixed};
	arena_finish(&arena);
	return bound;
}

struct plan mix_plan(
	const struct subproblem *subproblem, const int mix[MIX_CHOICES], struct arena *arena)
{
	const struct rows stays = rows_of_offload(OFFLOAD_NONE);
	const struct rows resharded_not = rows_of_reshard(false);
	struct plan plan = subproblem->plan;
	enum checkpointing *row = ARENA_ARRAY(arena, enum checkpointing, subproblem->blocks);
	for (int b = 0; b < subproblem->blocks; b++)
		row[b] = b < mix[MIX_FULL]   ? CHECKPOINTING_FULL
			 : b < mix[MIX_SOME] ? CHECKPOINTING_SELECTIVE
					     : CHECKPOINTING_NONE;
	if (subproblem->blocks > 0)
		plan.activation_checkpointing =
			rows_make_checkpointing(arena, row, subproblem->blocks);
	if (mix[MIX_UNITS] > 0)
		plan.reshard_after_forward =
			rows_split(arena, &subproblem->plan.reshard_after_forward,
				subproblem->units - mix[MIX_UNITS], &resharded_not, mix[MIX_UNITS]);
	if (mix[MIX_STAYS] > 0)
		plan.cpu_offload = rows_split(arena, &stays, mix[MIX_STAYS],
			&subproblem->plan.cpu_offload, subproblem->hosts - mix[MIX_STAYS]);
	return plan;
}
