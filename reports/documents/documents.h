/* The face of documents/: output for other programs. */
#ifndef REPORTS_DOCUMENTS_DOCUMENTS_H
#define REPORTS_DOCUMENTS_DOCUMENTS_H

#include "reports/text/text.h"

/* --- JSON --- */
/* `plan --json`: {schema: "shardplan/plan/1", version, question, chosen, alternatives, sensitivity,
 * proof}. */
void report_answer_json(const struct question *question, const struct question_text *asked,
	const struct answer *answer, struct text *text);
/* `plan --find`: {schema: "shardplan/find/1", version, question, find, value, rows}. */
void report_finding_json(
	const struct question_text *asked, const struct finding *finding, struct text *text);
void report_prediction_json(const struct question_text *asked, const struct plan *plan,
	const struct prediction *prediction, struct text *text);
/* Of `import`, which also has the planner's plan for the same batch and numbers; NULL: none fits.
 */
void report_imported_json(const struct question_text *asked, const struct plan *plan,
	const struct prediction *prediction, const struct candidate *planned, struct text *text);
void report_measurement_json(const struct question_text *asked, const struct plan *plan,
	const struct measurement *measured, struct text *text);
/* {schema: "shardplan/diagnose/1", version, bound, measured, predicted, causes}. */
void report_diagnosis_json(const struct diagnosis *diagnosis, struct text *text);
/* The diagnosis of a step time or an MFU: shardplan/figures/1. */
void report_figures_json(const struct figures_diagnosis *diagnosis, struct text *text);
/* `topologies fit --json`: {schema: "shardplan/fit/1", version, runs, constants, errors, spread,
 * topology}. */
void report_fitting_json(const struct fitting *fitting, struct text *text);
/* `explain --json`: {schema: "shardplan/explain/1", version, plan, prediction, operations, memory,
 * critical_path}. */
void report_explain_json(const struct explained *explained, struct text *text);
void report_check_json(const struct check *check, struct text *text);
/* {schema: "shardplan/report/1", version, reports: [...]}. */
void report_json(const struct report *reports, int n, struct text *text);

/* --- CSV --- */
/* `predict --cases`: the header and one row. A bad row has a NULL prediction and a `message`. The
 * cells of the question (`inputs`, NULL-terminated, or NULL) come last. */
void report_case_header(const char *const *inputs, struct text *text);
void report_case_row(const char *name, const struct prediction *prediction, const char *message,
	const char *const *inputs, struct text *text);
/* Does a column between `case` and the inputs have this name? */
bool report_has_case_column(const char *name);
/* As `predict --cases`: one row for each plan and alternative, with the reason why it lost in
 * `error`. Rows of measurements have "measured" there. */
void report_csv(const struct report *reports, int n, struct text *text);

/* --- traces --- */
/* A Chrome / Perfetto trace of the predicted step and, if there is one, the measured step. */
void report_trace(const struct explained *explained, struct text *text);
/* A PyTorch memory snapshot (pickle, with NUL bytes) of the step; of the measured one if there is
 * one. */
void report_snapshot(const struct explained *explained, struct text *text);

#endif
