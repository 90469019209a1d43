/* Private to nccl/: gathers and reduce-scatters by rings, whose times have a step at each change of
 * protocol. */
#ifndef SIMULATOR_NCCL_STEPS_H
#define SIMULATOR_NCCL_STEPS_H

#include "simulator/nccl/nccl.h"

/* NCCL's own figures of a ring over a group (choice.c); us, GB/s. */
struct nccl_ring {
	bool may[NCCL_PROTOCOL_COUNT];        /* allowed by links and environment */
	double believed[NCCL_PROTOCOL_COUNT]; /* latency by which NCCL chooses */
	double usual[NCCL_PROTOCOL_COUNT];    /* the same on a host with an Intel CPU */
	double stated[NCCL_PROTOCOL_COUNT];   /* excess of the topology's latency over it */
	double ll, ll128;                     /* NCCL's own estimate of the largest bandwidths */
	double bus, channels;                 /* of the graph */
};

/* Do published times of such groups show the steps? */
bool nccl_shows_steps(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement, enum collective_kind kind,
	enum nccl_algorithm algorithm);

/* Seconds, and the protocol that NCCL takes. As monotone as nccl_seconds. */
double nccl_stepped_seconds(const struct nccl_ring *ring, const struct topology *topology,
	const struct libraries *libraries, const struct placement *placement,
	enum collective_kind kind, int64_t bytes, enum nccl_protocol *protocol);

#endif
