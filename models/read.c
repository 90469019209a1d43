/* Files, plans and presets -> struct model, and back. */
#include <ctype.h>
#include <string.h>

#include "models/families.h"
#include "models/models.h"

#define MODEL_SCHEMA "model/1"

/* What the family takes for granted, so that a file needs to name sizes and deviations only. */
static void start_from_family(const struct node *map, struct architecture *architecture)
{
	const struct node *node = node_get(map, "family");

	for (int i = 0; node != NULL && node->kind == NODE_SCALAR && i < n_model_families; i++)
		if (strcmp(node->text, model_family_names[i]) == 0)
			*architecture = model_families[i].defaults;
}

static bool read_architecture(struct arena *arena, const struct node *map,
	const char *const *other_keys, struct architecture *architecture, struct error *error)
{
	*architecture = (struct architecture){0};
	start_from_family(map, architecture);
	if (!fields_read(architecture_fields, map, other_keys, architecture, arena, error))
		return false;
	if (architecture->name == NULL)
		architecture->name = model_name_from_path(arena, map->name);
	architecture_complete(architecture);
	return architecture_check(architecture, map, error);
}

bool model_read(
	struct arena *arena, const struct node *map, struct model **model, struct error *error)
{
	struct architecture architecture;

	return read_architecture(arena, map, NULL, &architecture, error) &&
	       model_build(arena, &architecture, model, error);
}

static bool parse_own(
	struct arena *arena, const struct node *root, struct model **model, struct error *error)
{
	static const char *const others[] = {"shardplan", NULL};
	struct architecture architecture;
	const struct node *schema = node_get(root, "shardplan");
	const char *version;

	if (!node_string(schema, &version, error))
		return false;
	if (strcmp(version, MODEL_SCHEMA) != 0)
		return node_error(schema, error,
			"expected a model file (" MODEL_SCHEMA "), got \"%s\"%s", version,
			strncmp(version, "plan/", 5) == 0
				? "; `shardplan explain` shows a plan, `report` plans it again"
				: "");
	return read_architecture(arena, root, others, &architecture, error) &&
	       model_build(arena, &architecture, model, error);
}

bool model_parse(struct arena *arena, const char *name, const char *text, size_t length,
	struct model **model, struct error *error)
{
	struct architecture architecture;
	/* Whose file it is shows inside; only foreign ones may repeat keys. */
	const struct node *root =
		document_parse(arena, name, text, length, DOCUMENT_FOREIGN, error);

	if (root == NULL)
		return false;
	if (node_get(root, "shardplan") != NULL) {
		root = document_parse(arena, name, text, length, 0, error);
		return root != NULL && parse_own(arena, root, model, error);
	}
	if (node_get(root, "model_type") == NULL && node_get(root, "architectures") == NULL &&
		node_get(root, "text_config") == NULL)
		return node_error(root, error,
			"not a model: expected the key \"shardplan: " MODEL_SCHEMA
			"\" or a Hugging Face config.json with \"model_type\"");
	const char *part;
	if (!architecture_from_hugging_face(arena, root, &architecture, &part, error) ||
		!model_build(arena, &architecture, model, error))
		return false;
	(*model)->part = part;
	return true;
}

/* "Llama2" begins "llama-2-7b": letters and digits only. */
static bool begins(const char *typed, const char *name)
{
	for (; *typed != '\0'; typed++) {
		if (!isalnum((unsigned char)*typed))
			continue;
		while (*name != '\0' && !isalnum((unsigned char)*name))
			name++;
		if (tolower((unsigned char)*typed) != *name++)
			return false;
	}
	return true;
}

enum { PRESETS_SAID = 6 };

/* Of a family that was named without a size: "llama-2-13b, llama-2-70b or llama-2-7b". NULL: none,
 * or too many to choose from. */
