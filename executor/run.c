/* Launches a training run: checks it, starts the ranks and reads what they measured. */
#include "executor/executor.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "executor/checkpoints/checkpoints.h"
#include "executor/compute/compute.h"
#include "executor/launch/launch.h"
#include "executor/refusals.h"
#include "executor/training/training.h"
#include "schedule/memory/memory.h"
#include "schedule/pipeline/pipeline.h"

/* Address space for the ranks' report, whose pages come when they are touched. */
enum { REPORT_BYTES = 256 << 20 };

/* One run, seen from the launcher. */
struct run {
	const struct executor_job *job;
	const struct gpu_transport *transport; /* between GPUs; NULL if there are none */
	struct arena *arena;
	struct schedule *schedule;
	struct segment segment;
	int64_t done_before;            /* in steps, as asked for */
	int64_t data_tokens;            /* 0: none are read */
	int64_t reported;               /* steps that this run has done and told to job->report */
	uint32_t noted;                 /* bytes of the ranks' notes that were told already */
	struct checkpoint_info resumed; /* folder is NULL when the run begins from the start */
	bool resume_or_older;
	int lock;             /* of the folder of checkpoints, or -1 */
	char id[RUN_ID_SIZE]; /* the name that its checkpoints get */
};

/* Says what is assumed of the data. */
static void note_data(struct run *run, const struct data *data)
{
	const struct executor_job *job = run->job;

	run->data_tokens = data->n_tokens;
	if (data->bare && job->note != NULL)
		job->note(arena_printf(run->arena,
				  "%s has no header: read as %lld tokens of %lld bits, "
				  "as nanoGPT or Megatron-LM writes them",
				  data->path, (long long)data->n_tokens,
				  (long long)(8 * data->token_bytes)),
			job->report_data);
}

/* The data are opened here too, so that bad input is told before anything starts. */
static bool check_data(struct run *run, struct error *error)
{
	const struct executor_job *job = run->job;
	const struct plan_file *file = job->plan;
	struct data data;

	if (job->device != NULL && strcmp(job->device, "null") == 0)
		return true;
	if (job->data == NULL)
		return error_set(error, EXIT_CODE_USAGE, "no training data was given");
	if (!data_open(&data, job->data, file->plan.seq_len, file->model->architecture.vocab,
		    job->training.seed, error))
		return false;
	data_close(&data);
	note_data(run, &data);
	return true;
}

static bool is_launched(const struct executor_job *job)
{
	return job->launcher.ranks > 1;
}

/* Counts the ranks on this machine. */
static int64_t ranks_here(const struct executor_job *job)
{
	if (!is_launched(job))
		return plan_ranks(&job->plan->plan);
	return job->launcher.local_ranks > 0 ? job->launcher.local_ranks
					     : job->plan->topology->devices_per_node;
}

static bool paces_collectives(const struct executor_job *job)
{
	return job_is_on_gpu(job) && (job->pace & PACE_COLLECTIVES);
}

/* Unless another one was asked for, a paced run takes a transport that can be paced. */
static const char *transport_of(const struct executor_job *job)
{
	const struct gpu_transport *const *t = gpu_transports;

	if (job->transport != NULL || !paces_collectives(job))
		return job->transport;
	while (!(*t)->paced)
		t++;
	return (*t)->name;
}

/* Checks that driver, GPUs and kernels are there. */
static bool check_gpus(struct run *run, struct error *error)
{
	const struct executor_job *job = run->job;
	const char *name = transport_of(job);
	const struct gpu_transport *transport = name != NULL ? gpu_transport_find(name) : NULL;
	int gpus;

	if (!job_is_on_gpu(job))
		return true;
	if (paces_collectives(job) && transport != NULL && !transport->paced)
		return error_set(error, EXIT_CODE_USAGE,
			"transport %s: its collectives take their own time and cannot "
			"be held to predicted ones; use --transport device, or --pace compute",
			name);
	if (!gpu_choose(name, (int)ranks_here(job), is_launched(job), &transport, &gpus, error))
		return false;
	run->transport = transport;
	return !job->all_plans || transport->ordered || plan_ranks(&job->plan->plan) == 1 ||
	       error_set(error, EXIT_CODE_USAGE,
		       "--reproducible plan: NCCL adds in an order of its own; "
		       "use --transport device, or --reproducible run");
}

