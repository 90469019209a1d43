/* Topologies by name: the files embedded from catalogue/, and NxNODE. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "topologies/topologies.h"

static const struct embedded_file *find_file(const char *name)
{
	for (int i = 0; i < n_topology_catalogue; i++)
		if (same_name(topology_catalogue[i].name, name))
			return &topology_catalogue[i];
	return NULL;
}

const char *topology_catalogue_device(struct arena *arena, const struct embedded_file *file)
{
	static const char before[] = "\ndevice:\n  name: ";
	const char *at = strstr(file->text, before);

	if (at == NULL)
		return "";
	at += strlen(before);
	return arena_strndup(arena, at, strcspn(at, "\n"));
}

/* "2xdgx-h100" -> digits "2", rest "dgx-h100"; NULL when the name has not that form. */
static const char *after_count(const char *name)
{
	size_t digits = strspn(name, "0123456789");

	return name[digits] == 'x' || name[digits] == 'X' ? name + digits + 1 : NULL;
}

static bool load_file(struct arena *arena, const struct embedded_file *file,
	struct topology **topology, struct error *error)
{
	const char *name = arena_printf(arena, "%s.yaml", file->name);

	return topology_parse(arena, name, file->text, file->length, topology, error);
}

/* Does what was typed end with a number, or with letters, of a name: "mi300" of "MI300X-192GB", and
 * not "rt" of "RTX"? */
static bool ends_well(char last, char next)
{
	return !(isalpha((unsigned char)last) && isalpha((unsigned char)next)) &&
	       !(isdigit((unsigned char)last) && isdigit((unsigned char)next));
}

/* "rtx4090" of "RTX-4090-24GB": the name begins so, apart from dashes. */
static bool begins_joined(const char *word, const char *name)
{
	char last = '\0';

	for (; *word != '\0'; last = *word++, name++) {
		while (*name == '-')
			name++;
		if (tolower((unsigned char)*word) != tolower((unsigned char)*name))
			return false;
	}
	return last != '\0' && ends_well(last, *name);
}

/* "4090": a part of the name; "16" is none of T4-16GB. */
static bool is_number_of(const char *word, const char *name)
{
	size_t length = strlen(word);
	const char *at = strstr(name, word);

	return length > 0 && strspn(word, "0123456789") == length && at != NULL && at > name &&
	       at[-1] == '-' && (at[length] == '-' || at[length] == '\0');
}

/* "h100" and "a100-80gb" of the device "A100-SXM4-80GB": every part of the word begins a part of
 * the name ("b200" is not in "GB200"). */
static bool is_device(const char *word, const char *name)
{
	if (begins_joined(word, name) || is_number_of(word, name))
		return true;
	if (isalpha((unsigned char)word[0]) == 0)
		return false;
	while (*word != '\0') {
		size_t length = strcspn(word, "-_");
		bool found = false;
		for (const char *at = name; length > 1 && *at != '\0' && !found; at++)
			found = (at == name || at[-1] == '-') &&
				strncasecmp(at, word, length) == 0 &&
				ends_well(word[length - 1], at[length]);
		if (!found)
			return false;
		word += length + (word[length] != '\0');
	}
	return true;
}

/* So many devices, in the words to type. */
static const char *devices_of(
	struct arena *arena, const char *node, int64_t in_node, int64_t wanted)
{
	int64_t nodes = wanted / in_node;

	if (wanted == 0 || wanted == in_node)
		return node;
	if (wanted > in_node && wanted % in_node != 0)
		return arena_printf(arena, "%lldx%s or %lldx%s (nodes are whole)", (long long)nodes,
			node, (long long)nodes + 1, node);
	if (wanted % in_node == 0)
		return arena_printf(arena, "%lldx%s", (long long)nodes, node);
	return arena_printf(arena, "%s --gpus %lld", node, (long long)wanted);
}

/* "16xh100": the name of a device, so many of them (0: it was not said), where one of a node is
 * expected. A DGX comes first. False when it is no device either. */
static bool suggest_nodes(struct arena *arena, const char *name, const char *word, int64_t wanted,
	struct error *error)
{
	int64_t in_node = 0;
	const char *first = NULL, *others = "";
	int n_others = 0;

	for (int i = 0; i < n_topology_catalogue; i++) {
		const struct embedded_file *file = &topology_catalogue[i];
		const char *node = file->name;
		struct topology *topology;
		if (!is_device(word, topology_catalogue_device(arena, file)) ||
			!load_file(arena, file, &topology, NULL))
			continue;
		bool is_dgx = strncmp(node, "dgx-", 4) == 0;
		const char *other =
			first != NULL && is_dgx && strncmp(first, "dgx-", 4) != 0 ? first : node;
		if (first == NULL || other == first) {
			first = node;
			in_node = topology->devices_per_node;
		}
		if (other != first && n_others++ < 4)
			others = arena_printf(
				arena, "%s%s%s", others, n_others > 1 ? ", " : "", other);
	}
	return first != NULL && !error_set(error, EXIT_CODE_INPUT,
					"topology \"%.100s\": %.60s is a device, "
					"expected a node of several; type %s%s%s",
					name, word, devices_of(arena, first, in_node, wanted),
					others[0] != '\0' ? "; other nodes with it: " : "", others);
}

/* Enough letters for a name with them in it to be meant. */
enum { SHORTEST_PART = 4 };

static bool is_in_a_name(const char *word)
{
	for (int i = 0; i < n_topology_catalogue && strlen(word) >= SHORTEST_PART; i++)
		if (strstr(topology_catalogue[i].name, word) != NULL)
			return true;
	return false;
}

