/* Writes the message about a broken law. */
#include <stdarg.h>
#include <stdio.h>

#include "schedule/laws/laws.h"

bool law_broken(struct error *error, const char *format, ...)
{
	char message[512];
	va_list args;
	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	return error_set(error, EXIT_CODE_INTERNAL, "schedule: %s", message);
}
