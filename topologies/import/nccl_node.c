/* What an NCCL topology dump means: which devices are GPUs, how they reach each other, what leaves
 * the node. Bandwidths as NCCL derives them (src/graph/topo.cc, topo.h, NCCL 2.28). */
#include "topologies/import/nccl_dump.h"

#include <math.h>
#include <string.h>

/* --- GPUs and their paths -----------------------------------------------------------------------
 */

static bool some(const struct dump *d, bool rank)
{
	for (int i = 0; i < d->n_pcis; i++)
		if (rank ? d->pcis[i].has_rank : d->pcis[i].has_gpu)
			return true;
	return false;
}

/* With <gpu> elements those count, and of them those that the job used; without, class 0x0302. */
static bool find_gpus(struct dump *d, struct error *error)
{
	bool elements_there = some(d, false), ranks = some(d, true);

	for (int i = 0; i < d->n_pcis; i++) {
		const struct pci *p = &d->pcis[i];

		if (elements_there ? !p->has_gpu || (ranks && !p->has_rank)
				   : p->class_ >> 8 != 0x0302)
			continue;
		if (d->n_gpus == GPUS_MAX)
			return error_at(error, EXIT_CODE_INPUT, d->name, 0, 0,
				"expected at most %d GPUs in a node, got more", GPUS_MAX);
		d->gpus[d->n_gpus++] = i;
	}
	return true;
}

/* Between sockets, one direction, B/s (topo.h). */
static double socket_bandwidth(const struct cpu *cpu)
{
	static const struct {
		int model;
		double bandwidth;
	} intel[] = {{0xcf, 40e9}, {0x8f, 22e9}, {0x55, 10e9}, {0, 6e9}};

	if (cpu->power)
		return 32e9;
	if (cpu->arm)
		return 6e9;
	for (int i = 0; cpu->intel && i < COUNT_OF(intel); i++)
		if (cpu->model >= intel[i].model)
			return intel[i].bandwidth;
	return cpu->amd ? 16e9 : 10e9;
}

static int common_ancestor(const struct dump *d, int a, int b)
{
	while (a != b && (a >= 0 || b >= 0)) {
		if (b < 0 || (a >= 0 && d->pcis[a].depth >= d->pcis[b].depth))
			a = d->pcis[a].parent;
		else
			b = d->pcis[b].parent;
	}
	return a;
}

/* The narrowest link from a device up to (not including) `stop`'s own. */
static double upwards(const struct dump *d, int from, int stop, int *hops)
{
	double least = INFINITY;

	for (int at = from; at >= 0 && at != stop; at = d->pcis[at].parent) {
		least = fmin(least, d->pcis[at].bandwidth);
		(*hops)++;
	}
	return least;
}

/* Traffic between two devices through an Intel CPU costs it 6/5 (topo.h, INTEL_P2P_OVERHEAD). */
static enum path path_between(const struct dump *d, int a, int b, double *bandwidth)
{
	int ancestor = common_ancestor(d, a, b), hops = 0;
	int ca = d->pcis[a].cpu, cb = d->pcis[b].cpu;
	const struct cpu *cpu = ca >= 0 ? &d->cpus[ca] : NULL;

	*bandwidth = upwards(d, a, ancestor, &hops);
	*bandwidth = fmin(*bandwidth, upwards(d, b, ancestor, &hops));
	if (ancestor >= 0)
		return hops <= 2 ? PATH_PIX : PATH_PXB;
	if (ca != cb && cpu != NULL)
		*bandwidth = fmin(*bandwidth, socket_bandwidth(cpu));
	if (cpu != NULL && cpu->intel)
		*bandwidth *= 5.0 / 6;
	return ca == cb ? PATH_PHB : PATH_SYS;
}

static int gpu_at(const struct dump *d, const char *busid)
{
	for (int i = 0; i < d->n_gpus; i++)
		if (strcmp(d->pcis[d->gpus[i]].busid, busid) == 0)
			return i;
	return -1;
}

static int gpu_of(const struct dump *d, int pci)
{
	for (int i = 0; i < d->n_gpus; i++)
		if (d->gpus[i] == pci)
			return i;
	return -1;
}

