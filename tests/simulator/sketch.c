#include "sketch.h"

#include <math.h>
#include <string.h>

static void init_topology(struct sketch *sketch, double host)
{
	struct topology *t = &sketch->topology;

	*t = (struct topology){.name = "sketch",
		.nodes = 1,
		.devices_per_node = SKETCH_RANKS,
		.device = {.name = "toy",
			.kind = DEVICE_GPU,
			.generation = GENERATION_AMPERE,
			.memory_bytes = INT64_C(1) << 40,
			.memory_bandwidth = 1e12,
			.fp32_flops = 1e13,
			.bf16_flops = 1e14,
			.multiprocessors = 100},
		.fabric = {FABRIC_NVSWITCH, 0.75e9, 1e-6, 12},
		.network = {.kind = NETWORK_NONE},
		.host = {INT64_C(1) << 40, 1e11, 64, 1e10, CPU_AMD},
		.calibration = {.measured = true,
			.memory_bandwidth = 1e12,
			.optimizer_bandwidth = 1e12,
			.kernel_overhead = 1e-18,
			.host_overhead = host > 0 ? host : 1e-18,
			.n_collectives = 3,
			.collectives = sketch->pieces}};
	for (int i = 0; i < 3; i++)
		sketch->pieces[i] =
			(struct calibration_collective){.collective = (enum collective_kind)i,
				.ranks = SKETCH_RANKS,
				.nodes = 1,
				.bandwidth = 1e9};
}

void make_processes(struct topology *topology)
{
	topology->device.kind = DEVICE_CPU;
	topology->device.generation = GENERATION_CPU;
	topology->shares_host = true;
}

void sketch_init(struct sketch *sketch, double host)
{
	struct model *model;
	struct error error = {0};

	memset(sketch, 0, sizeof(*sketch));
	init_topology(sketch, host);
	assert_true(model_load_preset(&sketch->arena, "gpt2-nano", &model, &error));
	for (int i = 0; i < 2; i++)
		sketch->groups[i] = (struct group){GROUP_SHARD, SKETCH_RANKS, 1, i};
	sketch->program.model = model;
	sketch->schedule = (struct schedule){.arena = &sketch->arena,
		.plan = {.strategy = STRATEGY_FULL_SHARD,
			.mesh = {1, SKETCH_RANKS, 1, 1, 1, 1},
			.reshard_after_forward = rows_of_reshard(true),
			.wrap = wrap_of_kind(WRAP_BLOCK),
			.activation_checkpointing = rows_of_checkpointing(CHECKPOINTING_NONE),
			.cpu_offload = rows_of_offload(OFFLOAD_NONE),
			.libraries = libraries_unknown,
			.runtime = RUNTIME_PYTORCH_FSDP1,
			.seq_len = 1,
			.micro_batch = 1,
			.grad_accum = 1,
			.global_batch = SKETCH_RANKS},
		.model = model,
		.topology = &sketch->topology,
		.n_groups = 2,
		.groups = sketch->groups,
		.n_engines = 2,
		.n_classes = 1,
		.programs = &sketch->program};
	/* No contention unless a test asks for it: wires and memory are wide. */
	sketch->topology.fabric.bandwidth = 1e21;
	sketch->topology.device.memory_bandwidth = 1e21;
	sketch->topology.device.multiprocessors = 0;
}

void sketch_finish(struct sketch *sketch)
{
	arena_finish(&sketch->arena);
}

static int add(struct sketch *sketch, enum op_kind kind, enum stream stream)
{
	int op = sketch->program.n_ops++;

	assert_true(op < SKETCH_OPS);
	sketch->ops[op] = (struct op){.kind = kind,
		.stream = stream,
		.unit = -1,
		.micro_batch = -1,
		.group = -1,
		.layer = -1};
	return op;
}

int sketch_traffic(struct sketch *sketch, enum stream stream, double seconds)
{
	int op = add(sketch, OP_CAST_PARAMETERS, stream);

	sketch->ops[op].bytes = (int64_t)llround(seconds * 1e12);
	return op;
}

