/* Sums of a step's work, and what the issuing thread and the copies to and from the host take of
 * it. The proof that uses them is in bound.c. */
#include "planner/bounds/bounds.h"

#include <math.h>

#include "schedule/plan/plan.h"

void work_add(struct work *sum, const struct work *work, double times)
{
	sum->compute += times * work->compute;
	sum->cover += times * work->cover;
	sum->stalls += times * work->stalls;
	sum->alone += times * work->alone;
	sum->issue += times * work->issue;
	sum->wire += times * work->wire;
	for (int way = 0; way < 2; way++)
		sum->copies[way] += times * work->copies[way];
	for (int e = 0; e < COMMUNICATORS_MAX; e++)
		sum->communicators[e] += times * work->communicators[e];
	for (int e = 0; e < COMMUNICATORS_MAX; e++) {
		sum->late[e] += times * work->late[e];
		for (int h = 0; h < HALVES; h++)
			sum->halves[e][h] += times * work->halves[e][h];
	}
	for (int l = 0; l < LINKS; l++)
		sum->links[l] += times * work->links[l];
	sum->late_network += times * work->late_network;
}

struct work work_least(const struct work *a, const struct work *b)
{
	struct work least = {.compute = fmin(a->compute, b->compute),
		.cover = fmax(a->cover, b->cover),
		.stalls = fmin(a->stalls, b->stalls),
		.alone = fmin(a->alone, b->alone),
		.issue = fmin(a->issue, b->issue),
		.wire = fmin(a->wire, b->wire),
		.late_network = fmin(a->late_network, b->late_network)};
	for (int way = 0; way < 2; way++)
		least.copies[way] = fmin(a->copies[way], b->copies[way]);
	for (int e = 0; e < COMMUNICATORS_MAX; e++)
		least.communicators[e] = fmin(a->communicators[e], b->communicators[e]);
	for (int e = 0; e < COMMUNICATORS_MAX; e++) {
		least.late[e] = fmin(a->late[e], b->late[e]);
		for (int h = 0; h < HALVES; h++)
			least.halves[e][h] = fmin(a->halves[e][h], b->halves[e][h]);
	}
	for (int l = 0; l < LINKS; l++)
		least.links[l] = fmin(a->links[l], b->links[l]);
	return least;
}

/* --- the issuing thread ----------------------------------------------------------------------- */

static bool synchronises(const struct plan *plan)
{
	return runtime_of(plan->runtime)->synchronises_step;
}

/* Without the copy of a batch, which is small. */
double bound_issue_once(const struct plan *plan)
{
	double once = runtime_of(plan->runtime)->host_per_micro_batch;
	return synchronises(plan) ? (double)plan->grad_accum * once : 0;
}

/* Until it is done, what the host itself works on lets nothing else be issued; so does compute
 * where the same thread carries it out. */
static bool blocks_issue(const struct schedule *schedule, const struct op *op)
{
	bool is_compute = runtime_of(schedule->plan.runtime)->host_is_compute &&
			  topology_issues_inline(schedule->topology);
	return op->stream == STREAM_HOST || (is_compute && op->stream == STREAM_COMPUTE);
}

double *bound_issue(const struct schedule *schedule, const struct cost *costs, struct arena *arena)
{
	const struct program *program = &schedule->programs[0];
	double *issue = ARENA_ARRAY(arena, double, program->n_ops);
	double once = cost_batch(&schedule->plan, schedule->topology);
	int micro_batch = -1;
	for (int i = 0; i < program->n_ops && synchronises(&schedule->plan); i++) {
		const struct op *op = &program->ops[i];
		double apart = op->micro_batch > micro_batch ? once : 0;
		issue[i] = costs[i].host - apart;
		if (blocks_issue(schedule, op))
			issue[i] = fmax(issue[i], costs[i].host_before - apart + costs[i].device);
		micro_batch = op->micro_batch > micro_batch ? op->micro_batch : micro_batch;
	}
	return issue;
}

/* Where operations cost alike whatever they launch, those outside of blocks count for nothing: how
 * many there are depends on the wrap policy. */
double bound_issue_of_load(const struct schedule *schedule, const struct op *op, double issue)
{
	bool measured = schedule->topology->calibration.host_overhead > 0;
	return measured && op->layer < 0 ? 0 : issue;
}

/* --- copies ----------------------------------------------------------------------------------- */

void bound_add_copy(const struct op *op, const struct cost *cost, struct work *work)
{
	if (op_kind_class(op->kind) == OP_CLASS_COPY && op->stream != STREAM_COMPUTE)
		work->copies[op->kind == OP_COPY_D2H] += cost->device;
}

/* The host updates what has come out. What the device keeps of it goes back while other units are
 * updated; shards that are on the host come in before. */
int bound_first_way_alone(const struct plan *plan)
{
	return plan_offloads(plan, OFFLOAD_OPTIMIZER) ? 1 : 0;
}
