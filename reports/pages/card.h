/* The card at the head of a page, and the escaping of sentences for HTML. */
#ifndef REPORTS_PAGES_CARD_H
#define REPORTS_PAGES_CARD_H

#include "reports/text/text.h"

/* Adds raw text, escaped, and finishes it. */
void add_raw(struct text *raw, struct text *text);
/* Adds a sentence, escaped. Text between backticks is set as code. */
void add_sentence(const char *sentence, struct text *text);
/* Adds options as typed, escaped, as code. Lines are broken between options only. */
void add_options_typed(const char *typed, struct text *text);

void add_card(const struct report *report, struct text *text);

#endif
