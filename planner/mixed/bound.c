/* The integer programme of a cell: rows that are sums over its choices, each a bound of time
 * (bound.c) or of memory, and the plan that a choice stands for. */
#include "planner/mixed/mix.h"

#include <math.h>
#include <string.h>

/* --- bounds --------------------------------------------------------------------------------------
 */

#define ROUNDING (1 - 1e-9) /* sums in another order than the simulator's */

/* The memories of the programme. */
enum { AT_LOSS, AT_END, MEMORIES };

/* A row of the programme is the sum of what a step has of these, each times its weight. */
struct weights {
	double compute, stalls, cover, alone, issue, copies[2], engines[ENGINES_MAX];
	int share; /* of cover */
};

static double work_sum(const struct weights *weights, const struct work *work)
{
	double sum = weights->compute * work->compute + weights->stalls * work->stalls +
		     weights->cover * work->cover + weights->alone * work->alone +
		     weights->issue * work->issue;
	for (int way = 0; way < 2; way++)
		sum += weights->copies[way] * work->copies[way];
	for (int e = 0; e < ENGINES_MAX; e++)
		sum += weights->engines[e] * work->engines[e];
	return sum;
}

static void add_row(const struct mix_cell *cell, const struct weights *weights, double constant,
	struct arena *arena, struct programme *p)
{
	struct programme_row *row = &p->rows[p->n_rows++];
	double n = (double)cell->plan.grad_accum;
	row->constant = constant;
	for (int c = MIX_FULL; c <= MIX_SOME; c++) {
		const struct mix_load *load = &cell->loads[c];
		double *term = ARENA_ARRAY(arena, double, p->sizes[c]);
		for (int k = 0; k < p->sizes[c]; k++)
			term[k] = n * (weights->compute * load->compute[k] +
					      weights->issue * load->issue[k] +
					      weights->cover * load->cover[k][weights->share]);
		row->term[c] = term;
	}
	for (int c = MIX_UNITS; c <= MIX_STAYS; c++) {
		const struct work *works = c == MIX_UNITS ? cell->moved : cell->hosted;
		double *term = ARENA_ARRAY(arena, double, p->sizes[c]);
		for (int k = 0; k < p->sizes[c]; k++)
			term[k] = work_sum(weights, &works[k]);
		row->term[c] = term;
	}
}

/* (3) for the engines of a set, and one share. */
static struct weights contention_weights(const double losses[ENGINES_MAX], unsigned set, int share)
{
	struct weights weights = {.compute = 1, .stalls = 1, .share = share};
	double all = 0;
	for (int e = 0; e < ENGINES_MAX; e++) {
		if (!(set >> e & 1))
			continue;
		weights.engines[e] = bound_loss_beside(losses[e], bound_shares[share]);
		weights.stalls -= weights.engines[e];
		all += losses[e];
	}
	weights.cover = -bound_loss_beside(fmin(all, 0.5), bound_shares[share]);
	return weights;
}

/* Of the mix that checkpoints nothing and keeps nothing. */
static double value_there(const struct mix_cell *cell, const struct weights *weights)
{
	const struct mix_load *load = &cell->loads[MIX_FULL];
	return work_sum(weights, &cell->moved[0]) +
	       (double)cell->plan.grad_accum * weights->cover * load->cover[0][weights->share];
}

/* With the share that says most about that mix: the others' are alike. */
static void add_contention(const struct mix_cell *cell, const double losses[ENGINES_MAX],
	unsigned set, double edges, struct arena *arena, struct programme *p)
{
	struct weights best = contention_weights(losses, set, 0);
	for (int share = 1; share < SHARES; share++) {
		struct weights weights = contention_weights(losses, set, share);
		if (value_there(cell, &weights) + weights.stalls * edges >
			value_there(cell, &best) + best.stalls * edges)
			best = weights;
	}
	add_row(cell, &best, best.stalls * edges, arena, p);
}

/* What the issuing thread does, and the copies to and from the host. */
static void add_queues(const struct mix_cell *cell, struct arena *arena, struct programme *p)
{
	add_row(cell, &(struct weights){.issue = 1}, bound_issue_once(&cell->plan), arena, p);
	int alone = bound_first_way_alone(&cell->plan);
	for (int way = 0; way < 2 && plan_offloads_any(&cell->plan); way++) {
		struct weights copies = {.alone = way >= alone};
		copies.copies[way] = 1;
		add_row(cell, &copies, 0, arena, p);
	}
}

