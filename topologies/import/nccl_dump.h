/* Private to topologies/: an NCCL topology dump as it stands in the file. nccl_xml.c reads
 * it, nccl_node.c interprets it. */
#ifndef TOPOLOGIES_IMPORT_NCCL_DUMP_H
#define TOPOLOGIES_IMPORT_NCCL_DUMP_H

#include "topologies/import/draft.h"

enum { DEPTH_MAX = 32, PCIS_MAX = 4096, NETS_MAX = 256, CPUS_MAX = 256, NVLINKS_MAX = 4096 };

struct pci {
	char busid[24];
	unsigned class_, vendor, device;
	double bandwidth; /* to its parent, B/s */
	bool speed_given;
	int parent, cpu; /* -1 = none */
	int depth;
	bool has_gpu, has_rank;
	int sm;
};

struct cpu {
	bool intel, amd, arm, power;
	int64_t model, family;
};

struct net {
	double bandwidth;
	int pci; /* -1 = none */
	enum network_kind kind;
	bool kind_sure;
};

struct nvlink {
	int pci;
	char target[24];
	int64_t count;
	unsigned target_class;
};

struct dump {
	struct topology_import *import;
	const char *name;
	struct error *error;
	struct XML_ParserStruct *parser; /* expat's */
	bool failed;
	int depth;
	int open_pci[DEPTH_MAX + 1]; /* the innermost <pci> at each depth; -1 = none */
	int cpu;
	int n_cpus, n_pcis, n_nets, n_nvlinks;
	struct cpu cpus[CPUS_MAX];
	struct pci pcis[PCIS_MAX];
	struct net nets[NETS_MAX];
	struct nvlink nvlinks[NVLINKS_MAX];
	int n_gpus, gpus[GPUS_MAX]; /* indices of pcis, in the order of the file */
};

/* The kind by the PCI class (`pci` may be NULL) and the adapter's name; `*sure` false: it is a
 * guess. */
enum network_kind nccl_net_kind(const struct pci *pci, const char *name, bool *sure);

/* Says the GPUs, their links, the NICs and the CPU. */
bool nccl_dump_read(struct dump *d, struct error *error);

#endif
