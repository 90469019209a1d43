/* An NCCL topology dump (NCCL_TOPO_DUMP_FILE) or file (NCCL_TOPO_FILE).
 *
 * <system> of <cpu> of nested <pci> down to <gpu> with <nvlink>, and <nic> with <net>. Bandwidths
 * are derived as NCCL does (src/graph/xml.cc, topo.cc, topo.h, NCCL 2.28). Files that clouds ship
 * are partial, because NCCL fills them at run time: then GPUs and NICs are told by their PCI class,
 * and what is missing is asked for. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topologies/import_parts.h"

#if HAVE_EXPAT
#include <expat.h>

enum { DEPTH_MAX = 32, PCIS_MAX = 4096, NETS_MAX = 256, CPUS_MAX = 256, NVLINKS_MAX = 4096 };

struct pci {
	char busid[24];
	unsigned class_, vendor, device;
	double bandwidth; /* to its parent, B/s */
	bool speed_said;
	int parent, cpu; /* -1 = none */
	int depth;
	bool has_gpu, has_rank, has_net;
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
	struct import *import;
	const char *name;
	struct error *error;
	XML_Parser parser;
	bool failed, in_system;
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

static void fail(struct dump *d, const char *what, const char *got)
{
	if (!d->failed)
		error_at(d->error, EXIT_CODE_INPUT, d->name,
			(int)XML_GetCurrentLineNumber(d->parser),
			(int)XML_GetCurrentColumnNumber(d->parser) + 1, "%s, got \"%.60s\"", what,
			got);
	d->failed = true;
	XML_StopParser(d->parser, XML_FALSE);
}

/* --- attributes ---------------------------------------------------------------------------------
 */

static const char *attribute(const char **attributes, const char *key)
{
	for (int i = 0; attributes[i] != NULL; i += 2)
		if (strcmp(attributes[i], key) == 0)
			return attributes[i + 1];
	return NULL;
}

/* A whole number in [least, most]; absent: `otherwise`. */
static int64_t whole(struct dump *d, const char **attributes, const char *key, int64_t least,
	int64_t most, int64_t otherwise)
{
	const char *text = attribute(attributes, key);
	int64_t value;

	if (text == NULL || text[0] == '\0')
		return otherwise;
	if (parse_int(text, &value) && value >= least && value <= most)
		return value;
	fail(d,
		arena_printf(d->import->arena, "%s: expected a whole number from %lld to %lld", key,
			(long long)least, (long long)most),
		text);
	return otherwise;
}

/* "0x030200"; 0 when absent. */
static unsigned hexadecimal(const char **attributes, const char *key)
{
	const char *text = attribute(attributes, key);
	unsigned value = 0;

	return text != NULL && strncmp(text, "0x", 2) == 0 && strlen(text) <= 8 &&
			       sscanf(text, "%x", &value) == 1
		       ? value
		       : 0;
}

static void copy_busid(char to[24], const char *from)
{
	snprintf(to, 24, "%s", from != NULL ? from : "");
	for (char *c = to; *c != '\0'; c++)
		*c = *c >= 'A' && *c <= 'F' ? (char)(*c - 'A' + 'a') : *c;
}

/* Of the link to the parent: width lanes at 100 Mbit/s x rate / 80; unknown speeds are 8 GT/s and a
 * width of 0 is 16, as in NCCL. */
static double pci_bandwidth(struct dump *d, const char **attributes, bool *said)
{
	static const struct {
		double transfers; /* GT/s */
		double rate;
	} speeds[] = {{2.5, 15}, {5, 30}, {8, 60}, {16, 120}, {32, 240}, {64, 480}};
	const char *text = attribute(attributes, "link_speed");
	int64_t width = whole(d, attributes, "link_width", 0, 32, 0);
	double transfers = 0, rate = 60;

	*said = false;
	if (text != NULL && sscanf(text, "%lf GT/s", &transfers) == 1)
		for (int i = 0; i < COUNT_OF(speeds); i++)
			if (fabs(speeds[i].transfers - transfers) < 0.05) {
				rate = speeds[i].rate;
				*said = true;
			}
	return (double)(width == 0 ? 16 : width) * rate / 80 * 1e9;
}

