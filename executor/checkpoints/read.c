/* Reads a checkpoint: every rank takes from the pieces what lies in its own shards. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "executor/checkpoints/checkpoints.h"
#include "executor/ranks/ranks.h"

struct loader {
	const struct manifest *manifest;
	const struct weights *weights;
	struct arena arena;
	int *fds;           /* [n_files] */
	const char **paths; /* [n_files] */
};

static bool open_files(struct loader *loader, struct error *error)
{
	const struct manifest *m = loader->manifest;

	loader->fds = ARENA_ARRAY(&loader->arena, int, m->n_files + 1);
	for (int i = 0; i < m->n_files; i++)
		loader->fds[i] = -1;
	loader->paths = ARENA_ARRAY(&loader->arena, const char *, m->n_files + 1);
	for (int i = 0; i < m->n_files; i++) {
		loader->paths[i] =
			arena_printf(&loader->arena, "%s/%s", m->folder, m->files[i].name);
		loader->fds[i] = open(loader->paths[i], O_RDONLY | O_CLOEXEC);
		if (loader->fds[i] < 0)
			return error_set(error, EXIT_CODE_INPUT, "%s: %s", loader->paths[i],
				strerror(errno));
	}
	return true;
}

static void close_files(struct loader *loader)
{
	for (int i = 0; loader->fds != NULL && i < loader->manifest->n_files; i++) {
		if (loader->fds[i] >= 0)
			close(loader->fds[i]);
	}
}

static bool read_at(const struct loader *loader, int file, int64_t offset, void *data,
	int64_t bytes, struct error *error)
{
	return store_read_at(loader->fds[file], loader->paths[file], offset, data, bytes, error);
}

/* Returns the first piece of a tensor rank's part of a parameter that ends after `element`. */
static int first_piece(
	const struct manifest *m, int parameter, int64_t tensor_rank, int64_t element)
{
	int low = 0, high = m->n_pieces;

	while (low < high) {
		int middle = (low + high) / 2;
		const struct checkpoint_piece *p = &m->pieces[middle];
		bool is_before = p->parameter != parameter       ? p->parameter < parameter
				 : p->tensor_rank != tensor_rank ? p->tensor_rank < tensor_rank
								 : p->end <= element;

		if (is_before)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Reads one run of fp32 in a file into elements [at, at + n) of one of the rank's arrays. */
static bool read_run(const struct loader *loader, int file, int64_t offset,
	const struct weights_shard *to, int array, int64_t at, int64_t n, struct error *error)
{
	const int64_t size = (int64_t)sizeof(float);
	float strip[WEIGHTS_STRIP];
	bool ok = true;

	if (to->dtype == DTYPE_FP32)
		return read_at(
			loader, file, offset, (float *)to->arrays[array] + at, n * size, error);
	for (int64_t i = 0; ok && i < n; i += WEIGHTS_STRIP) {
		int64_t run = min_i64(WEIGHTS_STRIP, n - i);

		ok = read_at(loader, file, offset + i * size, strip, run * size, error);
		if (ok)
			weights_put(to, array, at + i, run, strip);
	}
	return ok;
}

/* Reads elements that lie one behind the other in the checkpoint into the rank's arrays, from `at`
 * on. */
static bool load_held(const struct loader *loader, int parameter,
	const struct parameter_holder *held, const struct weights_shard *to, int64_t at,
	struct error *error)
{
	const struct manifest *m = loader->manifest;
	const int64_t size = (int64_t)sizeof(float);
	int64_t begin = held->element, end = begin + held->n;

	for (int i = first_piece(m, parameter, held->rank, begin); i < m->n_pieces; i++) {
		const struct checkpoint_piece *p = &m->pieces[i];
		if (p->parameter != parameter || p->tensor_rank != held->rank || p->begin >= end)
			break;
		int64_t from = max_i64(begin, p->begin), until = min_i64(end, p->end);
		int64_t run = p->end - p->begin;
		for (int a = 0; a < to->n_arrays && a < m->arrays; a++) {
			int64_t offset = p->offset + (a * run + from - p->begin) * size;
			if (!read_run(loader, p->file, offset, to, a, at + from - begin,
				    until - from, error))
				return false;
		}
	}
	return true;
}

/* Reads elements of the rank's own part of a parameter. They are runs of the whole parameter, and
 * the ranks that wrote the checkpoint have each run in parts of their own. Padding at the end stays
 * 0. */
static bool load_range(const struct loader *loader, const struct unit_slice *slice, int64_t begin,
	int64_t end, const struct weights_shard *to, int64_t at, struct error *error)
{
	const struct weights *w = loader->weights;
	int64_t place = plan_part_place(&w->schedule->plan, w->rank);
	int parameter = weights_parameter(w, slice);
	struct parameter_holder held;
	bool ok = true;

	while (ok && begin < end) {
		struct parameter_run run = model_parameter_run(
			w->program->model, slice->parameter, place, begin, end - begin);

		begin += run.n;
		for (; ok && run.whole >= 0 && run.n > 0; run.n -= held.n, run.whole += held.n) {
			held = model_parameter_holder(
				loader->manifest->part, parameter, run.whole, run.n);
			ok = load_held(loader, parameter, &held, to, at, error);
			at += held.n;
		}
	}
	return ok;
}

static bool load_unit(const struct loader *loader, int index, struct error *error)
{
	const struct weights *w = loader->weights;
	const struct unit *unit = &w->program->units[index];
	struct weights_shard shard;

	if (!weights_shard(w, index, &shard))
		return true;
	for (int i = 0; i < unit->n_slices; i++) {
		const struct unit_slice *slice = &unit->slices[i];
		int64_t begin = max_i64(slice->offset, shard.first);
		int64_t end = min_i64(slice->offset + slice->elements, shard.first + unit->chunk);
		if (begin < end && !load_range(loader, slice, begin - slice->offset,
					   end - slice->offset, &shard, begin - shard.first, error))
			return false;
	}
	return true;
}

static bool load(struct loader *loader, struct error *error)
{
	bool ok = open_files(loader, error);

	for (int u = 0; ok && u < loader->weights->program->n_units; u++)
		ok = load_unit(loader, u, error);
	close_files(loader);
	return ok;
}

bool checkpoint_load(const struct manifest *manifest, const struct weights *weights,
	struct comm *comm, void *scratch, struct error *error)
{
	struct loader loader = {.manifest = manifest, .weights = weights};
	struct checkpoint_part *parts =
		ARENA_ARRAY(&loader.arena, struct checkpoint_part, comm->ranks);
	struct checkpoint_part mine = {0};
	struct error own = {0};

	mine.failed = !load(&loader, &own);
	snprintf(mine.message, sizeof(mine.message), "%.511s", own.message);
	memcpy(scratch, &mine, sizeof(mine));
	bool ok = comm_exchange_within(comm, scratch, parts, sizeof(mine), PATIENCE_UNKNOWN);
	for (int r = 0; ok && r < comm->ranks; r++) {
		if (parts[r].failed)
			ok = error_set(error, EXIT_CODE_INPUT, "%s", parts[r].message);
	}
	arena_finish(&loader.arena);
	return ok;
}
