/* Topologies out of what other tools print. Each text is read by itself and adds what it has; the
 * end joins them, takes what no text has from a machine of the catalogue, and notes for every value
 * where it came from ("assumed: ..." when no text has it). */
#ifndef TOPOLOGIES_IMPORT_IMPORT_H
#define TOPOLOGIES_IMPORT_IMPORT_H

#include "topologies/topologies.h"

struct topology_import;

struct topology_import_options {
	const char *gpu;        /* a device of the catalogue, such as "A100-SXM4-80GB"; NULL */
	const char *collective; /* of logs without a name of it; NULL */
	const char *network;    /* "infiniband:8x200Gbit/s", "none"; NULL */
	const struct topology
		*like;   /* whose values stand for what no text has; NULL: found by GPU */
	int64_t nodes;   /* 0 = as in the texts */
	int64_t devices; /* in all nodes; 0 = as in the texts */
};

struct topology_import *topology_import_new(
	struct arena *arena, const struct topology_import_options *options);

/* One text, of any of the kinds; which one shows inside:
 *   NCCL topology dump (XML, NCCL_TOPO_DUMP_FILE)   devices, fabric and its bandwidth, NICs, CPU
 *   nvidia-smi topo -m                              devices, fabric, NICs, cores
 *   nccl-tests output, text or JSON (-J)            devices, nodes; curves of the collective
 *   host file (DeepSpeed, Open MPI, MPICH)          nodes, devices per node
 *   environment (KEY=VALUE: Slurm, torchrun, Open MPI)  the same
 * Texts that contradict each other are an error at the second. `text` ends with a NUL at `length`,
 * and must outlive `import`. */
bool topology_import_add(struct topology_import *import, const char *name, const char *text,
	size_t length, struct error *error);

/* The environment of a process as KEY=VALUE lines, which need not hold any known variable. */
bool topology_import_environment(struct topology_import *import, const char *name, const char *text,
	size_t length, struct error *error);

/* The topology, named `name`. What must be known and is not is EXIT_CODE_USAGE and names the option
 * that has it. */
bool topology_import_finish(struct topology_import *import, const char *name,
	struct topology **topology, struct error *error);

/* Notes about the texts for the user, one line each ("b.log: has no footer, was it cut off?"). */
int topology_import_notes(const struct topology_import *import, const char *const **notes);

#endif
