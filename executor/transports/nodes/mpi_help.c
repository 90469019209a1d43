/* Open MPI 4 hands a rank's messages to mpirun, where two threads then read and free the same
 * buffer (pmix_server_log_fn and send_self_exe: the copy for oneself is made after the original was
 * given away). A rank that lost a peer says so at just the moment when mpirun must stay alive to
 * end the others; in 2 of 25 deaths mpirun fell instead (Open MPI 4.1.4, freed memory overwritten),
 * and left without our exit code. The function that hands them over is behind a public pointer. */
#include "executor/transports/nodes/mpi_help.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As opal/util/show_help.h declares them, from Open MPI 1.3 to 5. */
typedef int show_help(const char *file, const char *topic, int want_header, ...);
typedef char *help_text(const char *file, const char *topic, bool want_header, va_list values);

static help_text *text_of;

/* Prints Open MPI's message. `peer hung up` is left out, because we name a dead rank ourselves,
 * with signal, step and operation. */
static int tell(const char *file, const char *topic, int want_header, ...)
{
	va_list values;

	if (strcmp(topic, "peer hung up") == 0)
		return 0;
	va_start(values, want_header);
	char *text = text_of(file, topic, want_header != 0, values);
	va_end(values);
	if (text != NULL)
		fputs(text, stderr);
	free(text);
	return 0;
}

void mpi_help_stay_here(void)
{
	show_help **teller = dlsym(RTLD_DEFAULT, "opal_show_help");
	void *text = dlsym(RTLD_DEFAULT, "opal_show_help_vstring");

	if (teller == NULL || text == NULL)
		return;
	memcpy(&text_of, &text, sizeof(text_of));
	*teller = tell;
}
