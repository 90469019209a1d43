/* JSON of predictions, measurements, checks, explained steps and diagnoses. */
#include "reports/documents/json.h"

void json_begin(struct writer *writer, struct text *text, const char *schema)
{
	writer_init(writer, text, WRITER_JSON);
	writer_string(writer, "schema", schema);
	writer_string(writer, "version", SHARDPLAN_VERSION);
}

static void write_rows(const char *key, const struct field *fields, const void *rows, int n,
	size_t size, struct writer *writer)
{
	writer_begin_list(writer, key);
	for (int i = 0; i < n; i++) {
		writer_begin_map(writer, NULL);
		fields_write(fields, (const char *)rows + (size_t)i * size, writer);
		writer_end_map(writer);
	}
	writer_end_list(writer);
}

void json_asked(const struct question_text *asked, struct writer *writer)
{
	writer_string(writer, "model", asked->model);
	writer_string(writer, "topology", asked->topology);
	writer_string(writer, "options", asked->options);
}

void json_question(const struct question_text *asked, struct writer *writer)
{
	if (asked == NULL)
		return;
	writer_begin_map(writer, "question");
	json_asked(asked, writer);
	writer_end_map(writer);
}

void json_plan(const struct plan *plan, struct writer *writer)
{
	writer_begin_map(writer, "plan");
	plan_write(plan, writer);
	writer_end_map(writer);
}

void json_prediction(const struct prediction *prediction, struct writer *writer)
{
	writer_begin_map(writer, "prediction");
	prediction_write(prediction, writer);
	writer_end_map(writer);
}

void report_prediction_json(const struct question_text *asked, const struct plan *plan,
	const struct prediction *prediction, struct text *text)
{
	struct writer writer;

	json_begin(&writer, text, "shardplan/predict/1");
	json_question(asked, &writer);
	json_plan(plan, &writer);
	json_prediction(prediction, &writer);
	writer_finish(&writer);
}

void report_measurement_json(const struct question_text *asked, const struct plan *plan,
	const struct measurement *measured, struct text *text)
{
	struct writer writer;

	json_begin(&writer, text, "shardplan/measurement/1");
	json_question(asked, &writer);
	json_plan(plan, &writer);
	writer_begin_map(&writer, "measurement");
	measurement_write(measured, &writer);
	writer_end_map(&writer);
	writer_finish(&writer);
}

static const struct field check_fields[] = {
	FIELD_STRING(struct check_line, what, "what", 0),
	FIELD_STRING(struct check_line, unit, "unit", 0),
	FIELD_DOUBLE(struct check_line, predicted, "predicted", 0),
	FIELD_DOUBLE(struct check_line, measured, "measured", 0),
	FIELD_BOOL(struct check_line, exact, "exact", 0),
	FIELD_BOOL(struct check_line, judged, "judged", 0),
	FIELD_BOOL(struct check_line, ok, "ok", 0),
	FIELD_END,
};

void json_check(const struct check *check, struct writer *writer)
{
	writer_bool(writer, "ok", check->ok);
	write_rows("lines", check_fields, check->lines, check->n_lines, sizeof(check->lines[0]),
		writer);
	if (check->slower <= 0)
		return;
	writer_begin_map(writer, "yardstick");
	writer_number(writer, "before", check->slower_before);
	writer_number(writer, "after", check->slower_after);
	writer_number(writer, "mean", check->slower);
	writer_end_map(writer);
}

void report_check_json(const struct check *check, struct text *text)
{
	struct writer writer;

	json_begin(&writer, text, "shardplan/check/1");
	json_check(check, &writer);
	writer_finish(&writer);
}

