/* Finds by MPI who is where, and looks at its messages now and then instead of all the time. */
#include "executor/transports/nodes/nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "executor/memory/memory.h"
#include "executor/transports/nodes/mpi_help.h"
#include "executor/transports/nodes/transfer.h"

/* The time between two looks at messages on their way is short at first, for those that are nearly
 * there; then as long as costs a core little (docs/train.md). */
#define NAP_SHORTEST 20e-6
#define NAP_LONGEST  200e-6

enum { TAG = 1 }; /* of the first channel */

static struct {
	MPI_Comm world, node;
	int rank;
} mpi;

/* Our messages are short enough to be sent at once, without asking the receiver first; a long one
 * would wait for an answer behind the peer's own. What the user has set wins. */
static void set_defaults(void)
{
	static const char *const settings[][2] = {
		{"OMPI_MCA_btl_tcp_eager_limit", "1048576"},
		{"OMPI_MCA_btl_tcp_rndv_eager_limit", "1048576"},
		{"OMPI_MCA_btl_tcp_max_send_size", "1048576"},
	};

	for (int i = 0; i < COUNT_OF(settings); i++)
		setenv(settings[i][0], settings[i][1], 0);
}

/* Refuses something that all ranks find, so only the first one tells it. */
static bool refuse(const char *message, struct error *error)
{
	return error_set(error, EXIT_CODE_USAGE, "%s", mpi.rank == 0 ? message : "");
}

static bool find_layout(struct layout *layout, struct error *error)
{
	int mine[2], size, local;
	char message[256];

	MPI_Comm_size(mpi.world, &layout->ranks);
	MPI_Comm_size(mpi.node, &size);
	MPI_Comm_rank(mpi.node, &local);
	layout->rank = mpi.rank;
	layout->per_node = size;
	/* One reduction finds the smallest and the largest size; the next one whether all ranks are
	 * where they should be. */
	mine[0] = -size;
	mine[1] = size;
	MPI_Allreduce(MPI_IN_PLACE, mine, 2, MPI_INT, MPI_MAX, mpi.world);
	if (-mine[0] != mine[1]) {
		snprintf(message, sizeof(message),
			"expected equally many ranks on each node, got %d on one and %d on another",
			-mine[0], mine[1]);
		return refuse(message, error);
	}
	int astray = mpi.rank % size != local;
	MPI_Allreduce(MPI_IN_PLACE, &astray, 1, MPI_INT, MPI_MAX, mpi.world);
	return !astray || refuse("expected ranks numbered node by node (0, 1 on the first, ...), "
				 "got another order; "
				 "use mpirun --map-by slot, or srun --distribution=block",
				  error);
}

bool mpi_start(struct layout *layout, int expected, struct error *error)
{
	int level, ranks;

	set_defaults();
	if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS ||
		level < MPI_THREAD_SERIALIZED)
		return error_set(error, EXIT_CODE_ENVIRONMENT,
			"MPI cannot be used from two threads in turn (MPI_THREAD_SERIALIZED)");
	mpi_help_stay_here();
	MPI_Comm_dup(MPI_COMM_WORLD, &mpi.world);
	MPI_Comm_rank(mpi.world, &mpi.rank);
	MPI_Comm_size(mpi.world, &ranks);
	if (ranks != expected) {
		char message[256];

		snprintf(message, sizeof(message),
			"MPI knows of %d ranks, the launcher started %d: "
			"it does not speak this MPI's protocol; "
			"with Slurm use srun --mpi=pmix or --mpi=none",
			ranks, expected);
		return refuse(message, error);
	}
	MPI_Comm_split_type(mpi.world, MPI_COMM_TYPE_SHARED, mpi.rank, MPI_INFO_NULL, &mpi.node);
	return find_layout(layout, error);
}

void mpi_stop(void)
{
	MPI_Finalize();
}

void mpi_exchange(const void *own, void *all, int64_t bytes)
{
	MPI_Allgather(own, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, mpi.world);
}

bool mpi_share_descriptor(int *fd, struct error *error)
{
	int where[2] = {(int)getpid(), *fd}, local;
	char path[64];

	MPI_Bcast(where, 2, MPI_INT, 0, mpi.node);
	MPI_Comm_rank(mpi.node, &local);
	if (where[1] < 0)
		return error_set(error, EXIT_CODE_ENVIRONMENT, "%s", "");
	if (local > 0) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", where[0], where[1]);
		*fd = open(path, O_RDWR | O_CLOEXEC);
	}
	int failure = *fd < 0 ? errno : 0;
	/* The first rank's descriptor must stay open until all have it. */
	MPI_Barrier(mpi.node);
	return failure == 0 || error_set(error, EXIT_CODE_ENVIRONMENT,
				       "ranks of one node cannot share memory (%s): "
				       "%s; they must see each other's processes",
				       path, strerror(failure));
}

