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

#include "topologies/import/draft.h"

#if HAVE_EXPAT
#include <expat.h>

#include "topologies/import/nccl_dump.h"

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
static double pci_bandwidth(struct dump *d, const char **attributes, bool *given)
{
	static const struct {
		double transfers; /* GT/s */
		double rate;
	} speeds[] = {{2.5, 15}, {5, 30}, {8, 60}, {16, 120}, {32, 240}, {64, 480}};
	const char *text = attribute(attributes, "link_speed");
	int64_t width = whole(d, attributes, "link_width", 0, 32, 0);
	double transfers = 0, rate = 60;

	*given = false;
	if (text != NULL && sscanf(text, "%lf GT/s", &transfers) == 1)
		for (int i = 0; i < COUNT_OF(speeds); i++)
			if (fabs(speeds[i].transfers - transfers) < 0.05) {
				rate = speeds[i].rate;
				*given = true;
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
	pci->bandwidth = pci_bandwidth(d, attributes, &pci->speed_given);
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
	net = &d->nets[d->n_nets++];
	net->kind = nccl_net_kind(
		at >= 0 ? &d->pcis[at] : NULL, name != NULL ? name : "", &net->kind_sure);
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

bool import_nccl_xml(struct topology_import *import, const char *name, const char *text,
	size_t length, struct error *error)
{
	struct dump *d = ARENA_NEW(import->arena, struct dump);

	d->import = import;
	d->name = name;
	d->error = error;
	d->cpu = -1;
	d->open_pci[0] = -1;
	if (length > 1 << 26)
		return error_at(error, EXIT_CODE_INPUT, name, 0, 0, "expected at most 64 MiB");
	return parse(d, text, length, error) && nccl_dump_read(d, error);
}

#else

bool import_nccl_xml(struct topology_import *import, const char *name, const char *text,
	size_t length, struct error *error)
{
	(void)import;
	(void)text;
	(void)length;
	return error_set(error, EXIT_CODE_ENVIRONMENT,
		"%s: an NCCL topology dump, but this build has no XML parser; "
		"install expat (Debian: libexpat1-dev) and build again",
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
