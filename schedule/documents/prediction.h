/* struct prediction: what a prediction says, and a measurement beside it (docs/schema). */
#ifndef SCHEDULE_PREDICTION_H
#define SCHEDULE_PREDICTION_H

#include "base/base.h"
#include "schedule/documents/timeline.h"
#include "schedule/program/program.h"

enum fits { FITS_YES, FITS_TIGHT, FITS_NO };
/* A run of fields: in a map of its own, or (no key) in the surrounding one. */
struct field_part {
	const char *key;
	const struct field *fields;
	size_t offset; /* of the object that the fields describe */
};
/* The parts with which a prediction and a measurement are written and read; a part without fields
 * ends them. */
extern const struct field_part prediction_parts[], measurement_parts[];

extern const char *const fits_names[]; /* "yes", "tight", "no" */

/* Times of a kind of work inside one step, seconds; may overlap one another. */
struct time_split {
	double compute, all_gather, reduce_scatter, all_reduce, copy, optimizer;
	double exposed_communication; /* a communication runs or is awaited and nothing computes */
	double data_loading; /* of the issuing thread: batches taken, copied and waited for; of it:
			      */
	double data_wait;    /* until the data loader had one ready */
	double unaligned_head; /* of compute: for rows of logits that are no multiple of 16 bytes */
	double allocator; /* by which the step is longer for memory that is given back and asked for
			   * again */
	double all_to_all; /* rows to experts and back */
	double messages;   /* between stages of a pipeline, sent and received; to the next context
			      rank */
	double bubble; /* nothing is computed or communicated, because other stages are awaited */
};

/* Books `seconds` of an operation of that kind, as both interpreters do. */
void time_split_add(struct time_split *split, enum op_kind kind, double seconds);

/* Figures of each class of ranks, which are shown beside those of the worst one. */
struct class_figures {
	const char *name; /* "all" or "stage 0" */
	double step_time; /* s */
	int64_t peak_memory_bytes;
	double bubble;        /* s */
	int64_t wanted_bytes; /* prediction_wanted_bytes; 0 in one that was read from a file */
};

/* Communication of a rank with the ranks of one axis. Where two axes communicate at once, and
 * nothing computes, both are exposed. */
struct axis_figures {
	int64_t ranks, stride; /* of its group; ranks 0: it has none, or is alone in it */
	double wire_bytes;     /* that it sends in a step */
	double time, exposed;  /* s */
};

struct prediction {
	const char *schedule_digest; /* 32 hexadecimal digits */
	enum fits fits;
	int64_t memory_limit_bytes;
	double step_time; /* s */
	double tokens_per_s_per_gpu;
	double mfu, mfu_6n, mfu_causal, hfu; /* 0..1; 0 when no peak is known */
	double peak_flops;     /* the peak they are relative to, FLOP/s of one device */
	const char *peak_name; /* "A100-SXM4-80GB bf16 dense" or "measured GEMM peak" */
	int64_t model_states_parameters, model_states_gradients, model_states_optimizer_state;
	int64_t peak_allocated_bytes; /* physical, time order */
	int64_t peak_active_bytes;    /* blocks of the allocator, in the order in which the host
				       * issues: taken, or given and still waited for */
	int64_t peak_reserved_bytes;
	int64_t places_bytes;           /* of peak_reserved_bytes, the places that buffers have from
					 * the first step on; 0: they have none */
	int64_t peak_memory_bytes;      /* peak_allocated_bytes + runtime_overhead at the peak */
	int64_t peak_wanted_bytes;      /* of a plan that is tight: what peak_memory_bytes would be
					 * with room for all; 0: that is the peak */
	double allocator_retries;       /* a step: of a plan that is tight */
	int64_t communicator_bytes;     /* of runtime_overhead, NCCL's; 0 in a prediction that was
					 * read from a file, which does not say */
	int64_t ledger_peak_bytes;      /* list order: what a measurement must equal exactly */
	int64_t ledger_host_peak_bytes; /* the same of the host's pool: what CPU offload keeps there
					 */
	const char *peak_at;            /* "backward model.layers.31, micro-batch 0" */
	int peak_op;
	int64_t memory_at_peak[CATEGORY_COUNT]; /* sums to peak_memory_bytes exactly */
	int64_t memory_category_peak[CATEGORY_COUNT];
	int64_t ledger_category_peak[CATEGORY_COUNT];
	int64_t host_memory_bytes;       /* of a node */
	int64_t host_memory_limit_bytes; /* of a node; 0 where nothing is offloaded */
	struct time_split time;
	double wire_bytes_per_rank, wire_bytes_node_egress;
	double wire_bytes_rows; /* of a rank's, rows to experts: of ours, as many as are expected */
	int64_t collectives[COLLECTIVES_OF_STEPS]; /* number per step, by enum collective_kind */
	double step_time_low, step_time_high;      /* 80 % interval of a run's median step */
	double step_time_p95;                      /* of the steps of a run; 0: not known */
	double step_time_best; /* where nothing else uses the machine; 0: not known */
	const char *uncertainty_source;
	bool host_decides; /* what the issuing thread takes is most of what is uncertain */
	double lower_bound, plan_lower_bound; /* s */
	/* The figures above are of classes[rank_class], the worst. NULL: there is one class. */
	int n_classes, rank_class;
	struct class_figures *classes;
	/* By enum group_kind. Documents have them when two or more axes communicate. */
	struct axis_figures axes[GROUP_KIND_COUNT];
};

