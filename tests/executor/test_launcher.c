/* Recognises who started this process by the environments of launchers, and acts on it. */
#include "support.h"

#include <stdlib.h>

#include "executor/launch/launch.h"
#include "executor/ranks/cores.h"
#include "executor/transports/nodes/nodes.h"

static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
	"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_PROCID",
	"SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_ID", "SLURM_JOB_ID",
	"SLURM_STEP_NODELIST", "PMIX_NAMESPACE", "PMI_FD", "PMI_RANK", "PMI_SIZE",
	"MPI_LOCALRANKID", "MPI_LOCALNRANKS", "RANK", "WORLD_SIZE", "LOCAL_RANK",
	"LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE",
	"TORCHELASTIC_RUN_ID"};

static int clear(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(variables); i++)
		unsetenv(variables[i]);
	return 0;
}

/* "NAME=VALUE NAME=VALUE" */
static void set(const char *environment)
{
	char copy[256], *save;

	clear(NULL);
	snprintf(copy, sizeof(copy), "%s", environment);
	for (char *word = strtok_r(copy, " ", &save); word != NULL;
		word = strtok_r(NULL, " ", &save)) {
		char *equals = strchr(word, '=');

		*equals = '\0';
		setenv(word, equals + 1, 1);
	}
}

static void launchers_are_told_apart(void **state)
{
	static const struct {
		const char *environment, *name;
		int rank, ranks, local_rank, local_ranks;
		bool starts_mpi;
	} cases[] = {
		{"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
		 "OMPI_COMM_WORLD_LOCAL_SIZE=2",
			"mpirun", 3, 4, 1, 2, true},
		{"SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1 SLURM_STEP_ID=0 "
		 "SLURM_STEP_NODELIST=n[0-3]",
			"srun", 5, 8, 1, 0, false},
		/* mpirun inside of a Slurm step of one task. */
		{"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 SLURM_PROCID=0 "
		 "SLURM_STEP_NUM_TASKS=1 SLURM_STEP_ID=0",
			"mpirun", 0, 2, 0, 0, true},
		{"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1", "mpiexec", 1, 2, 0, 1,
			true},
		{"RANK=6 WORLD_SIZE=8 LOCAL_RANK=2 LOCAL_WORLD_SIZE=4 MASTER_ADDR=a "
		 "MASTER_PORT=29500",
			"torchrun", 6, 8, 2, 4, false},
		/* torchrun, one on each node of a Slurm step. */
		{"RANK=6 WORLD_SIZE=8 LOCAL_RANK=2 LOCAL_WORLD_SIZE=4 MASTER_ADDR=a "
		 "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none SLURM_PROCID=1 "
		 "SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_STEP_ID=0",
			"torchrun", 6, 8, 2, 4, false},
		/* Nobody: a batch script, a variable of somebody else, a launcher of one. */
		{"SLURM_PROCID=0", NULL, 0, 1, 0, 0, false},
		{"RANK=6 WORLD_SIZE=8", NULL, 0, 1, 0, 0, false},
		{"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", NULL, 0, 1, 0, 0, false},
		{"", NULL, 0, 1, 0, 0, false},
	};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct launcher launcher;
		struct error error = {0};

		set(cases[i].environment);
		if (!executor_launcher(&launcher, &error))
			fail_msg("%s: %s", cases[i].environment, error.message);
		assert_int_equal(launcher.ranks, cases[i].ranks);
		assert_int_equal(launcher.rank, cases[i].rank);
		assert_int_equal(launcher.local_rank, cases[i].local_rank);
		assert_int_equal(launcher.local_ranks, cases[i].local_ranks);
		assert_int_equal(launcher.starts_mpi, cases[i].starts_mpi);
		if (cases[i].name != NULL)
			assert_string_equal(launcher.name, cases[i].name);
	}
}

