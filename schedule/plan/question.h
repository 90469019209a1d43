/* struct question: what was asked, typed. It is filled once, at the edge: from options, settings, a
 * row of `predict --cases`, or another framework's file. */
#ifndef SCHEDULE_QUESTION_H
#define SCHEDULE_QUESTION_H

#include "schedule/plan/table.h"

struct topology;

enum objective { OBJECTIVE_TIME, OBJECTIVE_MEMORY, OBJECTIVE_NETWORK };
extern const char *const objective_names[];

/* What a list says of one knob. */
struct knob_list {
	int n;
	union knob_value *values;
};
enum { KNOB_LIST_MAX = 64 };

struct lent;

struct question {
	const struct model *model;
	const struct topology *topology;
	int64_t gpus; /* that the topology was cut to; 0 = none was asked for */
	/* What was fixed: the knobs of `given` (KNOB_BIT), of which `asked` has the values. The
	 * rest takes its default, or is searched. */
	struct plan asked;
	uint64_t given;
	/* Of other knobs: the only values that a search may choose from, and those that it may not;
	 * nothing where n is 0. Values stand once. */
	struct knob_list only[KNOB_COUNT], forbidden[KNOB_COUNT];
	unsigned strategies;        /* bit s: strategy s is allowed; 0 = all that the runtime has */
	int64_t memory_limit_bytes; /* of one device; 0 = the device's memory */
	enum objective objective;
	/* Plans whose blocks or units differ are wanted as options, and CPU offload where nothing
	 * fits without (only under the objective time, where those knobs were left open). */
	bool mixes;
	bool pareto;    /* the Pareto front is wanted too */
	int64_t effort; /* after which a search gives up; 0: the usual one, INT64_MAX: never */
	const struct lent *lent; /* what the planner may use of its caller's; NULL: nothing */
};

/* Was a value of the knob given? Is it neither given nor restricted? */
bool question_gives(const struct question *question, enum knob_id id);
bool question_is_open(const struct question *question, enum knob_id id);
/* Is the knob restricted to a list, or by what is forbidden? */
bool question_restricts(const struct question *question);

/* Gives a value: typed, of another plan, or from text (`where` starts the message). */
void question_put(struct question *question, enum knob_id id, union knob_value value);
void question_take(struct question *question, enum knob_id id, const struct plan *from);
bool question_set(struct question *question, enum knob_id id, const char *where, const char *text,
	struct arena *arena, struct error *error);
/* The same by the knob's name: "seq_len". EXIT_CODE_USAGE when there is none. */
bool question_set_by_name(struct question *question, const char *name, const char *where,
	const char *text, struct arena *arena, struct error *error);
/* Takes back what was given. */
void question_open(struct question *question, enum knob_id id);
/* Adds one value to `only`, or to `forbidden`. */
bool question_restrict(struct question *question, enum knob_id id, bool forbidden,
	const char *where, const char *text, struct arena *arena, struct error *error);

#endif