int sketch_gather(struct sketch *sketch, enum stream stream, int engine, double seconds)
{
	int op = add(sketch, OP_ALL_GATHER, stream);

	sketch->ops[op].bytes = (int64_t)llround(seconds * 1e9);
	sketch->ops[op].group = engine;
	return op;
}

int sketch_mark(struct sketch *sketch)
{
	return add(sketch, OP_RESHARD, STREAM_COMPUTE);
}

int sketch_buffer(struct sketch *sketch, enum buffer_role role, enum stream pool, int64_t bytes)
{
	int buffer = sketch->program.n_buffers++;

	assert_true(buffer < SKETCH_OPS);
	sketch->buffers[buffer] = (struct buffer){
		.role = role, .pool = pool, .unit = -1, .layer = -1, .bytes = bytes};
	return buffer;
}

void sketch_link(struct sketch *sketch, int op, enum link link, int target)
{
	int *n = &sketch->n_links[op][link];

	assert_true(*n < SKETCH_LINKS);
	sketch->links[op][link][(*n)++] = target;
}

static struct slice lay_out(struct sketch *sketch, int op, enum link link)
{
	struct slice slice = {sketch->program.n_indices, sketch->n_links[op][link]};

	memcpy(sketch->indices + slice.first, sketch->links[op][link],
		(size_t)slice.count * sizeof(int));
	sketch->program.n_indices += slice.count;
	return slice;
}

bool sketch_try(struct sketch *sketch, struct error *error)
{
	sketch->program.n_indices = 0;
	for (int i = 0; i < sketch->program.n_ops; i++) {
		struct op *op = &sketch->ops[i];

		op->waits = lay_out(sketch, i, LINK_WAIT);
		op->host_waits = lay_out(sketch, i, LINK_HOST_WAIT);
		op->takes = lay_out(sketch, i, LINK_TAKE);
		op->gives = lay_out(sketch, i, LINK_GIVE);
		op->uses = lay_out(sketch, i, LINK_USE);
	}
	sketch->program.ops = sketch->ops;
	sketch->program.buffers = sketch->buffers;
	sketch->program.indices = sketch->indices;
	return simulate(&sketch->schedule, &sketch->options, true, &sketch->arena,
		&sketch->simulation, error);
}

void sketch_run(struct sketch *sketch)
{
	struct error error = {0};

	if (!sketch_try(sketch, &error))
		fail_msg("%s", error.message);
}

const struct span *sketch_span(const struct sketch *sketch, int op)
{
	return &sketch->simulation.timeline.spans[op];
}

void assert_seconds(double got, double expected)
{
	if (!(fabs(got - expected) <= 1e-12 + 1e-9 * fabs(expected)))
		fail_msg("expected %.15g s, got %.15g s", expected, got);
}

struct topology load_topology(struct arena *arena, const char *name)
{
	struct topology *topology;
	struct error error = {0};

	if (!topology_load_name(arena, name, &topology, &error))
		fail_msg("%s", error.message);
	return *topology;
}

double collective_seconds(const struct topology *topology, const struct libraries *libraries,
	const struct runtime *runtime, enum op_kind kind, const struct group *group, int64_t bytes)
{
	enum collective_kind collective = COLLECTIVE_ALL_GATHER;

	assert_true(collective_kind_of(kind, &collective));
	return cost_collective_choice(topology, libraries, runtime, collective, group, bytes)
		.seconds;
}

static void more_links(struct topology *t)
{
	t->fabric.bandwidth *= 1.3;
}
static void more_network(struct topology *t)
{
	t->network.nic_bandwidth *= 1.3;
}
static void more_nics(struct topology *t)
{
	t->network.nics_per_node *= 2;
}
static void less_latency(struct topology *t)
{
	t->fabric.latency *= 0.7;
	t->network.latency *= 0.7;
}
static void less_congestion(struct topology *t)
{
	t->network.congestion = 1;
}

void (*const better_links[BETTER_LINKS])(struct topology *t) = {
	more_links, more_network, more_nics, less_latency, less_congestion};