/* How many axes communicate. */
int prediction_axes(const struct prediction *prediction);

/* The bytes that must be free at the peak. Blocks that the allocator has cached do not count, as
 * they can be given back. */
int64_t prediction_needed_bytes(const struct prediction *prediction);
/* The peak with room for all that the allocator caches: what plans are compared by. The peak of a
 * plan that is tight is about its limit, whatever it lacks. */
int64_t prediction_wanted_bytes(const struct prediction *prediction);
/* The figure to tell of a plan that does not fit: the bytes that it needs, or the peak with the
 * cache where the former would fit. */
int64_t prediction_missing_bytes(const struct prediction *prediction);
/* Is it host memory that does not suffice? */
bool prediction_overflows_host(const struct prediction *prediction);
/* The bytes that are missing for the plan to fit: on a device, or in a node's host memory. */
int64_t prediction_excess_bytes(const struct prediction *prediction);

/* The keys of docs/schema into the open map, and back. */
void prediction_write(const struct prediction *prediction, struct writer *writer);
bool prediction_read(struct arena *arena, const struct node *map, struct prediction *prediction,
	struct error *error);

/* The measurement of `train`: the prediction's keys and these. Times are over all steps but the
 * first two. */
struct measurement {
	struct prediction values; /* step_time is the mean */
	int64_t ranks;
	int64_t nodes; /* machines that the ranks were on; 0: an older measurement */
	int64_t steps, warm_up_steps;
	double step_time_p50, step_time_p95, step_time_variance;
	int n_losses;
	double *losses;         /* per step, mean over the global batch */
	double *gradient_norms; /* per step */
	const char *weights_digest;
	const char *reproducible; /* level: "run", "plan" or "world" */
	const char *cuda_graphs;  /* of a GPU: "on", or "off: " and why; else NULL */
	const char *nccl; /* its version, what was wished for, its variables; NULL without NCCL */
	const char *nccl_buffers; /* how NCCL knows the memory of collectives; NULL without NCCL */
	/* The number of measured algorithms for products that were used, or why none was; else
	 * NULL. */
	const char *product_choices;
	const char *attention_choices; /* the same of attention */
	const char *hardware;          /* one line */
	const char *versions;          /* one line */
	const char *date;              /* ISO 8601 */
	int64_t pss_growth_bytes; /* largest over ranks: PSS at the peak minus before allocation */
	int64_t pss_growth_mean_bytes; /* mean over ranks */
	int64_t undeclared_bytes; /* allocated inside a step outside of the schedule; must be 0 */
	/* For a GPU (else 0 and NULL): bytes in use at the end of the run by its own account, with
	 * its context, of the fullest; the number of ranks that share it; and what the account
	 * contains, in one line. */
	int64_t device_used_bytes, device_ranks;
	const char *device_account;
	/* For a paced run, which was held to predicted times (else 0): times are those of the
	 * modelled machine, and the run took slow_motion times as long. */
	double slow_motion;
	int64_t paced_operations; /* a step and rank */
	int64_t late_operations;  /* of rank 0 in all: took longer than predicted, by `late` s */
	double late;
	/* Seconds of the calibration's fixed product, before and after the run; 0: not measured. */
	double yardstick_before, yardstick_after;
	struct timeline timeline; /* of the step whose time is the median, rank 0 */
};

/* The median step, s, which is what a prediction says; of a file without one the mean. */
double measurement_step(const struct measurement *measurement);

void measurement_write(const struct measurement *measurement, struct writer *writer);
bool measurement_read(struct arena *arena, const struct node *map, struct measurement *measurement,
	struct error *error);

#endif
