/* Finds out who started this process as one rank of many, by what launchers leave in the
 * environment. */
#include <stdlib.h>
#include <string.h>

#include "executor/launch/launch.h"
#include "executor/transports/nodes/nodes.h"

/* Says how ranks find each other. */
enum meeting_place {
	PLACE_MPI,    /* MPI knows all ranks */
	PLACE_MASTER, /* they meet at MASTER_ADDR, MASTER_PORT */
	PLACE_SLURM, /* by MPI where Slurm speaks its protocol, else on the first node that it names
		      */
};

/* Each row is a launcher. One of `proofs` must be set besides the ranks, because RANK alone may be
 * anybody's; NULL means that the size suffices. The launcher that was started last comes first:
 * torchrun itself may be started by srun or mpirun, and mpirun by srun. */
static const struct environment {
	const char *name, *rank, *ranks, *local_rank, *local_ranks, *proofs[2];
	enum meeting_place place;
} environments[] = {
	{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
		{"TORCHELASTIC_RUN_ID"}, PLACE_MASTER},
	{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
		"OMPI_COMM_WORLD_LOCAL_SIZE", {NULL}, PLACE_MPI},
	/* In a batch script SLURM_PROCID is set too, but not the number of a step's tasks. */
	{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, {"SLURM_STEP_ID"},
		PLACE_SLURM},
	{"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {NULL},
		PLACE_MPI},
	/* This row is for a script of the user's own. */
	{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
		{"MASTER_ADDR", "MASTER_PORT"}, PLACE_MASTER},
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

static bool check_port(const struct launcher *launcher, struct error *error)
{
	return launcher->port <= UINT16_MAX ||
	       error_set(error, EXIT_CODE_USAGE,
		       "MASTER_PORT: expected a port below %d, got \"%.40s\"", UINT16_MAX,
		       getenv("MASTER_PORT"));
}

/* Meets at MASTER_PORT. torchrun's agent listens there itself, for its own store; the next port is
 * then ours. */
static bool meet_at_master(
	const struct environment *e, struct launcher *launcher, struct error *error)
{
	static const char *const needed[] = {"MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"};
	const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");

	for (int i = 0; i < COUNT_OF(needed); i++)
		if (is_empty(needed[i]))
			return error_set(error, EXIT_CODE_USAGE,
				"%s: missing beside RANK and WORLD_SIZE, "
				"expected as torchrun sets it (docs/train.md)",
				needed[i]);
	launcher->host = getenv("MASTER_ADDR");
	if (!read_number(e, "MASTER_PORT", 1, &launcher->port, error))
		return false;
	launcher->port += agent != NULL && strcmp(agent, "True") == 0;
	return check_port(launcher, error);
}

/* Finds the first host of a list as Slurm writes it: "gpu[004-007,9],login" begins with gpu004. */
static void first_host(const char *list, char *host, size_t size)
{
	size_t n = 0;

	for (const char *c = list; *c != '\0' && *c != ',' && n + 1 < size; c++) {
		if (*c != '[') {
			host[n++] = *c;
			continue;
		}
		for (c++; *c != '\0' && strchr("-,]", *c) == NULL && n + 1 < size; c++)
			host[n++] = *c;
		c += strcspn(c, "]");
		if (*c == '\0')
			break;
	}
	host[n] = '\0';
}

/* Gives each step of a node's jobs a port of its own, below those that systems give to any process
 * that asks. */
static bool port_of_step(const struct environment *e, int *port, struct error *error)
{
	enum { FIRST_PORT = 20000, PORTS = 12000, STEPS = 101 };
	int job = 0, step = 0;

	if (!read_number(e, "SLURM_JOB_ID", 0, &job, error) ||
		!read_number(e, "SLURM_STEP_ID", 0, &step, error))
		return false;
	*port = FIRST_PORT + (int)(((int64_t)job * STEPS + step) % PORTS);
	return true;
}

/* Meets on the step's first node, where the first rank is; MASTER_ADDR wins where the user has set
 * it. */
static bool meet_on_first_node(
	const struct environment *e, struct launcher *launcher, struct error *error)
{
	static char host[256];

	if (is_empty("MASTER_ADDR") && is_empty("SLURM_STEP_NODELIST"))
		return error_set(error, EXIT_CODE_USAGE,
			"SLURM_STEP_NODELIST: "
			"missing beside SLURM_PROCID, expected as srun sets it; "
			"or set MASTER_ADDR to the first rank's node (docs/train.md)");
	if (is_empty("MASTER_ADDR"))
		first_host(getenv("SLURM_STEP_NODELIST"), host, sizeof(host));
	launcher->host = is_empty("MASTER_ADDR") ? host : getenv("MASTER_ADDR");
	if (is_empty("MASTER_PORT"))
		return port_of_step(e, &launcher->port, error);
	return read_number(e, "MASTER_PORT", 1, &launcher->port, error) &&
	       check_port(launcher, error);
}

/* Can MPI ask Slurm? `srun --mpi=pmix` and --mpi=pmi2 leave these variables; --mpi=none leaves
 * nothing. Open MPI as distributions build it does not speak pmi2. */
static bool mpi_can_ask(void)
{
	bool open_mpi = strncmp(mpi_library(), "Open MPI", 8) == 0;

	return mpi_library()[0] != '\0' &&
	       (getenv("PMIX_NAMESPACE") != NULL || (getenv("PMI_FD") != NULL && !open_mpi));
}

static bool is_one_node(const struct launcher *launcher)
{
	const char *nodes = getenv("SLURM_STEP_NUM_NODES");
	bool by_slurm = strcmp(launcher->name, "srun") == 0;

	return launcher->local_ranks >= launcher->ranks ||
	       (by_slurm && nodes != NULL && strcmp(nodes, "1") == 0);
}

static bool find_meeting_place(
	const struct environment *e, struct launcher *launcher, struct error *error)
{
	launcher->starts_mpi = e->place == PLACE_MPI || (e->place == PLACE_SLURM && mpi_can_ask());
	if (launcher->starts_mpi || launcher->ranks == 1)
		return true;
	bool ok = e->place == PLACE_SLURM ? meet_on_first_node(e, launcher, error)
					  : meet_at_master(e, launcher, error);

	/* No other machine has a rank then, so the first one is here. */
	if (ok && is_one_node(launcher))
		launcher->host = "localhost";
	return ok;
}

static bool read_environment(
	const struct environment *e, struct launcher *launcher, struct error *error)
{
	*launcher = (struct launcher){.name = e->name};
	return read_number(e, e->rank, 0, &launcher->rank, error) &&
	       read_number(e, e->ranks, 1, &launcher->ranks, error) &&
	       read_number(e, e->local_rank, 0, &launcher->local_rank, error) &&
	       read_number(e, e->local_ranks, 1, &launcher->local_ranks, error) &&
	       find_meeting_place(e, launcher, error);
}

static bool is_proved(const struct environment *e)
{
	bool needed = e->proofs[0] != NULL;

	for (int i = 0; i < COUNT_OF(e->proofs); i++)
		if (e->proofs[i] != NULL && getenv(e->proofs[i]) != NULL)
			return true;
	return !needed;
}

bool launcher_find(struct launcher *launcher, struct error *error)
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
