#include "models/safetensors.h"

#include <inttypes.h>
#include <string.h>

enum { HEADER_MAX = 64 << 20 };

bool safetensors_header_length(
	const char *name, const unsigned char first[8], int64_t *length, struct error *error)
{
	uint64_t n = 0;

	for (int i = 7; i >= 0; i--)
		n = n << 8 | first[i];
	if (n < 2 || n > HEADER_MAX)
		return error_at(error, EXIT_CODE_INPUT, name, 0, 0,
			"not a safetensors file: expected a header of 2 bytes to 64 MiB, got "
			"%" PRIu64 " bytes",
			n);
	*length = (int64_t)n;
	return true;
}

static const struct safetensors_dtype dtypes[] = {{"F64", 64, false}, {"F32", 32, false},
	{"F16", 16, false}, {"BF16", 16, false}, {"F8_E4M3", 8, false}, {"F8_E5M2", 8, false},
	{"F8_E8M0", 8, true}, {"F8_E4M3FNUZ", 8, false}, {"F8_E5M2FNUZ", 8, false},
	{"F6_E2M3", 6, false}, {"F6_E3M2", 6, false}, {"F4", 4, false}, {"I64", 64, true},
	{"U64", 64, true}, {"I32", 32, true}, {"U32", 32, true}, {"I16", 16, true},
	{"U16", 16, true}, {"I8", 8, true}, {"U8", 8, true}, {"BOOL", 8, true}, {"C64", 64, true}};

static const struct safetensors_dtype *find_dtype(const char *name)
{
	for (int i = 0; i < COUNT_OF(dtypes); i++)
		if (strcmp(dtypes[i].name, name) == 0)
			return &dtypes[i];
	return NULL;
}

static bool read_shape(
	const struct node *shape, struct safetensors_entry *entry, struct error *error)
{
	entry->elements = 1;
	if (shape == NULL || shape->kind != NODE_LIST || shape->n_children > SAFETENSORS_MAX_DIMS)
		return node_error(
			shape, error, "expected a list of at most %d sizes", SAFETENSORS_MAX_DIMS);
	entry->n_dims = shape->n_children;
	for (int i = 0; i < shape->n_children; i++) {
		int64_t *size = &entry->shape[i];

		if (!node_int(shape->children[i], size, error))
			return false;
		if (*size < 0 || !checked_mul(entry->elements, *size, &entry->elements) ||
			entry->elements > INT64_MAX / 128)
			return node_error(shape->children[i], error,
				"expected sizes whose product can be counted, got %s",
				shape->children[i]->text);
	}
	return true;
}

static bool read_offsets(
	const struct node *tensor, struct safetensors_entry *entry, struct error *error)
{
	const struct node *offsets = node_get(tensor, "data_offsets");
	int64_t bytes = (entry->elements * entry->dtype->bits + 7) / 8;

	if (offsets == NULL || offsets->kind != NODE_LIST || offsets->n_children != 2)
		return node_error(tensor, error, "expected data_offsets of two numbers");
	if (!node_int(offsets->children[0], &entry->begin, error) ||
		!node_int(offsets->children[1], &entry->end, error))
		return false;
	return (entry->begin >= 0 && entry->end >= entry->begin &&
		       entry->end - entry->begin == bytes) ||
	       node_error(offsets, error,
		       "expected %" PRId64 " bytes, as its shape and dtype say, got %" PRId64,
		       bytes, entry->end - entry->begin);
}

static bool read_entry(
	const struct node *tensor, struct safetensors_entry *entry, struct error *error)
{
	const struct node *dtype = node_get(tensor, "dtype");

	if (tensor->kind != NODE_MAP || dtype == NULL || dtype->kind != NODE_SCALAR)
		return node_error(tensor, error, "expected {dtype, shape, data_offsets}");
	*entry = (struct safetensors_entry){
		.name = tensor->key, .dtype = find_dtype(dtype->text), .node = tensor};
	if (entry->dtype == NULL)
		return node_error(dtype, error, "expected a dtype of safetensors, got \"%.20s\"",
			dtype->text);
	return read_shape(node_get(tensor, "shape"), entry, error) &&
	       read_offsets(tensor, entry, error);
}

bool safetensors_read_header(struct arena *arena, const char *name, const char *text, size_t length,
	struct safetensors_entry **entries, int *n, struct error *error)
{
	const struct node *root = document_parse(arena, name, text, length, 0, error);

	if (root == NULL)
		return false;
	if (root->kind != NODE_MAP)
		return node_error(root, error, "expected a map of tensors");
	*entries = ARENA_ARRAY(arena, struct safetensors_entry, root->n_children + 1);
	*n = 0;
	for (int i = 0; i < root->n_children; i++) {
		if (strcmp(root->children[i]->key, "__metadata__") == 0)
			continue;
		if (!read_entry(root->children[i], &(*entries)[*n], error))
			return false;
		(*n)++;
	}
	return true;
}

static bool is_new(const char **files, int n, const char *file)
{
	for (int i = n - 1; i >= 0; i--)
		if (strcmp(files[i], file) == 0)
			return false;
	return true;
}

bool safetensors_read_index(struct arena *arena, const char *name, const char *text, size_t length,
	const char ***files, int64_t *total_size, struct error *error)
{
	enum { FILES_MAX = 1000 };
	const struct node *root =
		document_parse(arena, name, text, length, DOCUMENT_FOREIGN, error);
	const struct node *map = node_get(root, "weight_map");
	const struct node *size = node_get(node_get(root, "metadata"), "total_size");
	int n = 0;

	if (root == NULL)
		return false;
	if (map == NULL || map->kind != NODE_MAP)
		return node_error(root, error, "missing key \"weight_map\"");
	*total_size = 0;
	if (size != NULL && size->kind == NODE_SCALAR && !node_int(size, total_size, error))
		return false;
	*files = ARENA_ARRAY(arena, const char *, FILES_MAX + 1);
	for (int i = 0; i < map->n_children; i++) {
		const char *file;

		if (!node_string(map->children[i], &file, error))
			return false;
		if (strchr(file, '/') != NULL || file[0] == '.' || n == FILES_MAX)
			return node_error(map->children[i], error,
				"expected a file beside the index, "
				"at most 1000 of them, got \"%.60s\"",
				file);
		if (is_new(*files, n, file))
			(*files)[n++] = arena_strdup(arena, file);
	}
	return true;
}
