#include "executor/training/open_gpu.h"

#include <stdio.h>
#include <string.h>

#include "executor/compute/compute.h"
#include "executor/transports/transports.h"

/* --- whose GPU is which --- */

/* Slurm, for one, can show each task the GPU that it gave it, and no other one. */
static bool sees_its_own(bool launched, int gpus)
{
	return launched && gpus == 1;
}

bool gpu_choose(const char *name, int ranks, bool launched, const struct gpu_transport **transport,
	int *gpus, struct error *error)
{
	const struct gpu_transport *const *usual = gpu_transports;

	if (!device_cuda_available(gpus, error))
		return false;
	bool each = *gpus >= ranks || sees_its_own(launched, *gpus);
	while ((*usual)->apart && (!each || ranks == 1))
		usual++;
	*transport = name != NULL ? gpu_transport_find(name) : *usual;
	if (*transport == NULL)
		return error_set(error, EXIT_CODE_USAGE, "no such transport: %s", name);
	if ((*transport)->apart && !each)
		return error_set(error, EXIT_CODE_USAGE,
			"transport %s: %d ranks need a GPU each, this machine has %d; "
			"use --transport device, which lets ranks share one",
			name, ranks, *gpus);
	return true;
}

static bool is_launched(const struct segment *segment)
{
	return segment->header->job.meets != MEETS_HERE;
}

int gpu_of_rank(const struct segment *segment, const struct cluster *cluster, int gpus)
{
	int local = cluster->layout.rank % cluster->layout.per_node;

	return sees_its_own(is_launched(segment), gpus) ? 0 : local;
}

int gpu_blocks_beside(const struct gpu *gpu, const struct job *job)
{
	if (!gpu->transport->apart || job->ranks == 1)
		return 0;
	return job->nccl.max_ctas > 0 ? job->nccl.max_ctas : KERNELS_SOME;
}

/* --- a rank's --- */

/* Measures before this process has a context there, though others may have one. */
static int64_t used_before(int ordinal)
{
	struct error ignored = {0};
	const struct cuda_api *api = cuda_api(&ignored);
	struct gpu_uuid name;
	char text[48];
	int device = 0;

	if (api == NULL || api->cuDeviceGet(&device, ordinal) != 0 ||
		api->cuDeviceGetUuid(name.bytes, device) != 0)
		return -1;
	gpu_uuid_print(&name, text, sizeof(text));
	return gpu_memory_in_use(text);
}

/* Keeps threads, pinned memory and what the host updates near the GPU. Ranks that share a GPU need
 * all cores. */
static void stay_near(int ordinal)
{
	struct error ignored = {0};
	const struct cuda_api *api = cuda_api(&ignored);
	char bus_id[32] = "";
	int device = 0;

	if (api != NULL && api->cuDeviceGet(&device, ordinal) == 0 &&
		api->cuDeviceGetPCIBusId(bus_id, sizeof(bus_id) - 1, device) == 0)
		near_stay(bus_id);
}

static int64_t widest_leaf(const struct model *model)
{
	int64_t widest = 1, out, in;

	for (int i = 0; i < model->n_modules; i++)
		if (module_linear_shape(&model->architecture, model->modules[i].kind, &out, &in))
			widest = max_i64(widest, out);
	return widest;
}

static bool open_mirror(struct gpu *gpu, const struct cluster *cluster,
	const struct program *program, struct error *error)
{
	return buffers_init(&gpu->mirror, program, cluster->window, cluster->window_bytes, error);
}

bool gpu_open(struct gpu *gpu, struct segment *segment, const struct schedule *schedule,
	const struct cluster *cluster, struct error *error)
{
	const struct job *job = &segment->header->job;
	int gpus;

	*gpu = (struct gpu){0};
	if (!gpu_choose(segment_text(segment, TEXT_TRANSPORT), cluster->layout.per_node,
		    is_launched(segment), &gpu->transport, &gpus, error))
		return false;
	gpu->per_node = cluster->layout.per_node;
	gpu->device.program = &schedule->programs[0];
	gpu->device.bias_width = widest_leaf(schedule->model);
	if (gpu->transport->apart) {
		gpu->device.ordinal = gpu_of_rank(segment, cluster, gpus);
		stay_near(gpu->device.ordinal);
	}
	if (job->paced && !gpu->transport->apart && segment->threads != NULL)
		gpu->device.pool = &segment->threads->streams;
	gpu->device.rank = segment->rank;
	if (gpu->transport->prepare != NULL && !gpu->transport->prepare(&gpu->device, error))
		return false;
	gpu->before = used_before(gpu->device.ordinal);
	gpu->device.patience =
		(struct patience){.abort = &segment->header->abort, .timeout = job->setup_timeout};
	if (!device_cuda_open(&gpu->device, compute_staging_bytes(schedule), error) ||
		!open_mirror(gpu, cluster, &schedule->programs[0], error))
		return false;
	gpu->background = (struct kernel_context){.workspace = gpu->device.workspace,
		.workspace_bytes = KERNELS_WORKSPACE_BYTES,
		.stream = device_stream(&gpu->device, STREAM_REDUCE)};
	return gpu->device.kernels->open(&gpu->background, error);
}

