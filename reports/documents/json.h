/* What the JSON documents share: {schema, version, question, ...}. docs/schema/ describes each. */
#ifndef REPORTS_DOCUMENTS_JSON_H
#define REPORTS_DOCUMENTS_JSON_H

#include "reports/documents/documents.h"

/* Schema and version; the caller ends the document. */
void json_begin(struct writer *writer, struct text *text, const char *schema);
/* Into the open map: what was asked, and the same as a map of its own (NULL: nothing). */
void json_asked(const struct question_text *asked, struct writer *writer);
void json_question(const struct question_text *asked, struct writer *writer);
void json_plan(const struct plan *plan, struct writer *writer);
void json_prediction(const struct prediction *prediction, struct writer *writer);
/* "said_by": the list of targets; nothing where `names` is NULL. */
void json_said_by(int n, const char *const *names, struct writer *writer);
void json_check(const struct check *check, struct writer *writer);

#endif
