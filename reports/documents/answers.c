/* JSON documents of `plan`, `plan --find` and `report`. */
#include "reports/documents/json.h"

static void write_strategies(unsigned strategies, struct writer *writer)
{
	writer_begin_list(writer, "strategies");
	for (int s = 0; s < STRATEGY_COUNT; s++) {
		if (strategies >> s & 1)
			writer_string(writer, NULL, strategy_names[s]);
	}
	writer_end_list(writer);
}

/* Writes the question as typed and as it was resolved. */
static void write_full_question(
	const struct question *question, const struct question_text *asked, struct writer *writer)
{
	writer_begin_map(writer, "question");
	if (asked != NULL)
		json_asked(asked, writer);
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
	json_plan(&candidate->plan, writer);
	if (candidate->outcome == OUTCOME_IMPOSSIBLE)
		writer_string(writer, "prediction", NULL);
	else
		json_prediction(&candidate->prediction, writer);
	if (candidate->typed != NULL)
		writer_string(writer, "typed", candidate->typed);
	if (candidate->outcome != OUTCOME_CHOSEN) {
		writer_string(writer, "verdict", outcome_names[candidate->outcome]);
		writer_string(writer, "why_not", or_empty(candidate->why_not));
	}
	writer_end_map(writer);
}

static void write_front(const struct candidate *candidate, struct writer *writer)
{
	writer_begin_map(writer, NULL);
	json_plan(&candidate->plan, writer);
	json_prediction(&candidate->prediction, writer);
	writer_string(writer, "why_not", or_empty(candidate->why_not));
	writer_end_map(writer);
}

static void write_option(const struct plan_option *option, const char *key, struct writer *writer)
{
	writer_begin_map(writer, key);
	json_plan(&option->plan, writer);
	json_prediction(&option->prediction, writer);
	writer_number(writer, "gain", option->gain);
	writer_string(writer, "typed", option->typed);
	writer_end_map(writer);
}

static void write_lever(const struct lever *lever, const char *key, struct writer *writer)
{
	writer_begin_map(writer, key);
	writer_string(writer, "typed", lever->typed);
	writer_number(writer, "gain", lever->gain);
	writer_number(writer, "step_time_s", lever->step_time);
	writer_int(writer, "peak_memory_bytes", lever->peak_memory_bytes);
	writer_end_map(writer);
}

static void write_levers(const struct answer *answer, struct writer *writer)
{
	writer_begin_list(writer, "levers");
	for (int i = 0; i < answer->n_levers; i++)
		write_lever(&answer->levers[i], NULL, writer);
	writer_end_list(writer);
	if (answer->elsewhere != NULL)
		write_lever(answer->elsewhere, "elsewhere", writer);
	if (answer->free != NULL)
		write_option(answer->free, "free", writer);
}

static void write_way_out(const struct way_out *way, struct writer *writer)
{
	writer_begin_map(writer, NULL);
	writer_string(writer, "typed", way->typed);
	writer_string(writer, "topology", way->topology);
	writer_int(writer, "devices", way->devices);
	writer_string(writer, "note", way->note);
	json_plan(&way->plan, writer);
	json_prediction(&way->prediction, writer);
	writer_end_map(writer);
}

static void write_ways_out(const struct answer *answer, struct writer *writer)
{
	if (answer->chosen != NULL)
		return;
	writer_begin_list(writer, "ways_out");
	for (int i = 0; i < answer->n_ways_out; i++)
		write_way_out(&answer->ways_out[i], writer);
	writer_end_list(writer);
	writer_int(writer, "useless_devices", answer->useless_devices);
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
		writer_bool(writer, "near_tie", threshold->near_tie);
	}
	if (threshold->low > 0)
		writer_number(writer, "same_at_low", threshold->low);
	if (threshold->high > 0)
		writer_number(writer, "same_at_high", threshold->high);
	writer_string(writer, "sentence", threshold->sentence);
	writer_end_map(writer);
}

static void write_warnings(const struct answer *answer, struct writer *writer)
{
	writer_begin_list(writer, "warnings");
	for (int i = 0; i < answer->n_warnings; i++) {
		writer_begin_map(writer, NULL);
		writer_string(writer, "id", answer->warnings[i].id);
		writer_string(writer, "sentence", answer->warnings[i].sentence);
		writer_end_map(writer);
	}
	writer_end_list(writer);
}

static void write_proof(const struct answer *answer, struct writer *writer)
{
	writer_begin_map(writer, "proof");
	writer_number(writer, "gap", answer->gap);
	writer_number(writer, "bound_s", answer->bound);
	writer_int(writer, "nodes", answer->evaluated);
	writer_int(writer, "pruned", answer->pruned);
	if (answer->interrupted)
		writer_bool(writer, "interrupted", true);
	writer_end_map(writer);
}

