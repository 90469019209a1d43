/* Evaluates candidates: builds the schedule of a plan and simulates it. */
#ifndef PLANNER_EVALUATION_EVALUATION_H
#define PLANNER_EVALUATION_EVALUATION_H

#include "planner/bounds/bounds.h"
#include "planner/evaluation/ranking.h"
#include "planner/evaluation/several.h"
#include "planner/space/space.h"

/* One arena for everything that a candidate needs, emptied before each. */
struct evaluator {
	const struct question *question;
	struct arena scratch;
	struct arena simulating; /* what a simulation needs while it runs */
	struct divided_models divided;
	const struct divided_models *known; /* models that others have divided; or NULL */
	int64_t evaluated;                  /* plans */
};

/* What communication costs one step, seconds. */
struct exposure {
	double seconds[COLLECTIVES_OF_STEPS];    /* a collective runs, and no compute */
	bool over_network[COLLECTIVES_OF_STEPS]; /* more than half of that is between nodes */
	double slowed;                           /* by how much compute takes longer than alone */
	double idle; /* nothing runs; without bubbles and stalls of the allocator */
};

/* Lower bounds of a plan's memory by its own schedule (bounds.h), bytes of a device. The first
 * looks at all stages of a pipeline, up to one that has too much; the second at its last stage. */
int64_t evaluator_bound_memory(struct evaluator *evaluator, const struct plan *plan);
int64_t evaluator_bound_last(struct evaluator *evaluator, const struct plan *plan);
/* Do a pipeline's fullest stages hold more than a device has? Takes a tenth of a simulation.
 * `held`: bytes in use at once, which no retry frees; above `enough` no further stage is looked at.
 * NULL: nor behind the first one that has too much. */
bool evaluator_stages_overflow(
	struct evaluator *evaluator, const struct plan *plan, int64_t enough, int64_t *held);
/* Lower bounds of a pipeline's step time and traffic by its own schedule (bounds.h); 0: none. */
struct bound evaluator_bound_path(struct evaluator *evaluator, const struct plan *plan);
double evaluator_bound_time(struct evaluator *evaluator, const struct plan *plan);
/* As evaluator_run, but steps longer than `slow` seconds (0: none) have their time only and do not
 * count as evaluated. The time of a pipeline, or of a plan that does not fit, is then a bound. */
bool evaluator_run_unless_slow(struct evaluator *evaluator, const struct plan *plan, double slow,
	struct prediction *prediction, struct error *error);
/* The step time and the memory bound only, which takes a tenth of the time and is not counted. */
bool evaluator_run_time(struct evaluator *evaluator, const struct plan *plan, double *step_time,
	int64_t *memory, struct error *error);
/* Simulates a plan, without lower bounds and ledger. EXIT_CODE_USAGE: its schedule cannot be built.
 * Strings live in `scratch` until the next call. */
bool evaluator_run(struct evaluator *evaluator, const struct plan *plan,
	struct prediction *prediction, struct error *error);
/* The whole prediction, and the exposed communication; strings come from `arena`. */
bool evaluator_run_closely(struct evaluator *evaluator, const struct plan *plan,
	struct arena *arena, struct prediction *prediction, struct exposure *exposure,
	struct error *error);
/* The same; of a plan without room the memory is 0, and the step time of a pipeline is a bound. */
bool evaluator_judge_closely(struct evaluator *evaluator, const struct plan *plan,
	struct arena *arena, struct prediction *prediction, struct exposure *exposure,
	struct error *error);
/* The interval of a pipeline's step time and what decides it, which the calls above only guess. */
void evaluator_interval(struct evaluator *evaluator, const struct plan *plan, struct arena *arena,
	struct prediction *prediction);
/* A copy whose strings come from `arena`. */
struct prediction evaluator_kept(const struct prediction *prediction, struct arena *arena);
/* The digest of the plan's schedule. It takes longer than most simulations. */
const char *evaluator_digest(
	struct evaluator *evaluator, const struct plan *plan, struct arena *arena);
/* evaluator_run on another topology. */
bool evaluator_run_on(struct evaluator *evaluator, const struct topology *topology,
	const struct plan *plan, struct prediction *prediction, struct error *error);
/* Does the plan fit with room? Its memory is filled only then; its step time is without retries
 * (MEMORY_FITS). A step that takes longer than `slow` seconds (0: never) is said to fit unseen. */
