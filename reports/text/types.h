/* The data that reports describe. */
#ifndef REPORTS_TEXT_TYPES_H
#define REPORTS_TEXT_TYPES_H

#include "planner/planner.h"
#include "schedule/documents/documents.h"
#include "schedule/schedule.h"

/* The style of text for people. */
struct style {
	bool color; /* ANSI colours */
	int width;  /* columns; 0: unlimited */
};

/* A step, for views and documents. */
struct explained {
	const struct schedule *schedule; /* programs[0] is that of the class that is explained */
	/* Pipelines: the schedule with all classes, and the predicted timeline of each. NULL: there
	 * is one class. */
	const struct schedule *whole;
	const struct timeline *const *stages;
	const struct prediction *prediction;
	const struct timeline *predicted;
	const struct memory_curve *memory;
	const struct critical_path *critical;
	const struct measurement *measured; /* NULL without --analyze */
	/* Configuration files that can express the plan unchanged; NULL: not known. */
	int n_said_by;
	const char *const *said_by;
};

/* --- check --- */
struct tolerance {
	double time;   /* relative; < 0: times are reported, not judged */
	double memory; /* relative, for PSS: 0.10 */
	/* Bytes. A smaller prediction is not judged by PSS, because a process's own needs (stacks,
	 * code, gaps between blocks) are not small beside it. */
	double memory_from;
	/* Tolerance of a GPU's own account, relative; and bytes by which it may grow in the steps,
	 * because the driver allocates pages of 2 MiB, for itself too. */
	double device, device_growth;
};
/* Times are reported; memory is judged within 10 % from 200 MB on, of a GPU within 3 % and four
 * pages. */
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
	int stages;      /* of a pipeline, of which a rank of the first stage is judged; else 0 */
	bool sends_rows; /* to experts of other ranks */
	bool prior;      /* the CPUs were not calibrated, so predicted times are rough */
	/* Seconds of the yardstick's matrix product now over those at calibration, which is how
	 * much slower the machine was: before the run, after it, and their mean; 0: not known. */
	double slower_before, slower_after, slower;
	/* The step time and the range predicted for the machine's speed during the run. NULL: the
	 * speed is not known; 0: there is no range. */
	const struct check_line *at_speed;
	double at_speed_low, at_speed_high;
};

/* --- report --- */
/* Predictions of plans when one quantity changes (more nodes, a faster link). Each plan stays as it
 * is except for what follows from the quantity. */
struct study_point {
	bool built; /* the plan can be made there */
	enum fits fits;
	double step_time, tokens_per_s_per_gpu, exposed; /* s, 1/s, s */
	int64_t peak_memory_bytes;
};
struct study_line {
	const char *name; /* of the plan, "FULL_SHARD" */
	int style;        /* of its marks; one for each strategy */
	struct plan plan; /* at `here` */
	struct study_point *points;
};
struct study {
	const char *quantity; /* "nodes", "bandwidth out of a node" */
	const char *unit;     /* "nodes" or "", written after a value in a sentence */
	int n_points;
	const double *values;     /* nodes, devices, or B/s */
	const char *const *names; /* of the values, for people */
	int here;                 /* index of the value in the question; -1: none */
	int n_lines;              /* lines[0] is the plan of the report */
	struct study_line *lines;
};

struct report {
	struct question_text asked;
	const struct question *question;
	const struct answer *answer; /* NULL when the alternatives are not known */
	struct explained explained;
	const struct check *check;          /* NULL without a measurement */
	const struct study *scaling, *link; /* NULL: nothing can be varied */
	const char *label; /* its name beside other reports, for example a file's; may be NULL */
};

#endif