static void write_summary(const char *key, const struct activity_summary *s, struct writer *writer)
{
	writer_begin_map(writer, key);
	writer_number(writer, "step_time_s", s->step_time);
	writer_begin_list(writer, "activities");
	for (int kind = 0; kind < ACTIVITY_KIND_COUNT; kind++) {
		writer_begin_map(writer, NULL);
		writer_string(writer, "kind", activity_names[kind]);
		writer_number(writer, "exposed_s", s->exposed[kind]);
		writer_number(writer, "total_s", s->seconds[kind]);
		writer_number(writer, "count", s->count[kind]);
		writer_number(writer, "bytes", s->bytes[kind]);
		writer_number(writer, "median_s", s->typical[kind]);
		writer_end_map(writer);
	}
	writer_end_list(writer);
	writer_number(writer, "waiting_host_s", s->waiting_host);
	writer_number(writer, "waiting_data_s", s->waiting_data);
	writer_number(writer, "waiting_allocator_s", s->waiting_allocator);
	writer_number(writer, "waiting_other_s", s->waiting_other);
	writer_number(writer, "allocator_calls", s->allocator_calls);
	writer_end_map(writer);
}

static const struct field cause_fields[] = {
	FIELD_STRING(struct diagnosis_cause, id, "id", 0),
	FIELD_STRING(struct diagnosis_cause, title, "title", 0),
	FIELD_STRING(struct diagnosis_cause, evidence, "evidence", 0),
	FIELD_STRING(struct diagnosis_cause, advice, "advice", 0),
	FIELD_DOUBLE(struct diagnosis_cause, seconds, "measured_s", 0),
	FIELD_DOUBLE(struct diagnosis_cause, gain, "predicted_gain_s", 0),
	FIELD_END,
};

static const struct field part_fields[] = {
	FIELD_STRING(struct diagnosis_part, name, "name", 0),
	FIELD_DOUBLE(struct diagnosis_part, measured, "measured_s", 0),
	FIELD_DOUBLE(struct diagnosis_part, expected, "predicted_s", 0),
	FIELD_END,
};

void report_diagnosis_json(const struct diagnosis *d, struct text *text)
{
	struct writer writer;

	json_begin(&writer, text, "shardplan/diagnose/1");
	if (d->mfu > 0) {
		writer_number(&writer, "mfu", d->mfu);
		writer_number(&writer, "predicted_mfu", d->expected_mfu);
	}
	write_rows("parts", part_fields, d->parts, DIAGNOSIS_PARTS, sizeof(d->parts[0]), &writer);
	if (d->loss != NULL)
		writer_string(&writer, "largest_loss", d->loss->name);
	write_summary("measured", &d->measured, &writer);
	write_summary("predicted", &d->expected, &writer);
	write_rows("causes", cause_fields, d->causes, d->n_causes, sizeof(d->causes[0]), &writer);
	writer_finish(&writer);
}

static const struct field convention_fields[] = {
	FIELD_STRING(struct mfu_convention, name, "name", 0),
	FIELD_DOUBLE(struct mfu_convention, predicted, "predicted", 0),
	FIELD_DOUBLE(struct mfu_convention, measured, "measured", 0),
	FIELD_END,
};

static const struct field candidate_fields[] = {
	FIELD_STRING(struct figure_candidate, id, "id", 0),
	FIELD_STRING(struct figure_candidate, title, "title", 0),
	FIELD_STRING(struct figure_candidate, look, "look_at", 0),
	FIELD_DOUBLE(struct figure_candidate, step_time, "step_time_s", 0),
	FIELD_DOUBLE(struct figure_candidate, effect, "effect_s", 0),
	FIELD_BOOL(struct figure_candidate, fits, "fits", 0),
	FIELD_END,
};

static const struct field condition_fields[] = {
	FIELD_STRING(struct figure_condition, id, "id", 0),
	FIELD_STRING(struct figure_condition, text, "text", 0),
	FIELD_END,
};

