/* A rank of a training run: set-up, the loop over steps, and what is told afterwards. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "executor/allocations.h"
#include "executor/checkpoint.h"
#include "executor/cluster.h"
#include "executor/compute.h"
#include "executor/gpu.h"
#include "executor/huge_pages.h"
#include "executor/interpret.h"
#include "executor/machine.h"
#include "executor/measure.h"
#include "executor/pace.h"
#include "executor/rank.h"
#include "executor/safetensors.h"
#include "executor/weights.h"

/* The bytes that one rank tells the others after each step. */
struct step_exchange {
	struct exact_sum loss;
	uint32_t stop; /* this rank was asked to */
};

/* Also the size of the block in the heap that others read it from. */
enum { SCRATCH_BYTES = 1024 };
_Static_assert(sizeof(struct step_exchange) <= SCRATCH_BYTES, "fits the scratch");
_Static_assert(sizeof(struct rank_report) <= SCRATCH_BYTES, "fits the scratch");
_Static_assert(sizeof(struct checkpoint_part) <= SCRATCH_BYTES, "fits the scratch");

struct trainer {
	struct segment *segment;
	struct cluster cluster;
	struct arena arena;
	struct fault fault;
	struct plan_file file;
	struct schedule *schedule;
	const struct kernels *kernels; /* of sums, also on the null device */
	bool null_device, on_gpu;
	struct gpu gpu;
	struct buffers *states; /* resident buffers where the host can work on them */
	struct kernel_context context, background;
	struct data data;
	struct buffers buffers;
	struct comm comm;
	struct compute compute;
	struct expectation expected;
	struct interpreter interpreter;
	struct recorder recorder;
	struct checkpointer checkpointer;
	void *scratch;                   /* in the heap */
	struct step_exchange *exchanged; /* [ranks] */
	int64_t undeclared, pss_before, device_used;
	bool stopping; /* some rank was asked to: no further step */
};

static const struct job *job_of(const struct trainer *t)
{
	return &t->segment->header->job;
}

/* --- set-up --- */

static bool read_plan(struct trainer *t, struct error *error)
{
	const char *text = segment_text(t->segment, TEXT_PLAN);

	return plan_file_parse(&t->arena, "plan", text, strlen(text), &t->file, error) &&
	       schedule_build(&t->arena, &t->file.plan, t->file.model, t->file.topology,
		       &t->schedule, error);
}

static bool join(struct trainer *t, struct error *error)
{
	const struct topology *topology = t->file.topology;

	return cluster_join(&t->cluster, t->segment, buffers_capacity(t->schedule, 0), error) &&
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
	const struct program *program = &t->schedule->programs[0];

	t->states = &t->buffers;
	if (!t->on_gpu)
		return buffers_init(
			&t->buffers, program, t->cluster.window, t->cluster.window_bytes, error);
	if (!gpu_open(&t->gpu, t->segment, t->schedule, &t->cluster, error))
		return false;
	buffers_init_placed(&t->buffers, program, &t->gpu.device.places, t->gpu.device.memory,
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
	t->exchanged = ARENA_ARRAY(&t->arena, struct step_exchange, job_of(t)->ranks);
	return true;
}

/* Of the schedule's operations; t->kernels are the host's. */
static const struct kernels *compute_kernels(const struct trainer *t)
{
	return t->on_gpu ? t->gpu.device.kernels : t->kernels;
}

/* The declared workspace of the schedule is the interpreter's; the communication thread, which only
 * sums, has one of its own. */
static bool open_contexts(struct trainer *t, struct error *error)
{
	const struct program *program = &t->schedule->programs[0];

	t->context = (struct kernel_context){.threads = job_of(t)->threads};
	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].role == BUFFER_KERNEL_WORKSPACE) {
			t->context.workspace = buffers_address(&t->buffers, i);
			t->context.workspace_bytes = program->buffers[i].bytes;
		}
	/* Declared bytes are there from the start, so that PSS rises as predicted even where small
	 * shapes never reach the end of it. Large pages first: as small ones, they would all be
	 * copied later. */
	if (!t->on_gpu && t->context.workspace != NULL) {
		huge_pages(t->context.workspace, t->context.workspace_bytes);
		memset(t->context.workspace, 0, (size_t)t->context.workspace_bytes);
	}
	if (t->on_gpu)
		t->context.stream = device_stream(&t->gpu.device, STREAM_COMPUTE);
	t->background = (struct kernel_context){.threads = 1,
		.workspace = rank_reserve_workspace(),
		.workspace_bytes = KERNELS_WORKSPACE_BYTES};
	if (t->background.workspace == NULL)
		return error_set(error, EXIT_CODE_ENVIRONMENT, "no room for a kernel workspace");
	if (!compute_kernels(t)->open(&t->context, error))
		return false;
	if (t->on_gpu)
		gpu_choices_use(&t->gpu.choices, &t->file.topology->calibration, compute_kernels(t),
			&t->context, &t->arena);
	return t->kernels->open(&t->background, error);
}

