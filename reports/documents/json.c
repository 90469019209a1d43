/* The JSON documents: {schema, version, question, ...}. docs/schema/ describes each. */
#include "reports/documents/documents.h"

static void begin_document(struct writer *writer, struct text *text, const char *schema)
{
	writer_init(writer, text, WRITER_JSON);
	writer_string(writer, "schema", schema);
	writer_string(writer, "version", SHARDPLAN_VERSION);
}

static void write_asked(const struct question_text *asked, struct writer *writer)
{
	writer_string(writer, "model", asked->model);
	writer_string(writer, "topology", asked->topology);
	writer_string(writer, "options", asked->options);
}

static void write_question(const struct question_text *asked, struct writer *writer)
{
	if (asked == NULL)
		return;
	writer_begin_map(writer, "question");
	write_asked(asked, writer);
	writer_end_map(writer);
}

static void write_plan(const struct plan *plan, struct writer *writer)
{
	writer_begin_map(writer, "plan");
	plan_write(plan, writer);
	writer_end_map(writer);
}

static void write_prediction(const struct prediction *prediction, struct writer *writer)
{
	writer_begin_map(writer, "prediction");
	prediction_write(prediction, writer);
	writer_end_map(writer);
}

static void write_strategies(unsigned strategies, struct writer *writer)
{
	writer_begin_list(writer, "strategies");
	for (int s = 0; s < STRATEGY_COUNT; s++) {
		if (strategies >> s & 1)
			writer_string(writer, NULL, strategy_names[s]);
	}
	writer_end_list(writer);
}

/* As typed, and what it was resolved to. */
static void write_full_question(
	const struct question *question, const struct question_text *asked, struct writer *writer)
{
	writer_begin_map(writer, "question");
	if (asked != NULL)
		write_asked(asked, writer);
	if (question->model != NULL)
		writer_int(writer, "parameters", question->model->parameter_count);
	if (question->topology != NULL) {
		const struct topology *topology = question->topology;
		writer_int(writer, "nodes", topology->nodes);
		writer_int(writer, "devices", topology_devices(topology));
		writer_string(writer, "device", topology->device.name);
	}
	writer_int(writer, "memory_limit_bytes", question->memory_limit_bytes);
	writer_string(writer, "objective", objective_names[question->objective]);
	if (question->strategies != 0)
		write_strategies(question->strategies, writer);
	writer_end_map(writer);
}

static void write_candidate(
	const struct candidate *candidate, const char *key, struct writer *writer)
{
	writer_begin_map(writer, key);
	write_plan(&candidate->plan, writer);
	if (candidate->outcome == OUTCOME_IMPOSSIBLE)
		writer_string(writer, "prediction", NULL);
	else
		write_prediction(&candidate->prediction, writer);
	if (candidate->outcome != OUTCOME_CHOSEN) {
		writer_string(writer, "verdict", outcome_names[candidate->outcome]);
		writer_string(writer, "why_not", or_empty(candidate->why_not));
	}
	writer_end_map(writer);
}

static void write_front(const struct candidate *candidate, struct writer *writer)
{
	writer_begin_map(writer, NULL);
	write_plan(&candidate->plan, writer);
	write_prediction(&candidate->prediction, writer);
	writer_string(writer, "why_not", or_empty(candidate->why_not));
	writer_end_map(writer);
}

static void write_sensitivity(const struct sensitivity *row, struct writer *writer)
{
	writer_begin_map(writer, NULL);
	writer_string(writer, "knob", row->knob);
	writer_string(writer, "value", row->value);
	if (row->step_time > 0)
		writer_number(writer, "step_time_s", row->step_time);
	else
		writer_string(writer, "step_time_s", NULL);
	writer_int(writer, "peak_memory_bytes", row->peak_memory_bytes);
	writer_string(writer, "note", or_empty(row->note));
	writer_end_map(writer);
}

static void write_threshold(const struct threshold *threshold, struct writer *writer)
{
	writer_begin_map(writer, NULL);
	writer_string(writer, "what", threshold->what);
	writer_string(writer, "unit", threshold->unit);
	writer_number(writer, "now", threshold->now);
	if (threshold->at > 0) {
		writer_number(writer, "at", threshold->at);
		writer_string(writer, "becomes", threshold->becomes);
	}
	writer_string(writer, "sentence", threshold->sentence);
	writer_end_map(writer);
}

static void write_proof(const struct answer *answer, struct writer *writer)
{
	writer_begin_map(writer, "proof");
	writer_number(writer, "gap", answer->gap);
	writer_number(writer, "bound_s", answer->bound);
	writer_int(writer, "nodes", answer->evaluated);
	writer_int(writer, "pruned", answer->pruned);
	writer_end_map(writer);
}

