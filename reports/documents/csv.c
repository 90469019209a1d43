/* The rows of `predict --cases`. Programs read them, so numbers are plain and have six digits. */
#include <string.h>

#include "reports/documents/documents.h"

enum cell_unit {
	CELL_SECONDS,
	CELL_GIB,     /* from bytes */
	CELL_PERCENT, /* from a ratio; empty if it is unknown */
	CELL_NUMBER
};

enum cell_type { CELL_DOUBLE, CELL_INT };

struct case_column {
	const char *name;
	enum cell_unit unit;
	enum cell_type type;
	size_t offset; /* in struct prediction */
};

#define FIGURE(member) CELL_DOUBLE, offsetof(struct prediction, member)
#define BYTES(member)  CELL_INT, offsetof(struct prediction, member)
#define CATEGORY(suffix)                                                                           \
	CELL_INT, offsetof(struct prediction, memory_at_peak) + CATEGORY_##suffix * sizeof(int64_t)

/* The columns between `case,fits` and `error`. */
static const struct case_column columns[] = {
	{"step_time_s", CELL_SECONDS, FIGURE(step_time)},
	{"tokens_per_s_per_gpu", CELL_NUMBER, FIGURE(tokens_per_s_per_gpu)},
	{"mfu_percent", CELL_PERCENT, FIGURE(mfu)},
	{"hfu_percent", CELL_PERCENT, FIGURE(hfu)},
	{"peak_memory_gib", CELL_GIB, BYTES(peak_memory_bytes)},
	{"peak_allocated_gib", CELL_GIB, BYTES(peak_allocated_bytes)},
	{"peak_reserved_gib", CELL_GIB, BYTES(peak_reserved_bytes)},
	{"parameters_gib", CELL_GIB, CATEGORY(PARAMETERS)},
	{"gradients_gib", CELL_GIB, CATEGORY(GRADIENTS)},
	{"optimizer_state_gib", CELL_GIB, CATEGORY(OPTIMIZER_STATE)},
	{"activations_gib", CELL_GIB, CATEGORY(ACTIVATIONS)},
	{"temporary_buffers_gib", CELL_GIB, CATEGORY(TEMPORARY_BUFFERS)},
	{"communication_buffers_gib", CELL_GIB, CATEGORY(COMMUNICATION_BUFFERS)},
	{"runtime_overhead_gib", CELL_GIB, CATEGORY(RUNTIME_OVERHEAD)},
	{"compute_s", CELL_SECONDS, FIGURE(time.compute)},
	{"all_gather_s", CELL_SECONDS, FIGURE(time.all_gather)},
	{"reduce_scatter_s", CELL_SECONDS, FIGURE(time.reduce_scatter)},
	{"all_reduce_s", CELL_SECONDS, FIGURE(time.all_reduce)},
	{"exposed_communication_s", CELL_SECONDS, FIGURE(time.exposed_communication)},
	{"step_time_low_s", CELL_SECONDS, FIGURE(step_time_low)},
	{"step_time_high_s", CELL_SECONDS, FIGURE(step_time_high)},
};

bool report_has_case_column(const char *name)
{
	for (int i = 0; i < COUNT_OF(columns); i++)
		if (strcmp(columns[i].name, name) == 0)
			return true;
	return strcmp(name, "fits") == 0 || strcmp(name, "error") == 0;
}

static void add_inputs(const char *const *inputs, struct text *text)
{
	for (; inputs != NULL && *inputs != NULL; inputs++)
		csv_add_cell(text, *inputs, false);
	text_add_char(text, '\n');
}

void report_case_header(const char *const *inputs, struct text *text)
{
	text_add(text, "case,fits");
	for (int i = 0; i < COUNT_OF(columns); i++)
		text_printf(text, ",%s", columns[i].name);
	text_add(text, ",error");
	add_inputs(inputs, text);
}

static double column_value(const struct case_column *column, const struct prediction *prediction)
{
	const char *member = (const char *)prediction + column->offset;

	if (column->type == CELL_INT)
		return (double)*(const int64_t *)member;
	return *(const double *)member;
}

static void add_value(
	const struct case_column *column, const struct prediction *prediction, struct text *text)
{
	double value = column_value(column, prediction);

	text_add_char(text, ',');
	if (column->unit == CELL_PERCENT && value == 0)
		return;
	if (column->unit == CELL_GIB)
		value /= 0x1p30;
	if (column->unit == CELL_PERCENT)
		value *= 100;
	text_printf(text, "%.6g", value);
}

void report_case_row(const char *name, const struct prediction *prediction, const char *message,
	const char *const *inputs, struct text *text)
{
	csv_add_cell(text, name, true);
	text_add_char(text, ',');
	if (prediction != NULL)
		text_add(text, fits_names[prediction->fits]);
	for (int i = 0; i < COUNT_OF(columns); i++) {
		if (prediction != NULL)
			add_value(&columns[i], prediction, text);
		else
			text_add_char(text, ',');
	}
	csv_add_cell(text, or_empty(message), false);
	add_inputs(inputs, text);
}

/* A row's name has what differs from the first row's plan. */
static void add_plan_row(const struct report *report, const struct plan *plan,
	const struct prediction *prediction, const char *why, struct text *text)
{
	const struct plan *first = &report->explained.schedule->plan;
	struct text name = {0};
	char batch[48];

	text_add(&name, report_name(report));
	text_add(&name, ": ");
	candidate_name(plan, plan == first ? NULL : first, &name);
	text_printf(&name, ", checkpointing %s, micro-batch %s",
		plan->activation_checkpointing.text,
		format_micro_batch(batch, plan->micro_batch, plan->grad_accum));
	report_case_row(text_string(&name), prediction, why, NULL, text);
	text_finish(&name);
}

void report_csv(const struct report *reports, int n, struct text *text)
{
	report_case_header(NULL, text);
	for (int r = 0; r < n; r++) {
		const struct report *report = &reports[r];
		const struct plan *plan = &report->explained.schedule->plan;
		const struct answer *answer = report->answer;
		add_plan_row(report, plan, report->explained.prediction, "", text);
		if (report->explained.measured != NULL)
			add_plan_row(report, plan, &report->explained.measured->values, "measured",
				text);
		for (int i = 0; answer != NULL && i < answer->n_alternatives; i++) {
			const struct candidate *candidate = &answer->alternatives[i];
			bool built = candidate->outcome != OUTCOME_IMPOSSIBLE;
			add_plan_row(report, &candidate->plan,
				built ? &candidate->prediction : NULL, candidate->why_not, text);
		}
	}
}
