#include "cli/terminal/terminal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGEST_FILE = 64 << 20, READ_AT_ONCE = 1 << 16 };

bool file_exists(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0;
}

bool file_is_folder(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Returns the path without what changes nothing in it, such as "./" and "//". */
static const char *plain_path(struct arena *arena, const char *path)
{
	const char *plain = path[0] == '/' ? "/" : "";
	size_t length;

	for (; *path != '\0'; path += length + (path[length] == '/')) {
		length = strcspn(path, "/");
		if (length > 0 && !(length == 1 && path[0] == '.'))
			plain = arena_printf(arena, "%s%.*s/", plain, (int)length, path);
	}
	return plain;
}

bool file_same_path(struct arena *arena, const char *a, const char *b)
{
	struct stat left, right;

	if (stat(a, &left) == 0 && stat(b, &right) == 0)
		return left.st_dev == right.st_dev && left.st_ino == right.st_ino;
	return strcmp(plain_path(arena, a), plain_path(arena, b)) == 0;
}

const char *file_beside(struct arena *arena, const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');

	if (slash == NULL)
		return arena_strdup(arena, name);
	return arena_printf(arena, "%.*s/%s", (int)(slash - path), path, name);
}

static bool read_all(int file, const char *name, struct text *text, struct error *error)
{
	char *buffer = malloc(READ_AT_ONCE);
	ssize_t got;

	if (buffer == NULL)
		base_out_of_memory(READ_AT_ONCE);
	while ((got = read(file, buffer, READ_AT_ONCE)) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			error_set(error, EXIT_CODE_INPUT, "%s: cannot be read: %s", name,
				strerror(errno));
			break;
		}
		text_add_bytes(text, buffer, (size_t)got);
		if (text->length > LARGEST_FILE) {
			error_set(error, EXIT_CODE_INPUT, "%s: too large, expected at most 64 MiB",
				name);
			break;
		}
	}
	free(buffer);
	return got == 0;
}

bool file_read_part(struct arena *arena, const char *path, int64_t offset, int64_t length,
	struct contents *contents, struct error *error)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	char *text;
	ssize_t got = 1;
	int64_t have = 0;

	if (file < 0)
		return error_set(
			error, EXIT_CODE_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
	text = ARENA_ARRAY(arena, char, length + 1);
	while (have < length && got != 0) {
		got = pread(file, text + have, (size_t)(length - have), offset + have);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			break;
		have += got;
	}
	if (got < 0)
		error_set(error, EXIT_CODE_INPUT, "%s: cannot be read: %s", path, strerror(errno));
	close(file);
	*contents = (struct contents){arena_strdup(arena, path), text, (size_t)have};
	return got >= 0;
}

bool file_read(
	struct arena *arena, const char *path, struct contents *contents, struct error *error)
{
	bool is_stdin = strcmp(path, "-") == 0;
	const char *name = is_stdin ? "<stdin>" : path;
	int file = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	struct text text = {0};

	if (file < 0)
		return error_set(
			error, EXIT_CODE_INPUT, "%s: cannot be opened: %s", name, strerror(errno));
	bool ok = read_all(file, name, &text, error);
	if (!is_stdin)
		close(file);
	if (ok)
		*contents = (struct contents){arena_strdup(arena, name),
			arena_strndup(arena, text_string(&text), text.length), text.length};
	text_finish(&text);
	return ok;
}

static bool write_all(int file, const struct text *text)
{
	const char *data = text_string(text);
	size_t left = text->length;

	while (left > 0) {
		ssize_t put = write(file, data, left);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return false;
		data += put;
		left -= (size_t)put;
	}
	return true;
}

static bool cannot_write(const char *path, struct error *error)
{
	return error_set(
		error, EXIT_CODE_ENVIRONMENT, "%s: cannot be written: %s", path, strerror(errno));
}

/* Writes to a pipe, a terminal or /dev/null, which cannot be replaced by a file. */
static bool write_direct(const char *path, const struct text *text, struct error *error)
{
	bool is_stdout = strcmp(path, "-") == 0;
	int file = is_stdout ? STDOUT_FILENO : open(path, O_WRONLY | O_CLOEXEC);

	if (file < 0)
		return cannot_write(path, error);
	bool ok = write_all(file, text) || cannot_write(is_stdout ? "stdout" : path, error);
	if (!is_stdout && close(file) != 0)
		ok = cannot_write(path, error);
	return ok;
}

