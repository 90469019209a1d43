/* What each stage of a pipeline computes: passes over one of its chunks, each for one micro-batch.
 * For the view `pipeline`, as text and as a picture. */
#ifndef REPORTS_VIEWS_PIPELINE_PASSES_H
#define REPORTS_VIEWS_PIPELINE_PASSES_H

#include "reports/text/text.h"

/* A part of the step, as it is drawn. */
struct pass_kind {
	const char *name;
	const char *fill; /* of a picture */
	char first;       /* in text, of the first micro-batch; 0: it is not drawn */
	bool counts;      /* micro-batches go on from `first` */
};
/* Of an operation of that kind; first is 0 where it computes nothing. */
struct pass_kind pass_kind(enum op_kind kind);

/* From the first operation of a pass to its last one, collectives between them included. Times
 * count from when the last stage begins the step. */
struct stage_pass {
	enum op_kind kind; /* of the last one */
	int micro_batch;   /* -1: of the step */
	int chunk;         /* which of the stages that its ranks have */
	double start, end; /* s */
};

/* S from when the last stage begins the step until all have ended it. */
double pipeline_end(const struct explained *explained);
/* Stages that there are; 1: no pipeline. */
int stage_count(const struct explained *explained);
/* In the order in which they run, from `arena`. Returns their number. */
int passes_of(const struct explained *explained, int stage, struct arena *arena,
	struct stage_pass **passes);

#endif
