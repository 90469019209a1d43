/* Headers of safetensors files, compared with an architecture block by block: names inside of a
 * block differ between versions of a library (fused or not), sums do not. */
#include "models/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_MAX = 64 << 20 };

struct tensor_entry {
	const char *name, *part; /* "model.layers.3" of "model.layers.3.mlp.up_proj.weight" */
	int64_t elements;
	bool packed; /* a dtype that holds something else than one parameter an element */
	bool counts;
};

/* Elements of one part. */
struct part {
	const char *name;
	int64_t elements;
};

struct checkpoint {
	struct arena *arena;
	int n, capacity;
	struct tensor_entry *entries; /* grown in the arena */
};

struct checkpoint *checkpoint_new(struct arena *arena)
{
	struct checkpoint *checkpoint = ARENA_NEW(arena, struct checkpoint);

	checkpoint->arena = arena;
	return checkpoint;
}

int64_t checkpoint_tensors(const struct checkpoint *checkpoint)
{
	return checkpoint->n;
}

bool checkpoint_header_length(
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

/* --- names --------------------------------------------------------------------------------------
 */

/* Libraries and wrappers put different words in front of the same tensor. */
static const char *without_prefix(const char *name)
{
	static const char *const prefixes[] = {
		"module.", "base_model.", "language_model.", "model.", "transformer."};
	bool found = true;

	while (found) {
		found = false;
		for (int i = 0; i < COUNT_OF(prefixes); i++) {
			size_t length = strlen(prefixes[i]);

			if (strncmp(name, prefixes[i], length) == 0) {
				name += length;
				found = true;
			}
		}
	}
	return name;
}

/* Up to and with the number of the block; "" for what is outside of blocks. */
static const char *part_of(struct arena *arena, const char *name)
{
	const char *start = without_prefix(name);

	for (const char *at = start; (at = strchr(at, '.')) != NULL;) {
		size_t digits = strspn(++at, "0123456789");

		if (digits > 0 && at[digits] == '.')
			return arena_strndup(
				arena, start, (size_t)(at + (ptrdiff_t)digits - start));
	}
	return "";
}

static bool ends_with(const char *name, const char *end)
{
	size_t a = strlen(name), b = strlen(end);

	return a >= b && strcmp(name + a - b, end) == 0;
}

/* Not parameters: tables that older files carry, the other parts of multi-modal models. */
static bool is_other(const char *name)
{
	static const char *const parts[] = {"vision_tower", "vision_model", "visual.",
		"multi_modal_projector", "audio_tower", "mtp.", "image_newline"};
	static const char *const buffers[] = {".rotary_emb.inv_freq", ".attn.bias",
		".attn.masked_bias", ".attention.bias", ".attention.masked_bias",
		".num_batches_tracked"};
	const char *start = without_prefix(name);

	for (int i = 0; i < COUNT_OF(parts); i++)
		if (strncmp(start, parts[i], strlen(parts[i])) == 0)
			return true;
	for (int i = 0; i < COUNT_OF(buffers); i++)
		if (ends_with(name, buffers[i]))
			return true;
	return false;
}

/* --- headers ------------------------------------------------------------------------------------
 */

static const struct {
	const char *name;
	int bits;
	bool packed;
} dtypes[] = {{"F64", 64, false}, {"F32", 32, false}, {"F16", 16, false}, {"BF16", 16, false},
	{"F8_E4M3", 8, false}, {"F8_E5M2", 8, false}, {"F8_E8M0", 8, true},
	{"F8_E4M3FNUZ", 8, false}, {"F8_E5M2FNUZ", 8, false}, {"F6_E2M3", 6, false},
	{"F6_E3M2", 6, false}, {"F4", 4, false}, {"I64", 64, true}, {"U64", 64, true},
	{"I32", 32, true}, {"U32", 32, true}, {"I16", 16, true}, {"U16", 16, true}, {"I8", 8, true},
	{"U8", 8, true}, {"BOOL", 8, true}, {"C64", 64, true}};

static int find_dtype(const char *name)
{
	for (int i = 0; i < COUNT_OF(dtypes); i++)
		if (strcmp(dtypes[i].name, name) == 0)
			return i;
	return -1;
}

static bool read_shape(const struct node *shape, int64_t *elements, struct error *error)
{
	*elements = 1;
	if (shape == NULL || shape->kind != NODE_LIST)
		return node_error(shape, error, "expected a list of sizes");
	for (int i = 0; i < shape->n_children; i++) {
		int64_t size;

		if (!node_int(shape->children[i], &size, error))
			return false;
		if (size < 0 || !checked_mul(*elements, size, elements) ||
			*elements > INT64_MAX / 128)
			return node_error(shape->children[i], error,
				"expected sizes whose product can be counted, got %s",
				shape->children[i]->text);
	}
	return true;
}

static bool check_offsets(
	const struct node *tensor, int64_t elements, int bits, struct error *error)
{
	const struct node *offsets = node_get(tensor, "data_offsets");
	int64_t begin, end;

	if (offsets == NULL || offsets->kind != NODE_LIST || offsets->n_children != 2)
		return node_error(tensor, error, "expected data_offsets of two numbers");
	if (!node_int(offsets->children[0], &begin, error) ||
		!node_int(offsets->children[1], &end, error))
		return false;
	return (begin >= 0 && end >= begin && end - begin == (elements * bits + 7) / 8) ||
	       node_error(offsets, error,
		       "expected %" PRId64 " bytes, as its shape and dtype say, got %" PRId64,
		       (elements * bits + 7) / 8, end - begin);
}

static struct tensor_entry *grow(struct checkpoint *c)
{
	if (c->n == c->capacity) {
		struct tensor_entry *old = c->entries;

		c->capacity = c->capacity > 0 ? 2 * c->capacity : 256;
		c->entries = ARENA_ARRAY(c->arena, struct tensor_entry, c->capacity);
		if (c->n > 0)
			memcpy(c->entries, old, (size_t)c->n * sizeof(*old));
	}
	return &c->entries[c->n++];
}

static bool add_tensor(struct checkpoint *c, const struct node *tensor, struct error *error)
{
	const struct node *dtype = node_get(tensor, "dtype");
	struct tensor_entry *entry;
	int64_t elements;
	int type;

	if (tensor->kind != NODE_MAP || dtype == NULL || dtype->kind != NODE_SCALAR)
		return node_error(tensor, error, "expected {dtype, shape, data_offsets}");
	type = find_dtype(dtype->text);
	if (type < 0)
		return node_error(dtype, error, "expected a dtype of safetensors, got \"%.20s\"",
			dtype->text);
	if (!read_shape(node_get(tensor, "shape"), &elements, error) ||
		!check_offsets(tensor, elements, dtypes[type].bits, error))
		return false;
	entry = grow(c);
	*entry = (struct tensor_entry){
		.name = arena_strdup(c->arena, tensor->key),
		.part = part_of(c->arena, tensor->key),
		.elements = elements,
		.packed = dtypes[type].packed,
	};
	return true;
}

bool checkpoint_add_header(struct checkpoint *checkpoint, const char *name, const char *text,
	size_t length, struct error *error)
{
	struct node *root = document_parse(checkpoint->arena, name, text, length, 0, error);

	if (root == NULL)
		return false;
	if (root->kind != NODE_MAP)
		return node_error(root, error, "expected a map of tensors");
	for (int i = 0; i < root->n_children; i++)
		if (strcmp(root->children[i]->key, "__metadata__") != 0 &&
			!add_tensor(checkpoint, root->children[i], error))
			return false;
	return true;
}

/* --- index --------------------------------------------------------------------------------------
 */

static bool is_new(const char **files, int n, const char *file)
{
	for (int i = n - 1; i >= 0; i--)
		if (strcmp(files[i], file) == 0)
			return false;
	return true;
}

bool checkpoint_read_index(struct arena *arena, const char *name, const char *text, size_t length,
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
				"expected a file beside the index, at most 1000 of them, got "
				"\"%.60s\"",
				file);
		if (is_new(*files, n, file))
			(*files)[n++] = arena_strdup(arena, file);
	}
	return true;
}

