#include "executor/launch/join.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "executor/launch/slurm_step.h"
#include "executor/launch/tcp.h"
#include "executor/transports/nodes/nodes.h"

/* Says how ranks that a launcher started find each other, and what then carries messages. */
struct world_kind {
	bool (*start)(struct cluster *cluster, struct error *error);
	bool (*share)(struct cluster *cluster, int *fd, struct error *error);
	bool (*open_wire)(struct cluster *cluster, struct wire *wire, struct error *error);
	void (*stop)(struct cluster *cluster); /* called when all ranks come here; may be NULL */
};

/* When a rank's connection to a dead rank broke, it waits so many seconds for the launcher that saw
 * that rank die. */
enum { LOSS_PAUSE = 3 };

static struct segment *sigpipe_control;

/* When MPI cannot send to a rank that died it gives up at once, and mpirun then exits with MPI's
 * code (255) instead of ours. So the sending thread stays in this handler until the launcher of the
 * dead rank has said so and ends all ranks. Only if no launcher does, this rank says what it knows.
 * The signal comes from a system call of this very thread, so functions that are called here need
 * not be safe in handlers. */
static void on_broken_connection(int number)
{
	(void)number;
	sleep(LOSS_PAUSE);
	segment_fault(sigpipe_control, EXIT_CODE_FAULT,
		"rank %d lost its connection to a rank of another node; which one is not known",
		sigpipe_control->rank);
	while (true)
		pause(); /* until the launcher has told */
}

/* Every rank finds the same difference; only the first one tells it. */
static bool agree_over_mpi(struct cluster *cluster, struct error *error)
{
	const char *name = segment_text(cluster->control, TEXT_LAUNCHER);
	int ranks = cluster->layout.ranks;
	struct arena arena = {0};
	struct agreement own, *all = ARENA_ARRAY(&arena, struct agreement, ranks);
	struct error difference = {0};
	bool ok = true;

	agreement_of(cluster->control, &own);
	mpi_exchange(&own, all, sizeof(own));
	for (int r = 1; r < ranks && ok; r++)
		ok = agreement_check(name, 0, &all[0], r, &all[r], &difference);
	arena_finish(&arena);
	return ok || error_set(error, difference.code, "%s",
			     cluster->layout.rank == 0 ? difference.message : "");
}

static bool start_mpi(struct cluster *cluster, struct error *error)
{
	sigpipe_control = cluster->control;
	signal(SIGPIPE, on_broken_connection);
	segment_begin_call(cluster->control, CALL_MPI_START);
	bool ok = mpi_start(&cluster->layout, cluster->control->header->job.ranks, error) &&
		  agree_over_mpi(cluster, error);
	segment_end_call(cluster->control);

	if (slurm_step_has_pmix(cluster->control))
		slurm_step_share_connection();
	return ok;
}

static bool share_by_mpi(struct cluster *cluster, int *fd, struct error *error)
{
	segment_begin_call(cluster->control, CALL_MPI_SHARE);
	bool ok = mpi_share_descriptor(fd, error);
	segment_end_call(cluster->control);
	return ok;
}

static void stop_mpi(struct cluster *cluster)
{
	segment_begin_call(cluster->control, CALL_MPI_STOP);
	mpi_stop();
	segment_end_call(cluster->control);
}

static bool open_mpi(struct cluster *cluster, struct wire *wire, struct error *error)
{
	return wire_open_mpi(wire, cluster->layout.ranks, error);
}

/* Leaves a line that whoever started this rank prints, as all notes are printed. */
static void leave_note(void *data, const char *line)
{
	struct text text = {0};

	text_printf(&text, "%s\n", line);
	segment_leave_notes(data, &text);
	text_finish(&text);
}

/* Warns that a port is open to anybody. On the loopback only users of this machine can reach it,
 * and they are trusted. */
static void note_open_port(const struct rendezvous *with)
{
	struct error line = {0};

	if (with->rank != 0 || with->secret.known || tcp_is_loopback(with->host))
		return;
	/* error_set makes the host's name one harmless line. */
	error_set(&line, EXIT_CODE_OK,
		"SHARDPLAN_SECRET is not set: "
		"whoever reaches port %d of %s can join this job (docs/train.md)",
		with->port, with->host);
	with->note(with->note_data, line.message);
}

/* Tells NCCL the network interface by which this rank has met ranks of other nodes. Left to itself
 * NCCL may choose one that leads nowhere. */
static void pass_interface(const struct meeting *meeting)
{
	const struct layout *layout = &meeting->layout;
	char name[TCP_INTERFACE_BYTES] = "", value[TCP_INTERFACE_BYTES + 1];

	for (int r = 0; r < layout->ranks && name[0] == '\0'; r++)
		if (r / layout->per_node != layout->rank / layout->per_node)
			tcp_interface(meeting->fds[r], name);
	snprintf(value, sizeof(value), "=%s", name);
	if (name[0] != '\0')
		setenv("NCCL_SOCKET_IFNAME", value, 0);
}