/* (1) to (3) of bound.c. */
static void fill_rows(const struct topology *topology, const struct mix_cell *cell,
	struct arena *arena, struct programme *p)
{
	double edges = bound_edge_stalls(&cell->edges, &cell->communication);
	double losses[ENGINES_MAX];
	unsigned all = 0;
	add_row(cell, &(struct weights){.compute = 1, .stalls = 1}, edges, arena, p);
	add_queues(cell, arena, p);
	for (int e = 0; e < ENGINES_MAX; e++) {
		struct weights engine = {0};
		losses[e] = bound_loss(topology, cell->communication.multiprocessors[e]);
		if (!isfinite(cell->communication.multiprocessors[e]))
			continue; /* no collective */
		engine.engines[e] = 1;
		engine.alone = cell->hosts > 0; /* else it is in `idle` */
		add_row(cell, &engine, cell->communication.idle[e], arena, p);
		if (losses[e] <= 0)
			continue;
		add_contention(cell, losses, 1u << e, edges, arena, p);
		if (cell->moved[0].engines[e] > cell->moved[0].stalls + edges)
			all |= 1u << e;
	}
	if (all & (all - 1))
		add_contention(cell, losses, all, edges, arena, p);
}

void mix_programme(const struct topology *topology, const struct mix_cell *cell, int64_t limit,
	struct arena *arena, struct programme *programme)
{
	int most = 0;
	for (int c = 0; c < MIX_CHOICES; c++)
		most = most > cell->sizes[c] ? most : cell->sizes[c];
	const int64_t *none = ARENA_ARRAY(arena, int64_t, most);
	*programme = (struct programme){
		.n_groups = MIX_CHOICES, .n_memories = MEMORIES, .ordered = cell->knobs.selective};
	memcpy(programme->sizes, cell->sizes, sizeof(cell->sizes));
	programme->memories[AT_LOSS] = (struct programme_memory){limit - cell->fixed - cell->apart,
		{cell->loads[MIX_FULL].saved, cell->loads[MIX_SOME].saved, cell->kept,
			cell->hosted_kept}};
	programme->memories[AT_END] =
		(struct programme_memory){limit - cell->fixed, {none, none, none, cell->at_end}};
	fill_rows(topology, cell, arena, programme);
}

struct bound mix_bound(
	const struct topology *topology, const struct mix_cell *cell, const int mix[MIX_CHOICES])
{
	struct arena arena = {0};
	struct programme programme;
	mix_programme(topology, cell, 0, &arena, &programme);
	struct bound bound = {.time = programme_objective(&programme, mix) * ROUNDING,
		.memory = max_i64(programme_bytes(&programme, AT_LOSS, mix) + cell->apart,
				  programme_bytes(&programme, AT_END, mix)) +
			  cell->fixed};
	arena_finish(&arena);
	return bound;
}

struct plan mix_plan(const struct mix_cell *cell, const int mix[MIX_CHOICES], struct arena *arena)
{
	struct plan plan = cell->plan;
	enum checkpointing *row = ARENA_ARRAY(arena, enum checkpointing, cell->blocks);
	for (int b = 0; b < cell->blocks; b++)
		row[b] = b < mix[MIX_FULL]   ? CHECKPOINTING_FULL
			 : b < mix[MIX_SOME] ? CHECKPOINTING_SELECTIVE
					     : CHECKPOINTING_NONE;
	if (cell->blocks > 0)
		plan.activation_checkpointing = plan_checkpointing_text(arena, row, cell->blocks);
	if (mix[MIX_UNITS] > 0)
		plan.reshard_after_forward =
			arena_printf(arena, "%dx%s+%dxfalse", cell->units - mix[MIX_UNITS],
				cell->plan.reshard_after_forward, mix[MIX_UNITS]);
	if (mix[MIX_STAYS] > 0)
		plan.cpu_offload = arena_printf(arena, "%dx%s+%dx%s", mix[MIX_STAYS],
			offload_names[OFFLOAD_NONE], cell->hosts - mix[MIX_STAYS],
			cell->plan.cpu_offload);
	return plan;
}
