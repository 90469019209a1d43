/* Shared by the JSON documents: {schema, version, question, ...}. docs/schema/ describes each. */
#ifndef REPORTS_DOCUMENTS_JSON_H
#define REPORTS_DOCUMENTS_JSON_H

#include "reports/documents/documents.h"

/* Writes schema and version. The caller ends the document. */
void json_begin(struct writer *writer, struct text *text, const char *schema);
/* Writes the question as text, and as a map of its own (NULL: not), into the open map. */
void json_asked(const struct question_text *asked, struct writer *writer);
void json_question(const struct question_text *asked, struct writer *writer);
void json_plan(const struct plan *plan, struct writer *writer);
void json_prediction(const struct prediction *prediction, struct writer *writer);
/* Writes "said_by", the list of targets. Writes nothing if `names` is NULL. */
void json_said_by(int n, const char *const *names, struct writer *writer);
void json_check(const struct check *check, struct writer *writer);

#endif
