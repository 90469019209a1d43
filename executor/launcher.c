/* Who started this process as one rank of many: by what launchers leave in the environment. */
#include <stdlib.h>

#include <string.h>

#include "executor/launch.h"

/* One of `proofs` must be there besides: RANK alone may be anybody's. NULL = the size suffices. */
static const struct environment {
	const char *name, *rank, *ranks, *local_rank, *local_ranks, *proofs[2];
	bool starts_mpi;
} environments[] = {
	{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
		"OMPI_COMM_WORLD_LOCAL_SIZE", {NULL}, true},
	/* In a batch script SLURM_PROCID is set too, the number of a step's tasks is not. */
	{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, {"SLURM_STEP_ID"},
		true},
	{"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {NULL}, true},
	{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
		{"MASTER_ADDR", "MASTER_PORT"}, false},
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

static bool is_empty(const char *variable)
{
	const char *value = getenv(variable);

	return value == NULL || value[0] == '\0';
}

/* Where the ranks meet. torchrun's agent listens at MASTER_PORT itself, for its own store; the port
 * above is then ours. */
static bool read_meeting_place(
	const struct environment *e, struct launcher *launcher, struct error *error)
{
	static const char *const needed[] = {"MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"};
	const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");

	for (int i = 0; i < COUNT_OF(needed); i++)
		if (is_empty(needed[i]))
			return error_set(error, EXIT_CODE_USAGE,
				"%s: missing beside RANK and WORLD_SIZE, expected as torchrun sets "
				"it (docs/cluster.md)",
				needed[i]);
	launcher->host = getenv("MASTER_ADDR");
	if (!read_number(e, "MASTER_PORT", 1, &launcher->port, error))
		return false;
	launcher->port += agent != NULL && strcmp(agent, "True") == 0;
	return launcher->port <= UINT16_MAX ||
	       error_set(error, EXIT_CODE_USAGE,
		       "MASTER_PORT: expected a port below %d, got \"%.40s\"", UINT16_MAX,
		       getenv("MASTER_PORT"));
}

static bool read_environment(
	const struct environment *e, struct launcher *launcher, struct error *error)
{
	*launcher = (struct launcher){.name = e->name, .starts_mpi = e->starts_mpi};
	return read_number(e, e->rank, 0, &launcher->rank, error) &&
	       read_number(e, e->ranks, 1, &launcher->ranks, error) &&
	       read_number(e, e->local_rank, 0, &launcher->local_rank, error) &&
	       read_number(e, e->local_ranks, 1, &launcher->local_ranks, error) &&
	       (e->starts_mpi || launcher->ranks == 1 || read_meeting_place(e, launcher, error));
}

static bool is_proved(const struct environment *e)
{
	bool needed = e->proofs[0] != NULL;

	for (int i = 0; i < COUNT_OF(e->proofs); i++)
		if (e->proofs[i] != NULL && getenv(e->proofs[i]) != NULL)
			return true;
	return !needed;
}

bool executor_launcher(struct launcher *launcher, struct error *error)
{
	for (int i = 0; i < COUNT_OF(environments); i++) {
		const struct environment *e = &environments[i];

		if (getenv(e->rank) == NULL || getenv(e->ranks) == NULL || !is_proved(e))
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

enum meets launcher_meets(const struct launcher *launcher)
{
	if (launcher->ranks <= 1)
		return MEETS_HERE;
	return launcher->starts_mpi ? MEETS_OVER_MPI : MEETS_OVER_TCP;
}

double launcher_join_timeout(const struct launcher *launcher)
{
	return launcher->join_timeout > 0 ? launcher->join_timeout : LAUNCHER_JOIN_TIMEOUT;
}
