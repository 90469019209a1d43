/* The cost model: how long an operation takes when nothing else runs.
 *
 * Every figure is the topology's calibration where it has one, else a prior for the device's
 * generation (docs/cost-model.md lists each prior and its source). */
#ifndef SIMULATOR_COSTS_COSTS_H
#define SIMULATOR_COSTS_COSTS_H

#include "schedule/schedule.h"

/* What an operation takes alone, and what it would take from others (all ranks do the same thing at
 * the same time, so ranks that share a host, a NIC or a memory are priced in already). */
struct cost {
	double device;      /* s on the stream (or the engine, for collectives) */
	double host;        /* s that the issuing thread spends */
	double host_before; /* of these, s before the first kernel can start */
	double kernels;     /* launched; at least 1 */
	double flops;       /* executed; recomputation included */
	/* Parts of `device`, s: what slows down when arithmetic units or memory are taken. The rest
	 * (launches, latency, wire) does not. */
	double arithmetic, memory;
	double unaligned; /* of `device`, s: what products take longer for rows of odd lengths */
	double idle;      /* CPUs: share 0..1 of `device` in which no core is needed */
	double spread;    /* of a collective: relative standard deviation; 0 = not known */
	double jitter;    /* of a collective: the same from one step to the next */
	double late;      /* of `device`, s: what the slowest of many devices or links adds */
	/* Taken from others while it runs: multiprocessors (GPU), and shares 0..1 of what memory,
	 * the device's port of the fabric, the node's NICs and the host link can deliver, either
	 * way. */
	double multiprocessors, memory_load, fabric_load, network_load, link_load, link_out_load;
};

/* The costs of one class: blocks and micro-batches repeat, so there are few. */
struct cost_table {
	int n;
	struct cost *costs;
	int *examples; /* by cost: an operation that has it */
	int *of;       /* by operation */
};

/* In `arena`. The schedule must know its model and topology. */
struct cost_table cost_table(const struct schedule *schedule, int class, struct arena *arena);
/* Fills costs[0 .. n_ops) for one class. The schedule must know its model and topology. */
void cost_operations(const struct schedule *schedule, int class, struct cost *costs);

/* Parts of the model that can be switched off, so that a bench can say what each explains.
 * X(suffix, name) */
#define COST_PARTS(X)                                                                              \
	X(MULTIPROCESSORS, "the multiprocessors that collectives take")                            \
	X(MEMORY, "the memory bandwidth that collectives take")                                    \
	X(HOST, "the issuing thread's time")                                                       \
	X(DEVICES, "the slowest of many devices")                                                  \
	X(LINKS, "the slowest of many links")

enum cost_part {
#define X(suffix, name) COST_PART_##suffix,
	COST_PARTS(X)
#undef X
		COST_PART_COUNT
};

extern const char *const cost_part_names[];

/* The cost without these parts (bits, 1 << enum cost_part). */
void cost_leave_out(struct cost *cost, bool communicates, unsigned without);

/* The issuing thread's time over its runtime's figures (calibration.host_factor); 1: as they say.
 */
double cost_host_factor(const struct topology *topology);

/* What the issuing thread spends on one batch before the micro-batch begins, seconds: taking it
 * from the loader, and a GPU's copy of it. */
double cost_batch(const struct plan *plan, const struct topology *topology);

/* What a step waits for when its operations have ended, seconds: all ranks tell each other the
 * loss.
 */
double cost_step_exchange(const struct schedule *schedule);

/* One message of so many bytes alone, seconds, between stages of `apart` ranks each. */
double cost_message(
	const struct topology *topology, int64_t apart, int from, int to, int64_t bytes);

/* One collective alone, with the algorithm that the runtime would choose (docs/cost-model.md:
 * NCCL's tuner on GPUs) and what carries it out: NCCL's algorithm and protocol ("ring", "Simple"),
 * or how the figure came about ("measured", "messages", "two levels", "host", "network") with
 * protocol "". `bytes` is the full (gathered) size; of an all-to-all what one rank has for all, of
 * send and receive one message. Every group of this size and stride does the same at the same time,
 * and a chain of messages is as slow as its slowest pair, the one on two nodes where there is one.
 * Nothing for a group of one. `libraries` NULL: recent ones. */
struct collective_choice {
	const char *algorithm, *protocol;
	double seconds;
};
struct collective_choice cost_collective_choice(const struct topology *topology,
	const struct libraries *libraries, const struct runtime *runtime, enum collective_kind kind,
	const struct group *group, int64_t bytes);

/* One pass of the core of attention over `sequences` sequences of seq_len tokens. */
struct attention_shape {
	const struct architecture *architecture; /* heads, head_dim, family */
	int64_t sequences, seq_len;
	enum attention_kind kind;
	enum pass pass;
	int64_t queries; /* tokens of a sequence whose attention the rank computes; 0: all */
};
/* On one device, seconds, launch included. */
double cost_attention(
	const struct topology *topology, enum dtype dtype, const struct attention_shape *shape);
/* One m x n x k product on one device, seconds. */
double cost_gemm(const struct topology *topology, enum dtype dtype, const struct gemm_shape *gemm);

/* The pass that an operation of compute belongs to. */
enum pass compute_pass(enum op_kind kind);

bool collective_kind_of(enum op_kind kind, enum collective_kind *collective);

/* The standard deviation of log(truth / predicted) of one collective over GPUs whose topology was
 * not measured (docs/cost-model.md). */
double collective_spread(
	const struct placement *placement, enum collective_kind kind, int64_t bytes);

/* Bytes that leave each node in one direction when every group of this kind carries out the
 * collective once. */
double collective_node_egress(const struct topology *topology, const struct runtime *runtime,
	enum collective_kind kind, const struct group *group, int64_t bytes);
/* The same of a message: of all ranks of `class` on a node. */
double message_node_egress(const struct schedule *schedule, int class, const struct op *op);

#endif
