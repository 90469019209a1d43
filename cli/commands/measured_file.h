/* Files that tell how a run went: which kind one is, and its bytes, gzipped or not. */
#ifndef CLI_MEASURED_FILE_H
#define CLI_MEASURED_FILE_H

#include "base/base.h"
#include "schedule/traces/traces.h"

enum measured_kind {
	MEASURED_BY_TRAIN, /* measured.json */
	MEASURED_TRACE,    /* of a profiler */
	MEASURED_LOG,      /* text with step times, MFU or tokens/s, or none of these */
};

/* By how it begins. EXIT_CODE_INPUT when it cannot be read. stdin is a trace. */
bool measured_kind(const char *path, enum measured_kind *kind, struct error *error);

/* The trace of a folder that the profiler wrote, the first by name, of `*count`; EXIT_CODE_INPUT
 * without any. */
bool measured_of_folder(struct arena *arena, const char *folder, const char **path, int *count,
	struct error *error);

/* Gives a trace to the reader, piece by piece. */
bool measured_feed(
	const char *path, struct kineto *kineto, struct arena *arena, struct error *error);

/* Reads a log. EXIT_CODE_INPUT when no figure is in it: says what the file is, and how to record a
 * trace. */
bool measured_log(const char *path, struct log_figures *figures, struct error *error);

#endif