/* Writes reasons, options, sensitivities and doubts into the open map. */
static void write_defence(const struct answer *answer, bool pareto, struct writer *writer)
{
	write_warnings(answer, writer);
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
	writer_begin_list(writer, "options");
	for (int i = 0; i < answer->n_options; i++)
		write_option(&answer->options[i], NULL, writer);
	writer_end_list(writer);
	write_levers(answer, writer);
	write_ways_out(answer, writer);
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

/* Writes the memory that the chosen plan has to leave free, and whether it does. */
static void write_room(
	const struct question *question, const struct answer *answer, struct writer *writer)
{
	writer_int(writer, "departures", answer->departures);
	writer_bool(writer, "tight", answer->tight);
	writer_begin_map(writer, "headroom");
	writer_bool(writer, "asked", question->headroom.given);
	writer_int(writer, "bytes", answer->headroom_bytes);
	writer_begin_list(writer, "doubts");
	for (int i = 0; i < answer->n_doubts; i++) {
		writer_begin_map(writer, NULL);
		writer_string(writer, "what", answer->doubts[i].what);
		writer_int(writer, "bytes", answer->doubts[i].bytes);
		writer_string(writer, "source", answer->doubts[i].source);
		writer_end_map(writer);
	}
	writer_end_list(writer);
	writer_end_map(writer);
}

static void write_change(const struct change *change, struct writer *writer)
{
	writer_begin_map(writer, NULL);
	writer_string(writer, "knob", change->knob);
	writer_string(writer, "from", change->from);
	writer_string(writer, "to", change->to);
	if (change->built) {
		json_prediction(&change->prediction, writer);
	}
	writer_string(writer, "note", or_empty(change->note));
	writer_end_map(writer);
}

static void write_comparison(const struct comparison *comparison, struct writer *writer)
{
	writer_begin_map(writer, "comparison");
	json_plan(&comparison->mine.plan, writer);
	json_prediction(&comparison->mine.prediction, writer);
	writer_string(writer, "statement", comparison->statement);
	writer_begin_list(writer, "changes");
	for (int i = 0; i < comparison->n; i++)
		write_change(&comparison->changes[i], writer);
	writer_end_list(writer);
	writer_end_map(writer);
}

void report_answer_json(const struct question *question, const struct question_text *asked,
	const struct answer *answer, struct text *text)
{
	struct writer writer;

	json_begin(&writer, text, "shardplan/plan/1");
	write_full_question(question, asked, &writer);
	if (answer->chosen != NULL)
		write_candidate(answer->chosen, "chosen", &writer);
	else
		writer_string(&writer, "chosen", NULL);
	if (answer->chosen != NULL)
		write_room(question, answer, &writer);
	json_said_by(answer->n_said_by, answer->said_by, &writer);
	if (answer->compared != NULL)
		write_comparison(answer->compared, &writer);
	write_defence(answer, question->pareto, &writer);
	writer_finish(&writer);
}

void report_imported_json(const struct question_text *asked, const struct plan *plan,
	const struct prediction *prediction, const struct candidate *planned, struct text *text)
{
	struct writer writer;

	json_begin(&writer, text, "shardplan/predict/1");
	json_question(asked, &writer);
	json_plan(plan, &writer);
	json_prediction(prediction, &writer);
	if (planned != NULL)
		write_candidate(planned, "planned", &writer);
	else
		writer_string(&writer, "planned", NULL);
	writer_finish(&writer);
}

static void write_found(const struct found *row, struct writer *writer)
{
	writer_begin_map(writer, NULL);
	writer_string(writer, "tried", row->what);
	writer_number(writer, "value", row->value);
	writer_bool(writer, "answer", row->answer);
	writer_int(writer, "devices", row->devices);
	if (row->ratio > 0)
		writer_number(writer, "efficiency", row->ratio);
	if (row->has_plan) {
		json_plan(&row->plan, writer);
		json_prediction(&row->prediction, writer);
	}
	writer_string(writer, "note", or_empty(row->note));
	writer_end_map(writer);
}

void report_finding_json(
	const struct question_text *asked, const struct finding *finding, struct text *text)
{
	struct writer writer;

	json_begin(&writer, text, "shardplan/find/1");
	json_question(asked, &writer);
	writer_string(&writer, "find", find_names[finding->find]);
	if (finding->exists)
		writer_number(&writer, "value", finding->value);
	else
		writer_string(&writer, "value", NULL);
	writer_string(&writer, "unit", finding->unit);
	writer_string(&writer, "statement", finding->statement);
	writer_string(&writer, "held_fixed", finding->held);
	writer_begin_list(&writer, "rows");
	for (int i = 0; i < finding->n; i++)
		write_found(&finding->rows[i], &writer);
	writer_end_list(&writer);
	writer_int(&writer, "evaluated", finding->evaluated);
	writer_finish(&writer);
}

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
		json_plan(&study->lines[l].plan, writer);
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
		json_check(report->check, writer);
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
	json_question(&report->asked, writer);
	json_plan(&report->explained.schedule->plan, writer);
	json_prediction(report->explained.prediction, writer);
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

	json_begin(&writer, text, "shardplan/report/1");
	writer_begin_list(&writer, "reports");
	for (int i = 0; i < n; i++)
		write_one_report(&reports[i], &writer);
	writer_end_list(&writer);
	writer_finish(&writer);
}
