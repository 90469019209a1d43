/* Lower bounds (docs/planner.md has the proofs). Each is the time that some work needs on a
 * resource which it must use: no order, overlap or choice of free knobs makes that shorter. */
#include <math.h>

#include "simulator/costs/costs.h"
#include "simulator/devices/devices.h"
#include "simulator/results.h"

/* 0, which bounds nothing, where the capacity is not known. */
static double quotient(double work, double capacity)
{
	return capacity > 0 && !isinf(capacity) ? work / capacity : 0;
}

/* --- what the hardware can deliver at most ---------------------------------------------------- */

/* Where a measurement beats the datasheet (a CPU's turbo), the measurement is the limit. */
static double most_flops(const struct machine *machine)
{
	double measured = machine->gemm_flops;

	for (int i = 0; i < ATTENTION_GENERATION_COUNT; i++)
		measured = fmax(measured,
			fmax(machine->attention[i].forward, machine->attention[i].backward));
	if (machine->gpu && machine->peak_flops > 0)
		measured = 0; /* the cost model never exceeds the datasheet here */
	else
		measured /= calibration_least_factor(&machine->topology->calibration) *
			    product_least_ratio(machine);
	return fmax(machine->peak_flops * (double)topology_rank_threads(machine->topology),
		       measured) *
	       machine->core_share;
}

static double most_memory_bandwidth(const struct topology *topology)
{
	double device = fmax(topology->device.memory_bandwidth,
		fmax(topology->calibration.memory_bandwidth,
			topology->calibration.optimizer_bandwidth));
	double host = fmax(topology->host.memory_bandwidth,
		fmax(topology->calibration.memory_bandwidth_shared,
			topology->calibration.optimizer_bandwidth_shared));

	if (topology->device.kind == DEVICE_CPU) {
		device /= calibration_least_factor(&topology->calibration);
		host /= calibration_least_factor(&topology->calibration);
	}
	if (topology->shares_host)
		return fmin(device, host / (double)topology->devices_per_node);
	return device;
}

/* Bytes per second that `ranks` on `nodes` have been seen to send each, over the datasheet's. */
static double most_wire(const struct topology *topology, int64_t nodes, double datasheet)
{
	double most = datasheet;

	for (int i = 0; i < topology->calibration.n_collectives; i++) {
		const struct calibration_collective *piece = &topology->calibration.collectives[i];
		double passes = piece->collective == COLLECTIVE_ALL_REDUCE ? 2 : 1;

		if ((piece->nodes > 1) == (nodes > 1))
			most = fmax(most, passes * piece->bandwidth);
	}
	return most;
}

/* --- what every plan must do ------------------------------------------------------------------ */

static double product_flops(const struct module_work *work)
{
	double flops = 0;

	for (int g = 0; g < work->n_gemms; g++)
		flops += 2.0 * (double)work->gemms[g].m * (double)work->gemms[g].n *
			 (double)work->gemms[g].k * (double)work->gemms[g].count;
	return flops;
}

/* Operations of the plan's dtype that take as long at the datasheet's peak as one of the leaf's
 * products. */
static double product_weight(const struct plan *plan, const struct model *model,
	const struct topology *topology, int module)
{
	const struct device *device = &topology->device;

	if (!fp8_converts(plan, model, module))
		return 1;
	return device_peak_flops(device, plan->param_dtype) /
	       (device_peak_flops(device, DTYPE_FP8) * fp8_peak(plan));
}

/* Forward and backward once, attention's causal half, nothing recomputed. Backward is twice forward
 * where everything is trained. */
