#include "executor/checkpoints/folders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool failed(struct error *error, const char *what, const char *path)
{
	return error_set(
		error, EXIT_CODE_FAULT, "checkpoint: %s %s: %s", what, path, strerror(errno));
}

/* Whether this operation is to fail; errno is set then. */
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
	errno = *kind == FAULT_CHECKPOINT_SHORT ? ENOSPC : EIO;
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
		/* A full disk takes a part first. */
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
	if (simply_struck(store))
		return failed(error, "cannot remove", path);
	DIR *folder = opendir(path);
	if (folder == NULL)
		return errno == ENOENT || failed(error, "cannot remove", path);
	bool ok = remove_files(folder, path, error);
	closedir(folder);
	return ok && (rmdir(path) == 0 || failed(error, "cannot remove", path));
}