/* --- elements -----------------------------------------------------------------------------------
 */

static void start_system(struct dump *d, const char **attributes)
{
	const char *version = attribute(attributes, "version");

	if (version == NULL || strcmp(version, "1") != 0)
		fail(d, "system: expected version 1", version != NULL ? version : "none");
	d->in_system = true;
}

static void start_cpu(struct dump *d, const char **attributes)
{
	const char *vendor = attribute(attributes, "vendor"), *arch = attribute(attributes, "arch");
	struct cpu *cpu;

	if (d->n_cpus == CPUS_MAX) {
		fail(d, "expected at most 256 <cpu>", "more");
		return;
	}
	d->cpu = d->n_cpus++;
	cpu = &d->cpus[d->cpu];
	cpu->intel = vendor != NULL && strcmp(vendor, "GenuineIntel") == 0;
	cpu->amd = vendor != NULL && strcmp(vendor, "AuthenticAMD") == 0;
	cpu->arm = arch != NULL && (strcmp(arch, "arm64") == 0 || strcmp(arch, "aarch64") == 0);
	cpu->power = arch != NULL && strncmp(arch, "ppc64", 5) == 0;
	cpu->family = whole(d, attributes, "familyid", -1, 100000, 0);
	cpu->model = whole(d, attributes, "modelid", -1, 100000, 0);
}

static void start_pci(struct dump *d, const char **attributes)
{
	struct pci *pci;

	if (d->n_pcis == PCIS_MAX) {
		fail(d, "expected at most 4096 <pci>", "more");
		return;
	}
	pci = &d->pcis[d->n_pcis];
	*pci = (struct pci){.parent = d->open_pci[d->depth - 1], .cpu = d->cpu};
	pci->depth = pci->parent >= 0 ? d->pcis[pci->parent].depth + 1 : 0;
	copy_busid(pci->busid, attribute(attributes, "busid"));
	pci->class_ = hexadecimal(attributes, "class");
	pci->vendor = hexadecimal(attributes, "vendor");
	pci->device = hexadecimal(attributes, "device");
	pci->bandwidth = pci_bandwidth(d, attributes, &pci->speed_said);
	d->open_pci[d->depth] = d->n_pcis++;
}

static void start_gpu(struct dump *d, const char **attributes)
{
	int at = d->open_pci[d->depth - 1];

	if (at < 0) {
		fail(d, "expected <gpu> inside of <pci>", "none");
		return;
	}
	d->pcis[at].has_gpu = true;
	d->pcis[at].has_rank = attribute(attributes, "rank") != NULL;
	d->pcis[at].sm = (int)whole(d, attributes, "sm", 0, 1000, 0);
}

static void start_nvlink(struct dump *d, const char **attributes)
{
	int at = d->open_pci[d->depth - 1];
	struct nvlink *link;

	if (at < 0 || d->n_nvlinks == NVLINKS_MAX) {
		fail(d, "expected <nvlink> inside of <gpu>, at most 4096 of them", "more");
		return;
	}
	link = &d->nvlinks[d->n_nvlinks++];
	link->pci = at;
	copy_busid(link->target, attribute(attributes, "target"));
	link->count = whole(d, attributes, "count", 0, 64, 1);
	link->target_class = hexadecimal(attributes, "tclass");
}

/* From the adapter's name and PCI class; a Mellanox adapter may run either of two. */
static enum network_kind net_kind(const struct pci *pci, const char *name, bool *sure)
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

