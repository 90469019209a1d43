/* Makes a question from options, and a schedule and a prediction from a plan. */
#ifndef CLI_QUESTION_H
#define CLI_QUESTION_H

#include "cli/options/options.h"
#include "planner/planner.h"
#include "reports/reports.h"
#include "simulator/simulator.h"

/* The question, with model and topology loaded. */
struct asked {
	struct question question;
	struct question_text text;
	struct model *model;
	struct topology *topology;
};

/* Makes a question from both names as typed and from the options. Several strategies restrict the
 * search; `only_one` refuses them. */
bool ask(struct arena *arena, const char *model, const char *topology,
	const struct arguments *arguments, bool only_one, struct asked *asked, struct error *error);
/* Does the same from options alone, for a known model and topology. */
bool ask_options(struct arena *arena, const struct arguments *arguments, bool only_one,
	struct question *question, struct error *error);
/* Reads --for, for a question with model and topology. */
bool ask_wording(const struct arguments *arguments, struct arena *arena, struct question *question,
	struct error *error);
/* Reads --free. */
bool ask_levers(const struct arguments *arguments, struct arena *arena, struct question *question,
	struct error *error);
/* Keeps the axes of the user's plan where its batch is no multiple of the devices: only ranks that
 * share sequences can have it. */
void ask_same_batch(const struct plan *plan, struct question *question);
/* One plan: the question with defaults filled in. */
bool ask_plan(struct arena *arena, const char *model, const char *topology,
	const struct arguments *arguments, struct asked *asked, struct plan *plan,
	struct error *error);

/* The value of --threads, else the number of cores of the process. */
bool ask_threads(const struct arguments *arguments, int *threads, struct error *error);

/* planner_plan and planner_find, with a line on stderr if they take long (terminal.h). Ctrl-C stops
 * the first with the best plan so far (answer.interrupted), or with EXIT_CODE_INTERRUPTED if there
 * is none. */
bool plan_question(const struct question *question, int threads, struct arena *arena,
	struct answer *answer, struct error *error);
bool find_question(const struct question *question, int threads, enum find find, double target,
	struct arena *arena, struct finding *finding, struct error *error);

/* Does the same for fit_topology. */
bool fit_runs(const struct topology *topology, const struct fit_run *runs, int n, int threads,
	struct arena *arena, struct fitting *fitting, struct error *error);

/* A plan with its schedule and its simulation. */
struct evaluation {
	struct plan plan;
	struct schedule *schedule;
	const char *digest;
	struct simulation simulation;      /* .prediction.schedule_digest == digest */
	const struct timeline **timelines; /* of all classes; NULL: there is one class */
	struct schedule told; /* with the program of only the class that is explained */
};
/* The data for views and pages. It points into `evaluation`. */
struct explained evaluation_explained(const struct evaluation *evaluation);

/* What an evaluation computes beside step time and memory. */
enum evaluation_detail {
	EVALUATION_WHOLE,   /* everything */
	EVALUATION_FIGURES, /* no timelines; the schedule is folded, as operations are not listed */
	EVALUATION_BRIEF,   /* also no digest, for many cases */
	EVALUATION_POINT,   /* also no bounds and no full interval, for points of a curve */
};

/* Evaluates a plan with the question's model, topology and memory limit. */
bool plan_evaluate(const struct question *question, const struct plan *plan,
	enum evaluation_detail detail, struct arena *arena, struct evaluation *evaluation,
	struct error *error);

/* A plan file, read and compiled again. EXIT_CODE_INPUT if its digest differs from that of its
 * schedule, because the plan was edited or made by another version. */
struct opened {
	const char *path;
	const char *text;
	struct plan_file file;
	struct evaluation evaluation;
	/* The prediction is that of the file, or, if the file would be predicted otherwise now,
	 * what it would be, with a note. The timelines are those of the evaluation. */
};
bool open_plan(struct arena *arena, const char *path, struct opened *opened, struct error *error);
/* A measurement of a pipeline is of a rank of the first stage. This explains that stage; the bytes
 * sent by a rank are the mean over all. */
void opened_tell_measured(struct opened *opened);
/* The data for views; `measured` may be NULL. It points into `opened`. */
struct explained opened_explained(const struct opened *opened, const struct measurement *measured);

/* Prints the plan file of an evaluated plan. */
void print_plan(const struct question_text *text, struct model *model, struct topology *topology,
	const struct evaluation *evaluation, struct text *yaml);
/* Writes it to a file; a note says where it is. */
bool save_plan(struct arena *arena, const char *path, const struct question_text *text,
	struct model *model, struct topology *topology, const struct evaluation *evaluation,
	struct error *error);

/* --- MODEL, TOPOLOGY and files ---------------------------------------------------------------- */

/* Loads a model: a preset, also by its name on Hugging Face; a name in SHARDPLAN_PATH; a
 * config.json, the folder of one, or its text ("{..."); or a model file. */
bool input_model(struct arena *arena, const char *typed, struct model **model, struct error *error);

/* Loads a topology, and takes `gpus` devices of it (0: all): `local`, a catalogue name, NxNODE, a
 * name in SHARDPLAN_PATH (also NxNAME), or a file. */
bool input_topology(struct arena *arena, const char *typed, int64_t gpus,
	struct topology **topology, struct error *error);

/* Were the two typed in the wrong order? */
bool input_swapped(struct arena *arena, const char *model, const char *topology);

/* This machine with `ranks` CPU devices (0: one for each core), and the calibration that
 * `calibrate` saved. If there is none for this machine, a note on stderr says so and the topology
 * has none. */
bool input_local(
	struct arena *arena, int64_t ranks, struct topology **topology, struct error *error);
/* The GPUs of this machine, as their driver describes them. EXIT_CODE_ENVIRONMENT if there are
 * none. */
bool input_local_gpus(struct arena *arena, struct topology **topology, struct error *error);
/* The file where `calibrate` saves it: $XDG_CACHE_HOME/shardplan/local.yaml. EXIT_CODE_ENVIRONMENT
 * if neither that variable nor HOME is set. */
bool input_local_cache(struct arena *arena, const char **path, struct error *error);

/* What to type in the place of the third word of MODEL TOPOLOGY; NULL: nothing is known. */
const char *question_instead(const struct arguments *arguments, struct arena *arena);
/* What to type where a model was typed as PLAN.yaml; NULL: it is none. */
const char *input_instead_of_plan(struct arena *arena, const char *typed);

/* Reads a plan file; `contents` is its text. */
bool input_plan_file(struct arena *arena, const char *path, struct plan_file *file,
	const char **contents, struct error *error);

/* Reads a measurement of `file`'s schedule. EXIT_CODE_INPUT, at its place, if its digest is another
 * one. */
bool input_measurement(struct arena *arena, const char *path, const struct plan_file *file,
	struct measurement *measurement, struct error *error);
/* The same, but another schedule is allowed: `*same` says if it is the same one. */
bool input_any_measurement(struct arena *arena, const char *path, const struct plan_file *file,
	struct measurement *measurement, bool *same, struct error *error);

/* The path of a name in one of the folders of SHARDPLAN_PATH (separated by colons):
 * FOLDER/NAME.yaml, .json, or FOLDER/NAME/config.json. NULL: there is none. Names with a slash are
 * not searched. */
const char *search_path_find(struct arena *arena, const char *name);
/* All names that can be found there, NULL-terminated and sorted. */
const char **search_path_names(struct arena *arena, int *count);

#endif
