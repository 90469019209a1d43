/* File operations of checkpoints, one by one: each is counted, so that a test can make any of them
 * fail, stop short or be the last thing that a rank does. */
#ifndef EXECUTOR_CHECKPOINTS_FOLDERS_H
#define EXECUTOR_CHECKPOINTS_FOLDERS_H

#include <stddef.h>

#include "executor/job/job.h"

struct store {
	struct fault fault; /* checkpoint_*: of one operation, or from one on */
	int64_t rank;
	int64_t operations; /* so far */
};

/* All fail with EXIT_CODE_FAULT and name the path. A folder that is there already is fine. */
bool store_make_folder(struct store *store, const char *path, struct error *error);
/* Makes or empties a file for writing; -1: it failed. */
int store_create(struct store *store, const char *path, struct error *error);
bool store_write(struct store *store, int fd, const char *path, const void *data, size_t bytes,
	struct error *error);
/* Flushes to the disk and closes, also when flushing fails. */
bool store_close(struct store *store, int fd, const char *path, struct error *error);
/* Does all of these: makes a new file with the text. */
bool store_write_file(
	struct store *store, const char *path, const struct text *text, struct error *error);
/* Makes the names in a folder durable. */
bool store_sync_folder(struct store *store, const char *path, struct error *error);
bool store_rename(struct store *store, const char *from, const char *to, struct error *error);
/* Removes a folder of plain files with all its contents. It may be missing. */
bool store_remove_folder(struct store *store, const char *path, struct error *error);
/* Are that many bytes free? True if it is not known. */
bool store_room(const char *folder, int64_t bytes, struct error *error);
/* Reads a whole file into `arena`, with a NUL behind it. EXIT_CODE_INPUT when it cannot be read. */
bool store_read(
	struct arena *arena, const char *path, char **text, size_t *length, struct error *error);
/* Reads `bytes` bytes of an open file. EXIT_CODE_INPUT when it cannot, or when the file ends
 * before. */
bool store_read_at(
	int fd, const char *path, int64_t offset, void *data, int64_t bytes, struct error *error);

#endif