static bool check_launcher(const struct executor_job *job, struct error *error)
{
	const struct launcher *launcher = &job->launcher;
	const struct topology *topology = job->plan->topology;
	int64_t ranks = plan_ranks(&job->plan->plan);

	if (!is_launched(job))
		return true;
	return launcher->ranks == ranks ||
	       error_set(error, EXIT_CODE_USAGE,
		       "the plan is for %lld ranks (%lld nodes x %lld), %s started %d",
		       (long long)ranks, (long long)topology->nodes,
		       (long long)topology->devices_per_node, launcher->name, launcher->ranks);
}

/* Running out of shared memory kills a process without a word, so it is said before. */
static bool check_memory(const struct run *run, struct error *error)
{
	const struct schedule *schedule = run->schedule;
	struct arena arena = {0};
	struct ledger ledger;
	char need[32], have[32];
	double bytes = 0;

	for (int c = 0; c < schedule->n_classes; c++) {
		schedule_ledger(schedule, c, &arena, &ledger);
		bytes += ((double)ledger.peak_bytes + (double)ledger.host_peak_bytes) *
			 (double)ranks_here(run->job) / schedule->n_classes;
	}
	/* On a GPU the ranks say so themselves. */
	if (job_is_on_gpu(run->job))
		bytes = 0;
	double free_bytes = (double)machine_available_memory();
	arena_finish(&arena);
	if (run->job->device != NULL && strcmp(run->job->device, "null") == 0)
		return true;
	return bytes <= free_bytes ||
	       error_set(error, EXIT_CODE_ENVIRONMENT,
		       "%lld ranks need %s of memory, this machine has %s available",
		       (long long)ranks_here(run->job), format_bytes(need, bytes),
		       format_bytes(have, free_bytes));
}

/* Notes each line of the text. */
static void note_lines(const struct run *run, const char *lines, size_t length)
{
	const char *end = lines + length, *stop;

	for (; lines < end && (stop = memchr(lines, '\n', (size_t)(end - lines))) != NULL;
		lines = stop + 1)
		if (run->job->note != NULL)
			run->job->note(arena_strndup(run->arena, lines, (size_t)(stop - lines)),
				run->job->report_data);
}

/* Only their number is known of the data before. */
static void note_other_data(const struct run *run)
{
	const struct executor_job *job = run->job;
	int64_t before = run->resumed.data_tokens;

	if (job->note != NULL && before > 0 && run->data_tokens > 0 && before != run->data_tokens)
		job->note(arena_printf(run->arena, "  other data: %lld tokens instead of %lld",
				  (long long)run->data_tokens, (long long)before),
			job->report_data);
}

/* Finds the step to go on from. */
static bool find_resumed(struct run *run, struct error *error)
{
	const struct executor_job *job = run->job;
	struct checkpoint_info *info = &run->resumed;

	if (job->resume == NULL)
		return true;
	if (!checkpoint_find(
		    run->arena, job->resume, job->plan->model, CHECKPOINT_LOOK, info, error))
		return false;
	run->done_before = info->step;
	run->resume_or_older = job->resume_or_older || info->newest;
	note_other_data(run);
	return info->step < job->training.steps ||
	       error_set(error, EXIT_CODE_USAGE,
		       "--steps: %s has done %lld, expected more than that in all, got %lld",
		       info->folder, (long long)info->step, (long long)job->training.steps);
}

static bool same_folder(const char *a, const char *b)
{
	struct stat left, right;

	return stat(a, &left) == 0 && stat(b, &right) == 0 && left.st_dev == right.st_dev &&
	       left.st_ino == right.st_ino;
}

/* No checkpoint may be in the way of those to come, except those that were passed over as damaged,
 * and none of another run may lie beside them. */
static bool check_way(struct run *run, bool goes_on, struct error *error)
{
	const char *folder = run->job->checkpoint;
	int64_t *steps;
	int n = checkpoint_list(run->arena, folder, &steps);

	if (n > 0 && steps[n - 1] > run->done_before && !(goes_on && run->resume_or_older))
		return error_set(error, EXIT_CODE_USAGE,
			"%s holds a checkpoint of step %lld already "
			"and this run starts at step %lld: resume from it, or give another folder",
			folder, (long long)steps[n - 1], (long long)run->done_before);
	return n == 0 || goes_on ||
	       error_set(error, EXIT_CODE_USAGE,
		       "%s holds checkpoints of another run than %s: give another folder", folder,
		       run->resumed.folder);
}

