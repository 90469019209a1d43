#include "cli/question/question.h"

#include <string.h>

#include "cli/terminal/terminal.h"

static bool has_ending(const char *name, const char *ending)
{
	size_t length = strlen(name), wanted = strlen(ending);

	return length > wanted && strcmp(name + length - wanted, ending) == 0;
}

/* Is it a path? No preset has such a name. */
static bool looks_like_path(const char *typed)
{
	return strchr(typed, '/') != NULL || strcmp(typed, "-") == 0 || strcmp(typed, ".") == 0 ||
	       strcmp(typed, "..") == 0 || has_ending(typed, ".json") ||
	       has_ending(typed, ".yaml") || has_ending(typed, ".yml") ||
	       has_ending(typed, ".safetensors");
}

/* --- models -------------------------------------------------------------------------------------
 */

static bool is_preset(const char *name)
{
	for (int i = 0; i < n_model_presets; i++) {
		if (strcmp(model_presets[i].name, name) == 0)
			return true;
	}
	return false;
}

static bool names_topology(struct arena *arena, const char *typed)
{
	struct topology *found;

	return strcmp(typed, "local") == 0 || topology_load_name(arena, typed, &found, NULL);
}

bool input_swapped(struct arena *arena, const char *model, const char *topology)
{
	return !is_preset(model) && names_topology(arena, model) &&
	       model_preset_name(topology) != NULL && !names_topology(arena, topology);
}

static bool read_model(
	struct arena *arena, const char *path, struct model **model, struct error *error)
{
	struct contents contents;

	if (file_is_folder(path))
		path = arena_printf(arena, "%s/config.json", path);
	/* A safetensors file is refused, because shapes alone do not tell how many heads there
	 * are. */
	if (has_ending(path, ".safetensors") || has_ending(path, ".safetensors.index.json")) {
		const char *config = file_beside(arena, path, "config.json");

		if (!file_exists(config))
			return error_set(error, EXIT_CODE_INPUT,
				"%s: the weights alone do not say how many heads a model has, "
				"expected %s beside them",
				path, config);
		path = config;
	}
	if (!file_read(arena, path, &contents, error) ||
		!model_parse(arena, contents.name, contents.text, contents.length, model, error))
		return false;
	if ((*model)->part != NULL)
		output_note("%s: this is %s", path, (*model)->part);
	return true;
}

/* Suggests the nearest name, of presets and of SHARDPLAN_PATH. */
static bool no_such_model(struct arena *arena, const char *typed, struct error *error)
{
	struct model *none;
	int count;
	const char *near = nearest_name(typed, search_path_names(arena, &count));

	if (names_topology(arena, typed))
		return error_set(error, EXIT_CODE_INPUT,
			"%.100s: this is a topology, expected a model; "
			"`shardplan topologies show %.100s` shows it",
			typed, typed);
	if (near == NULL)
		return model_load_preset(arena, typed, &none, error);
	return error_set(error, EXIT_CODE_INPUT,
		"no model is named \"%.100s\", did you mean \"%s\" of SHARDPLAN_PATH?", typed,
		near);
}

/* Is it "organisation/name", an id on Hugging Face, and not a file? */
static bool looks_like_id(const char *typed)
{
	const char *slash = strchr(typed, '/');

	return slash != NULL && slash != typed && slash[1] != '\0' && typed[0] != '.' &&
	       strchr(slash + 1, '/') == NULL && !has_ending(typed, ".json") &&
	       !has_ending(typed, ".yaml") && !has_ending(typed, ".yml") &&
	       !has_ending(typed, ".safetensors");
}

static bool no_such_id(struct arena *arena, const char *typed, struct error *error)
{
	const char **names = ARENA_ARRAY(arena, const char *, n_model_presets + 1);
	char *name = arena_strdup(arena, strchr(typed, '/') + 1);

	for (int i = 0; i < n_model_presets; i++)
		names[i] = model_presets[i].name;
	for (char *c = name; *c != '\0'; c++)
		*c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
	const char *near = nearest_name(name, names);
	return error_set(error, EXIT_CODE_INPUT,
		"%.100s: no such folder, and no preset is that model%s%s%s; "
		"else download its config.json and give that file",
		typed, near != NULL ? "; for " : "", near != NULL ? near : "",
		near != NULL ? " type that" : "");
}

