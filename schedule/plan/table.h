/* The table of knobs: one row a knob. Options, columns of `predict --cases`, keys of plan files and
 * JSON, completion, manual, `help defaults` and what the search may turn all come from it. */
#ifndef SCHEDULE_PLAN_TABLE_H
#define SCHEDULE_PLAN_TABLE_H

#include "schedule/plan/knobs.h"

/* Sets of knobs, such as those that were given. */
#define KNOB_BIT(id)   (UINT64_C(1) << (id))
#define KNOBS_OF_FILES (KNOB_BIT(KNOB_IN_MESH) - 1) /* all keys of a plan but the mesh */
_Static_assert(KNOB_COUNT <= 64, "sets of knobs are 64 bits");

enum knob_group {
	KNOB_GROUP_BATCH,
	KNOB_GROUP_AXES,
	KNOB_GROUP_SHARDING,
	KNOB_GROUP_COMPUTE,
	KNOB_GROUP_COUNT
};
extern const char *const knob_group_names[];

/* What a knob is to those who walk the table. */
enum knob_role {
	KNOB_ONE_VALUE = 1,      /* a question has one value of it, never a list to search */
	KNOB_WORK = 2,           /* plans that differ in it do other work: nothing to compare */
	KNOB_IN_TIME = 4,        /* moves work in time, adds and removes none */
	KNOB_NO_LOAD = 8,        /* says nothing of what is computed (planner's bounds) */
	KNOB_NO_SHAPE = 16,      /* says nothing of what is kept and moved (planner's bounds) */
	KNOB_VARIED = 32,        /* stays where it is while others vary, as if it had been typed */
	KNOB_COMPARED = 64,      /* changed alone beside the user's plan (`plan --compare`) */
	KNOB_IN_STUDY = 128,     /* named in a study's rows where it differs */
	KNOB_FOLLOWS = 256,      /* other strategies have their own value of it */
	KNOB_OF_TRAIN = 512,     /* `train` takes it too */
	KNOB_ZERO_UNSAID = 1024, /* zero is left out of a schedule's text: digests stay */
	KNOB_HAS_COMMAS = 2048,  /* a value may hold commas: none of them is a list */
	/* A lever: one line of the training script, or of its environment, changes it and leaves
	 * the mathematics as it is (`plan --free`); it may have a value of `levers`. */
	KNOB_LEVER = 4096,
	KNOB_NEVER_WORSE = 8192, /* and its values of `levers` cost neither time nor memory */
};

struct knob {
	struct field field; /* name, type, member of struct plan, names of its values */
	enum knob_group group;
	unsigned roles;      /* enum knob_role */
	unsigned runtimes;   /* bit r: has the knob; others only its first value. 0: all have it;
				which values: struct runtime */
	unsigned levers;     /* bit v: value v may be freed; wrapping has its own (space_wraps) */
	int gpu, cpu;        /* default: value, or index in names */
	const char *refusal; /* what to do where the runtime does not honour a value */
	const char *metavar; /* of the option; NULL: the names of the values */
	const char *help;
	const char *shown, *remark; /* `help defaults`: instead of the value, beside it; or NULL */
};

extern const struct knob knob_table[KNOB_COUNT];
/* The axes that divide the model: numbers of ranks. */
enum { KNOBS_OF_AXES = 3 };
extern const enum knob_id knobs_of_axes[KNOBS_OF_AXES];
/* The order of options: by group, and within it as one would explain them. */
extern const enum knob_id knobs_in_help[KNOB_COUNT];

/* The knob of that name ("seq_len"); KNOB_COUNT when there is none. */
enum knob_id knob_find(const char *name);
/* The values of a choice or a switch that the runtime honours: bit v. All bits for other types. */
unsigned knob_values(enum knob_id id, enum runtime_kind runtime);
bool knob_honoured(enum knob_id id, enum runtime_kind runtime, int value);
/* Does the plan's runtime honour its value? */
bool knob_is_honoured(enum knob_id id, const struct plan *plan);
/* A value that the plan's runtime does not honour becomes the first that it does. */
void knob_take_honoured(enum knob_id id, struct plan *plan);
/* What turns the knob off, as one would type it: "off", "none"; NULL when nothing does. */
const char *knob_off(const struct knob *knob);
/* All knobs of a role. */
uint64_t knobs_of_role(enum knob_role role);

/* A value by itself, as lists and axes hold it: of a knob's own type. */
union knob_value {
	bool on;
	int choice;
	int64_t number;
	double real;
	struct rows rows;
	struct wrap_policy wrap;
	struct libraries libraries;
	struct name_set names;
	struct trainable trainable;
};

/* Value `choice` of a switch or of a knob with names, of which it has so many; else 0. */
union knob_value knob_value_of(enum knob_id id, int choice);
int knob_n_values(enum knob_id id);
const char *knob_name(enum knob_id id, int choice);
void knob_put(enum knob_id id, struct plan *plan, union knob_value value);
union knob_value knob_get(enum knob_id id, const struct plan *plan);
/* Are two values one? "2e7" and "20000000" are. */
bool knob_value_equal(enum knob_id id, union knob_value a, union knob_value b);
const char *knob_value_typed(enum knob_id id, union knob_value value, struct arena *arena);

/* The default of the table; where it depends on the model or on other knobs, zero. */
void knob_set_default(enum knob_id id, struct plan *plan, bool cpu);
/* "seq-len" */
const char *knob_option(enum knob_id id, struct arena *arena);

/* One knob of a plan: compared, printed as it would stand in YAML. */
bool knob_equal(enum knob_id id, const struct plan *a, const struct plan *b);
/* Are all keys of the plans alike but those of the set? The mesh is not looked at. */
bool knobs_alike_but(uint64_t ignored, const struct plan *a, const struct plan *b);
void knob_print(enum knob_id id, const struct plan *plan, struct text *text);
const char *knob_text(enum knob_id id, const struct plan *plan, struct arena *arena);
/* As one would type it: "on", and no quotes. */
const char *knob_typed(enum knob_id id, const struct plan *plan, struct arena *arena);

#endif
