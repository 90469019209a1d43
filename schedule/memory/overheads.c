/* Counts memory outside of the schedule's buffers (docs/runtimes.md). */
#include "schedule/memory/memory.h"

static int64_t given_or(int64_t given, int64_t usual)
{
	return given > 0 ? given : usual;
}

/* Groups that one engine serves share its communicator. A single rank needs none. */
static bool makes_communicator(const struct schedule *schedule, int group)
{
	if (schedule->groups[group].size <= 1)
		return false;
	for (int i = 0; i < group; i++)
		if (schedule->groups[i].size > 1 &&
			schedule->groups[i].engine == schedule->groups[group].engine)
			return false;
	return true;
}

/* A context used to load all kernels, until PyTorch 1.13 asked CUDA 11.7 to load each when it is
 * first called. That took 0.90 and 0.92 GiB instead of 0.47 on an A100, and 1.78 GiB with PyTorch
 * 1.10 (stas00/ml-engineering). */
static int64_t context_bytes(const struct runtime *runtime, const struct libraries *libraries)
{
	enum { MIB = 1 << 20 };

	if (library_before(libraries, LIBRARY_PYTORCH, LIBRARY_VERSION(1, 11)))
		return max_i64(runtime->context_bytes, 1820 * MIB);
	if (library_before(libraries, LIBRARY_PYTORCH, LIBRARY_VERSION(1, 13)) ||
		library_before(libraries, LIBRARY_CUDA, LIBRARY_VERSION(11, 7)))
		return max_i64(runtime->context_bytes, 920 * MIB);
	return runtime->context_bytes;
}

/* Before 2.22 NCCL also connected trees, whether they were used or not: 544 MiB in a group of two,
 * and 688 MiB in larger ones, of 4 A100 with NVLink (NVIDIA/nccl issue 964). */
static int64_t communicator_bytes(
	const struct runtime *runtime, const struct libraries *libraries, int64_t size)
{
	enum { MIB = 1 << 20 };

	if (runtime->communicator_bytes > 0 &&
		library_before(libraries, LIBRARY_NCCL, LIBRARY_VERSION(2, 22)))
		return (size == 2 ? 544 : 688) * MIB;
	return runtime->communicator_bytes;
}

/* The figure that a topology gives for one communicator includes NCCL's own share. */
static int64_t communicators_bytes(const struct schedule *schedule, const struct runtime *runtime,
	const struct libraries *libraries)
{
	int64_t given = schedule->topology->overheads.communicator_bytes, sum = 0;

	for (int i = 0; i < schedule->n_groups; i++)
		if (makes_communicator(schedule, i))
			sum += given_or(given,
				communicator_bytes(runtime, libraries, schedule->groups[i].size));
	return sum > 0 && given == 0 ? sum + runtime->nccl_bytes : sum;
}

/* DeepEP's buffers, outside of PyTorch's allocator (v1, csrc/legacy/config.hpp and
 * deep_ep/buffers/legacy.py; 20 multiprocessors, as Megatron-Core has it): for each of 10 channels
 * so many tokens of each rank of a node, and of each node, both ways, with room for 128 experts and
 * scales of each. Version 2 takes more. */
static int64_t deepep_bytes(const struct schedule *schedule)
{
	enum { CHANNELS = 10, PEERS = 8, FAR = 128, ROOM = 128 * 16 };
	const struct plan *plan = &schedule->plan;
	int64_t ranks = plan->mesh.expert;
	int64_t near = ranks <= PEERS ? 256 : ranks <= 64 ? 288 : ranks <= 128 ? 560 : 720;
	int64_t token = 2 * schedule->model->architecture.hidden + ROOM;
	int64_t across = ranks > PEERS ? ranks / PEERS * 2 * FAR : 0;

	if (plan->expert_dispatch != DISPATCH_DEEPEP)
		return 0;
	return CHANNELS * token * (min_i64(ranks, PEERS) * near + across);
}

struct fixed_memory schedule_fixed_memory(const struct schedule *schedule)
{
	const struct runtime *runtime = runtime_of(schedule->plan.runtime);
	const struct overheads *given = &schedule->topology->overheads;
	const struct libraries libraries = plan_libraries(&schedule->plan);
	struct fixed_memory fixed = {
		.context = given_or(given->context_bytes, context_bytes(runtime, &libraries))};

	if (schedule->topology->device.kind == DEVICE_CPU)
		return (struct fixed_memory){.context = runtime->process_bytes};
	fixed.communicators =
		communicators_bytes(schedule, runtime, &libraries) + deepep_bytes(schedule);
	return fixed;
}
