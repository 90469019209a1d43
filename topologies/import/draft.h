/* Private to topologies/: what the importers share. */
#ifndef TOPOLOGIES_IMPORT_DRAFT_H
#define TOPOLOGIES_IMPORT_DRAFT_H

#include "topologies/import/import.h"

/* X(suffix, key, member, kind): the values of a topology that texts can give. */
#define PROPERTIES(X)                                                                              \
	X(NODES, "nodes", nodes, INT)                                                              \
	X(DEVICES_PER_NODE, "devices_per_node", devices_per_node, INT)                             \
	X(FABRIC_KIND, "fabric.kind", fabric.kind, ENUM)                                           \
	X(FABRIC_BANDWIDTH, "fabric.bandwidth", fabric.bandwidth, DOUBLE)                          \
	X(FABRIC_LATENCY, "fabric.latency", fabric.latency, DOUBLE)                                \
	X(FABRIC_CHANNELS, "fabric.channels", fabric.channels, INT)                                \
	X(NETWORK_KIND, "network.kind", network.kind, ENUM)                                        \
	X(NICS_PER_NODE, "network.nics_per_node", network.nics_per_node, INT)                      \
	X(NIC_BANDWIDTH, "network.nic_bandwidth", network.nic_bandwidth, DOUBLE)                   \
	X(NETWORK_LATENCY, "network.latency", network.latency, DOUBLE)                             \
	X(OVERSUBSCRIPTION, "network.oversubscription", network.oversubscription, DOUBLE)          \
	X(CONGESTION, "network.congestion", network.congestion, DOUBLE)                            \
	X(HOST_MEMORY, "host.memory", host.memory_bytes, INT)                                      \
	X(HOST_MEMORY_BANDWIDTH, "host.memory_bandwidth", host.memory_bandwidth, DOUBLE)           \
	X(HOST_CORES, "host.cores", host.cores, INT)                                               \
	X(PCIE_BANDWIDTH, "host.pcie_bandwidth", host.pcie_bandwidth, DOUBLE)                      \
	X(DEVICES_PER_ROOT, "host.devices_per_root", host.devices_per_root, INT)                   \
	X(HOST_CPU, "host.cpu", host.cpu, ENUM)

enum property {
#define X(suffix, key, member, kind) PROPERTY_##suffix,
	PROPERTIES(X)
#undef X
		PROPERTY_COUNT
};

/* One row of a log. A time of 0 is missing. */
struct sample {
	int64_t bytes; /* the full size */
	double seconds;
};

/* One log: a collective over ranks on nodes. */
struct samples {
	const char *name; /* of the text */
	enum collective_kind collective;
	int64_t ranks, nodes;          /* 0 = not known yet */
	int64_t ranks_low, ranks_high; /* what the ratio of the two bandwidths allows; 0 = all */
	int n;
	struct sample *rows; /* by size */
};

enum { LOGS_MAX = 256, NOTES_MAX = 64, GPUS_MAX = 64 };

struct topology_import {
	struct arena *arena;
	struct topology_import_options options;
	struct topology topology;             /* what is known */
	const char *given_by[PROPERTY_COUNT]; /* NULL = none yet */
	const char *given_in[PROPERTY_COUNT];
	const char *gpu; /* a device's name in the catalogue; NULL = not known */
	const char *gpu_given_by;
	const char *unknown_gpu;  /* what a text calls a device that the catalogue lacks */
	int sm;                   /* compute capability x 10; 0 = not given */
	struct node_links *links; /* of an XML or a matrix; judged when the GPU is known */
	int n_logs;
	struct samples logs[LOGS_MAX];
	int n_notes;
	const char *notes[NOTES_MAX];
};

/* The importers: true when the text is of their kind (`is_`), and reading it. */
bool is_nccl_xml(const char *text, size_t length);
bool import_nccl_xml(struct topology_import *import, const char *name, const char *text,
	size_t length, struct error *error);
bool is_smi_matrix(const char *text, size_t length);
bool import_smi_matrix(struct topology_import *import, const char *name, const char *text,
	size_t length, struct error *error);
bool is_nccl_tests(const char *text, size_t length);
bool import_nccl_tests(struct topology_import *import, const char *name, const char *text,
	size_t length, struct error *error);
bool is_nccl_tests_json(const char *text, size_t length);
bool import_nccl_tests_json(struct topology_import *import, const char *name, const char *text,
	size_t length, struct error *error);
bool is_environment(const char *text, size_t length);
bool import_environment(struct topology_import *import, const char *name, const char *text,
	size_t length, struct error *error);
bool is_host_file(const char *text, size_t length);
bool import_host_file(struct topology_import *import, const char *name, const char *text,
	size_t length, struct error *error);

/* Sets a value. `by` is what stands in `provenance`, `in` the text for messages. The same value
 * again is fine; another value is an error. */
bool draft_set_int(struct topology_import *import, enum property property, int64_t value,
	const char *in, const char *by, struct error *error);
bool draft_set_double(struct topology_import *import, enum property property, double value,
	const char *in, const char *by, struct error *error);
const char *draft_key(enum property property); /* "fabric.bandwidth" */
double draft_get(const struct topology *topology, enum property property);
/* `number` for a fraction, `integer` for all others. */
void draft_put(struct topology *topology, enum property property, int64_t integer, double number);
/* The GPU as a tool prints it ("NVIDIA A100-SXM4-40GB"), or a PCI device id; unknown ones are
 * remembered for the message that asks for --gpu-name. */
bool draft_set_gpu(
	struct topology_import *import, const char *printed, const char *in, struct error *error);
const char *gpu_of_pci_device(unsigned device); /* NULL = not known */
int gpu_sm(const char *gpu);                    /* of a name in the catalogue; 0 = not known */
void draft_note(struct topology_import *import, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Files hold no paths of the machine that they were made on. */
const char *draft_base_name(const char *path);

/* A log is complete: checks it against the options and the others, and keeps it. */
bool draft_log(struct topology_import *import, const struct samples *log, struct error *error);
/* All logs as segments of the topology's calibration. */
bool draft_curves(struct topology_import *import, struct topology *topology, struct error *error);

/* How two GPUs of a node reach each other, best first. */
enum path { PATH_NVLINK, PATH_PIX, PATH_PXB, PATH_PHB, PATH_NODE, PATH_SYS };
extern const char *const path_names[]; /* "NV", "PIX", ... */

struct node_links {
	const char *name;
	const char *by; /* what gave it */
	int gpus;
	bool nvswitch;
	unsigned char nvlinks[GPUS_MAX][GPUS_MAX]; /* direct links; with nvswitch [i][i] = to it */
	unsigned char paths[GPUS_MAX][GPUS_MAX];
	double bandwidth[GPUS_MAX][GPUS_MAX]; /* of the PCIe path, B/s; 0 = not given */
};

/* fabric.kind and fabric.bandwidth from the links; needs the GPU for what one NVLink carries, and a
 * machine that is `like` this one for how many it has. */
bool draft_links(struct topology_import *import, const struct topology *like, struct error *error);

/* Lines of a text, without '\r', ANSI colours and mpirun's "[1,0]<stdout>:" tags. */
struct lines {
	const char *at, *end;
	int number; /* of the line that was returned last */
	bool whole; /* it ended with a newline */
};
/* The next line, copied into `buffer` (cut when longer); false at the end. */
bool lines_next(struct lines *lines, char *buffer, size_t size);
/* Splits at blanks, in place; at most `max` words. */
int split_words(char *line, char **words, int max);

#endif
