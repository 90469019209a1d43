/* The face of planner/: the best plan for a question, and why. */
#ifndef PLANNER_PLANNER_H
#define PLANNER_PLANNER_H

#include "schedule/schedule.h"

enum objective { OBJECTIVE_TIME, OBJECTIVE_MEMORY, OBJECTIVE_NETWORK };
extern const char *const objective_names[];

/* What one knob may be, or (`forbidden`) may not be. */
struct restriction {
	const char *knob; /* a field of struct plan, or "shard_group" */
	bool forbidden;
	int n;
	const char **values; /* as typed, all of them well-formed; each stands once */
};

enum { QUESTION_RESTRICTIONS_MAX = 48 };

struct question {
	const struct model *model;
	const struct topology *topology;
	struct choices choices; /* what the user fixed; the rest is searched */
	unsigned strategies;    /* bit s: strategy s is allowed; 0 = all that the runtime has */
	int n_restrictions;     /* of other knobs than the strategy */
	struct restriction restrictions[QUESTION_RESTRICTIONS_MAX];
	int64_t memory_limit_bytes; /* of one device; 0 = the device's memory */
	enum objective objective;
	bool pareto; /* the Pareto front is wanted too */
};

/* SLOWER: fits and lost, by whatever the objective counts. */
enum verdict { VERDICT_CHOSEN, VERDICT_SLOWER, VERDICT_DOES_NOT_FIT, VERDICT_IMPOSSIBLE };
extern const char *const verdict_names[];

struct candidate {
	struct plan plan;
	struct prediction prediction;
	enum verdict verdict;
	const char *why_not; /* one sentence with numbers; "" for the chosen one. IMPOSSIBLE: why
				no plan could be made; the prediction is zeroed then */
};

/* One row of a sensitivity table: what would happen if one knob of the chosen plan changed. */
struct sensitivity {
	const char *knob, *value;
	double step_time; /* s; 0 when it does not fit or cannot be built */
	int64_t peak_memory_bytes;
	const char *note;
};

struct answer {
	const struct candidate *chosen; /* NULL: nothing fits */
	int n_alternatives;
	struct candidate *alternatives; /* the best of every other strategy first (those that fit in
					   order, those that do not by how much, impossible ones),
					   then runners-up (docs/planner.md) */
	/* question->pareto: plans that no other of the space beats by more than 1 % in any of step
	 * time, device memory, host memory and bytes on the network without losing another; by
	 * the objective. */
	int n_front;
	struct candidate *front;
	int n_reasons;
	const char **reasons; /* the defence, sentence by sentence */
	int n_sensitivities;
	struct sensitivity *sensitivities;
	int64_t evaluated; /* candidates simulated */
	int64_t pruned;    /* candidates dropped by a bound */
	double gap;        /* of the objective; 0 = optimal within the space and the model */
	double bound; /* s: least bound of what was not simulated; the chosen time if nothing */
};

/* EXIT_CODE_USAGE when the question contradicts itself. Nothing fitting is not an error. */
bool planner_plan(const struct question *question, struct arena *arena, struct answer *answer,
	struct error *error);

#endif