static void nonsense_is_refused(void **state)
{
	static const char *const bad[] = {"OMPI_COMM_WORLD_RANK=4 OMPI_COMM_WORLD_SIZE=4",
		"OMPI_COMM_WORLD_RANK=-1 OMPI_COMM_WORLD_SIZE=4", "PMI_RANK=1 PMI_SIZE=two",
		"PMI_RANK=0 PMI_SIZE=0", "PMI_RANK=0 PMI_SIZE=99999999999",
		/* A process that is one of many must not train alone. */
		"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a",
		"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_PORT=29500",
		"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=29500",
		"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=0",
		"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=65536"};

	(void)state;
	for (int i = 0; i < COUNT_OF(bad); i++) {
		struct launcher launcher;
		struct error error = {0};

		set(bad[i]);
		assert_false(executor_launcher(&launcher, &error));
		assert_int_equal(error.code, EXIT_CODE_USAGE);
	}
}

/* torchrun's agent listens at MASTER_PORT; who has no agent may. */
static void the_agents_port_is_left_to_it(void **state)
{
	struct launcher launcher;
	struct error error = {0};

	(void)state;
	set("RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=node-a MASTER_PORT=29500");
	assert_true(executor_launcher(&launcher, &error));
	assert_string_equal(launcher.host, "node-a");
	assert_int_equal(launcher.port, 29500);
	setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
	assert_true(executor_launcher(&launcher, &error));
	assert_int_equal(launcher.port, 29501);
}

/* Where Slurm has no word of its own for it, as with srun --mpi=none: host and port. */
static void a_step_meets_on_its_first_node(void **state)
{
#define STEP "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 SLURM_JOB_ID=7 SLURM_STEP_ID=2 "
	static const struct {
		const char *environment, *host;
		int port;
	} cases[] = {
		{STEP "SLURM_STEP_NODELIST=node-a", "node-a", 20709},
		{STEP "SLURM_STEP_NODELIST=login,gpu[1-2]", "login", 20709},
		{STEP "SLURM_STEP_NODELIST=gpu[004-007,9],login", "gpu004", 20709},
		{STEP "SLURM_STEP_NODELIST=gpu[12,14]", "gpu12", 20709},
		{STEP "SLURM_STEP_NODELIST=r[1-2]n[3-4].site", "r1n3.site", 20709},
		{STEP "SLURM_STEP_NODELIST=a MASTER_ADDR=b MASTER_PORT=29500", "b", 29500},
		{STEP "SLURM_STEP_NODELIST=a MASTER_PORT=29500", "a", 29500},
	};
	struct launcher launcher;
	struct error error = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		set(cases[i].environment);
		assert_true(executor_launcher(&launcher, &error));
		assert_int_equal(launcher_meets(&launcher), MEETS_OVER_TCP);
		assert_string_equal(launcher.host, cases[i].host);
		assert_int_equal(launcher.port, cases[i].port);
	}
	/* Slurm speaks a protocol of MPI's; a build without MPI does not. */
	set(STEP "PMIX_NAMESPACE=slurm.pmix.7.2 SLURM_STEP_NODELIST=a");
	assert_true(executor_launcher(&launcher, &error));
	assert_int_equal(launcher_meets(&launcher),
		mpi_library()[0] != '\0' ? MEETS_OVER_MPI : MEETS_OVER_TCP);
	set(STEP);
	assert_false(executor_launcher(&launcher, &error));
	assert_int_equal(error.code, EXIT_CODE_USAGE);
#undef STEP
}

/* Told before anything is started. */
static void expect_refusal(struct launcher launcher, enum exit_code code, const char *words)
{
	struct executor_job job = run_job(1);
	struct run run;

	run_plan(&run, TINY_GPT2, 2, "strategy=FULL_SHARD micro_batch=1 global_batch=2 seq_len=8");
	job.launcher = launcher;
	assert_false(run_train(&run, &job));
	assert_int_equal(run.error.code, code);
	if (strstr(run.error.message, words) == NULL)
		fail_msg("\"%s\" is not in: %s", words, run.error.message);
	run_finish(&run);
}

static void what_cannot_be_started_is_said(void **state)
{
	(void)state;
	clear(NULL);
	expect_refusal((struct launcher){.name = "torchrun", .ranks = 3, .host = "localhost"},
		EXIT_CODE_USAGE, "the plan is for 2 ranks");
	expect_refusal((struct launcher){.name = "mpirun", .ranks = 3, .starts_mpi = true},
		EXIT_CODE_USAGE, "the plan is for 2 ranks");
}

