/* The choice of algorithm and protocol by NCCL. */
#ifndef SIMULATOR_NCCL_NCCL_H
#define SIMULATOR_NCCL_NCCL_H

#include "schedule/schedule.h"

/* X(suffix, name). */
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

/* EFA where aws-ofi-nccl does not tell NCCL what its network is good at: before NCCL 2.19, which
 * takes the first tuner, and on GPUs before Hopper, which the tuner does not know (its
 * nccl_ofi_model.cpp). There collectives get a part of the NICs, less over more nodes, and differ
 * from one to the next (hf-ultrascale-comm in bench/published, NCCL 2.18). With a tuner they get
 * nearly all of them, over 32 nodes as over two (hyperpod-p5, 2.28). Between two nodes of p5 an
 * all-reduce of 64 MiB takes 996 us with NCCL 2.18.5 and 602 with 2.20.3 (aws-nccl-p5-2n, -2024).
 */
bool nccl_is_untuned(const struct topology *topology, const struct libraries *libraries);

/* The fastest algorithm and protocol that this version of NCCL would consider; `bytes` is the full
 * (gathered) size, ranks > 1. */
struct nccl_choice nccl_choose(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement, enum collective_kind kind, int64_t bytes);

/* Messages between pairs of ranks: an all-to-all, in which each rank has `bytes` in equal parts for
 * all, and send and receive, in which each sends `bytes` to the next of its group (exchange.c).
 * Seconds over ranks > 1; never falls when bytes, latencies or oversubscription grow or a bandwidth
 * shrinks. */
double nccl_exchange_seconds(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement, enum collective_kind kind, int64_t bytes);

/* Copies between ranks of a node by copy engines, beside products (torch/distributed/
 * _symmetric_memory): a rank fetches of each other one, one after the other, `bytes` / ranks of
 * what is gathered, or of sums; these wait for all ranks twice a copy, a gather when it begins and
 * ends.
 */
double nccl_copies_seconds(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement, enum collective_kind kind, int64_t bytes);

/* The channels that run meanwhile, each on one multiprocessor. */
double nccl_exchange_channels(const struct topology *topology, const struct placement *placement,
	enum collective_kind kind);

/* One rank's `bytes` to all others: chunks follow one another around a ring. */
double nccl_broadcast_seconds(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement, int64_t bytes);

#endif
