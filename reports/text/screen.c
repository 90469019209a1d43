/* The first screen of an answer: 24 lines of 100 columns. `--explain`, the report and JSON have the
 * rest. */
#include <math.h>

#include "reports/text/screen.h"

enum {
	OTHERS_MAX = 5,
	LEVERS_SHOWN = 4,
	WARNINGS_SHOWN = 3,
};

/* A smaller gain in time per token is not worth blocks that differ; --explain lists it. */
#define LEAST_GAIN 0.02
/* A plan slower by less than this may be called the fastest. */
#define NO_SLOWER 0.0005

struct screen {
	const struct question *question;
	const struct answer *answer;
	const struct style *style;
	struct text *text;
	int left; /* lines left of SCREEN_LINES, on a terminal of SCREEN_COLUMNS */
};

/* --- lines ------------------------------------------------------------------------------------ */

static int width_of(const struct screen *screen)
{
	int width = screen->style->width;
	return width > 0 && width < SCREEN_COLUMNS ? width : SCREEN_COLUMNS;
}

static void put_blank(struct screen *screen)
{
	text_add_char(screen->text, '\n');
	screen->left--;
}

/* Puts a sentence behind a label and takes its text. */
static void put_behind(struct screen *screen, const char *label, int indent, struct text *sentence)
{
	struct text counted = {0};

	screen->left -= put_line(label, indent, text_string(sentence), SCREEN_COLUMNS, &counted);
	put_line(label, indent, text_string(sentence), width_of(screen), screen->text);
	text_finish(&counted);
	text_finish(sentence);
}

static void put_labelled(struct screen *screen, const char *label, struct text *sentence)
{
	put_behind(screen, label, SCREEN_INDENT, sentence);
}

/* Puts those clauses of a sentence that fit on one line, whole. */
static void put_clauses(struct screen *screen, const char *label, struct text *sentence)
{
	struct text cut = {0};

	add_clauses(text_string(sentence), SCREEN_COLUMNS - SCREEN_INDENT, &cut);
	text_finish(sentence);
	put_labelled(screen, label, &cut);
}

/* --- the answer ------------------------------------------------------------------------------- */

static void put_question(struct screen *screen)
{
	const struct answer *answer = screen->answer;
	const struct plan *plan = answer->chosen != NULL       ? &answer->chosen->plan
				  : answer->n_alternatives > 0 ? &answer->alternatives[0].plan
							       : NULL;
	struct text line = {0};

	add_subject_line(screen->question->model, screen->question->topology, &line);
	screen->left -= put_line("", 0, text_string(&line), width_of(screen), screen->text);
	text_clear(&line);
	if (plan != NULL) {
		add_work(plan, &line);
		screen->left -= put_line("", 0, text_string(&line), width_of(screen), screen->text);
	}
	text_finish(&line);
	put_blank(screen);
}

static void put_bold(struct screen *screen, bool on)
{
	if (screen->style->color)
		text_add(screen->text, on ? "\033[1m" : "\033[0m");
}

static void put_words(struct screen *screen, const char *label, const struct plan *plan)
{
	struct text strategy = {0}, settings = {0};

	if (screen->answer->tight)
		text_add(&strategy, "tight, for no plan leaves more memory free: ");
	add_plan_words(screen->question, plan, &strategy, &settings);
	put_bold(screen, true);
	put_labelled(screen, label, &strategy);
	put_bold(screen, false);
	put_labelled(screen, "", &settings);
}

static void put_plan(struct screen *screen)
{
	const struct candidate *chosen = screen->answer->chosen;
	struct text figure = {0};

	put_words(screen, "Use", &chosen->plan);
	add_time_figure(&chosen->prediction, &figure);
	put_labelled(screen, "Time", &figure);
	add_speed_figure(device_noun(screen->question->topology), &chosen->prediction, &figure);
	if (chosen->prediction.mfu > 0 && chosen->plan.fp8 != FP8_OFF)
		text_printf(&figure, " of the peak in %s",
			knob_name(KNOB_PARAM_DTYPE, (int)chosen->plan.param_dtype));
	put_labelled(screen, "Speed", &figure);
	add_memory_figure(screen->question, screen->answer, &figure);
	put_labelled(screen, "Memory", &figure);
}

/* Says that nothing fits, with the plan that exceeds memory least. */
static void put_nothing(struct screen *screen)
{
	const struct answer *answer = screen->answer;
	struct text line = {0};

	text_add(&line, "No plan fits.");
	if (answer->n_alternatives == 0 || answer->alternatives[0].outcome == OUTCOME_IMPOSSIBLE) {
		put_labelled(screen, "", &line);
		return;
	}
	put_bold(screen, true);
	screen->left -= put_line("", 0, text_string(&line), width_of(screen), screen->text);
	put_bold(screen, false);
	text_clear(&line);
	put_words(screen, "Closest", &answer->alternatives[0].plan);
	add_missing_memory(screen->question, &answer->alternatives[0].prediction, &line);
	put_clauses(screen, "Memory", &line);
}

