/* Stands for mpi.c in a build without MPI. */
#include "executor/transports/nodes/nodes.h"

static bool lacking(struct error *error)
{
	return error_set(error, EXIT_CODE_ENVIRONMENT,
		"this build has no MPI, which ranks on several nodes need: "
		"install libopenmpi-dev and openmpi-bin and build again");
}

bool mpi_start(struct layout *layout, int expected, struct error *error)
{
	(void)layout, (void)expected;
	return lacking(error);
}

void mpi_stop(void)
{
}

void mpi_exchange(const void *own, void *all, int64_t bytes)
{
	(void)own, (void)all, (void)bytes;
}

bool mpi_share_descriptor(int *fd, struct error *error)
{
	(void)fd;
	return lacking(error);
}

bool wire_open_mpi(struct wire *wire, int ranks, struct error *error)
{
	(void)wire, (void)ranks;
	return lacking(error);
}

const char *mpi_library(void)
{
	return "";
}