const char *mpi_library(void)
{
	static char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	MPI_Get_library_version(version, &length);
	version[strcspn(version, ",\n")] = '\0';
	return version;
}

/* --- the wire --- */

struct mpi_wire {
	int n, room;
	MPI_Request *requests; /* [room] */
	struct wire_message **messages;
	int *finished;
	double nap;
};

static void add(struct wire *wire, struct wire_message *message, MPI_Request request)
{
	struct mpi_wire *w = wire->state;

	if (w->n == w->room)
		abort(); /* two_levels.c begins more transfers than it said */
	w->requests[w->n] = request;
	w->messages[w->n++] = message;
	w->nap = NAP_SHORTEST;
}

static void mpi_send(
	struct wire *wire, int rank, enum wire_channel channel, struct wire_message *message)
{
	MPI_Request request;

	allocations_foreign(true);
	MPI_Isend(message->data, (int)message->bytes, MPI_BYTE, rank, TAG + (int)channel, mpi.world,
		&request);
	allocations_foreign(false);
	add(wire, message, request);
}

static void mpi_receive(
	struct wire *wire, int rank, enum wire_channel channel, struct wire_message *message)
{
	MPI_Request request;

	allocations_foreign(true);
	MPI_Irecv(message->data, (int)message->bytes, MPI_BYTE, rank, TAG + (int)channel, mpi.world,
		&request);
	allocations_foreign(false);
	add(wire, message, request);
}

static void drop_finished(struct mpi_wire *w)
{
	int kept = 0;

	for (int i = 0; i < w->n; i++) {
		if (w->requests[i] == MPI_REQUEST_NULL)
			continue;
		w->requests[kept] = w->requests[i];
		w->messages[kept++] = w->messages[i];
	}
	w->n = kept;
}

static void nap(struct mpi_wire *w, double longest)
{
	double seconds = w->nap < longest ? w->nap : longest;

	nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * seconds)}, NULL);
	w->nap = 2 * w->nap < NAP_LONGEST ? 2 * w->nap : NAP_LONGEST;
}

static bool mpi_progress(struct wire *wire, double seconds, struct error *error)
{
	struct mpi_wire *w = wire->state;
	int n = 0;

	allocations_foreign(true);
	int code = MPI_Testsome(w->n, w->requests, &n, w->finished, MPI_STATUSES_IGNORE);
	allocations_foreign(false);
	if (code != MPI_SUCCESS)
		return error_set(error, EXIT_CODE_FAULT, "MPI lost a message (code %d)", code);
	for (int i = 0; i < n && n != MPI_UNDEFINED; i++)
		w->messages[w->finished[i]]->done = true;
	if (n > 0 && n != MPI_UNDEFINED) {
		drop_finished(w);
		w->nap = NAP_SHORTEST;
	} else {
		nap(w, seconds);
	}
	return true;
}

static void mpi_finish(struct wire *wire)
{
	struct mpi_wire *w = wire->state;

	free(w->requests);
	free(w->messages);
	free(w->finished);
	free(w);
}

static const struct wire_kind kind_mpi = {.name = "mpi",
	.send = mpi_send,
	.receive = mpi_receive,
	.progress = mpi_progress,
	.finish = mpi_finish};

bool wire_open_mpi(struct wire *wire, int ranks, struct error *error)
{
	struct mpi_wire *w = calloc(1, sizeof(*w));

	(void)error;
	if (w == NULL)
		base_out_of_memory(sizeof(*w));
	/* Each rank has two flows, of a header and the pieces on their way. Messages have a header
	 * and their data, and only one of them is received at a time. */
	w->room = 2 * ranks * (TRANSFER_DEPTH + 1) + 2 * (BOARD_DIRECTIONS * BOARD_PARCELS + 1);
	w->requests = calloc((size_t)w->room, sizeof(*w->requests));
	w->messages = calloc((size_t)w->room, sizeof(struct wire_message *));
	w->finished = calloc((size_t)w->room, sizeof(int));
	if (w->requests == NULL || w->messages == NULL || w->finished == NULL)
		base_out_of_memory((size_t)w->room * sizeof(*w->requests));
	*wire = (struct wire){.kind = &kind_mpi, .state = w};
	return true;
}