static void start_net(struct dump *d, const char **attributes)
{
	const char *name = attribute(attributes, "name");
	int at = d->open_pci[d->depth - 1];
	int64_t speed = whole(d, attributes, "speed", -1, 100000000, 0);
	struct net *net;

	if (d->n_nets == NETS_MAX) {
		fail(d, "expected at most 256 <net>", "more");
		return;
	}
	if (at >= 0)
		d->pcis[at].has_net = true;
	net = &d->nets[d->n_nets++];
	net->kind =
		net_kind(at >= 0 ? &d->pcis[at] : NULL, name != NULL ? name : "", &net->kind_sure);
	/* Mbit/s; NCCL takes 10 Gbit/s for what is not known. */
	net->bandwidth = (double)(speed <= 0 ? 10000 : speed) / 8000 * 1e9;
	net->pci = at;
}

static const struct {
	const char *name;
	void (*start)(struct dump *d, const char **attributes);
} elements[] = {
	{"system", start_system},
	{"cpu", start_cpu},
	{"pci", start_pci},
	{"gpu", start_gpu},
	{"nvlink", start_nvlink},
	{"net", start_net},
};

static void XMLCALL on_start(void *data, const char *name, const char **attributes)
{
	struct dump *d = data;

	if (d->failed)
		return;
	if (++d->depth > DEPTH_MAX) {
		fail(d, "expected at most 32 elements inside one another", name);
		return;
	}
	d->open_pci[d->depth] = d->open_pci[d->depth - 1];
	if (d->depth == 1 && strcmp(name, "graphs") == 0)
		fail(d,
			"this is NCCL's choice of rings (NCCL_GRAPH_DUMP_FILE), expected the "
			"topology (NCCL_TOPO_DUMP_FILE), <system>",
			name);
	else if ((d->depth == 1) != (strcmp(name, "system") == 0))
		fail(d, "expected <system> around everything", name);
	for (int i = 0; i < COUNT_OF(elements) && !d->failed; i++)
		if (strcmp(name, elements[i].name) == 0)
			elements[i].start(d, attributes);
}

static void XMLCALL on_end(void *data, const char *name)
{
	struct dump *d = data;

	if (strcmp(name, "cpu") == 0)
		d->cpu = -1;
	d->depth--;
}