/* The first rank takes the folder for the job. A run that goes on in its folder keeps its id. */
static bool take_folder(struct run *run, struct error *error)
{
	struct arena *arena = run->arena;
	const char *folder = run->job->checkpoint, *from = run->resumed.folder;

	if (folder == NULL)
		return true;
	bool first = run->job->launcher.rank == 0;
	bool goes_on = from != NULL && same_folder(checkpoint_parent(arena, from), folder);
	if (first && !run_folder_lock(folder, &run->lock, error))
		return false;
	if (first && run->lock < 0 && run->job->note != NULL)
		run->job->note(arena_printf(arena,
				       "%s: its file system has no locks; "
				       "another job that writes there would not be noticed",
				       folder),
			run->job->report_data);
	if (!check_way(run, goes_on, error))
		return false;
	if (!first)
		return true;
	if (goes_on && run->resumed.run != NULL)
		memcpy(run->id, run->resumed.run, RUN_ID_SIZE);
	else
		run_folder_new_id(run->id);
	return run_folder_write(folder, run->id, error);
}

/* Weights are read here too, so that a file of another model is told before anything starts. */
static bool check_weights(const struct run *run, struct error *error)
{
	struct safetensors weights;

	if (run->job->weights == NULL)
		return true;
	if (run->job->resume != NULL)
		return error_set(error, EXIT_CODE_USAGE,
			"--weights: does not go with --resume, whose checkpoint has weights");
	if (!safetensors_open(
		    run->arena, run->job->weights, run->job->plan->model, &weights, error))
		return false;
	safetensors_close(&weights);
	return true;
}

static double slow_motion(const struct executor_job *job)
{
	return job->slow_motion > 0 ? job->slow_motion : 1;
}

static double collective_timeout(const struct executor_job *job)
{
	if (job->collective_timeout > 0)
		return job->collective_timeout;
	if (job->expected == NULL || job->expected->step_time <= 0)
		return PATIENCE_UNKNOWN;
	return expectation_patience(job->expected->step_time, slow_motion(job));
}

/* Other nodes are met, connections are made and kernels are loaded at first use, which takes
 * time. */
static double setup_timeout(const struct executor_job *job)
{
	if (job->collective_timeout > 0)
		return job->collective_timeout;
	return fmax(PATIENCE_UNKNOWN, launcher_join_timeout(&job->launcher));
}

static int threads_per_rank(const struct executor_job *job)
{
	int64_t share = machine_cpus() / max_i64(ranks_here(job), 1);

	return job->threads > 0 ? job->threads : (int)max_i64(share, 1);
}

/* Returns the predicted step of every class of ranks. */
static const struct timeline *const *expected_of(const struct run *run)
{
	const struct executor_job *job = run->job;

	return run->schedule->n_classes == 1 ? &job->expected : job->expected_of_classes;
}

static bool check_expected(const struct run *run, struct error *error)
{
	const struct timeline *const *expected = expected_of(run);
	const struct schedule *schedule = run->schedule;

	for (int c = 0; c < schedule->n_classes; c++) {
		int n = expected != NULL ? expected[c]->n_ops : 0;

		if (n != schedule->programs[c].n_ops)
			return error_set(error, EXIT_CODE_INTERNAL,
				"a prediction of %d operations for a schedule of %d", n,
				schedule->programs[c].n_ops);
	}
	return true;
}

static bool check_pace(const struct run *run, struct error *error)
{
	const struct executor_job *job = run->job;

	if (job->expected == NULL || job->expected->step_time <= 0)
		return job->pace == PACE_NONE ||
		       error_set(error, EXIT_CODE_USAGE, "pacing needs a prediction");
	if (job->expected->n_ops == 0 && job->pace == PACE_NONE)
		return true;
	if (!check_expected(run, error))
		return false;
	return job->slow_motion == 0 || job->slow_motion >= 1 ||
	       error_set(error, EXIT_CODE_USAGE, "slow motion: expected at least 1, got %g",
		       job->slow_motion);
}

