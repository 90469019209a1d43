/* Writes a checkpoint: each rank its file, then the first rank the manifest and the name. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "executor/checkpoints/checkpoints.h"
#include "executor/ranks/ranks.h"

/* Writes copies while training goes on. It allocates nothing, because a step may be watched. */
struct checkpoint_worker {
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool busy, stop;
	struct checkpointer *checkpointer;
	struct checkpoint_part part; /* the part that was written last */
	char path[4096];
	XXH3_state_t *state,
		*range;   /* one for the whole file, one for the range that is being written */
	int64_t in_range; /* bytes */
	int n_sums;
	XXH128_canonical_t *sums; /* those of the ranges */
};
_Static_assert(sizeof(XXH128_canonical_t) == CHECKPOINT_SUM, "as the file has it");

/* --- the ranges of a file --- */

/* A file has at most so many ranges, of at least a MiB. */
enum { RANGES = 1024, LEAST_RANGE = 1 << 20 };

static int64_t range_bytes(int64_t data)
{
	int64_t bytes = LEAST_RANGE;

	while (data > bytes * RANGES)
		bytes *= 2;
	return bytes;
}

static struct checkpoint_file file_of_rank(const char *name, int64_t data)
{
	int64_t range = range_bytes(data), ranges = ceil_div(data, range);

	return (struct checkpoint_file){.name = name,
		.bytes = data + ranges * CHECKPOINT_SUM,
		.range_bytes = range,
		.ranges = ranges};
}

static int64_t data_bytes(const struct checkpoint_file *file)
{
	return file->bytes - file->ranges * CHECKPOINT_SUM;
}

static void end_range(struct checkpoint_worker *worker)
{
	XXH128_canonicalFromHash(
		&worker->sums[worker->n_sums++], XXH3_128bits_digest(worker->range));
	XXH3_128bits_reset(worker->range);
	worker->in_range = 0;
}

static void sum_ranges(struct checkpoint_worker *worker, const char *data, int64_t bytes)
{
	const struct checkpointer *cp = worker->checkpointer;
	int64_t range = cp->manifest.files[cp->weights.rank].range_bytes;

	while (bytes > 0) {
		int64_t n = min_i64(bytes, range - worker->in_range);

		XXH3_128bits_update(worker->range, data, (size_t)n);
		worker->in_range += n;
		data += n;
		bytes -= n;
		if (worker->in_range == range)
			end_range(worker);
	}
}

/* --- one rank's file --- */

/* Returns where a piece lies as it is written, or NULL if nowhere. */
static const float *piece_data(
	const struct checkpointer *cp, const struct checkpoint_piece *piece, int array)
{
	int64_t run = piece->end - piece->begin;

	if (cp->background)
		return cp->copy + piece->offset / (int64_t)sizeof(float) + array * run;
	return weights_element(&cp->weights, piece->parameter, piece->begin, array);
}

static bool write_run(
	struct checkpoint_worker *worker, int fd, const float *data, int64_t n, struct error *error)
{
	size_t bytes = (size_t)n * sizeof(float);

	XXH3_128bits_update(worker->state, data, bytes);
	sum_ranges(worker, (const char *)data, (int64_t)bytes);
	return store_write(&worker->checkpointer->store, fd, worker->path, data, bytes, error);
}

/* What is not fp32 in memory is fp32 in the file. */
static bool write_widened(struct checkpoint_worker *worker, int fd,
	const struct checkpoint_piece *piece, int array, struct error *error)
{
	float strip[WEIGHTS_STRIP];
	bool ok = true;

	for (int64_t at = piece->begin; ok && at < piece->end; at += WEIGHTS_STRIP) {
		int64_t n = min_i64(WEIGHTS_STRIP, piece->end - at);

		weights_get(&worker->checkpointer->weights, piece->parameter, at, array, n, strip);
		ok = write_run(worker, fd, strip, n, error);
	}
	return ok;
}

static int arrays_of(const struct checkpointer *cp, const struct checkpoint_piece *piece)
{
	const struct model *model = cp->weights.schedule->model;

	return parameter_arrays(&model->parameters[piece->parameter], cp->manifest.arrays);
}

