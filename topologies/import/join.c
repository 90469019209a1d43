/* Joining what texts have into one topology. */
#include "topologies/import/import.h"

#include <math.h>
#include <string.h>

#include "topologies/import/draft.h"

/* By what shows in the text; the first that is sure of it reads it. */
static const struct {
	bool (*is)(const char *text, size_t length);
	bool (*read)(struct topology_import *import, const char *name, const char *text,
		size_t length, struct error *error);
} importers[] = {
	{is_nccl_xml, import_nccl_xml},
	{is_nccl_tests_json, import_nccl_tests_json},
	{is_smi_matrix, import_smi_matrix},
	{is_nccl_tests, import_nccl_tests},
	{is_environment, import_environment},
	{is_host_file, import_host_file},
};

struct topology_import *topology_import_new(
	struct arena *arena, const struct topology_import_options *options)
{
	struct topology_import *import = ARENA_NEW(arena, struct topology_import);

	import->arena = arena;
	import->options = *options;
	return import;
}

int topology_import_notes(const struct topology_import *import, const char *const **notes)
{
	*notes = import->notes;
	return import->n_notes;
}

bool topology_import_add(struct topology_import *import, const char *name, const char *text,
	size_t length, struct error *error)
{
	for (int i = 0; i < COUNT_OF(importers); i++)
		if (importers[i].is(text, length))
			return importers[i].read(import, name, text, length, error);
	return error_at(error, EXIT_CODE_INPUT, name, 1, 1,
		"nothing that is known, expected an NCCL topology dump (XML), "
		"`nvidia-smi topo -m`, nccl-tests output, "
		"a host file or environment variables (KEY=VALUE)");
}

bool topology_import_environment(struct topology_import *import, const char *name, const char *text,
	size_t length, struct error *error)
{
	return import_environment(import, name, text, length, error);
}

/* --- options ------------------------------------------------------------------------------------
 */

/* "infiniband:8x200Gbit/s" */
static bool read_network(struct topology_import *import, const char *typed, struct error *error)
{
	const char *colon = strchr(typed, ':'), *x = colon != NULL ? strchr(colon, 'x') : NULL;
	const char *by = "the option --network";
	char *kind = arena_strndup(
		import->arena, typed, colon != NULL ? (size_t)(colon - typed) : strlen(typed));
	double bandwidth = 0;
	int64_t nics = 0;
	int k = 0;

	while (network_kind_names[k] != NULL && !same_name(network_kind_names[k], kind))
		k++;
	if (k == NETWORK_NONE && colon == NULL)
		return draft_set_int(import, PROPERTY_NETWORK_KIND, k, "--network", by, error);
	const char *meant = network_kind_meant(kind);
	if (meant != NULL)
		return error_set(error, EXIT_CODE_USAGE, "--network %.100s: %s is called %s here",
			typed, kind, meant);
	if (network_kind_names[k] == NULL || x == NULL ||
		!parse_int(
			arena_strndup(import->arena, colon + 1, (size_t)(x - colon - 1)), &nics) ||
		nics < 1 || !unit_parse(UNIT_BANDWIDTH, x + 1, &bandwidth) || bandwidth <= 0)
		return error_set(error, EXIT_CODE_USAGE,
			"--network %.100s: "
			"expected none, or KIND:NICSxBANDWIDTH such as infiniband:8x200Gbit/s "
			"(infiniband, roce, efa, ethernet, tcpx)",
			typed);
	/* No unit was typed. */
	if (bandwidth < 1e6)
		return error_set(error, EXIT_CODE_USAGE,
			"--network %.100s: that is %g bytes per second; write %.100sGbit/s", typed,
			bandwidth, typed);
	return draft_set_int(import, PROPERTY_NETWORK_KIND, k, "--network", by, error) &&
	       draft_set_int(import, PROPERTY_NICS_PER_NODE, nics, "--network", by, error) &&
	       draft_set_double(import, PROPERTY_NIC_BANDWIDTH, bandwidth, "--network", by, error);
}

