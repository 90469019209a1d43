/* Private to bench/collectives: published collectives beside the product's predictions. */
#ifndef BENCH_COLLECTIVES_H
#define BENCH_COLLECTIVES_H

#include "bench/accuracy/accuracy.h"

/* The sizes that are judged, which are those of training. */
static const int64_t judged_from = (int64_t)64 << 10, judged_to = (int64_t)8 << 30;

/* Sources that were found after the constants had been fixed, so that nothing is fitted to them:
 * collectives_later.csv. They are shown beside the two parts and in no other table, except for a
 * batch that was added to the split (measurements.c). */
enum { PART_LATER = PART_COUNT };

/* One row of collectives.csv or collectives_later.csv: the run, the measurement and the
 * prediction. */
struct published {
	const char *source, *topology, *device, *links, *status, *origin, *libraries, *notes;
	int64_t nodes, gpus, bytes, gpus_per_process;
	bool domain;      /* over several hosts of an NVLink domain, which counts as one node */
	bool found_later; /* in collectives_later.csv */
	bool handed;      /* but belongs to one of the two parts */
	bool first;       /* the row that represents its source in the split */
	enum collective_kind collective;
	int part;                          /* PART_CALIBRATION, PART_TEST, PART_LATER */
	double measured, predicted, plain; /* s; plain: bytes over the datasheet's links */
	const char *algorithm, *protocol;
	bool judged;
};

struct published_set {
	int n;
	struct published *of;
};

/* Both files of `folder`. */
bool measurements_read(
	struct arena *arena, const char *folder, struct published_set *rows, struct error *error);
/* Splits sources in the order of their names: the first, third, ... test, the others calibrate.
 * Those of the added batch are split among themselves. */
void measurements_split(struct published_set *rows);
bool measurements_predict(const struct catalogue *catalogue, struct arena *arena,
	struct published_set *rows, struct error *error);
double measurement_error(const struct published *row);

/* Groups that are judged together. */
enum collective_bar { BAR_GATHERS, BAR_ALL_REDUCE, BAR_MESSAGES, BAR_COUNT };
enum collective_bar collective_bar(enum collective_kind kind);

/* The report, as Markdown on stdout; and one line of CSV for each row. */
void report_collectives(const struct published_set *rows, struct arena *arena);
void report_measurements(const struct published_set *rows);

#endif
