/* Files with measurements of a run: their kinds and their bytes, gzipped or not. */
#ifndef CLI_MEASURED_FILE_H
#define CLI_MEASURED_FILE_H

#include "base/base.h"
#include "schedule/traces/traces.h"

enum measured_kind {
	MEASURED_BY_TRAIN, /* measured.json */
	MEASURED_TRACE,    /* of PyTorch's profiler */
	MEASURED_LOG,      /* text, with step times, MFU or tokens/s in it or not */
};

/* The kind of a file by its beginning. EXIT_CODE_INPUT if it cannot be read. Standard input is a
 * trace. */
bool measured_kind(const char *path, enum measured_kind *kind, struct error *error);

/* The trace, the first by name of `*count`, in a folder that the profiler wrote. EXIT_CODE_INPUT if
 * there is none. */
bool measured_of_folder(struct arena *arena, const char *folder, const char **path, int *count,
	struct error *error);

/* Passes a trace to the reader piece by piece. */
bool measured_feed(
	const char *path, struct kineto *kineto, struct arena *arena, struct error *error);

/* Reads a log. EXIT_CODE_INPUT if it contains no figure: the message says what the file is, and how
 * to record a trace. */
bool measured_log(const char *path, struct log_figures *figures, struct error *error);

#endif
