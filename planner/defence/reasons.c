/* The defence: why the chosen plan is best, why the others are not, and how sure the prediction is.
 */
#include "planner/defence/defence.h"

#include "planner/defence/causes.h"

#include <math.h>
#include <string.h>

static const char *finish(struct text *text, struct arena *arena)
{
	const char *sentence = arena_strdup(arena, text_string(text));
	text_finish(text);
	return sentence;
}

static void add_seconds(struct text *text, double seconds)
{
	char buffer[32];
	text_add(text, format_seconds(buffer, seconds));
}

static void add_bytes(struct text *text, double bytes)
{
	char buffer[32];
	text_add(text, format_bytes(buffer, bytes));
}

static void add_signed(struct text *text, double value, void (*add)(struct text *, double))
{
	text_add(text, value < 0 ? "-" : "+");
	add(text, fabs(value));
}

/* --- where the time goes ---------------------------------------------------------------------- */

static void add_cause(struct text *text, const struct cause *cause)
{
	add_seconds(text, cause->more);
	if (cause->before > 0.1 * cause->more)
		text_add(text, " more");
	text_printf(text, " %s", cause->what);
}

/* Names the one or two causes that make up most of `slower` seconds. Where the largest is much more
 * than that, names it and the largest saving, as one clause, and is true: the figure of either
 * would mislead without the other. */
static bool add_causes(struct text *text, const struct cause causes[CAUSE_COUNT], double slower)
{
	const struct cause *saved = &causes[CAUSE_COUNT - 1];
	bool saves = -saved->more > 0.2 * slower && causes[0].more > 1.5 * slower;
	for (int i = 0; i < (saves ? 1 : 2) && causes[i].more > 0.2 * slower; i++) {
		text_add(text, i == 0 ? ": " : ", ");
		add_cause(text, &causes[i]);
	}
	if (!saves)
		return false;
	text_add(text, " against ");
	add_seconds(text, -saved->more);
	text_printf(text, " less %s", saved->what);
	return true;
}

/* --- why not ---------------------------------------------------------------------------------- */

static void add_memory_difference(
	struct text *text, const struct contender *chosen, const struct contender *other)
{
	double less = (double)(prediction_wanted_bytes(chosen->prediction) -
			       prediction_wanted_bytes(other->prediction));
	if (fabs(less) < 0.01 * (double)prediction_wanted_bytes(chosen->prediction))
		return;
	text_add(text, "; needs ");
	add_bytes(text, fabs(less));
	text_add(text, less > 0 ? " less" : " more");
}

static void add_time_difference(struct text *text, const struct question *question,
	const struct contender *chosen, const struct contender *other, struct arena *arena,
	const char **briefly)
{
	double scale = plan_tokens(chosen->plan) / plan_tokens(other->plan);
	double was = chosen->prediction->step_time, is = other->prediction->step_time * scale;
	struct cause causes[CAUSE_COUNT];
	bool same = other->plan->global_batch == chosen->plan->global_batch;
	if (fabs(is - was) < 5e-4 * was) {
		text_add(text, "as fast");
	} else if (is < was) {
		text_printf(text, "%.1f %% faster", (1 - is / was) * 100);
	} else {
		text_printf(
			text, "%.1f %% slower%s", (is / was - 1) * 100, same ? "" : " per token");
		causes_find(question, chosen, other, arena, causes);
		const char *before = arena_strdup(arena, text_string(text));
		*briefly = add_causes(text, causes, is - was)
				   ? arena_printf(arena, "%s: more %s", before, causes[0].briefly)
				   : NULL;
	}
	const char *but = is < was ? " but" : ";";
	if (other->prediction->fits == FITS_TIGHT)
		text_printf(text, "%s tight: the allocator would have to free its cache", but);
	else if (!has_room(question, other->plan, other->prediction))
		text_printf(text, "%s leaves too little memory free", but);
	else if (is < 0.9995 * was && question->objective == OBJECTIVE_TIME)
		text_add(text, " but further from the defaults");
}

static double wire(const struct question *question, const struct contender *contender)
{
	return question->topology->nodes > 1 ? contender->prediction->wire_bytes_node_egress
					     : contender->prediction->wire_bytes_per_rank;
}