/* --- comparison ---------------------------------------------------------------------------------
 */

static bool has(const struct checkpoint *c, const char *end)
{
	for (int i = 0; i < c->n; i++)
		if (strcmp(without_prefix(c->entries[i].name), end) == 0)
			return true;
	return false;
}

/* Some files hold a tied weight under every name that it has. */
static bool is_copy(const struct checkpoint *c, const struct model *model, const char *name)
{
	const char *start = without_prefix(name);

	if (model->architecture.tied_head &&
		(strcmp(start, "lm_head.weight") == 0 || strcmp(start, "embed_out.weight") == 0))
		return true;
	return ends_with(start, "coder.embed_tokens.weight") && has(c, "shared.weight");
}

int64_t checkpoint_parameters(
	struct checkpoint *checkpoint, const struct model *model, bool *quantised)
{
	int64_t total = 0;

	*quantised = false;
	for (int i = 0; i < checkpoint->n; i++) {
		struct tensor_entry *e = &checkpoint->entries[i];

		e->counts = !is_other(e->name) && !is_copy(checkpoint, model, e->name);
		if (!e->counts)
			continue;
		*quantised |= e->packed;
		if (!checked_add(total, e->elements, &total))
			return INT64_MAX;
	}
	return total;
}

static int compare_parts(const void *a, const void *b)
{
	return strcmp(((const struct part *)a)->name, ((const struct part *)b)->name);
}

