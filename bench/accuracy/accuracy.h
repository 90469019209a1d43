/* Private to bench/accuracy: published measurements beside the product's predictions. */
#ifndef BENCH_ACCURACY_H
#define BENCH_ACCURACY_H

#include "schedule/documents/documents.h"
#include "schedule/schedule.h"
#include "simulator/simulator.h"

/* The two parts of the split, and rows that were found after the constants had been fixed, to which
 * nothing is fitted. */
enum part { PART_CALIBRATION, PART_TEST, PART_COUNT, PART_FOUND = PART_COUNT };
/* The result of a row: it ran; it ran out of memory; it ran, but the source does not state what
 * decides the time; anything else, which is no measurement. */
enum status { STATUS_OK, STATUS_OOM, STATUS_INCOMPLETE, STATUS_OTHER };

extern const char *const part_names[];

/* One row of a file: the configuration, the measurement and the prediction. */
struct row {
	const char *file;
	int line;
	char **cells; /* of the whole row, in the order of its file's columns */
	const struct csv_row *header;
	const char *name, *source, *reference, *gpu, *family, *model, *topology, *notes;
	enum status status;
	bool later;             /* from a file of rows that were found later */
	const char *given_part; /* from a file that was split by hand; NULL: by the rule */
	enum part part;
	double measured_tokens; /* tokens/s of one GPU; 0: not measured */
	double measured_peak;   /* GiB; 0: not measured */
	double measured_steady; /* GiB between steps; 0: not measured */
	const char *metric;     /* of the peak: allocated, active, reserved or nvidia-smi */

	const char *error; /* why it is not predicted; NULL: it is */
	int64_t gpus, nodes, micro_batch, seq_len, parameters;
	struct prediction prediction;
	int64_t steady_bytes;   /* of buffers that live between steps */
	int64_t reserved_bytes; /* of the rank whose figure the source prints */
	double measured_step;   /* s; 0: not measured */
	double debugged_step;   /* s: the predicted step and the time of the source's debugging
				   (debugging.c) */
	double baseline_step;   /* s: 6N FLOPs a token at half of the datasheet's peak */
};

struct row_list {
	int n, capacity;
	struct row *of;
};

/* Appends a file of measurements. Unknown columns are options of `predict`, with _ for -. */
bool row_list_read(
	struct arena *arena, const char *path, struct row_list *rows, struct error *error);
/* Does the column describe how something was run? */
bool column_is_option(const char *name);
const char *row_cell(const struct row *row, const char *column);
/* How its ranks divide the model: `data`, or those of tensor, pipeline, context and expert that it
 * has more than one rank of. */
const char *row_mix(const struct row *row, struct arena *arena);

/* Fills `part` of every row. Within a source, models are sorted by size and the second, fourth, ...
 * calibrate, so a source with one model never does. The rule uses only names and sizes. Rows that
 * were found later are a part of their own. A file with a column `part` was split before its values
 * were entered. */
void row_list_split(struct row_list *rows);

/* Models and node types that only these rows use: FOLDER/models.csv and FOLDER/topologies/. */
struct catalogue {
	const char *folder;
	struct csv_table models;
	unsigned without; /* parts of the cost model that are switched off (enum cost_part) */
	/* A change that a caller makes to every topology; NULL: none. */
	void (*adjust)(struct topology *topology, const void *adjusting);
	const void *adjusting;
};
bool catalogue_read(
	struct arena *arena, const char *folder, struct catalogue *catalogue, struct error *error);
bool catalogue_model(const struct catalogue *catalogue, struct arena *arena, const char *name,
	const char *seq_len, struct model **model, struct error *error);
bool catalogue_topology(const struct catalogue *catalogue, struct arena *arena, const char *name,
	struct topology **topology, struct error *error);

/* The question of a row. */
struct row_case {
	struct model *model;
	struct topology *topology;
	struct plan plan;
};
bool row_read(const struct catalogue *catalogue, const struct row *row, struct arena *arena,
	struct row_case *read, struct error *error);

/* Predicts a row from its configuration alone. An error is stored in the row. Strings come from
 * `keep`, the rest from `scratch`. */
void row_predict(const struct catalogue *catalogue, struct row *row, struct arena *keep,
	struct arena *scratch);
/* Counts only bytes, of the last rank, which is the one that Megatron-LM logs. No step is
 * simulated. */
void row_count_bytes(const struct catalogue *catalogue, struct row *row, struct arena *keep,
	struct arena *scratch);
/* As row_predict, with another value in one column. False if it cannot be predicted. */
bool row_predict_with(const struct catalogue *catalogue, const struct row *row, const char *column,
	const char *value, struct arena *scratch, struct prediction *prediction);

/* The source's debugging: the time in s that the host waits before each exchange between tensor
 * ranks, and the additional time of a predicted step of `step` seconds. */
double row_exchange_wait(
	const struct row *row, const struct plan *plan, const struct topology *topology);
double row_with_polls(const struct row *row, const struct plan *plan, double step);

bool file_table(
	struct arena *arena, const char *path, struct csv_table *table, struct error *error);

/* Errors of a set of rows: relative and signed, predicted / measured - 1. */
struct sample {
	int n, capacity;
	double *errors;
};
void sample_add(struct arena *arena, struct sample *sample, double error);
struct summary {
	int n;
	double median, mean, p90, bias; /* of absolute errors; bias: median of the signed errors */
};
struct summary sample_summary(const struct sample *sample);
double row_time_error(const struct row *row);
double row_exposed_share(const struct row *row); /* of the predicted step */
bool row_inside(const struct row *row);          /* is the measurement in the 80 % interval? */
double row_half_width(const struct row *row);    /* of the interval, relative to the step */
double row_peak_error(const struct row *row);
bool row_has_time(const struct row *row); /* is it predicted, and measured reliably? */
bool row_has_peak(const struct row *row);

/* The report, as Markdown on stdout. */
void report_time(const struct row_list *rows, struct arena *arena);
void report_memory(
	const struct catalogue *catalogue, const struct row_list *rows, struct arena *arena);
void report_peaks(const struct row_list *rows, struct arena *arena);
void report_intervals(const struct row_list *rows);
void report_regimes(const struct row_list *rows, struct arena *arena);
void report_families(const struct row_list *rows);
void report_twins(const struct row_list *rows, struct arena *arena);
/* Predicts all rows again with one part of the cost model switched off at a time. */
void report_parts(
	const struct catalogue *catalogue, const struct row_list *rows, struct arena *arena);
/* Rows that were run with the source's debugging. */
void report_debugging(const struct row_list *rows, struct arena *arena);
/* Pairs of runs of one model: is the faster one predicted to be faster? */
void report_order(const struct row_list *rows);
void report_ablations(const struct row_list *rows, struct arena *arena);
/* Rows that were predicted before their values were read. `folder`: bench/published. */
void report_blind(const char *folder, const struct row_list *rows, struct arena *arena);
void report_ratios(const struct catalogue *catalogue, const struct row_list *rows);

#endif