/* Entities can grow without end; NCCL's files have none. */
static void XMLCALL on_doctype(
	void *data, const char *name, const char *system, const char *public, int internal)
{
	(void)system;
	(void)public;
	(void)internal;
	fail(data, "expected no DOCTYPE", name);
}

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
		import_note(d->import,
			"%s: NVLinks from a GPU to itself connect nothing and were "
			"left out",
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

/* --- what it says -------------------------------------------------------------------------------
 */

static bool say_gpus(struct dump *d, struct error *error)
{
	struct import *import = d->import;
	double narrowest = INFINITY;
	bool said = true;

	if (d->n_gpus == 0) {
		import_note(import, "%s: names no GPU (a partial file, NCCL fills it at run time)",
			d->name);
		return true;
	}
	for (int i = 0; i < d->n_gpus; i++) {
		const struct pci *p = &d->pcis[d->gpus[i]];
		const char *gpu = gpu_of_pci_device(p->device);
		int hops = 0;

		if (gpu != NULL && !import_say_gpu(import, gpu, d->name, error))
			return false;
		if (gpu == NULL && p->device != 0)
			import->unknown_gpu = arena_printf(
				import->arena, "PCI device 0x%04x of %.60s", p->device, d->name);
		import->sm = p->sm > 0 ? p->sm : import->sm;
		narrowest = fmin(narrowest, upwards(d, d->gpus[i], -1, &hops));
		said = said && p->speed_said;
	}
	return import_say_int(
		       import, FACT_DEVICES_PER_NODE, d->n_gpus, d->name, "NCCL topology", error) &&
	       import_say_double(import, FACT_PCIE_BANDWIDTH, narrowest, d->name,
		       said ? "NCCL topology: the narrowest link up to the CPU"
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
static bool say_nets(struct dump *d, struct error *error)
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
	return import_say_int(d->import, FACT_NETWORK_KIND, net->kind, d->name,
		       net->kind_sure ? by
				      : "assumed: from the adapter's name (a Mellanox one may also "
					"run RoCE)",
		       error) &&
	       import_say_int(d->import, FACT_NICS_PER_NODE, count, d->name, by, error) &&
	       import_say_double(d->import, FACT_NIC_BANDWIDTH, net->bandwidth, d->name,
		       limited ? "NCCL topology: the adapter's PCIe link, which is slower" : by,
		       error);
}

/* Without <net> elements: adapters by their PCI class; how fast they are is not said. */
static bool say_adapters(struct dump *d, struct error *error)
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
	return import_say_int(d->import, FACT_NETWORK_KIND, net_kind(first, "", &sure), d->name,
		       "NCCL topology: PCI class and vendor of the adapters", error) &&
	       import_say_int(
		       d->import, FACT_NICS_PER_NODE, count, d->name, "NCCL topology", error);
}

static bool say_cpu(struct dump *d, struct error *error)
{
	const struct cpu *c = &d->cpus[0];
	enum cpu_vendor vendor = c->intel ? CPU_INTEL : c->amd ? CPU_AMD : CPU_ARM;

	if (d->n_cpus == 0 || !(c->intel || c->amd || c->arm))
		return true;
	return import_say_int(d->import, FACT_HOST_CPU, vendor, d->name, "NCCL topology", error);
}

static bool parse(struct dump *d, const char *text, size_t length, struct error *error)
{
	d->parser = XML_ParserCreate("UTF-8");
	if (d->parser == NULL)
		base_out_of_memory(sizeof(*d));
	XML_SetUserData(d->parser, d);
	XML_SetElementHandler(d->parser, on_start, on_end);
	XML_SetStartDoctypeDeclHandler(d->parser, on_doctype);
	if (XML_Parse(d->parser, text, (int)length, 1) != XML_STATUS_OK && !d->failed) {
		error_at(error, EXIT_CODE_INPUT, d->name, (int)XML_GetCurrentLineNumber(d->parser),
			(int)XML_GetCurrentColumnNumber(d->parser) + 1,
			"not XML: %s; is it cut off?",
			XML_ErrorString(XML_GetErrorCode(d->parser)));
		d->failed = true;
	}
	XML_ParserFree(d->parser);
	return !d->failed;
}

bool import_nccl_xml(struct import *import, const char *name, const char *text, size_t length,
	struct error *error)
{
	struct dump *d = ARENA_NEW(import->arena, struct dump);

	d->import = import;
	d->name = name;
	d->error = error;
	d->cpu = -1;
	d->open_pci[0] = -1;
	if (length > 1 << 26)
		return error_at(error, EXIT_CODE_INPUT, name, 0, 0, "expected at most 64 MiB");
	if (!parse(d, text, length, error) || !find_gpus(d, error))
		return false;
	/* A partial file has no NVLinks even where the machine has. */
	if (d->n_gpus > 1 && some(d, false))
		add_links(d);
	else if (d->n_gpus > 1)
		import_note(import,
			"%s: a partial file without <gpu> and <nvlink>; the fabric is assumed",
			name);
	return say_gpus(d, error) &&
	       (d->n_nets > 0 ? say_nets(d, error) : say_adapters(d, error)) && say_cpu(d, error);
}

#else

bool import_nccl_xml(struct import *import, const char *name, const char *text, size_t length,
	struct error *error)
{
	(void)import;
	(void)text;
	(void)length;
	return error_set(error, EXIT_CODE_ENVIRONMENT,
		"%s: an NCCL topology dump, but this build has no XML parser; install expat "
		"(Debian: libexpat1-dev) and build again",
		name);
}

#endif

bool is_nccl_xml(const char *text, size_t length)
{
	size_t at = 0;

	while (at < length && strchr(" \t\r\n", text[at]) != NULL && text[at] != '\0')
		at++;
	return at + 1 < length && text[at] == '<' && strchr("!?sg", text[at + 1]) != NULL;
}