static const char *presets_of(struct arena *arena, const char *typed)
{
	const char *said = NULL, *last = NULL;
	int n = 0;

	for (int i = 0; i < n_model_presets; i++) {
		if (!begins(typed, model_presets[i].name))
			continue;
		if (last != NULL)
			said = said == NULL ? last : arena_printf(arena, "%s, %s", said, last);
		last = model_presets[i].name;
		n++;
	}
	if (n == 0 || n > PRESETS_SAID)
		return NULL;
	return said == NULL ? last : arena_printf(arena, "%s or %s", said, last);
}

static const char *size_of(const char *name)
{
	return name + strcspn(name, "-_: ");
}

/* Does only the name that was meant say a size? Then the family was named: "qwen3-moe". */
static bool names_family(const char *typed, const char *nearest)
{
	static const char digits[] = "0123456789";

	return nearest == NULL || (strpbrk(size_of(typed), digits) == NULL &&
					  strpbrk(size_of(nearest), digits) != NULL);
}

static bool no_such_preset(struct arena *arena, const char *name, struct error *error)
{
	const char **names = ARENA_ARRAY(arena, const char *, n_model_presets + 1);
	const char *nearest, *family = NULL;

	for (int i = 0; i < n_model_presets; i++)
		names[i] = model_presets[i].name;
	nearest = presets_of(arena, name);
	if (nearest == NULL)
		nearest = nearest_name(name, names);
	if (names_family(name, nearest))
		family = presets_of(
			arena, arena_strndup(arena, name, (size_t)(size_of(name) - name)));
	nearest = family != NULL ? family : nearest;
	if (nearest == NULL)
		return error_set(error, EXIT_CODE_INPUT,
			"no preset model is named \"%s\" (`shardplan models` lists them); "
			"for another model give its Hugging Face config.json",
			name);
	return error_set(error, EXIT_CODE_INPUT,
		"no preset model is named \"%s\", did you mean %s? (`shardplan models` lists them)",
		name, nearest);
}

bool model_load_preset(
	struct arena *arena, const char *name, struct model **model, struct error *error)
{
	for (int i = 0; i < n_model_presets; i++) {
		const struct embedded_file *file = &model_presets[i];

		if (strcmp(file->name, name) == 0)
			return model_parse(arena, arena_printf(arena, "preset:%s", name),
				file->text, file->length, model, error);
	}
	return no_such_preset(arena, name, error);
}

void model_write(const struct model *model, struct writer *writer)
{
	fields_write(architecture_fields, &model->architecture, writer);
}

static void write_parameter(const struct parameter *parameter, struct writer *writer)
{
	writer_begin_map(writer, NULL);
	writer_string(writer, "name", parameter->name);
	writer_begin_list(writer, "shape");
	for (int i = 0; i < parameter->n_dims; i++)
		writer_int(writer, NULL, parameter->shape[i]);
	writer_end_list(writer);
	writer_int(writer, "elements", parameter->elements);
	writer_bool(writer, "trainable", parameter->trainable);
	writer_end_map(writer);
}

static void write_module(const struct model *model, int index, struct writer *writer)
{
	const struct module *module = &model->modules[index];

	writer_begin_map(writer, NULL);
	writer_string(writer, "name", module->name);
	writer_string(writer, "kind", module_kind_name(module->kind));
	if (module->layer >= 0)
		writer_int(writer, "layer", module->layer);
	writer_int(writer, "subtree_parameters", model_subtree_parameters(model, index));
	if (module->tied_parameter >= 0)
		writer_string(writer, "tied_to", model->parameters[module->tied_parameter].name);
	writer_begin_list(writer, "parameters");
	for (int i = 0; i < module->n_parameters; i++)
		write_parameter(&model->parameters[module->first_parameter + i], writer);
	writer_end_list(writer);
	writer_end_map(writer);
}

void model_write_details(const struct model *model, struct writer *writer)
{
	model_write(model, writer);
	writer_int(writer, "parameters", model->parameter_count);
	writer_int(writer, "active_parameters", model->active_parameter_count);
	writer_begin_list(writer, "modules");
	for (int i = 0; i < model->n_modules; i++)
		write_module(model, i, writer);
	writer_end_list(writer);
}