/* Why, what else, what if, and how sure: into the open map. */
static void write_defence(const struct answer *answer, bool pareto, struct writer *writer)
{
	writer_begin_list(writer, "reasons");
	for (int i = 0; i < answer->n_reasons; i++)
		writer_string(writer, NULL, answer->reasons[i]);
	writer_end_list(writer);
	writer_begin_list(writer, "alternatives");
	for (int i = 0; i < answer->n_alternatives; i++)
		write_candidate(&answer->alternatives[i], NULL, writer);
	writer_end_list(writer);
	if (pareto) {
		writer_begin_list(writer, "pareto");
		for (int i = 0; i < answer->n_front; i++)
			write_front(&answer->front[i], writer);
		writer_end_list(writer);
	}
	writer_begin_list(writer, "sensitivity");
	for (int i = 0; i < answer->n_sensitivities; i++)
		write_sensitivity(&answer->sensitivities[i], writer);
	writer_end_list(writer);
	writer_begin_list(writer, "thresholds");
	for (int i = 0; i < answer->n_thresholds; i++)
		write_threshold(&answer->thresholds[i], writer);
	writer_end_list(writer);
	write_proof(answer, writer);
}

void report_answer_json(const struct question *question, const struct question_text *asked,
	const struct answer *answer, struct text *text)
{
	struct writer writer;

	begin_document(&writer, text, "shardplan/plan/1");
	write_full_question(question, asked, &writer);
	if (answer->chosen != NULL)
		write_candidate(answer->chosen, "chosen", &writer);
	else
		writer_string(&writer, "chosen", NULL);
	if (answer->compared != NULL)
		comparison_write(answer->compared, &writer);
	write_defence(answer, question->pareto, &writer);
	writer_finish(&writer);
}

void report_prediction_json(const struct question_text *asked, const struct plan *plan,
	const struct prediction *prediction, struct text *text)
{
	struct writer writer;

	begin_document(&writer, text, "shardplan/predict/1");
	write_question(asked, &writer);
	write_plan(plan, &writer);
	write_prediction(prediction, &writer);
	writer_finish(&writer);
}

void report_measurement_json(const struct question_text *asked, const struct plan *plan,
	const struct measurement *measured, struct text *text)
{
	struct writer writer;

	begin_document(&writer, text, "shardplan/measurement/1");
	write_question(asked, &writer);
	write_plan(plan, &writer);
	writer_begin_map(&writer, "measurement");
	measurement_write(measured, &writer);
	writer_end_map(&writer);
	writer_finish(&writer);
}

static void write_check_line(const struct check_line *line, struct writer *writer)
{
	writer_begin_map(writer, NULL);
	writer_string(writer, "what", line->what);
	writer_string(writer, "unit", line->unit);
	writer_number(writer, "predicted", line->predicted);
	writer_number(writer, "measured", line->measured);
	writer_bool(writer, "exact", line->exact);
	writer_bool(writer, "judged", line->judged);
	writer_bool(writer, "ok", line->ok);
	writer_end_map(writer);
}

static void write_check(const struct check *check, struct writer *writer)
{
	writer_bool(writer, "ok", check->ok);
	writer_begin_list(writer, "lines");
	for (int i = 0; i < check->n_lines; i++)
		write_check_line(&check->lines[i], writer);
	writer_end_list(writer);
}

void report_check_json(const struct check *check, struct text *text)
{
	struct writer writer;

	begin_document(&writer, text, "shardplan/check/1");
	write_check(check, &writer);
	writer_finish(&writer);
}

static void write_span(
	const char *key, const struct timeline *timeline, int op, struct writer *writer)
{
	if (timeline == NULL || op >= timeline->n_ops)
		return;
	const struct span *span = &timeline->spans[op];
	writer_begin_map(writer, key);
	writer_number(writer, "issued_s", span->issued);
	writer_number(writer, "start_s", span->start);
	writer_number(writer, "end_s", span->end);
	writer_end_map(writer);
}

static void write_operation(const struct explained *explained, int i, struct writer *writer)
{
	const struct schedule *schedule = explained->schedule;
	const struct op *op = &schedule->programs[0].ops[i];
	struct text label = {0};

	operation_label(schedule, op, &label);
	writer_begin_map(writer, NULL);
	writer_int(writer, "index", i);
	writer_string(writer, "kind", op_kind_name(op->kind));
	writer_string(writer, "label", text_string(&label));
	writer_string(writer, "stream", stream_name(op->stream));
	writer_int(writer, "unit", op->unit);
	writer_int(writer, "micro_batch", op->micro_batch);
	writer_int(writer, "bytes", op->bytes);
	write_span("predicted", explained->predicted, i, writer);
	if (explained->measured != NULL)
		write_span("measured", &explained->measured->timeline, i, writer);
	writer_end_map(writer);
	text_finish(&label);
}

