/* Sets a rank of a training run up, from the plan's text to weights that are ready for a step. */
#include "executor/training/setup.h"

#include <string.h>

#include "executor/checkpoints/checkpoints.h"
#include "executor/memory/memory.h"
#include "executor/ranks/ranks.h"

/* The block in the heap from which others read it has this size too. */
enum { SCRATCH_BYTES = 1024 };
/* From so many bytes of buffers beside the workspace on, large pages pay: making those of the
 * workspace takes as long as forty steps of a tiny model. All declared bytes are there then, so PSS
 * rises as predicted even where small shapes never reach the end of the workspace. */
enum { LARGE_FROM = 16 << 20 };
_Static_assert(sizeof(struct step_exchange) <= SCRATCH_BYTES, "fits the scratch");
_Static_assert(sizeof(struct rank_report) <= SCRATCH_BYTES, "fits the scratch");
_Static_assert(sizeof(struct checkpoint_part) <= SCRATCH_BYTES, "fits the scratch");

const struct job *trainer_job(const struct trainer *t)
{
	return &t->segment->header->job;
}

static bool read_plan(struct trainer *t, struct error *error)
{
	const char *text = segment_text(t->segment, TEXT_PLAN);

	if (!plan_file_parse(&t->arena, "plan", text, strlen(text), &t->file, error) ||
		!schedule_build(&t->arena, &t->file.plan, t->file.model, t->file.topology,
			&t->schedule, error))
		return false;
	t->program_ranks = (int)(plan_ranks(&t->file.plan) / t->schedule->n_classes);
	t->program = &t->schedule->programs[t->segment->rank / t->program_ranks];
	return true;
}

static bool join(struct trainer *t, struct error *error)
{
	const struct topology *topology = t->file.topology;

	return cluster_join(&t->cluster, t->segment, buffers_most_capacity(t->schedule), error) &&
	       cluster_check(&t->cluster, topology->nodes, topology->devices_per_node, error);
}

static bool choose_kernels(struct trainer *t, struct error *error)
{
	const char *device = segment_text(t->segment, TEXT_DEVICE);
	const char *name = segment_text(t->segment, TEXT_KERNELS);

	t->null_device = device != NULL && strcmp(device, "null") == 0;
	t->on_gpu = device != NULL && strcmp(device, "cuda") == 0;
	t->kernels = executor_kernels(name);
	if (t->kernels == NULL)
		return error_set(error, EXIT_CODE_USAGE, "no such kernels: %s", name);
	return fault_parse(segment_text(t->segment, TEXT_FAULT), &t->fault, error);
}

static bool place_buffers(struct trainer *t, struct error *error)
{
	const struct program *program = t->program;

	t->states = &t->buffers;
	if (!t->on_gpu)
		return buffers_init(
			&t->buffers, program, t->cluster.window, t->cluster.window_bytes, error);
	if (!gpu_open(&t->gpu, t->segment, t->schedule, &t->cluster, error))
		return false;
	buffers_init_placed(&t->buffers, program, &t->gpu.device.addresses, t->gpu.device.memory,
		t->gpu.device.pinned);
	t->gpu.device.careless = t->fault.kind == FAULT_DROP_WAIT;
	t->states = &t->gpu.mirror;
	return true;
}

static bool make_buffers(struct trainer *t, struct error *error)
{
	if (!place_buffers(t, error))
		return false;
	int scratch = heap_take(&t->states->heap, SCRATCH_BYTES, error);
	if (scratch < 0)
		return false;
	t->scratch = heap_address(&t->states->heap, scratch);
	t->exchanged = ARENA_ARRAY(&t->arena, struct step_exchange, trainer_job(t)->ranks);
	return true;
}

const struct kernels *trainer_kernels(const struct trainer *t)
{
	return t->on_gpu ? t->gpu.device.kernels : t->kernels;
}

/* The declared workspace of the schedule belongs to the interpreter. The communication thread only
 * sums and has a workspace of its own. */
