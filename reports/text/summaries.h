/* Shared by several writers: words for operations, sums over a timeline, exposed communication. */
#ifndef REPORTS_TEXT_SUMMARIES_H
#define REPORTS_TEXT_SUMMARIES_H

#include "reports/text/types.h"

/* The string, or "" for NULL. */
const char *or_empty(const char *string);

const char *format_percent(char buffer[32], double ratio); /* "41.2 %", "-" for 0: unknown */
/* "+4.1 %"; what is rounded away has no sign of its own: "+0.0 %". */
const char *format_change(char buffer[32], double ratio);
/* Seconds in the unit of `other`, so that the two ends of a range have one unit: "103 s to 122
 * s". */
const char *format_beside(char buffer[32], double seconds, double other);
const char *format_tokens(char buffer[32], double tokens_per_s); /* "3412" */
/* measured / predicted: "1.04x"; "-" if one of them is unknown. */
const char *format_ratio(char buffer[32], double predicted, double measured);

/* Example: "forward model.layers.3, micro-batch 0", not escaped. Without a model: "forward layer
 * 3". */
void operation_label(const struct schedule *schedule, const struct op *op, struct text *text);

/* The appearance of a kind. Kinds with one purpose share colour and words. */
struct appearance {
	char letter;     /* in rows of text; capitals for compute and communication */
	const char *css; /* a class of page.css */
	const char *label;
};
struct appearance kind_appearance(enum op_kind kind);

/* Times by kind of operation. */
struct kind_sum {
	int count;
	int64_t bytes;
	double predicted, measured; /* s */
};
void sum_kinds(const struct explained *explained, struct kind_sum sums[OP_KIND_COUNT]);

struct interval {
	double start, end; /* s */
};
/* The intervals in which a collective runs and no other stream computes; ascending, from
 * `arena`. */
int exposed_intervals(const struct schedule *schedule, const struct timeline *timeline,
	struct arena *arena, struct interval **intervals);
/* Seconds in which the stream is busy. */
double stream_busy(
	const struct schedule *schedule, const struct timeline *timeline, enum stream stream);
/* Which streams have operations. */
void streams_used(const struct schedule *schedule, bool used[STREAM_COUNT]);

int64_t sum_categories(const int64_t bytes[CATEGORY_COUNT]);
/* Adds the runtime's overhead at the peak to every point, because the simulator's curve has only
 * allocated memory. A curve that has overhead already is copied. */
void memory_with_overhead(const struct memory_curve *curve, const struct prediction *prediction,
	struct arena *arena, struct memory_curve *full);
/* Reduces the curve to at most `limit` points. Each keeps the fullest moment of its stretch, so
 * that peaks remain. */
void memory_sample(const struct memory_curve *curve, double end, int limit, struct arena *arena,
	struct memory_curve *sampled);
/* The ledger of a timeline as a curve over issue times; empty if the timeline has none. */
void memory_of_ledger(
	const struct timeline *timeline, struct arena *arena, struct memory_curve *curve);

/* The later of the step time and the last end of an operation. */
double timeline_end(const struct timeline *timeline);

/* The distance of ticks: 1, 2 or 5 times the power of ten that is nearest to `about`. */
double round_step(double about);

#endif
