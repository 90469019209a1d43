/* Lines beside an answer: warnings, and the files that can express the plan. */
#include "reports/text/text.h"

enum { SHOWN_MOST = 3 };

void put_warnings(const struct answer *answer, struct text *text)
{
	int more = answer->n_warnings - SHOWN_MOST;

	for (int i = 0; i < answer->n_warnings && i < SHOWN_MOST; i++) {
		text_add(text, "Warning: ");
		add_terminal(text, answer->warnings[i].sentence);
		text_add(text, ".\n");
	}
	if (more > 0)
		text_printf(text, "%d more in --json.\n", more);
}

void put_said_by(int n, const char *const *names, struct text *text)
{
	if (names == NULL)
		return;
	if (n == 0)
		text_add(text,
			"No export says it unchanged; --for TARGET keeps to what one can say");
	else
		text_add(text, "Says it unchanged: ");
	for (int i = 0; i < n; i++)
		text_printf(text, "%s%s", i > 0 ? ", " : "", names[i]);
	text_add(text, ".\n");
}
