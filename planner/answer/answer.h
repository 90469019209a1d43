/* The answer to a question. Arrays and strings belong to the arena of the planner's caller. */
#ifndef PLANNER_ANSWER_ANSWER_H
#define PLANNER_ANSWER_ANSWER_H

#include "planner/answer/lent.h"
#include "planner/answer/levers.h"
#include "schedule/documents/documents.h"
#include "schedule/schedule.h"

/* SLOWER: the candidate fits, and costs more by the objective, whichever that is. */
enum outcome { OUTCOME_CHOSEN, OUTCOME_SLOWER, OUTCOME_DOES_NOT_FIT, OUTCOME_IMPOSSIBLE };
extern const char *const outcome_names[];

struct candidate {
	struct plan plan;
	struct prediction prediction;
	enum outcome outcome;
	const char *why_not; /* a sentence; "" of the chosen; IMPOSSIBLE: why, predicting nothing */
	const char *briefly; /* the same without figures of causes; NULL: these mislead nobody */
	const char *typed;   /* the options that give it, of `predict`; IMPOSSIBLE: NULL */
};

/* One row of a sensitivity table: what would happen if one knob of the chosen plan changed. */
struct sensitivity {
	const char *knob, *value;
	double step_time; /* s; 0 when it does not fit or cannot be built */
	int64_t peak_memory_bytes;
	const char *note;
};

/* What would have to change for another plan to win, or for none to fit. */
struct threshold {
	const char *what, *unit; /* "node link, per NIC", "B/s" */
	double now, at;          /* in `unit`; at 0: the ends that were searched change nothing */
	const char *becomes;     /* the strategy chosen beyond it; NULL: none fits with room */
	bool near_tie;           /* at `at` today's strategy and `becomes` are within 1 % */
	double low, high;        /* at 0: the ends that were searched; 0: none was */
	const char *sentence;
};

/* A plan that is faster than the chosen one, but less plain: its blocks or units are not treated
 * equally. */
struct plan_option {
	struct plan plan;
	struct prediction prediction;
	double gain;       /* share of the time of a token that it saves */
	const char *typed; /* the options that give it, of `predict` and `plan` */
};

/* What an expert would say beside the answer: one line, without a full stop. */
struct warning {
	const char *id; /* "batch-beyond-known" */
	const char *sentence;
};

/* An unknown on which the memory of the chosen plan depends. */
struct doubt {
	const char *what;   /* "the version of NCCL" */
	int64_t bytes;      /* more than predicted, from this unknown alone (80 %) */
	const char *source; /* of the figure */
};
enum { DOUBTS_MAX = 6 };

struct comparison;

struct answer {
	const struct candidate *chosen; /* NULL: nothing fits */
	int n_alternatives;
	struct candidate *alternatives; /* the best of every other strategy first (those that fit in
					   order, those that do not by how much, impossible ones),
					   then runners-up (docs/planner.md) */
	/* question->pareto: plans that no other of the space beats by more than 3 % in any of step
	 * time, device memory, host memory and bytes on the network without losing another. They
	 * have room where any has it, and cost at most twice the best; by the objective. */
	int n_front;
	struct candidate *front;
	int n_options; /* under the objective time; the fastest first */
	struct plan_option *options;
	int n_levers;             /* under the objective time */
	struct lever *levers;     /* that gain something, the most first */
	struct plan_option *free; /* the best plan with all of them free; NULL: none better */
	struct lever *elsewhere;  /* clearly faster: another framework, or way of rows; or NULL */
	int n_ways_out;           /* when nothing fits */
	struct way_out *ways_out; /* levers, a shorter sequence, more devices */
	int64_t useless_devices;  /* so many do not help either; 0: they do, or are not had */
	int n_reasons;
	const char **reasons; /* the defence, sentence by sentence */
	int n_sensitivities;
	struct sensitivity *sensitivities;
	const struct comparison *compared; /* set by the caller after planner_compare; else NULL */
	int n_thresholds;                  /* question->thresholds, of the objective time */
	struct threshold *thresholds;
	int n_warnings; /* the most important first */
	struct warning *warnings;
	/* Set by the caller: names of the configuration files that can say the chosen plan
	 * unchanged. NULL: it is not known. */
	int n_said_by;
	const char *const *said_by;
	int64_t evaluated;  /* candidates simulated */
	int64_t pruned;     /* candidates dropped by a bound */
	double gap;         /* of the objective; 0 = optimal within the space and the model */
	bool shares_stages; /* shared out anew after a search with the usual ones */
	int departures; /* knobs in which the chosen plan is not as its framework would have it */
	bool tight;     /* the chosen plan leaves less than the headroom, as no other plan has it */
	int64_t headroom_bytes; /* to be left free: asked for, or the doubt of the prediction */
	int n_doubts;           /* what makes the doubt; none where a headroom was asked for */
	struct doubt doubts[DOUBTS_MAX];
	bool interrupted; /* lent.go_on stopped it: parts of the defence may be missing too */
	double bound;     /* s: least bound of what was not simulated; the chosen time if nothing */
};

/* --- a plan that the user brings: `plan --compare` -------------------------------------------- */

/* One knob in which the user's plan differs from the chosen one, changed alone. */
struct change {
	const char *knob, *from, *to;
	bool built; /* else `note` says why not */
	struct prediction prediction;
	const char *note;
};

struct comparison {
	struct candidate mine;
	const char *statement; /* how it compares with the chosen plan, and why */
	int n;
	struct change *changes; /* what helps most first */
};

/* --- questions about a limit: `plan --find` --------------------------------------------------- */

enum find {
	FIND_MAX_SEQ_LEN,     /* the longest sequence that fits */
	FIND_MAX_MICRO_BATCH, /* the largest micro-batch that fits */
	FIND_MIN_GPUS,        /* the fewest devices on which a plan fits */
	FIND_NETWORK,         /* the least NIC bandwidth that reaches `target` of a free network */
	FIND_SCALING          /* the best plan on 1, 2, 4, ... nodes */
};
extern const char *const find_names[];

/* One value that was tried, with the best plan for it. */
struct found {
	const char *what; /* "FULL_SHARD, checkpointing full", "2 nodes", "200 Gbit/s" */
	double value;     /* of what was varied, in finding.unit; 0: none does */
	bool answer;      /* this row is the answer */
	bool has_plan;    /* false: nothing could be made; plan and prediction are zeroed */
	bool has_room;    /* it fits, with the headroom left free */
	double ratio;     /* efficiency; 0 where it means nothing */
	int64_t devices;
	struct plan plan;
	struct prediction prediction;
	const char *note; /* one sentence or "" */
};

struct finding {
	enum find find;
	bool exists;           /* there is an answer */
	double value;          /* in `unit` */
	const char *unit;      /* "tokens", "sequences", "devices", "B/s", "nodes" */
	const char *statement; /* the answer in one sentence */
	const char *held;      /* what was not searched: "--wrap block, no CPU offload" */
	int n;
	struct found *rows; /* the largest limit first; the smallest machine first */
	int64_t evaluated;  /* plans simulated */
};

/* --- what the rooms share --------------------------------------------------------------------- */

/* Tokens of one step. */
static inline double plan_tokens(const struct plan *plan)
{
	return (double)plan->global_batch * (double)plan->seq_len;
}

/* True: `mine` says that a plan cannot be made, which is no error of a search. False: any other
 * error, which is copied to `error`. */
bool error_is_refusal(const struct error *mine, struct error *error);
/* "does not fit: over by 3.2 GiB" */
const char *excess_note(const struct prediction *prediction, struct arena *arena);

#endif
