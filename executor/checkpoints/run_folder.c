#include "executor/checkpoints/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "executor/checkpoints/checkpoints.h"
#include "executor/checkpoints/seal.h"

/* --- the lock --- */

/* Writes "HOST PID" for whoever finds the folder locked. */
static void sign(int fd)
{
	char host[256] = "", line[300];

	gethostname(host, sizeof(host) - 1);
	int length = snprintf(line, sizeof(line), "%s %ld\n", host, (long)getpid());
	if (ftruncate(fd, 0) != 0 || pwrite(fd, line, (size_t)length, 0) != length)
		(void)ftruncate(fd, 0);
}

static bool taken(const char *folder, int fd, struct error *error)
{
	char line[300] = "", host[256] = "?";
	long pid = 0;
	ssize_t n = pread(fd, line, sizeof(line) - 1, 0);

	if (n <= 0 || sscanf(line, "%255s %ld", host, &pid) != 2)
		return error_set(error, EXIT_CODE_ENVIRONMENT,
			"%s: another job writes its checkpoints there; "
			"wait for it, or give another folder",
			folder);
	return error_set(error, EXIT_CODE_ENVIRONMENT,
		"%s: process %ld on %s writes its checkpoints there; "
		"wait for it, or give another folder",
		folder, pid, host);
}

/* The descriptor is not closed when a rank is executed, because the lock belongs to the job and not
 * to the parent. */
bool run_folder_lock(const char *folder, int *fd, struct error *error)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/.lock", folder);
	*fd = -1;
	int file = mkdir(folder, 0777) == 0 || errno == EEXIST ? open(path, O_RDWR | O_CREAT, 0666)
							       : -1;
	if (file < 0)
		return error_set(error, EXIT_CODE_ENVIRONMENT, "%s: cannot be written: %s", folder,
			strerror(errno));
	if (flock(file, LOCK_EX | LOCK_NB) == 0) {
		sign(file);
		*fd = file;
		return true;
	}
	bool ok = errno != EWOULDBLOCK || taken(folder, file, error);
	close(file);
	return ok;
}

void run_folder_unlock(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* --- whose it is --- */

static const char schema[] = "shardplan/run/1";

void run_folder_new_id(char run[RUN_ID_SIZE])
{
	unsigned char random[(RUN_ID_SIZE - 1) / 2];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		memset(random, 0, sizeof(random));
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(run + 2 * i, 3, "%02x", random[i]);
}

bool run_folder_read(struct arena *arena, const char *folder, char run[RUN_ID_SIZE])
{
	const char *path = arena_printf(arena, "%s/run.json", folder);
	const struct node *root, *id;
	size_t length;
	char *text;

	if (!store_read(arena, path, &text, &length, NULL) ||
		seal_look(path, text, length, NULL) != SEAL_WHOLE ||
		(root = document_parse(arena, path, text, length, 0, NULL)) == NULL)
		return false;
	id = node_get(root, "run");
	if (id == NULL || id->kind != NODE_SCALAR || strlen(id->text) != RUN_ID_SIZE - 1)
		return false;
	memcpy(run, id->text, RUN_ID_SIZE);
	return true;
}

bool run_folder_write(const char *folder, const char *run, struct error *error)
{
	struct store store = {.fault = {.kind = FAULT_NONE}};
	struct arena arena = {0};
	struct text text = {0};
	struct writer writer;

	writer_init(&writer, &text, WRITER_JSON);
	writer_string(&writer, "schema", schema);
	writer_string(&writer, "run", run);
	writer_finish(&writer);
	seal_add(&text);
	const char *partial = arena_printf(&arena, "%s/.run.json", folder);
	bool ok =
		store_write_file(&store, partial, &text, error) &&
		store_rename(&store, partial, arena_printf(&arena, "%s/run.json", folder), error) &&
		store_sync_folder(&store, folder, error);
	text_finish(&text);
	arena_finish(&arena);
	return ok;
}

/* --- what lies about in it --- */

static bool set_aside(
	struct store *store, struct arena *arena, const char *path, struct error *error)
{
	const char *aside = arena_printf(arena, "%s.damaged", path);

	for (int n = 2; access(aside, F_OK) == 0; n++)
		aside = arena_printf(arena, "%s.damaged-%d", path, n);
	return store_rename(store, path, aside, error);
}

bool run_folder_may_begin(struct arena *arena, const char *folder, const char **unfinished)
{
	DIR *entries = opendir(folder);
	const struct dirent *entry;
	bool may = entries != NULL || errno == ENOENT;

	*unfinished = NULL;
	if (checkpoint_step_of(checkpoint_name(arena, folder)) >= 0)
		may = false;
	while (may && entries != NULL && (entry = readdir(entries)) != NULL) {
		if (strncmp(entry->d_name, ".step-", 6) == 0)
			*unfinished = arena_strdup(arena, entry->d_name);
		/* Those that were set aside as damaged count, too. */
		may = strncmp(entry->d_name, "step-", 5) != 0 &&
		      strcmp(entry->d_name, "manifest.json") != 0;
	}
	if (entries != NULL)
		closedir(entries);
	return may;
}

bool run_folder_tidy(struct store *store, struct arena *arena, const char *folder, int64_t step,
	struct error *error)
{
	DIR *entries = opendir(folder);
	const struct dirent *entry;
	bool ok = true;

	while (ok && entries != NULL && (entry = readdir(entries)) != NULL) {
		const char *path = arena_printf(arena, "%s/%s", folder, entry->d_name);

		if (strncmp(entry->d_name, ".step-", 6) == 0)
			ok = store_remove_folder(store, path, error);
		else if (checkpoint_step_of(entry->d_name) > step)
			ok = set_aside(store, arena, path, error);
	}
	if (entries != NULL)
		closedir(entries);
	return ok;
}