/* All NVSwitches of a node are one. Links that lead back to the same GPU connect nothing. */
static void add_nvlinks(struct dump *d, struct node_links *links)
{
	bool to_self = false;

	for (int i = 0; i < d->n_nvlinks; i++) {
		const struct nvlink *n = &d->nvlinks[i];
		int from = gpu_of(d, n->pci), to = gpu_at(d, n->target);
		bool nvswitch = n->target_class >> 4 == 0x06800 && n->target_class != 0x068001;

		if (from < 0 || (to < 0 && !nvswitch))
			continue;
		to_self |= to == from;
		if (to == from)
			continue;
		links->nvswitch |= nvswitch;
		to = nvswitch ? from : to;
		links->nvlinks[from][to] =
			(unsigned char)min_i64(links->nvlinks[from][to] + n->count, 255);
	}
	if (to_self)
		draft_note(d->import,
			"%s: NVLinks from a GPU to itself connect nothing and were left out",
			d->name);
}

static void add_links(struct dump *d)
{
	struct node_links *links = ARENA_NEW(d->import->arena, struct node_links);

	links->name = d->name;
	links->by = "NCCL topology";
	links->gpus = d->n_gpus;
	for (int i = 0; i < d->n_gpus; i++)
		for (int j = 0; j < d->n_gpus; j++)
			if (i != j)
				links->paths[i][j] = (unsigned char)path_between(
					d, d->gpus[i], d->gpus[j], &links->bandwidth[i][j]);
	add_nvlinks(d, links);
	d->import->links = links;
}

/* From the adapter's name and PCI class; a Mellanox adapter may run either of two. */
enum network_kind nccl_net_kind(const struct pci *pci, const char *name, bool *sure)
{
	static const struct {
		const char *prefix;
		enum network_kind kind;
	} names[] = {{"efa", NETWORK_EFA}, {"rdmap", NETWORK_EFA}, {"eth", NETWORK_ETHERNET},
		{"ens", NETWORK_ETHERNET}, {"eno", NETWORK_ETHERNET}, {"bond", NETWORK_ETHERNET},
		{"ib", NETWORK_INFINIBAND}};

	*sure = true;
	if (pci != NULL && pci->vendor == 0x1d0f)
		return NETWORK_EFA;
	if (pci != NULL && pci->class_ >> 8 == 0x0207)
		return NETWORK_INFINIBAND;
	for (int i = 0; i < COUNT_OF(names); i++)
		if (strncmp(name, names[i].prefix, strlen(names[i].prefix)) == 0)
			return names[i].kind;
	*sure = false;
	return strncmp(name, "mlx", 3) == 0 ? NETWORK_INFINIBAND : NETWORK_ETHERNET;
}

/* --- what it gives ------------------------------------------------------------------------------
 */

static int root_of(const struct dump *d, int pci)
{
	while (d->pcis[pci].parent >= 0)
		pci = d->pcis[pci].parent;
	return pci;
}

/* The most GPUs below one link of a CPU; 0 = each has its own. */
static int64_t sharing(const struct dump *d)
{
	int64_t most = 0;

	for (int i = 0; i < d->n_gpus; i++) {
		int64_t n = 0;

		for (int j = 0; j < d->n_gpus; j++)
			n += root_of(d, d->gpus[i]) == root_of(d, d->gpus[j]);
		most = max_i64(most, n);
	}
	return most > 1 ? most : 0;
}

static bool set_gpus(struct dump *d, struct error *error)
{
	struct topology_import *import = d->import;
	double narrowest = INFINITY;
	bool given = true;

	if (d->n_gpus == 0) {
		draft_note(import, "%s: names no GPU (a partial file, NCCL fills it at run time)",
			d->name);
		return true;
	}
	for (int i = 0; i < d->n_gpus; i++) {
		const struct pci *p = &d->pcis[d->gpus[i]];
		const char *gpu = gpu_of_pci_device(p->device);
		int hops = 0;

		if (gpu != NULL && !draft_set_gpu(import, gpu, d->name, error))
			return false;
		if (gpu == NULL && p->device != 0)
			import->unknown_gpu = arena_printf(
				import->arena, "PCI device 0x%04x of %.60s", p->device, d->name);
		import->sm = p->sm > 0 ? p->sm : import->sm;
		narrowest = fmin(narrowest, upwards(d, d->gpus[i], -1, &hops));
		given = given && p->speed_given;
	}
	return draft_set_int(import, PROPERTY_DEVICES_PER_ROOT, sharing(d), d->name,
		       "NCCL topology: GPUs below one root port", error) &&
	       draft_set_int(import, PROPERTY_DEVICES_PER_NODE, d->n_gpus, d->name, "NCCL topology",
		       error) &&
	       draft_set_double(import, PROPERTY_PCIE_BANDWIDTH, narrowest, d->name,
		       given ? "NCCL topology: the narrowest link up to the CPU"
			     : "assumed: NCCL's 8 GT/s x16, because the dump has no link speed",
		       error);
}

