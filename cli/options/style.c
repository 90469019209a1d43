/* Colours and width, by --color and the terminal. */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/options/options.h"

static bool terminal_wants_color(void)
{
	const char *refused = getenv("NO_COLOR"), *terminal = getenv("TERM");

	return isatty(STDOUT_FILENO) && (refused == NULL || refused[0] == '\0') &&
	       terminal != NULL && strcmp(terminal, "dumb") != 0;
}

bool output_style(const struct arguments *arguments, struct style *style, struct error *error)
{
	static const char *const names[] = {"auto", "always", "never", NULL};
	struct winsize size;
	int color = 0;

	if (!argument_choice(arguments, "color", names, &color, error))
		return false;
	*style = (struct style){.color = color == 1 || (color == 0 && terminal_wants_color())};
	/* In a file or a pipe lines are not broken. */
	if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
		style->width = size.ws_col;
	return true;
}