static void write_memory(const struct memory_curve *memory, struct writer *writer)
{
	writer_begin_list(writer, "memory");
	for (int i = 0; i < memory->n; i++) {
		writer_begin_map(writer, NULL);
		writer_number(writer, "time_s", memory->times[i]);
		for (int c = 0; c < CATEGORY_COUNT; c++)
			writer_int(writer, category_names[c], memory->bytes[i][c]);
		writer_end_map(writer);
	}
	writer_end_list(writer);
}

static void write_critical(const struct critical_path *critical, struct writer *writer)
{
	writer_begin_list(writer, "critical_path");
	for (int i = 0; i < critical->n; i++) {
		writer_begin_map(writer, NULL);
		writer_int(writer, "operation", critical->ops[i]);
		writer_string(writer, "reason", critical_reason_names[critical->reasons[i]]);
		writer_end_map(writer);
	}
	writer_end_list(writer);
}

void report_explain_json(const struct explained *explained, struct text *text)
{
	const struct schedule *schedule = explained->schedule;
	struct writer writer;

	begin_document(&writer, text, "shardplan/explain/1");
	write_plan(&schedule->plan, &writer);
	if (explained->prediction != NULL)
		write_prediction(explained->prediction, &writer);
	writer_begin_list(&writer, "operations");
	for (int i = 0; i < schedule->programs[0].n_ops; i++)
		write_operation(explained, i, &writer);
	writer_end_list(&writer);
	if (explained->memory != NULL)
		write_memory(explained->memory, &writer);
	if (explained->critical != NULL)
		write_critical(explained->critical, &writer);
	writer_finish(&writer);
}

/* --- report -------------------------------------------------------------------------------------
 */

static void write_point(
	const struct study *study, const struct study_point *point, int i, struct writer *writer)
{
	writer_begin_map(writer, NULL);
	writer_number(writer, "value", study->values[i]);
	writer_string(writer, "fits", point->built ? fits_names[point->fits] : NULL);
	if (point->built) {
		writer_number(writer, "step_time_s", point->step_time);
		writer_number(writer, "tokens_per_s_per_gpu", point->tokens_per_s_per_gpu);
		writer_number(writer, "exposed_communication_s", point->exposed);
		writer_int(writer, "peak_memory_bytes", point->peak_memory_bytes);
	}
	writer_end_map(writer);
}

static void write_study(const char *key, const struct study *study, struct writer *writer)
{
	if (study == NULL)
		return;
	writer_begin_map(writer, key);
	writer_string(writer, "quantity", study->quantity);
	writer_begin_list(writer, "lines");
	for (int l = 0; l < study->n_lines; l++) {
		writer_begin_map(writer, NULL);
		writer_string(writer, "name", study->lines[l].name);
		write_plan(&study->lines[l].plan, writer);
		writer_begin_list(writer, "points");
		for (int i = 0; i < study->n_points; i++)
			write_point(study, &study->lines[l].points[i], i, writer);
		writer_end_list(writer);
		writer_end_map(writer);
	}
	writer_end_list(writer);
	writer_end_map(writer);
}

static void write_measured(const struct report *report, struct writer *writer)
{
	if (report->check != NULL) {
		writer_begin_map(writer, "check");
		write_check(report->check, writer);
		writer_end_map(writer);
	}
	if (report->explained.measured != NULL) {
		writer_begin_map(writer, "measurement");
		measurement_write(report->explained.measured, writer);
		writer_end_map(writer);
	}
}

static void write_one_report(const struct report *report, struct writer *writer)
{
	writer_begin_map(writer, NULL);
	writer_string(writer, "name", report_name(report));
	write_question(&report->asked, writer);
	write_plan(&report->explained.schedule->plan, writer);
	write_prediction(report->explained.prediction, writer);
	if (report->answer != NULL) {
		writer_begin_map(writer, "defence");
		writer_bool(writer, "chosen", report->answer->chosen != NULL);
		write_defence(report->answer, true, writer);
		writer_end_map(writer);
	}
	write_study("scaling", report->scaling, writer);
	write_study("link", report->link, writer);
	write_measured(report, writer);
	writer_end_map(writer);
}

void report_json(const struct report *reports, int n, struct text *text)
{
	struct writer writer;

	begin_document(&writer, text, "shardplan/report/1");
	writer_begin_list(&writer, "reports");
	for (int i = 0; i < n; i++)
		write_one_report(&reports[i], &writer);
	writer_end_list(&writer);
	writer_finish(&writer);
}
