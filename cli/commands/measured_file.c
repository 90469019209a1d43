#include "cli/commands/measured_file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { PIECE = 1 << 20, LOG_MOST = 64 << 20 };

/* Opens .json and .json.gz alike, because zlib also reads plain files. */
static gzFile open_file(const char *path, struct error *error)
{
	errno = 0;
	gzFile file = strcmp(path, "-") == 0 ? gzdopen(0, "rb") : gzopen(path, "rb");

	if (file == NULL)
		error_set(error, EXIT_CODE_INPUT, "%s: cannot be read: %s", path,
			errno != 0 ? strerror(errno) : "out of memory");
	return file;
}

bool measured_kind(const char *path, enum measured_kind *kind, struct error *error)
{
	*kind = MEASURED_TRACE;
	if (strcmp(path, "-") == 0)
		return true;
	gzFile file = open_file(path, error);
	if (file == NULL)
		return false;
	char *start = calloc(PIECE, 1);
	int n = start != NULL ? gzread(file, start, PIECE - 1) : -1;
	/* A damaged gzip file is reported when it is read to its end. */
	if (n >= 0 && strstr(start, "shardplan/measurement/") != NULL)
		*kind = MEASURED_BY_TRAIN;
	else if (n >= 0 && strstr(start, "\"traceEvents\"") == NULL)
		*kind = MEASURED_LOG;
	free(start);
	gzclose_r(file);
	return true;
}

bool measured_feed(
	const char *path, struct kineto *kineto, struct arena *arena, struct error *error)
{
	gzFile file = open_file(path, error);
	char *piece = arena_alloc(arena, PIECE, 1);
	bool ok = true;
	int n = 0;

	if (file == NULL)
		return false;
	while (ok && (n = gzread(file, piece, PIECE)) > 0)
		ok = kineto_feed(kineto, piece, (size_t)n, error);
	/* gzread reports no error for a gzip file that is cut short. */
	bool whole = gzclose_r(file) == Z_OK && n >= 0;
	if (ok && !whole)
		return error_set(error, EXIT_CODE_INPUT, "%s: damaged or cut short", path);
	return ok;
}

/* --- folders ---------------------------------------------------------------------------------- */

/* Is it a trace by its name: "HOST_PID.TIME.pt.trace.json[.gz]", as tensorboard_trace_handler makes
 * it, or one given to export_chrome_trace? */
static bool is_trace(const char *name)
{
	size_t length = strlen(name);

	if (length > 3 && strcmp(name + length - 3, ".gz") == 0)
		length -= 3;
	return length > 5 && strncmp(name + length - 5, ".json", 5) == 0;
}

bool measured_of_folder(
	struct arena *arena, const char *folder, const char **path, int *count, struct error *error)
{
	DIR *open_folder = opendir(folder);
	const char *first = NULL;
	struct dirent *entry;

	*count = 0;
	while (open_folder != NULL && (entry = readdir(open_folder)) != NULL) {
		if (!is_trace(entry->d_name))
			continue;
		++*count;
		if (first == NULL || strcmp(entry->d_name, first) < 0)
			first = arena_strdup(arena, entry->d_name);
	}
	if (open_folder != NULL)
		closedir(open_folder);
	if (first == NULL)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: no trace (.json, .json.gz) is in this folder; record one:", folder);
	*path = arena_printf(arena, "%s/%s", folder, first);
	return true;
}

/* --- logs ------------------------------------------------------------------------------------- */

/* The first line, shortened for a message. */
static void beginning(const char *text, char shown[48])
{
	int n = 0;

	while (isspace((unsigned char)*text))
		text++;
	for (; n < 44 && *text != '\0' && *text != '\n'; text++)
		shown[n++] = *text < ' ' || *text > '~' ? '?' : *text;
	shown[n] = '\0';
}

static bool read_text(const char *path, struct text *text, struct error *error)
{
	gzFile file = open_file(path, error);
	char piece[1 << 14];
	int n = 0;

	if (file == NULL)
		return false;
	while (text->length < LOG_MOST && (n = gzread(file, piece, sizeof(piece) - 1)) > 0) {
		piece[n] = '\0';
		text_add(text, piece);
	}
	bool whole = gzclose_r(file) == Z_OK && n >= 0;
	return whole || error_set(error, EXIT_CODE_INPUT, "%s: damaged or cut short", path);
}

bool measured_log(const char *path, struct log_figures *figures, struct error *error)
{
	struct text text = {0};
	char shown[48];

	bool ok = read_text(path, &text, error);
	/* A plan file is refused, although it has step times too. */
	bool is_plan = strncmp(text_string(&text), "shardplan: ", 11) == 0;
	if (ok && text.length == 0)
		ok = error_set(error, EXIT_CODE_INPUT, "%s: is empty", path);
	const char *kind = content_kind(text_string(&text), text.length);
	if (ok && kind != NULL)
		ok = error_set(error, EXIT_CODE_INPUT,
			"%s: expected a trace, a measurement of `train` or a log with step times, "
			"got %s; give --step-time, or record a trace:",
			path, kind);
	if (ok && (is_plan || !log_read(text_string(&text), figures))) {
		beginning(text_string(&text), shown);
		ok = error_set(error, EXIT_CODE_INPUT,
			"%s: begins with `%s`: no trace, no measurement of `train`, "
			"no log with step times; give --step-time, or record a trace:",
			path, shown);
	}
	text_finish(&text);
	return ok;
}
