/* Writes one of every document into a folder, for the tests in other languages (JSON Schema, the
 * page in a browser): write_documents FOLDER [MODEL TOPOLOGY | --names NAME]. */
#include <stdio.h>
#include <string.h>

#include "fixture.h"

static void write_file(const char *folder, const char *name, struct text *text)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	FILE *file = fopen(path, "w");
	if (file == NULL || fwrite(text_string(text), 1, text->length, file) < text->length ||
		fclose(file) != 0)
		perror(path);
	text_finish(text);
}

static void write_all(struct fixture *f, const char *folder)
{
	const struct style style = {false, 0};
	struct text text = {0};
	struct plan_file file = {f->report.asked, f->model, f->topology, f->schedule->plan,
		f->prediction, f->prediction.schedule_digest};
	struct writer writer;

	report_answer_json(&f->question, &f->report.asked, &f->answer, &text);
	write_file(folder, "plan.json", &text);
	report_prediction_json(&f->report.asked, &f->schedule->plan, &f->prediction, &text);
	write_file(folder, "predict.json", &text);
	report_measurement_json(&f->report.asked, &f->schedule->plan, &f->measurement, &text);
	write_file(folder, "measurement.json", &text);
	report_check_json(&f->check, &text);
	write_file(folder, "check.json", &text);
	report_explain_json(&f->report.explained, &text);
	write_file(folder, "explain.json", &text);
	plan_file_write(&file, &text);
	write_file(folder, "plan-file.yaml", &text);
	topology_print(f->topology, WRITER_JSON, &text);
	write_file(folder, "topology.json", &text);
	writer_init(&writer, &text, WRITER_JSON);
	model_write_details(f->model, &writer);
	writer_finish(&writer);
	write_file(folder, "model.json", &text);
	report_html(&f->report, 1, &text);
	write_file(folder, "report.html", &text);
	const struct report both[] = {f->report, f->report};
	report_html(both, 2, &text);
	write_file(folder, "reports.html", &text);
	report_json(&f->report, 1, &text);
	write_file(folder, "report.json", &text);
	report_csv(&f->report, 1, &text);
	write_file(folder, "report.csv", &text);
	report_markdown(&f->report, 1, &text);
	write_file(folder, "report.md", &text);
	report_snapshot(&f->explained, &text);
	write_file(folder, "snapshot.pickle", &text);
	report_trace(&f->report.explained, &text);
	write_file(folder, "trace.json", &text);
	report_answer_text(&f->question, &f->answer, &style, &text);
	write_file(folder, "plan.txt", &text);
	for (int i = 0; i < n_report_views; i++) {
		char name[64];
		report_views[i].write(&f->report.explained, &style, &text);
		snprintf(name, sizeof(name), "explain-%s.txt", report_views[i].name);
		write_file(folder, name, &text);
		if (report_views[i].draw == NULL)
			continue;
		report_views[i].draw(&f->report.explained, &text);
		snprintf(name, sizeof(name), "%s.svg", report_views[i].name);
		write_file(folder, name, &text);
	}
	report_check_text(&f->check, &style, &text);
	write_file(folder, "check.txt", &text);
	report_prediction_text(
		&f->schedule->plan, f->model, f->topology, &f->prediction, &style, &text);
	write_file(folder, "predict.txt", &text);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"grad_accum", "1", NULL};
	struct fixture fixture;

	if (argc != 2 && argc != 4) {
		fprintf(stderr, "usage: write_documents FOLDER [MODEL TOPOLOGY | --names NAME]\n");
		return 2;
	}
	bool named = argc > 2 && strcmp(argv[2], "--names") == 0;
	bool chosen = argc > 2 && !named;
	fixture_init(&fixture, chosen ? argv[2] : "gpt2-nano", chosen ? argv[3] : "2xdgx-a100-80gb",
		options);
	if (named)
		fixture_rename(&fixture, argv[3]);
	write_all(&fixture, argv[1]);
	fixture_finish(&fixture);
	return 0;
}