static bool start_tcp(struct cluster *cluster, struct error *error)
{
	const struct segment *control = cluster->control;
	const struct job *job = &control->header->job;
	struct agreement agreement;
	struct rendezvous with = {.name = segment_text(control, TEXT_LAUNCHER),
		.agreement = &agreement,
		.host = segment_text(control, TEXT_HOST),
		.port = job->port,
		.rank = control->rank,
		.ranks = job->ranks,
		.local_rank = job->local_rank,
		.timeout = job->join_timeout,
		.note = leave_note,
		.note_data = cluster->control};

	if (!secret_find(&with.secret, error))
		return false;
	note_open_port(&with);
	agreement_of(control, &agreement);
	bool ok = rendezvous_meet(&with, &cluster->meeting, error);

	cluster->layout = cluster->meeting.layout;
	if (ok)
		pass_interface(&cluster->meeting);
	return ok;
}

static bool share_by_tcp(struct cluster *cluster, int *fd, struct error *error)
{
	return rendezvous_share_descriptor(&cluster->meeting, fd, error);
}

static bool open_sockets(struct cluster *cluster, struct wire *wire, struct error *error)
{
	bool ok = wire_open_sockets(wire, cluster->meeting.fds, cluster->layout.ranks, error);

	meeting_forget_sockets(&cluster->meeting);
	return ok;
}

static const struct world_kind worlds[] = {
	[MEETS_OVER_MPI] = {start_mpi, share_by_mpi, open_mpi, stop_mpi},
	[MEETS_OVER_TCP] = {start_tcp, share_by_tcp, open_sockets, NULL},
};

static bool create_shared(struct cluster *cluster, int64_t window_bytes, struct error *error)
{
	static const char *const texts[TEXT_COUNT];
	struct job job = cluster->control->header->job;

	job.ranks = cluster->layout.per_node;
	return segment_create(&cluster->own, &job, texts, 0, 0, window_bytes, error);
}

/* The first rank of a machine creates the segment, and all ranks of the machine attach to it. */
static bool share(struct cluster *cluster, int64_t window_bytes, struct error *error)
{
	int local = cluster->layout.rank % cluster->layout.per_node;
	struct segment made = {.fd = -1};
	bool ok = true;
	int fd = -1;

	if (local == 0) {
		ok = create_shared(cluster, window_bytes, error);
		made = cluster->own;
		cluster->own = (struct segment){.fd = -1};
		fd = ok ? dup(made.fd) : -1;
	}
	ok = cluster->world->share(cluster, &fd, error) && ok;
	if (ok)
		ok = segment_attach(&cluster->own, fd, local, error);
	else if (fd >= 0)
		close(fd);
	if (local == 0)
		segment_finish(&made);
	return ok;
}

static bool join_others(struct cluster *cluster, int64_t window_bytes, struct error *error)
{
	struct segment *control = cluster->control;
	const struct world_kind *world = &worlds[control->header->job.meets];

	if (!world->start(cluster, error)) {
		meeting_finish(&cluster->meeting);
		return false;
	}
	cluster->world = world;
	if (!share(cluster, window_bytes + NODES_BOUNCE_BYTES, error))
		return false;
	control->shared = &cluster->own;
	cluster->window = segment_window(&cluster->own, cluster->own.rank);
	cluster->window_bytes = cluster->own.header->window_bytes - NODES_BOUNCE_BYTES;
	return true;
}

bool cluster_join(
	struct cluster *cluster, struct segment *control, int64_t window_bytes, struct error *error)
{
	const struct segment_header *header = control->header;

	*cluster = (struct cluster){.control = control,
		.own = {.fd = -1},
		.layout = {control->rank, header->job.ranks, header->job.ranks}};
	if (header->job.meets != MEETS_HERE)
		return join_others(cluster, window_bytes, error);
	cluster->window = segment_window(control, control->rank);
	cluster->window_bytes = header->window_bytes;
	return true;
}

bool cluster_check(
	const struct cluster *cluster, int64_t nodes, int64_t per_node, struct error *error)
{
	const struct layout *layout = &cluster->layout;

	if (cluster->world == NULL || layout->per_node == per_node)
		return true;
	if (layout->rank != 0)
		return error_set(error, EXIT_CODE_USAGE, "%s", "");
	return error_set(error, EXIT_CODE_USAGE,
		"the plan is for %lld nodes x %lld ranks, the launcher started %d x %d; "
		"start it with %lld ranks on each of %lld nodes, or plan for a topology of %d x %d",
		(long long)nodes, (long long)per_node, layout->ranks / layout->per_node,
		layout->per_node, (long long)per_node, (long long)nodes,
		layout->ranks / layout->per_node, layout->per_node);
}

bool cluster_open_comm(struct cluster *cluster, struct comm *comm, const struct kernels *kernels,
	struct kernel_context *context, struct error *error)
{
	struct wire wire;

	if (cluster->world == NULL)
		return comm_open_shm(comm, cluster->control, kernels, context, error);
	return cluster->world->open_wire(cluster, &wire, error) &&
	       comm_open_nodes(comm, &cluster->layout, &cluster->own, cluster->control, &wire,
		       kernels, context, error);
}

void cluster_leave(struct cluster *cluster, bool sound)
{
	if (cluster->world == NULL)
		return;
	/* Connections may close from here on, so SIGPIPE is ignored. */
	if (sigpipe_control != NULL)
		signal(SIGPIPE, SIG_IGN);
	/* MPI waits for all ranks at its end, and after a fault some do not come. */
	if (sound && cluster->world->stop != NULL)
		cluster->world->stop(cluster);
	cluster->control->shared = NULL;
	segment_finish(&cluster->own);
	meeting_finish(&cluster->meeting);
	cluster->world = NULL;
}