static bool open_compute(struct trainer *t, struct error *error)
{
	const struct plan *plan = &t->schedule->plan;

	if (!t->null_device &&
		!data_open(&t->data, segment_text(t->segment, TEXT_DATA), plan->seq_len,
			t->file.model->architecture.vocab, job_of(t)->training.seed, error))
		return false;
	t->compute = (struct compute){.schedule = t->schedule,
		.program = &t->schedule->programs[0],
		.buffers = &t->buffers,
		.kernels = t->null_device ? &kernels_null : compute_kernels(t),
		.context = &t->context,
		.background = t->on_gpu ? &t->gpu.background : &t->background,
		.device = t->on_gpu ? &t->gpu.device : NULL,
		.host_kernels = t->kernels,
		.host_context = &t->background,
		.data = t->null_device ? NULL : &t->data,
		.training = job_of(t)->training,
		.fault = t->fault,
		.any_rounding = job_of(t)->any_rounding,
		.rank = t->segment->rank,
		.ranks = job_of(t)->ranks};
	return compute_open(&t->compute, error);
}

static bool open_interpreter(struct trainer *t, struct error *error)
{
	struct board *board = segment_board(t->segment, t->segment->rank);

	const char *expected = segment_text(t->segment, TEXT_EXPECTED);

	if (!cluster_open_comm(&t->cluster, &t->comm, t->kernels, &t->background, error))
		return false;
	if (t->on_gpu && !gpu_open_comm(&t->gpu, t->segment, t->schedule, &t->comm, error))
		return false;
	t->comm.fault = t->fault;
	t->comm.schedule = t->schedule;
	if (expected != NULL && expected[0] == '\0')
		expected = NULL;
	if (!expectation_read(expected, t->schedule->programs[0].n_ops, &t->arena, &t->expected))
		return error_set(error, EXIT_CODE_INTERNAL, "a prediction of another schedule");
	if (t->on_gpu && expectation_paces(&t->expected) &&
		!device_pace_open(&t->gpu.device, error))
		return false;
	if (t->on_gpu && !gpu_choose_graphs(&t->gpu, t->segment, &t->fault, error))
		return false;
	expectation_sharpen();
	t->interpreter = (struct interpreter){.schedule = t->schedule,
		.program = &t->schedule->programs[0],
		.buffers = &t->buffers,
		.comm = &t->comm,
		.backend = {.name = t->null_device ? "null"
				    : t->on_gpu    ? "cuda"
						   : "host",
			.run = compute_run,
			.data = &t->compute,
			.asynchronous = t->on_gpu ? &device_cuda_asynchronous : NULL,
			.device = &t->gpu.device},
		.board_step = &board->step,
		.board_op = &board->op,
		.expected = &t->expected,
		.fault = t->fault};
	return interpreter_open(&t->interpreter, error);
}

/* Every operation once without arithmetic: operands are found, shapes prepared, memory laid out. */
static bool rehearse(struct trainer *t, struct error *error)
{
	struct kernels rehearsal = kernels_null;
	struct device_kernels of_device = device_kernels_null;
	const struct kernels *kernels = t->compute.kernels;

	rehearsal.gemm = t->null_device ? kernels_null.gemm : compute_kernels(t)->prepare_gemm;
	if (kernels->device != NULL) {
		of_device.gemm_epilogue = kernels->device->prepare_gemm_epilogue;
		rehearsal.device = &of_device;
	}
	t->compute.kernels = &rehearsal;
	t->compute.rehearsal = true;
	bool ok = interpret_step(&t->interpreter, 0, true, error);
	t->compute.kernels = kernels;
	t->compute.rehearsal = false;
	return ok;
}