/* --nodes and --gpus, which may also follow from each other and from the texts. */
static bool read_counts(struct topology_import *import, struct error *error)
{
	const struct topology_import_options *o = &import->options;
	int64_t nodes = o->nodes, each = import->topology.devices_per_node;

	if (nodes > 0 && !draft_set_int(import, PROPERTY_NODES, nodes, "--nodes",
				 "the option --nodes", error))
		return false;
	if (o->devices == 0)
		return true;
	if (nodes == 0 && import->given_by[PROPERTY_NODES] != NULL)
		nodes = import->topology.nodes;
	if (nodes == 0 && each > 0 && o->devices % each == 0)
		return draft_set_int(import, PROPERTY_NODES, o->devices / each, "--gpus",
			"the option --gpus", error);
	if (nodes == 0 || o->devices % nodes != 0)
		return error_set(error, EXIT_CODE_USAGE,
			"--gpus %lld: expected a multiple of the nodes; "
			"say how many with --nodes N",
			(long long)o->devices);
	return draft_set_int(import, PROPERTY_DEVICES_PER_NODE, o->devices / nodes, "--gpus",
		"the option --gpus", error);
}

/* --- what no text has ----------------------------------------------------------------------------
 */

/* How much a machine of the catalogue has in common with the texts. */
static int likeness(const struct topology_import *import, const struct topology *candidate)
{
	static const struct {
		enum property property;
		int weight;
	} weights[] = {{PROPERTY_DEVICES_PER_NODE, 4}, {PROPERTY_NETWORK_KIND, 2},
		{PROPERTY_NICS_PER_NODE, 1}};
	int total = 0;

	for (int i = 0; i < COUNT_OF(weights); i++)
		if (import->given_by[weights[i].property] != NULL &&
			draft_get(&import->topology, weights[i].property) ==
				draft_get(candidate, weights[i].property))
			total += weights[i].weight;
	return total;
}

/* Of equals NVIDIA's own design, which others vary. */
static bool is_better(
	const struct topology_import *import, const struct topology *a, const struct topology *b)
{
	int better = likeness(import, a) - likeness(import, b);

	return better > 0 ||
	       (better == 0 && strncmp(a->name, "dgx", 3) == 0 && strncmp(b->name, "dgx", 3) != 0);
}

/* Of the machines of the catalogue with that GPU the most alike one; of equals the first by name.
 */
static const struct topology *find_like(struct topology_import *import, const char *gpu)
{
	const struct topology *found = NULL;

	for (int i = 0; i < n_topology_catalogue; i++) {
		const struct embedded_file *file = &topology_catalogue[i];
		struct topology *candidate;

		if (!same_name(topology_catalogue_device(import->arena, file), gpu) ||
			!topology_load_name(import->arena, file->name, &candidate, NULL))
			continue;
		if (found == NULL || is_better(import, candidate, found))
			found = candidate;
	}
	return found;
}

static bool ask_for_gpu(struct topology_import *import, struct error *error)
{
	struct text known = {0};
	const char *last = "";

	for (int i = 0; i < n_topology_catalogue; i++) {
		const char *device =
			topology_catalogue_device(import->arena, &topology_catalogue[i]);

		if (strstr(text_string(&known), device) != NULL)
			continue;
		text_printf(&known, "%s%s", last, device);
		last = ", ";
	}
	if (import->options.gpu != NULL)
		error_set(error, EXIT_CODE_USAGE,
			"--gpu-name %.60s: not in the catalogue, expected one of %s; "
			"or --like FILE with a topology file that describes it",
			import->options.gpu, text_string(&known));
	else if (import->unknown_gpu != NULL)
		error_set(error, EXIT_CODE_USAGE,
			"\"%.60s\" is not in the catalogue: "
			"say what it is like with --gpu-name NAME (%s) "
			"or --like FILE with a topology file that describes it",
			import->unknown_gpu, text_string(&known));
	else
		error_set(error, EXIT_CODE_USAGE,
			"nothing says which GPU this is: add --gpu-name NAME, one of %s",
			text_string(&known));
	text_finish(&known);
	return false;
}

static bool find_device(
	struct topology_import *import, const struct topology **like, struct error *error)
{
	const struct topology_import_options *o = &import->options;

