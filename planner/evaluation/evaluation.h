/* One candidate through schedule and simulator. */
#ifndef PLANNER_EVALUATION_EVALUATION_H
#define PLANNER_EVALUATION_EVALUATION_H

#include "planner/bounds/bounds.h"
#include "planner/evaluation/ranking.h"
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
	/* By enum collective_kind: no compute runs meanwhile; mostly of groups that span nodes. */
	double seconds[COLLECTIVES_OF_STEPS];
	bool over_network[COLLECTIVES_OF_STEPS];
	double slowed; /* compute takes longer than alone */
	double idle;   /* neither compute nor communication runs, but for the allocator */
};

/* Own bounds of memory (bounds.h): a pipeline's until a stage has too much; of its last stage. */
int64_t evaluator_bound_memory(struct evaluator *evaluator, const struct plan *plan);
int64_t evaluator_bound_last(struct evaluator *evaluator, const struct plan *plan);
/* Do a pipeline's fullest stages hold more than a device has? For a tenth of the effort. `held`: in
 * use at once, whatever retries do. Above `enough` bytes no further stage is looked at. */
bool evaluator_stages_overflow(
	struct evaluator *evaluator, const struct plan *plan, int64_t enough, int64_t *held);
/* A pipeline's own bound of time (bounds.h), s; 0: there is none. */
double evaluator_bound_time(struct evaluator *evaluator, const struct plan *plan);
/* Simulates a plan. A step that takes longer than `slow` seconds (0: none) has a step time and
 * nothing else, and does not count as evaluated. */
bool evaluator_run_unless_slow(struct evaluator *evaluator, const struct plan *plan, double slow,
	struct prediction *prediction, struct error *error);
/* The step time alone, for a tenth of the effort, and its own bound of memory; not counted. */
bool evaluator_run_time(struct evaluator *evaluator, const struct plan *plan, double *step_time,
	int64_t *memory, struct error *error);
/* EXIT_CODE_USAGE when it cannot be built. The prediction has no lower bounds and no ledger; its
 * strings live in `scratch` until the next call. */
bool evaluator_run(struct evaluator *evaluator, const struct plan *plan,
	struct prediction *prediction, struct error *error);
/* All of it, with what is exposed; strings in `arena`. */
bool evaluator_run_closely(struct evaluator *evaluator, const struct plan *plan,
	struct arena *arena, struct prediction *prediction, struct exposure *exposure,
	struct error *error);
/* The same, but for what does not fit with room: its memory, a pipeline's step time too, are 0. */
bool evaluator_judge_closely(struct evaluator *evaluator, const struct plan *plan,
	struct arena *arena, struct prediction *prediction, struct exposure *exposure,
	struct error *error);
/* The same of a pipeline, but for what its step time is made of. */
bool evaluator_judge_step(struct evaluator *evaluator, const struct plan *plan,
	struct prediction *prediction, struct error *error);
struct prediction evaluator_kept(const struct prediction *prediction, struct arena *arena);
/* Of its schedule: takes longer than most simulations. */
const char *evaluator_digest(
	struct evaluator *evaluator, const struct plan *plan, struct arena *arena);
/* On another topology than the question's. Of a pipeline the step time and the memory alone. */
bool evaluator_run_on(struct evaluator *evaluator, const struct topology *topology,
	const struct plan *plan, struct prediction *prediction, struct error *error);
/* Whether it fits with room; its memory is filled only then, and its step time is without retries
 * (MEMORY_FITS). A step that takes longer than `slow` seconds (0: none) is not judged: it fits. */
bool evaluator_judge_on(struct evaluator *evaluator, const struct topology *topology,
	const struct plan *plan, double slow, struct prediction *prediction, struct error *error);
bool evaluator_judge(struct evaluator *evaluator, const struct plan *plan,
	struct prediction *prediction, struct error *error);
/* All of it, as if no device had a limit (MEMORY_UNLIMITED). */
bool evaluator_run_unlimited(struct evaluator *evaluator, const struct plan *plan,
	struct prediction *prediction, struct error *error);
void evaluator_release(struct evaluator *evaluator);
void evaluator_finish(struct evaluator *evaluator);

/* --- doubt.c ---------------------------------------------------------------------------------- */

