#include "executor/launch/launch.h"
#include "executor/launch/slurm_step.h"
#include "executor/ranks/ranks.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The launcher looks for dead children after so many seconds. */
#define TICK 0.05

enum { MAX_SETTINGS = 16 };

/* A process that only follows others waits so many seconds, so that those speak first. */
enum { FOLLOWER_PAUSE = 2 };

static volatile sig_atomic_t asked; /* the signal that asked for an end */
static _Atomic uint32_t changed;    /* a child has ended, stopped or gone on */

/* The first request asks for an orderly end; the next one is the usual death (SA_RESETHAND). */
static void on_request(int signal)
{
	asked = signal;
}

/* Ends the wait for the next tick, so that a run is over when its last rank is. */
static void on_child(int signal)
{
	(void)signal;
	atomic_store(&changed, 1);
}

/* Ctrl-C and a closed terminal are requests only where there is a checkpoint to keep; elsewhere
 * they end a run at once. Where the shell or nohup has told the process to ignore them, because it
 * runs in the background, it goes on. */
static const int requests[] = {SIGTERM, SIGINT, SIGHUP};

static bool is_request(const struct segment *segment, int signal, const struct sigaction *before)
{
	bool keeps = segment_text(segment, TEXT_CHECKPOINT) != NULL;

	return signal == SIGTERM || (keeps && before->sa_handler != SIG_IGN);
}

static void take_requests(const struct segment *segment, struct sigaction *before)
{
	const struct sigaction action = {
		.sa_handler = on_request, .sa_flags = SA_RESTART | (int)SA_RESETHAND};

	asked = 0;
	for (int i = 0; i < COUNT_OF(requests); i++) {
		sigaction(requests[i], NULL, &before[i]);
		if (is_request(segment, requests[i], &before[i]))
			sigaction(requests[i], &action, NULL);
	}
}

static void leave_requests(const struct sigaction *before)
{
	for (int i = 0; i < COUNT_OF(requests); i++)
		sigaction(requests[i], &before[i], NULL);
}

struct child {
	pid_t pid; /* 0 while it is not running */
	int rank;
	double stopped_since; /* s; 0 while it runs */
};

struct crew {
	const struct launch *launch;
	struct arena arena;
	struct child *children; /* [count] */
	int first, count, running;
	int hold;  /* keeps the rank's connection to Slurm; -1 = none */
	bool told; /* the caller knows that a signal has asked for an end */
};

static bool is_on_gpus(const struct segment *segment)
{
	const char *device = segment_text(segment, TEXT_DEVICE);

	return device != NULL && strcmp(device, "cuda") == 0;
}

/* Returns the cores of the rank's threads, or NULL for the kernel's choice. A user who has another
 * launcher, or says something about cores, has decided already. */
static const char *places_of(struct crew *crew, int rank)
{
	static const char *const said[] = {"OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY"};
	const struct job *job = &crew->launch->segment->header->job;
	cpu_set_t allowed;

	for (int i = 0; i < COUNT_OF(said); i++)
		if (getenv(said[i]) != NULL)
			return NULL;
	CPU_ZERO(&allowed);
	if (job->one_process || is_on_gpus(crew->launch->segment) || crew->count < job->ranks ||
		sched_getaffinity(0, sizeof(allowed), &allowed) != 0 ||
		!cores_are_bound(CPU_COUNT(&allowed), job->ranks, job->threads))
		return NULL;
	return cores_places(&crew->arena, &allowed, rank, job->threads);
}

/* Makes the environment of a rank: ours, and thread counts for the libraries that read them there.
 * What the user has set wins. */
