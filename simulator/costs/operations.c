/* The cost of each operation of a schedule. Blocks repeat, so costs are cached by what they depend
 * on. */
#include "simulator/costs/costs.h"

#include <math.h>
#include <stdlib.h>

#include "schedule/pipeline/pipeline.h"
#include "simulator/costs/collectives.h"
#include "simulator/costs/compute.h"
#include "simulator/costs/executor_kernels.h"
#include "simulator/costs/messages.h"
#include "simulator/devices/devices.h"

/* foreach AdamW: nine passes (docs/cost-model.md), each over all tensors at once. */
enum { OPTIMIZER_KERNELS = 9, MEMORY_SIZE = 128 };

/* Latency of one copy over the host link, s. */
static const double copy_latency = 10e-6;

/* What determines an operation's cost: two operations with equal keys cost the same. */
struct key {
	enum op_kind kind;
	int group, peer;
	int rounds;
	int first, end; /* relative to the block, so that blocks have equal keys */
	bool in_block, on_host, adds, exchanges, captured;
	int64_t bytes;
};

struct costing {
	const struct schedule *schedule;
	const struct program *program;
	int class;
	const struct runtime *runtime;
	struct machine machine;
	double slowdown;                 /* of arithmetic, by the slowest device */
	double factors[STEP_WORK_COUNT]; /* time in measured steps / time by the model */
	int n, capacity;
	struct key keys[MEMORY_SIZE]; /* of the first costs */
	struct priced {
		struct cost cost;
		int example;
		int fed; /* the same for the first operation of a micro-batch; -1: none has it yet
			  */
	} * priced;      /* malloc'ed */
};

static int block_of(const struct model *model, int module)
{
	while (module > 0 && model->modules[module].kind != MODULE_BLOCK)
		module = model->modules[module].parent;
	return module;
}

/* How many rows each expert gets; DeepEP's own kernels exchange that with the rows. */
static bool counts_rows(const struct plan *plan, const struct op *op)
{
	return op->kind == OP_ALL_GATHER && op->stream == STREAM_EXPERT &&
	       plan->expert_dispatch == DISPATCH_ALL_TO_ALL;
}

/* Does a CUDA graph hold the operation? For operations that compute, compute_range_cost asks by
 * leaf. Passes as one graph do not hold the update (Megatron-LM's full_cuda_graph.py). */
static bool is_captured(const struct costing *costing, const struct op *op)
{
	const struct plan *plan = &costing->schedule->plan;
	unsigned scope = plan->cuda_graph_scope.of;
	if (scope == 0 || scope & GRAPH_BIT(FULL_ITERATION))
		return scope != 0 && op->micro_batch >= 0;
	if (counts_rows(plan, op))
		return scope & (GRAPH_BIT(MOE_PREPROCESS) | GRAPH_BIT(MOE));
	return op_exchanges(op) && plan_captures(plan, costing->program->model, op->first_module);
}

static struct key key_of(const struct costing *costing, const struct op *op)
{
	struct key key = {.kind = op->kind,
		.group = op->group,
		.peer = op->message.peer,
		.bytes = op->bytes,
		.on_host = op->stream == STREAM_HOST};

	key.exchanges = op_exchanges(op);
	key.captured = is_captured(costing, op);
	if (op_kind_class(op->kind) != OP_CLASS_COMPUTE && op->stream != STREAM_PEER)
		return key;
	key.rounds = op->rounds;
	key.first = op->first_module;
	key.end = op->end_module;
	key.in_block = op->layer >= 0;
	if (key.in_block &&
		plan_captures(&costing->schedule->plan, costing->program->model, op->first_module))
		key.captured = true;
	key.adds = compute_adds_gradients(costing->schedule, op);
	if (key.in_block) {
		int block = block_of(costing->program->model, op->first_module);

		key.first -= block;
		key.end -= block;
	}
	return key;
}

static bool keys_equal(const struct key *a, const struct key *b)
{
	return a->kind == b->kind && a->bytes == b->bytes && a->first == b->first &&
	       a->rounds == b->rounds && a->end == b->end && a->group == b->group &&
	       a->peer == b->peer && a->in_block == b->in_block && a->on_host == b->on_host &&
	       a->adds == b->adds && a->exchanges == b->exchanges && a->captured == b->captured;
}