static bool open_contexts(struct trainer *t, struct error *error)
{
	const struct program *program = t->program;

	t->context = (struct kernel_context){.threads = trainer_job(t)->threads};
	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].role == BUFFER_KERNEL_WORKSPACE &&
			program->buffers[i].resident) {
			t->context.workspace = buffers_address(&t->buffers, i);
			t->context.workspace_bytes = program->buffers[i].bytes;
		}
	if (t->on_gpu) {
		t->context.stream = device_stream(&t->gpu.device, STREAM_COMPUTE);
		t->context.beside = gpu_blocks_beside(&t->gpu, trainer_job(t));
	}
	t->background = (struct kernel_context){.threads = 1,
		.workspace = workspace_reserve(),
		.workspace_bytes = KERNELS_WORKSPACE_BYTES};
	if (t->background.workspace == NULL)
		return error_set(error, EXIT_CODE_ENVIRONMENT, "no room for a kernel workspace");
	if (!trainer_kernels(t)->open(&t->context, error))
		return false;
	if (t->on_gpu)
		gpu_choices_use(&t->gpu.choices, &t->file.topology->calibration, trainer_kernels(t),
			&t->context, &t->arena);
	return t->kernels->open(&t->background, error);
}

static bool open_compute(struct trainer *t, struct error *error)
{
	const struct plan *plan = &t->schedule->plan;

	if (!t->null_device &&
		!data_open(&t->data, segment_text(t->segment, TEXT_DATA), plan->seq_len,
			t->file.model->architecture.vocab, trainer_job(t)->training.seed, error))
		return false;
	t->compute = (struct compute){.schedule = t->schedule,
		.program = t->program,
		.buffers = &t->buffers,
		.kernels = t->null_device ? &kernels_null : trainer_kernels(t),
		.context = &t->context,
		.background = t->on_gpu ? &t->gpu.background : &t->background,
		.device = t->on_gpu ? &t->gpu.device : NULL,
		.host_kernels = t->kernels,
		.host_context = &t->background,
		.data = t->null_device ? NULL : &t->data,
		.training = trainer_job(t)->training,
		.fault = t->fault,
		.any_rounding = trainer_job(t)->any_rounding,
		.rank = t->segment->rank,
		.place = (int)plan_data_place(plan, t->segment->rank),
		.ranks = (int)plan_data_parallel(plan),
		.tensor_place = (int)plan_tensor_place(plan, t->segment->rank)};
	return compute_open(&t->compute, error);
}

/* Counts the operations of the programs before the rank's. */
static int operations_before(const struct trainer *t)
{
	int n = 0;

	for (const struct program *p = t->schedule->programs; p < t->program; p++)
		n += p->n_ops;
	return n;
}

static bool open_comm(struct trainer *t, struct error *error)
{
	if (!cluster_open_comm(&t->cluster, &t->comm, t->kernels, &t->background, error))
		return false;
	if (t->on_gpu)
		t->comm.patience = trainer_job(t)->setup_timeout;
	if (t->on_gpu && !gpu_open_comm(&t->gpu, t->segment, t->schedule, &t->comm, error))
		return false;
	t->comm.fault = t->fault;
	t->comm.schedule = t->schedule;
	t->comm.program_ranks = t->program_ranks;
	return true;
}

static bool read_expected(struct trainer *t, struct error *error)
{
	const char *text = segment_text(t->segment, TEXT_EXPECTED);

	if (text != NULL && text[0] == '\0')
		text = NULL;
	return expectation_read(
		       text, operations_before(t), t->program->n_ops, &t->arena, &t->expected) ||
	       error_set(error, EXIT_CODE_INTERNAL, "a prediction of another schedule");
}

