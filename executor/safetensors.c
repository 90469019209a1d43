#include "executor/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- files --- */

static bool map(const char *path, struct safetensors_file *file, struct error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat info;

	if (fd < 0 || fstat(fd, &info) != 0) {
		error_set(error, EXIT_CODE_INPUT, "%s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return false;
	}
	file->bytes = (size_t)info.st_size;
	file->base = file->bytes >= 8 ? mmap(NULL, file->bytes, PROT_READ, MAP_PRIVATE, fd, 0)
				      : MAP_FAILED;
	close(fd);
	if (file->base != MAP_FAILED)
		return true;
	file->base = NULL;
	return error_set(error, EXIT_CODE_INPUT, "%s: expected a safetensors file, got %zu bytes",
		path, file->bytes);
}

static uint64_t header_length(const unsigned char *base)
{
	uint64_t length = 0;

	for (int i = 7; i >= 0; i--)
		length = length << 8 | base[i];
	return length;
}

static const struct {
	const char *name;
	enum dtype dtype;
	int bytes;
} dtypes[] = {{"F32", DTYPE_FP32, 4}, {"BF16", DTYPE_BF16, 2}, {"F16", DTYPE_FP16, 2}};

static bool read_dtype(
	const struct node *map, struct safetensor *tensor, int *bytes, struct error *error)
{
	const struct node *node = node_get(map, "dtype");

	for (int i = 0; node != NULL && node->kind == NODE_SCALAR && i < COUNT_OF(dtypes); i++) {
		if (strcmp(dtypes[i].name, node->text) == 0) {
			tensor->dtype = dtypes[i].dtype;
			*bytes = dtypes[i].bytes;
			return true;
		}
	}
	return node_error(node != NULL ? node : map, error, "dtype: expected F32, BF16 or F16");
}

static bool read_shape(const struct node *map, struct safetensor *tensor, struct error *error)
{
	const struct node *list = node_get(map, "shape");

	if (list == NULL || list->kind != NODE_LIST || list->n_children > SAFETENSORS_MAX_DIMS)
		return node_error(
			map, error, "shape: expected at most %d sizes", SAFETENSORS_MAX_DIMS);
	tensor->n_dims = list->n_children;
	tensor->elements = 1;
	for (int i = 0; i < list->n_children; i++) {
		if (!node_int(list->children[i], &tensor->shape[i], error))
			return false;
		if (tensor->shape[i] < 0 || __builtin_mul_overflow(tensor->elements,
						    tensor->shape[i], &tensor->elements))
			return node_error(list->children[i], error, "an impossible size");
	}
	return true;
}

static bool read_data(const struct node *map, const unsigned char *data, int64_t room,
	int element_bytes, struct safetensor *tensor, struct error *error)
{
	const struct node *list = node_get(map, "data_offsets");
	int64_t begin, end, bytes;

	if (list == NULL || list->kind != NODE_LIST || list->n_children != 2 ||
		!node_int(list->children[0], &begin, error) ||
		!node_int(list->children[1], &end, error))
		return node_error(map, error, "data_offsets: expected [begin, end]");
	if (__builtin_mul_overflow(tensor->elements, (int64_t)element_bytes, &bytes) || begin < 0 ||
		end < begin || end > room || end - begin != bytes)
		return node_error(list, error,
			"expected %lld bytes within the %lld of the file's data, got %lld to %lld",
			(long long)bytes, (long long)room, (long long)begin, (long long)end);
	tensor->data = data + begin;
	return true;
}

/* Appends the tensors of one file. */
static bool read_header(struct arena *arena, const char *path, const struct safetensors_file *file,
	struct safetensors *weights, struct error *error)
{
	const unsigned char *base = file->base;
	uint64_t length = header_length(base);

	if (length > file->bytes - 8)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: expected a safetensors file, its header would have %llu of %zu bytes",
			path, (unsigned long long)length, file->bytes);
	const struct node *root =
		document_parse(arena, path, (const char *)base + 8, (size_t)length, 0, error);
	if (root == NULL || root->kind != NODE_MAP)
		return root != NULL ? node_error(root, error, "expected a map") : false;
	int room = weights->n + root->n_children;
	struct safetensor *tensors = ARENA_ARRAY(arena, struct safetensor, room + 1);
	if (weights->n > 0)
		memcpy(tensors, weights->tensors, (size_t)weights->n * sizeof(*tensors));
	weights->tensors = tensors;
	for (int i = 0; i < root->n_children; i++) {
		const struct node *map = root->children[i];
		struct safetensor *tensor = &tensors[weights->n];
		int element_bytes = 0;
		if (strcmp(map->key, "__metadata__") == 0)
			continue;
		*tensor = (struct safetensor){.name = map->key, .node = map};
		if (!read_dtype(map, tensor, &element_bytes, error) ||
			!read_shape(map, tensor, error) ||
			!read_data(map, base + 8 + length,
				(int64_t)(file->bytes - 8 - (size_t)length), element_bytes, tensor,
				error))
			return false;
		weights->n++;
	}
	return true;
}