static struct weights weights_of(struct trainer *t)
{
	return (struct weights){.schedule = t->schedule,
		.program = &t->schedule->programs[0],
		.buffers = t->states,
		.rank = t->segment->rank};
}

/* Initial weights, those of a file, or those of a checkpoint. */
static bool fill_weights(struct trainer *t, struct error *error)
{
	const char *resume = segment_text(t->segment, TEXT_RESUME);
	const char *given = segment_text(t->segment, TEXT_WEIGHTS);
	struct weights weights = weights_of(t);
	struct manifest manifest;
	struct safetensors start;

	if (t->null_device)
		return true;
	weights_init(&weights, job_of(t)->training.seed, job_of(t)->threads);
	if (given != NULL) {
		if (!safetensors_open(&t->arena, given, t->file.model, &start, error))
			return false;
		safetensors_load(&start, &weights);
		safetensors_close(&start);
		return weights_spread(&weights, &t->comm, error);
	}
	if (resume == NULL)
		return true;
	return manifest_read(&t->arena, resume, t->file.model, &manifest, error) &&
	       checkpoint_load(&manifest, &weights, &t->comm, t->scratch, error) &&
	       weights_spread(&weights, &t->comm, error);
}

static bool open_checkpointer(struct trainer *t, struct error *error)
{
	struct weights weights = weights_of(t);
	const struct checkpoint_options options = {
		.folder = segment_text(t->segment, TEXT_CHECKPOINT),
		.every = job_of(t)->checkpoint_every,
		.keep = job_of(t)->checkpoint_keep,
		.background = job_of(t)->checkpoint_background,
		.training = job_of(t)->training,
		.data_tokens = t->data.n_tokens,
		.fault = t->fault};

	return checkpointer_open(&t->checkpointer, &options, &weights, &t->comm, t->scratch, error);
}

static bool open_trainer(struct trainer *t, struct error *error)
{
	if (!read_plan(t, error) || !join(t, error) || !choose_kernels(t, error) ||
		!make_buffers(t, error) || !open_contexts(t, error) || !open_compute(t, error) ||
		!open_interpreter(t, error) || !rehearse(t, error) || !open_checkpointer(t, error))
		return false;
	recorder_open(
		&t->recorder, job_of(t)->training.steps, t->schedule->programs[0].n_ops, &t->arena);
	t->pss_before = machine_pss();
	/* Every byte that the schedule will touch is known by now. */
	if (!t->null_device && !t->on_gpu)
		huge_pages(t->buffers.heap.base, t->buffers.heap.high_water);
	if (!fill_weights(t, error) || (t->on_gpu && !gpu_upload(&t->gpu, &t->buffers, error)))
		return false;
	if (t->on_gpu && !device_memory_used(&t->gpu.device, &t->gpu.used, error))
		return false;
	atomic_store(&segment_board(t->segment, t->segment->rank)->state, BOARD_RUNNING);
	/* Everyone is ready: the first step's time is a step's. */
	return comm_exchange(&t->comm, t->scratch, t->exchanged, sizeof(*t->exchanged));
}

/* --- steps --- */

/* The mean over all tokens of the global batch: summed exactly, so it depends on neither the number
 * of ranks nor their order. */
static bool exchange_loss(struct trainer *t, double *loss, struct error *error)
{
	const struct plan *plan = &t->schedule->plan;
	struct step_exchange *mine = t->scratch;
	struct exact_sum sum = {0};

	exact_sum_normalise(&t->compute.loss);
	mine->loss = t->compute.loss;
	mine->stop = atomic_load(&t->segment->header->stop);
	if (!comm_exchange(&t->comm, t->scratch, t->exchanged, sizeof(*t->exchanged)))
		return false;
	for (int r = 0; r < t->comm.ranks; r++) {
		exact_sum_merge(&sum, &t->exchanged[r].loss);
		t->stopping |= t->exchanged[r].stop != 0;
	}
	*loss = exact_sum_value(&sum) / ((double)plan->global_batch * (double)plan->seq_len);
	if (isfinite(*loss))
		return true;
	return error_set(error, EXIT_CODE_FAULT, "step %lld: the loss is %f",
		(long long)t->compute.step, *loss);
}