/* --- why -------------------------------------------------------------------------------------- */

/* Adds waiting first, then the rest of what is not compute. On one line the optimizer counts as
 * compute. */
static bool add_waits(const struct prediction *p, struct text *text)
{
	const struct {
		double seconds;
		const char *what;
	} waits[] = {{p->time.bubble, "bubble"}, {p->time.allocator, "allocator retries"},
		{p->time.data_wait, "waiting for data"}};
	int n = 0;

	for (int i = 0; i < COUNT_OF(waits); i++) {
		char seconds[32];
		if (waits[i].seconds <= 0)
			continue;
		text_printf(text, n > 0 ? ", %s" : "%s", format_seconds(seconds, waits[i].seconds));
		if (n++ == 0)
			text_printf(text, " (%.1f %%) of a step is",
				100 * waits[i].seconds / p->step_time);
		text_printf(text, " %s", waits[i].what);
	}
	return n > 0;
}

static void add_shares(const struct prediction *p, struct text *text)
{
	char exposed[32], optimizer[32];

	format_seconds(exposed, p->time.exposed_communication);
	if (add_waits(p, text)) {
		text_printf(text, ", %s exposed communication, the rest compute", exposed);
		return;
	}
	if (p->time.exposed_communication > 0)
		text_printf(text, "%s (%.1f %%) of a step is exposed communication", exposed,
			100 * p->time.exposed_communication / p->step_time);
	else
		text_add(text, "no communication is exposed");
	text_printf(text, ", %s the optimizer, the rest compute",
		format_seconds(optimizer, p->time.optimizer));
}

static void add_certainty(const struct screen *screen, struct text *text)
{
	const struct answer *answer = screen->answer;
	bool same_batch = question_gives(screen->question, KNOB_GLOBAL_BATCH);
	double slower = 1 - answer->bound / answer->chosen->prediction.step_time;

	switch (screen->question->objective) {
	case OBJECTIVE_TIME:
		if (slower > NO_SLOWER)
			text_printf(text, "within %.1f %% of ", 100 * slower);
		text_printf(text, "the fastest%s%s", same_batch ? "" : " per token",
			answer->tight ? "" : " with room in memory");
		if (slower > NO_SLOWER && answer->gap < slower)
			text_add(text, ", and nearer to the defaults");
		break;
	case OBJECTIVE_MEMORY:
		text_add(text, "the one with the least memory");
		break;
	case OBJECTIVE_NETWORK:
		text_add(text, "the one with the least traffic");
		break;
	}
	text_printf(text, "; %lld of %lld plans needed simulation", (long long)answer->evaluated,
		(long long)(answer->evaluated + answer->pruned));
}

static void put_why(struct screen *screen)
{
	const struct candidate *chosen = screen->answer->chosen;
	struct text line = {0};
	char host[32];

	if (chosen == NULL)
		return;
	add_certainty(screen, &line);
	put_clauses(screen, "Why", &line);
	if (plan_offloads_any(&chosen->plan) &&
		!question_gives(screen->question, KNOB_CPU_OFFLOAD)) {
		text_printf(&line, "nothing fits without CPU offload: %s of each host's memory",
			format_bytes(host, (double)chosen->prediction.host_memory_bytes));
		put_labelled(screen, "", &line);
	}
	add_shares(&chosen->prediction, &line);
	put_clauses(screen, "", &line);
}

/* --- the others ------------------------------------------------------------------------------- */

static void name_strategy(const struct screen *screen, const struct plan *plan, struct text *name)
{
	const struct candidate *chosen = screen->answer->chosen;

	plan_add_name(plan, name);
	if (chosen != NULL && plan->runtime != chosen->plan.runtime)
		text_printf(name, " (%s)", runtime_names[plan->runtime]);
}

/* The best plan of every other strategy. */
static int find_others(
	const struct answer *answer, bool asked, const struct candidate *others[OTHERS_MAX])
{
	bool seen[STRATEGY_COUNT] = {false};
	int n = 0;

	if (answer->chosen == NULL && answer->n_alternatives > 0)
		seen[answer->alternatives[0].plan.strategy] = true;
	if (answer->chosen != NULL)
		seen[answer->chosen->plan.strategy] = true;
	/* A strategy that cannot be built is listed only if the user asked for it. */
	for (int i = answer->chosen == NULL; i < answer->n_alternatives && n < OTHERS_MAX; i++) {
		const struct candidate *candidate = &answer->alternatives[i];
		bool silent = candidate->outcome == OUTCOME_IMPOSSIBLE && !asked;
		if (!seen[candidate->plan.strategy] && !silent)
			others[n++] = candidate;
		seen[candidate->plan.strategy] = true;
	}
	return n;
}