static bool write_pieces(struct checkpoint_worker *worker, int fd, struct error *error)
{
	const struct checkpointer *cp = worker->checkpointer;
	bool ok = true;

	for (int i = 0; i < cp->n_mine; i++) {
		const struct checkpoint_piece *piece = &cp->mine[i];

		for (int a = 0; a < arrays_of(cp, piece) && ok; a++) {
			const float *data = piece_data(cp, piece, a);

			ok = data != NULL
				     ? write_run(worker, fd, data, piece->end - piece->begin, error)
				     : write_widened(worker, fd, piece, a, error);
		}
	}
	return ok;
}

static bool write_sums(struct checkpoint_worker *worker, int fd, struct error *error)
{
	if (worker->in_range > 0)
		end_range(worker);
	size_t bytes = (size_t)worker->n_sums * sizeof(*worker->sums);
	XXH3_128bits_update(worker->state, worker->sums, bytes);
	return store_write(
		&worker->checkpointer->store, fd, worker->path, worker->sums, bytes, error);
}

static void write_file(struct checkpoint_worker *worker, int64_t step)
{
	struct checkpointer *cp = worker->checkpointer;
	struct error error = {0};
	int fd = store_create(&cp->store, worker->path, &error);
	bool ok = fd >= 0;

	XXH3_128bits_reset(worker->state);
	XXH3_128bits_reset(worker->range);
	worker->n_sums = 0;
	worker->in_range = 0;
	if (ok) {
		ok = write_pieces(worker, fd, &error) && write_sums(worker, fd, &error);
		ok = store_close(&cp->store, fd, worker->path, &error) && ok;
	}
	XXH128_hash_t hash = XXH3_128bits_digest(worker->state);
	struct checkpoint_part *part = &worker->part;
	part->step = step;
	part->bytes = cp->manifest.files[cp->weights.rank].bytes;
	part->failed = !ok;
	snprintf(part->digest, sizeof(part->digest), "%016llx%016llx",
		(unsigned long long)hash.high64, (unsigned long long)hash.low64);
	snprintf(part->message, sizeof(part->message), "%.511s", error.message);
}

static void *work(void *data)
{
	struct checkpoint_worker *worker = data;

	pthread_mutex_lock(&worker->mutex);
	while (true) {
		while (!worker->busy && !worker->stop)
			pthread_cond_wait(&worker->changed, &worker->mutex);
		if (!worker->busy)
			break;
		int64_t step = worker->checkpointer->pending;
		pthread_mutex_unlock(&worker->mutex);
		write_file(worker, step);
		pthread_mutex_lock(&worker->mutex);
		worker->busy = false;
		pthread_cond_broadcast(&worker->changed);
	}
	pthread_mutex_unlock(&worker->mutex);
	return NULL;
}

/* --- set-up --- */

static int compare_pieces(const void *left, const void *right)
{
	const struct checkpoint_piece *a = left, *b = right;

	if (a->parameter != b->parameter)
		return a->parameter < b->parameter ? -1 : 1;
	if (a->tensor_rank != b->tensor_rank)
		return a->tensor_rank < b->tensor_rank ? -1 : 1;
	return (a->begin > b->begin) - (a->begin < b->begin);
}

/* The schedule says who writes what, so every rank knows it of all ranks. */
static void lay_out(struct checkpointer *cp)
{
	const struct schedule *schedule = cp->weights.schedule;
	struct manifest *m = &cp->manifest;
	int n = 0, ranks = cp->comm->ranks;
	int64_t bytes;

	for (int r = 0; r < ranks; r++)
		n += checkpoint_pieces(schedule, r, m->arrays, NULL, &bytes);
	m->n_files = ranks;
	m->files = ARENA_ARRAY(&cp->arena, struct checkpoint_file, ranks);
	m->pieces = ARENA_ARRAY(&cp->arena, struct checkpoint_piece, n + 1);
	for (int r = 0; r < ranks; r++) {
		struct checkpoint_piece *first = m->pieces + m->n_pieces;
		int count = checkpoint_pieces(schedule, r, m->arrays, first, &bytes);
		m->n_pieces += count;
		m->files[r] = file_of_rank(arena_printf(&cp->arena, "rank-%05d.bin", r), bytes);
		if (r != cp->weights.rank)
			continue;
		cp->mine = ARENA_ARRAY(&cp->arena, struct checkpoint_piece, count + 1);
		memcpy(cp->mine, first, (size_t)count * sizeof(*first));
		cp->n_mine = count;
	}
	qsort(m->pieces, (size_t)m->n_pieces, sizeof(*m->pieces), compare_pieces);
}

