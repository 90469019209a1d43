/* How close the others are, whether the prediction tells them apart, and what would.
 *
 * Two plans for one machine share most of what the model gets wrong: a device that is 10 % slower
 * than predicted is so for both. So the question is not whether two intervals overlap, but how sure
 * the difference is. The difference is a sum over kinds of work (compute, each collective that is
 * exposed, optimizer, ...), the model's relative error of a kind is the same for both plans, and
 * errors of different kinds are taken as independent, each as wide as the prediction's own
 * interval says (sigma, one standard deviation, relative):
 *
 *     sd(difference) = sigma sqrt(sum over kinds of (time of the one - time of the other)^2)
 *
 * The model tells two plans apart when the difference is above 1.2816 sd (80 % of a normal
 * distribution are within) and above what runs of one plan differ by: one standard deviation of
 * repeats where the machine was measured, and 1 % of the step at least. */
#include <math.h>

#include "planner/defence/causes.h"

#define QUANTILE 1.2816 /* two-sided 80 % quantile of the normal distribution */
#define NOISE    0.01   /* least relative difference between two runs of one plan */

static double relative_error(const struct prediction *prediction)
{
	double ratio = prediction->step_time_high / prediction->step_time;
	return ratio > 1 ? log(ratio) / QUANTILE : 0;
}

/* The relative difference between runs of one plan. On a measured machine it is the spread of the
 * measurement, because other processes use its cores too. */
static double noise_of(const struct topology *topology)
{
	const struct calibration *c = &topology->calibration;
	return c->measured ? fmax(NOISE, c->residual_spread) : NOISE;
}

struct gap {
	double was, is;   /* s, over the chosen plan's tokens */
	double noise;     /* s: difference between runs of one plan */
	double uncertain; /* s: half the 80 % interval of the difference */
	struct cause causes[CAUSE_COUNT];
};

static void find_gap(const struct question *question, const struct contender *chosen,
	const struct contender *other, struct arena *arena, struct gap *gap)
{
	double squares = 0;
	gap->was = chosen->prediction->step_time;
	gap->noise = noise_of(question->topology) * gap->was;
	gap->is =
		other->prediction->step_time * plan_tokens(chosen->plan) / plan_tokens(other->plan);
	causes_find(question, chosen, other, arena, gap->causes);
	for (int i = 0; i < CAUSE_COUNT; i++)
		squares += gap->causes[i].more * gap->causes[i].more;
	gap->uncertain = QUANTILE * relative_error(chosen->prediction) * sqrt(squares);
}

static bool can_tell(const struct gap *gap)
{
	double difference = fabs(gap->is - gap->was);
	return difference > gap->uncertain && difference > gap->noise;
}

/* The kind of work whose misprediction changes the decision soonest: if it takes `*factor` times
 * its predicted time, both plans take equally long. NULL: no factor between 1/10 and 10 does. */
static const struct cause *settling(const struct gap *gap, double *factor)
{
	const struct cause *best = NULL;
	double least = log(10);
	for (int i = 0; i < CAUSE_COUNT; i++) {
		const struct cause *cause = &gap->causes[i];
		double f = cause->more != 0 ? 1 - (gap->is - gap->was) / cause->more : -1;
		if (f <= 0 || fabs(log(f)) >= least || fabs(cause->more) < 1e-3 * gap->was)
			continue;
		least = fabs(log(f));
		best = cause;
		*factor = f;
	}
	return best;
}

static void add_settling(struct text *text, const struct gap *gap)
{
	double factor;
	const struct cause *cause = settling(gap, &factor);
	if (cause == NULL)
		return;
	text_printf(text,
		" To decide, measure %s: "
		"at %.2f times the predicted time both plans take equally long.",
		cause->measure, factor);
}

static void add_noise(struct text *text, const struct gap *gap)
{
	text_add(text, ". Two runs of one plan differ by as much");
	if (gap->noise > NOISE * gap->was)
		text_printf(text, " (%.1f %% on this machine, by its calibration)",
			100 * gap->noise / gap->was);
	text_add(text, ": take either.");
}

static void add_certainty(struct text *text, const struct gap *gap)
{
	double percent = 100 / gap->was;
	double difference = fabs(gap->is - gap->was);
	if (can_tell(gap)) {
		text_printf(text,
			". The prediction tells them apart: errors common to both cancel, "
			"and the difference is known to +-%.2f %% of the step.",
			gap->uncertain * percent);
		return;
	}
	if (difference <= gap->noise) {
		add_noise(text, gap);
		return;
	}
	text_printf(text, ". A close call: the difference is known only to +-%.2f %% of the step.",
		gap->uncertain * percent);
	add_settling(text, gap);
}

/* How close it is comes first, what it is last: a plan takes a line of its own. */
static void add_margin(struct defence *defence, const char *name, const struct contender *chosen,
	const struct contender *other)
{
	struct gap gap;
	struct text text = {0};
	find_gap(defence->question, chosen, other, defence->arena, &gap);
	if (fabs(gap.is / gap.was - 1) < 5e-5)
		text_printf(&text, "%s is as fast", name);
	else
		text_printf(&text, "%s is %.2f %% %s", name, fabs(gap.is / gap.was - 1) * 100,
			gap.is > gap.was ? "slower" : "faster");
	if (gap.is < gap.was && !has_room(defence->question, other->plan, other->prediction))
		text_add(&text, " but leaves too little memory free.");
	else
		add_certainty(&text, &gap);
	text_add(&text, " It is ");
	plan_summary(other->plan, &text);
	text_add(&text, ".");
	defence_add(defence, &text);
}

void defend_margin(struct defence *defence, const struct contender *chosen,
	const struct contender *runner_up, const struct contender *other)
{
	if (runner_up != NULL)
		add_margin(defence, "The runner-up", chosen, runner_up);
	if (other != NULL &&
		(runner_up == NULL || runner_up->plan->strategy != other->plan->strategy))
		add_margin(defence, "The best of another strategy", chosen, other);
}
