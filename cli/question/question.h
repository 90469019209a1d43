/* From options to a question, and from a plan to its schedule and prediction. */
#ifndef CLI_QUESTION_H
#define CLI_QUESTION_H

#include "cli/options/options.h"
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
/* --for: the question has model and topology already. */
bool ask_wording(const struct arguments *arguments, struct arena *arena, struct question *question,
	struct error *error);
/* --free. */
bool ask_levers(const struct arguments *arguments, struct arena *arena, struct question *question,
	struct error *error);
/* One plan: what was asked, with defaults filled in. */
bool ask_plan(struct arena *arena, const char *model, const char *topology,
	const struct arguments *arguments, struct asked *asked, struct plan *plan,
	struct error *error);

/* --threads, else the cores of the process. */
bool ask_threads(const struct arguments *arguments, int *threads, struct error *error);

/* planner_plan and planner_find, with a line on stderr when they take long (terminal.h). Ctrl-C
 * ends the first with the best so far (answer.interrupted), or EXIT_CODE_INTERRUPTED without one.
 */
bool plan_question(const struct question *question, int threads, struct arena *arena,
	struct answer *answer, struct error *error);
bool find_question(const struct question *question, int threads, enum find find, double target,
	struct arena *arena, struct finding *finding, struct error *error);

/* fit_topology, likewise. */
bool fit_runs(const struct topology *topology, const struct fit_run *runs, int n, int threads,
	struct arena *arena, struct fitting *fitting, struct error *error);

/* A plan with its schedule and what the simulator says of it. */
struct evaluation {
	struct plan plan;
	struct schedule *schedule;
	const char *digest;
	struct simulation simulation;      /* .prediction.schedule_digest == digest */
	const struct timeline **timelines; /* of all classes; NULL: there is one */
	struct schedule told; /* with the program of the class alone that the simulation tells of */
};
/* What views and pages need of it. Points into `evaluation`. */
struct explained evaluation_explained(const struct evaluation *evaluation);

/* What is asked of an evaluation beside step time and memory. */
enum evaluation_detail {
	EVALUATION_WHOLE,   /* all of it */
	EVALUATION_FIGURES, /* no timelines, and the schedule is folded: nobody lists operations */
	EVALUATION_BRIEF,   /* nor a digest: for many cases */
	EVALUATION_POINT, /* nor bounds, nor an interval worth showing: for the points of a curve */
};

/* Of the question: model, topology and the limit of memory. */
bool plan_evaluate(const struct question *question, const struct plan *plan,
	enum evaluation_detail detail, struct arena *arena, struct evaluation *evaluation,
	struct error *error);

/* A plan file read and compiled again. EXIT_CODE_INPUT when its digest is not that of the schedule
 * it compiles to: the plan was edited, or made by another version. */
struct opened {
	const char *path;
	const char *text;
	struct plan_file file;
	struct evaluation evaluation;
	/* The prediction is the file's; the timelines are the evaluation's. */
};
bool open_plan(struct arena *arena, const char *path, struct opened *opened, struct error *error);
/* Beside a measurement of a pipeline, which is of a rank of the first stage, that stage is told of;
 * the bytes that a rank sends are the mean of all. */
void opened_tell_measured(struct opened *opened);
/* What the views need; `measured` may be NULL. Points into `opened`. */
struct explained opened_explained(const struct opened *opened, const struct measurement *measured);

/* plan.yaml of an evaluated plan; a note says where it is. */
bool save_plan(struct arena *arena, const char *path, const struct question_text *text,
	struct model *model, struct topology *topology, const struct evaluation *evaluation,
	struct error *error);

/* --- what MODEL, TOPOLOGY and files mean --- */

/* A preset, also by its name on Hugging Face, a name in SHARDPLAN_PATH, a config.json or model
 * file, the folder of a config.json, or the text of one: "{...". */
bool input_model(struct arena *arena, const char *typed, struct model **model, struct error *error);

/* `local`, a catalogue name, NxNODE, a name in SHARDPLAN_PATH (also NxNAME), or a file; of it
 * `gpus` devices (0 = all). */
bool input_topology(struct arena *arena, const char *typed, int64_t gpus,
	struct topology **topology, struct error *error);

/* Whether the two were typed in the wrong order. */
bool input_swapped(struct arena *arena, const char *model, const char *topology);

/* This machine with `ranks` CPU devices (0 = one per core) and the calibration that `calibrate`
 * cached. Without one, or with one of another machine, a note on stderr says so and the topology
 * carries none. */
bool input_local(
	struct arena *arena, int64_t ranks, struct topology **topology, struct error *error);
/* The GPUs of this machine, as its driver describes them. EXIT_CODE_ENVIRONMENT without. */
bool input_local_gpus(struct arena *arena, struct topology **topology, struct error *error);
/* Where `calibrate` puts it: $XDG_CACHE_HOME/shardplan/local.yaml. EXIT_CODE_ENVIRONMENT when
 * neither that nor HOME is set. */
bool input_local_cache(struct arena *arena, const char **path, struct error *error);

/* A plan file; `contents` is its text. */
bool input_plan_file(struct arena *arena, const char *path, struct plan_file *file,
	const char **contents, struct error *error);

/* A measurement of `file`'s schedule: another digest is EXIT_CODE_INPUT, at its place. */
bool input_measurement(struct arena *arena, const char *path, const struct plan_file *file,
	struct measurement *measurement, struct error *error);
/* The same, where it may be of another schedule: `*same` says. */
bool input_any_measurement(struct arena *arena, const char *path, const struct plan_file *file,
	struct measurement *measurement, bool *same, struct error *error);

/* A name to the path of a file or a config.json's folder in one of the folders of SHARDPLAN_PATH
 * (separated by colons): FOLDER/NAME.yaml, .json, or FOLDER/NAME/config.json. NULL when there is
 * none. Names with a slash are never searched. */
const char *search_path_find(struct arena *arena, const char *name);
/* Every name that can be found there, NULL-terminated, sorted. */
const char **search_path_names(struct arena *arena, int *count);

#endif