double cost_host_factor(const struct topology *topology)
{
	double factor = topology->calibration.host_factor;

	return factor > 0 ? factor : 1;
}

/* The Python around a collective: FSDP's hooks; autograd functions between layers. */
static double host_beside(const struct runtime *runtime, const struct op *op)
{
	bool collective = op_kind_class(op->kind) == OP_CLASS_COLLECTIVE;

	if (op->unit >= 0)
		return collective || op->kind == OP_RESHARD ? runtime->host_per_hook : 0;
	return op_exchanges(op) ? runtime->host_per_exchange : 0;
}

/* The issuing thread's time: a launch per kernel or graph, and what is around collectives. A
 * calibration knows the whole of an operation. */
static void host_cost(
	const struct costing *costing, const struct op *op, double launches, struct cost *cost)
{
	const struct runtime *runtime = costing->runtime;
	const struct topology *topology = costing->schedule->topology;
	double measured = topology->calibration.host_overhead, factor = cost_host_factor(topology);
	if (launches == 0)
		return;
	if (measured > 0) {
		cost->host = cost->host_before = factor * measured;
		return;
	}
	double kernel = plan_host_per_kernel(&costing->schedule->plan);
	cost->host_before = factor * (kernel + host_beside(runtime, op));
	cost->host = cost->host_before;
	if (launches > 1)
		cost->host += factor * (launches - 1) * kernel;
}

static double compute_cost(const struct costing *costing, const struct op *op, struct cost *cost)
{
	if (op->kind == OP_LOSS)
		return compute_loss_cost(
			&costing->machine, costing->schedule, costing->program->model, cost);
	return compute_range_cost(
		&costing->machine, costing->schedule, costing->program->model, op, cost);
}

/* The launches of chunks, in kernels that the issuing thread launches: a layer's library does them
 * without Python between them, in 4 us each [U]. */
static double chunk_launches(const struct plan *plan, double launches)
{
	static const double launch = 4e-6;

	return runtime_of(plan->runtime)->layers_exchange
		       ? launches * launch / plan_host_per_kernel(plan)
		       : launches;
}

/* The communication beside a product, in as many chunks as ranks: each chunk has the products of
 * all leaves, a copy and two barriers. */
static double communicate_beside(const struct costing *costing, const struct op *op,
	enum collective_kind kind, struct cost *cost)
{
	const struct group *group = &costing->schedule->groups[op->group];
	struct op product = *op;
	struct cost whole = {0};
	double ranks = (double)group->size, leaves = op->end_module - op->first_module;

	product.kind = OP_FORWARD;
	compute_cost(costing, &product, &whole);
	collective_beside_cost(&costing->machine, costing->runtime, kind, group, op->bytes,
		whole.device / ranks, cost);
	if (kind == COLLECTIVE_REDUCE_SCATTER && costing->schedule->plan.fp8 == FP8_OFF)
		cost->multiprocessors = costing->runtime->sum_multiprocessors;
	return chunk_launches(&costing->schedule->plan, (ranks - 1) * (leaves + 3));
}

/* Returns the kernels that are launched. */
static double communicate(const struct costing *costing, const struct op *op, struct cost *cost)
{
	enum collective_kind kind;

	if (!collective_kind_of(op->kind, &kind))
		return 1;
	if (op->stream == STREAM_PEER)
		return communicate_beside(costing, op, kind, cost);
	if (is_deepep(costing->schedule, op)) {
		deepep_cost(&costing->machine, costing->schedule, op, cost);
		return 1;
	}
	collective_cost(&costing->machine, costing->runtime, kind,
		&costing->schedule->groups[op->group], op->bytes, cost);
	return 1;
}

static void copy_cost(const struct machine *machine, const struct op *op, struct cost *cost)
{
	cost->device = copy_latency;
	cost->link_load = op->kind == OP_COPY_H2D;
	cost->link_out_load = op->kind == OP_COPY_D2H;
	if (machine->link_bandwidth > 0)
		cost->device += (double)op->bytes / machine->link_bandwidth;
}

static void slow_down(struct cost *cost, double slowdown)
{
	cost->device *= slowdown;
	cost->late *= slowdown;
	cost->arithmetic *= slowdown;
	cost->memory *= slowdown;
	cost->unaligned *= slowdown;
}