static void describe(struct checkpointer *cp, const struct checkpoint_options *options)
{
	const struct schedule *schedule = cp->weights.schedule;
	const struct plan *plan = &schedule->plan;
	struct text summary = {0};

	plan_summary(plan, &summary);
	cp->manifest = (struct manifest){.run = options->run,
		.training = options->training,
		.model_digest =
			arena_strdup(&cp->arena, checkpoint_model_digest(schedule->model).hex),
		.plan = arena_strdup(&cp->arena, text_string(&summary)),
		.ranks = cp->comm->ranks,
		.seq_len = plan->seq_len,
		.global_batch = plan->global_batch,
		.data_tokens = options->data_tokens,
		.tensor = plan->mesh.tensor > 1 ? plan->mesh.tensor : 0,
		.expert = plan->mesh.expert > 1 ? plan->mesh.expert : 0,
		.arrays = plan->optimizer == OPTIMIZER_SGD ? 1 : 3};
	text_finish(&summary);
}

/* All ranks learn whether all went well. The error is that of the first rank that failed. */
static bool agree(struct checkpointer *cp, struct checkpoint_part *part, struct error *error)
{
	memcpy(cp->scratch, part, sizeof(*part));
	if (!comm_exchange_within(
		    cp->comm, cp->scratch, cp->parts, sizeof(*part), PATIENCE_UNKNOWN))
		return false;
	for (int r = 0; r < cp->comm->ranks; r++) {
		if (cp->parts[r].failed)
			return error_set(
				error, EXIT_CODE_FAULT, "rank %d: %s", r, cp->parts[r].message);
	}
	return true;
}

static bool agree_on(struct checkpointer *cp, bool ok, const struct error *own, struct error *error)
{
	struct checkpoint_part part = {.failed = !ok};

	snprintf(part.message, sizeof(part.message), "%.511s", own->message);
	return agree(cp, &part, error);
}

static void open_worker(struct checkpointer *cp)
{
	struct checkpoint_worker *worker = ARENA_NEW(&cp->arena, struct checkpoint_worker);
	const struct checkpoint_file *file = &cp->manifest.files[cp->weights.rank];
	int64_t bytes = data_bytes(file);

	cp->worker = worker;
	worker->checkpointer = cp;
	worker->state = XXH3_createState();
	worker->range = XXH3_createState();
	worker->sums = ARENA_ARRAY(&cp->arena, XXH128_canonical_t, file->ranges + 1);
	if (worker->state == NULL || worker->range == NULL)
		base_out_of_memory(sizeof(*worker->state));
	if (!cp->background)
		return;
	/* Memory is touched now, so that it is not counted as memory that a step took. */
	cp->copy = arena_alloc(&cp->arena, (size_t)bytes + 1, 1);
	memset(cp->copy, 1, (size_t)bytes);
	pthread_mutex_init(&worker->mutex, NULL);
	pthread_cond_init(&worker->changed, NULL);
	if (cores_start_thread(&worker->thread, work, worker) != 0)
		base_out_of_memory(0);
}

/* Complains before the disk is full. */
static bool has_room(const struct checkpointer *cp, struct error *error)
{
	enum { PIECE_BYTES = 256, ROOM_FOR_THE_REST = 1 << 16 }; /* at most, in a manifest */
	int64_t bytes = (int64_t)cp->manifest.n_pieces * PIECE_BYTES + ROOM_FOR_THE_REST;

	for (int r = 0; r < cp->manifest.n_files; r++)
		bytes += cp->manifest.files[r].bytes;
	return store_room(cp->folder, bytes, error);
}