/* Slow motion is taken out again. */
static void publish(struct trainer *t, int64_t step, double loss, double step_time)
{
	double slow = job_of(t)->slow_motion;

	step_time /= slow;
	for (int i = 0; i < t->interpreter.timeline.n_ops && slow > 1; i++) {
		struct span *span = &t->interpreter.timeline.spans[i];

		*span = (struct span){span->issued / slow, span->start / slow, span->end / slow};
	}
	recorder_add(
		&t->recorder, &t->interpreter.timeline, step_time, loss, t->compute.gradient_norm);
	if (t->segment->rank != 0)
		return;
	segment_results(t->segment)[step] = (struct step_result){
		.loss = loss, .gradient_norm = t->compute.gradient_norm, .step_time = step_time};
	event_set(&t->segment->header->steps_done, (uint32_t)step + 1);
}

/* Nothing may be allocated in here but the schedule's buffers; the first step is let off, because
 * libraries make what they need at first use. */
static bool interpret_watched(struct trainer *t, int64_t step, struct error *error)
{
	if (step == job_of(t)->first_step || t->on_gpu)
		return interpret_step(&t->interpreter, step, false, error);
	allocations_watch();
	bool ok = interpret_step(&t->interpreter, step, false, error);
	t->undeclared += allocations_seen();
	return ok;
}

static bool run_step(struct trainer *t, int64_t step, struct error *error)
{
	double start = clock_now(), loss;

	if (!compute_begin_step(&t->compute, step, error) || !interpret_watched(t, step, error) ||
		!compute_end_step(&t->compute, error) || !exchange_loss(t, &loss, error))
		return false;
	publish(t, step, loss, clock_now() - start);
	bool last = t->stopping || step + 1 == job_of(t)->training.steps;
	if (t->on_gpu && (last || checkpointer_due(&t->checkpointer, step + 1, last)) &&
		!gpu_download(&t->gpu, &t->buffers, error))
		return false;
	return checkpointer_step(&t->checkpointer, step + 1, last, error);
}

static bool run_steps(struct trainer *t, struct error *error)
{
	const int64_t steps = job_of(t)->training.steps;
	int64_t step = job_of(t)->first_step;

	for (; step < steps && !t->stopping; step++)
		if (!run_step(t, step, error))
			return false;
	t->stopping &= step < steps;
	if (t->stopping)
		atomic_store(&t->segment->header->stopped_after, step);
	return true;
}

/* --- the end --- */

static bool replicas_agree(
	const struct trainer *t, const struct rank_report *reports, struct error *error)
{
	for (int r = 1; r < t->comm.ranks; r++)
		if (reports[r].digest.hex[0] != '\0' &&
			strcmp(reports[r].digest.hex, reports[0].digest.hex) != 0)
			return error_set(error, EXIT_CODE_FAULT,
				"replicas differ after the last step: ranks 0 and %d hold weights "
				"%s and %s",
				r, reports[0].digest.hex, reports[r].digest.hex);
	return true;
}

/* Sums in another order than the declared one, or roundings that depend on the plan. */
static bool only_repeats(const struct trainer *t)
{
	bool nccl = t->on_gpu && t->gpu.transport == GPU_TRANSPORT_NCCL && t->comm.ranks > 1;

	return job_of(t)->ring || nccl || (t->on_gpu && job_of(t)->any_rounding);
}

/* That share one, and its context. */
static int ranks_on_gpu(const struct trainer *t)
{
	return t->gpu.transport == GPU_TRANSPORT_DEVICE ? t->comm.ranks : 1;
}