/* The slowest of many devices sets the pace. */
static void wait_for_slowest(const struct costing *costing, struct cost *cost)
{
	double alone = cost->device;

	slow_down(cost, costing->slowdown);
	cost->late = cost->device - alone;
}

/* B/s of what the operation reads and writes. */
static double traffic_bandwidth(const struct machine *machine, const struct op *op)
{
	if (op->stream == STREAM_HOST)
		return machine->host_bandwidth;
	return op->kind == OP_OPTIMIZER ? machine->optimizer_bandwidth : machine->memory_bandwidth;
}

/* The bytes that the operation reads and writes, which a schedule states for a pass over its
 * operands. */
static double traffic_bytes(const struct costing *costing, const struct op *op)
{
	bool factor = op->kind == OP_CLIP_GRADIENTS && costing->runtime->clips_in_update &&
		      costing->machine.gpu && op->stream != STREAM_HOST;

	return factor ? 0 : (double)op->bytes;
}

/* Our own optimizer updates parameter by parameter. */
static double update_kernels(const struct costing *costing, const struct op *op)
{
	return op->unit >= 0 && own_kernels(&costing->machine, costing->schedule)
		       ? costing->program->units[op->unit].n_slices
		       : OPTIMIZER_KERNELS;
}

/* The update of one unit, or of all units. */
static int parameters_of(const struct costing *costing, const struct op *op)
{
	const struct program *program = costing->program;
	int n = 0;

	for (int u = 0; u < program->n_units; u++)
		n += op->unit < 0 || op->unit == u ? program->units[u].n_slices : 0;
	return n;
}

/* nanotron's Llama has q, k and v in one parameter, and gate and up. */
static int merged_parameters(const struct program *program)
{
	const struct model *model = program->model;
	int n = 0;

	for (int u = 0; u < program->n_units; u++)
		for (int i = 0; i < program->units[u].n_slices; i++) {
			int parameter = program->units[u].slices[i].parameter;
			enum module_kind kind =
				model->modules[model->parameters[parameter].module].kind;

			n += kind != MODULE_KEY && kind != MODULE_VALUE && kind != MODULE_GATE;
		}
	return n;
}

/* It copies what it gathers (distributed.py, all_gather_coalesced): of each rank one launch puts
 * its parts together and one takes them out of what came, and each parameter's part goes back by a
 * launch of its own. 0: nothing is copied. */
static double copies_back(const struct costing *costing, const struct op *op)
{
	const struct zero_rules *zero = costing->runtime->zero;
	const struct schedule *schedule = costing->schedule;

	if (op->kind != OP_CAST_PARAMETERS || op->unit >= 0 || zero == NULL ||
		!zero->copies_gathered)
		return 0;
	for (int g = 0; g < schedule->n_groups; g++)
		if (schedule->groups[g].kind == GROUP_SHARD && schedule->groups[g].size > 1)
			return (double)schedule->groups[g].size *
			       (merged_parameters(costing->program) + 2);
	return 0;
}

static double traffic_kernels(const struct costing *costing, const struct op *op)
{
	double copies = copies_back(costing, op);

	if (copies > 0)
		return copies;
	if (op->kind == OP_OPTIMIZER)
		return update_kernels(costing, op);
	return costing->runtime->by_parameter && op->stream == STREAM_COMPUTE
		       ? fmax(1, parameters_of(costing, op))
		       : 1;
}

/* A copy in eight bytes of gradients in the compute dtype is written and read again. */
static double norm(const struct costing *costing, const struct op *op, struct cost *cost)
{
	const struct plan *plan = &costing->schedule->plan;
	const struct zero_rules *zero = costing->runtime->zero;
	bool doubles = zero != NULL && zero->doubles_norm && op->stream == STREAM_COMPUTE;
	int64_t elements = op->bytes / dtype_bytes(plan_optimizer_gradient_dtype(plan));
	int64_t bytes = doubles ? elements * (dtype_bytes(plan->param_dtype) + 16) : op->bytes;

	compute_norm_cost(&costing->machine, costing->schedule, (double)bytes, cost);
	return doubles ? 2 * fmax(1, parameters_of(costing, op)) : traffic_kernels(costing, op);
}

