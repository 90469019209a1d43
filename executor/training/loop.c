/* A rank of a training run: the loop over steps, and what is told afterwards. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "executor/memory/memory.h"
#include "executor/ranks/ranks.h"
#include "executor/training/setup.h"
#include "executor/training/training.h"

/* --- steps --- */

/* Returns the mean over all tokens of the global batch. It is summed exactly, so it depends on
 * neither the number of ranks nor their order. Tensor ranks have the same tokens. */
static bool exchange_loss(struct trainer *t, double *loss, struct error *error)
{
	const struct plan *plan = &t->schedule->plan;
	struct step_exchange *mine = t->scratch;
	struct exact_sum sum = {0};

	exact_sum_normalise(&t->compute.loss);
	mine->loss = t->compute.tensor_place == 0 ? t->compute.loss : (struct exact_sum){0};
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

/* Slow motion is divided out of the times again. */
static void publish(struct trainer *t, int64_t step, double loss, double step_time)
{
	double slow = trainer_job(t)->slow_motion;

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

/* Nothing may be allocated in here but the schedule's buffers. The first step is let off, because
 * libraries make what they need at first use. */
static bool interpret_watched(struct trainer *t, int64_t step, struct error *error)
{
	if (step == t->first_step || t->on_gpu)
		return interpret_step(&t->interpreter, step, false, error);
	allocations_watch();
	bool ok = interpret_step(&t->interpreter, step, false, error);
	t->undeclared += allocations_seen();
	return ok;
}

/* Two steps have made everything that is made at first use. */
static void end_setup(struct trainer *t, int64_t step)
{
	if (!t->on_gpu || step != t->first_step + 1)
		return;
	t->comm.patience = 0;
	t->gpu.device.patience.timeout = trainer_job(t)->collective_timeout;
}

static bool run_step(struct trainer *t, int64_t step, struct error *error)
{
	double start = clock_now(), loss;

	if (!compute_begin_step(&t->compute, step, error) || !interpret_watched(t, step, error) ||
		!compute_end_step(&t->compute, error) || !exchange_loss(t, &loss, error))
		return false;
	publish(t, step, loss, clock_now() - start);
	end_setup(t, step);
	trainer_large_pages(t);
	bool last = t->stopping || step + 1 == trainer_job(t)->training.steps;
	if (t->on_gpu && (last || checkpointer_due(&t->checkpointer, step + 1, last)) &&
		!gpu_download(&t->gpu, &t->buffers, error))
		return false;
	return checkpointer_step(&t->checkpointer, step + 1, last, error);
}

static bool run_steps(struct trainer *t, struct error *error)
{
	const int64_t steps = trainer_job(t)->training.steps;
	int64_t step = t->first_step;

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
				"replicas differ after the last step: "
				"ranks 0 and %d hold weights %s and %s",
				r, reports[0].digest.hex, reports[r].digest.hex);
	return true;
}

/* True when sums come in another order than the declared one, or roundings depend on the plan. */
static bool only_repeats(const struct trainer *t)
{
	bool nccl = t->on_gpu && !t->gpu.transport->ordered && t->comm.ranks > 1;

	return nccl || (t->on_gpu && trainer_job(t)->any_rounding);
}

/* Returns how many ranks share one GPU and its context. */
static int ranks_on_gpu(const struct trainer *t)
{
	return !t->gpu.transport->apart ? t->comm.ranks : 1;
}

static bool write_measurement(
	struct trainer *t, const struct rank_report *reports, struct error *error)
{
	const struct measure_inputs inputs = {.device_ranks = t->on_gpu ? ranks_on_gpu(t) : 0,
		.schedule = t->schedule,
		.program = t->program,
		.recorder = &t->recorder,
		.buffers = &t->buffers,
		.last = &t->interpreter.timeline,
		.comm = &t->comm,
		.ranks_per_node = t->cluster.layout.per_node,
		.only_repeats = only_repeats(t),
		.reports = reports,
		.kernels = arena_printf(&t->arena, "%s (%s)", trainer_kernels(t)->name,
			trainer_kernels(t)->library),
		.cuda_graphs = t->gpu.graphs,
		.nccl = t->gpu.nccl,
		.nccl_buffers = t->gpu.nccl_buffers,
		.product_choices = gpu_choices_say(&t->gpu.choices, &t->arena),
		.attention_choices = gpu_choices_say_attention(&t->gpu.choices, &t->arena),
		.gradient_bytes = t->compute.gradient_bytes,
		.pss_before = t->pss_before,
		.slow_motion = trainer_job(t)->slow_motion,
		.cpus = trainer_job(t)->cpus,
		.paced = (struct pace_tally){
			t->interpreter.tally.n_held + t->interpreter.thread_tally.n_held,
			t->interpreter.tally.n_late + t->interpreter.thread_tally.n_late,
			t->interpreter.tally.late + t->interpreter.thread_tally.late}};
	struct measurement measurement;
	struct text text = {0};
	struct writer writer;

	measure(&inputs, &t->arena, &measurement);
	writer_init(&writer, &text, WRITER_JSON_COMPACT);
	measurement_write(&measurement, &writer);
	writer_finish(&writer);
	bool ok = segment_leave_report(t->segment, &text, error);
	text_finish(&text);
	return ok;
}

/* On a GPU its own memory is meant: what this rank allocated and should not have. Ranks that share
 * a GPU share that growth. */
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
	struct weights weights = trainer_weights(t);
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
		.row_bytes = t->comm.counters.row_bytes,
		.digest = digest};
	if (!comm_exchange(&t->comm, mine, reports, sizeof(*mine)) ||
		!replicas_agree(t, reports, error))
		return false;
	return t->segment->rank != 0 || write_measurement(t, reports, error);
}

bool rank_train(struct segment *segment, struct error *error)
{
	struct trainer trainer = {.segment = segment, .data = {.fd = -1}};
	bool ok = trainer_open(&trainer, error);

	ok = ok && run_steps(&trainer, error) && (trainer.stopping || conclude(&trainer, error));
	/* Before the thread is joined: it may be waiting for a rank that will not come. */
	if (!ok && error->code != EXIT_CODE_OK)
		segment_fault_error(segment, error);
	trainer_close(&trainer);
	cluster_leave(&trainer.cluster, ok);
	return ok;
}
