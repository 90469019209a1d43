/* Private to nccl/: measured times of NCCL's algorithms. choice.c has the model by which NCCL
 * chooses among them. */
#ifndef SIMULATOR_NCCL_TIME_H
#define SIMULATOR_NCCL_TIME_H

#include "simulator/nccl/nccl.h"

/* Seconds over ranks > 1; `bytes` is the full (gathered) size. Only for an algorithm that NCCL
 * considers for this group. Never falls when bytes, latencies or oversubscription grow or a
 * bandwidth shrinks. */
double nccl_seconds(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement, enum collective_kind kind, enum nccl_algorithm algorithm,
	int64_t bytes);

/* The time of a gather or reduce-scatter by a ring inside a node that uses Simple, also at the
 * first sizes that do. */
double nccl_simple_seconds(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement, enum collective_kind kind, int64_t bytes);

/* One group of ranks and its links, with figures of published times. us, GB/s. */
struct nccl_links {
	int link, network;          /* rows of time.c's tables */
	double launch;              /* of the kernel */
	double ranks, nodes, local; /* local: ranks in a node */
	double port;                /* of one rank's link, for a ring */
	double node;                /* of a node's NICs, this group's share */
	double ring, flow;          /* of that, for a ring and for one message */
	double inside, across;      /* latency of a small hop */
};
struct nccl_links nccl_links_of(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement);

/* As stated, else usual for the kind; us. */
double nccl_fabric_latency(const struct topology *topology);
double nccl_network_latency(const struct topology *topology);

/* The latency of one hop that moves `step` bytes at once, us. */
double nccl_hop_inside(const struct nccl_links *group, double step);
double nccl_hop_across(const struct nccl_links *group, double step);

/* GB/s of a port's links to one other device. */
double nccl_pair_bandwidth(const struct topology *topology, const struct nccl_links *group);

/* The share of the links inside a node that a ring gets: less than 1 over several hosts of an
 * NVLink domain. */
double nccl_links_share(const struct placement *placement);

/* GB/s that a ring over the group gets from its slowest link. */
double nccl_ring_bandwidth(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement);

#endif
