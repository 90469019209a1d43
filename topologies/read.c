/* Text and documents -> struct topology. docs/topologies.md describes the format. */
#include <string.h>

#include "topologies/topologies.h"

#define TOPOLOGY_SCHEMA "topology/1"

/* What a topology map holds besides topology_fields. A file of its own also has `shardplan`. */
static const char *const section_names[] = {
	"device", "fabric", "network", "host", "overheads", "calibration", "provenance", NULL};
static const char *const file_keys[] = {"shardplan", "device", "fabric", "network", "host",
	"overheads", "calibration", "provenance", NULL};

/* A section that is a map of plain fields. An absent one is only an error when it is required. */
static bool read_section(const struct node *map, const char *key, bool required,
	const struct field *fields, void *object, struct arena *arena, struct error *error)
{
	const struct node *section = node_get(map, key);

	if (section == NULL)
		return !required ||
		       node_error(map, error,
			       "missing key \"%s\", expected a map of its properties", key);
	if (section->kind != NODE_MAP)
		return node_error(section, error, "expected a map of its properties");
	return fields_read(fields, section, NULL, object, arena, error);
}

/* A map of texts, for people: what is not checked is not believed either. */
static bool read_provenance(
	struct arena *arena, const struct node *map, struct topology *topology, struct error *error)
{
	if (map == NULL)
		return true;
	if (map->kind != NODE_MAP)
		return node_error(map, error, "expected a map of keys and where they come from");
	topology->provenance = ARENA_ARRAY(arena, struct provenance, map->n_children);
	for (int i = 0; i < map->n_children; i++) {
		const char *text;

		if (!node_string(map->children[i], &text, error))
			return false;
		topology->provenance[i] = (struct provenance){
			arena_strdup(arena, map->children[i]->key), arena_strdup(arena, text)};
	}
	topology->n_provenance = map->n_children;
	return true;
}

static bool check_generation(const struct node *map, struct error *error)
{
	const struct node *generation = node_get(node_get(map, "device"), "generation");
	const char *meant = generation != NULL && generation->kind == NODE_SCALAR
				    ? generation_meant(generation->text)
				    : NULL;

	return meant == NULL ||
	       node_error(generation, error, "%.40s is of generation %s, write that",
		       generation->text, meant);
}

/* Others' words for the devices of a node. */
static bool check_counts(const struct node *map, struct error *error)
{
	static const char *const others[] = {
		"gpus_per_node", "gpus", "num_gpus", "accelerators_per_node", "devices"};

	for (int i = 0; i < COUNT_OF(others); i++) {
		const struct node *count = node_get(map, others[i]);
		if (count != NULL)
			return node_key_error(count, error, "is called devices_per_node here");
	}
	return true;
}

static bool check_network_kind(const struct node *map, struct error *error)
{
	const struct node *network = node_get(map, "network");

	if (network != NULL && network->kind == NODE_LIST)
		return node_error(network, error,
			"expected one kind of NIC, got a list; "
			"give the NICs that training uses, nics_per_node of one rate");
	const struct node *kind = node_get(node_get(map, "network"), "kind");
	const char *meant =
		kind != NULL && kind->kind == NODE_SCALAR ? network_kind_meant(kind->text) : NULL;

	return meant == NULL || node_error(kind, error, "%s is called %s here", kind->text, meant);
}

static bool read_sections(
	struct arena *arena, const struct node *map, struct topology *topology, struct error *error)
{
	const struct node *calibration = node_get(map, "calibration");

	if (!check_generation(map, error) ||
		!read_section(
			map, "device", true, device_fields, &topology->device, arena, error) ||
		!read_section(map, "fabric", topology->devices_per_node > 1, fabric_fields,
			&topology->fabric, arena, error) ||
		!check_network_kind(map, error) ||
		!read_section(
			map, "network", false, network_fields, &topology->network, arena, error) ||
		!read_section(map, "host", true, host_fields, &topology->host, arena, error) ||
		!read_section(map, "overheads", false, overheads_fields, &topology->overheads,
			arena, error) ||
		!read_provenance(arena, node_get(map, "provenance"), topology, error))
		return false;
	return calibration == NULL ||
	       calibration_read(arena, calibration, &topology->calibration, error);
}

static bool read_map(struct arena *arena, const struct node *map, const char *const *others,
	struct topology **result, struct error *error)
{
	struct topology *topology = ARENA_NEW(arena, struct topology);

	if (map->kind != NODE_MAP)
		return node_error(map, error, "expected a map of a topology's properties");
	topology->nodes = 1;
	topology->network.oversubscription = 1;
	if (!check_counts(map, error) ||
		!fields_read(topology_fields, map, others, topology, arena, error) ||
		!read_sections(arena, map, topology, error) ||
		!topology_check(topology, map, error))
		return false;
	*result = topology;
	return true;
}

bool topology_read(struct arena *arena, const struct node *map, struct topology **topology,
	struct error *error)
{
	return read_map(arena, map, section_names, topology, error);
}

/* The first line says which kind of document this is and in which version. */
static bool check_schema(const struct node *root, struct error *error)
{
	const struct node *schema = node_get(root, "shardplan");

	if (root->kind != NODE_MAP)
		return node_error(root, error, "expected a topology (a map), got something else");
	if (schema == NULL)
		return node_error(root, error,
			"missing key \"shardplan\", add `shardplan: %s` as the first "
			"line",
			TOPOLOGY_SCHEMA);
	if (schema->kind != NODE_SCALAR || strcmp(schema->text, TOPOLOGY_SCHEMA) != 0)
		return node_error(schema, error, "expected %s, got %s", TOPOLOGY_SCHEMA,
			schema->kind == NODE_SCALAR ? schema->text : "no text");
	return true;
}

bool topology_parse(struct arena *arena, const char *name, const char *text, size_t length,
	struct topology **topology, struct error *error)
{
	const struct node *root = document_parse(arena, name, text, length, 0, error);

	return root != NULL && check_schema(root, error) &&
	       read_map(arena, root, file_keys, topology, error);
}