/* Is a rank given up that has been in that call for `seconds`? The error says why. */
static bool is_given_up(int rank, enum rank_call call, double seconds, struct error *error)
{
	static const char *const texts[TEXT_COUNT];
	const struct job job = {.ranks = 2, .join_timeout = 20};
	struct segment segment;

	assert_true(segment_create(&segment, &job, texts, 0, 0, 0, error));
	segment.rank = rank;
	segment_begin_call(&segment, call);
	atomic_fetch_sub(&segment_board(&segment, rank)->call_since, (int64_t)(1e9 * seconds));
	launch_watch_call(&segment, rank);
	bool given_up = !segment_outcome(&segment, error);
	assert_int_equal(given_up, segment_aborted(&segment));
	/* What has ended is not watched. */
	segment_end_call(&segment);
	segment.header->fault = (struct fault_record){0};
	atomic_store(&segment.header->abort, 0);
	launch_watch_call(&segment, rank);
	assert_true(segment_outcome(&segment, &(struct error){0}));
	segment_finish(&segment);
	return given_up;
}

/* MPI has no deadlines; the process that started a rank has one for each call. */
static void calls_that_do_not_end_are_given_up(void **state)
{
	static const struct {
		enum rank_call call;
		double most;
		const char *words;
	} cases[] = {
		{CALL_MPI_START, 20, "not brought all ranks together for 20 s"},
		{CALL_MPI_SHARE, 20, "the ranks of its node together for 20 s"},
		{CALL_MPI_MOVE, 60, "not come back from moving messages for 60 s"},
		{CALL_MPI_STOP, 600, "not let it leave for 600 s"},
	};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct error error = {0};

		assert_false(is_given_up(0, cases[i].call, cases[i].most - 1, &error));
		/* The first rank speaks for those that wait with it. */
		assert_false(is_given_up(1, cases[i].call, cases[i].most + 1, &error));
		assert_true(is_given_up(1, cases[i].call, cases[i].most + 3, &error));
		assert_int_equal(error.code, EXIT_CODE_FAULT);
		error = (struct error){0};
		assert_true(is_given_up(0, cases[i].call, cases[i].most + 1, &error));
		assert_int_equal(error.code, EXIT_CODE_FAULT);
		assert_non_null(strstr(error.message, "rank 0: MPI has"));
		if (strstr(error.message, cases[i].words) == NULL)
			fail_msg("\"%s\" is not in: %s", cases[i].words, error.message);
	}
}

/* Bound where all cores are taken; not where one thread more would find a core, nor where there are
 * too few. */
static void ranks_that_take_all_cores_are_bound(void **state)
{
	(void)state;
	static const struct {
		int cores, ranks, threads;
		bool bound;
	} cases[] = {{2, 1, 2, true}, {2, 2, 1, true}, {2, 1, 1, false}, {2, 3, 1, false},
		{8, 3, 2, true}, {8, 2, 3, false}, {9, 4, 2, true}, {1, 1, 1, true}};

	for (int i = 0; i < COUNT_OF(cases); i++)
		assert_int_equal(cores_are_bound(cases[i].cores, cases[i].ranks, cases[i].threads),
			cases[i].bound);
}

static void places_are_cores_in_order(void **state)
{
	static const int allowed[] = {1, 4, 5, 70};
	struct arena arena = {0};
	cpu_set_t set;

	(void)state;
	CPU_ZERO(&set);
	for (int i = 0; i < COUNT_OF(allowed); i++)
		CPU_SET(allowed[i], &set);
	assert_string_equal(cores_places(&arena, &set, 0, 2), "{1},{4}");
	assert_string_equal(cores_places(&arena, &set, 1, 2), "{5},{70}");
	assert_string_equal(cores_places(&arena, &set, 2, 1), "{5}");
	arena_finish(&arena);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(launchers_are_told_apart),
		cmocka_unit_test(nonsense_is_refused),
		cmocka_unit_test(the_agents_port_is_left_to_it),
		cmocka_unit_test(a_step_meets_on_its_first_node),
		cmocka_unit_test(what_cannot_be_started_is_said),
		cmocka_unit_test(calls_that_do_not_end_are_given_up),
		cmocka_unit_test(ranks_that_take_all_cores_are_bound),
		cmocka_unit_test(places_are_cores_in_order),
	};

	run_as_rank(argc, argv);
	return cmocka_run_group_tests(tests, NULL, clear);
}
