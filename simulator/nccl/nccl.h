/* Which algorithm and protocol NCCL takes. */
#ifndef SIMULATOR_NCCL_NCCL_H
#define SIMULATOR_NCCL_NCCL_H

#include "schedule/schedule.h"

/* X(suffix, name) */
#define NCCL_ALGORITHMS(X)                                                                         \
	X(RING, "ring") X(TREE, "tree") X(NVLS, "nvls") X(NVLS_TREE, "nvls-tree") X(PAT, "pat")
#define NCCL_PROTOCOLS(X) X(LL, "LL") X(LL128, "LL128") X(SIMPLE, "Simple")

enum nccl_algorithm {
#define X(suffix, name) NCCL_##suffix,
	NCCL_ALGORITHMS(X)
#undef X
		NCCL_ALGORITHM_COUNT
};
enum nccl_protocol {
#define X(suffix, name) NCCL_##suffix,
	NCCL_PROTOCOLS(X)
#undef X
		NCCL_PROTOCOL_COUNT
};

extern const char *const nccl_algorithm_names[], *const nccl_protocol_names[];

struct nccl_choice {
	enum nccl_algorithm algorithm;
	enum nccl_protocol protocol;
	double seconds;       /* as measured (time.h) */
	double tuner_seconds; /* NCCL's own estimate of the fastest */
	double channels;      /* of the graph; each runs on one multiprocessor */
};

/* The fastest of what NCCL of that version would consider; `bytes` is the full (gathered) size,
 * ranks > 1. */
struct nccl_choice nccl_choose(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement, enum collective_kind kind, int64_t bytes);

/* One rank's `bytes` to all: chunks follow one another around a ring. */
double nccl_broadcast_seconds(
	const struct topology *topology, const struct placement *placement, int64_t bytes);

#endif
