/* Records the calls of threads to the fake GPU, one a line, for a comparison with the schedule
 * (trace.h). The rank and the test are different processes, so the lines are in a file. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/executor/fakes/cuda_private.h"

static FILE *file;

static bool is_wanted(void)
{
	static bool looked;

	if (!looked && getenv("FAKE_TRACE") != NULL)
		file = fopen(getenv("FAKE_TRACE"), "w");
	looked = true;
	return file != NULL;
}

void fake_trace(const char *format, ...)
{
	va_list args;

	if (!is_wanted())
		return;
	va_start(args, format);
	vfprintf(file, format, args);
	va_end(args);
	fputc('\n', file);
}

void fake_trace_flush(void)
{
	if (is_wanted())
		fflush(file);
}

void fake_trace_touches(const char *what, const struct fake_stream *stream, int members,
	int64_t bytes, const struct fake_touch *touches, int n_touches)
{
	if (!is_wanted())
		return;
	fprintf(file, "%s %d %d %d %lld %d", what, fake_thread.actor, stream->actor, members,
		(long long)bytes, n_touches);
	for (int i = 0; i < n_touches; i++)
		fprintf(file, " %p %lld %d", touches[i].address, (long long)touches[i].bytes,
			touches[i].write);
	fputc('\n', file);
}
