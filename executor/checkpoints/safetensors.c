#include "executor/checkpoints/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

/* Weights can start from these dtypes. */
static const struct {
	const char *name;
	enum dtype dtype;
} dtypes[] = {{"F32", DTYPE_FP32}, {"BF16", DTYPE_BF16}, {"F16", DTYPE_FP16}};

static bool take_entry(const struct safetensors_entry *entry, const unsigned char *data,
	int64_t room, struct safetensor *tensor, struct error *error)
{
	int i = 0;

	while (i < COUNT_OF(dtypes) && strcmp(dtypes[i].name, entry->dtype->name) != 0)
		i++;
	if (i == COUNT_OF(dtypes))
		return node_error(entry->node, error, "dtype: expected F32, BF16 or F16, got %s",
			entry->dtype->name);
	if (entry->end > room)
		return node_error(entry->node, error,
			"expected data within the %" PRId64 " bytes of the file, got %" PRId64
			" to %" PRId64,
			room, entry->begin, entry->end);
	*tensor = (struct safetensor){
		.entry = *entry, .dtype = dtypes[i].dtype, .data = data + entry->begin};
	return true;
}

/* Appends the tensors of one file. */
static bool read_header(struct arena *arena, const char *path, const struct safetensors_file *file,
	struct safetensors *weights, struct error *error)
{
	const unsigned char *base = file->base;
	struct safetensors_entry *entries;
	int64_t length, room = (int64_t)file->bytes - 8;
	int n;

	if (!safetensors_header_length(path, base, &length, error))
		return false;
	if (length > room)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: expected a safetensors file, its header would have %" PRId64
			" of %zu bytes",
			path, length, file->bytes);
	if (!safetensors_read_header(
		    arena, path, (const char *)base + 8, (size_t)length, &entries, &n, error))
		return false;
	struct safetensor *tensors = ARENA_ARRAY(arena, struct safetensor, weights->n + n + 1);
	if (weights->n > 0)
		memcpy(tensors, weights->tensors, (size_t)weights->n * sizeof(*tensors));
	weights->tensors = tensors;
	for (int i = 0; i < n; i++)
		if (!take_entry(&entries[i], base + 8 + length, room - length,
			    &tensors[weights->n++], error))
			return false;
	return true;
}

static bool read_index(struct arena *arena, const char *folder, const char *index,
	const char ***paths, struct error *error)
{
	struct safetensors_file text = {0};
	int64_t total;

	if (!map(index, &text, error))
		return false;
	bool ok = safetensors_read_index(arena, index, text.base, text.bytes, paths, &total, error);
	munmap(text.base, text.bytes);
	for (int i = 0; ok && (*paths)[i] != NULL; i++)
		(*paths)[i] = arena_printf(arena, "%s/%s", folder, (*paths)[i]);
	return ok;
}

/* Lists the files of `path`, NULL-terminated. */
static bool list_files(
	struct arena *arena, const char *path, const char ***paths, struct error *error)
{
	const char *index = arena_printf(arena, "%s/model.safetensors.index.json", path);
	struct stat info;

	*paths = ARENA_ARRAY(arena, const char *, 2);
	(*paths)[0] = path;
	if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
		return true;
	(*paths)[0] = arena_printf(arena, "%s/model.safetensors", path);
	return access(index, R_OK) != 0 || read_index(arena, path, index, paths, error);
}

static bool open_files(
	struct arena *arena, const char *path, struct safetensors *weights, struct error *error)
{
	const char **paths;
	int n = 0;

	if (!list_files(arena, path, &paths, error))
		return false;
	while (paths[n] != NULL)
		n++;
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

/* Hugging Face's GPT-2 on the hub has no "transformer." in front of its names. */
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
		if (names_match(parameter, weights->tensors[at].entry.name))
			return at;
	}
	return -1;
}

bool safetensors_is_transposed(const struct model *model, int index)
{
	const struct parameter *parameter = &model->parameters[index];
	enum module_kind kind = model->modules[parameter->module].kind;

	return model->architecture.family == FAMILY_GPT2 && parameter->n_dims == 2 &&
	       !parameter_is_adapter(model, index) &&
	       (kind == MODULE_QKV || kind == MODULE_ATTENTION_OUTPUT || kind == MODULE_UP ||
		       kind == MODULE_DOWN);
}

int64_t safetensors_parts(const struct model *model, int parameter)
{
	const struct module *module = &model->modules[model->parameters[parameter].module];

	return module_kind_is_of_experts(module->kind) ? model->architecture.experts : 1;
}

/* "model.layers.0.block_sparse_moe.experts.w1.weight" has "experts.2.w1". */
const char *safetensors_name(
	struct arena *arena, const struct model *model, int parameter, int64_t part)
{
	const struct parameter *p = &model->parameters[parameter];
	size_t length = strlen(model->modules[model->modules[p->module].parent].name);

	if (safetensors_parts(model, parameter) == 1)
		return p->name;
	return arena_printf(
		arena, "%.*s.%" PRId64 "%s", (int)length, p->name, part, p->name + length);
}

