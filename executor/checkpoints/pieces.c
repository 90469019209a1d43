/* Holds what all of checkpointing shares: names, and who writes what. */
#include "executor/checkpoints/checkpoints.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *checkpoint_folder(struct arena *arena, const char *folder, int64_t step)
{
	return arena_printf(arena, "%s/step-%08lld", folder, (long long)step);
}

const char *checkpoint_partial_folder(struct arena *arena, const char *folder, int64_t step)
{
	return arena_printf(arena, "%s/.step-%08lld.partial", folder, (long long)step);
}

/* Returns the length without slashes at the end. */
static size_t path_length(const char *path)
{
	size_t length = strlen(path);

	while (length > 1 && path[length - 1] == '/')
		length--;
	return length;
}

/* Returns the name as it was given, and not where a link leads. */
const char *checkpoint_name(struct arena *arena, const char *path)
{
	const char *whole = arena_strndup(arena, path, path_length(path));
	const char *slash = strrchr(whole, '/');

	return slash != NULL ? slash + 1 : whole;
}

const char *checkpoint_parent(struct arena *arena, const char *path)
{
	const char *whole = arena_strndup(arena, path, path_length(path));
	const char *slash = strrchr(whole, '/');

	if (slash == NULL)
		return ".";
	return slash == whole ? "/" : arena_strndup(arena, whole, (size_t)(slash - whole));
}

static int compare_steps(const void *left, const void *right)
{
	int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
	return (a > b) - (a < b);
}

int64_t checkpoint_step_of(const char *name)
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
		int64_t step = checkpoint_step_of(entry->d_name);
		if (step < 0)
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

/* Finds the slices of a unit that lie in the rank's chunk of it. What tensor ranks have alike is
 * written by the first of them, and a table that two stages have by the first stage. `place` has
 * the file and the part of the unit. */
static int unit_pieces(const struct model *model, const struct unit *unit, int64_t first,
	int arrays, struct checkpoint_piece place, struct checkpoint_piece *pieces, int64_t *bytes)
{
	int n = 0;

	for (int i = 0; i < unit->n_slices; i++) {
		const struct unit_slice *slice = &unit->slices[i];
		int64_t begin = max_i64(slice->offset, first);
		int64_t end = min_i64(slice->offset + slice->elements, first + unit->chunk);
		if (begin >= end || model_parameter_is_copy(model, slice->parameter) ||
			(place.tensor_rank > 0 && !model_parameter_is_cut(model, slice->parameter)))
			continue;
		place.parameter = model_whole_parameter(model, slice->parameter);
		place.begin = begin - slice->offset;
		place.end = end - slice->offset;
		place.offset = *bytes;
		if (pieces != NULL)
			pieces[n] = place;
		*bytes += (end - begin) * (unit_is_frozen(unit) ? 1 : arrays) *
			  (int64_t)sizeof(float);
		n++;
	}
	return n;
}

/* Replicas hold the same, so each writes some of the units. */
static bool writes(const struct unit *unit, int index, const struct plan *plan, int rank)
{
	int64_t shards = unit_shard_ranks(unit, plan);
	int64_t replicas = unit_reduce_ranks(unit, plan) / shards;

	return rank / unit_shard_stride(unit, plan) / shards % replicas == index % replicas;
}

int checkpoint_pieces(const struct schedule *schedule, int rank, int arrays,
	struct checkpoint_piece *pieces, int64_t *bytes)
{
	const struct plan *plan = &schedule->plan;
	int64_t stage = plan_reduce_ranks(plan) * plan->mesh.tensor;
	const struct program *program = &schedule->programs[rank / stage];
	struct checkpoint_piece place = {.file = rank};
	int n = 0;

	*bytes = 0;
	for (int u = 0; u < program->n_units; u++) {
		const struct unit *unit = &program->units[u];

		place.tensor_rank = unit->of_experts ? plan_expert_place(plan, rank)
						     : plan_tensor_place(plan, rank);
		if (writes(unit, u, plan, rank))
			n += unit_pieces(program->model, unit,
				unit_shard_place(unit, plan, rank) * unit->chunk, arrays, place,
				pieces != NULL ? pieces + n : NULL, bytes);
	}
	return n;
}
