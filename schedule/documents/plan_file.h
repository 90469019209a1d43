/* plan.yaml: self-contained. `train`, `check`, `explain`, `export` open no other file. */
#ifndef SCHEDULE_PLAN_FILE_H
#define SCHEDULE_PLAN_FILE_H

#include "schedule/documents/prediction.h"
#include "schedule/plan/plan.h"

/* The question as the user put it, kept for the report. */
struct question_text {
	const char *model, *topology; /* as typed */
	const char *options;          /* "--gpus 4 --global-batch 32" */
};

struct plan_file {
	struct question_text question;
	struct model *model;
	struct topology *topology;
	struct plan plan;
	struct prediction prediction;
	const char *schedule_digest;
};

/* `shardplan: plan/1`. Reading checks model, topology and plan as if they were typed; it does not
 * rebuild the schedule (the caller compares digests). */
bool plan_file_parse(struct arena *arena, const char *name, const char *text, size_t length,
	struct plan_file *file, struct error *error);
void plan_file_write(const struct plan_file *file, struct text *text);

#endif
