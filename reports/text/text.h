/* The face of text/: answers in words and tables, and the data of every document. */
#ifndef REPORTS_TEXT_TEXT_H
#define REPORTS_TEXT_TEXT_H

#include "reports/text/grid.h"
#include "reports/text/sections.h"
#include "reports/text/study.h"
#include "reports/text/summaries.h"
#include "reports/text/types.h"

/* --- plan, predict ------------------------------------------------------------------------- */
/* The answer on one screen: 24 lines of 100 columns, which a narrower terminal folds. */
void report_screen_text(const struct question *question, const struct answer *answer,
	const struct style *style, struct text *text);
/* The plans of `--pareto`; nothing where they were not asked for. */
void report_front_text(const struct answer *answer, const struct style *style, struct text *text);
/* The full answer: the chosen plan, the comparison of strategies, reasons, sensitivities. */
void report_answer_text(const struct question *question, const struct answer *answer,
	const struct style *style, struct text *text);
/* At most three warnings, one line each; and one line with the export targets that can express the
 * plan. */
void put_warnings(const struct answer *answer, struct text *text);
void put_said_by(int n, const char *const *names, struct text *text);
/* Parts of it: levers that would make the plan faster; options with which something fits. */
void report_levers_text(const struct answer *answer, const struct style *style, struct text *text);
void report_way_out_text(const struct answer *answer, const struct style *style, struct text *text);
/* `plan --compare`: the user's plan in text, and its part of `plan --json`. */
void report_comparison_text(
	const struct comparison *comparison, const struct style *style, struct text *text);
/* `plan --find`, and {schema: "shardplan/find/1", version, question, find, value, rows}. */
void report_finding_text(const struct question *question, const struct finding *finding,
	const struct style *style, struct text *text);
void report_prediction_text(const struct plan *plan, const struct model *model,
	const struct topology *topology, const struct prediction *prediction,
	const struct style *style, struct text *text);

/* `import`: the plan of a file beside the planner's for the same batch; NULL: there is none. */
void report_better_text(const struct plan *plan, const struct prediction *prediction,
	const struct candidate *best, struct text *text);

/* --- check, diagnose, train --- */
extern const struct tolerance report_default_tolerance;
/* Compares predicted and measured values line by line. The caller has compared the digests. */
void report_check(const struct schedule *schedule, const struct prediction *prediction,
	const struct measurement *measured, const struct tolerance *tolerance, struct arena *arena,
	struct check *check);
void report_check_text(const struct check *check, const struct style *style, struct text *text);

void report_diagnosis_text(
	const struct diagnosis *diagnosis, const struct style *style, struct text *text);
void report_figures_text(
	const struct figures_diagnosis *diagnosis, const struct style *style, struct text *text);

/* `topologies fit` */
void report_fitting_text(
	const struct fitting *fitting, const struct style *style, struct text *text);

void report_measurement_text(
	const struct measurement *measured, const struct style *style, struct text *text);

#endif