/* The clauses that fit on one line. What can be said briefly is, unless one of the `spare` lines is
 * left for it. */
static void add_reason(
	const struct candidate *candidate, int columns, int *spare, struct text *line)
{
	add_clauses(or_empty(candidate->why_not), columns, line);
	if ((int)line->length <= columns || candidate->briefly == NULL || (*spare)-- > 0)
		return;
	text_clear(line);
	text_add(line, candidate->briefly);
}

static int count_others(const struct screen *screen)
{
	const struct candidate *others[OTHERS_MAX];
	return find_others(screen->answer, screen->question->strategies != 0, others);
}

/* `spare`: lines that nothing else needs. */
static void put_others(struct screen *screen, int spare)
{
	const struct candidate *others[OTHERS_MAX];
	struct text names[OTHERS_MAX] = {0}, none = {0};
	bool asked = screen->question->strategies != 0;
	int n = find_others(screen->answer, asked, others);
	int width = 0;

	if (screen->answer->chosen == NULL && n > 0 && !asked) {
		text_add(&none, "no other strategy fits either; --explain says what each needs");
		put_labelled(screen, "Others", &none);
		return;
	}
	for (int i = 0; i < n; i++) {
		name_strategy(screen, &others[i]->plan, &names[i]);
		width = (int)names[i].length > width ? (int)names[i].length : width;
	}
	for (int i = 0; i < n; i++) {
		struct text label = {0}, line = {0};
		text_printf(&label, "%-*s%s", SCREEN_INDENT, i == 0 ? "Others" : "",
			text_string(&names[i]));
		int indent = SCREEN_INDENT + width + 2;
		add_reason(others[i], SCREEN_COLUMNS - indent, &spare, &line);
		put_behind(screen, text_string(&label), indent, &line);
		text_finish(&label);
		text_finish(&names[i]);
	}
}

/* --- options ---------------------------------------------------------------------------------- */

static bool has_together(const struct answer *answer)
{
	return answer->free != NULL && answer->n_levers > 1;
}

/* How many lines levers take where all are shown. */
static int lever_lines(const struct answer *answer)
{
	int lines = answer->n_levers + has_together(answer) + (answer->elsewhere != NULL);
	return lines < LEVERS_SHOWN ? lines : LEVERS_SHOWN;
}

/* Puts one line for each lever, and one for all together, with the plan that they allow. */
static void put_levers(struct screen *screen, int most)
{
	const struct answer *answer = screen->answer;
	const struct plan_option *all = answer->free;
	bool alone = !has_together(answer);
	const char *label = "Levers";
	struct text line = {0};

	most -= !alone + (answer->elsewhere != NULL);
	for (int i = 0; i < answer->n_levers && i < most; i++, label = "") {
		const struct lever *lever = &answer->levers[i];
		text_printf(&line, "%s: ", lever->typed);
		add_lever_gain(answer, lever->gain, "time", lever->peak_memory_bytes, &line);
		put_labelled(screen, label, &line);
	}
	if (!alone && most > 0) {
		text_add(&line, "together, planned anew: ");
		add_lever_gain(answer, all->gain, saved_time(answer, all->plan.global_batch),
			all->prediction.peak_memory_bytes, &line);
		text_add(&line, " (`--free all`)");
		put_labelled(screen, label, &line);
		label = "";
	}
	elsewhere_sentence(answer, &line);
	if (line.length > 0)
		put_labelled(screen, label, &line);
}

/* Puts the options with which something fits. */
static void put_ways_out(struct screen *screen)
{
	const struct answer *answer = screen->answer;
	struct text line = {0};

	for (int i = 0; i < answer->n_ways_out; i++) {
		way_out_sentence(&answer->ways_out[i], &line);
		put_labelled(screen, i > 0 ? "" : "Way out", &line);
	}
	useless_devices_sentence(answer, &line);
	if (line.length > 0)
		put_labelled(screen, answer->n_ways_out > 0 ? "" : "Way out", &line);
	text_finish(&line);
}

/* The gain in time per token over the chosen plan. */
static double gain_of(const struct candidate *chosen, const struct candidate *other)
{
	return 1 - chosen->prediction.tokens_per_s_per_gpu / other->prediction.tokens_per_s_per_gpu;
}

