/* Reads and writes plan.yaml. */
#include "schedule/documents/plan_file.h"

#include <string.h>

#include "schedule/resolve/resolve.h"

static const char plan_file_kind[] = "plan/1";

static const struct field question_fields[] = {
	FIELD_STRING(struct question_text, model, "model", 0),
	FIELD_STRING(struct question_text, topology, "topology", 0),
	FIELD_STRING(struct question_text, options, "options", 0),
	FIELD_END,
};

static const struct node *section(const struct node *root, const char *key, struct error *error)
{
	const struct node *node = node_get(root, key);
	if (node == NULL)
		node_error(root, error, "%s: missing, expected a section of a plan file", key);
	return node;
}

static bool check_kind(const struct node *root, struct error *error)
{
	static const char *const keys[] = {"shardplan", "question", "model", "topology", "plan",
		"prediction", "schedule_digest", NULL};
	const struct node *kind = node_get(root, "shardplan"), *schema = node_get(root, "schema");
	if (schema != NULL && schema->kind == NODE_SCALAR &&
		strcmp(schema->text, "shardplan/measurement/1") == 0)
		return node_error(schema, error,
			"expected a plan, got a measurement; the plan comes first, "
			"what was measured of it comes after it");
	if (root->kind != NODE_MAP || kind == NULL || kind->kind != NODE_SCALAR)
		return node_error(root, error,
			"no plan file, expected \"shardplan: %s\"; `shardplan plan -o` makes one, "
			"`shardplan import` reads files of other tools",
			plan_file_kind);
	if (strcmp(kind->text, plan_file_kind) != 0)
		return node_error(kind, error, "expected %s, got %s", plan_file_kind, kind->text);
	return node_only_keys(root, keys, error);
}

/* The digest is written twice, once for people and once in the prediction, so that a file which was
 * cut short or put together from two others is found. */
static bool check_digest(const struct node *node, const struct plan_file *file, struct error *error)
{
	const char *digest = file->schedule_digest;
	if (strlen(digest) != 32 || strspn(digest, "0123456789abcdef") != 32)
		return node_error(
			node, error, "expected 32 hexadecimal digits, got \"%.40s\"", digest);
	if (strcmp(digest, file->prediction.schedule_digest) != 0)
		return node_error(node, error,
			"expected the prediction's %.40s, got %s; plan again",
			file->prediction.schedule_digest, digest);
	return true;
}

static bool read_sections(
	struct arena *arena, const struct node *root, struct plan_file *file, struct error *error)
{
	const struct node *question = node_get(root, "question");
	const struct node *model = section(root, "model", error);
	const struct node *topology = section(root, "topology", error);
	const struct node *plan = section(root, "plan", error);
	const struct node *prediction = section(root, "prediction", error);
	const struct node *digest = section(root, "schedule_digest", error);
	if (!model || !topology || !plan || !prediction || !digest)
		return false;
	if (question &&
		!fields_read(question_fields, question, NULL, &file->question, arena, error))
		return false;
	if (!model_read(arena, model, &file->model, error) ||
		!topology_read(arena, topology, &file->topology, error) ||
		!plan_read(arena, plan, &file->plan, error) ||
		!prediction_read(arena, prediction, &file->prediction, error) ||
		!node_string(digest, &file->schedule_digest, error) ||
		!check_digest(digest, file, error))
		return false;
	struct error why = {0};
	if (!plan_check(&file->plan, file->model, file->topology, &why))
		return node_error(plan, error, "%s", why.message);
	plan_normalise(&file->plan, arena);
	return true;
}

bool plan_file_parse(struct arena *arena, const char *name, const char *text, size_t length,
	struct plan_file *file, struct error *error)
{
	const char *suffix = strrchr(name, '.');
	*file = (struct plan_file){0};
	if (suffix != NULL && strcmp(suffix, ".toml") == 0)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: no plan file; `shardplan import` reads files of other tools", name);
	struct node *root = document_parse(arena, name, text, length, 0, error);
	return root != NULL && check_kind(root, error) && read_sections(arena, root, file, error);
}

void plan_file_write(const struct plan_file *file, struct text *text)
{
	struct writer writer;
	writer_init(&writer, text, WRITER_YAML);
	writer_string(&writer, "shardplan", plan_file_kind);
	writer_begin_map(&writer, "question");
	fields_write(question_fields, &file->question, &writer);
	writer_end_map(&writer);
	writer_begin_map(&writer, "model");
	model_write(file->model, &writer);
	writer_end_map(&writer);
	writer_begin_map(&writer, "topology");
	topology_write(file->topology, &writer);
	writer_end_map(&writer);
	writer_begin_map(&writer, "plan");
	plan_write(&file->plan, &writer);
	writer_end_map(&writer);
	writer_begin_map(&writer, "prediction");
	prediction_write(&file->prediction, &writer);
	writer_end_map(&writer);
	writer_string(&writer, "schedule_digest", file->schedule_digest);
	writer_finish(&writer);
}
