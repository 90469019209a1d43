#include "cli/terminal/terminal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static struct {
	const char *what; /* NULL: nothing is shown */
	volatile sig_atomic_t seconds;
	struct sigaction before;
	/* What has been done, in two buffers: one is written while the other may be shown. */
	char done[2][120];
	volatile sig_atomic_t shown;
} waiting;

static void put(const char *string)
{
	ssize_t ignored = write(STDERR_FILENO, string, strlen(string));

	(void)ignored;
}

/* Runs in a signal handler: no stdio, no allocation. */
static void tick(int signal)
{
	char digits[16] = "";
	int i = (int)sizeof(digits) - 1;

	(void)signal;
	waiting.seconds = waiting.seconds + 1;
	for (int left = waiting.seconds; left > 0; left /= 10)
		digits[--i] = (char)('0' + left % 10);
	put("\r\033[K");
	put(waiting.what);
	put(", ");
	put(digits + i);
	put(" s");
	if (waiting.done[waiting.shown][0] != '\0') {
		put(": ");
		put(waiting.done[waiting.shown]);
	}
}

static void set_timer(time_t seconds)
{
	const struct itimerval every = {{seconds, 0}, {seconds, 0}};

	setitimer(ITIMER_REAL, &every, NULL);
}

void waiting_begin(const char *what)
{
	struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};

	if (!isatty(STDERR_FILENO))
		return;
	waiting.what = what;
	waiting.seconds = 0;
	waiting.done[waiting.shown][0] = '\0';
	sigemptyset(&action.sa_mask);
	sigaction(SIGALRM, &action, &waiting.before);
	set_timer(1);
}

void waiting_say(const char *done)
{
	int other = 1 - waiting.shown;

	if (waiting.what == NULL)
		return;
	snprintf(waiting.done[other], sizeof(waiting.done[other]), "%s", done);
	waiting.shown = other;
}

void waiting_end(void)
{
	if (waiting.what == NULL)
		return;
	set_timer(0);
	sigaction(SIGALRM, &waiting.before, NULL);
	waiting.what = NULL;
	if (waiting.seconds > 0)
		put("\r\033[K");
}
