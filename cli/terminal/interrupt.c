#include "cli/terminal/terminal.h"

#include <signal.h>

static volatile sig_atomic_t came;
static struct sigaction before;

static void note(int signal)
{
	(void)signal;
	came = 1;
}

/* A process that was started ignoring Ctrl-C, with nohup or in the background, goes on ignoring
 * it. */
void interrupt_begin(void)
{
	struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART | SA_RESETHAND};

	came = 0;
	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, &before);
	if (before.sa_handler == SIG_IGN)
		sigaction(SIGINT, &before, NULL);
}

bool interrupt_came(void)
{
	return came != 0;
}

void interrupt_end(void)
{
	sigaction(SIGINT, &before, NULL);
}
