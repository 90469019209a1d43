/* What each stage of a pipeline computes: passes over one of its chunks, each for one micro-batch.
 * For the view `pipeline`, as text and as a picture. */
#ifndef REPORTS_VIEWS_PIPELINE_PASSES_H
#define REPORTS_VIEWS_PIPELINE_PASSES_H

#include "reports/text/text.h"

/* How a part of the step is drawn. */
struct pass_kind {
	const char *name;
	const char *fill; /* in a picture */
	char first;       /* in text, for the first micro-batch; 0: not drawn */
	bool counts;      /* later micro-batches count up from `first` */
};
/* The kind of pass of an operation; first is 0 if it computes nothing. */
struct pass_kind pass_kind(enum op_kind kind);

/* A pass, from its first operation to its last one, with collectives between them. Times count from
 * the moment at which the last stage begins the step. */
struct stage_pass {
	enum op_kind kind; /* of the last operation */
	int micro_batch;   /* -1: none, it is of the whole step */
	int chunk;         /* index among the stages of its rank */
	double start, end; /* s */
};

/* Seconds from the moment at which the last stage begins the step until all stages have ended
 * it. */
double pipeline_end(const struct explained *explained);
/* The number of stages; 1: no pipeline. */
int stage_count(const struct explained *explained);
/* The passes in the order in which they run, from `arena`. Returns their number. */
int passes_of(const struct explained *explained, int stage, struct arena *arena,
	struct stage_pass **passes);

#endif
