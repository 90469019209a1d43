/* The only place that opens files for commands. */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include "base/base.h"

/* What a file held. `name` is for messages: the path, or "<stdin>". */
struct contents {
	const char *name;
	const char *text; /* NUL-terminated */
	size_t length;
};

/* The whole file, "-" being stdin; at most 64 MiB. EXIT_CODE_INPUT when it cannot be read. */
bool file_read(
	struct arena *arena, const char *path, struct contents *contents, struct error *error);

/* At most `length` bytes from `offset` on; fewer at the end of the file. */
bool file_read_part(struct arena *arena, const char *path, int64_t offset, int64_t length,
	struct contents *contents, struct error *error);

/* Replaces the file in one step: whoever reads it sees the old or the new text, never a part. "-"
 * is stdout. What is no regular file is written to directly. EXIT_CODE_ENVIRONMENT when it cannot
 * be written. */
bool file_write(
	struct arena *arena, const char *path, const struct text *text, struct error *error);

/* Before long work: whether file_write could, as far as one can tell without writing. */
bool file_check_writable(struct arena *arena, const char *path, struct error *error);

/* Folders on the way to `path`, as mkdir -p. */
bool file_make_folders(struct arena *arena, const char *path, struct error *error);

bool file_exists(const char *path);
bool file_is_folder(const char *path);

/* "out/plan.yaml" -> "out/NAME", "plan.yaml" -> "NAME". */
const char *file_beside(struct arena *arena, const char *path, const char *name);

/* A name to the path of a file or a config.json's folder in one of the folders of SHARDPLAN_PATH
 * (separated by colons): FOLDER/NAME.yaml, .json, or FOLDER/NAME/config.json. NULL when there is
 * none. Names with a slash are never searched. */
const char *search_path_find(struct arena *arena, const char *name);
/* Every name that can be found there, NULL-terminated, sorted. */
const char **search_path_names(struct arena *arena, int *count);

#endif
