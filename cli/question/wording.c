/* `plan --for TARGET`: restricts plans to those that a framework's configuration can express. */
#include "cli/question/question.h"
#include "frameworks/frameworks.h"
#include "schedule/resolve/resolve.h"

static void settle(const void *context, const struct model *model, const struct topology *topology,
	struct arena *arena, struct plan *plan)
{
	export_settle(context, model, topology, arena, plan);
}

/* The runtime is that of the framework. */
static bool take_runtime(struct question *question, struct arena *arena, struct error *error)
{
	struct question usual = *question;
	struct plan plan;

	question_open(&usual, KNOB_GLOBAL_BATCH);
	if (!plan_resolve(&usual, arena, &plan, error) ||
		!question_is_said(question, &plan, arena, error))
		return false;
	const struct plan said = question_settle(question, &plan, arena);
	question_take(question, KNOB_RUNTIME, &said);
	return true;
}

bool ask_wording(const struct arguments *arguments, struct arena *arena, struct question *question,
	struct error *error)
{
	const char *name = argument(arguments, "for");

	if (name == NULL)
		return true;
	const struct export_target *target = export_find(name, error);
	if (target == NULL || !export_runs_on(target, question->topology, error))
		return false;
	struct wording *wording = ARENA_NEW(arena, struct wording);
	*wording = (struct wording){target->name, target, settle};
	question->wording = wording;
	/* Takes the framework's default of gradient clipping. */
	if (target->clips && !question_gives(question, KNOB_CLIP))
		question_put(question, KNOB_CLIP, (union knob_value){.real = 1});
	return take_runtime(question, arena, error);
}
