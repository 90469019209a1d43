/* struct topology: `nodes` equal nodes of `devices_per_node` equal devices. Ranks are numbered node
 * by node: rank r is device r % devices_per_node of node r / devices_per_node. */
#ifndef TOPOLOGIES_TOPOLOGY_H
#define TOPOLOGIES_TOPOLOGY_H

#include "base/base.h"
#include "topologies/calibration.h"

enum device_kind { DEVICE_GPU, DEVICE_CPU };
/* NVIDIA's from Hopper on stand last: what came with Hopper holds for all that follow. */
enum device_generation {
	GENERATION_CPU,
	GENERATION_VOLTA,
	GENERATION_TURING,
	GENERATION_AMPERE,
	GENERATION_ADA,
	GENERATION_CDNA2, /* AMD MI200: a GPU is one of its two dies */
	GENERATION_CDNA3, /* MI300X, MI325X */
	GENERATION_CDNA4, /* MI350X, MI355X */
	GENERATION_OTHER, /* nothing is known of it but its datasheet */
	GENERATION_HOPPER,
	GENERATION_BLACKWELL,
	GENERATION_COUNT
};
enum fabric_kind {
	FABRIC_NVSWITCH,
	FABRIC_NVLINK_MESH,      /* every pair of GPUs has as many links */
	FABRIC_NVLINK_CUBE_MESH, /* DGX-1: a hybrid cube mesh of eight */
	FABRIC_PCIE,
	FABRIC_SHARED_MEMORY
};
enum network_kind {
	NETWORK_NONE,
	NETWORK_INFINIBAND,
	NETWORK_ROCE,
	NETWORK_EFA,
	NETWORK_ETHERNET,
	NETWORK_TCPX /* GPUDirect-TCPX: the kernel's TCP, payloads straight to GPU memory */
};
/* Which of NCCL's protocols its environment leaves it between nodes (NCCL_PROTO). */
enum network_protocols { PROTOCOLS_ALL, PROTOCOLS_SIMPLE, PROTOCOLS_SIMPLE_LL128 };
enum cpu_vendor { CPU_AMD, CPU_INTEL, CPU_ARM, CPU_OTHER };

extern const char *const device_kind_names[];
extern const char *const device_generation_names[];
extern const char *const fabric_kind_names[];
extern const char *const network_kind_names[];
extern const char *const network_protocols_names[];
extern const char *const cpu_vendor_names[];

struct device {
	const char *name; /* "A100-SXM4-80GB" */
	enum device_kind kind;
	enum device_generation generation;
	int64_t memory_bytes;
	double memory_bandwidth; /* B/s, datasheet */
	double fp32_flops;       /* dense datasheet peaks, FLOP/s; 0 = not supported */
	double bf16_flops;
	double fp16_flops;
	double fp8_flops;
	int64_t multiprocessors; /* SMs; cores for a CPU device */
	double power;            /* W, the limit that it runs at; 0 = not known */
};

struct fabric { /* inside a node */
	enum fabric_kind kind;
	double bandwidth; /* B/s, one direction, of one device's port, as a ring uses it (NCCL's) */
	double latency;   /* s, one hop */
	int64_t channels; /* NCCL graph channels on one node; 0 = unknown */
	/* Devices that share a host, when the node is an NVLink domain of several hosts; 0 = all.
	 */
	int64_t host_devices;
};

struct network { /* between nodes */
	enum network_kind kind;
	int64_t nics_per_node;
	double nic_bandwidth;    /* B/s, one direction, one NIC */
	double latency;          /* s */
	double oversubscription; /* >= 1; of the slowest level of the fabric */
	/* >= 1: how much less the NICs deliver over 32 nodes and more because others use the fabric
	 * too; 0 = what is usual for the kind. */
	double congestion;
	enum network_protocols protocols;
};

struct host {
	int64_t memory_bytes;
	double memory_bandwidth; /* B/s */
	int64_t cores;
	double pcie_bandwidth;    /* B/s, host <-> one device, one direction */
	int64_t devices_per_root; /* that share one link of that bandwidth; 0 = each has its own */
	enum cpu_vendor cpu;
};

/* Memory of a GPU that no tensor holds, where it is known; 0 = what the runtime has
 * (docs/runtimes.md). */
struct overheads {
	int64_t context_bytes;      /* of the driver, per process */
	int64_t communicator_bytes; /* buffers of each communicator of a rank */
	int64_t workspace_bytes;    /* of the matrix library; counts as a temporary buffer */
};

/* The origin of one value: key "fabric.bandwidth", text "NCCL topology dump ..." or "assumed:
 * ...". */
struct provenance {
	const char *key, *text;
};

/* More is refused: it is a typing error, and loops over ranks stay short. */
#define TOPOLOGY_MAX_DEVICES 1000000

struct topology {
	const char *name;
	const char *source; /* where the numbers come from */
	int64_t nodes;
	int64_t devices_per_node;
	struct device device;
	struct fabric fabric;
	struct network network;
	struct host host;
	struct overheads overheads;
	/* CPU devices that are ranks of one machine share its cores, memory bandwidth and RAM;
	 * more devices than cores is allowed. */
	bool shares_host;
	/* Ranks of our executor stand in for the devices: the thread that issues operations
	 * computes itself, and one thread carries out all collectives (topology_issues_inline). */
	bool emulated;
	struct calibration calibration;
	int n_provenance; /* of imported topologies; 0 else */
	struct provenance *provenance;
};

extern const struct field topology_fields[]; /* the scalars of struct topology */
extern const struct field device_fields[];
extern const struct field fabric_fields[];
extern const struct field network_fields[];
extern const struct field host_fields[];
extern const struct field overheads_fields[];

int64_t topology_devices(const struct topology *topology); /* nodes * devices_per_node */
/* CPU devices, and those that ranks of our executor stand in for. */
bool topology_issues_inline(const struct topology *topology);
double device_peak_flops(const struct device *device, enum dtype dtype); /* 0 = not supported */
/* Ranks that share a host: threads that each has for products and attention, and how much faster
 * these are than on one. 1 elsewhere. */
int64_t topology_rank_threads(const struct topology *topology);
double topology_rank_speedup(const struct topology *topology);
/* B/s that leave one node: nics_per_node * nic_bandwidth / oversubscription; infinite for 1 node.
 */
double topology_node_bandwidth(const struct topology *topology);

/* The places of a group of ranks {first, first + stride, ...} of `size`. */
struct placement {
	int64_t ranks;
	int64_t nodes;           /* it touches */
	int64_t ranks_per_node;  /* of the group */
	int64_t groups_per_node; /* groups of this kind that share one node's NICs */
	bool over_hosts;         /* ranks of one node lie on several hosts of an NVLink domain */
};

/* All groups of this (size, stride) are alike on our equal nodes. Where they are not (a size that
 * straddles nodes unevenly), each number is the largest over the groups and nodes. Requires size
 * and stride >= 1 and size * stride <= topology_devices(). */
struct placement topology_place(const struct topology *topology, int64_t size, int64_t stride);

#endif