/* "; did you mean A or B?": every name that starts like this, or has it in it, else the nearest
 * one, of as many nodes as were typed, with or without the x. */
static const char *suggest(struct arena *arena, const char *name)
{
	/* "4090-8x" has no number of nodes. */
	int digits = is_in_a_name(name) ? 0 : (int)strspn(name, "0123456789");
	const char *x = digits > 0 ? "x" : "";
	const char *word = name + digits + (digits > 0 && name[digits] == 'x');
	const char **names = ARENA_ARRAY(arena, const char *, n_topology_catalogue + 2);
	const char *list = "", *found;

	for (int i = 0; i < n_topology_catalogue; i++)
		names[i] = topology_catalogue[i].name;
	names[n_topology_catalogue] = "local";
	for (int i = 0; word[0] != '\0' && names[i] != NULL; i++)
		if ((found = strstr(names[i], word)) != NULL &&
			(found == names[i] || strlen(word) >= SHORTEST_PART))
			list = arena_printf(arena, "%s%s%.*s%s%s", list,
				list[0] != '\0' ? " or " : "", digits, name, x, names[i]);
	if (list[0] != '\0')
		return arena_printf(arena, "; did you mean %s?", list);
	list = nearest_name(word, names);
	return list != NULL ? arena_printf(arena, "; did you mean %.*s%s%s?", digits, name, x, list)
			    : "";
}

/* "h100x16" -> "h100" and 16: the number stands behind. NULL: none does. */
static const char *before_count(struct arena *arena, const char *name, int64_t *count)
{
	size_t length = strlen(name), digits = 0;

	while (digits < length && isdigit((unsigned char)name[length - digits - 1]))
		digits++;
	size_t mark = length - digits;
	if (digits == 0 || mark < 2 || strchr("xX*:-", name[mark - 1]) == NULL ||
		!parse_int(name + mark, count))
		return NULL;
	return arena_strndup(arena, name, mark - 1);
}

/* Names that are not a node's, but of which is clear what is meant. */
static bool suggest_meant(
	struct arena *arena, const char *name, const char *word, struct error *error)
{
	int64_t count = 0, behind = 0;
	const char *before = before_count(arena, name, &behind);

	if (before != NULL && find_file(before) != NULL)
		return !error_set(error, EXIT_CODE_INPUT,
			"topology \"%.100s\": the number of nodes stands in front; type %lldx%s",
			name, (long long)behind, find_file(before)->name);
	if (word != name &&
		!parse_int(arena_strndup(arena, name, (size_t)(word - name) - 1), &count))
		return false;
	return suggest_nodes(arena, name, word, count, error) ||
	       (before != NULL && suggest_nodes(arena, name, before, behind, error));
}

static bool unknown(struct arena *arena, const char *name, const char *word, struct error *error)
{
	if (suggest_meant(arena, name, word, error))
		return false;
	if (strpbrk(name, ",+") != NULL)
		return error_set(error, EXIT_CODE_INPUT,
			"topology \"%.100s\": all nodes are of one kind here, expected one name; "
			"plan for the slower kind, as many of it as there are nodes "
			"(2xdgx-a100-80gb)",
			name);
	return error_set(error, EXIT_CODE_INPUT,
		"topology \"%.100s\": unknown name, "
		"expected one of the catalogue, NxNODE (2xdgx-h100), local or a file%s",
		name, suggest(arena, name));
}

static bool read_count(const char *name, const char *node_name, int64_t *nodes, struct error *error)
{
	int length = (int)(node_name - name) - 1;
	char digits[24];

	if (length == 0)
		return error_set(error, EXIT_CODE_INPUT,
			"topology \"%.100s\": expected a number of nodes before the x, as in 2x%s, "
			"got none",
			name, node_name);
	if (length < (int)sizeof(digits)) {
		memcpy(digits, name, (size_t)length);
		digits[length] = '\0';
		if (parse_int(digits, nodes) && *nodes >= 1 && *nodes <= TOPOLOGY_MAX_DEVICES)
			return true;
	}
	return error_set(error, EXIT_CODE_INPUT,
		"topology \"%.100s\": expected 1 to %d nodes, got %.*s", name, TOPOLOGY_MAX_DEVICES,
		length, name);
}

bool topology_load_name(
	struct arena *arena, const char *name, struct topology **topology, struct error *error)
{
	const struct embedded_file *file = find_file(name);
	const char *node_name = file == NULL ? after_count(name) : NULL;
	struct topology *loaded;
	int64_t nodes = 1;

	if (node_name != NULL)
		file = find_file(node_name);
	if (file == NULL)
		return unknown(arena, name, node_name != NULL ? node_name : name, error);
	if (node_name != NULL && !read_count(name, node_name, &nodes, error))
		return false;
	if (!load_file(arena, file, &loaded, error))
		return false;
	loaded->nodes = nodes;
	if (nodes > 1)
		loaded->name = arena_printf(arena, "%lldx%s", (long long)nodes, file->name);
	if (nodes > 1 && loaded->network.kind == NETWORK_NONE)
		return error_set(error, EXIT_CODE_INPUT,
			"topology \"%.100s\": the catalogue has no network for %s; type "
			"`shardplan topologies import --like %s --nodes %lld "
			"--network ethernet:1x100Gbit/s -o my.yaml`, and give my.yaml",
			name, file->name, file->name, (long long)nodes);
	if (!topology_check(loaded, NULL, error))
		return false;
	*topology = loaded;
	return true;
}
