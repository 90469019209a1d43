/* Private to bench/accuracy: published measurements beside the product's predictions. */
#ifndef BENCH_ACCURACY_H
#define BENCH_ACCURACY_H

#include "schedule/documents/documents.h"
#include "schedule/schedule.h"
#include "simulator/simulator.h"

/* The parts of the split; and rows found after the constants had been fixed, never fitted to. */
enum part { PART_CALIBRATION, PART_TEST, PART_COUNT, PART_FOUND = PART_COUNT };
/* Of a row: it ran; it ran out of memory; it ran, and the source leaves out what decides the time;
 * anything else, which is no measurement. */
enum status { STATUS_OK, STATUS_OOM, STATUS_INCOMPLETE, STATUS_OTHER };

extern const char *const part_names[];

/* One row of a file: what was run, what was measured, what is predicted. */
struct row {
	const char *file;
	int line;
	char **cells; /* of the whole row, by column of its file */
	const struct csv_row *header;
	const char *name, *source, *reference, *gpu, *family, *model, *topology, *notes;
	enum status status;
	bool later;             /* of a file of rows that were found later */
	const char *given_part; /* of a file that was split by hand; NULL: by the rule */
	enum part part;
	double measured_tokens; /* tokens/s of one GPU; 0 = not measured */
	double measured_peak;   /* GiB; 0 = not measured */
	double measured_steady; /* GiB between steps; 0 = not measured */
	const char *metric;     /* of the peak: allocated, active, reserved, nvidia-smi */

	const char *error; /* why it is not predicted; NULL = it is */
	int64_t gpus, nodes, micro_batch, seq_len, parameters;
	struct prediction prediction;
	int64_t steady_bytes;   /* of buffers that live between steps */
	int64_t reserved_bytes; /* of the rank that the source prints */
	double measured_step;   /* s, 0 = not measured */
	double debugged_step; /* s: as predicted, and what the source's debugging took (debugging.c)
			       */
	double baseline_step; /* s: 6N FLOPs a token at half of the datasheet's peak */
};

struct row_list {
	int n, capacity;
	struct row *of;
};

/* A file of measurements, appended. Columns that are none of the known ones are options of
 * `predict` with _ for -. */
bool row_list_read(
	struct arena *arena, const char *path, struct row_list *rows, struct error *error);
/* Whether a column says how something was run. */
bool column_is_option(const char *name);
const char *row_cell(const struct row *row, const char *column);

/* Fills `part` of every row: within a source, models from small to large take turns, the second,
 * fourth, ... calibrate; so a source with one model is never calibrated on. The rule sees names
 * and sizes only. Rows that were found later are a part of their own. A file with a column `part`
 * was split before its values were entered. */
void row_list_split(struct row_list *rows);

/* Models and node types that only these rows need: FOLDER/models.csv, FOLDER/topologies/. */
struct catalogue {
	const char *folder;
	struct csv_table models;
	unsigned without; /* parts of the cost model that are off (enum cost_part) */
	/* What a caller changes about every topology; NULL: nothing. */
	void (*adjust)(struct topology *topology, const void *adjusting);
	const void *adjusting;
};
bool catalogue_read(
	struct arena *arena, const char *folder, struct catalogue *catalogue, struct error *error);
bool catalogue_model(const struct catalogue *catalogue, struct arena *arena, const char *name,
	const char *seq_len, struct model **model, struct error *error);
bool catalogue_topology(const struct catalogue *catalogue, struct arena *arena, const char *name,
	struct topology **topology, struct error *error);

/* What a row says of its run. */
struct row_case {
	struct model *model;
	struct topology *topology;
	struct plan plan;
};
bool row_read(const struct catalogue *catalogue, const struct row *row, struct arena *arena,
	struct row_case *read, struct error *error);

/* Predicts a row from its configuration alone; an error goes into the row. Strings come from
 * `keep`, the rest is in `scratch`. */
void row_predict(const struct catalogue *catalogue, struct row *row, struct arena *keep,
	struct arena *scratch);
/* Bytes alone, of the last rank (which is the one that Megatron-LM logs): no step is simulated. */
void row_count_bytes(const struct catalogue *catalogue, struct row *row, struct arena *keep,
	struct arena *scratch);
/* As row_predict, with another value in one column. False when it cannot be predicted. */
bool row_predict_with(const struct catalogue *catalogue, const struct row *row, const char *column,
	const char *value, struct arena *scratch, struct prediction *prediction);

/* The debugging that the row was run with: what its host waited before each exchange between tensor
 * ranks, s, and what a predicted step of `step` seconds takes besides. */
double row_exchange_wait(
	const struct row *row, const struct plan *plan, const struct topology *topology);
double row_with_polls(const struct row *row, const struct plan *plan, double step);

bool file_text(
	struct arena *arena, const char *path, char **text, size_t *length, struct error *error);

/* Errors of a set: relative, signed, predicted / measured - 1. */
struct sample {
	int n, capacity;
	double *errors;
};
void sample_add(struct arena *arena, struct sample *sample, double error);
struct summary {
	int n;
	double median, mean, p90, bias; /* of absolute errors; bias: median of the signed ones */
};
struct summary sample_summary(const struct sample *sample);
double row_time_error(const struct row *row);
double row_exposed_share(const struct row *row); /* of the predicted step: communication alone */
bool row_inside(const struct row *row);          /* measured in the 80 % interval */
double row_half_width(const struct row *row);    /* of the interval, of the step */
double row_peak_error(const struct row *row);
bool row_has_time(const struct row *row); /* predicted, and measured without doubt */
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
/* Predicts all rows again, each time with a part of the cost model switched off. */
void report_parts(
	const struct catalogue *catalogue, const struct row_list *rows, struct arena *arena);
/* Where rows were run with the source's debugging. */
void report_debugging(const struct row_list *rows, struct arena *arena);
/* Of two runs of one model, which is the faster one. */
void report_order(const struct row_list *rows);
void report_ablations(const struct row_list *rows, struct arena *arena);
void report_ratios(const struct catalogue *catalogue, const struct row_list *rows);
void report_rows(const struct row_list *rows); /* one CSV line a row */

#endif
