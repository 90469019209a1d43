/* Sums of a step's work, and what the issuing thread and the copies to and from the host take of
 * it. The proof that uses them is in bounds.c. */
#include "planner/bounds/parts.h"

#include <math.h>

#include "schedule/plan/plan.h"

void work_add(struct work *sum, const struct work *work, double times)
{
	sum->compute += times * work->compute;
	sum->gaps += times * work->gaps;
	sum->cover += times * work->cover;
	sum->alone += times * work->alone;
	sum->issue += times * work->issue;
	sum->wire += times * work->wire;
	for (int way = 0; way < 2; way++)
		sum->copies[way] += times * work->copies[way];
	for (int e = 0; e < COMMUNICATORS_MAX; e++)
		sum->communicators[e] += times * work->communicators[e];
	for (int l = 0; l < LINKS; l++)
		sum->links[l] += times * work->links[l];
}

bool bound_is_update(enum op_kind kind)
{
	return kind == OP_GRADIENT_NORM || kind == OP_CLIP_GRADIENTS || kind == OP_OPTIMIZER;
}

/* On GPUs; threads of a host share its network in another way. */
double bound_link_load(
	const struct schedule *schedule, const struct cost *cost, enum bound_link link)
{
	if (schedule->topology->device.kind != DEVICE_GPU)
		return 0;
	return link == LINK_NETWORK ? cost->network_load : cost->fabric_load;
}

/* What a collective sends depends on its group, its bytes and the runtime's algorithm only. */
double bound_wire(const struct schedule *schedule, int class, const struct op *op)
{
	bool message = op_kind_class(op->kind) == OP_CLASS_MESSAGE;
	enum collective_kind kind;
	if (message && schedule->topology->nodes > 1)
		return message_node_egress(schedule, class, op);
	if (message)
		return collective_wire_bytes(op->kind, 2, op->bytes);
	if (!collective_kind_of(op->kind, &kind))
		return 0;
	if (schedule->topology->nodes > 1)
		return op_node_egress(schedule, op);
	return op_wire_bytes(schedule, op);
}

/* --- the issuing thread ----------------------------------------------------------------------- */

static bool synchronises(const struct plan *plan)
{
	return runtime_of(plan->runtime)->synchronises_step;
}

/* Without the copy of a batch, which is small. */
double bound_issue_once(const struct plan *plan, const struct topology *topology)
{
	double once = cost_host_factor(topology) * runtime_of(plan->runtime)->host_per_micro_batch;
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

double *bound_issue(
	const struct schedule *schedule, int rank, const struct cost *costs, struct arena *arena)
{
	const struct program *program = &schedule->programs[rank];
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

void bound_add_copy(const struct op *op, const struct cost *cost, double times, struct work *work)
{
	if (op_kind_class(op->kind) == OP_CLASS_COPY && op->stream != STREAM_COMPUTE)
		work->copies[op->kind == OP_COPY_D2H] += times * cost->device;
}

/* The host updates what has come out. What the device keeps of it goes back while other units are
 * updated; shards that are on the host come in before. */
int bound_first_way_alone(const struct plan *plan)
{
	return plan_offloads(plan, OFFLOAD_OPTIMIZER) ? 1 : 0;
}
