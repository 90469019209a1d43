/* What of a job is refused before anything is opened or started. */
#include "executor/refusals.h"

#include <string.h>

#include "executor/compute/compute.h"
#include "executor/executor.h"
#include "executor/training/training.h"
#include "schedule/pipeline/pipeline.h"

/* Each step has a result in the segment, whose size must not overflow. */
enum { MOST_STEPS = 1000000000 };

bool job_is_on_gpu(const struct executor_job *job)
{
	return job->device != NULL && strcmp(job->device, "cuda") == 0;
}

/* A fault that hits nobody tests nothing. */
static bool check_fault(const struct executor_job *job, struct error *error)
{
	struct fault fault;
	long long ranks = plan_ranks(&job->plan->plan), steps = job->training.steps;

	if (!fault_parse(job->fault, &fault, error))
		return false;
	if (fault.rank >= ranks)
		return error_set(error, EXIT_CODE_USAGE,
			"--fault %s: expected a rank from 0 to %lld, got %lld", job->fault,
			ranks - 1, (long long)fault.rank);
	return fault.step < steps || fault.kind >= FAULT_CHECKPOINT_ERROR || /* an operation */
	       error_set(error, EXIT_CODE_USAGE,
		       "--fault %s: expected a step from 0 to %lld (--steps %lld), got %lld",
		       job->fault, steps - 1, steps, (long long)fault.step);
}

static bool check_names(const struct executor_job *job, struct error *error)
{
	if (job->device != NULL && strcmp(job->device, "host") != 0 &&
		strcmp(job->device, "null") != 0 && !job_is_on_gpu(job))
		return error_set(error, EXIT_CODE_USAGE, "device %s: expected host, cuda or null",
			job->device);
	if (executor_kernels(job->kernels) == NULL)
		return error_set(error, EXIT_CODE_USAGE, "no such kernels: %s", job->kernels);
	if (job->training.steps < 1 || job->training.steps > MOST_STEPS)
		return error_set(error, EXIT_CODE_USAGE, "--steps: expected 1 to %d, got %lld",
			MOST_STEPS, (long long)job->training.steps);
	return check_fault(job, error);
}

bool job_model_is_trainable(const struct executor_job *job, struct error *error)
{
	const struct architecture *a = &job->plan->model->architecture;
	const char *lack = architecture_not_trainable(a);

	return lack == NULL ||
	       error_set(error, EXIT_CODE_INPUT,
		       "model \"%.100s\" (%s) can be planned but not trained here: "
		       "the kernels lack %s; "
		       "expected gpt2, mpt, llama, mistral, qwen2, qwen3 or mixtral",
		       a->name, model_family_names[a->family], lack);
}

/* Refuses what is executed on CPUs only. */
static bool check_device(const struct executor_job *job, struct error *error)
{
	const struct mesh *mesh = &job->plan->plan.mesh;
	const struct {
		bool is_there;
		const char *what, *instead;
	} lacks[] = {
		{mesh->pipeline > 1, "stages of a pipeline are", ", or a plan of --pipeline 1"},
		{mesh->tensor > 1, "tensor ranks are", ", or a plan of --tensor 1"},
		{mesh->context > 1, "context ranks are", ", or a plan of --context 1"},
		{job->plan->model->architecture.experts > 0, "a mixture of experts is", ""},
	};

	for (int i = 0; i < COUNT_OF(lacks) && job_is_on_gpu(job); i++)
		if (lacks[i].is_there)
			return error_set(error, EXIT_CODE_USAGE,
				"--device cuda: %s executed on CPUs only; use --device host%s",
				lacks[i].what, lacks[i].instead);
	return true;
}

/* A TCP connection has one order of messages. Two ranks with several stages each would need an
 * order for either direction. */
static bool check_stages(const struct executor_job *job, struct error *error)
{
	const struct plan_file *file = job->plan;
	const struct launcher *launcher = &job->launcher;

	if (launcher->ranks <= 1 || launcher->starts_mpi || file->topology->nodes == 1 ||
		file->plan.mesh.pipeline != 2 || plan_pipeline(&file->plan).chunks == 1)
		return true;
	return error_set(error, EXIT_CODE_USAGE,
		"--pipeline 2 of several stages a rank: "
		"over TCP messages between two ranks have one order; "
		"start it by MPI, or plan with --pipeline-schedule 1f1b");
}

bool job_is_executable(const struct executor_job *job, struct error *error)
{
	return check_names(job, error) && check_device(job, error) && check_stages(job, error);
}