/* Ranks that share a GPU read each other's memory, so they are threads of one process. Others would
 * only share the driver's locks, and NCCL's graphs may then wait for each other. */
static bool is_one_process(const struct run *run)
{
	return run->transport != NULL && !is_launched(run->job) &&
	       (!run->transport->apart || run->job->one_process);
}

static bool create_segment(struct run *run, const char *plan_text, struct error *error)
{
	const struct executor_job *job = run->job;
	struct text expected = {0};
	int64_t ranks = plan_ranks(&job->plan->plan);
	if (job->expected != NULL && job->expected->n_ops > 0)
		for (int c = 0; c < run->schedule->n_classes; c++)
			expectation_write(run->schedule, c, expected_of(run), (enum pace)job->pace,
				slow_motion(job), job->collective_timeout, &expected);
	const struct job what = {.kind = JOB_TRAIN,
		.ranks = (int)ranks,
		.meets = launcher_meets(&job->launcher),
		.port = job->launcher.port,
		.local_rank = job->launcher.local_rank,
		.join_timeout = launcher_join_timeout(&job->launcher),
		.any_rounding = job->any_rounding,
		.paced = job->pace != PACE_NONE,
		.cuda_graphs = job->cuda_graphs,
		.nccl = job->nccl,
		.threads = threads_per_rank(job),
		.cpus = machine_cpus(),
		.collective_timeout = collective_timeout(job),
		.setup_timeout = setup_timeout(job),
		.grace = job_is_on_gpu(job) ? LAUNCH_GRACE_GPU : LAUNCH_GRACE,
		.slow_motion = slow_motion(job),
		.training = job->training,
		.first_step = run->done_before,
		.resume_or_older = run->resume_or_older,
		.one_process = is_one_process(run),
		.checkpoint_every = job->checkpoint_every,
		.checkpoint_keep = job->checkpoint_keep,
		.checkpoint_background = job->checkpoint_background};
	const char *const texts[TEXT_COUNT] = {[TEXT_PLAN] = plan_text,
		[TEXT_DATA] = job->data,
		[TEXT_DEVICE] = job->device,
		[TEXT_KERNELS] = job->kernels,
		[TEXT_FAULT] = job->fault,
		[TEXT_CHECKPOINT] = job->checkpoint,
		[TEXT_RESUME] = run->resumed.folder,
		[TEXT_WEIGHTS] = job->weights,
		[TEXT_TRANSPORT] = transport_of(job),
		[TEXT_LAUNCHER] = job->launcher.name,
		[TEXT_HOST] = job->launcher.host,
		[TEXT_EXPECTED] = text_string(&expected)};

	/* Over MPI the ranks of a machine make a segment themselves when they have found each
	 * other. */
	bool ok = segment_create(&run->segment, &what, texts, job->training.steps, REPORT_BYTES,
		is_launched(job) ? 0 : buffers_most_capacity(run->schedule), error);
	text_finish(&expected);
	if (ok) {
		atomic_store(&run->segment.header->resumed, run->done_before);
		memcpy(run->segment.header->job.run_id, run->id, RUN_ID_SIZE);
	}
	return ok;
}

static void describe(struct text *text, int rank, int op, void *data)
{
	const struct run *run = data;
	int64_t ranks = plan_ranks(&run->job->plan->plan) / run->schedule->n_classes;
	const struct program *program = &run->schedule->programs[rank / ranks];
	const struct op *o = &program->ops[op];

	text_printf(text, "%s of %s", op_kind_name(o->kind),
		o->unit >= 0 ? program->units[o->unit].name : "all units");
}

static void tell_notes(struct run *run)
{
	const struct segment_header *header = run->segment.header;
	uint32_t length = atomic_load(&header->notes_length);

	note_lines(run, header->notes + run->noted, length - run->noted);
	run->noted = length;
}

static void report_steps(int64_t done, void *data)
{
	struct run *run = data;
	const struct executor_job *job = run->job;
	const struct plan *plan = &job->plan->plan;
	int64_t before = atomic_load(&run->segment.header->resumed);

	tell_notes(run);
	for (; before + run->reported < done; run->reported++) {
		int64_t step = before + run->reported;
		const struct step_result *result = &segment_results(&run->segment)[step];
		const struct progress progress = {.step = step + 1,
			.steps = job->training.steps,
			.loss = result->loss,
			.gradient_norm = result->gradient_norm,
			.step_time = result->step_time,
			.tokens_per_s =
				(double)(plan->global_batch * plan->seq_len) / result->step_time};

		if (job->report != NULL)
			job->report(&progress, job->report_data);
	}
	if (job->alive != NULL)
		job->alive(done, job->training.steps, job->report_data);
}