	*like = o->like;
	if (o->gpu != NULL && import->gpu != NULL && strcmp(o->gpu, import->gpu) != 0)
		return error_set(error, EXIT_CODE_INPUT, "--gpu-name %.60s, but %s says %s", o->gpu,
			import->gpu_given_by, import->gpu);
	if (o->gpu != NULL) {
		import->gpu = o->gpu;
		import->gpu_given_by = "the option --gpu-name";
	}
	if (*like == NULL && import->gpu != NULL)
		*like = find_like(import, import->gpu);
	if (*like == NULL)
		return ask_for_gpu(import, error);
	if (import->gpu == NULL) {
		import->gpu = (*like)->device.name;
		import->gpu_given_by = NULL;
	}
	if (o->like == NULL && import->sm > 0 && gpu_sm(import->gpu) != import->sm)
		return error_set(error, EXIT_CODE_INPUT,
			"the topology dump has GPUs of compute capability %d.%d, %s has %d.%d; "
			"expected --like FILE with a topology file that describes them",
			import->sm / 10, import->sm % 10, import->gpu, gpu_sm(import->gpu) / 10,
			gpu_sm(import->gpu) % 10);
	import->topology.device = (*like)->device;
	if (strcmp((*like)->device.name, import->gpu) != 0) {
		const struct topology *other = find_like(import, import->gpu);

		if (other == NULL)
			return ask_for_gpu(import, error);
		import->topology.device = other->device;
	}
	return true;
}

/* A fabric of another kind has another latency and number of channels. */
static bool assumed_of(
	const struct topology_import *import, const struct topology *like, enum property property)
{
	bool other = import->topology.fabric.kind != like->fabric.kind;

	return !(other &&
		 (property == PROPERTY_FABRIC_CHANNELS || property == PROPERTY_FABRIC_LATENCY ||
			 property == PROPERTY_FABRIC_BANDWIDTH));
}

/* NCCL's base and hop latencies of a ring inside a node (graph/tuning.cc), as the catalogue has
 * them for the two kinds. */
static double fabric_latency(enum fabric_kind kind)
{
	return kind == FABRIC_PCIE ? 5.7e-6 : 3.4e-6;
}

/* PCIe where the machine that it is like has NVLink: how fast is not known. */
static void assume_pcie(struct topology_import *import)
{
	struct topology *t = &import->topology;
	double share = t->host.cpu == CPU_INTEL ? 5.0 / 6 : 1;

	t->fabric.bandwidth = t->host.pcie_bandwidth * share;
	import->given_by[PROPERTY_FABRIC_BANDWIDTH] =
		"assumed: host.pcie_bandwidth through the CPU, as NCCL counts it";
}

static void assume(struct topology_import *import, const struct topology *like)
{
	struct topology *t = &import->topology;
	const char *by = arena_printf(import->arena, "assumed: like %s", like->name);

	for (int f = 0; f < PROPERTY_COUNT; f++) {
		double value = draft_get(like, (enum property)f);

		if (import->given_by[f] != NULL || !assumed_of(import, like, (enum property)f))
			continue;
		draft_put(t, (enum property)f, (int64_t)value, value);
		import->given_by[f] = by;
	}
	if (import->given_by[PROPERTY_FABRIC_BANDWIDTH] == NULL)
		assume_pcie(import);
	if (import->given_by[PROPERTY_FABRIC_LATENCY] == NULL) {
		t->fabric.latency = fabric_latency(t->fabric.kind);
		import->given_by[PROPERTY_FABRIC_LATENCY] = "assumed: NCCL's latency for this kind";
	}
}

/* Logs tell how many devices were used, which is how many there are when nothing else does. */
static void count_from_logs(struct topology_import *import)
{
	int64_t nodes = 0, each = 0;
	const char *by = "the largest of the nccl-tests logs";

	for (int i = 0; i < import->n_logs; i++) {
		nodes = max_i64(nodes, import->logs[i].nodes);
		each = max_i64(each, import->logs[i].ranks / import->logs[i].nodes);
	}
	if (nodes > 0 && import->given_by[PROPERTY_NODES] == NULL)
		draft_set_int(import, PROPERTY_NODES, nodes, "", by, NULL);
	if (each > 0 && import->given_by[PROPERTY_DEVICES_PER_NODE] == NULL)
		draft_set_int(import, PROPERTY_DEVICES_PER_NODE, each, "", by, NULL);
}

