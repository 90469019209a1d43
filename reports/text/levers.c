/* What one line elsewhere would bring: the rows of *What if* that help. */
#include <stdio.h>
#include <string.h>

#include "reports/text/screen.h"

/* Gains below these are not worth a line. */
#define LEAST_TIME   0.005 /* of the step time */
#define LEAST_MEMORY 0.03  /* of the peak */

static bool keeps_mathematics(enum knob_id id)
{
	static const enum knob_id ids[] = {KNOB_LOSS, KNOB_COMPILE, KNOB_ATTENTION, KNOB_OPTIMIZER,
		KNOB_ALLOCATOR, KNOB_ACTIVATION_OFFLOAD, KNOB_LATE_ALL_REDUCE};

	for (int i = 0; i < COUNT_OF(ids); i++)
		if (ids[i] == id)
			return true;
	return false;
}

/* An option where it is one; "nodes 2" is another machine. */
static void name_lever(struct lever *lever)
{
	const struct sensitivity *row = lever->row;
	enum knob_id id = knob_find(row->knob);

	if (id == KNOB_COUNT || id == KNOB_MICRO_BATCH) {
		snprintf(lever->words, sizeof(lever->words), "%s %s", row->knob, row->value);
		return;
	}
	int length = snprintf(
		lever->words, sizeof(lever->words), "--%s %s", row->knob, or_empty(row->value));
	for (int i = 0; i < length && lever->words[i] != ' ' && lever->words[i] != '\0'; i++)
		lever->words[i] = lever->words[i] == '_' ? '-' : lever->words[i];
}

static bool lever_fits(const struct lever *lever)
{
	return lever->row->step_time > 0;
}

static bool is_better(const struct lever *a, const struct lever *b, bool time_first)
{
	if (lever_fits(a) != lever_fits(b))
		return lever_fits(a);
	if (time_first && (a->faster >= LEAST_TIME || b->faster >= LEAST_TIME))
		return a->faster > b->faster;
	return a->saved > b->saved;
}

/* A knob has one line: that of its best value. */
static int place(struct lever levers[LEVERS_MAX], int n, const struct lever *lever, bool time_first)
{
	for (int i = 0; i < n; i++) {
		if (strcmp(levers[i].row->knob, lever->row->knob) != 0)
			continue;
		if (!is_better(lever, &levers[i], time_first))
			return n;
		memmove(&levers[i], &levers[i + 1], (size_t)(n - i - 1) * sizeof(*levers));
		n--;
	}
	int at = n;
	while (at > 0 && is_better(lever, &levers[at - 1], time_first))
		at--;
	if (at == LEVERS_MAX)
		return n;
	n = n < LEVERS_MAX ? n + 1 : n;
	memmove(&levers[at + 1], &levers[at], (size_t)(n - at - 1) * sizeof(*levers));
	levers[at] = *lever;
	return n;
}

/* Where nothing fits, rows are around the plan that misses by least. */
static const struct prediction *centre_of(const struct answer *answer)
{
	if (answer->chosen != NULL)
		return &answer->chosen->prediction;
	return answer->n_alternatives > 0 ? &answer->alternatives[0].prediction : NULL;
}

static bool helps(const struct lever *lever, const struct prediction *now, bool chosen)
{
	const struct sensitivity *row = lever->row;
	bool saves = lever->saved > LEAST_MEMORY * (double)now->peak_memory_bytes;

	if (!chosen)
		return row->peak_memory_bytes > 0 && (lever_fits(lever) || saves);
	/* A note says what stands against it. */
	return lever_fits(lever) && or_empty(row->note)[0] == '\0' &&
	       keeps_mathematics(knob_find(row->knob)) && lever->faster > -LEAST_TIME &&
	       (lever->faster >= LEAST_TIME || saves);
}

int find_levers(const struct answer *answer, struct lever levers[LEVERS_MAX])
{
	bool chosen = answer->chosen != NULL;
	const struct prediction *now = centre_of(answer);
	/* A plan that has too little memory is made faster by more of it. */
	bool time_first = chosen && !answer->tight && !plan_offloads_any(&answer->chosen->plan);
	int n = 0;

	for (int i = 0; now != NULL && i < answer->n_sensitivities; i++) {
		const struct sensitivity *row = &answer->sensitivities[i];
		struct lever lever = {.row = row,
			.faster = row->step_time > 0 ? 1 - row->step_time / now->step_time : 0,
			.saved = (double)(now->peak_memory_bytes - row->peak_memory_bytes)};
		name_lever(&lever);
		if (helps(&lever, now, chosen))
			n = place(levers, n, &lever, time_first);
	}
	return n;
}

void add_lever_gain(const struct lever *lever, struct text *text)
{
	char bytes[32];

	if (lever->faster >= LEAST_TIME)
		text_printf(text, "%.1f %% less time", 100 * lever->faster);
	if (lever->saved >= (double)(1LL << 30) || lever->faster < LEAST_TIME)
		text_printf(text, "%s%s less memory", lever->faster >= LEAST_TIME ? ", " : "",
			format_bytes(bytes, lever->saved));
}