void gpu_close(struct gpu *gpu)
{
	if (gpu->device.kernels != NULL)
		gpu->device.kernels->close(&gpu->background);
	buffers_finish(&gpu->mirror);
	device_cuda_close(&gpu->device);
}

bool gpu_open_comm(struct gpu *gpu, struct segment *segment, const struct schedule *schedule,
	struct comm *comm, struct error *error)
{
	if (!gpu->transport->apart && segment->threads == NULL)
		return error_set(error, EXIT_CODE_USAGE,
			"transport %s: ranks that share a GPU are threads of one process; "
			"start them with --ranks and not by mpirun or srun",
			gpu->transport->name);
	return gpu->transport->open(comm, segment, gpu, schedule, error);
}

/* --- steps as graphs --- */

static bool host_takes_part(const struct program *program)
{
	for (int i = 0; i < program->n_ops; i++)
		if (program->ops[i].stream == STREAM_HOST)
			return true;
	return false;
}

/* True for faults that act on what the walk does, and not on what the GPU or the data are. */
static bool fault_needs_the_walk(const struct fault *fault)
{
	return fault->kind != FAULT_NONE && fault->kind != FAULT_DROP_WAIT &&
	       fault->kind != FAULT_WILD_TOKEN;
}

/* Says why a step cannot be a graph; NULL when it can. */
static const char *obstacle(
	const struct gpu *gpu, const struct segment *segment, const struct fault *fault)
{
	bool shared = !gpu->transport->apart && segment->header->job.ranks > 1;

	if (host_takes_part(gpu->device.program))
		return "the host updates what is offloaded, in the middle of the step";
	if (shared)
		return "ranks that share a GPU wait for each other's events, "
		       "which are in no graph of one rank";
	if (gpu->device.clocks != NULL)
		return "operations are held to modelled times";
	if (fault_needs_the_walk(fault))
		return "a seeded fault acts on single operations";
	return NULL;
}

bool gpu_choose_graphs(struct gpu *gpu, const struct segment *segment, const struct fault *fault,
	struct error *error)
{
	enum graph_wish wish = segment->header->job.cuda_graphs;
	const char *why = obstacle(gpu, segment, fault);

	if (wish == GRAPHS_ON && why != NULL)
		return error_set(error, EXIT_CODE_USAGE,
			"--cuda-graphs on: %s; leave it out, or use off", why);
	if (wish == GRAPHS_OFF)
		why = "not wanted";
	gpu->graphs = why == NULL ? "on" : arena_printf(&gpu->device.arena, "off: %s", why);
	return why != NULL || device_graph_want(&gpu->device, error);
}

/* --- between steps --- */

static bool carry(
	struct gpu *gpu, const struct buffers *buffers, int buffer, bool up, struct error *error)
{
	const struct buffer *b = &gpu->device.program->buffers[buffer];
	void *here = buffers_address(&gpu->mirror, buffer);
	void *there = buffers_address(buffers, buffer);

	/* Scratch memory means nothing between steps. */
	if (!b->resident || b->role == BUFFER_KERNEL_WORKSPACE)
		return true;
	if (buffer_in_host(b)) {
		memcpy(up ? there : here, up ? here : there, (size_t)b->bytes);
		return true;
	}
	return device_copy_now(&gpu->device, up ? there : here, up ? here : there, b->bytes, error);
}

static bool carry_all(struct gpu *gpu, const struct buffers *buffers, bool up, struct error *error)
{
	for (int i = 0; i < gpu->device.program->n_buffers; i++)
		if (!carry(gpu, buffers, i, up, error))
			return false;
	return true;
}

bool gpu_upload(struct gpu *gpu, const struct buffers *buffers, struct error *error)
{
	return carry_all(gpu, buffers, true, error);
}

bool gpu_download(struct gpu *gpu, const struct buffers *buffers, struct error *error)
{
	return carry_all(gpu, buffers, false, error);
}