static bool need_counts(struct topology_import *import, struct error *error)
{
	if (import->given_by[PROPERTY_DEVICES_PER_NODE] == NULL && import->options.like == NULL)
		return error_set(error, EXIT_CODE_USAGE,
			"nothing says how many GPUs there are: add --gpus N and --nodes N "
			"(or an NCCL topology dump, `nvidia-smi topo -m`, a host file)");
	return true;
}

/* --- the end ------------------------------------------------------------------------------------
 */

static void add_provenance(struct topology *t, const char *key, const char *text)
{
	t->provenance[t->n_provenance++] = (struct provenance){key, text};
}

static void write_provenance(
	struct topology_import *import, struct topology *t, const struct topology *like)
{
	t->provenance = ARENA_ARRAY(import->arena, struct provenance, PROPERTY_COUNT + 4);
	add_provenance(t, "device",
		import->gpu_given_by != NULL
			? arena_printf(import->arena, "%s; its figures as in the catalogue",
				  draft_base_name(import->gpu_given_by))
			: arena_printf(import->arena, "assumed: like %s", like->name));
	for (int f = 0; f < PROPERTY_COUNT; f++) {
		bool networked = f < PROPERTY_NICS_PER_NODE || f > PROPERTY_CONGESTION ||
				 t->network.kind != NETWORK_NONE;

		bool none = draft_get(t, (enum property)f) == 0 &&
			    (f == PROPERTY_CONGESTION || f == PROPERTY_DEVICES_PER_ROOT);

		if (import->given_by[f] != NULL && networked && !none)
			add_provenance(t, draft_key((enum property)f), import->given_by[f]);
	}
	if (!fields_equal(overheads_fields, &t->overheads, &(struct overheads){0}))
		add_provenance(t, "overheads",
			arena_printf(import->arena, "assumed: like %s", like->name));
	if (like->calibration.gemm_flops > 0 || like->calibration.measured)
		add_provenance(t, "calibration",
			arena_printf(import->arena, "assumed: like %s", like->name));
}

static void set_sources(struct topology_import *import, struct topology *t)
{
	struct text text = {0};

	text_add(&text, "imported");
	for (int i = 0; i < import->n_logs; i++)
		if (i < 4)
			text_printf(&text, "%s %.60s", i > 0 ? "," : ":",
				draft_base_name(import->logs[i].name));
	if (import->links != NULL)
		text_printf(&text, "; %s", import->links->by);
	text_add(&text, "; each value's origin is under provenance");
	t->source = arena_strdup(import->arena, text_string(&text));
	text_finish(&text);
}

bool topology_import_finish(struct topology_import *import, const char *name,
	struct topology **topology, struct error *error)
{
	const struct topology *like;
	struct topology *t = ARENA_NEW(import->arena, struct topology);

	if ((import->options.network != NULL &&
		    !read_network(import, import->options.network, error)) ||
		!read_counts(import, error))
		return false;
	count_from_logs(import);
	if (!find_device(import, &like, error) || !draft_links(import, like, error) ||
		!need_counts(import, error))
		return false;
	if (import->given_by[PROPERTY_NODES] == NULL && import->options.like == NULL)
		draft_set_int(import, PROPERTY_NODES, 1, name, "assumed: one node", NULL);
	assume(import, like);
	*t = import->topology;
	t->name = arena_strdup(import->arena, name);
	t->calibration = like->calibration;
	if (strcmp(like->device.name, t->device.name) == 0)
		t->overheads = like->overheads;
	t->shares_host = like->shares_host;
	if (t->network.kind == NETWORK_NONE)
		t->network = (struct network){.oversubscription = 1};
	if (t->nodes > 1 && t->network.kind == NETWORK_NONE)
		return error_set(error, EXIT_CODE_USAGE,
			"nothing says what connects the %lld nodes: "
			"add --network KIND:NICSxBANDWIDTH, such as infiniband:8x200Gbit/s",
			(long long)t->nodes);
	if (!draft_curves(import, t, error))
		return false;
	write_provenance(import, t, like);
	set_sources(import, t);
	*topology = t;
	return topology_check(t, NULL, error);
}
