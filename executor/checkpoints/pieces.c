/* What all of checkpointing shares: names, and who writes what. */
#include "executor/checkpoints/checkpoints.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *checkpoint_folder(struct arena *arena, const char *folder, int64_t step)
{
	return arena_printf(arena, "%s/step-%08lld", folder, (long long)step);
}

const char *checkpoint_partial_folder(struct arena *arena, const char *folder, int64_t step)
{
	return arena_printf(arena, "%s/.step-%08lld.partial", folder, (long long)step);
}

static int compare_steps(const void *left, const void *right)
{
	int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
	return (a > b) - (a < b);
}

/* "step-00000100" -> 100; -1 for any other name. */
static int64_t step_of(const char *name)
{
	int64_t step;

	if (strncmp(name, "step-", 5) != 0 || strspn(name + 5, "0123456789") != strlen(name + 5) ||
		strlen(name) < 13 || !parse_int(name + 5, &step))
		return -1;
	return step;
}

int checkpoint_list(struct arena *arena, const char *folder, int64_t **steps)
{
	DIR *entries = opendir(folder);
	const struct dirent *entry;
	int64_t *found = NULL;
	int n = 0, capacity = 0;

	*steps = NULL;
	if (entries == NULL)
		return 0;
	while ((entry = readdir(entries)) != NULL) {
		int64_t step = step_of(entry->d_name);
		if (step < 0 ||
			access(arena_printf(arena, "%s/%s/manifest.json", folder, entry->d_name),
				R_OK) != 0)
			continue;
		found = array_grow(found, &capacity, n + 1, sizeof(*found));
		found[n++] = step;
	}
	closedir(entries);
	*steps = ARENA_ARRAY(arena, int64_t, n + 1);
	if (n > 0) {
		qsort(found, (size_t)n, sizeof(*found), compare_steps);
		memcpy(*steps, found, (size_t)n * sizeof(*found));
	}
	free(found);
	return n;
}

struct digest checkpoint_model_digest(const struct model *model)
{
	struct text text = {0};
	struct writer writer;

	writer_init(&writer, &text, WRITER_JSON_COMPACT);
	model_write(model, &writer);
	writer_finish(&writer);
	struct digest digest = digest_of(text_string(&text), text.length);
	text_finish(&text);
	return digest;
}

/* The slices of a unit that lie in the rank's chunk of it. */
static int unit_pieces(const struct unit *unit, int64_t first, int arrays, int file,
	struct checkpoint_piece *pieces, int64_t *bytes)
{
	int n = 0;

	for (int i = 0; i < unit->n_slices; i++) {
		const struct unit_slice *slice = &unit->slices[i];
		int64_t begin = max_i64(slice->offset, first);
		int64_t end = min_i64(slice->offset + slice->elements, first + unit->chunk);
		if (begin >= end)
			continue;
		if (pieces != NULL)
			pieces[n] = (struct checkpoint_piece){slice->parameter,
				begin - slice->offset, end - slice->offset, file, *bytes};
		*bytes += (end - begin) * (unit_is_frozen(unit) ? 1 : arrays) *
			  (int64_t)sizeof(float);
		n++;
	}
	return n;
}

int checkpoint_pieces(const struct schedule *schedule, int rank, int arrays,
	struct checkpoint_piece *pieces, int64_t *bytes)
{
	const struct mesh *mesh = &schedule->plan.mesh;
	int64_t replica = rank / mesh->shard, index = rank % mesh->shard;
	int n = 0;

	*bytes = 0;
	for (int u = 0; u < schedule->n_units; u++) {
		const struct unit *unit = &schedule->units[u];
		/* Replicas hold the same, so each writes some of the units. */
		if (u % mesh->replicate == replica)
			n += unit_pieces(unit, index * unit->chunk, arrays, rank,
				pieces != NULL ? pieces + n : NULL, bytes);
	}
	return n;
}

bool checkpoint_find(struct arena *arena, const char *path, const struct model *model,
	struct checkpoint_info *info, struct error *error)
{
	struct manifest m;
	int64_t *steps;
	int n = checkpoint_list(arena, path, &steps);
	const char *folder =
		n > 0 ? checkpoint_folder(arena, path, steps[n - 1]) : arena_strdup(arena, path);

	if (n == 0 && access(arena_printf(arena, "%s/manifest.json", folder), R_OK) != 0)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: no checkpoint, expected a folder with manifest.json or with step-*",
			path);
	if (!manifest_read(arena, folder, model, &m, error))
		return false;
	*info = (struct checkpoint_info){.folder = folder,
		.step = m.step,
		.model = m.model,
		.training = m.training,
		.plan = m.plan != NULL ? m.plan : "",
		.ranks = m.ranks,
		.seq_len = m.seq_len,
		.global_batch = m.global_batch,
		.data_tokens = m.data_tokens};
	return true;
}