/* Under an objective other than time, the difference in that objective comes first. */
static void add_objective_difference(struct text *text, const struct question *question,
	const struct contender *chosen, const struct contender *other)
{
	double scale = plan_tokens(chosen->plan) / plan_tokens(other->plan);
	double more = question->objective == OBJECTIVE_MEMORY
			      ? (double)(prediction_wanted_bytes(other->prediction) -
					 prediction_wanted_bytes(chosen->prediction))
			      : scale * wire(question, other) - wire(question, chosen);
	if (question->objective == OBJECTIVE_TIME || more <= 0)
		return;
	text_add(text, question->objective == OBJECTIVE_MEMORY ? "needs " : "sends ");
	add_bytes(text, more);
	text_add(text, " more, ");
}

const char *defend_slower(const struct question *question, const struct contender *chosen,
	const struct contender *other, struct arena *arena, const char **briefly)
{
	struct text text = {0};
	*briefly = NULL;
	add_objective_difference(&text, question, chosen, other);
	add_time_difference(&text, question, chosen, other, arena, briefly);
	if (question->objective != OBJECTIVE_MEMORY)
		add_memory_difference(&text, chosen, other);
	return finish(&text, arena);
}

const char *defend_too_large(const struct prediction *prediction, bool alone, struct arena *arena)
{
	bool host = prediction_overflows_host(prediction);
	struct text text = {0};
	text_add(&text, alone ? "does not fit alone: needs " : "does not fit: needs ");
	add_bytes(&text, (double)(host ? prediction->host_memory_bytes
				       : prediction_missing_bytes(prediction)));
	text_add(&text, host ? " of a host's " : " of ");
	add_bytes(&text, (double)(host ? prediction->host_memory_limit_bytes
				       : prediction->memory_limit_bytes));
	if (!host && prediction->peak_at != NULL && prediction->peak_at[0] != '\0')
		text_printf(&text, ", most at %s", prediction->peak_at);
	return finish(&text, arena);
}

/* --- reasons ---------------------------------------------------------------------------------- */

void defence_add(struct defence *defence, struct text *text)
{
	const char *reason = finish(text, defence->arena);
	if (defence->n < COUNT_OF(defence->reasons))
		defence->reasons[defence->n++] = reason;
}

static void add_exposed(
	struct text *text, const struct question *question, const struct exposure *exposure)
{
	int most = 0;
	for (int k = 1; k < COLLECTIVES_OF_STEPS; k++)
		if (exposure->seconds[k] > exposure->seconds[most])
			most = k;
	if (exposure->seconds[most] > 0)
		text_printf(text, " (most of it %s on %s)", cause_collectives[most],
			cause_link(question, exposure->over_network[most]));
}

static void add_budget(struct defence *defence, const struct contender *chosen)
{
	const struct prediction *p = chosen->prediction;
	struct text text = {0};
	plan_add_name(chosen->plan, &text);
	text_add(&text, " takes ");
	add_seconds(&text, p->step_time);
	text_add(&text, " per step: ");
	add_seconds(&text, p->time.compute);
	text_add(&text, " of compute, ");
	add_seconds(&text, p->time.optimizer);
	text_add(&text, " in the optimizer, ");
	add_seconds(&text, p->time.exposed_communication);
	text_add(&text, " of exposed communication");
	add_exposed(&text, defence->question, chosen->exposure);
	text_add(&text, ".");
	defence_add(defence, &text);
}

static void add_memory(struct defence *defence, const struct contender *chosen)
{
	const struct prediction *p = chosen->prediction;
	struct text text = {0};
	int most = 0;
	for (int c = 1; c < CATEGORY_COUNT; c++)
		if (p->memory_at_peak[c] > p->memory_at_peak[most])
			most = c;
	text_add(&text, "Its peak is ");
	add_bytes(&text, (double)p->peak_memory_bytes);
	text_add(&text, " of ");
	add_bytes(&text, (double)p->memory_limit_bytes);
	text_printf(&text, ", at %s; the largest part is ", p->peak_at);
	for (const char *c = category_names[most]; *c != '\0'; c++)
		text_add_char(&text, *c == '_' ? ' ' : *c);
	text_add(&text, " (");
	add_bytes(&text, (double)p->memory_at_peak[most]);
	text_add(&text, ").");
	defence_add(defence, &text);
}

static void add_batch_rule(struct defence *defence)
{
	struct text text = {0};
	if (defence->search->space.same_batch)
		return;
	text_printf(&text,
		"Without --global-batch, plans are compared by time per token, "
		"and a step has at most %lld tokens.",
		(long long)SPACE_FREE_BATCH_TOKENS);
	defence_add(defence, &text);
}

