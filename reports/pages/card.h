/* The card at the head of a page, and how sentences enter HTML. */
#ifndef REPORTS_PAGES_CARD_H
#define REPORTS_PAGES_CARD_H

#include "reports/text/text.h"

/* What a helper wrote as raw text, escaped; finishes it. */
void add_raw(struct text *raw, struct text *text);
/* A sentence, escaped; what is between backticks is to be typed. */
void add_sentence(const char *sentence, struct text *text);

void add_card(const struct report *report, struct text *text);

#endif