static bool open_interpreter(struct trainer *t, struct error *error)
{
	struct board *board = segment_board(t->segment, t->segment->rank);

	if (!open_comm(t, error) || !read_expected(t, error))
		return false;
	if (t->on_gpu && expectation_paces(&t->expected) &&
		!device_pace_open(&t->gpu.device, error))
		return false;
	if (t->on_gpu && !gpu_choose_graphs(&t->gpu, t->segment, &t->fault, error))
		return false;
	expectation_sharpen();
	t->interpreter = (struct interpreter){.schedule = t->schedule,
		.program = t->program,
		.buffers = &t->buffers,
		.comm = &t->comm,
		.backend = {.name = t->null_device ? "null"
				    : t->on_gpu    ? "cuda"
						   : "host",
			.run = compute_run,
			.exchanged = compute_exchanged,
			.begin_rows = compute_begin_rows,
			.end_rows = compute_end_rows,
			.data = &t->compute,
			.asynchronous = t->on_gpu ? &device_cuda_ops : NULL,
			.device = &t->gpu.device},
		.board_step = &board->step,
		.board_op = &board->op,
		.expected = &t->expected,
		.fault = t->fault};
	return interpreter_open(&t->interpreter, error);
}

/* Runs every operation once without arithmetic, which finds operands, prepares shapes and lays
 * memory out. */
static bool rehearse(struct trainer *t, struct error *error)
{
	struct kernels rehearsal = kernels_null;
	struct device_kernels of_device = device_kernels_null;
	const struct kernels *kernels = t->compute.kernels;

	rehearsal.gemm = t->null_device ? kernels_null.gemm : trainer_kernels(t)->prepare_gemm;
	if (kernels->device != NULL) {
		of_device.gemm_epilogue = kernels->device->prepare_gemm_epilogue;
		of_device.gemm_fp8 = kernels->device->prepare_gemm_fp8;
		rehearsal.device = &of_device;
	}
	t->compute.kernels = &rehearsal;
	t->compute.rehearsal = true;
	bool ok = interpret_step(&t->interpreter, 0, true, error);
	t->compute.kernels = kernels;
	t->compute.rehearsal = false;
	return ok;
}

/* Runs a step of a GPU with all of its kernels and none of its collectives, on whatever values are
 * there, because states come later. Otherwise the first step would load kernels while collectives
 * of other ranks wait for it on their GPUs, and some loads wait for all that runs on a GPU. */
static bool warm_up(struct trainer *t, struct error *error)
{
	const struct fault fault = t->fault, none = {.kind = FAULT_NONE};

	t->compute.warm_up = true;
	t->compute.fault = t->interpreter.fault = none;
	t->gpu.device.careless = false;
	bool ok = compute_begin_step(&t->compute, 0, error) &&
		  interpret_step(&t->interpreter, 0, true, error);
	t->compute.warm_up = false;
	t->compute.fault = t->interpreter.fault = fault;
	t->gpu.device.careless = fault.kind == FAULT_DROP_WAIT;
	return ok;
}

struct weights trainer_weights(struct trainer *t)
{
	return (struct weights){.schedule = t->schedule,
		.program = t->program,
		.buffers = t->states,
		.rank = t->segment->rank};
}

/* A damaged checkpoint may give way to an older one. All ranks go on from the same one. */
static bool choose_checkpoint(struct trainer *t, struct error *error)
{
	const char *resume = segment_text(t->segment, TEXT_RESUME);
	struct text notes = {0};

	t->first_step = trainer_job(t)->first_step;
	if (resume == NULL || t->null_device)
		return true;
	bool ok = checkpoint_choose(&t->arena, resume, trainer_job(t)->resume_or_older,
		t->file.model, &t->comm, t->scratch, &t->resumed, &notes, error);
	if (ok)
		t->first_step = t->resumed.step;
	if (t->segment->rank == 0) {
		atomic_store(&t->segment->header->resumed, t->first_step);
		segment_leave_notes(t->segment, &notes);
	}
	text_finish(&notes);
	/* All ranks have found the same. If each has a launcher of its own, the first rank tells
	 * it. */
	if (!ok && t->cluster.world != NULL && t->segment->rank != 0)
		error->message[0] = '\0';
	return ok;
}