static double traffic(const struct costing *costing, const struct op *op, struct cost *cost)
{
	const struct machine *machine = &costing->machine;
	double kernels = traffic_kernels(costing, op);

	if (op->kind == OP_GRADIENT_NORM)
		return norm(costing, op, cost);
	traffic_cost(
		machine, traffic_bytes(costing, op), traffic_bandwidth(machine, op), kernels, cost);
	return kernels;
}

/* The factors of measured steps (calibration) are for work that is named as its operation. */
static double step_factor(const struct costing *costing, enum op_kind kind)
{
	static const struct {
		enum op_kind kind;
		enum step_work work;
	} works[] = {
#define X(suffix, name) {OP_##suffix, STEP_##suffix},
		STEP_WORKS(X)
#undef X
	};

	if (op_kind_is_backward(kind))
		kind = OP_BACKWARD;
	for (int i = 0; i < COUNT_OF(works); i++)
		if (works[i].kind == kind)
			return costing->factors[works[i].work];
	return 1;
}

static void init_factors(struct costing *costing)
{
	const struct topology *topology = costing->schedule->topology;
	enum mlp_kind kind = costing->schedule->model->architecture.mlp;
	enum step_mlp mlp =
		kind == MLP_SWIGLU || kind == MLP_GEGLU ? STEP_MLP_GATED : STEP_MLP_PLAIN;
	double more = (double)topology_rank_threads(topology) - 1;
	double all = more > 0 ? more / ((double)topology->host.cores - 1) : 0;
	/* On a GPU small models run cooler than large ones: their factors made steps of large ones
	 * worse, and are a check of the kernels' rates only (docs/cost-model.md). */
	bool gpu = costing->machine.gpu;

	for (int work = 0; work < STEP_WORK_COUNT; work++)
		costing->factors[work] =
			gpu ? 1
			    : calibration_step_factor(&topology->calibration, mlp,
				      costing->machine.dtype, (enum step_work)work, all);
}

/* Launches of exchanges that stand in compute's queue: one an operation, and the event that tells
 * when what it read is free. */
static double exchanges_beside(const struct costing *costing, const struct op *op)
{
	const struct plan *plan = &costing->schedule->plan;
	bool beside = runtime_of(plan->runtime)->one_launch_queue && plan->mesh.tensor > 1 &&
		      op_kind_class(op->kind) == OP_CLASS_COMPUTE;

	return beside ? 2 : 0;
}

static struct cost cost_of(const struct costing *costing, const struct op *op)
{
	const struct machine *machine = &costing->machine;
	struct cost cost = {0};
	double launches = 1;

	switch (op_kind_class(op->kind)) {
	case OP_CLASS_COMPUTE:
		launches = compute_cost(costing, op, &cost);
		wait_for_slowest(costing, &cost);
		break;
	case OP_CLASS_TRAFFIC:
		launches = traffic(costing, op, &cost);
		if (op->stream != STREAM_HOST)
			wait_for_slowest(costing, &cost);
		break;
	case OP_CLASS_COLLECTIVE:
		launches = communicate(costing, op, &cost);
		break;
	case OP_CLASS_COPY:
		copy_cost(machine, op, &cost);
		break;
	case OP_CLASS_MESSAGE:
		message_cost(machine, costing->schedule, costing->class, op, &cost);
		break;
	case OP_CLASS_MARK:
		break;
	}
	slow_down(&cost, step_factor(costing, op->kind));
	if (is_captured(costing, op))
		launches = 0;
	cost.kernels = fmax(1, launches) + exchanges_beside(costing, op);
	host_cost(costing, op, launches, &cost);
	return cost;
}

static int add_cost(struct costing *costing, const struct key *key, struct cost cost, int example)
{
	int n = costing->n++;

	costing->priced = array_grow(
		costing->priced, &costing->capacity, costing->n, sizeof(*costing->priced));
	costing->priced[n] = (struct priced){cost, example, -1};
	if (n < MEMORY_SIZE)
		costing->keys[n] = *key;
	return n;
}

