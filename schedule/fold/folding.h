/* Private to fold: a shorter question, what repeats in its list, and what operations wait for. */
#ifndef SCHEDULE_FOLDING_H
#define SCHEDULE_FOLDING_H

#include "schedule/fold/fold.h"

enum { RUNS_MAX = 8 };

/* Alike blocks that were taken out of the model, behind the block that is repeated. */
struct cut {
	int layer, n_layers;         /* the first of them, in the model that was asked for */
	int module, n_modules;       /* likewise */
	int parameter, n_parameters; /* likewise */
	int times;                   /* how many the repeated one stands for */
};

/* The question as it is built. A period is the number of blocks that repeat together. */
struct shorter {
	struct model model;
	struct plan plan;
	int period, n_cuts;
	struct cut cuts[RUNS_MAX];
	int *times;         /* per block */
	struct unit *units; /* NULL: the passes build them */
	int n_units;
	int micro_batch_times; /* how many the repeated one stands for */
	int first_micro_batch; /* the repeated one; -1 */
};

/* A walk over the blocks, up or down: forward, backward, or over units at the end of the step. */
struct sweep {
	int *start; /* per group: its first operation, -1 */
	bool is_down;
};

/* A repeated group of blocks in one sweep. */
struct lap {
	int first, n, times;
	int sweep, group, run;
	bool frees;    /* something that the host may wait for */
	int neighbour; /* where its copy is that it was compared with: n or -n */
};

/* Says in which sweep an operation is, and to which group it belongs there; -1 if to none. */
struct region {
	int sweep, group;
};

/* first + i * inner; of the step before where is_before. */
struct law {
	int first, inner;
	bool is_before;
};

struct folding {
	struct arena *arena;
	const struct shorter *shorter;
	struct schedule *schedule;
	struct program *program;
	/* Per operation: how many frees the host had still to wait for. Where that grows with every
	 * block, what it waits for depends on how many there are. */
	const int *frees_pending;
	/* Groups of as many blocks as repeat together; those outside of runs stand alone. */
	int n_groups;
	int *group_of; /* per block of the shorter model */
	int *run_of;   /* per group: the run whose repeated one it is, -1 */
	struct sweep *sweeps;
	int n_sweeps, sweep_capacity;
	struct lap *laps;
	int n_laps, lap_capacity;
	int *lap_at; /* per sweep and run; -1 */
	struct region *regions;
	int *laps_of; /* per operation: its lap; -1 */
	int *bases;   /* per operation: where it is carried out first, micro-batches not repeated */
	int n_bases;  /* and how many there are */
	int *takers;  /* per buffer: the operation that takes it, -1 */
	struct law *laws; /* per index of a wait or a give */
	/* The repeated micro-batch in those positions; n 0: none. */
	int micro_first, micro_n;
	int body_first, body_n; /* the same in operations of the list */
	int *micro_batches;     /* per micro-batch, and behind them: its first operation */
};

/* The blocks that stay before and behind the repeated one, in periods. False: there is nothing to
 * fold. */
struct kept {
	int head, tail;
};
bool shorter_make(struct shorter *shorter, struct arena *arena, const struct plan *plan,
	const struct model *model, struct kept kept);
int shorter_layer(const struct shorter *shorter, int layer);   /* in the model that was asked for */
int shorter_module(const struct shorter *shorter, int module); /* likewise */
int shorter_parameter(const struct shorter *shorter, int parameter);

/* These return false when a copy is not like its neighbour. */
bool fold_find_loops(struct folding *folding);
bool fold_find_places(struct folding *folding);

/* The indices of an operation that have places. */
enum fold_list { WAITS, HOST_WAITS, GIVES, USES };
struct slice fold_slice(const struct folding *folding, int op, enum fold_list list);
/* Places of what operations use, too: where it was taken. */
bool fold_find_uses(const struct folding *folding);

/* Last of all. */
void fold_join_next(const struct folding *folding);

/* Runs after the other folds, before folded operations get their numbers: makes the unfolding
 * (program.h). False: not everything continues with the loops. */
bool fold_list_all(
	const struct folding *folding, const struct model *model, const struct plan *plan);

#endif