bool evaluator_judge_on(struct evaluator *evaluator, const struct topology *topology,
	const struct plan *plan, double slow, struct prediction *prediction, struct error *error);
bool evaluator_judge(struct evaluator *evaluator, const struct plan *plan,
	struct prediction *prediction, struct error *error);
/* The whole prediction as if no device had a limit (MEMORY_UNLIMITED). */
bool evaluator_run_unlimited(struct evaluator *evaluator, const struct plan *plan,
	struct prediction *prediction, struct error *error);
void evaluator_release(struct evaluator *evaluator);
void evaluator_finish(struct evaluator *evaluator);

/* --- doubt.c ---------------------------------------------------------------------------------- */

/* Bytes by which a plan may need more than predicted, with 80 % confidence; 0 on CPUs. */
double memory_doubt(const struct question *question, const struct plan *plan, double needed);
/* The separate sources of that doubt. Returns their number. */
int memory_doubts(const struct question *question, const struct plan *plan, double needed,
	struct doubt doubts[DOUBTS_MAX]);

/* --- room.c ----------------------------------------------------------------------------------- */

/* Does the plan fit, with the question's headroom left free? */
bool has_room(const struct question *question, const struct plan *plan,
	const struct prediction *prediction);
/* Bytes that have to stay free beside what the plan needs. */
int64_t headroom_bytes(const struct question *question, const struct plan *plan,
	const struct prediction *prediction);
/* Has a plan that needs at least `least` bytes surely no room on a device of `limit` bytes? */
bool surely_lacks_room(
	const struct question *question, const struct plan *plan, int64_t least, int64_t limit);

/* --- what a search knows so far --------------------------------------------------------------- */

/* The result of evaluator_judge_closely, kept so that the plan is not simulated again. */
struct close_look {
	struct arena arena;
	struct prediction prediction;
	struct exposure exposure;
};

struct known {
	bool tightened; /* its bound of memory comes from its own schedule */
	bool followed;  /* a pipeline whose bound of time comes from its own schedule */
	bool looked_at; /* a pipeline whose fullest stages have room, and that was simulated */
	bool timed;     /* `bound` has its step time and the memory bound of its own schedule */
	bool taken;     /* its bound of time is its step time */
	bool is_short;  /* it does not fit, or only with retries of the allocator */
	bool overflows; /* it was simulated, and does not fit: `bound` has what it surely needs */
	bool is_last;   /* it lets all others go first, and has done so */
	bool ready;     /* `fits` and `costs` are known, maybe before its turn */
	bool simulated; /* it had its turn */
	bool refused;   /* its schedule cannot be built */
	struct bound bound;
	enum fits fits;
	bool has_room;
	int64_t needed; /* bytes of a device (prediction_needed_bytes) */
	struct costs costs;
	double path;  /* s: a pipeline's bound of time by its own schedule; 0: not known */
	int64_t held; /* bytes: the same of memory */
	struct close_look *look; /* malloc'ed; NULL: it was not simulated closely */
};

struct search {
	const struct question *question;
	struct space space;
	struct bounds bounds;
	struct evaluator evaluator;
	struct evaluators workers; /* for plans that are simulated before their turn */
	struct ranking ranking;
	struct known *known; /* [space.n] malloc'ed */
	int64_t effort;      /* blocks x micro-batches simulated since the first plan that fits */
	bool given_up;       /* the effort was spent before all plans were looked at */
	int64_t limit;       /* bytes of one device */
	int64_t evaluated;   /* plans that had their turn, refused ones too */
	int64_t pruned;
	int64_t pipelines;     /* plans with a pipeline that have room and a known step time */
	bool stopped;          /* the caller wants no more (lent.go_on) */
	int64_t least_left;    /* lower bound of the objective of plans not seen; -1: not known */
	bool offloads;         /* this search uses CPU offload, because nothing fits without */
	int64_t least_without; /* then: bytes that the closest plan without offload needs */
	double unshared; /* s of the best plan's step with its framework's stages; 0: has them */
	/* [strategies] The plan that misses by least, where none of the strategy fits; else -1. */
	int closest[STRATEGY_COUNT];
	int64_t least_skipped; /* least objective of plans not simulated; INT64_MAX: all were */
};

/* Asks lent.go_on, and is false from its first no on. `plans`, `of`: as in struct looked. */
bool search_goes_on(struct search *search, int64_t plans, int64_t of);

#endif