bool checkpointer_open(struct checkpointer *cp, const struct checkpoint_options *options,
	const struct weights *weights, struct comm *comm, void *scratch, struct error *error)
{
	struct error own = {0};
	bool ok = true;

	*cp = (struct checkpointer){.folder = options->folder,
		.every = options->every,
		.keep = options->keep,
		.background = options->background,
		.weights = *weights,
		.store = {.fault = options->fault, .rank = weights->rank},
		.comm = comm,
		.scratch = scratch};
	if (cp->folder == NULL)
		return true;
	describe(cp, options);
	cp->parts = ARENA_ARRAY(&cp->arena, struct checkpoint_part, comm->ranks);
	lay_out(cp);
	open_worker(cp);
	if (weights->rank == 0)
		ok = store_make_folder(&cp->store, cp->folder, &own) &&
		     run_folder_tidy(
			     &cp->store, &cp->arena, cp->folder, options->first_step, &own) &&
		     has_room(cp, &own);
	return agree_on(cp, ok, &own, error);
}

void checkpointer_close(struct checkpointer *cp)
{
	struct checkpoint_worker *worker = cp->worker;

	if (worker != NULL && cp->background) {
		pthread_mutex_lock(&worker->mutex);
		worker->stop = true;
		pthread_cond_broadcast(&worker->changed);
		pthread_mutex_unlock(&worker->mutex);
		pthread_join(worker->thread, NULL);
		pthread_cond_destroy(&worker->changed);
		pthread_mutex_destroy(&worker->mutex);
	}
	if (worker != NULL) {
		XXH3_freeState(worker->state);
		XXH3_freeState(worker->range);
	}
	/* Nothing stays of a checkpoint that did not come to be, because a full disk needs the
	 * room. */
	if (cp->pending != 0 && cp->weights.rank == 0)
		(void)store_remove_folder(&cp->store,
			checkpoint_partial_folder(&cp->arena, cp->folder, cp->pending), NULL);
	arena_finish(&cp->arena);
}

/* --- a checkpoint --- */

static void copy_pieces(struct checkpointer *cp)
{
	for (int i = 0; i < cp->n_mine; i++) {
		const struct checkpoint_piece *piece = &cp->mine[i];
		int64_t run = piece->end - piece->begin;
		float *to = cp->copy + piece->offset / (int64_t)sizeof(float);
		for (int a = 0; a < arrays_of(cp, piece); a++)
			weights_get(
				&cp->weights, piece->parameter, piece->begin, a, run, to + a * run);
	}
}

static bool start(struct checkpointer *cp, int64_t step, struct error *error)
{
	struct arena arena = {0};
	struct checkpoint_worker *worker = cp->worker;
	const char *folder = checkpoint_partial_folder(&arena, cp->folder, step);
	struct error own = {0};
	bool ok = (cp->weights.rank != 0 || has_room(cp, &own)) &&
		  store_make_folder(&cp->store, folder, &own);

	snprintf(worker->path, sizeof(worker->path), "%s/%s", folder,
		cp->manifest.files[cp->weights.rank].name);
	arena_finish(&arena);
	cp->pending = step;
	if (!agree_on(cp, ok, &own, error))
		return false;
	if (!cp->background) {
		write_file(worker, step);
		return true;
	}
	copy_pieces(cp);
	pthread_mutex_lock(&worker->mutex);
	worker->busy = true;
	pthread_cond_broadcast(&worker->changed);
	pthread_mutex_unlock(&worker->mutex);
	return true;
}

/* Returns the part that this rank has to show, which is finished or empty. */
static struct checkpoint_part finished_part(struct checkpointer *cp, bool wait)
{
	struct checkpoint_worker *worker = cp->worker;
	struct checkpoint_part part = {0};

	if (!cp->background)
		return worker->part;
	pthread_mutex_lock(&worker->mutex);
	while (wait && worker->busy)
		pthread_cond_wait(&worker->changed, &worker->mutex);
	if (!worker->busy)
		part = worker->part;
	pthread_mutex_unlock(&worker->mutex);
	return part;
}