static void say_stopping(void *data)
{
	const struct run *run = data;

	if (run->job->stopping != NULL)
		run->job->stopping(run->job->report_data);
}

static bool read_report(struct run *run, struct measurement *measurement, struct error *error)
{
	const struct node *node =
		document_parse(run->arena, "measurement", segment_report(&run->segment),
			(size_t)run->segment.header->report_length, 0, error);

	return node != NULL && measurement_read(run->arena, node, measurement, error);
}

/* What has asked for the end. Where there are several launchers, another one may have been asked:
 * then it counts as SIGTERM, the first row. */
static const struct request {
	uint32_t signal;
	enum exit_code code;
	const char *name;
} requests[] = {{SIGTERM, EXIT_CODE_TERMINATED, "SIGTERM"},
	{SIGINT, EXIT_CODE_INTERRUPTED, "Ctrl-C"},
	{SIGHUP, EXIT_CODE_HUNG_UP, "SIGHUP (its terminal was closed)"}};

static const struct request *request_of(uint32_t signal)
{
	const struct request *request = requests;

	for (int i = 0; i < COUNT_OF(requests); i++)
		request = requests[i].signal == signal ? &requests[i] : request;
	return request;
}

/* Returns true, and says nothing, when no signal asked for the end. */
static bool went_on(const struct run *run, struct error *error)
{
	const struct segment_header *header = run->segment.header;
	long long after = (long long)atomic_load(&header->stopped_after);
	const char *folder = run->job->checkpoint;

	if (after == 0)
		return true;
	const struct request *by = request_of(atomic_load(&header->stop));

	if (run->job->launcher.rank > 0) {
		launch_let_others_speak();
		return error_set(error, by->code, "%s", "");
	}
	if (folder == NULL)
		return error_set(error, by->code,
			"stopped by %s after step %lld of %lld; "
			"nothing is kept, since no --checkpoint FOLDER was given",
			by->name, after, (long long)run->job->training.steps);
	return error_set(error, by->code,
		"stopped by %s after step %lld of %lld; --resume %s goes on from there", by->name,
		after, (long long)run->job->training.steps, folder);
}

static bool run_ranks(struct run *run, const char *plan_text, struct measurement *measurement,
	struct error *error)
{
	const struct launch launch = {.program = run->job->program,
		.segment = &run->segment,
		.first = run->job->launcher.rank,
		.count = is_launched(run->job) ? 1 : 0,
		.progress = report_steps,
		.stopping = say_stopping,
		.describe = describe,
		.data = run};

	if (!create_segment(run, plan_text, error))
		return false;
	*measurement = (struct measurement){0};
	bool ok = launch_ranks(&launch, error) && went_on(run, error) &&
		  (run->job->launcher.rank > 0 || read_report(run, measurement, error));
	segment_finish(&run->segment);
	return ok;
}

bool executor_train(const struct executor_job *job, struct arena *arena,
	struct measurement *measurement, struct error *error)
{
	struct run run = {.job = job, .arena = arena, .lock = -1};
	struct text written = {0};
	const char *plan_text = job->plan_text;

	if (!check_launcher(job, error) || !job_is_executable(job, error) ||
		!check_gpus(&run, error) || !job_model_is_trainable(job, error) ||
		!check_data(&run, error) ||
		!schedule_build(arena, &job->plan->plan, job->plan->model, job->plan->topology,
			&run.schedule, error))
		return false;
	if (!check_pace(&run, error) || !check_memory(&run, error) || !find_resumed(&run, error) ||
		!check_weights(&run, error))
		return false;
	if (plan_text == NULL) {
		plan_file_write(job->plan, &written);
		plan_text = text_string(&written);
	}
	bool ok = take_folder(&run, error) && run_ranks(&run, plan_text, measurement, error);
	run_folder_unlock(run.lock);
	text_finish(&written);
	return ok;
}