void report_figures_json(const struct figures_diagnosis *d, struct text *text)
{
	struct writer writer;

	json_begin(&writer, text, "shardplan/figures/1");
	writer_number(&writer, "step_time_s", d->step_time);
	writer_number(&writer, "predicted_step_time_s", d->prediction->step_time);
	if (d->mfu > 0)
		writer_number(&writer, "given_mfu", d->mfu);
	if (d->convention != NULL)
		writer_string(&writer, "given_mfu_counts", d->convention->name);
	if (d->n_steps > 0)
		writer_int(&writer, "steps", d->n_steps);
	write_rows("mfu", convention_fields, d->conventions, d->n_conventions,
		sizeof(d->conventions[0]), &writer);
	write_rows("candidates", candidate_fields, d->candidates, d->n_candidates,
		sizeof(d->candidates[0]), &writer);
	write_rows("conditions", condition_fields, d->conditions, d->n_conditions,
		sizeof(d->conditions[0]), &writer);
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

void json_said_by(int n, const char *const *names, struct writer *writer)
{
	if (names == NULL)
		return;
	writer_begin_list(writer, "said_by");
	for (int i = 0; i < n; i++)
		writer_string(writer, NULL, names[i]);
	writer_end_list(writer);
}

void report_explain_json(const struct explained *explained, struct text *text)
{
	const struct schedule *schedule = explained->schedule;
	struct writer writer;

	json_begin(&writer, text, "shardplan/explain/1");
	json_plan(&schedule->plan, &writer);
	if (explained->prediction != NULL)
		json_prediction(explained->prediction, &writer);
	json_said_by(explained->n_said_by, explained->said_by, &writer);
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

static const struct field fitted_run_fields[] = {
	FIELD_STRING(struct fitted_run, name, "name", 0),
	FIELD_DOUBLE(struct fitted_run, measured, "measured_s", 0),
	FIELD_DOUBLE(struct fitted_run, before, "before_s", 0),
	FIELD_DOUBLE(struct fitted_run, after, "after_s", 0),
	FIELD_DOUBLE(struct fitted_run, left_out, "left_out_s", 0),
	FIELD_BOOL(struct fitted_run, outlier, "outlier", 0),
	FIELD_END,
};

static const struct field fitted_constant_fields[] = {
	FIELD_STRING(struct fitted_constant, id, "id", 0),
	FIELD_STRING(struct fitted_constant, name, "name", 0),
	FIELD_ENUM(struct fitted_constant, verdict, "verdict", 0, fit_verdict_names),
	FIELD_STRING(struct fitted_constant, unit, "unit", 0),
	FIELD_DOUBLE(struct fitted_constant, before, "before", 0),
	FIELD_DOUBLE(struct fitted_constant, after, "after", 0),
	FIELD_DOUBLE(struct fitted_constant, low, "low", 0),
	FIELD_DOUBLE(struct fitted_constant, high, "high", 0),
	FIELD_DOUBLE(struct fitted_constant, factor, "factor", 0),
	FIELD_DOUBLE(struct fitted_constant, prior_doubt, "prior_doubt", 0),
	FIELD_DOUBLE(struct fitted_constant, doubt, "doubt", 0),
	FIELD_STRING(struct fitted_constant, advice.run, "advice_run", FIELD_OMIT_ZERO),
	FIELD_STRING(struct fitted_constant, advice.change, "advice_change", FIELD_OMIT_ZERO),
	FIELD_DOUBLE(struct fitted_constant, advice.left, "advice_left", 0),
	FIELD_END,
};

void report_fitting_json(const struct fitting *fitting, struct text *text)
{
	struct writer writer;

	json_begin(&writer, text, "shardplan/fit/1");
	write_rows("runs", fitted_run_fields, fitting->runs, fitting->n_runs,
		sizeof(fitting->runs[0]), &writer);
	write_rows("constants", fitted_constant_fields, fitting->constants, FIT_CONSTANT_COUNT,
		sizeof(fitting->constants[0]), &writer);
	writer_begin_map(&writer, "errors");
	writer_number(&writer, "before", fitting->errors.before);
	writer_number(&writer, "after", fitting->errors.after);
	writer_number(&writer, "left_out", fitting->errors.left_out);
	writer_end_map(&writer);
	writer_number(&writer, "spread", fitting->spread);
	writer_begin_map(&writer, "topology");
	topology_write(fitting->topology, &writer);
	writer_end_map(&writer);
	writer_finish(&writer);
}
