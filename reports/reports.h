/* The face of reports/: views and writers. Everything is text in a struct text. */
#ifndef REPORTS_REPORTS_H
#define REPORTS_REPORTS_H

#include "planner/planner.h"
#include "schedule/schedule.h"

/* How text for people is drawn. */
struct style {
	bool color; /* ANSI colours */
	int width;  /* columns; 0 = as wide as needed */
};

/* --- plan, predict ------------------------------------------------------------------------- */
/* The defended answer: the winner, the comparison of strategies, reasons, sensitivities. */
void report_answer_text(const struct question *question, const struct answer *answer,
	const struct style *style, struct text *text);
/* `plan --json`: {schema: "shardplan/plan/1", version, question, chosen, alternatives, sensitivity,
 * proof}. */
void report_answer_json(const struct question *question, const struct question_text *asked,
	const struct answer *answer, struct text *text);
/* `plan --compare`: the user's plan; its part of `plan --json`. */
void report_comparison_text(
	const struct comparison *comparison, const struct style *style, struct text *text);
void comparison_write(const struct comparison *comparison, struct writer *writer);
/* `plan --find`, and {schema: "shardplan/find/1", version, question, find, value, rows}. */
void report_finding_text(const struct question *question, const struct finding *finding,
	const struct style *style, struct text *text);
void report_finding_json(
	const struct question_text *asked, const struct finding *finding, struct text *text);
void report_prediction_text(const struct plan *plan, const struct model *model,
	const struct topology *topology, const struct prediction *prediction,
	const struct style *style, struct text *text);
void report_prediction_json(const struct question_text *asked, const struct plan *plan,
	const struct prediction *prediction, struct text *text);
/* `predict --cases`: the header, and one row; a NULL prediction with `message` is a bad row. */
void report_case_header(struct text *text);
void report_case_row(const char *name, const struct prediction *prediction, const char *message,
	struct text *text);

/* `import`: the plan of a file beside the planner's for the same batch; NULL: there is none. */
void report_better_text(const struct plan *plan, const struct prediction *prediction,
	const struct candidate *best, struct text *text);

/* --- explain ------------------------------------------------------------------------------- */
/* One question a view; the table lists them for `explain --view`. */
struct explained {
	const struct schedule *schedule;
	const struct prediction *prediction;
	const struct timeline *predicted;
	const struct memory_curve *memory;
	const struct critical_path *critical;
	const struct measurement *measured; /* NULL without --analyze */
};
struct view {
	const char *name, *question;
	void (*write)(
		const struct explained *explained, const struct style *style, struct text *text);
	void (*draw)(const struct explained *explained, struct text *text); /* SVG; NULL: none */
};
/* summary, operations, streams, memory, critical, units, communication, layout */
extern const struct view report_views[];
extern const int n_report_views;
const struct view *report_view(const char *name); /* NULL when unknown */

/* `explain --json`: {schema: "shardplan/explain/1", version, plan, prediction, operations, memory,
 * critical_path}. */
void report_explain_json(const struct explained *explained, struct text *text);

/* --- check --------------------------------------------------------------------------------- */
struct tolerance {
	double time;   /* relative; < 0 = times are reported, not judged */
	double memory; /* relative, for PSS: 0.10 */
	/* Bytes: a smaller prediction is not judged by PSS, for what a process needs anyway
	 * (stacks, code, gaps between blocks) is not small beside it. */
	double memory_from;
	/* Of a GPU: its own account, relative; bytes by which that may grow in the steps, for the
	 * driver hands memory out, also to itself, in pages of 2 MiB. */
	double device, device_growth;
};
/* Times reported, memory within 10 % from 200 MB on; of a GPU 3 %, and four pages. */
extern const struct tolerance report_default_tolerance;
struct check_line {
	const char *what, *unit;
	double predicted, measured;
	bool exact; /* judged exactly */
	bool judged;
	bool ok;
};
struct check {
	int n_lines;
	struct check_line *lines; /* from `arena` */
	bool ok;
};
/* Predicted beside measured, line by line. The caller has compared the digests. */
void report_check(const struct schedule *schedule, const struct prediction *prediction,
	const struct measurement *measured, const struct tolerance *tolerance, struct arena *arena,
	struct check *check);
void report_check_text(const struct check *check, const struct style *style, struct text *text);
void report_check_json(const struct check *check, struct text *text);

/* --- diagnose ------------------------------------------------------------------------------ */
void report_diagnosis_text(
	const struct diagnosis *diagnosis, const struct style *style, struct text *text);
/* {schema: "shardplan/diagnose/1", version, bound, measured, predicted, causes}. */
void report_diagnosis_json(const struct diagnosis *diagnosis, struct text *text);

/* --- train --------------------------------------------------------------------------------- */
void report_measurement_text(
	const struct measurement *measured, const struct style *style, struct text *text);
void report_measurement_json(const struct question_text *asked, const struct plan *plan,
	const struct measurement *measured, struct text *text);

/* --- report, trace ------------------------------------------------------------------------- */
/* What becomes of plans when one quantity changes (more nodes, a faster link), each plan as it is
 * but for what follows from it. */
struct study_point {
	bool built; /* the plan exists there */
	enum fits fits;
	double step_time, tokens_per_s_per_gpu, exposed; /* s, 1/s, s */
	int64_t peak_memory_bytes;
};
struct study_line {
	const char *name; /* of the plan, "FULL_SHARD" */
	int style;        /* of its marks: one for each strategy */
	struct plan plan; /* at `here` */
	struct study_point *points;
};
struct study {
	const char *quantity; /* "nodes", "bandwidth out of a node" */
	const char *unit;     /* after a name in a sentence: "nodes", "" */
	int n_points;
	const double *values;     /* nodes, devices, or B/s */
	const char *const *names; /* of the values, for people */
	int here;                 /* index of what was asked; -1 = none */
	int n_lines;              /* lines[0] is the plan of the report */
	struct study_line *lines;
};

struct report {
	struct question_text asked;
	const struct question *question;
	const struct answer *answer; /* NULL when the alternatives are not known */
	struct explained explained;
	const struct check *check;          /* NULL without a measurement */
	const struct study *scaling, *link; /* NULL when there is nothing to vary */
	const char *label; /* what tells it from others beside it: a file's name; may be NULL */
};
/* One self-contained page: no script from elsewhere, no request, light and dark, phone and paper.
 * Several reports stand side by side first, then one after the other. n >= 1. */
void report_html(const struct report *reports, int n, struct text *text);
void report_markdown(const struct report *reports, int n, struct text *text);
/* {schema: "shardplan/report/1", version, reports: [...]}. */
void report_json(const struct report *reports, int n, struct text *text);
/* As `predict --cases`: a row for each plan and alternative, `error` saying why it lost; rows of
 * measurements have "measured" in `error`. */
void report_csv(const struct report *reports, int n, struct text *text);
/* Chrome / Perfetto trace of the predicted and, if there is one, the measured step. */
void report_trace(const struct explained *explained, struct text *text);
/* A PyTorch memory snapshot (pickle, with NUL bytes) of the step, measured where it was. */
void report_snapshot(const struct explained *explained, struct text *text);

#endif
