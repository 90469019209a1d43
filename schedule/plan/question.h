/* struct question: what was asked, typed. It is filled once, at the edge: from options, settings, a
 * row of `predict --cases`, or another framework's file. */
#ifndef SCHEDULE_QUESTION_H
#define SCHEDULE_QUESTION_H

#include "schedule/plan/table.h"

struct topology;

enum objective { OBJECTIVE_TIME, OBJECTIVE_MEMORY, OBJECTIVE_NETWORK };
extern const char *const objective_names[];

/* The list of values for one knob. */
struct knob_list {
	int n;
	union knob_value *values;
};
enum { KNOB_LIST_MAX = 64 };

struct lent;

/* A configuration file in which plans have to be said (`plan --for`). */
struct wording {
	const char *name; /* "torchtitan" */
	const void *context;
	/* Turns a plan for this model and topology into the nearest one that the file can say. */
	void (*settle)(const void *context, const struct model *model,
		const struct topology *topology, struct arena *arena, struct plan *plan);
};

/* The memory of a device that must stay free; not given: the doubt of the prediction. */
struct headroom {
	bool given;
	double share; /* of the device's memory */
	int64_t bytes;
};

/* What a search is used for: each value needs less of it than the one before. */
enum wanted {
	WANTED_ALL,    /* runners-up, and of strategies that do not fit what misses by least */
	WANTED_RIVALS, /* the best of each strategy that is as good as the best of all, up to 1 % */
	WANTED_BEST,   /* the best of all */
	WANTED_ANY     /* whether any has room */
};

struct question {
	const struct model *model;
	const struct topology *topology;
	int64_t gpus;       /* that the topology was cut to; 0 = none was asked for */
	int64_t vocab;      /* words that the model was padded to; 0 = as it is */
	int64_t mtp_layers; /* modules of multi-token prediction that it was given; 0 = as it is */
	/* The fixed knobs: those in `given` (KNOB_BIT) have their values in `asked`. The rest takes
	 * its default, or is searched. */
	struct plan asked;
	uint64_t given;
	/* Of these, the work of a plan that is compared: it stays, but a lever may change it. */
	uint64_t kept;
	/* For other knobs: the only values that a search may choose, and those that it may not; n
	 * is 0 if there is no restriction. Values occur once. */
	struct knob_list only[KNOB_COUNT], forbidden[KNOB_COUNT];
	/* Levers (KNOB_LEVER) that the search may pull where they are open (KNOB_BIT), and those of
	 * them that some plan has to have. */
	uint64_t freed, freed_by_name;
	unsigned strategies;        /* bit s: strategy s is allowed; 0 = all that the runtime has */
	int64_t memory_limit_bytes; /* of one device; 0 = the device's memory */
	struct headroom headroom;
	/* The share by which a plan nearer to its framework's defaults may cost more. */
	double simplicity;
	enum objective objective;
	/* Plans whose blocks or units differ are wanted as options, and CPU offload where nothing
	 * fits without (only under the objective time, where those knobs were left open). */
	bool mixes;
	bool shares;  /* --layers-per-stage auto */
	bool divides; /* ranks may share a sequence, however short and many these are */
	bool pareto;  /* the Pareto front is wanted too */
	enum wanted wanted;
	bool brief;      /* no digest; of what each knob alone would change, levers only */
	bool thresholds; /* and where the decision changes: some fifty searches */
	int64_t beat; /* fs a token: slower plans, and those without room, are not looked at; 0: are
		       */
	int64_t effort; /* after which a search gives up; 0: the usual one, INT64_MAX: never */
	const struct wording *wording; /* NULL: whatever the runtime can do */
	const struct earlier
		*earlier;        /* what is known of a question that is alike; NULL: nothing */
	const struct lent *lent; /* what the planner may use of its caller's; NULL: nothing */
};

/* The nearest plan that the question's wording can say; `plan` where there is none. */
struct plan question_settle(
	const struct question *question, const struct plan *plan, struct arena *arena);
/* May a wording have a value of its own? The batch and the mesh are the user's and the planner's.
 */
bool wording_may_change(enum knob_id id);
/* Can the wording express the values that the question gives, for this plan of it? Else
 * EXIT_CODE_USAGE. */
bool question_is_said(const struct question *question, const struct plan *plan, struct arena *arena,
	struct error *error);

/* Was a value of the knob given? Is it neither given nor restricted? */
bool question_gives(const struct question *question, enum knob_id id);
bool question_is_open(const struct question *question, enum knob_id id);
/* Did the user leave it open? Then a lever, or another framework, may stand beside the answer. */
bool question_leaves(const struct question *question, enum knob_id id);

/* Gives a value: typed, of another plan, or from text (`where` starts the message). */
void question_put(struct question *question, enum knob_id id, union knob_value value);
void question_take(struct question *question, enum knob_id id, const struct plan *from);
/* How many ranks divide the model, along each axis. */
void question_take_axes(struct question *question, const struct plan *from);
bool question_set(struct question *question, enum knob_id id, const char *where, const char *text,
	struct arena *arena, struct error *error);
/* The same by the knob's name, for example "seq_len". EXIT_CODE_USAGE: there is none of that
 * name. */
bool question_set_by_name(struct question *question, const char *name, const char *where,
	const char *text, struct arena *arena, struct error *error);
/* Takes back what was given. */
void question_open(struct question *question, enum knob_id id);
/* Adds one value to `only`, or to `forbidden`. */
bool question_restrict(struct question *question, enum knob_id id, bool forbidden,
	const char *where, const char *text, struct arena *arena, struct error *error);

#endif
