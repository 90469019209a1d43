/* Faults of the fake's NCCL, by FAKE_NCCL_FAULT=KIND:RANK:COUNT. With the COUNT-th collective that
 * the rank gives to NCCL,
 *   error: it never comes, and its communicator says so when it is asked;
 *   hang: it never comes, and nobody says so;
 *   refuse: the call itself fails;
 *   start: (COUNT means nothing) its communicator over the world is never finished;
 *   finalize: (COUNT means nothing) its communicators do not end well;
 *   all: the collective never comes, and its communicator over all ranks says so;
 *   late: whatever the rank makes with others, and its first collective, takes COUNT s of the
 *     fake's clock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/executor/fakes/nccl.h"

enum { MOST_RANKS = 16 };

static struct {
	char kind[16];
	int rank, count;
} fault;
static int issued[MOST_RANKS];

static void read_fault(void)
{
	static bool looked;
	const char *text = getenv("FAKE_NCCL_FAULT");

	if (!looked && text != NULL &&
		sscanf(text, "%15[a-z]:%d:%d", fault.kind, &fault.rank, &fault.count) != 3)
		abort();
	looked = true;
}

bool fake_nccl_fails(const char *kind, int rank)
{
	read_fault();
	return strcmp(fault.kind, kind) == 0 && fault.rank == rank;
}

double fake_nccl_late(int rank)
{
	return fake_nccl_fails("late", rank) ? fault.count : 0;
}

int fake_nccl_count(int rank)
{
	read_fault();
	return ++issued[rank % MOST_RANKS] - fault.count;
}