/* Says why the fastest plan was not chosen: of two plans within `simplicity` the simpler one is
 * chosen, and a plan with too little free memory is chosen last. */
static void add_preference(struct defence *defence, const struct contender *chosen)
{
	const struct ranking *ranking = &defence->search->ranking;
	const struct ranked *first = &ranking->entries[0];
	double best = (double)first->costs.of[COST_TIME];
	double mine = (double)costs_time(chosen->plan, chosen->prediction->step_time);
	struct text text = {0};
	if (ranking->objective != COST_TIME || mine <= best)
		return;
	text_printf(&text, "The fastest plan is %.2f %% faster, ", (1 - best / mine) * 100);
	if (first->tight)
		text_add(&text,
			"but leaves too little memory free, or needs its allocator to retry.");
	else if (first->divided && !has_axes(chosen->plan))
		text_printf(&text,
			"but cuts the model over ranks: "
			"within %g %% (twice --simplicity) a plan that does not is chosen.",
			defence->search->question->simplicity * 200);
	else
		text_printf(&text,
			"but further from its framework's defaults: "
			"within %g %% the simpler plan is chosen (--simplicity).",
			defence->search->question->simplicity * 100);
	defence_add(defence, &text);
}

static void add_offload(struct defence *defence, const struct contender *chosen)
{
	const struct prediction *p = chosen->prediction;
	struct text text = {0};
	if (!defence->search->offloads)
		return;
	text_add(&text, "Nothing fits without CPU offload");
	if (defence->search->least_without < INT64_MAX) {
		text_add(&text, " (the closest plan needs ");
		add_bytes(&text, (double)defence->search->least_without);
		text_add(&text, " per device)");
	}
	text_add(&text, ", so plans with it were searched: this one keeps ");
	add_bytes(&text, (double)p->host_memory_bytes);
	text_add(&text,
		" in each node's host memory. `--find min-gpus` says how many devices need none.");
	defence_add(defence, &text);
}

/* Describes the stages if the search has moved blocks between them. */
static void add_stages(struct defence *defence, const struct contender *chosen)
{
	double usual = defence->search->unshared;
	struct text text = {0};
	if (usual == 0 || chosen->plan->layers_per_stage.text == NULL)
		return;
	text_printf(&text,
		"Its stages have %s blocks, so that none is much slower than the others: "
		"as %s cuts them a step takes %.1f %% longer.",
		chosen->plan->layers_per_stage.text, runtime_names[chosen->plan->runtime],
		(usual / chosen->prediction->step_time - 1) * 100);
	defence_add(defence, &text);
}

void defend_winner(struct defence *defence, const struct contender *chosen)
{
	add_offload(defence, chosen);
	add_budget(defence, chosen);
	add_memory(defence, chosen);
	add_stages(defence, chosen);
	add_preference(defence, chosen);
	add_batch_rule(defence);
}

/* --- knobs ------------------------------------------------------------------------------------ */

struct effect {
	const struct variant *most; /* NULL: the runtime has no other value */
	double seconds, bytes;
};

static bool belongs(const char *knob, const char *const *names)
{
	for (int i = 0; names[i] != NULL; i++)
		if (strcmp(knob, names[i]) == 0)
			return true;
	return false;
}

static struct effect find_effect(const char *const *names, const struct contender *chosen,
	const struct variants *variants, enum objective objective)
{
	struct effect effect = {0};
	double most = -1;
	for (int i = 0; i < variants->n; i++) {
		const struct variant *variant = &variants->items[i];
		double seconds = variant->step_time - chosen->prediction->step_time;
		double bytes = (double)(prediction_wanted_bytes(&variant->prediction) -
					prediction_wanted_bytes(chosen->prediction));
		double size = fabs(objective == OBJECTIVE_MEMORY ? bytes : seconds);
		if (!variant->built || !belongs(variant->knob, names) || size <= most)
			continue;
		most = size;
		effect.most = variant;
		effect.seconds = seconds;
		effect.bytes = bytes;
	}
	return effect;
}

static double effect_size(const struct effect *effect, enum objective objective)
{
	if (effect->most == NULL)
		return -1;
	return fabs(objective == OBJECTIVE_MEMORY ? effect->bytes : effect->seconds);
}

