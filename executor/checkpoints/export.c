/* Exports a checkpoint as one safetensors file, with the config.json that Hugging Face reads beside
 * it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "executor/checkpoints/checkpoints.h"
#include "executor/checkpoints/safetensors.h"

struct exporter {
	const struct manifest *manifest;
	const struct model *model;
	struct arena arena;
	FILE *out;
	const char *path; /* of `out` */
	int *fds;         /* [n_files] of the checkpoint */
};

static bool io_error(const struct exporter *e, struct error *error)
{
	return error_set(error, EXIT_CODE_ENVIRONMENT, "%s: cannot be written: %s", e->path,
		strerror(errno));
}

/* Of a model with adapters only these are exported, with the names of peft's
 * adapter_model.safetensors. */
static bool is_exported(const struct exporter *e, int parameter)
{
	return e->model->architecture.trainable.rank == 0 ||
	       parameter_is_adapter(e->model, parameter);
}

static const char *name_of(struct exporter *e, int parameter, int64_t part)
{
	const char *name = safetensors_name(&e->arena, e->model, parameter, part);

	if (e->model->architecture.trainable.rank == 0)
		return name;
	return arena_printf(&e->arena, "base_model.model.%s", name);
}

/* Writes the tensor of a parameter, or of one of its experts, that begins at a byte of the data. */
static int64_t write_entry(
	struct exporter *e, struct writer *writer, int index, int64_t part, int64_t offset)
{
	const struct parameter *parameter = &e->model->parameters[index];
	bool transposed = safetensors_is_transposed(e->model, index);
	int64_t parts = safetensors_parts(e->model, index);

	writer_begin_map(writer, name_of(e, index, part));
	writer_string(writer, "dtype", "F32");
	writer_begin_list(writer, "shape");
	for (int d = 0; d < parameter->n_dims; d++) {
		int of = transposed ? parameter->n_dims - 1 - d : d;

		writer_int(writer, NULL, parameter->shape[of] / (of == 0 ? parts : 1));
	}
	writer_end_list(writer);
	writer_begin_list(writer, "data_offsets");
	writer_int(writer, NULL, offset);
	offset += parameter->elements / parts * (int64_t)sizeof(float);
	writer_int(writer, NULL, offset);
	writer_end_list(writer);
	writer_end_map(writer);
	return offset;
}

/* Writes the header. Tensors come in model order, and padding lets the data start at a multiple of
 * 8. */
static bool write_header(struct exporter *e, struct error *error)
{
	struct text text = {0};
	struct writer writer;
	int64_t offset = 0;

	writer_init(&writer, &text, WRITER_JSON_COMPACT);
	writer_begin_map(&writer, "__metadata__");
	writer_string(&writer, "format", "pt");
	writer_end_map(&writer);
	for (int p = 0; p < e->model->n_parameters; p++)
		for (int64_t i = 0; i < safetensors_parts(e->model, p) && is_exported(e, p); i++)
			offset = write_entry(e, &writer, p, i, offset);
	writer_finish(&writer);
	while (text.length % 8 != 0)
		text_add_char(&text, ' ');
	unsigned char length[8];
	for (int i = 0; i < 8; i++)
		length[i] = (unsigned char)((uint64_t)text.length >> 8 * i);
	bool ok = fwrite(length, 1, 8, e->out) == 8 &&
		  fwrite(text_string(&text), 1, text.length, e->out) == text.length;
	text_finish(&text);
	return ok || io_error(e, error);
}

/* Places the elements of a piece where they are in the whole parameter. */
static void place(const struct manifest *m, const struct checkpoint_piece *piece, const float *from,
	float *to)
{
	struct parameter_run run;

	for (int64_t at = piece->begin; at < piece->end; at += run.n, from += run.n) {
		run = model_parameter_run(
			m->part, piece->parameter, piece->tensor_rank, at, piece->end - at);
		if (run.whole >= 0)
			memcpy(to + run.whole, from, (size_t)run.n * sizeof(float));
	}
}

