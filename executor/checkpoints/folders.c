#include "executor/checkpoints/folders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static bool failed(struct error *error, const char *what, const char *path)
{
	return error_set(
		error, EXIT_CODE_FAULT, "checkpoint: %s %s: %s", what, path, strerror(errno));
}

/* The disk stays full from the operation of the fault on. */
static bool is_full(const struct store *store, int64_t operation)
{
	return fault_hits(&store->fault, FAULT_CHECKPOINT_FULL, store->rank,
		min_i64(operation, store->fault.step));
}

/* Is this operation to fail? If so, errno is set. */
static bool struck(struct store *store, enum fault_kind *kind)
{
	int64_t operation = store->operations++;

	*kind = FAULT_NONE;
	if (fault_hits(&store->fault, FAULT_CHECKPOINT_KILL, store->rank, operation))
		raise(SIGKILL);
	if (fault_hits(&store->fault, FAULT_CHECKPOINT_ERROR, store->rank, operation))
		*kind = FAULT_CHECKPOINT_ERROR;
	else if (fault_hits(&store->fault, FAULT_CHECKPOINT_SHORT, store->rank, operation))
		*kind = FAULT_CHECKPOINT_SHORT;
	else if (is_full(store, operation))
		*kind = FAULT_CHECKPOINT_FULL;
	errno = *kind == FAULT_CHECKPOINT_ERROR ? EIO : ENOSPC;
	return *kind != FAULT_NONE;
}

static bool simply_struck(struct store *store)
{
	enum fault_kind kind;

	return struck(store, &kind);
}

bool store_make_folder(struct store *store, const char *path, struct error *error)
{
	if (simply_struck(store) || (mkdir(path, 0777) != 0 && errno != EEXIST))
		return failed(error, "cannot make the folder", path);
	return true;
}

int store_create(struct store *store, const char *path, struct error *error)
{
	int fd = simply_struck(store) ? -1
				      : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	if (fd < 0)
		failed(error, "cannot create", path);
	return fd;
}

static bool write_all(int fd, const char *data, size_t bytes)
{
	while (bytes > 0) {
		ssize_t n = write(fd, data, bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data += n;
		bytes -= (size_t)n;
	}
	return true;
}

bool store_write(struct store *store, int fd, const char *path, const void *data, size_t bytes,
	struct error *error)
{
	enum fault_kind kind;
	bool ok = true;

	if (struck(store, &kind)) {
		int number = errno;
		/* A full disk first takes a part. */
		if (kind == FAULT_CHECKPOINT_SHORT)
			(void)write_all(fd, data, bytes / 2);
		errno = number;
		ok = false;
	}
	ok = ok && write_all(fd, data, bytes);
	return ok || failed(error, "cannot write", path);
}

bool store_close(struct store *store, int fd, const char *path, struct error *error)
{
	bool ok = !simply_struck(store) && fsync(fd) == 0;

	if (!ok)
		failed(error, "cannot flush", path);
	close(fd);
	return ok;
}

bool store_write_file(
	struct store *store, const char *path, const struct text *text, struct error *error)
{
	int fd = store_create(store, path, error);

	if (fd < 0)
		return false;
	bool ok = store_write(store, fd, path, text_string(text), text->length, error);
	return store_close(store, fd, path, error) && ok;
}

bool store_sync_folder(struct store *store, const char *path, struct error *error)
{
	int fd = simply_struck(store) ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool ok = fd >= 0 && fsync(fd) == 0;

	if (!ok)
		failed(error, "cannot flush the folder", path);
	if (fd >= 0)
		close(fd);
	return ok;
}

bool store_rename(struct store *store, const char *from, const char *to, struct error *error)
{
	if (simply_struck(store) || rename(from, to) != 0)
		return failed(error, "cannot rename", from);
	return true;
}

static bool remove_files(DIR *folder, const char *path, struct error *error)
{
	const struct dirent *entry;

	while ((entry = readdir(folder)) != NULL) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (unlinkat(dirfd(folder), entry->d_name, 0) != 0)
			return failed(error, "cannot remove a file of", path);
	}
	return true;
}

bool store_remove_folder(struct store *store, const char *path, struct error *error)
{
	enum fault_kind kind;

	/* A full disk lets go of what it holds. */
	if (struck(store, &kind) && kind != FAULT_CHECKPOINT_FULL)
		return failed(error, "cannot remove", path);
	DIR *folder = opendir(path);
	if (folder == NULL)
		return errno == ENOENT || failed(error, "cannot remove", path);
	bool ok, again = true;
	/* Another rank that has not heard of it yet may just begin its file. */
	for (int i = 0; i < 10 && again; i++) {
		rewinddir(folder);
		ok = remove_files(folder, path, error);
		again = ok && rmdir(path) != 0;
	}
	closedir(folder);
	return ok && (!again || failed(error, "cannot remove", path));
}

bool store_room(const char *folder, int64_t bytes, struct error *error)
{
	struct statvfs disk;
	char need[32], have[32];

	if (statvfs(folder, &disk) != 0 || disk.f_blocks == 0)
		return true;
	int64_t there = (int64_t)disk.f_bavail * (int64_t)disk.f_frsize;
	return bytes <= there ||
	       error_set(error, EXIT_CODE_FAULT,
		       "checkpoint: cannot write to %s: needs %lld bytes (%s), %lld are free (%s)",
		       folder, (long long)bytes, format_bytes(need, (double)bytes),
		       (long long)there, format_bytes(have, (double)there));
}

bool store_read(
	struct arena *arena, const char *path, char **text, size_t *length, struct error *error)
{
	FILE *file = fopen(path, "rbe");
	struct stat info;
	bool ok = file != NULL && fstat(fileno(file), &info) == 0 && S_ISREG(info.st_mode);

	if (ok) {
		*length = (size_t)info.st_size;
		*text = arena_alloc(arena, *length + 1, 1);
		ok = fread(*text, 1, *length, file) == *length;
	}
	const char *why = errno == ENOENT && file == NULL ? "missing" : "cannot be read";
	if (file != NULL)
		fclose(file);
	return ok || error_set(error, EXIT_CODE_INPUT, "%s: %s", path, why);
}

bool store_read_at(
	int fd, const char *path, int64_t offset, void *data, int64_t bytes, struct error *error)
{
	char *to = data;

	while (bytes > 0) {
		ssize_t n = pread(fd, to, (size_t)bytes, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error_set(error, EXIT_CODE_INPUT, "%s: %s", path,
				n < 0 ? strerror(errno) : "ends too early");
		to += n;
		offset += n;
		bytes -= n;
	}
	return true;
}