static bool is_nothing(const struct effect *effect)
{
	return effect->most == NULL || (effect->seconds == 0 && effect->bytes == 0);
}

/* "wrap model: +645 ms, +49.8 GiB (does not fit)" */
static void add_effect(struct text *text, const struct effect *effect)
{
	text_printf(text, "%s %s: ", effect->most->knob, effect->most->value);
	add_signed(text, effect->seconds, add_seconds);
	text_add(text, ", ");
	add_signed(text, effect->bytes, add_bytes);
	if (effect->most->prediction.fits == FITS_NO)
		text_add(text, " (does not fit)");
}

void defend_knobs(
	struct defence *defence, const struct contender *chosen, const struct variants *variants)
{
	static const char *const wrap[] = {"wrap", NULL};
	static const char *const strategy[] = {"strategy", "shard_group", NULL};
	static const char *const prefetch[] = {"prefetch", "forward_prefetch", NULL};
	static const char *const recomputed[] = {"activation_checkpointing", NULL};
	static const char *const axes[] = {"tensor", "pipeline", "context", "expert", NULL};
	static const char *const *const knobs[] = {wrap, strategy, prefetch, recomputed, axes};
	enum { SHOWN = 3 };
	enum objective objective = defence->question->objective;
	struct effect effects[COUNT_OF(knobs)];
	struct text text = {0};
	for (int i = 0; i < COUNT_OF(knobs); i++) {
		struct effect effect = find_effect(knobs[i], chosen, variants, objective);
		int j = i;
		for (; j > 0 &&
			effect_size(&effects[j - 1], objective) < effect_size(&effect, objective);
			j--)
			effects[j] = effects[j - 1];
		effects[j] = effect;
	}
	if (is_nothing(&effects[0]))
		return;
	text_add(&text, "What matters most, one change at a time: ");
	for (int i = 0; i < SHOWN && !is_nothing(&effects[i]); i++) {
		text_add(&text, i == 0 ? "" : "; ");
		add_effect(&text, &effects[i]);
	}
	text_add(&text, ".");
	defence_add(defence, &text);
}

/* --- nothing fits ----------------------------------------------------------------------------- */

static bool variant_fits(const struct variant *variant)
{
	return variant->prediction.fits != FITS_NO;
}

static bool helps_more(const struct variant *a, const struct variant *b)
{
	if (variant_fits(a) != variant_fits(b))
		return variant_fits(a);
	if (variant_fits(a))
		return a->step_time < b->step_time;
	return prediction_wanted_bytes(&a->prediction) < prediction_wanted_bytes(&b->prediction);
}

/* The fastest variant that fits; if none fits, the one with the least memory. */
static const struct variant *most_helpful(const struct variants *variants)
{
	const struct variant *most = NULL;
	for (int i = 0; i < variants->n; i++) {
		const struct variant *variant = &variants->items[i];
		if (variant->built && (most == NULL || helps_more(variant, most)))
			most = variant;
	}
	return most;
}

static void add_help(struct text *text, const struct variant *most, int64_t peak)
{
	double now = (double)peak;
	if (most == NULL || (double)prediction_wanted_bytes(&most->prediction) > 0.95 * now) {
		text_add(text, "No single knob lowers its peak by more than 5 %: use more devices, "
			       "a shorter sequence or a smaller model.");
		return;
	}
	bool nodes = strcmp(most->knob, "nodes") == 0;
	text_printf(text, "What would help most is %s %s: peak ", nodes ? most->value : most->knob,
		nodes ? most->knob : most->value);
	add_bytes(text, (double)most->prediction.peak_memory_bytes);
	text_add(text, !variant_fits(most)                 ? ", which is not enough."
		       : most->prediction.fits == FITS_YES ? ", which fits."
							   : ", which fits if the allocator "
							     "frees what it caches.");
}

/* `closest` and `variants` are NULL if no plan could be made. */
void defend_nothing(
	struct defence *defence, const struct contender *closest, const struct variants *variants)
{
	struct text text = {0};
	if (closest == NULL)
		return;
	text_printf(&text, "The closest plan %s. It is ",
		defend_too_large(closest->prediction, false, defence->arena));
	plan_summary(closest->plan, &text);
	text_add(&text, ".");
	defence_add(defence, &text);
	add_help(&text, most_helpful(variants), closest->prediction->peak_memory_bytes);
	defence_add(defence, &text);
}