bool input_model(struct arena *arena, const char *typed, struct model **model, struct error *error)
{
	const char *path = NULL, *preset = model_preset_name(typed);

	if (typed[0] == '{')
		return model_parse(arena, "MODEL", typed, strlen(typed), model, error);
	if (is_preset(typed))
		return model_load_preset(arena, typed, model, error);
	if (!looks_like_path(typed))
		path = search_path_find(arena, typed);
	if (path == NULL && (strcmp(typed, "-") == 0 || file_exists(typed)))
		path = typed;
	if (path == NULL && preset != NULL) {
		output_note("%s is read as the preset %s", typed, preset);
		return model_load_preset(arena, preset, model, error);
	}
	if (path == NULL && looks_like_id(typed))
		return no_such_id(arena, typed, error);
	if (path == NULL && looks_like_path(typed))
		path = typed;
	return path != NULL ? read_model(arena, path, model, error)
			    : no_such_model(arena, typed, error);
}

/* --- topologies ---------------------------------------------------------------------------------
 */

static void note_doubts(struct arena *arena, const char *name, const struct topology *topology)
{
	struct text lines = {0};

	topology_doubts(topology, arena, &lines);
	for (const char *line = text_string(&lines); *line != '\0';) {
		int length = (int)strcspn(line, "\n");
		output_note("%s: %.*s", name, length, line);
		line += length + 1;
	}
	text_finish(&lines);
}

static bool read_topology(
	struct arena *arena, const char *path, struct topology **topology, struct error *error)
{
	struct contents contents;

	if (!file_read(arena, path, &contents, error) ||
		!topology_parse(
			arena, contents.name, contents.text, contents.length, topology, error))
		return false;
	note_doubts(arena, contents.name, *topology);
	return true;
}

/* Finds "4xmynode", with one node in mynode.yaml in SHARDPLAN_PATH. False without an error if it is
 * not of that form. */
static bool find_nodes(
	struct arena *arena, const char *typed, struct topology **topology, struct error *error)
{
	size_t digits = strspn(typed, "0123456789");
	int64_t nodes;

	if (digits == 0 || typed[digits] != 'x' ||
		!parse_int(arena_strndup(arena, typed, digits), &nodes))
		return false;
	const char *path = search_path_find(arena, typed + digits + 1);
	if (path == NULL || !read_topology(arena, path, topology, error))
		return false;
	if (nodes < 1 || nodes > TOPOLOGY_MAX_DEVICES || (*topology)->nodes != 1)
		return error_set(error, EXIT_CODE_INPUT,
			"%.100s: expected a number of nodes, x, and a topology of one node; "
			"%s has %lld nodes",
			typed, path, (long long)(*topology)->nodes);
	(*topology)->nodes = nodes;
	(*topology)->name = arena_strdup(arena, typed);
	return topology_check(*topology, NULL, error);
}

static bool load_topology(
	struct arena *arena, const char *typed, struct topology **topology, struct error *error)
{
	struct error unknown = {0};

	if (looks_like_path(typed))
		return read_topology(arena, typed, topology, error);
	if (topology_load_name(arena, typed, topology, &unknown))
		return true;
	const char *path = search_path_find(arena, typed);
	if (path == NULL && file_exists(typed) && !file_is_folder(typed))
		path = typed;
	if (path != NULL)
		return read_topology(arena, path, topology, error);
	struct error found = {0};
	if (find_nodes(arena, typed, topology, &found))
		return true;
	if (found.code == EXIT_CODE_OK && model_preset_name(typed) != NULL)
		return error_set(error, EXIT_CODE_INPUT,
			"%.100s: this is a model, expected a topology such as 2xdgx-h100; "
			"`shardplan topologies` lists them",
			typed);
	*error = found.code != EXIT_CODE_OK ? found : unknown;
	return false;
}

bool input_topology(struct arena *arena, const char *typed, int64_t gpus,
	struct topology **topology, struct error *error)
{
	if (strcmp(typed, "local") == 0)
		return input_local(arena, gpus, topology, error);
	return load_topology(arena, typed, topology, error) &&
	       (gpus == 0 || topology_use_devices(*topology, gpus, error));
}