/* An adapter is no faster than its way to the CPU. */
static bool limit_nets(struct dump *d)
{
	bool limited = false;

	for (int i = 0; i < d->n_nets; i++) {
		int hops = 0;
		double way = upwards(d, d->nets[i].pci, -1, &hops);

		limited |= way < d->nets[i].bandwidth;
		d->nets[i].bandwidth = fmin(d->nets[i].bandwidth, way);
	}
	return limited;
}

/* The fastest adapters carry the traffic; slower ones are for other things. */
static bool set_nets(struct dump *d, struct error *error)
{
	const char *by = "NCCL topology";
	double fastest = 0;
	int count = 0;
	const struct net *net = NULL;
	bool limited = limit_nets(d);

	for (int i = 0; i < d->n_nets; i++)
		fastest = fmax(fastest, d->nets[i].bandwidth);
	for (int i = 0; i < d->n_nets; i++)
		if (d->nets[i].bandwidth == fastest) {
			net = &d->nets[i];
			count++;
		}
	if (net == NULL || d->import->options.network != NULL)
		return true;
	return draft_set_int(d->import, PROPERTY_NETWORK_KIND, net->kind, d->name,
		       net->kind_sure ? by
				      : "assumed: from the adapter's name "
					"(a Mellanox one may also run RoCE)",
		       error) &&
	       draft_set_int(d->import, PROPERTY_NICS_PER_NODE, count, d->name, by, error) &&
	       draft_set_double(d->import, PROPERTY_NIC_BANDWIDTH, net->bandwidth, d->name,
		       limited ? "NCCL topology: the adapter's PCIe link, which is slower" : by,
		       error);
}

/* Without <net> elements: adapters by their PCI class; how fast they are is not given. */
static bool set_adapters(struct dump *d, struct error *error)
{
	const struct pci *first = NULL;
	int count = 0;
	bool sure;

	for (int i = 0; i < d->n_pcis; i++)
		if (d->pcis[i].class_ >> 16 == 0x02) {
			first = first == NULL ? &d->pcis[i] : first;
			count++;
		}
	if (first == NULL || d->import->options.network != NULL)
		return true;
	return draft_set_int(d->import, PROPERTY_NETWORK_KIND, nccl_net_kind(first, "", &sure),
		       d->name, "NCCL topology: PCI class and vendor of the adapters", error) &&
	       draft_set_int(
		       d->import, PROPERTY_NICS_PER_NODE, count, d->name, "NCCL topology", error);
}

static bool set_cpu(struct dump *d, struct error *error)
{
	const struct cpu *c = &d->cpus[0];
	enum cpu_vendor vendor = c->intel ? CPU_INTEL : c->amd ? CPU_AMD : CPU_ARM;

	if (d->n_cpus == 0 || !(c->intel || c->amd || c->arm))
		return true;
	return draft_set_int(d->import, PROPERTY_HOST_CPU, vendor, d->name, "NCCL topology", error);
}

bool nccl_dump_read(struct dump *d, struct error *error)
{
	if (!find_gpus(d, error))
		return false;
	/* A partial file has no NVLinks even where the machine has. */
	if (d->n_gpus > 1 && some(d, false))
		add_links(d);
	else if (d->n_gpus > 1)
		draft_note(d->import,
			"%s: a partial file without <gpu> and <nvlink>; the fabric is assumed",
			d->name);
	return set_gpus(d, error) &&
	       (d->n_nets > 0 ? set_nets(d, error) : set_adapters(d, error)) && set_cpu(d, error);
}