static int remembered(struct costing *costing, int index)
{
	const struct op *op = &costing->program->ops[index];
	struct key key = key_of(costing, op);
	int n = costing->n < MEMORY_SIZE ? costing->n : MEMORY_SIZE;

	for (int i = 0; i < n; i++)
		if (keys_equal(&costing->keys[i], &key))
			return i;
	return add_cost(costing, &key, cost_of(costing, op), index);
}

/* Adds the host's time for the batch that it brings first. */
static int fed(struct costing *costing, int cost, double batch, int index)
{
	static const struct key none = {.kind = OP_KIND_COUNT};
	struct cost with = costing->priced[cost].cost;

	if (batch == 0)
		return cost;
	if (costing->priced[cost].fed >= 0)
		return costing->priced[cost].fed;
	with.host += batch;
	with.host_before += batch;
	int other = add_cost(costing, &none, with, index);
	costing->priced[cost].fed = other;
	return other;
}

double cost_batch(const struct plan *plan, const struct topology *topology)
{
	const struct runtime *runtime = runtime_of(plan->runtime);
	double bytes = (double)(plan->micro_batch * plan->seq_len * runtime->batch_token_bytes);
	double link = machine_link_bandwidth(topology);
	double seconds = cost_host_factor(topology) * runtime->host_per_micro_batch;

	if (topology->device.kind != DEVICE_GPU)
		return seconds;
	return seconds + copy_latency + (link > 0 ? bytes / link : 0);
}

/* Over a network it lasts as long as a message is on its way. */
double cost_step_exchange(const struct schedule *schedule)
{
	const struct topology *topology = schedule->topology;
	const struct runtime *runtime = runtime_of(schedule->plan.runtime);
	const struct libraries libraries = plan_libraries(&schedule->plan);
	const struct group all = {.size = plan_ranks(&schedule->plan), .stride = 1};

	if (topology->device.kind == DEVICE_GPU || runtime->step_exchange_bytes == 0)
		return 0;
	return cost_collective_choice(topology, &libraries, runtime, COLLECTIVE_ALL_GATHER, &all,
		all.size * runtime->step_exchange_bytes)
		.seconds;
}

/* Tokens go into the first stage of a pipeline, targets into the last one. */
static bool is_fed(const struct plan *plan, int class)
{
	const struct pipeline pipeline = plan_pipeline(plan);
	int last, chunk;

	pipeline_place(&pipeline, pipeline.ranks * pipeline.chunks - 1, &last, &chunk);
	return class == 0 || class == last;
}

static struct cost_table table_of(struct costing *costing, int *of, struct arena *arena)
{
	struct cost_table table = {.n = costing->n,
		.costs = ARENA_ARRAY(arena, struct cost, costing->n),
		.examples = ARENA_ARRAY(arena, int, costing->n),
		.of = of};

	for (int i = 0; i < costing->n; i++) {
		table.costs[i] = costing->priced[i].cost;
		table.examples[i] = costing->priced[i].example;
	}
	free(costing->priced);
	return table;
}

struct cost_table cost_table(const struct schedule *schedule, int class, struct arena *arena)
{
	const struct program *program = &schedule->programs[class];
	const struct libraries libraries = plan_libraries(&schedule->plan);
	struct costing costing = {.schedule = schedule,
		.program = program,
		.class = class,
		.runtime = runtime_of(schedule->plan.runtime)};
	double batch = is_fed(&schedule->plan, class)
			       ? cost_batch(&schedule->plan, schedule->topology)
			       : 0;
	int micro_batch = -1;
	int *of = ARENA_ARRAY(arena, int, program->n_ops);

	machine_init(&costing.machine, schedule->topology, &libraries, schedule->plan.param_dtype);
	costing.slowdown = straggler_of_stages(schedule);
	init_factors(&costing);
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];

		of[i] = remembered(&costing, i);
		if (op->micro_batch <= micro_batch)
			continue;
		micro_batch = op->micro_batch;
		of[i] = fed(&costing, of[i], batch, i);
	}
	return table_of(&costing, of, arena);
}

void cost_operations(const struct schedule *schedule, int class, struct cost *costs)
{
	struct arena arena = {0};
	const struct cost_table table = cost_table(schedule, class, &arena);

	for (int i = 0; i < schedule->programs[class].n_ops; i++)
		costs[i] = table.costs[table.of[i]];
	arena_finish(&arena);
}