static double least_flops(
	const struct plan *plan, const struct model *model, const struct topology *topology)
{
	int64_t seq_len = plan->seq_len;
	bool all = trainable_is_all(&model->architecture.trainable);
	const struct attending attending = {ATTENTION_FLASH, true, plan->document_len};
	double flops = 0;

	for (int i = 0; i < model->n_modules; i++) {
		struct module_work work, back;

		if (!module_kind_is_leaf(model->modules[i].kind))
			continue;
		model_module_work(model, i, PASS_FORWARD, 1, seq_len, 1, attending, &work);
		double weight = product_weight(plan, model, topology, i);
		if (all) {
			flops += 3 * (weight * product_flops(&work) + work.attention_flops);
			continue;
		}
		model_module_work(model, i, PASS_BACKWARD, 1, seq_len, 1, attending, &back);
		flops += weight * (product_flops(&work) + product_flops(&back)) +
			 work.attention_flops * (model_goes_back(model, i) ? 3 : 1);
	}
	return flops;
}

/* Parameter, gradient and moments are read; parameter and moments written. */
static double least_optimizer_bytes(const struct plan *plan)
{
	int64_t tensors = plan->optimizer == OPTIMIZER_SGD ? 3 : 7;

	return (double)(tensors * dtype_bytes(plan->master_dtype));
}

static double compute_bound(
	const struct plan *plan, const struct model *model, const struct topology *topology)
{
	struct machine machine;
	double devices = (double)plan_ranks(plan);
	double flops;

	machine_init(&machine, topology, NULL, plan->param_dtype);
	flops = least_flops(plan, model, topology) * (double)plan->global_batch;
	return quotient(flops, devices * most_flops(&machine));
}

/* Where a plan may offload, device and host can update at the same time. */
static double most_update_bandwidth(const struct plan *plan, const struct topology *topology)
{
	double host = topology->host.memory_bandwidth / (double)topology->devices_per_node;

	return most_memory_bandwidth(topology) +
	       (plan_offloads_any(plan) && !topology->shares_host ? host : 0);
}

static double optimizer_bound(
	const struct plan *plan, const struct model *model, const struct topology *topology)
{
	double bytes = least_optimizer_bytes(plan) * (double)model->trained_count;

	return quotient(bytes, (double)plan_ranks(plan) * most_update_bandwidth(plan, topology));
}

/* Every part's partial sums must reach the part that owns the sum, and every owner's parameters (or
 * sums) the other parts. A switch that adds (NVLink SHARP) and one that multicasts let both pass in
 * opposite directions at once; then only the larger one counts. */
static double exchange_bound(double parts, double parameters, const struct plan *plan,
	bool switch_adds, double bandwidth)
{
	double gradient = dtype_bytes(plan->reduce_dtype);
	double parameter = fmin(gradient, fp8_weight_width(plan));
	double bytes = switch_adds ? fmax(gradient, parameter) : gradient + parameter;

	if (parts <= 1)
		return 0;
	return quotient((parts - 1) / parts * parameters * bytes, bandwidth);
}

static double network_bound(
	const struct plan *plan, const struct model *model, const struct topology *topology)
{
	double parameters = (double)model->trained_count;
	double ranks = (double)plan_data_parallel(plan);
	double nodes = fmin((double)topology->nodes, ranks);
	bool adds = topology->fabric.kind == FABRIC_NVSWITCH &&
		    topology->device.generation >= GENERATION_HOPPER;
	double inside = 0, across = 0;

	/* Ranks that divide the model may exchange no parameters at all. */
	if (plan_divides(plan))
		return 0;
	/* Processes of one host have no wire; their copies count as memory traffic. */
	if (topology->fabric.kind != FABRIC_SHARED_MEMORY && nodes <= 1)
		inside = exchange_bound(ranks, parameters, plan, adds,
			most_wire(topology, 1, topology->fabric.bandwidth));
	if (nodes > 1)
		across = exchange_bound(nodes, parameters, plan, false,
			most_wire(topology, 2, topology_node_bandwidth(topology)));
	return fmax(inside, across);
}

double lower_bound(
	const struct plan *plan, const struct model *model, const struct topology *topology)
{
	return fmax(compute_bound(plan, model, topology),
		fmax(optimizer_bound(plan, model, topology), network_bound(plan, model, topology)));
}

/* --- what this plan must do ------------------------------------------------------------------- */

/* The bytes that must leave each node, whatever the algorithm: every node's partial sums once,
 * every node's results once. */