/* The files of an index, each once. */
static int index_files(
	const struct node *map, const char **names, int capacity, struct error *error)
{
	int n = 0;

	for (int i = 0; i < map->n_children; i++) {
		const struct node *child = map->children[i];
		int at = 0;
		if (child->kind != NODE_SCALAR || strchr(child->text, '/') != NULL) {
			node_error(child, error, "expected the name of a file beside the index");
			return -1;
		}
		while (at < n && strcmp(names[at], child->text) != 0)
			at++;
		if (at == n && n < capacity)
			names[n++] = child->text;
	}
	return n;
}

static bool list_files(
	struct arena *arena, const char *path, const char ***paths, int *n, struct error *error)
{
	const char *index = arena_printf(arena, "%s/model.safetensors.index.json", path);
	struct safetensors_file text = {0};
	struct stat info;

	*n = 1;
	*paths = ARENA_ARRAY(arena, const char *, 1);
	(*paths)[0] = path;
	if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
		return true;
	(*paths)[0] = arena_printf(arena, "%s/model.safetensors", path);
	if (access(index, R_OK) != 0)
		return true;
	if (!map(index, &text, error))
		return false;
	const struct node *root = document_parse(arena, index, text.base, text.bytes, 0, error);
	munmap(text.base, text.bytes);
	const struct node *weight_map = node_get(root, "weight_map");
	if (root == NULL || weight_map == NULL || weight_map->kind != NODE_MAP)
		return root != NULL ? node_error(root, error, "missing map \"weight_map\"") : false;
	*paths = ARENA_ARRAY(arena, const char *, weight_map->n_children + 1);
	*n = index_files(weight_map, *paths, weight_map->n_children, error);
	for (int i = 0; i < *n; i++)
		(*paths)[i] = arena_printf(arena, "%s/%s", path, (*paths)[i]);
	return *n >= 0;
}

static bool open_files(
	struct arena *arena, const char *path, struct safetensors *weights, struct error *error)
{
	const char **paths;
	int n;

	if (!list_files(arena, path, &paths, &n, error))
		return false;
	weights->files = ARENA_ARRAY(arena, struct safetensors_file, n + 1);
	for (int i = 0; i < n; i++) {
		if (!map(paths[i], &weights->files[i], error))
			return false;
		weights->n_files++;
		if (!read_header(arena, paths[i], &weights->files[i], weights, error))
			return false;
	}
	return true;
}

/* --- which tensor is which parameter --- */

/* Hugging Face's GPT-2 on the hub has no "transformer." in front. */
static bool names_match(const char *parameter, const char *tensor)
{
	static const char prefix[] = "transformer.";
	size_t length = sizeof(prefix) - 1;

	return strcmp(parameter, tensor) == 0 ||
	       (strncmp(parameter, prefix, length) == 0 && strcmp(parameter + length, tensor) == 0);
}

static int find_tensor(const struct safetensors *weights, int from, const char *parameter)
{
	for (int i = 0; i < weights->n; i++) {
		int at = (from + i) % weights->n;
		if (names_match(parameter, weights->tensors[at].name))
			return at;
	}
	return -1;
}

bool safetensors_is_transposed(const struct model *model, int index)
{
	const struct parameter *parameter = &model->parameters[index];
	enum module_kind kind = model->modules[parameter->module].kind;

	return model->architecture.family == FAMILY_GPT2 && parameter->n_dims == 2 &&
	       (kind == MODULE_QKV || kind == MODULE_ATTENTION_OUTPUT || kind == MODULE_UP ||
		       kind == MODULE_DOWN);
}

static bool check_shape(const struct parameter *parameter, const struct safetensor *tensor,
	bool transposed, struct error *error)
{
	int64_t want[2] = {parameter->shape[0], parameter->n_dims > 1 ? parameter->shape[1] : 1};
	int64_t first = transposed ? want[1] : want[0], second = transposed ? want[0] : want[1];
	bool ok = tensor->n_dims == parameter->n_dims && tensor->shape[0] == first &&
		  (tensor->n_dims == 1 || tensor->shape[1] == second);

	if (ok)
		return true;
	if (parameter->n_dims == 1)
		return node_error(tensor->node, error, "expected shape [%lld]", (long long)first);
	return node_error(tensor->node, error, "expected shape [%lld, %lld]", (long long)first,
		(long long)second);
}

