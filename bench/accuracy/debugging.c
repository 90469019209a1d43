/* What the source's debugging took. Rows with pipeline stages were run while its author looked for
 * a hang between stages, and two traces of that are longer than most steps. The column `debugging`
 * says which rows have them; the product does not know them, so they are added here.
 *
 * `checks`: every collective of tensor ranks first waits for the host, as long for each rank of the
 * group, whatever it moves. TORCH_DISTRIBUTED_DEBUG=DETAIL does that (ProcessGroupWrapper: a
 * barrier in which one rank hears each other in turn, and two gathers, all over TCP), and stands in
 * the author's run_multinode.sh of March 2025 (77f54c10). Host and device wait for each other, so
 * the longer one decides, and the host is never ahead: its memory is predicted so (predict.c).
 *
 * `polls`: stages asked every 0.1 s whether a message had come (p2p.py of nouamane/bench2,
 * 67c5ebb6, December 2024): two messages of metadata before each of three tensors, forward two and
 * backward one, on both sides. */
#include "accuracy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* s; of the fullest stage's blocks, each forward and backward of a micro-batch: the calibrating
 * rows over 4, 8, 16 and 32 tensor ranks say 3.2, 2.8, 2.9 and 3.0 ms. */
static const double checks_a_block_and_rank = 2.95e-3;
/* s; between two stages, of a micro-batch: 3 tensors, 2 messages, 0.1 s. */
static const double polls_of_a_link = 0.6;

/* Of `layers_per_stage`, such as 2x9+1x8. */
static double fullest_stage(const char *cell)
{
	double most = 0;

	for (const char *at = cell; (at = strchr(at, 'x')) != NULL;)
		most = fmax(most, strtod(++at, NULL));
	return most;
}

static double with_checks(const struct row *row, const struct plan *plan, double step)
{
	double slots = (double)(plan->grad_accum + plan->mesh.pipeline - 1);
	double blocks = slots * fullest_stage(row_cell(row, "layers_per_stage"));

	return fmax(step, blocks * (double)plan->mesh.tensor * checks_a_block_and_rank);
}

/* An inner stage waits on both sides; the first micro-batch passes all links. */
static double polls(const struct plan *plan)
{
	double links = (double)plan->mesh.pipeline - 1, sides = fmin(2, links);

	return polls_of_a_link * ((double)plan->grad_accum * sides + fmax(0, links - sides));
}

bool row_is_checked(const struct row *row, const struct plan *plan)
{
	return plan->mesh.tensor > 1 && strstr(row_cell(row, "debugging"), "checks") != NULL;
}

double row_with_debugging(const struct row *row, const struct plan *plan, double step)
{
	const char *debugging = row_cell(row, "debugging");

	if (row_is_checked(row, plan))
		step = with_checks(row, plan, step);
	return strstr(debugging, "polls") != NULL ? step + polls(plan) : step;
}

/* --- the table -------------------------------------------------------------------------------- */

static void print_errors(const struct sample *sample)
{
	const struct summary s = sample_summary(sample);

	printf(" %.1f | %.1f | %+.1f |", 100 * s.median, 100 * s.p90, 100 * s.bias);
}

static void print_set(
	const struct row_list *rows, enum part part, const char *debugging, struct arena *arena)
{
	struct sample alone = {0}, added = {0};

	for (int i = 0; i < rows->n; i++) {
		const struct row *row = &rows->of[i];
		if (!row_has_time(row) || row->part != part ||
			strcmp(row_cell(row, "debugging"), debugging) != 0)
			continue;
		sample_add(arena, &alone, row_time_error(row));
		sample_add(arena, &added, row->debugged_step / row->measured_step - 1);
	}
	if (alone.n == 0)
		return;
	printf("| %s | %s | %d |", part_names[part], debugging[0] != '\0' ? debugging : "none",
		alone.n);
	print_errors(&alone);
	print_errors(&added);
	printf("\n");
}

void report_debugging(const struct row_list *rows, struct arena *arena)
{
	static const char *const kinds[] = {"", "checks", "checks+polls"};

	printf("\n### Steps with the source's debugging\n\n| part | debugging | n | as predicted: "
	       "median %% | p90 %% | bias %% | with it: median %% | p90 %% | bias %% |\n"
	       "|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
	for (int part = 0; part < PART_COUNT; part++)
		for (int i = 0; i < COUNT_OF(kinds); i++)
			print_set(rows, (enum part)part, kinds[i], arena);
}