static char **make_environment(struct crew *crew, int rank)
{
	int threads = crew->launch->segment->header->job.threads;
	bool alone = crew->launch->segment->header->job.ranks == 1;
	const char *places = places_of(crew, rank);
	bool gpus = is_on_gpus(crew->launch->segment);
	const char *const settings[][2] = {
		{"OMP_NUM_THREADS", arena_printf(&crew->arena, "%d", threads)},
		{"OPENBLAS_NUM_THREADS", arena_printf(&crew->arena, "%d", threads)},
		/* A thread that spins at a barrier takes the core from another rank. Where there is
		 * no other, a short spin (tens of microseconds) spares a sleep after each product.
		 */
		{alone ? "GOMP_SPINCOUNT" : "OMP_WAIT_POLICY", alone ? "30000" : "passive"},
		/* Ranks that share a GPU have many streams: with fewer queues one that is held
		 * would hold up another that is not. */
		{"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
		/* Collectives of several communicators start in the order in which they were given,
		 * alike on all GPUs: two that each hold what the other one needs would wait for
		 * ever. This needs NCCL 2.26; see also struct device_cuda, one_at_a_time. */
		{"NCCL_LAUNCH_ORDER_IMPLICIT", gpus ? "1" : NULL},
		/* A step is either walked or launched, and has ended before the next one begins, so
		 * the two are never mixed. Allowing it can end in a deadlock where a graph has
		 * several communicators. */
		{"NCCL_GRAPH_MIXING_SUPPORT", gpus ? "0" : NULL},
		{"OMP_PLACES", places},
		{"OMP_PROC_BIND", places != NULL ? "close" : NULL},
	};
	int n = 0;

	while (environ[n] != NULL)
		n++;
	char **environment = ARENA_ARRAY(&crew->arena, char *, n + MAX_SETTINGS);
	memcpy(environment, environ, (size_t)n * sizeof(char *));
	for (int i = 0; i < COUNT_OF(settings); i++)
		if (settings[i][1] != NULL && getenv(settings[i][0]) == NULL)
			environment[n++] =
				arena_printf(&crew->arena, "%s=%s", settings[i][0], settings[i][1]);
	return environment;
}

static bool spawn_one(struct crew *crew, int rank, const char *program, struct error *error)
{
	posix_spawn_file_actions_t actions;
	char number[16], argument[] = EXECUTOR_RANK_ARGUMENT, fd[16];
	/* The name is readable in a list of processes, whatever path the program was started by. */
	char *name = arena_strdup(&crew->arena, program_invocation_name);
	char *argv[] = {name, argument, fd, number, NULL};
	struct child *child = &crew->children[rank - crew->first];

	child->rank = rank;

	snprintf(number, sizeof(number), "%d", rank);
	snprintf(fd, sizeof(fd), "%d", crew->launch->segment->fd);
	posix_spawn_file_actions_init(&actions);
	/* The descriptor is copied to its own number: that clears close-on-exec, and the number is
	 * within any limit. */
	posix_spawn_file_actions_adddup2(
		&actions, crew->launch->segment->fd, crew->launch->segment->fd);
	if (crew->hold >= 0)
		posix_spawn_file_actions_adddup2(&actions, crew->hold, SLURM_STEP_RANK_FD);
	int failure = posix_spawn(
		&child->pid, program, &actions, NULL, argv, make_environment(crew, rank));
	posix_spawn_file_actions_destroy(&actions);
	if (failure != 0) {
		child->pid = 0;
		return error_set(error, EXIT_CODE_ENVIRONMENT, "cannot start rank %d (%s): %s",
			rank, program, strerror(failure));
	}
	crew->running++;
	return true;
}

static bool spawn_all(struct crew *crew, struct error *error)
{
	const struct launch *launch = crew->launch;
	const char *program = launch->program != NULL ? launch->program : "/proc/self/exe";

	int processes = launch->segment->header->job.one_process ? 1 : crew->count;
	for (int i = 0; i < processes; i++)
		if (!spawn_one(crew, crew->first + i, program, error))
			return false;
	return true;
}

static void describe_place(struct crew *crew, int rank, struct text *text)
{
	const struct launch *launch = crew->launch;
	const struct board *board = segment_board(launch->segment, rank);
	int op = atomic_load(&board->op);

	if (atomic_load(&board->state) == BOARD_STARTING) {
		text_add(text, " while it started");
		return;
	}
	text_printf(text, " in step %d", atomic_load(&board->step));
	if (op >= 0 && launch->describe != NULL) {
		text_printf(text, ", operation %d, ", op);
		launch->describe(text, rank, op, launch->data);
	}
}

static void report_death(struct crew *crew, int rank, int status)
{
	struct segment *segment = crew->launch->segment;
	struct text text = {0};

	text_printf(&text, "rank %d ", rank);
	if (WIFSIGNALED(status))
		text_printf(&text, "was killed by signal %d (%s)", WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	else
		text_printf(&text, "left with code %d", WEXITSTATUS(status));
	describe_place(crew, rank, &text);
	segment_fault(segment, EXIT_CODE_FAULT, "%s", text_string(&text));
	text_finish(&text);
}

static void reap(struct crew *crew)
{
	struct segment *segment = crew->launch->segment;

	for (int i = 0; i < crew->count; i++) {
		struct child *child = &crew->children[i];
		int status;

		if (child->pid == 0 || waitpid(child->pid, &status,
					       WNOHANG | WUNTRACED | WCONTINUED) != child->pid)
			continue;
		if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
			child->stopped_since = WIFSTOPPED(status) ? clock_now() : 0;
			continue;
		}
		child->pid = 0;
		crew->running--;
		int state = atomic_load(&segment_board(segment, child->rank)->state);
		bool left = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CODE_FAULT;
		if (state == BOARD_GAVE_UP && left && crew->count < segment->header->job.ranks)
			segment_fault(segment, EXIT_CODE_FAULT, "%s", "");
		else if (state != BOARD_DONE || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
			report_death(crew, child->rank, status);
	}
}

/* A rank that does not come back from a call is given up after so many seconds; 0 stands for
 * --join-timeout. Moving returns every tenth of a second. At the end a rank may wait for one whose
 * last checkpoint is being written. */
static const struct {
	double most;
	const char *what, *hint;
} calls[] = {
	[CALL_MPI_START] = {0, "MPI has not brought all ranks together",
		"; are all started, and can they reach each other? (--join-timeout)"},
	[CALL_MPI_SHARE] = {0, "MPI has not brought the ranks of its node together",
		" (--join-timeout)"},
	[CALL_MPI_MOVE] = {60, "MPI has not come back from moving messages", ""},
	[CALL_MPI_STOP] = {PATIENCE_UNKNOWN, "MPI has not let it leave", "; is a rank stopped?"},
};

void launch_watch_call(struct segment *segment, int rank)
{
	const struct board *board = segment_board(segment, rank);
	int call = atomic_load(&board->call);
	double since = 1e-9 * (double)atomic_load(&board->call_since);

	if (call == CALL_NONE)
		return;
	double most = calls[call].most > 0 ? calls[call].most : segment->header->job.join_timeout;
	/* All may wait for the same rank, so the first rank speaks for them. */
	if (clock_of_machine() - since < most + (rank > 0 ? FOLLOWER_PAUSE : 0))
		return;
	segment_fault(segment, EXIT_CODE_FAULT, "rank %d: %s for %.3g s%s", rank, calls[call].what,
		most, calls[call].hint);
}

static void watch_calls(struct crew *crew)
{
	for (int i = 0; i < crew->count; i++)
		if (crew->children[i].pid != 0)
			launch_watch_call(crew->launch->segment, crew->children[i].rank);
}

/* Gives up ranks that are stopped. Ranks of other launchers give such a rank up, name it, and end,
 * but it would stay for ever, and its launcher with it. Ranks of one launcher see to each other. */
static void watch_stopped(struct crew *crew)
{
	const struct job *job = &crew->launch->segment->header->job;

	for (int i = 0; i < crew->count && job->meets != MEETS_HERE; i++) {
		const struct child *child = &crew->children[i];
		double most = job->collective_timeout + FOLLOWER_PAUSE + job->grace;

		if (child->pid == 0 || child->stopped_since == 0 || job->collective_timeout <= 0 ||
			clock_now() - child->stopped_since < most)
			continue;
		segment_fault(crew->launch->segment, EXIT_CODE_FAULT,
			"rank %d (process %d) was stopped by a signal and did not go on for %.3g s",
			child->rank, (int)child->pid, most);
	}
}

static void kill_rest(struct crew *crew)
{
	for (int i = 0; i < crew->count; i++) {
		struct child *child = &crew->children[i];

		if (child->pid == 0)
			continue;
		kill(child->pid, SIGKILL);
		while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
			;
		child->pid = 0;
		crew->running--;
	}
}

/* Passes a request to stop on to the caller; a rank may have got it instead of the launcher. */
static void pass_request(struct crew *crew)
{
	const struct launch *launch = crew->launch;
	_Atomic uint32_t *stop = &launch->segment->header->stop;
	uint32_t none = 0;

	if (asked != 0)
		atomic_compare_exchange_strong(stop, &none, (uint32_t)asked);
	if (atomic_load(stop) == 0 || crew->told)
		return;
	crew->told = true;
	if (launch->stopping != NULL)
		launch->stopping(launch->data);
}

static void see_through(struct crew *crew)
{
	const struct launch *launch = crew->launch;
	struct segment_header *header = launch->segment->header;
	uint32_t seen = 0;
	double aborted_at = 0;

	while (crew->running > 0) {
		const struct patience tick = {.timeout = TICK, .abort = &changed};

		event_wait(&header->steps_done, seen + 1, &tick);
		atomic_store(&changed, 0);
		/* Looks first who has gone: then all that it has left can be told. */
		reap(crew);
		uint32_t done = atomic_load(&header->steps_done.value);
		if (launch->progress != NULL)
			launch->progress(done, launch->data);
		seen = done;
		watch_calls(crew);
		watch_stopped(crew);
		pass_request(crew);
		if (!segment_aborted(launch->segment))
			continue;
		if (aborted_at == 0)
			aborted_at = clock_now();
		if (clock_now() - aborted_at > header->job.grace)
			kill_rest(crew);
	}
}

bool launch_ranks(const struct launch *launch, struct error *error)
{
	struct segment_header *header = launch->segment->header;
	bool all = launch->count == 0;
	struct crew crew = {.launch = launch,
		.first = all ? 0 : launch->first,
		.count = all ? header->job.ranks : launch->count};
	const struct sigaction watch = {.sa_handler = on_child, .sa_flags = SA_RESTART};
	struct sigaction before[COUNT_OF(requests)], before_watch;
	bool ok;

	header->parent = getpid();
	crew.hold = -1;
	if (slurm_step_has_pmix(launch->segment))
		slurm_step_hold(&crew.hold);
	crew.children = ARENA_ARRAY(&crew.arena, struct child, crew.count);
	take_requests(launch->segment, before);
	sigaction(SIGCHLD, &watch, &before_watch);
	ok = spawn_all(&crew, error);
	if (ok) {
		see_through(&crew);
		ok = segment_outcome(launch->segment, error);
		if (!ok && error->message[0] == '\0')
			launch_let_others_speak();
	} else {
		kill_rest(&crew);
	}
	leave_requests(before);
	sigaction(SIGCHLD, &before_watch, NULL);
	if (crew.hold >= 0)
		close(crew.hold);
	if (!ok && crew.hold >= 0)
		slurm_step_end(error->code);
	arena_finish(&crew.arena);
	return ok;
}

void launch_let_others_speak(void)
{
	sleep(FOLLOWER_PAUSE);
}

bool launch_follow_parent(const struct segment *segment)
{
	/* The signal is set before the parent is looked at, so a launcher that died in between is
	 * noticed either way. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	return getppid() == segment->header->parent;
}
