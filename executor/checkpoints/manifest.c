/* Writes and reads manifest.json. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "executor/checkpoints/checkpoints.h"
#include "executor/checkpoints/seal.h"

/* Version 0.1.0 wrote /1: without a run, without checksums of ranges, and without one at the end.
 */
static const char schema[] = "shardplan/checkpoint/2", old_schema[] = "shardplan/checkpoint/1";

static const struct field manifest_fields[] = {
	FIELD_STRING(struct manifest, run, "run", 0),
	FIELD_INT(struct manifest, step, "step", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_STRING(struct manifest, model_digest, "model_digest", FIELD_REQUIRED),
	FIELD_STRING(struct manifest, plan, "plan", 0),
	FIELD_INT(struct manifest, ranks, "ranks", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_INT(struct manifest, seq_len, "seq_len", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_INT(struct manifest, global_batch, "global_batch", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_INT(struct manifest, data_tokens, "data_tokens", FIELD_NOT_NEGATIVE),
	FIELD_INT(struct manifest, tensor, "tensor", FIELD_OMIT_ZERO | FIELD_NOT_NEGATIVE),
	FIELD_INT(struct manifest, expert, "expert", FIELD_OMIT_ZERO | FIELD_NOT_NEGATIVE),
	FIELD_INT32(struct manifest, arrays, "arrays", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_END,
};

static const struct field training_fields[] = {
	FIELD_INT(struct training, seed, "seed", FIELD_REQUIRED),
	FIELD_DOUBLE(struct training, learning_rate, "learning_rate", FIELD_REQUIRED),
	FIELD_INT(struct training, warmup, "warmup", FIELD_REQUIRED),
	FIELD_ENUM(struct training, lr_schedule, "lr_schedule", FIELD_OMIT_ZERO, lr_schedule_names),
	FIELD_DOUBLE(struct training, min_lr, "min_lr", FIELD_OMIT_ZERO),
	FIELD_DOUBLE(struct training, beta1, "beta1", FIELD_REQUIRED),
	FIELD_DOUBLE(struct training, beta2, "beta2", FIELD_REQUIRED),
	FIELD_DOUBLE(struct training, epsilon, "epsilon", FIELD_REQUIRED),
	FIELD_DOUBLE(struct training, weight_decay, "weight_decay", FIELD_REQUIRED),
	FIELD_END,
};

static const struct field file_fields[] = {
	FIELD_STRING(struct checkpoint_file, name, "name", FIELD_REQUIRED),
	FIELD_INT(struct checkpoint_file, bytes, "bytes", FIELD_REQUIRED | FIELD_NOT_NEGATIVE),
	FIELD_STRING(struct checkpoint_file, digest, "xxh3_128", FIELD_REQUIRED),
	FIELD_INT(struct checkpoint_file, range_bytes, "range_bytes", FIELD_NOT_NEGATIVE),
	FIELD_INT(struct checkpoint_file, ranges, "ranges", FIELD_NOT_NEGATIVE),
	FIELD_END,
};

static const struct field piece_fields[] = {
	FIELD_INT(struct checkpoint_piece, tensor_rank, "tensor_rank",
		FIELD_OMIT_ZERO | FIELD_NOT_NEGATIVE),
	FIELD_INT(struct checkpoint_piece, begin, "begin", FIELD_REQUIRED | FIELD_NOT_NEGATIVE),
	FIELD_INT(struct checkpoint_piece, end, "end", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_INT32(struct checkpoint_piece, file, "file", FIELD_REQUIRED | FIELD_NOT_NEGATIVE),
	FIELD_INT(struct checkpoint_piece, offset, "offset", FIELD_REQUIRED | FIELD_NOT_NEGATIVE),
	FIELD_END,
};

/* --- out --- */

static void write_tensor(const struct manifest *manifest, const struct parameter *parameter,
	int first, int n, struct writer *writer)
{
	writer_begin_map(writer, NULL);
	writer_string(writer, "name", parameter->name);
	writer_begin_list(writer, "shape");
	for (int d = 0; d < parameter->n_dims; d++)
		writer_int(writer, NULL, parameter->shape[d]);
	writer_end_list(writer);
	writer_begin_list(writer, "pieces");
	for (int i = first; i < first + n; i++) {
		writer_begin_map(writer, NULL);
		fields_write(piece_fields, &manifest->pieces[i], writer);
		writer_end_map(writer);
	}
	writer_end_list(writer);
	writer_end_map(writer);
}

static void write_tensors(
	const struct manifest *manifest, const struct model *model, struct writer *writer)
{
	writer_begin_list(writer, "tensors");
	for (int i = 0, n; i < manifest->n_pieces; i += n) {
		int parameter = manifest->pieces[i].parameter;
		for (n = 1; i + n < manifest->n_pieces &&
			    manifest->pieces[i + n].parameter == parameter;)
			n++;
		write_tensor(manifest, &model->parameters[parameter], i, n, writer);
	}
	writer_end_list(writer);
}

void manifest_write(const struct manifest *manifest, const struct model *model, struct text *text)
{
	struct writer writer;

	writer_init(&writer, text, WRITER_JSON);
	writer_string(&writer, "schema", schema);
	fields_write(manifest_fields, manifest, &writer);
	writer_begin_map(&writer, "training");
	fields_write(training_fields, &manifest->training, &writer);
	writer_end_map(&writer);
	writer_begin_map(&writer, "model");
	model_write(model, &writer);
	writer_end_map(&writer);
	writer_begin_list(&writer, "files");
	for (int i = 0; i < manifest->n_files; i++) {
		writer_begin_map(&writer, NULL);
		fields_write(file_fields, &manifest->files[i], &writer);
		writer_end_map(&writer);
	}
	writer_end_list(&writer);
	write_tensors(manifest, model, &writer);
	writer_finish(&writer);
	seal_add(text);
}

/* --- in --- */

static const struct node *child(
	const struct node *map, const char *key, enum node_kind kind, struct error *error)
{
	const struct node *node = node_get(map, key);

	if (node == NULL)
		node_error(map, error, "missing key \"%s\"", key);
	else if (node->kind != kind)
		node_error(node, error, "expected a %s", kind == NODE_LIST ? "list" : "map");
	return node != NULL && node->kind == kind ? node : NULL;
}

/* Each range of the data has a checksum behind the data, and the last range may be shorter. */
static bool ranges_fit(const struct checkpoint_file *file)
{
	if (file->range_bytes == 0 || file->ranges > file->bytes / CHECKPOINT_SUM)
		return file->ranges == 0;
	return file->ranges ==
	       ceil_div(file->bytes - file->ranges * CHECKPOINT_SUM, file->range_bytes);
}

static bool check_file(struct arena *arena, const char *folder, const struct checkpoint_file *file,
	const struct node *node, struct error *error)
{
	struct stat info;

	/* The manifest may come from anywhere: it names files beside it and nothing else. */
	if (strchr(file->name, '/') != NULL || file->name[0] == '.')
		return node_error(
			node, error, "expected a plain file name, got \"%.60s\"", file->name);
	if (!ranges_fit(file))
		return node_error(node, error,
			"expected as many ranges of %lld bytes as the data of %lld bytes has, "
			"got %lld",
			(long long)file->range_bytes, (long long)file->bytes,
			(long long)file->ranges);
	const char *path = arena_printf(arena, "%s/%s", folder, file->name);
	if (stat(path, &info) != 0)
		return error_set(
			error, EXIT_CODE_INPUT, "%s: missing, the checkpoint needs it", path);
	return info.st_size == file->bytes ||
	       error_set(error, EXIT_CODE_INPUT,
		       "%s: damaged: bytes %lld to %lld: expected %lld bytes, got %lld", path,
		       (long long)min_i64(info.st_size, file->bytes),
		       (long long)max_i64(info.st_size, file->bytes), (long long)file->bytes,
		       (long long)info.st_size);
}

static bool read_files(struct arena *arena, const struct node *root, struct manifest *manifest,
	struct error *error)
{
	static const char *const none[] = {NULL};
	const struct node *list = child(root, "files", NODE_LIST, error);

	if (list == NULL)
		return false;
	manifest->n_files = list->n_children;
	manifest->files = ARENA_ARRAY(arena, struct checkpoint_file, list->n_children);
	for (int i = 0; i < list->n_children; i++) {
		if (!fields_read(file_fields, list->children[i], none, &manifest->files[i], arena,
			    error) ||
			!check_file(arena, manifest->folder, &manifest->files[i], list->children[i],
				error))
			return false;
	}
	return true;
}

static int find_parameter(const struct model *model, int from, const char *name)
{
	for (int i = 0; i < model->n_parameters; i++) {
		int at = (from + i) % model->n_parameters;
		if (strcmp(model->parameters[at].name, name) == 0)
			return at;
	}
	return -1;
}

/* The pieces of a tensor come in order, tensor rank by tensor rank, and leave no element out. */
static bool read_pieces(const struct node *list, int index, struct manifest *manifest,
	struct arena *arena, struct error *error)
{
	static const char *const none[] = {NULL};
	const struct parameter *parameter = &manifest->part->parameters[index];
	bool cut = model_parameter_is_cut(manifest->part, index);
	int64_t ranks = cut ? model_parts(manifest->part) : 1;
	int64_t covered = 0, rank = 0;

	for (int i = 0; i < list->n_children; i++) {
		struct checkpoint_piece *piece = &manifest->pieces[manifest->n_pieces++];
		if (!fields_read(piece_fields, list->children[i], none, piece, arena, error))
			return false;
		piece->parameter = index;
		if (covered == parameter->elements && rank + 1 < ranks) {
			covered = 0;
			rank++;
		}
		if (piece->tensor_rank != rank || piece->begin != covered ||
			piece->end <= covered || piece->end > parameter->elements)
			return node_error(list->children[i], error,
				"expected elements from %lld on%s, got %lld to %lld of %lld",
				(long long)covered,
				ranks > 1 ? arena_printf(
						    arena, " of tensor rank %lld", (long long)rank)
					  : "",
				(long long)piece->begin, (long long)piece->end,
				(long long)parameter->elements);
		covered = piece->end;
		int64_t bytes = (piece->end - piece->begin) *
				parameter_arrays(parameter, manifest->arrays) * 4;
		if (piece->file >= manifest->n_files ||
			piece->offset > manifest->files[piece->file].bytes - bytes)
			return node_error(
				list->children[i], error, "lies outside of the checkpoint's files");
	}
	return (covered == parameter->elements && rank + 1 == ranks) ||
	       node_error(list, error, "%s: %lld of %lld elements are there", parameter->name,
		       (long long)(rank * parameter->elements + covered),
		       (long long)(ranks * parameter->elements));
}

static int count_pieces(const struct node *tensors)
{
	int n = 0;

	for (int i = 0; i < tensors->n_children; i++) {
		const struct node *list = node_get(tensors->children[i], "pieces");
		n += list != NULL ? list->n_children : 0;
	}
	return n;
}

static bool read_tensors(struct arena *arena, const struct node *root, const struct model *model,
	struct manifest *manifest, struct error *error)
{
	const struct node *tensors = child(root, "tensors", NODE_LIST, error);
	bool *seen = ARENA_ARRAY(arena, bool, model->n_parameters + 1);

	if (tensors == NULL)
		return false;
	manifest->pieces = ARENA_ARRAY(arena, struct checkpoint_piece, count_pieces(tensors) + 1);
	for (int i = 0; i < tensors->n_children; i++) {
		const struct node *tensor = tensors->children[i], *name = node_get(tensor, "name");
		const struct node *list = child(tensor, "pieces", NODE_LIST, error);
		if (list == NULL)
			return false;
		int index = name != NULL && name->kind == NODE_SCALAR
				    ? find_parameter(model, i, name->text)
				    : -1;
		if (index < 0 || seen[index])
			return node_error(name != NULL ? name : tensor, error,
				"expected a parameter of %s, each once", model->architecture.name);
		seen[index] = true;
		if (!read_pieces(list, index, manifest, arena, error))
			return false;
	}
	for (int p = 0; p < model->n_parameters; p++) {
		if (!seen[p])
			return node_error(
				tensors, error, "%s is missing", model->parameters[p].name);
	}
	return true;
}

/* A checkpoint of 0.1.0 has no checksum and is believed. Damage must not turn a newer one into one
 * of these: so each schema must have exactly what it always has. */
static bool check_schema(
	const struct node *root, enum seal seal, struct manifest *manifest, struct error *error)
{
	const struct node *name = node_get(root, "schema");
	bool known = name != NULL && name->kind == NODE_SCALAR;

	manifest->sealed = known && strcmp(name->text, schema) == 0;
	if (!manifest->sealed && !(known && strcmp(name->text, old_schema) == 0))
		return node_error(name != NULL ? name : root, error, "expected schema %s", schema);
	if (manifest->sealed != (seal == SEAL_WHOLE) || manifest->sealed != (manifest->run != NULL))
		return node_error(root, error, "damaged: expected a run and a checksum at the end");
	return true;
}

/* The folder must have the name of this step, and lie among checkpoints of the same run. */
static bool check_place(struct arena *arena, const struct manifest *manifest, struct error *error)
{
	const char *name = checkpoint_name(arena, manifest->folder);
	int64_t step = checkpoint_step_of(name);
	char run[RUN_ID_SIZE];

	if (step >= 0 && step != manifest->step)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: holds the checkpoint of step %lld, expected that of step %lld",
			manifest->folder, (long long)manifest->step, (long long)step);
	const char *around = checkpoint_parent(arena, manifest->folder);
	if (step < 0 || manifest->run == NULL || !run_folder_read(arena, around, run))
		return true;
	return strcmp(run, manifest->run) == 0 ||
	       error_set(error, EXIT_CODE_INPUT,
		       "%s: a checkpoint of run %s, expected one of run %s as %s/run.json says",
		       manifest->folder, manifest->run, run, around);
}

static bool read_settings(const struct node *root, struct arena *arena, struct manifest *manifest,
	struct error *error)
{
	static const char *const others[] = {
		"schema", "training", "model", "files", "tensors", "xxh3_128", NULL};
	static const char *const none[] = {NULL};
	const struct node *training = child(root, "training", NODE_MAP, error);

	if (training == NULL ||
		!fields_read(manifest_fields, root, others, manifest, arena, error) ||
		!fields_read(training_fields, training, none, &manifest->training, arena, error))
		return false;
	if (manifest->run != NULL && strlen(manifest->run) != RUN_ID_SIZE - 1)
		return node_error(node_get(root, "run"), error,
			"expected an id of %d digits, got \"%.60s\"", RUN_ID_SIZE - 1,
			manifest->run);
	return manifest->arrays == 1 || manifest->arrays == 3 ||
	       node_error(node_get(root, "arrays"), error,
		       "expected 1 (weights) or 3 (weights and both moments), got %d",
		       manifest->arrays);
}

/* Fills manifest->part: the part of the model that one tensor rank or expert rank has. */
static bool find_part(const struct node *root, struct arena *arena, const struct model *model,
	struct manifest *manifest, struct error *error)
{
	const struct architecture *a = &model->architecture;
	int64_t n = max_i64(manifest->tensor, 1), experts = max_i64(manifest->expert, 1);
	const struct division division = {.tensor = n, .expert = experts, .expert_tensor = 1};
	struct model *part;

	manifest->part = model;
	if (n == 1 && experts == 1)
		return true;
	if (experts > 1 && a->experts % experts != 0)
		return node_error(node_get(root, "expert"), error,
			"expected a divisor of the %lld experts of %s", (long long)a->experts,
			a->name);
	if (n > 1 &&
		(a->heads % n != 0 || a->kv_heads % n != 0 || a->ffn % n != 0 || a->experts > 0))
		return node_error(node_get(root, "tensor"), error,
			"expected a divisor of the heads and of the feed-forward width of %s",
			a->name);
	bool ok = model_divide(arena, model, &division, &part, error);
	manifest->part = part;
	return ok;
}

bool manifest_parse(struct arena *arena, const char *folder, const char *text, size_t length,
	const struct model *model, struct manifest *manifest, struct error *error)
{
	const char *path = arena_printf(arena, "%s/manifest.json", folder);
	enum seal seal = seal_look(path, text, length, error);

	*manifest = (struct manifest){.folder = folder};
	if (seal == SEAL_BROKEN)
		return false;
	const struct node *root = document_parse(arena, path, text, length, 0, error);
	if (root == NULL || !read_settings(root, arena, manifest, error) ||
		!check_schema(root, seal, manifest, error) || !check_place(arena, manifest, error))
		return false;
	const struct node *map = child(root, "model", NODE_MAP, error);
	if (map == NULL || !model_read(arena, map, &manifest->model, error))
		return false;
	if (model == NULL)
		return true;
	if (strcmp(manifest->model_digest, checkpoint_model_digest(model).hex) != 0)
		return node_error(node_get(root, "model_digest"), error,
			"the checkpoint is of another model than %s", model->architecture.name);
	return find_part(root, arena, model, manifest, error) &&
	       read_files(arena, root, manifest, error) &&
	       read_tensors(arena, root, model, manifest, error);
}

bool manifest_read(struct arena *arena, const char *folder, const struct model *model,
	struct manifest *manifest, struct error *error)
{
	const char *path = arena_printf(arena, "%s/manifest.json", folder);
	char *text;
	size_t length;

	return store_read(arena, path, &text, &length, error) &&
	       manifest_parse(arena, folder, text, length, model, manifest, error);
}

bool manifest_continues(
	const struct manifest *older, const struct manifest *newer, struct error *error)
{
	bool same = fields_equal(training_fields, &older->training, &newer->training) &&
		    older->arrays == newer->arrays;

	return same || error_set(error, EXIT_CODE_INPUT,
			       "%s: trained with other settings than %s; "
			       "resume from it by its name",
			       older->folder, newer->folder);
}