/* Sorted by name, each once. */
static int merge(struct part *parts, int n)
{
	int kept = 0;

	qsort(parts, (size_t)n, sizeof(*parts), compare_parts);
	for (int i = 0; i < n; i++) {
		if (kept > 0 && strcmp(parts[kept - 1].name, parts[i].name) == 0)
			parts[kept - 1].elements += parts[i].elements;
		else
			parts[kept++] = parts[i];
	}
	return kept;
}

static const char *describe(struct arena *arena, const char *part, int64_t expected, int64_t got)
{
	return arena_printf(arena, "%s: expected %" PRId64 " parameters, got %" PRId64,
		part[0] != '\0' ? part : "outside of blocks", expected, got);
}

int checkpoint_differences(struct arena *arena, const struct checkpoint *checkpoint,
	const struct model *model, const char **lines, int max)
{
	struct part *want = ARENA_ARRAY(arena, struct part, model->n_parameters + 1);
	struct part *got = ARENA_ARRAY(arena, struct part, checkpoint->n + 1);
	int n_want = 0, n_got = 0, n = 0;

	for (int i = 0; i < model->n_parameters; i++)
		want[n_want++] = (struct part){
			part_of(arena, model->parameters[i].name), model->parameters[i].elements};
	for (int i = 0; i < checkpoint->n; i++)
		if (checkpoint->entries[i].counts)
			got[n_got++] = (struct part){
				checkpoint->entries[i].part, checkpoint->entries[i].elements};
	n_want = merge(want, n_want);
	n_got = merge(got, n_got);
	for (int i = 0, k = 0; i < n_want || k < n_got;) {
		int order = i == n_want ? 1 : k == n_got ? -1 : strcmp(want[i].name, got[k].name);
		int64_t expected = order <= 0 ? want[i].elements : 0;
		int64_t found = order >= 0 ? got[k].elements : 0;
		const char *part = order <= 0 ? want[i].name : got[k].name;

		if (expected != found && n++ < max)
			lines[n - 1] = describe(arena, part, expected, found);
		i += order <= 0;
		k += order >= 0;
	}
	return n;
}
