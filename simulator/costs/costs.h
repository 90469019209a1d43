/* The cost model: how long an operation takes when nothing else runs.
 *
 * Every figure comes from the topology's calibration where that has one, else from a prior for the
 * device's generation (docs/cost-model.md lists each prior and its source). */
#ifndef SIMULATOR_COSTS_COSTS_H
#define SIMULATOR_COSTS_COSTS_H

#include "schedule/schedule.h"

/* The time of an operation alone, and how much of each shared resource it uses. All ranks do the
 * same at the same time, so ranks that share a host, a NIC or a memory are accounted for. */
struct cost {
	double device;      /* s on its stream */
	double host;        /* s that the issuing thread spends */
	double host_before; /* part of `host`: s before the first kernel can start */
	double kernels;     /* number of kernels launched; at least 1 */
	double flops;       /* executed, with recomputation */
	/* Parts of `device`, s, that become longer when others use arithmetic units or memory. The
	 * rest (launches, latency, wire) does not. */
	double arithmetic, memory;
	double unaligned; /* part of `device`, s: what rows of odd lengths add to products */
	double idle;      /* CPUs: share 0..1 of `device` in which no core is needed */
	double spread;    /* collectives: relative standard deviation between runs; 0: not known */
	double jitter;    /* collectives: the same between steps of a run */
	double late;      /* part of `device`, s: what the slowest of many devices or links adds */
	/* Used while it runs: multiprocessors (GPU), and shares 0..1 of the bandwidth of memory, of
	 * the device's port of the fabric, of the node's NICs, and of the host link in and out. */
	double multiprocessors, memory_load, fabric_load, network_load, link_load, link_out_load;
	/* Which way `fabric_load` and `network_load` go: links carry as much in as out. */
	enum link_way { WAYS_BOTH, WAY_OUT, WAY_IN } way;
};

/* The different costs of one class. Blocks and micro-batches repeat, so there are few. */
struct cost_table {
	int n;
	struct cost *costs; /* [n] */
	int *examples;      /* [n] an operation that has this cost */
	int *of;            /* [n_ops] the index of the operation's cost */
};

/* Arrays come from `arena`. The schedule must know its model and topology. */
struct cost_table cost_table(const struct schedule *schedule, int class, struct arena *arena);
/* Fills costs[n_ops] for one class. The schedule must know its model and topology. */
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

/* Takes parts out of the cost: `without` has bits 1 << enum cost_part. */
void cost_leave_out(struct cost *cost, bool communicates, unsigned without);

/* The factor of the issuing thread's time over the runtime's figures (calibration.host_factor); 1
 * without a calibration. */
double cost_host_factor(const struct topology *topology);

/* Seconds that the issuing thread spends on the data of one micro-batch before that begins: it
 * takes a batch from the loader, and copies it to a GPU. */
double cost_batch(const struct plan *plan, const struct topology *topology);

/* Seconds that a step lasts beyond its last operation: all ranks exchange the loss. */
double cost_step_exchange(const struct schedule *schedule);

/* Seconds of one message alone from stage `from` to stage `to`, of `apart` ranks each. */
double cost_message(
	const struct topology *topology, int64_t apart, int from, int to, int64_t bytes);

/* The time of one collective alone, with the algorithm that the runtime would choose
 * (docs/cost-model.md; on GPUs NCCL's tuner). `algorithm` and `protocol` are NCCL's ("ring",
 * "Simple"), or say how the time was found ("measured", "messages", "two levels", "host",
 * "network"), with protocol "".
 *
 * `bytes` is the full (gathered) size; of an all-to-all, what one rank sends to all; of send and
 * receive, one message. Every group of this size and stride does the same at the same time. A chain
 * of messages is as slow as its slowest pair: one on two nodes, if there is any. A group of one
 * takes no time. `libraries` NULL: recent ones. */
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
	int64_t queries; /* tokens of each sequence that the rank has queries of; 0: all */
	double seen;     /* tokens that a query meets (architecture_seen); 0: half of seq_len */
};
/* Seconds on one device, with the launch. */
double cost_attention(
	const struct topology *topology, enum dtype dtype, const struct attention_shape *shape);
/* Seconds of one m x n x k product on one device. */
double cost_gemm(const struct topology *topology, enum dtype dtype, const struct gemm_shape *gemm);

/* The peak of matrix units with operands as the plan casts them, over that in fp8; of no device is
 * it more. */
double fp8_peak(const struct plan *plan);

/* The pass that an operation of compute belongs to. */
enum pass compute_pass(enum op_kind kind);

/* The collective that an operation is; false: it is none. */
bool collective_kind_of(enum op_kind kind, enum collective_kind *collective);

/* The standard deviation of log(truth / predicted) of one collective over GPUs whose topology was
 * not measured (docs/cost-model.md). */
double collective_spread(
	const struct placement *placement, enum collective_kind kind, int64_t bytes);

/* Bytes that leave a node (egress) when every group of this size and stride runs the collective
 * once. */
double collective_node_egress(const struct topology *topology, const struct runtime *runtime,
	enum collective_kind kind, const struct group *group, int64_t bytes);
/* The bytes that one rank sends for a collective of a schedule, and those that leave a node,
 * whatever carries it out. */
double op_wire_bytes(const struct schedule *schedule, const struct op *op);
double op_node_egress(const struct schedule *schedule, const struct op *op);
/* The same for a message that all ranks of `class` on a node send. */
double message_node_egress(const struct schedule *schedule, int class, const struct op *op);

#endif
