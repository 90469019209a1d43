#include "executor/cluster.h"

#include <fcntl.h>
#include <unistd.h>

#include "executor/mpi_world.h"

static bool create_shared(struct cluster *cluster, int64_t window_bytes, struct error *error)
{
	static const char *const texts[TEXT_COUNT];
	struct job job = cluster->control->header->job;

	job.ranks = cluster->layout.per_node;
	return segment_create(&cluster->own, &job, texts, 0, 0, window_bytes, error);
}

/* The first rank of a machine makes the segment, all attach to it. */
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
	ok = mpi_share_descriptor(&fd, error) && ok &&
	     segment_attach(&cluster->own, fd, local, error);
	if (local == 0)
		segment_finish(&made);
	return ok;
}

static bool join_over_mpi(struct cluster *cluster, int64_t window_bytes, struct error *error)
{
	struct segment *control = cluster->control;

	if (!mpi_start(&cluster->layout, control->header->job.ranks, error))
		return false;
	cluster->joined = true;
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
	if (header->job.over_mpi)
		return join_over_mpi(cluster, window_bytes, error);
	cluster->window = segment_window(control, control->rank);
	cluster->window_bytes = header->window_bytes;
	return true;
}

bool cluster_check(
	const struct cluster *cluster, int64_t nodes, int64_t per_node, struct error *error)
{
	const struct layout *layout = &cluster->layout;

	if (!cluster->joined || layout->per_node == per_node)
		return true;
	if (layout->rank != 0)
		return error_set(error, EXIT_CODE_USAGE, "%s", "");
	return error_set(error, EXIT_CODE_USAGE,
		"the plan is for %lld nodes x %lld ranks, the launcher started %d x %d; start it "
		"with %lld ranks on each of %lld nodes, or plan for a topology of %d x %d",
		(long long)nodes, (long long)per_node, layout->ranks / layout->per_node,
		layout->per_node, (long long)per_node, (long long)nodes,
		layout->ranks / layout->per_node, layout->per_node);
}

bool cluster_open_comm(struct cluster *cluster, struct comm *comm, const struct kernels *kernels,
	struct kernel_context *context, struct error *error)
{
	struct wire wire;

	if (!cluster->joined)
		return comm_open_shm(comm, cluster->control, kernels, context, error);
	return wire_open_mpi(&wire, cluster->layout.ranks, error) &&
	       comm_open_nodes(comm, &cluster->layout, &cluster->own, cluster->control, &wire,
		       kernels, context, error);
}

void cluster_leave(struct cluster *cluster, bool sound)
{
	if (!cluster->joined)
		return;
	/* MPI waits for all ranks at its end: after a fault some do not come. */
	if (sound)
		mpi_stop();
	cluster->control->shared = NULL;
	segment_finish(&cluster->own);
	cluster->joined = false;
}
