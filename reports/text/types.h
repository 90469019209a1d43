/* What is reported on. */
#ifndef REPORTS_TEXT_TYPES_H
#define REPORTS_TEXT_TYPES_H

#include "planner/planner.h"
#include "schedule/documents/documents.h"
#include "schedule/schedule.h"

/* How text for people is drawn. */
struct style {
	bool color; /* ANSI colours */
	int width;  /* columns; 0 = as wide as needed */
};

/* A step, for views and documents. */
struct explained {
	const struct schedule *schedule; /* programs[0] is that of the class that is told of */
	/* Pipelines: the schedule with all classes, and the predicted timeline of each. NULL: there
	 * is one class. */
	const struct schedule *whole;
	const struct timeline *const *stages;
	const struct prediction *prediction;
	const struct timeline *predicted;
	const struct memory_curve *memory;
	const struct critical_path *critical;
	const struct measurement *measured; /* NULL without --analyze */
	/* Configuration files that say the plan unchanged; NULL: it is not known. */
	int n_said_by;
	const char *const *said_by;
};

/* --- check --- */
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
	int stages;      /* of a pipeline, of which a rank of the first is judged; else 0 */
	bool sends_rows; /* to experts of other ranks */
	/* Seconds of the fixed product now over those of the calibration: how much slower the
	 * machine was. Before and after the run, and their mean; 0: not known. */
	double slower_before, slower_after, slower;
	/* The step at that speed, and the range that is predicted for it; NULL where it is not
	 * known, 0 without a range. */
	const struct check_line *at_speed;
	double at_speed_low, at_speed_high;
};

/* --- report --- */
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

#endif