static double least_egress(const struct schedule *schedule, const struct op *op)
{
	const struct group *group = &schedule->groups[op->group];
	struct placement placement = topology_place(schedule->topology, group->size, group->stride);

	if (placement.nodes <= 1)
		return 0;
	double least = (double)placement.groups_per_node *
		       collective_wire_bytes(op->kind, placement.nodes, op->bytes);

	return op->kind == OP_ALL_TO_ALL ? fmin(least, op_node_egress(schedule, op)) : least;
}

static double range_flops(
	const struct schedule *schedule, const struct model *model, const struct op *op)
{
	const struct plan *plan = &schedule->plan;
	enum pass pass = compute_pass(op->kind);
	double flops = 0;

	for (int i = op->first_module; i < op->end_module && op->kind != OP_LOSS; i++) {
		struct module_work work;

		if (!module_kind_is_leaf(model->modules[i].kind))
			continue;
		model_module_work(model, i, pass, plan->micro_batch, plan->seq_len, 1,
			plan_attending(plan), &work);
		flops += product_weight(plan, model, schedule->topology, i) * product_flops(&work) +
			 op_rounds(op) * work.attention_flops / (double)plan_attention_rounds(plan);
	}
	return flops;
}

/* What an operation takes of the resources that a class has alone. */
struct need {
	double flops, optimizer, egress, copied[2];
};

static struct need need_of(
	const struct schedule *schedule, const struct program *program, const struct op *op)
{
	struct need need = {0};

	if (op_kind_class(op->kind) == OP_CLASS_COMPUTE)
		need.flops = range_flops(schedule, program->model, op);
	if (op->kind == OP_OPTIMIZER && op->stream != STREAM_HOST)
		need.optimizer = (double)op->bytes;
	if (op_kind_class(op->kind) == OP_CLASS_COPY)
		need.copied[op->kind == OP_COPY_D2H] = (double)op->bytes;
	if (op_kind_class(op->kind) == OP_CLASS_COLLECTIVE)
		need.egress = least_egress(schedule, op);
	return need;
}

/* The bound of one class. Operations of one cost need the same. */
static double class_lower_bound(const struct engine *engine, const struct machine *machine)
{
	const struct topology *topology = engine->topology;
	const struct cost_table *costs = &engine->costs;
	double *times = ARENA_ARRAY(engine->arena, double, costs->n);
	struct need all = {0};
	double bound;

	for (int i = 0; i < engine->n_ops; i++)
		times[costs->of[i]] += engine_times(engine, i);
	for (int i = 0; i < costs->n; i++) {
		const struct op *op = &engine->program->ops[costs->examples[i]];
		struct need need = need_of(engine->schedule, engine->program, op);

		all.flops += times[i] * need.flops;
		all.optimizer += times[i] * need.optimizer;
		all.egress += times[i] * need.egress;
		all.copied[0] += times[i] * need.copied[0];
		all.copied[1] += times[i] * need.copied[1];
	}
	bound = quotient(all.flops, most_flops(machine));
	bound = fmax(bound, quotient(all.optimizer, most_memory_bandwidth(topology)));
	bound = fmax(bound, quotient(fmax(all.copied[0], all.copied[1]), machine->link_bandwidth));
	if (topology->nodes > 1)
		bound = fmax(
			bound, quotient(all.egress, most_wire(topology, topology->nodes,
							    topology_node_bandwidth(topology))));
	return bound;
}

double plan_lower_bound(const struct engines *engines)
{
	const struct schedule *schedule = engines->of[0].schedule;
	struct machine machine;
	double bound;

	machine_init(&machine, schedule->topology, NULL, schedule->plan.param_dtype);
	bound = lower_bound(&schedule->plan, schedule->model, schedule->topology);
	bound = fmax(bound, plan_loader_time(&schedule->plan));
	for (int c = 0; c < engines->n; c++)
		bound = fmax(bound, class_lower_bound(&engines->of[c], &machine));
	return bound;
}