/* --- documents of our own -----------------------------------------------------------------------
 */

static bool is_number(const char *word)
{
	return word[0] != '\0' && word[strspn(word, "0123456789")] == '\0';
}

const char *question_instead(const struct arguments *arguments, struct arena *arena)
{
	const char *second = arguments->operands[1], *extra = arguments->extra;

	if (is_number(second))
		return arena_printf(arena, "type %sx%s in one word", second, extra);
	if (is_number(extra))
		return "numbers have names: --gpus N, --micro-batch N, --global-batch N, --seq-len "
		       "N";
	return file_exists(extra) ? arena_printf(arena,
					    "a framework's file is read by `shardplan import %s %s "
					    "%s`",
					    extra, arguments->operands[0], second)
				  : NULL;
}

const char *input_instead_of_plan(struct arena *arena, const char *typed)
{
	if (file_exists(typed) || model_preset_name(typed) == NULL)
		return NULL;
	return arena_printf(arena,
		"%s is a model: `shardplan plan MODEL TOPOLOGY -o plan.yaml` writes a plan", typed);
}

bool input_plan_file(struct arena *arena, const char *path, struct plan_file *file,
	const char **text, struct error *error)
{
	struct contents contents;

	if (!file_exists(path) && model_preset_name(path) != NULL)
		return error_set(error, EXIT_CODE_USAGE,
			"%s is a model, expected PLAN.yaml; "
			"`shardplan predict %s TOPOLOGY -o plan.yaml` writes one, or `plan`",
			path, path);
	if (!file_exists(path) && strpbrk(path, "./") == NULL && strcmp(path, "-") != 0)
		return error_set(error, EXIT_CODE_USAGE,
			"%s: no such file, expected PLAN.yaml; `shardplan help %s` explains words",
			path, path);
	if (!file_read(arena, path, &contents, error) ||
		!plan_file_parse(arena, contents.name, contents.text, contents.length, file, error))
		return false;
	if (text != NULL)
		*text = contents.text;
	return true;
}

static bool check_schema(const struct node *root, struct error *error)
{
	const struct node *schema = node_get(root, "schema");

	if (schema == NULL || schema->kind != NODE_SCALAR)
		return node_error(root, error,
			"no measurement, expected the key \"schema\": "
			"\"shardplan/measurement/1\"; `shardplan train` writes one");
	if (strcmp(schema->text, "shardplan/measurement/1") != 0)
		return node_error(schema, error, "expected shardplan/measurement/1, got \"%.60s\"",
			schema->text);
	if (node_get(root, "measurement") == NULL)
		return node_error(root, error, "missing key \"measurement\"");
	return true;
}

/* The map of the measurement in the document; NULL: an error. */
static const struct node *read_measurement(
	struct arena *arena, const char *path, struct measurement *measurement, struct error *error)
{
	struct contents contents;

	if (!file_read(arena, path, &contents, error))
		return NULL;
	const struct node *root =
		document_parse(arena, contents.name, contents.text, contents.length, 0, error);
	if (root == NULL || !check_schema(root, error))
		return NULL;
	const struct node *map = node_get(root, "measurement");
	return measurement_read(arena, map, measurement, error) ? map : NULL;
}

static bool is_of(const struct measurement *measurement, const struct plan_file *file)
{
	const char *digest = measurement->values.schedule_digest;
	return digest != NULL && strcmp(digest, file->schedule_digest) == 0;
}

bool input_any_measurement(struct arena *arena, const char *path, const struct plan_file *file,
	struct measurement *measurement, bool *same, struct error *error)
{
	if (read_measurement(arena, path, measurement, error) == NULL)
		return false;
	*same = is_of(measurement, file);
	return true;
}

bool input_measurement(struct arena *arena, const char *path, const struct plan_file *file,
	struct measurement *measurement, struct error *error)
{
	const struct node *map = read_measurement(arena, path, measurement, error);

	if (map == NULL)
		return false;
	const struct node *digest = node_get(map, "schedule_digest");
	const char *measured = measurement->values.schedule_digest;
	return is_of(measurement, file) ||
	       node_error(digest != NULL ? digest : map, error,
		       "a measurement of another schedule, expected the plan's %s, got %s",
		       file->schedule_digest, measured != NULL ? measured : "none");
}
