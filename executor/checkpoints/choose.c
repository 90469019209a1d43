/* Chooses the checkpoint that a run goes on from: the newest one that is whole. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "executor/checkpoints/checkpoints.h"

/* --- by one process --- */

static bool look(struct arena *arena, const char *folder, const struct model *model,
	enum checkpoint_depth depth, struct manifest *manifest, struct error *error)
{
	/* The model says which files there should be. */
	if (model == NULL) {
		if (!manifest_read(arena, folder, NULL, manifest, error))
			return false;
		model = manifest->model;
	}
	return manifest_read(arena, folder, model, manifest, error) &&
	       (depth == CHECKPOINT_LOOK || checkpoint_verify(manifest, 0, 1, error));
}

/* Writes the message about what is passed over as a line. */
static void say_skipped(const struct error *why, int64_t next, struct text *notes)
{
	text_printf(notes, "%s; going back to step %lld\n", why->message, (long long)next);
}

/* Finds the newest checkpoint that is whole. If there is none, the error is that of the newest of
 * all. */
static bool find_newest(struct arena *arena, const char *path, const int64_t *steps, int n,
	const struct model *model, enum checkpoint_depth depth, struct manifest *manifest,
	struct text *notes, struct error *error)
{
	struct error first = {0};

	for (int i = n - 1; i >= 0; i--) {
		struct error own = {0};

		if (look(arena, checkpoint_folder(arena, path, steps[i]), model, depth, manifest,
			    &own))
			return true;
		if (first.message[0] == '\0')
			first = own;
		if (i > 0)
			say_skipped(&own, steps[i - 1], notes);
	}
	return error_set(error, first.code, "%s", first.message);
}

bool checkpoint_find(struct arena *arena, const char *path, const struct model *model,
	enum checkpoint_depth depth, struct checkpoint_info *info, struct error *error)
{
	struct manifest m;
	struct text notes = {0};
	int64_t *steps;
	int n = checkpoint_list(arena, path, &steps);

	if (n == 0 && access(arena_printf(arena, "%s/manifest.json", path), R_OK) != 0)
		return error_set(error, EXIT_CODE_INPUT,
			checkpoint_step_of(checkpoint_name(arena, path)) >= 0 &&
					access(path, F_OK) == 0
				? "%s/manifest.json: missing, the checkpoint needs it"
				: "%s: no checkpoint, "
				  "expected a folder with manifest.json or with step-*",
			path);
	bool ok = n > 0 ? find_newest(arena, path, steps, n, model, depth, &m, &notes, error)
			: look(arena, arena_strdup(arena, path), model, depth, &m, error);
	if (ok && !m.sealed)
		text_printf(&notes,
			"%s/manifest.json: written by 0.1.0, which gave it no checksum: "
			"damage to it may go unnoticed\n",
			m.folder);
	if (ok)
		*info = (struct checkpoint_info){.folder = m.folder,
			.step = m.step,
			.model = m.model,
			.training = m.training,
			.plan = m.plan != NULL ? m.plan : "",
			.ranks = m.ranks,
			.seq_len = m.seq_len,
			.global_batch = m.global_batch,
			.has_moments = m.arrays > 1,
			.data_tokens = m.data_tokens,
			.run = m.run,
			.newest = n > 0,
			.notes = arena_strdup(arena, text_string(&notes))};
	text_finish(&notes);
	return ok;
}

/* --- by all ranks --- */

/* Returns the step of the checkpoint before one, or 0 if there is none. */
static int64_t before(struct arena *arena, const char *folder)
{
	int64_t *steps, step = checkpoint_step_of(checkpoint_name(arena, folder)), found = 0;
	int n = checkpoint_list(arena, checkpoint_parent(arena, folder), &steps);

	for (int i = 0; i < n && steps[i] < step; i++)
		found = steps[i];
	return found;
}

/* Each rank has looked at its part. Returns false on all ranks when one of them is not content.
 * `step` of the first rank's part is where it would go back to. */
static bool all_content(struct comm *comm, void *scratch, struct checkpoint_part *mine,
	struct checkpoint_part *parts, struct error *error)
{
	memcpy(scratch, mine, sizeof(*mine));
	if (!comm_exchange_within(comm, scratch, parts, sizeof(*mine), PATIENCE_UNKNOWN))
		return false;
	for (int r = 0; r < comm->ranks; r++)
		if (parts[r].failed)
			return error_set(error, EXIT_CODE_INPUT, "%s", parts[r].message);
	return true;
}

bool checkpoint_choose(struct arena *arena, const char *folder, bool or_older,
	const struct model *model, struct comm *comm, void *scratch, struct manifest *manifest,
	struct text *notes, struct error *error)
{
	struct checkpoint_part *parts = ARENA_ARRAY(arena, struct checkpoint_part, comm->ranks);
	const char *parent = checkpoint_parent(arena, folder);
	struct manifest newest = {.folder = NULL};

	while (true) {
		struct error own = {0}, theirs = {0};
		struct checkpoint_part mine = {.step = or_older ? before(arena, folder) : 0};

		bool is_read = manifest_read(arena, folder, model, manifest, &own);
		mine.failed = !(
			is_read &&
			(newest.folder == NULL || manifest_continues(manifest, &newest, &own)) &&
			checkpoint_verify(manifest, comm->rank, comm->ranks, &own));
		snprintf(mine.message, sizeof(mine.message), "%.511s", own.message);
		if (all_content(comm, scratch, &mine, parts, &theirs))
			return true;
		if (theirs.code == EXIT_CODE_OK)
			return false;
		if (parts[0].step == 0)
			return error_set(error, theirs.code, "%s", theirs.message);
		say_skipped(&theirs, parts[0].step, notes);
		if (newest.folder == NULL && is_read)
			newest = *manifest;
		folder = checkpoint_folder(arena, parent, parts[0].step);
	}
}
