/* The face of simulator/: interprets a schedule with a cost model.
 *
 * All ranks of a class do the same at the same time, so one representative rank of each class is
 * simulated, all classes together. A rank is a host thread that issues operations in list order,
 * streams, communicators and the pools of the device's allocator. The result is the steady state:
 * one step is run, or three where the host runs ahead of the end of a step. Equal input gives equal
 * bits. */
#ifndef SIMULATOR_SIMULATOR_H
#define SIMULATOR_SIMULATOR_H

#include "schedule/documents/documents.h"
#include "schedule/schedule.h"
#include "simulator/costs/costs.h"

/* How much is computed about the memory of a device. */
enum memory_detail {
	MEMORY_FIGURES, /* everything */
	/* Simulated as if there were no limit. FITS_TIGHT then means only that the plan does not
	 * fit with room: what retries of the allocator cost, and whether they find enough memory,
	 * is not simulated. */
	MEMORY_UNLIMITED,
	/* The same, and the figures of a plan that does not fit are not filled in. */
	MEMORY_FITS,
	MEMORY_IGNORED /* all figures are 0, and everything fits */
};

struct simulation_options {
	int64_t memory_limit_bytes; /* of one device; 0 = the device's memory */
	bool no_contention;         /* operations on different streams do not slow one another */
	unsigned without; /* parts of the cost model that are off, bits 1 << enum cost_part: benches
			     measure what each explains */
	/* The host goes on to the next step without waiting for this one. Otherwise it reads the
	 * loss after every step, as training loops do. */
	bool host_runs_ahead;
	double exchange_wait; /* s that the host waits before each exchange between tensor ranks */
	/* For inner loops: the interval of the step time is estimated from shares of the step, not
	 * by simulating each cause, and of several classes the allocator is followed only in the
	 * one whose buffers need most. */
	bool quick_interval;
	bool no_bounds; /* for inner loops: the two lower bounds and the ledger's figures stay 0 */
	bool exposure;  /* fill in simulation.exposed */
	bool spans;     /* fill in the timeline without `live`; the schedule has no loops */
	enum memory_detail memory;
	/* Lent by the caller, one per thread, so that inner loops call neither malloc nor free:
	 * what does not outlive a call is taken from here, and reset when the call ends. NULL: the
	 * call makes an arena of its own. */
	struct arena *scratch;
	double slow; /* s: steps that take longer are treated as MEMORY_IGNORED; 0: none are */
};

/* Seconds of a step. */
struct exposed {
	/* By enum collective_kind: time in which a collective runs and the compute stream does
	 * nothing; the part of it in which the collective's group spans nodes. */
	double seconds[COLLECTIVES_OF_STEPS], over_network[COLLECTIVES_OF_STEPS];
	double computing; /* the compute stream is busy */
	double slowed;    /* the part of `computing` that other streams and the host cause */
};

struct simulation {
	struct prediction prediction;
	struct exposed exposed; /* filled in with options->exposure */
	struct timeline timeline;
	struct memory_curve memory; /* bytes in use in the last step; points may share a time */
	struct critical_path critical;
	/* Of a step with a round that stands for others (struct rounds): s of those others, and the
	 * class whose round they last as long as. */
	double more_rounds;
	int pacemaker;
	/* [classes of the pipeline] The same for every class. The fields above are those of the
	 * class that needs the most memory; the step time is common to all. NULL: there is one
	 * class. */
	struct simulation *classes;
};

/* Simulates a schedule. With `details` false the timeline, the memory curve, the critical path and
 * the schedule's digest are left empty; a folded schedule allows nothing else. Strings and arrays
 * come from `arena`. EXIT_CODE_INTERNAL: the schedule deadlocks, or was parsed from text and has
 * neither model nor topology. */
bool simulate(const struct schedule *schedule, const struct simulation_options *options,
	bool details, struct arena *arena, struct simulation *simulation, struct error *error);

/* Fills step_time_low, step_time_high, step_time_p95 and step_time_best, host_decides and
 * uncertainty_source of a prediction that has its step time and bounds, as simulate() does.
 * Simulates once more for each source of error, unless options->quick_interval. */
void simulate_interval(const struct schedule *schedule, const struct simulation_options *options,
	struct arena *arena, struct prediction *prediction);

/* Does a rank of the class need more memory than the device has, when the allocator serves
 * operations in list order? False also where only simulate() can tell.
 * `schedule` may have the program of this class only. `held`: bytes in use at once when it
 * overflows, which no retry of the allocator gives back. NULL: the replay stops where it
 * overflows. */
bool simulate_overflow(const struct schedule *schedule, int class,
	const struct simulation_options *options, struct arena *arena, int64_t *held);

/* Bytes of memory of a device: `asked`, or where that is 0 what the topology says. */
int64_t device_limit(const struct topology *topology, int64_t asked);

/* How far off predictions for this topology are before any step was measured on it, as relative
 * standard deviations. The errors of kernels, of collectives and of the issuing thread are each
 * common to all operations of that kind; `rest` is a further error of the whole step
 * (docs/cost-model.md, Uncertainty). */
struct time_doubt {
	double compute, collective, host, rest;
};
struct time_doubt time_doubt(const struct topology *topology);

/* Writes into the topology's calibration the rates that it leaves out and that the cost model takes
 * from priors: the clock in a step, attention, memory, the optimizer. No prediction changes. */
void state_rates(struct topology *topology);

/* A lower bound in seconds for the step of any plan of this question (docs/planner.md): max(model
 * FLOPs without recomputation / dense peak, optimizer traffic / memory bandwidth, least gradient
 * and parameter bytes at the allowed dtypes / slowest cut of the topology). */
double lower_bound(
	const struct plan *plan, const struct model *model, const struct topology *topology);

#endif