/* Causal masks and frequencies that some files carry; the head of a model that ties it. */
static bool has_no_use(const struct model *model, const char *name)
{
	static const char *const endings[] = {
		".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
	size_t length = strlen(name);

	for (int i = 0; i < COUNT_OF(endings); i++) {
		size_t ending = strlen(endings[i]);
		if (length >= ending && strcmp(name + length - ending, endings[i]) == 0)
			return true;
	}
	return model->architecture.tied_head && strcmp(name, "lm_head.weight") == 0;
}

static bool match(struct arena *arena, const char *path, const struct model *model,
	struct safetensors *weights, struct error *error)
{
	bool *used = ARENA_ARRAY(arena, bool, weights->n + 1);

	weights->of_parameter = ARENA_ARRAY(arena, int, model->n_parameters + 1);
	weights->transposed = ARENA_ARRAY(arena, bool, model->n_parameters + 1);
	for (int p = 0; p < model->n_parameters; p++) {
		const struct parameter *parameter = &model->parameters[p];
		int at =
			weights->n > 0 ? find_tensor(weights, p % weights->n, parameter->name) : -1;
		if (at < 0)
			return error_set(error, EXIT_CODE_INPUT, "%s: %s is missing, %s needs it",
				path, parameter->name, model->architecture.name);
		weights->of_parameter[p] = at;
		weights->transposed[p] = safetensors_is_transposed(model, p);
		used[at] = true;
		if (!check_shape(parameter, &weights->tensors[at], weights->transposed[p], error))
			return false;
	}
	for (int i = 0; i < weights->n; i++) {
		if (!used[i] && !has_no_use(model, weights->tensors[i].name))
			return node_error(weights->tensors[i].node, error,
				"%s has no such parameter", model->architecture.name);
	}
	return true;
}

bool safetensors_open(struct arena *arena, const char *path, const struct model *model,
	struct safetensors *weights, struct error *error)
{
	*weights = (struct safetensors){0};
	if (open_files(arena, path, weights, error) && match(arena, path, model, weights, error))
		return true;
	safetensors_close(weights);
	return false;
}

void safetensors_close(struct safetensors *weights)
{
	for (int i = 0; i < weights->n_files; i++)
		munmap(weights->files[i].base, weights->files[i].bytes);
	weights->n_files = 0;
}

/* --- numbers --- */

static float from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static float from_half(uint32_t half)
{
	uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31, fraction = half & 1023;

	if (exponent == 31)
		return from_bits(sign | 0x7f800000u | fraction << 13);
	if (exponent > 0)
		return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
	/* Subnormal: fraction * 2^-24. */
	float value = (float)fraction * 0x1p-24f;
	return sign != 0 ? -value : value;
}

static float element(const struct safetensor *tensor, int64_t index)
{
	const unsigned char *at = tensor->data + index * (tensor->dtype == DTYPE_FP32 ? 4 : 2);
	uint32_t low = (uint32_t)at[0] | (uint32_t)at[1] << 8;

	if (tensor->dtype == DTYPE_BF16)
		return from_bits(low << 16);
	if (tensor->dtype == DTYPE_FP16)
		return from_half(low);
	return from_bits(low | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
}

void safetensors_read(const struct safetensors *weights, const struct model *model, int parameter,
	int64_t begin, int64_t n, float *out)
{
	const struct safetensor *tensor = &weights->tensors[weights->of_parameter[parameter]];
	const int64_t *shape = model->parameters[parameter].shape; /* [out, in] */

	for (int64_t i = 0; i < n; i++) {
		int64_t at = begin + i;
		if (weights->transposed[parameter])
			at = at % shape[1] * shape[0] + at / shape[1];
		out[i] = element(tensor, at);
	}
}

void safetensors_load(const struct safetensors *weights, const struct weights *to)
{
	const struct schedule *schedule = to->schedule;
	struct weights_shard shard;

	for (int u = 0; u < schedule->n_units; u++) {
		const struct unit *unit = &schedule->units[u];
		if (!weights_shard(to, u, &shard))
			continue;
		for (int i = 0; i < unit->n_slices; i++) {
			const struct unit_slice *slice = &unit->slices[i];
			int64_t begin = max_i64(slice->offset, shard.first);
			int64_t end =
				min_i64(slice->offset + slice->elements, shard.first + unit->chunk);
			if (begin < end)
				safetensors_read(weights, schedule->model, slice->parameter,
					begin - slice->offset, end - begin,
					shard.arrays[0] + (begin - shard.first));
		}
	}
}