/* Gathers the weights of a parameter from the pieces that it lies in. `scratch` has room for each
 * piece. */
static bool gather(
	struct exporter *e, int parameter, float *values, float *scratch, struct error *error)
{
	const struct manifest *m = e->manifest;

	for (int i = 0; i < m->n_pieces; i++) {
		const struct checkpoint_piece *piece = &m->pieces[i];
		size_t bytes = (size_t)(piece->end - piece->begin) * sizeof(float);

		if (piece->parameter != parameter)
			continue;
		if (pread(e->fds[piece->file], scratch, bytes, (off_t)piece->offset) !=
			(ssize_t)bytes)
			return error_set(error, EXIT_CODE_INPUT, "%s/%s: cannot be read", m->folder,
				m->files[piece->file].name);
		place(m, piece, scratch, values);
	}
	return true;
}

static void transpose(const float *in, int64_t rows, int64_t columns, float *out)
{
	for (int64_t r = 0; r < rows; r++) {
		for (int64_t c = 0; c < columns; c++)
			out[c * rows + r] = in[r * columns + c];
	}
}

static bool write_parameter(struct exporter *e, int index, struct error *error)
{
	const struct parameter *parameter = &e->model->parameters[index];
	size_t n = (size_t)parameter->elements;
	float *values = malloc(2 * n * sizeof(float) + 1), *turned = values + n;

	if (values == NULL)
		base_out_of_memory(2 * n * sizeof(float));
	bool ok = gather(e, index, values, turned, error);
	if (ok && safetensors_is_transposed(e->model, index))
		transpose(values, parameter->shape[0], parameter->shape[1], turned);
	else
		turned = values;
	if (ok && fwrite(turned, sizeof(float), n, e->out) != n)
		ok = io_error(e, error);
	free(values);
	return ok;
}

static bool write_all(struct exporter *e, struct error *error)
{
	const struct manifest *m = e->manifest;
	bool ok = true;

	e->fds = ARENA_ARRAY(&e->arena, int, m->n_files + 1);
	for (int i = 0; i < m->n_files; i++) {
		const char *path = arena_printf(&e->arena, "%s/%s", m->folder, m->files[i].name);
		e->fds[i] = open(path, O_RDONLY | O_CLOEXEC);
		if (e->fds[i] < 0)
			ok = error_set(error, EXIT_CODE_INPUT, "%s: cannot be read", path);
	}
	ok = ok && write_header(e, error);
	for (int p = 0; ok && p < e->model->n_parameters; p++)
		ok = !is_exported(e, p) || write_parameter(e, p, error);
	for (int i = 0; i < m->n_files; i++) {
		if (e->fds[i] >= 0)
			close(e->fds[i]);
	}
	return ok;
}

bool checkpoint_export(const char *checkpoint, const char *path, struct error *error)
{
	struct checkpoint_info info;
	struct manifest manifest;
	struct exporter e = {.manifest = &manifest};
	const char *partial = arena_printf(&e.arena, "%s.partial", path);

	bool ok = checkpoint_find(&e.arena, checkpoint, NULL, CHECKPOINT_LOOK, &info, error) &&
		  manifest_read(&e.arena, info.folder, info.model, &manifest, error);
	if (ok) {
		e.model = info.model;
		e.path = partial;
		e.out = fopen(partial, "wbe");
		ok = e.out != NULL || io_error(&e, error);
	}
	ok = ok && write_all(&e, error);
	if (e.out != NULL) {
		if (ok && (fflush(e.out) != 0 || fsync(fileno(e.out)) != 0))
			ok = io_error(&e, error);
		fclose(e.out);
		if (ok && rename(partial, path) != 0)
			ok = io_error(&e, error);
		if (!ok)
			remove(partial);
	}
	arena_finish(&e.arena);
	return ok;
}