static bool write_measurement(
	struct trainer *t, const struct rank_report *reports, struct error *error)
{
	const struct measure_inputs inputs = {.device_ranks = t->on_gpu ? ranks_on_gpu(t) : 0,
		.schedule = t->schedule,
		.recorder = &t->recorder,
		.buffers = &t->buffers,
		.last = &t->interpreter.timeline,
		.comm = &t->comm,
		.ranks_per_node = t->cluster.layout.per_node,
		.only_repeats = only_repeats(t),
		.reports = reports,
		.kernels = arena_printf(&t->arena, "%s (%s)", compute_kernels(t)->name,
			compute_kernels(t)->library),
		.cuda_graphs = t->gpu.graphs,
		.nccl_buffers = t->gpu.nccl_buffers,
		.product_choices = gpu_choices_say(&t->gpu.choices, &t->arena),
		.gradient_bytes = t->compute.gradient_bytes,
		.pss_before = t->pss_before,
		.slow_motion = job_of(t)->slow_motion,
		.paced = (struct pace_tally){
			t->interpreter.tally.n_held + t->interpreter.engine_tally.n_held,
			t->interpreter.tally.n_late + t->interpreter.engine_tally.n_late,
			t->interpreter.tally.late + t->interpreter.engine_tally.late}};
	struct measurement measurement;
	struct text text = {0};
	struct writer writer;

	measure(&inputs, &t->arena, &measurement);
	writer_init(&writer, &text, WRITER_JSON_COMPACT);
	measurement_write(&measurement, &writer);
	writer_finish(&writer);
	bool ok = rank_report(t->segment, &text, error);
	text_finish(&text);
	return ok;
}

/* On a GPU its own memory is meant: what this rank allocated, and what it should not have. Ranks
 * that share one share that growth. */
static bool gpu_growth(struct trainer *t, int64_t *growth, struct error *error)
{
	if (!device_memory_used(&t->gpu.device, &t->device_used, error))
		return false;
	*growth = t->gpu.device.allocated;
	t->undeclared = max_i64(t->device_used - t->gpu.used, 0) / ranks_on_gpu(t);
	return true;
}

static bool conclude(struct trainer *t, struct error *error)
{
	struct rank_report *mine = t->scratch;
	struct rank_report *reports = ARENA_ARRAY(&t->arena, struct rank_report, t->comm.ranks);
	struct weights weights = weights_of(t);
	struct digest digest;

	/* Memory is never given back to the system, so this is the high water. */
	int64_t growth = machine_pss() - t->pss_before;
	if (t->on_gpu && !gpu_growth(t, &growth, error))
		return false;
	if (!weights_digest(&weights, &t->comm, &digest, error))
		return false;
	*mine = (struct rank_report){.pss_growth = growth,
		.undeclared = t->undeclared,
		.device_used = t->device_used,
		.device_before = t->gpu.before,
		.wire_bytes = t->comm.counters.wire_bytes,
		.network_bytes = t->comm.counters.network_bytes,
		.digest = digest};
	if (!comm_exchange(&t->comm, mine, reports, sizeof(*mine)) ||
		!replicas_agree(t, reports, error))
		return false;
	return t->segment->rank != 0 || write_measurement(t, reports, error);
}

static void close_trainer(struct trainer *t)
{
	checkpointer_close(&t->checkpointer);
	interpreter_close(&t->interpreter);
	if (t->on_gpu)
		device_graph_close(&t->gpu.device);
	comm_close(&t->comm);
	compute_close(&t->compute);
	if (compute_kernels(t) != NULL)
		compute_kernels(t)->close(&t->context);
	if (t->kernels != NULL)
		t->kernels->close(&t->background);
	rank_release_workspace(t->background.workspace);
	data_close(&t->data);
	buffers_finish(&t->buffers);
	if (t->on_gpu)
		gpu_close(&t->gpu);
	arena_finish(&t->arena);
}

bool rank_train(struct segment *segment, struct error *error)
{
	struct trainer trainer = {.segment = segment, .data = {.fd = -1}};
	bool ok = open_trainer(&trainer, error);

	ok = ok && run_steps(&trainer, error) && (trainer.stopping || conclude(&trainer, error));
	/* Before the thread is joined: it may be waiting for a rank that will not come. */
	if (!ok && error->code != EXIT_CODE_OK)
		segment_fault_error(segment, error);
	close_trainer(&trainer);
	cluster_leave(&trainer.cluster, ok);
	return ok;
}
