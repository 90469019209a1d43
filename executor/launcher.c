/* Who started this process as one rank of many: by what launchers leave in the environment. */
#include <stdlib.h>

#include "executor/executor.h"

/* `proof` must be there besides: RANK alone may be anybody's. NULL = the size suffices. */
static const struct environment {
	const char *name, *rank, *ranks, *local_rank, *local_ranks, *proof;
	bool starts_mpi;
} environments[] = {
	{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
		"OMPI_COMM_WORLD_LOCAL_SIZE", NULL, true},
	/* In a batch script SLURM_PROCID is set too, the number of a step's tasks is not. */
	{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, "SLURM_STEP_ID",
		true},
	{"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, true},
	{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", false},
};

static bool read_number(const struct environment *e, const char *name, int64_t least, int *value,
	struct error *error)
{
	const char *text = name != NULL ? getenv(name) : NULL;
	int64_t number;

	if (text == NULL)
		return true;
	if (!parse_int(text, &number) || number < least || number > INT32_MAX)
		return error_set(error, EXIT_CODE_USAGE,
			"%s: expected a number from %lld up, as %s sets it, got \"%.40s\"", name,
			(long long)least, e->name, text);
	*value = (int)number;
	return true;
}

static bool read_environment(
	const struct environment *e, struct launcher *launcher, struct error *error)
{
	*launcher = (struct launcher){.name = e->name, .starts_mpi = e->starts_mpi};
	return read_number(e, e->rank, 0, &launcher->rank, error) &&
	       read_number(e, e->ranks, 1, &launcher->ranks, error) &&
	       read_number(e, e->local_rank, 0, &launcher->local_rank, error) &&
	       read_number(e, e->local_ranks, 1, &launcher->local_ranks, error);
}

bool executor_launcher(struct launcher *launcher, struct error *error)
{
	for (int i = 0; i < COUNT_OF(environments); i++) {
		const struct environment *e = &environments[i];

		if (getenv(e->rank) == NULL || getenv(e->ranks) == NULL ||
			(e->proof != NULL && getenv(e->proof) == NULL))
			continue;
		if (!read_environment(e, launcher, error))
			return false;
		if (launcher->rank >= launcher->ranks)
			return error_set(error, EXIT_CODE_USAGE,
				"%s: expected less than %s (%d), got %d", e->rank, e->ranks,
				launcher->ranks, launcher->rank);
		if (launcher->ranks > 1)
			return true;
	}
	*launcher = (struct launcher){.ranks = 1};
	return true;
}
