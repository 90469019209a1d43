/* The whole answer to a question, from text to text, in a program in which files, processes,
 * threads, clocks, locale and environment fail when they are used (stubs.c), as in a web page. Any
 * argument calls a forbidden function on purpose, and must make the program fail. */
#include <stdlib.h>
#include <string.h>

#include "models/models.h"
#include "planner/planner.h"
#include "reports/reports.h"
#include "simulator/simulator.h"
#include "topologies/topologies.h"

void stubs_arm(void);
_Noreturn void stubs_fail(const char *what);

static void check(bool ok, const char *what, const struct error *error)
{
	if (!ok)
		stubs_fail(error->message[0] != '\0' ? error->message : what);
}

/* The inputs are text, as a page would have them: the printed forms of what is embedded. */
static void read_inputs(struct arena *arena, struct model **model, struct topology **topology)
{
	struct error error = {0};
	struct text text = {0};

	check(model_load_preset(arena, "llama-2-7b", model, &error), "preset", &error);
	check(topology_load_name(arena, "2xdgx-a100-80gb", topology, &error), "catalogue", &error);
	topology_print(*topology, WRITER_YAML, &text);
	check(topology_parse(arena, "page", text.data, text.length, topology, &error),
		"printed topology", &error);
	text_finish(&text);
}

static void answer_question(struct arena *arena, struct question *question, struct answer *answer)
{
	struct error error = {0};
	struct text text = {0};
	const struct question_text asked = {"llama-2-7b", "2xdgx-a100-80gb", ""};
	const struct style style = {.width = 80};

	check(question_set_by_name(question, "global_batch", "page", "64", arena, &error), "choice",
		&error);
	check(planner_plan(question, arena, answer, &error), "planner", &error);
	check(answer->chosen != NULL, "7B fits on 16 A100s", &error);
	report_answer_text(question, answer, &style, &text);
	check(strstr(text.data, "FULL_SHARD") != NULL, "the answer names strategies", &error);
	text_clear(&text);
	report_answer_json(question, &asked, answer, &text);
	check(text.length > 1000, "the answer as JSON", &error);
	text_finish(&text);
}

static void draw_report(struct arena *arena, struct question *question, struct answer *answer)
{
	struct error error = {0};
	struct text text = {0};
	struct schedule *schedule;
	struct simulation simulation = {0};
	const struct simulation_options options = {0};

	check(schedule_build(arena, &answer->chosen->plan, question->model, question->topology,
		      &schedule, &error),
		"schedule", &error);
	check(simulate(schedule, &options, true, arena, &simulation, &error), "simulator", &error);
	struct report report = {.asked = {"llama-2-7b", "2xdgx-a100-80gb", ""},
		.question = question,
		.answer = answer,
		.explained = {.schedule = schedule,
			.prediction = &simulation.prediction,
			.predicted = &simulation.timeline,
			.memory = &simulation.memory,
			.critical = &simulation.critical}};
	report_html(&report, 1, &text);
	check(text.length > 1000, "the page", &error);
	text_clear(&text);
	report_trace(&report.explained, &text);
	check(text.length > 1000, "the trace", &error);
	text_finish(&text);
}

int main(int argc, char **argv)
{
	struct arena arena = {0};
	struct question question = {0};
	struct answer answer = {0};
	struct model *model;
	struct topology *topology;

	(void)argv;
	stubs_arm();
	if (argc > 1)
		return getenv("HOME") == NULL;
	read_inputs(&arena, &model, &topology);
	question.model = model;
	question.topology = topology;
	answer_question(&arena, &question, &answer);
	draw_report(&arena, &question, &answer);
	arena_finish(&arena);
	return 0;
}
