/* The face of simulator/: interprets a schedule with a cost model.
 *
 * One representative rank of each class is simulated (all ranks of a class do the same at the same
 * time), all classes together: a host thread that issues operations in list order, streams,
 * communicators (engines) and the device's allocator pools, in the steady state: one step, or three
 * where the host runs ahead of the end of a step. Deterministic: equal input, equal bits. */
#ifndef SIMULATOR_SIMULATOR_H
#define SIMULATOR_SIMULATOR_H

#include "schedule/documents/documents.h"
#include "schedule/schedule.h"
#include "simulator/costs/costs.h"

/* How much of the memory is asked for. */
enum memory_detail {
	MEMORY_FIGURES,
	/* As if there were no limit: FITS_TIGHT says no more than that it does not fit with room;
	 * what retries cost, and whether there is memory even after them, is not looked at. */
	MEMORY_UNLIMITED,
	/* The same, and the figures of what does not fit are not filled. */
	MEMORY_FITS,
	MEMORY_IGNORED /* it is 0, and everything fits */
};

struct simulation_options {
	int64_t memory_limit_bytes; /* of one device; 0 = the device's memory */
	bool no_contention;         /* operations on different streams do not slow one another */
	unsigned without; /* parts of the cost model that are off (1 << enum cost_part): benches ask
			     what each explains */
	/* The host goes on to the next step without waiting for this one. Otherwise it reads the
	 * loss after every step, as training loops do. */
	bool host_runs_ahead;
	double exchange_wait; /* s: of the host before each exchange between tensor ranks */
	/* The interval by shares of the step, not by simulating each cause; of several classes the
	 * allocator is followed in the one alone whose buffers need most: for inner loops. */
	bool quick_interval;
	bool no_bounds; /* the two lower bounds and the ledger's figures stay 0: for inner loops */
	bool exposure;  /* `exposed` is wanted */
	bool spans;     /* and the timeline without `live`, of a schedule that is not folded */
	enum memory_detail memory;
	/* What does not outlive a call comes from here, and is reset when the call ends: the
	 * caller's, one per thread, so that inner loops call neither malloc nor free. NULL: of the
	 * call. */
	struct arena *scratch;
	double slow; /* s: MEMORY_IGNORED for steps that take longer; 0: for none */
};

/* Seconds of a step. */
struct exposed {
	/* Of collectives that the compute stream does nothing beside, and those of them whose group
	 * spans nodes. */
	double seconds[COLLECTIVES_OF_STEPS],
		over_network[COLLECTIVES_OF_STEPS]; /* by enum collective_kind */
	double computing;                           /* of the compute stream, */
	double slowed; /* and what of it comes of other streams and the host */
};

struct simulation {
	struct prediction prediction;
	struct exposed exposed; /* where options->exposure */
	struct timeline timeline;
	struct memory_curve memory; /* in use, third step; points may share a time */
	struct critical_path critical;
	/* Of a pipeline: the same of every class; what stands above is that of the worst, which
	 * needs the most memory. The step is that of all. NULL: there is one class. */
	struct simulation *classes;
};

/* `details` false skips timeline, memory curve, critical path and the schedule digest (left empty):
 * a folded schedule has none. Strings and arrays come from `arena`. A schedule that cannot proceed,
 * or that was parsed from text (no model, no topology), is EXIT_CODE_INTERNAL. */
bool simulate(const struct schedule *schedule, const struct simulation_options *options,
	bool details, struct arena *arena, struct simulation *simulation, struct error *error);

/* Whether a rank of the class, of which `schedule` may have the program alone, holds more than the
 * device has room for when its allocator serves the list in order. False where only a run tells.
 * `held`: bytes of a device that are then in use at once, which no retry gives back. */
bool simulate_overflow(const struct schedule *schedule, int class,
	const struct simulation_options *options, struct arena *arena, int64_t *held);

/* Bytes of a device; `asked`: instead of what it has, 0 = that. */
int64_t device_limit(const struct topology *topology, int64_t asked);

/* How far off predictions for this topology are before anything was measured in a step there, as
 * relative standard deviations: of kernels, of collectives, of the issuing thread, each common to
 * all of its kind, and of a step besides (docs/cost-model.md, Uncertainty). */
struct time_doubt {
	double compute, collective, host, rest;
};
struct time_doubt time_doubt(const struct topology *topology);

/* Writes the rates of a device that are taken where the calibration says nothing into it: the clock
 * in a step, attention, memory, the optimizer. No prediction changes by it. */
void state_rates(struct topology *topology);

/* Seconds that no plan for this question can beat, and that this plan cannot (docs/planner.md):
 * max(model FLOPs without recomputation / dense peak, optimizer traffic / memory bandwidth, least
 * gradient and parameter bytes at the allowed dtypes / the slowest cut of the topology). */
double lower_bound(
	const struct plan *plan, const struct model *model, const struct topology *topology);
double plan_lower_bound(const struct schedule *schedule);

#endif