/* The fastest plan that was not chosen because it leaves too little memory. */
static const struct candidate *fastest_tight(const struct answer *answer)
{
	const struct candidate *fastest = NULL;

	for (int i = 0; i < answer->n_alternatives; i++) {
		const struct candidate *other = &answer->alternatives[i];
		if (other->outcome == OUTCOME_SLOWER && other->typed != NULL &&
			other->prediction.fits == FITS_TIGHT &&
			(fastest == NULL || gain_of(fastest, other) > 0))
			fastest = other;
	}
	return fastest;
}

/* Adds why a tight plan was not chosen: above the device's memory the allocator frees its cache. */
static void add_tightness(const struct prediction *p, struct text *line)
{
	double wanted = (double)prediction_wanted_bytes(p);
	bool beyond = wanted > (double)p->memory_limit_bytes;
	char peak[32], limit[32];

	text_printf(line,
		"%s (%s of %s): ", beyond ? ", but expect allocator retries" : " but tight",
		format_bytes(peak, wanted), format_bytes(limit, (double)p->memory_limit_bytes));
}

/* Puts one line for the fastest plan that departs further from the defaults. */
static void put_option(struct screen *screen)
{
	const struct answer *answer = screen->answer;
	const struct candidate *tight = fastest_tight(answer);
	double mixed = answer->n_options > 0 ? answer->options[0].gain : 0;
	struct text line = {0};

	if (tight != NULL && gain_of(answer->chosen, tight) > fmax(mixed, LEAST_GAIN)) {
		text_printf(&line, "%.1f %% less %s", 100 * gain_of(answer->chosen, tight),
			saved_time(answer, tight->plan.global_batch));
		add_tightness(&tight->prediction, &line);
		add_terminal(&line, tight->typed);
	} else if (mixed > LEAST_GAIN) {
		text_printf(&line, "%.1f %% less %s: ", 100 * mixed,
			saved_time(answer, answer->options[0].plan.global_batch));
		add_terminal(&line, answer->options[0].typed);
	}
	if (line.length > 0)
		put_labelled(screen, "Option", &line);
	text_finish(&line);
}

/* --- warnings, and what to type next ---------------------------------------------------------- */

/* Puts one line for each warning. */
static void put_cautions(struct screen *screen)
{
	const struct answer *answer = screen->answer;
	struct text line = {0};

	if (answer->interrupted) {
		text_add(&line, "Interrupted: this is the best plan so far");
		put_labelled(screen, "Warning", &line);
	}
	for (int i = 0; i < answer->n_warnings && i < WARNINGS_SHOWN; i++) {
		add_terminal(&line, answer->warnings[i].sentence);
		put_labelled(screen, i > 0 ? "" : "Warning", &line);
	}
}

/* Puts which configuration files can express the plan. */
static void put_exports(struct screen *screen)
{
	const struct answer *answer = screen->answer;
	struct text line = {0};

	if (answer->said_by == NULL)
		return;
	for (int i = 0; i < answer->n_said_by; i++)
		text_printf(&line, "%s%s", i > 0 ? ", " : "", answer->said_by[i]);
	text_printf(&line, "%s say%s it unchanged", answer->n_said_by > 0 ? "" : "none",
		answer->n_said_by > 1 ? "" : "s");
	if (answer->n_said_by < 2 && screen->question->wording == NULL)
		text_add(&line, "; `--for TARGET` plans within what one can say");
	put_labelled(screen, "Exports", &line);
}

static void put_further(struct screen *screen)
{
	struct text line = {0};

	if (screen->answer->chosen == NULL)
		text_add(&line, "--explain: every table; --find min-gpus; --find max-seq-len");
	else
		text_printf(&line,
			"--explain: every table; -o plan.yaml, then explain, train, export "
			"--to %s; report",
			screen->question->wording != NULL ? screen->question->wording->name
							  : "TARGET");
	put_labelled(screen, "More", &line);
}

void report_screen_text(const struct question *question, const struct answer *answer,
	const struct style *style, struct text *text)
{
	struct text rest = {0};
	struct screen screen = {question, answer, style, text, SCREEN_LINES};

	put_question(&screen);
	if (answer->chosen != NULL)
		put_plan(&screen);
	else
		put_nothing(&screen);
	put_blank(&screen);
	put_why(&screen);
	/* The lines below the levers are made first: the others have a line each, levers get the
	 * lines that are left, and what they leave says more of the others. */
	struct screen below = screen;
	below.text = &rest;
	below.left -= count_others(&screen);
	if (answer->chosen != NULL)
		put_option(&below);
	put_cautions(&below);
	put_exports(&below);
	put_further(&below);
	put_others(&screen, below.left - lever_lines(answer));
	if (answer->chosen != NULL)
		put_levers(&screen, below.left < LEVERS_SHOWN ? below.left : LEVERS_SHOWN);
	else
		put_ways_out(&screen);
	text_add(text, text_string(&rest));
	text_finish(&rest);
}
