/* Errors: functions that can fail return bool (true = ok) and fill a struct error. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdbool.h>

/* The process exit codes (docs/commands.md#exit-codes); an error carries the one that fits it. */
enum exit_code {
	EXIT_CODE_OK = 0,
	EXIT_CODE_NO = 1,          /* a well-formed "no": does not fit, outside tolerance */
	EXIT_CODE_USAGE = 2,       /* bad command line or a question that contradicts itself */
	EXIT_CODE_INPUT = 3,       /* bad input file */
	EXIT_CODE_ENVIRONMENT = 4, /* something missing on this machine */
	EXIT_CODE_INTERNAL = 5,    /* a bug, or out of memory */
	EXIT_CODE_FAULT = 6,       /* training stopped by a fault */
	EXIT_CODE_HUNG_UP = 129,   /* 128 + SIGHUP: training stopped after a step */
	EXIT_CODE_INTERRUPTED =
		130, /* 128 + SIGINT: a search, or training after a step, stopped early */
	EXIT_CODE_TERMINATED = 143, /* 128 + SIGTERM: training stopped after a step */
};

/* One line of UTF-8: "file:line:col: what, expected X, got Y, fix". Long names are cut, never
 * overflowed; bytes that would steer a terminal or are no UTF-8 stand as "?". */
struct error {
	enum exit_code code;
	char message[768];
};

/* Always false, so that `return error_set(...)` reads well. The first error wins: an error that is
 * already set is kept. `error` may be NULL. */
bool error_set(struct error *error, enum exit_code code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The same with "name:line:column: " in front; line 0 leaves the position out. */
bool error_at(struct error *error, enum exit_code code, const char *name, int line, int column,
	const char *format, ...) __attribute__((format(printf, 6, 7)));
void error_clear(struct error *error);

/* Whether two names differ at most in capitals, and in _ for -. */
bool same_name(const char *a, const char *b);

/* The element of a NULL-terminated list nearest to `word` by edit distance, for "did you mean",
 * else the one that begins with it ("nics" of "nics_per_node"). NULL when nothing is near (more
 * than a third of the letters differ, but at least 2 may). */
const char *nearest_name(const char *word, const char *const *names);

#endif
