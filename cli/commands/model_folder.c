/* Reads the headers of the safetensors files in a model's folder. */
#include "cli/commands/model_folder.h"

#include <string.h>

#include "cli/terminal/terminal.h"
#include "models/models.h"

static bool read_header(
	struct arena *arena, const char *path, struct stored *stored, struct error *error)
{
	struct contents first, header;
	int64_t length;

	if (!file_read_part(arena, path, 0, 8, &first, error))
		return false;
	if (first.length < 8)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: not a safetensors file: it has %zu bytes", path, first.length);
	if (!safetensors_header_length(path, (const unsigned char *)first.text, &length, error) ||
		!file_read_part(arena, path, 8, length, &header, error))
		return false;
	if (header.length < (size_t)length)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: the header is cut off: expected %lld bytes, got %zu", path,
			(long long)length, header.length);
	return stored_add_header(stored, path, header.text, header.length, error);
}

/* Reads every file that the index names and that exists. */
static bool read_shards(struct arena *arena, const char *index, struct stored *stored,
	struct stored_summary *summary, struct error *error)
{
	struct contents contents;
	const char **files;

	if (!file_read(arena, index, &contents, error) ||
		!safetensors_read_index(arena, index, contents.text, contents.length, &files,
			&summary->total_size, error))
		return false;
	for (int i = 0; files[i] != NULL; i++) {
		const char *path = file_beside(arena, index, files[i]);

		if (!file_exists(path)) {
			summary->missing++;
			continue;
		}
		if (!read_header(arena, path, stored, error))
			return false;
		summary->files++;
	}
	return true;
}

/* Judges an index without all its files by their total size, which must be a whole number of bytes
 * for each parameter. */
static void judge_index(const struct model *model, struct stored_summary *summary)
{
	static const int widths[] = {1, 2, 4};

	for (int i = 0; i < COUNT_OF(widths); i++)
		summary->equal |= summary->total_size == widths[i] * model->parameter_count;
}

static void judge(struct arena *arena, const struct model *model, struct stored *stored,
	struct stored_summary *summary)
{
	if (summary->missing > 0 || summary->files == 0) {
		judge_index(model, summary);
		return;
	}
	summary->tensors = stored_tensors(stored);
	summary->parameters = stored_parameters(stored, model, &summary->quantised);
	summary->n_differences =
		stored_differences(arena, stored, model, summary->differences, STORED_LINES);
	summary->equal = summary->n_differences == 0;
}

static bool has_ending(const char *name, const char *ending)
{
	size_t length = strlen(name), wanted = strlen(ending);

	return length > wanted && strcmp(name + length - wanted, ending) == 0;
}

bool stored_summarise(struct arena *arena, const char *typed, const struct model *model,
	struct stored_summary *summary, struct error *error)
{
	bool folder = file_is_folder(typed);
	const char *any = folder ? arena_printf(arena, "%s/config.json", typed) : typed;
	const char *index = file_beside(arena, any, "model.safetensors.index.json");
	const char *single = has_ending(typed, ".safetensors")
				     ? typed
				     : file_beside(arena, any, "model.safetensors");
	struct stored *stored = stored_new(arena);

	*summary = (struct stored_summary){0};
	/* The name of a preset has no folder, and files beside another file are not the model's. */
	if (!folder && !has_ending(typed, ".safetensors") && !has_ending(typed, "config.json"))
		return true;
	summary->present = file_exists(single) || file_exists(index);
	if (!summary->present)
		return true;
	if (file_exists(single)) {
		summary->files = 1;
		if (!read_header(arena, single, stored, error))
			return false;
	} else if (!read_shards(arena, index, stored, summary, error)) {
		return false;
	}
	judge(arena, model, stored, summary);
	return true;
}

const char *stored_line(struct arena *arena, const struct stored_summary *s)
{
	const char *verdict = s->equal       ? "equal to the config"
			      : s->quantised ? "quantised, which counts cannot be compared with"
					     : "NOT the config's";

	if (s->tensors > 0)
		return arena_printf(arena,
			"safetensors: %lld tensors in %lld files, %lld parameters: %s",
			(long long)s->tensors, (long long)s->files, (long long)s->parameters,
			verdict);
	return arena_printf(arena,
		"safetensors: %lld bytes by the index, whose files are not here: %s",
		(long long)s->total_size,
		s->equal ? "1, 2 or 4 bytes for each parameter"
			 : "not 1, 2 or 4 bytes for each parameter");
}

void stored_write(const struct stored_summary *s, struct writer *writer)
{
	int shown = s->n_differences < STORED_LINES ? s->n_differences : STORED_LINES;

	writer_begin_map(writer, "checkpoint");
	writer_int(writer, "files", s->files);
	writer_int(writer, "missing_files", s->missing);
	writer_int(writer, "tensors", s->tensors);
	writer_int(writer, "parameters", s->parameters);
	writer_int(writer, "total_size_bytes", s->total_size);
	writer_bool(writer, "equal", s->equal);
	writer_bool(writer, "quantised", s->quantised);
	writer_begin_list(writer, "differences");
	for (int i = 0; i < shown; i++)
		writer_string(writer, NULL, s->differences[i]);
	writer_end_list(writer);
	writer_end_map(writer);
}
