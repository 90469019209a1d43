/* From options to a question, and from a plan to its schedule and prediction. */
#ifndef CLI_QUESTION_H
#define CLI_QUESTION_H

#include "cli/options.h"
#include "planner/planner.h"
#include "reports/reports.h"
#include "simulator/simulator.h"

/* What was asked, with model and topology loaded. */
struct asked {
	struct question question;
	struct question_text text;
	struct model *model;
	struct topology *topology;
};

/* Both names as typed, the rest from the options. One of several strategies is a set, not a
 * choice; `only_one` refuses several. */
bool ask(struct arena *arena, const char *model, const char *topology,
	const struct arguments *arguments, bool only_one, struct asked *asked, struct error *error);
/* The options alone, for a model and a topology that are known already. */
bool ask_options(struct arena *arena, const struct arguments *arguments, bool only_one,
	struct question *question, struct error *error);
/* One plan: what was asked, with defaults filled in. */
bool ask_plan(struct arena *arena, const char *model, const char *topology,
	const struct arguments *arguments, struct asked *asked, struct plan *plan,
	struct error *error);

/* planner_plan and planner_find, with a line on stderr when they take long (waiting.h). */
bool plan_question(const struct question *question, struct arena *arena, struct answer *answer,
	struct error *error);
bool find_question(const struct question *question, enum find find, double target,
	struct arena *arena, struct finding *finding, struct error *error);

/* A plan with its schedule and what the simulator says of it. */
struct evaluation {
	struct plan plan;
	struct schedule *schedule;
	const char *digest;
	struct simulation simulation; /* .prediction.schedule_digest == digest */
};

/* memory_limit: bytes of one device, 0 = its memory. */
bool plan_evaluate(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology, int64_t memory_limit, struct evaluation *evaluation,
	struct error *error);
/* The prediction alone: no digest, no timelines. For many cases. */
bool plan_evaluate_briefly(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology, int64_t memory_limit, struct evaluation *evaluation,
	struct error *error);

/* Step time and memory alone, for the points of a curve: no bounds, no interval worth showing. */
bool plan_evaluate_point(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology, int64_t memory_limit, struct evaluation *evaluation,
	struct error *error);

/* A plan file read and compiled again. EXIT_CODE_INPUT when its digest is not that of the schedule
 * it compiles to: somebody edited the plan, or another version made it. */
struct opened {
	const char *path;
	const char *text;
	struct plan_file file;
	struct evaluation evaluation;
	/* The prediction is the file's; the timelines are the evaluation's. */
};
bool open_plan(struct arena *arena, const char *path, struct opened *opened, struct error *error);
/* What the views need; `measured` may be NULL. Points into `opened`. */
struct explained opened_explained(const struct opened *opened, const struct measurement *measured);

/* plan.yaml of an evaluated plan. */
bool save_plan(struct arena *arena, const char *path, const struct question_text *text,
	struct model *model, struct topology *topology, const struct evaluation *evaluation,
	struct error *error);

#endif
