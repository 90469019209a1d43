/* What the source's debugging took. Rows with pipeline stages were run while its author looked for
 * a hang between stages, and two traces of that are longer than most steps. The column `debugging`
 * says which rows have them; the product does not know them, so they are added here.
 *
 * `checks`: before every collective of tensor ranks the host waits, as long for each rank of the
 * group, whatever it moves. TORCH_DISTRIBUTED_DEBUG=DETAIL does that (ProcessGroupWrapper: a
 * barrier in which one rank hears each other in turn, and two gathers, all over TCP), and stands in
 * the author's run_multinode.sh of March 2025 (77f54c10). The host's own time comes on top, and
 * the device waits for it or it for the device, in time and in memory: it is simulated so.
 *
 * `polls`: stages asked every 0.1 s whether a message had come (p2p.py of nouamane/bench2,
 * 67c5ebb6, December 2024): two messages of metadata before each of three tensors, forward two and
 * backward one, on both sides. */
#include "accuracy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* s for each tensor rank before each exchange, in groups inside a node and over several nodes. The
 * calibrating rows give 0.21 and 0.21 ms for 4 and 8 ranks, 0.26 and 0.24 ms for 16 and 32. */
static const double check_inside = 0.21e-3, check_across = 0.25e-3;
/* s for a micro-batch between two stages: 3 tensors, 2 messages, 0.1 s. */
static const double polls_of_a_link = 0.6;

/* An inner stage waits on both sides. The first micro-batch passes all links. */
static double polls(const struct plan *plan)
{
	double links = (double)plan->mesh.pipeline - 1, sides = fmin(2, links);

	return polls_of_a_link * ((double)plan->grad_accum * sides + fmax(0, links - sides));
}

double row_exchange_wait(
	const struct row *row, const struct plan *plan, const struct topology *topology)
{
	bool across = plan->mesh.tensor > topology->devices_per_node;
	bool checks = strstr(row_cell(row, "debugging"), "checks") != NULL;

	return checks && plan->mesh.tensor > 1
		       ? (double)plan->mesh.tensor * (across ? check_across : check_inside)
		       : 0;
}

double row_with_polls(const struct row *row, const struct plan *plan, double step)
{
	return strstr(row_cell(row, "debugging"), "polls") != NULL ? step + polls(plan) : step;
}

/* --- the table -------------------------------------------------------------------------------- */

static void print_errors(const struct sample *sample)
{
	const struct summary s = sample_summary(sample);

	printf(" %.1f | %.1f | %+.1f |", 100 * s.median, 100 * s.p90, 100 * s.bias);
}

/* `debugging`: NULL for all kinds. */
static void print_set(
	const struct row_list *rows, enum part part, const char *debugging, struct arena *arena)
{
	struct sample alone = {0}, added = {0};

	for (int i = 0; i < rows->n; i++) {
		const struct row *row = &rows->of[i];
		if (!row_has_time(row) || row->part != part ||
			(debugging != NULL && strcmp(row_cell(row, "debugging"), debugging) != 0))
			continue;
		sample_add(arena, &alone, row_time_error(row));
		sample_add(arena, &added, row->debugged_step / row->measured_step - 1);
	}
	if (alone.n == 0)
		return;
	printf("| %s | %s | %d |", part_names[part],
		debugging == NULL      ? "all"
		: debugging[0] != '\0' ? debugging
				       : "none",
		alone.n);
	print_errors(&alone);
	print_errors(&added);
	printf("\n");
}

void report_debugging(const struct row_list *rows, struct arena *arena)
{
	static const char *const kinds[] = {"", "checks", "checks+polls", NULL};

	printf("\n### Steps with the source's debugging\n\n| part | debugging | n | as predicted: "
	       "median %% | p90 %% | bias %% | with it: median %% | p90 %% | bias %% |\n"
	       "|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
	for (int part = 0; part < PART_COUNT; part++)
		for (int i = 0; i < COUNT_OF(kinds); i++)
			print_set(rows, (enum part)part, kinds[i], arena);
}