static bool write_manifest(struct checkpointer *cp, const char *folder, struct error *error)
{
	struct text text = {0};
	const char *path = arena_printf(&cp->arena, "%s/manifest.json", folder);

	cp->manifest.step = cp->pending;
	for (int r = 0; r < cp->comm->ranks; r++)
		cp->manifest.files[r].digest = cp->parts[r].digest;
	manifest_write(&cp->manifest, cp->weights.schedule->model, &text);
	bool ok = store_write_file(&cp->store, path, &text, error);
	text_finish(&text);
	return ok;
}

/* Old checkpoints go only after the new one was read back. */
static bool prune(struct checkpointer *cp, const char *newest, struct error *error)
{
	struct arena arena = {0};
	struct manifest read;
	int64_t *steps;
	bool ok = true;

	if (cp->keep > 0) {
		ok = manifest_read(&arena, newest, cp->weights.schedule->model, &read, error);
		int n = ok ? checkpoint_list(&arena, cp->folder, &steps) : 0;
		for (int i = 0; ok && i < n - cp->keep; i++) {
			const char *old = checkpoint_folder(&arena, cp->folder, steps[i]);
			/* A folder that is half removed must not look like a checkpoint. */
			const char *aside = arena_printf(
				&arena, "%s/.step-%08lld.removed", cp->folder, (long long)steps[i]);
			ok = store_rename(&cp->store, old, aside, error) &&
			     store_remove_folder(&cp->store, aside, error);
		}
	}
	arena_finish(&arena);
	return ok;
}

/* Ranks of other machines may have written to a disk of their own. */
static bool check_files(struct checkpointer *cp, const char *folder, struct error *error)
{
	const struct manifest *m = &cp->manifest;
	char path[4096];
	struct stat facts;

	for (int r = 0; r < m->n_files; r++) {
		snprintf(path, sizeof(path), "%s/%s", folder, m->files[r].name);
		if (stat(path, &facts) != 0 || facts.st_size != m->files[r].bytes)
			return error_set(error, EXIT_CODE_FAULT,
				"%s: rank %d has written it, the first rank does not see it; "
				"all nodes must share the folder of checkpoints",
				path, r);
	}
	return true;
}

static bool commit(struct checkpointer *cp, struct error *error)
{
	struct arena arena = {0};
	const char *partial = checkpoint_partial_folder(&arena, cp->folder, cp->pending);
	const char *final = checkpoint_folder(&arena, cp->folder, cp->pending);
	bool ok = check_files(cp, partial, error) && write_manifest(cp, partial, error) &&
		  store_sync_folder(&cp->store, partial, error) &&
		  store_rename(&cp->store, partial, final, error) &&
		  store_sync_folder(&cp->store, cp->folder, error) && prune(cp, final, error);

	arena_finish(&arena);
	return ok;
}

/* Commits what is pending when all ranks have written their part. */
static bool settle(struct checkpointer *cp, bool wait, struct error *error)
{
	struct checkpoint_part part = finished_part(cp, wait);
	struct error own = {0};
	bool ok = true;

	if (!agree(cp, &part, error))
		return false;
	for (int r = 0; r < cp->comm->ranks; r++) {
		if (cp->parts[r].step != cp->pending)
			return true;
	}
	if (cp->weights.rank == 0)
		ok = commit(cp, &own);
	if (ok)
		cp->pending = 0;
	return agree_on(cp, ok, &own, error);
}

bool checkpointer_due(const struct checkpointer *cp, int64_t step, bool last)
{
	return cp->folder != NULL && (last || (cp->every > 0 && step % cp->every == 0));
}

bool checkpointer_step(struct checkpointer *cp, int64_t step, bool last, struct error *error)
{
	bool due = checkpointer_due(cp, step, last);

	if (cp->pending != 0 && !settle(cp, due, error))
		return false;
	if (!due)
		return true;
	if (!start(cp, step, error))
		return false;
	return (cp->background && !last) || settle(cp, true, error);
}