/* Fills in initial weights, those of a file, or those of a checkpoint. */
static bool fill_weights(struct trainer *t, struct error *error)
{
	const char *given = segment_text(t->segment, TEXT_WEIGHTS);
	struct weights weights = trainer_weights(t);
	struct safetensors start;

	if (t->null_device)
		return true;
	weights_init(&weights, trainer_job(t)->training.seed, trainer_job(t)->threads);
	if (given != NULL) {
		if (!safetensors_open(&t->arena, given, t->file.model, &start, error))
			return false;
		safetensors_load(&start, &weights);
		safetensors_close(&start);
		return weights_spread(&weights, &t->comm, error);
	}
	if (t->resumed.folder == NULL)
		return true;
	return checkpoint_load(&t->resumed, &weights, &t->comm, t->scratch, error) &&
	       weights_spread(&weights, &t->comm, error);
}

static bool open_checkpointer(struct trainer *t, struct error *error)
{
	struct weights weights = trainer_weights(t);
	const struct checkpoint_options options = {
		.folder = segment_text(t->segment, TEXT_CHECKPOINT),
		.every = trainer_job(t)->checkpoint_every,
		.keep = trainer_job(t)->checkpoint_keep,
		.background = trainer_job(t)->checkpoint_background,
		.run = trainer_job(t)->run_id,
		.first_step = t->first_step,
		.training = trainer_job(t)->training,
		.data_tokens = t->data.n_tokens,
		.fault = t->fault};

	return checkpointer_open(&t->checkpointer, &options, &weights, &t->comm, t->scratch, error);
}

void trainer_large_pages(struct trainer *t)
{
	int64_t bytes = t->buffers.heap.high_water;

	if (t->null_device || t->on_gpu || bytes <= t->large_bytes ||
		bytes < t->context.workspace_bytes + LARGE_FROM)
		return;
	huge_pages(t->buffers.heap.base, bytes);
	if (t->large_bytes == 0 && t->context.workspace != NULL)
		touch_pages(t->context.workspace, t->context.workspace_bytes);
	t->large_bytes = bytes;
}

bool trainer_open(struct trainer *t, struct error *error)
{
	if (!read_plan(t, error) || !join(t, error) || !choose_kernels(t, error) ||
		!make_buffers(t, error) || !open_contexts(t, error) || !open_compute(t, error) ||
		!open_interpreter(t, error) || !rehearse(t, error) ||
		(t->on_gpu && !t->null_device && !warm_up(t, error)) ||
		!choose_checkpoint(t, error) || !open_checkpointer(t, error))
		return false;
	recorder_open(&t->recorder, trainer_job(t)->training.steps, t->program->n_ops, &t->arena);
	t->pss_before = machine_pss();
	trainer_large_pages(t);
	if (!fill_weights(t, error) || (t->on_gpu && !gpu_upload(&t->gpu, &t->buffers, error)))
		return false;
	if (t->on_gpu && !device_memory_used(&t->gpu.device, &t->gpu.used, error))
		return false;
	atomic_store(&segment_board(t->segment, t->segment->rank)->state, BOARD_RUNNING);
	/* Every rank is ready, so the time of the first step is that of a step. */
	return comm_exchange(&t->comm, t->scratch, t->exchanged, sizeof(*t->exchanged));
}

void trainer_close(struct trainer *t)
{
	checkpointer_close(&t->checkpointer);
	interpreter_close(&t->interpreter);
	if (t->on_gpu)
		device_graph_close(&t->gpu.device);
	/* Leaving may take as long as coming. */
	t->gpu.device.patience.timeout = trainer_job(t)->setup_timeout;
	comm_close(&t->comm);
	compute_close(&t->compute);
	if (trainer_kernels(t) != NULL)
		trainer_kernels(t)->close(&t->context);
	if (t->kernels != NULL)
		t->kernels->close(&t->background);
	workspace_release(t->background.workspace);
	data_close(&t->data);
	buffers_finish(&t->buffers);
	if (t->on_gpu)
		gpu_close(&t->gpu);
	arena_finish(&t->arena);
}