/* Bytes by which a plan may need more than predicted (80 %); nothing on CPUs. */
double memory_doubt(const struct question *question, const struct plan *plan, double needed);
/* What it is made of, each alone. Returns their number. */
int memory_doubts(const struct question *question, const struct plan *plan, double needed,
	struct doubt doubts[DOUBTS_MAX]);

/* --- room.c ----------------------------------------------------------------------------------- */

/* Does it fit, with the question's headroom left free? */
bool has_room(const struct question *question, const struct plan *plan,
	const struct prediction *prediction);
/* Bytes that have to stay free beside what the plan needs. */
int64_t headroom_bytes(const struct question *question, const struct plan *plan,
	const struct prediction *prediction);
/* It needs at least so many bytes, and has none with a device of `limit`. */
bool surely_lacks_room(
	const struct question *question, const struct plan *plan, int64_t least, int64_t limit);

/* --- several at once -------------------------------------------------------------------------- */

/* How many pieces of work the caller can do at once, and lent.each (answer.h). */
int lent_workers(const struct question *question);
void lent_each(const struct question *question, int n,
	void (*piece)(void *data, int index, int worker), void *data);
/* The question of a search beside the answer's: `quiet` is what it may use of the caller's, who is
 * not told of it. `alone`: a piece of work, whose own pieces are done one after another. */
struct question lent_quietly(const struct question *question, bool alone, struct lent *quiet);
/* Does the caller want no more of such searches? */
bool lent_stopped(const struct question *question);

/* One for each worker. */
struct evaluators {
	int n;
	struct evaluator *of; /* malloc'ed */
};

void evaluators_init(struct evaluators *evaluators, const struct question *question);
void evaluators_know(struct evaluators *evaluators, const struct divided_models *models);
int64_t evaluators_evaluated(const struct evaluators *evaluators);
void evaluators_finish(struct evaluators *evaluators);

/* --- what a search knows so far --------------------------------------------------------------- */

/* What was simulated closely, and is not simulated again. */
struct close_look {
	struct arena arena;
	struct prediction prediction;
	struct exposure exposure;
};

struct known {
	bool tightened; /* its bound of memory is of its own schedule */
	bool followed;  /* a pipeline: its bound of time is its own */
	bool looked_at; /* a pipeline whose fullest stages have room: it was simulated */
	bool timed;    /* `bound` is its step time and its own bound of memory, perhaps ahead of its
			  turn */
	bool taken;    /* its step time is its bound */
	bool is_short; /* it does not fit, or by the allocator's retries alone */
	bool is_last;  /* it has let all others go first */
	bool ready;    /* `fits` and `costs` are known, ahead of its turn or since */
	bool simulated; /* it had its turn */
	bool refused;   /* the builder could not honour it */
	struct bound bound;
	enum fits fits;
	bool has_room;
	struct costs costs;
	double path; /* s and bytes: a pipeline's own bounds; 0: not known */
	int64_t held;
	struct close_look *look; /* malloc'ed; NULL: there was none */
};

struct search {
	const struct question *question;
	struct space space;
	struct bounds bounds;
	struct evaluator evaluator;
	struct evaluators workers; /* for what is simulated ahead of its turn */
	struct ranking ranking;
	struct known *known; /* malloc'ed; by plan */
	int64_t effort;      /* blocks x micro-batches simulated since the first plan that fits */
	bool given_up;       /* the effort was spent before all was looked at */
	int64_t limit;       /* bytes of one device */
	int64_t evaluated;   /* plans that had their turn, refused ones too */
	int64_t pruned;
	int64_t pipelines;     /* plans with one that have room, whose step time is known */
	bool stopped;          /* the caller wants no more (lent.go_on) */
	int64_t least_left;    /* what is still to be looked at costs at least; -1: not known */
	bool offloads;         /* nothing fits without CPU offload, which this search is of */
	int64_t least_without; /* then: bytes that the closest plan without it needs */
	double unshared; /* s of the best plan's step with stages as its framework cuts them; 0: it
			    has those */
	/* Per strategy without a plan that fits: the one that misses by least; else -1. */
	int closest[STRATEGY_COUNT];
	/* The least objective among plans that no simulation saw; INT64_MAX when all were seen. */
	int64_t least_skipped;
};

/* Asks lent.go_on; false from the first no on. `plans`, `of`: as in struct looked. */
bool search_goes_on(struct search *search, int64_t plans, int64_t of);

#endif