/* Checks the shape of one of `parts` parts. */
static bool check_shape(const struct parameter *parameter, int64_t parts,
	const struct safetensor *tensor, bool transposed, struct error *error)
{
	int64_t want[2] = {
		parameter->shape[0] / parts, parameter->n_dims > 1 ? parameter->shape[1] : 1};
	int64_t first = transposed ? want[1] : want[0], second = transposed ? want[0] : want[1];
	bool ok = tensor->entry.n_dims == parameter->n_dims && tensor->entry.shape[0] == first &&
		  (tensor->entry.n_dims == 1 || tensor->entry.shape[1] == second);

	if (ok)
		return true;
	if (parameter->n_dims == 1)
		return node_error(
			tensor->entry.node, error, "expected shape [%lld]", (long long)first);
	return node_error(tensor->entry.node, error, "expected shape [%lld, %lld]",
		(long long)first, (long long)second);
}

/* Some files carry causal masks and frequencies, or the head of a model that ties it. */
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

/* Finds the tensors of one parameter behind those that were found. `used` says so of each
 * tensor. */
static bool match_parameter(struct arena *arena, const char *path, const struct model *model, int p,
	struct safetensors *weights, int *n, bool *used, struct error *error)
{
	int64_t parts = safetensors_parts(model, p);

	weights->transposed[p] = safetensors_is_transposed(model, p);
	weights->of_parameter[p] = *n;
	for (int64_t i = 0; i < parts; i++) {
		const char *name = safetensors_name(arena, model, p, i);
		int at = weights->n > 0 ? find_tensor(weights, *n % weights->n, name) : -1;

		/* These are the weights of the model that adapters are added to. */
		if (at < 0 && parameter_is_adapter(model, p)) {
			weights->of_parameter[p] = -1;
			return true;
		}
		if (at < 0)
			return error_set(error, EXIT_CODE_INPUT, "%s: %s is missing, %s needs it",
				path, name, model->architecture.name);
		used[at] = true;
		weights->parts[(*n)++] = at;
		if (!check_shape(&model->parameters[p], parts, &weights->tensors[at],
			    weights->transposed[p], error))
			return false;
	}
	return true;
}

static bool match(struct arena *arena, const char *path, const struct model *model,
	struct safetensors *weights, struct error *error)
{
	bool *used = ARENA_ARRAY(arena, bool, weights->n + 1);
	int64_t parts = 0;
	int n = 0;

	for (int p = 0; p < model->n_parameters; p++)
		parts += safetensors_parts(model, p);
	weights->of_parameter = ARENA_ARRAY(arena, int, model->n_parameters + 1);
	weights->transposed = ARENA_ARRAY(arena, bool, model->n_parameters + 1);
	weights->parts = ARENA_ARRAY(arena, int, parts + 1);
	for (int p = 0; p < model->n_parameters; p++)
		if (!match_parameter(arena, path, model, p, weights, &n, used, error))
			return false;
	for (int i = 0; i < weights->n; i++) {
		if (!used[i] && !has_no_use(model, weights->tensors[i].entry.name))
			return node_error(weights->tensors[i].entry.node, error,
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
	/* A subnormal number is fraction * 2^-24. */
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
	const int *parts = weights->parts + weights->of_parameter[parameter];
	const int64_t *shape = model->parameters[parameter].shape; /* [out, in] */
	int64_t each = weights->tensors[parts[0]].entry.elements;

	for (int64_t i = 0; i < n; i++) {
		int64_t at = begin + i;
		if (weights->transposed[parameter])
			at = at % shape[1] * shape[0] + at / shape[1];
		out[i] = element(&weights->tensors[parts[at / each]], at % each);
	}
}

/* Reads elements of the rank's part of a parameter. */
static void read_part(const struct safetensors *weights, const struct weights *to, int parameter,
	int64_t first, int64_t n, float *out)
{
	const struct model *model = to->program->model;
	int64_t place = plan_part_place(&to->schedule->plan, to->rank);
	int whole = model_whole_parameter(model, parameter);
	struct parameter_run run;

	memset(out, 0, (size_t)n * sizeof(*out)); /* padding */
	for (; n > 0; first += run.n, n -= run.n, out += run.n) {
		run = model_parameter_run(model, parameter, place, first, n);
		if (run.whole >= 0)
			safetensors_read(
				weights, to->schedule->model, whole, run.whole, run.n, out);
	}
}

/* Loads elements [begin, end) of the unit. */
static void load_run(const struct safetensors *weights, const struct weights *to,
	const struct unit_slice *slice, int64_t begin, int64_t end,
	const struct weights_shard *shard)
{
	float strip[WEIGHTS_STRIP];

	for (int64_t at = begin; at < end; at += WEIGHTS_STRIP) {
		int64_t n = min_i64(WEIGHTS_STRIP, end - at);

		read_part(weights, to, slice->parameter, at - slice->offset, n, strip);
		weights_put(shard, 0, at - shard->first, n, strip);
	}
}

void safetensors_load(const struct safetensors *weights, const struct weights *to)
{
	const struct program *program = to->program;
	struct weights_shard shard;

	for (int u = 0; u < program->n_units; u++) {
		const struct unit *unit = &program->units[u];
		if (!weights_shard(to, u, &shard))
			continue;
		for (int i = 0; i < unit->n_slices; i++) {
			const struct unit_slice *slice = &unit->slices[i];
			int64_t begin = max_i64(slice->offset, shard.first);
			int64_t end =
				min_i64(slice->offset + slice->elements, shard.first + unit->chunk);
			int parameter = weights_parameter(to, slice);
			if (weights->of_parameter[parameter] >= 0)
				load_run(weights, to, slice, begin, end, &shard);
		}
	}
}