/* Is the temporary file left over? Its process does not exist here, and no process elsewhere holds
 * its lock. */
static bool is_left_over(const char *temporary, const char *pid)
{
	int64_t number;

	if (!parse_int(pid, &number) || number < 1 || number > INT32_MAX ||
		kill((pid_t)number, 0) == 0 || errno != ESRCH)
		return false;
	int file = open(temporary, O_RDWR | O_CLOEXEC);
	bool unlocked = file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0;
	if (file >= 0)
		close(file);
	return unlocked;
}

/* Removes files ".NAME.PID" of writers that were killed. */
static void remove_left_over(struct arena *arena, const char *path, const char *prefix)
{
	DIR *folder = opendir(file_beside(arena, path, "."));
	const struct dirent *entry;
	size_t length = strlen(prefix);

	while (folder != NULL && (entry = readdir(folder)) != NULL) {
		const char *temporary;

		if (strncmp(entry->d_name, prefix, length) != 0)
			continue;
		temporary = file_beside(arena, path, entry->d_name);
		if (is_left_over(temporary, entry->d_name + length))
			unlink(temporary);
	}
	if (folder != NULL)
		closedir(folder);
}

/* Opens a file beside `path` that takes its name when it is complete. Missing folders are made. -1:
 * errno says why. */
static int open_beside(struct arena *arena, const char *path, const char **temporary)
{
	const char *base = strrchr(path, '/');
	const char *prefix = arena_printf(arena, ".%s.", base != NULL ? base + 1 : path);

	if (!file_make_folders(arena, path, NULL))
		return -1;
	remove_left_over(arena, path, prefix);
	*temporary = file_beside(arena, path, arena_printf(arena, "%s%ld", prefix, (long)getpid()));
	int file = open(*temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (file >= 0)
		(void)flock(file, LOCK_EX | LOCK_NB);
	return file;
}

static bool write_replacing(
	struct arena *arena, const char *path, const struct text *text, struct error *error)
{
	const char *temporary;
	int file = open_beside(arena, path, &temporary);

	if (file < 0)
		return cannot_write(path, error);
	bool ok = write_all(file, text) && fsync(file) == 0;
	ok = close(file) == 0 && ok;
	ok = ok && rename(temporary, path) == 0;
	if (!ok) {
		cannot_write(path, error);
		unlink(temporary);
	}
	return ok;
}

static bool check_names_file(const char *path, struct error *error)
{
	size_t length = strlen(path);

	if (length > 0 && path[length - 1] != '/' && !file_is_folder(path))
		return true;
	return error_set(error, EXIT_CODE_USAGE,
		"\"%s\": expected the name of a file to write, got %s", path,
		length > 0 ? "a folder" : "none");
}

bool file_write(struct arena *arena, const char *path, const struct text *text, struct error *error)
{
	struct stat status;
	bool exists = stat(path, &status) == 0;

	if (!check_names_file(path, error))
		return false;
	if (strcmp(path, "-") == 0 || (exists && !S_ISREG(status.st_mode)))
		return write_direct(path, text, error);
	/* A symbolic link is kept; the file to which it points is replaced. */
	char *resolved = exists ? realpath(path, NULL) : NULL;
	bool ok = write_replacing(arena, resolved != NULL ? resolved : path, text, error);
	free(resolved);
	return ok;
}

bool file_check_writable(struct arena *arena, const char *path, struct error *error)
{
	struct stat status;
	const char *temporary;

	if (strcmp(path, "-") == 0)
		return true;
	if (!check_names_file(path, error))
		return false;
	bool exists = stat(path, &status) == 0;
	if (exists && !S_ISREG(status.st_mode))
		return access(path, W_OK) == 0 || cannot_write(path, error);
	char *resolved = exists ? realpath(path, NULL) : NULL;
	int file = open_beside(arena, resolved != NULL ? resolved : path, &temporary);
	free(resolved);
	if (file < 0)
		return cannot_write(path, error);
	close(file);
	unlink(temporary);
	return true;
}

bool file_make_folders(struct arena *arena, const char *path, struct error *error)
{
	char *folder = arena_strdup(arena, path);

	for (char *slash = strchr(folder + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		bool made = mkdir(folder, 0777) == 0;
		if (!made && errno != EEXIST)
			return cannot_write(folder, error);
		if (made)
			output_note("made the folder %s", folder);
		*slash = '/';
	}
	return true;
}
