/* Reads measurements and predicts them. */
#include "bench/collectives/collectives.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A process that drives several GPUs launches their kernels one after the other, each collective of
 * a run while the one before is still running, so each GPU takes at least this time. It is the
 * median of the nine judged rows of calibrating sources that launches decide (thanos-a100 up to 1
 * MiB, simumax-h100 up to 2: 5.1 to 6.6; 8 bytes take 4.9, and 2.6 with one process for each GPU).
 * Training has one process for each GPU, so the model itself has no such term. */
static const double launch_of_one_gpu = 5.6e-6;

/* Sources found later that were added to the split as one batch: tables over several hosts of one
 * NVLink domain, and the first ones of messages. They are split in the order of their names within
 * each bar. Sources found after them are not in it. */
static const struct {
	const char *source;
	bool messages;
} handed[] = {{"datacrunch-gb300", false}, {"oci-gb300", false}, {"torchtitan-gb300", false},
	{"aicr-b200-sweep", true}, {"orcd-b200-rocky", true}, {"orcd-b200-ubuntu", true},
	{"superbench-a100", true}};

enum column {
	COLUMN_SOURCE,
	COLUMN_TOPOLOGY,
	COLUMN_NODES,
	COLUMN_GPUS,
	COLUMN_COLLECTIVE,
	COLUMN_BYTES,
	COLUMN_TIME,
	COLUMN_STATISTIC,
	COLUMN_GPUS_PER_PROCESS,
	COLUMN_STATUS,
	COLUMN_ORIGIN,
	COLUMN_LIBRARIES,
	COLUMN_NOTES,
	COLUMN_COUNT
};

static int kind_named(const char *name)
{
	for (int i = 0; collective_kind_names[i] != NULL; i++)
		if (strcmp(collective_kind_names[i], name) == 0)
			return i;
	return -1;
}

static bool read_row(const struct csv_row *line, struct published *row)
{
	char **cells = line->cells;
	int kind;

	if (line->n_cells != COLUMN_COUNT)
		return false;
	kind = kind_named(cells[COLUMN_COLLECTIVE]);
	row->source = cells[COLUMN_SOURCE];
	row->topology = cells[COLUMN_TOPOLOGY];
	row->status = cells[COLUMN_STATUS];
	row->origin = cells[COLUMN_ORIGIN];
	row->libraries = cells[COLUMN_LIBRARIES];
	row->notes = cells[COLUMN_NOTES];
	row->collective = (enum collective_kind)kind;
	if (kind < 0 || !parse_int(cells[COLUMN_NODES], &row->nodes) ||
		!parse_int(cells[COLUMN_GPUS], &row->gpus) ||
		!parse_int(cells[COLUMN_BYTES], &row->bytes) ||
		!parse_number(cells[COLUMN_TIME], &row->measured) ||
		!parse_int(cells[COLUMN_GPUS_PER_PROCESS], &row->gpus_per_process))
		return false;
	row->measured *= 1e-6;
	row->judged = strcmp(row->status, "ok") == 0 && row->bytes >= judged_from &&
		      row->bytes <= judged_to;
	return true;
}

static bool read_file(struct arena *arena, const char *path, bool later, struct published_set *rows,
	struct error *error)
{
	struct published *all;
	struct csv_table table;

	if (!file_table(arena, path, &table, error))
		return false;
	all = ARENA_ARRAY(arena, struct published, rows->n + table.n_rows);
	for (int i = 0; i < rows->n; i++)
		all[i] = rows->of[i];
	for (int i = 0; i < table.n_rows; i++) {
		struct published *row = &all[rows->n + i];

		if (!read_row(&table.rows[i], row))
			return error_at(error, EXIT_CODE_INPUT, path, table.rows[i].line, 1,
				"expected the thirteen columns of bench/published/README.md");
		row->found_later = later;
	}
	rows->of = all;
	rows->n += table.n_rows;
	return true;
}

bool measurements_read(
	struct arena *arena, const char *folder, struct published_set *rows, struct error *error)
{
	return read_file(arena, arena_printf(arena, "%s/collectives.csv", folder), false, rows,
		       error) &&
	       read_file(arena, arena_printf(arena, "%s/collectives_later.csv", folder), true, rows,
		       error);
}

enum collective_bar collective_bar(enum collective_kind kind)
{
	static const enum collective_bar bars[] = {[COLLECTIVE_ALL_GATHER] = BAR_GATHERS,
		[COLLECTIVE_REDUCE_SCATTER] = BAR_GATHERS,
		[COLLECTIVE_ALL_REDUCE] = BAR_ALL_REDUCE,
		[COLLECTIVE_ALL_TO_ALL] = BAR_MESSAGES,
		[COLLECTIVE_SEND_RECV] = BAR_MESSAGES};

	return bars[kind];
}

static bool is_handed(const struct published *row)
{
	bool messages = collective_bar(row->collective) == BAR_MESSAGES;

	for (int i = 0; i < COUNT_OF(handed); i++)
		if (handed[i].messages == messages && strcmp(row->source, handed[i].source) == 0)
			return true;
	return false;
}

static bool same_bar(const struct published *a, const struct published *b)
{
	return collective_bar(a->collective) == collective_bar(b->collective);
}

/* Are both in the same sequence of the split? Sources of the batch are split within their bar, the
 * others together. */
static bool take_turns(const struct published *a, const struct published *b)
{
	return a->handed == b->handed && a->found_later == b->found_later &&
	       (!a->handed || same_bar(a, b));
}

/* Is no earlier row of the same source? */
static bool is_first(const struct published_set *rows, int i)
{
	for (int j = 0; j < i; j++)
		if (take_turns(&rows->of[j], &rows->of[i]) &&
			strcmp(rows->of[j].source, rows->of[i].source) == 0)
			return false;
	return true;
}

/* The number of sources in the same sequence whose names come before this one's. */
static int sources_before(const struct published_set *rows, const struct published *row)
{
	int before = 0;

	for (int j = 0; j < rows->n; j++)
		before += rows->of[j].first && take_turns(&rows->of[j], row) &&
			  strcmp(rows->of[j].source, row->source) < 0;
	return before;
}

void measurements_split(struct published_set *rows)
{
	for (int i = 0; i < rows->n; i++)
		rows->of[i].handed = rows->of[i].found_later && is_handed(&rows->of[i]);
	for (int i = 0; i < rows->n; i++)
		rows->of[i].first = is_first(rows, i);
	for (int i = 0; i < rows->n; i++) {
		struct published *row = &rows->of[i];

		if (row->found_later && !row->handed)
			row->part = PART_LATER;
		else
			row->part =
				sources_before(rows, row) % 2 == 0 ? PART_TEST : PART_CALIBRATION;
	}
}

/* A rank's own share of the NICs, for the part of an all-to-all that goes to other nodes. */
static double plain_messages(
	const struct topology *topology, const struct published *row, double sent)
{
	double nodes = (double)row->nodes, local = (double)row->gpus / nodes;
	double others = row->collective == COLLECTIVE_SEND_RECV
				? 1
				: (nodes - 1) * local / ((double)row->gpus - 1);

	if (nodes <= 1)
		return sent / topology->fabric.bandwidth;
	return others * sent * local / topology_node_bandwidth(topology);
}

/* The time by the datasheet alone: the bytes of a ring over the slowest link, without latency. */
static double plain_time(const struct topology *topology, const struct published *row)
{
	double ranks = (double)row->gpus;
	double passes = row->collective == COLLECTIVE_ALL_REDUCE ? 2 : 1;
	double sent = passes * (ranks - 1) / ranks * (double)row->bytes;
	double bandwidth = topology->fabric.bandwidth;

	if (row->collective == COLLECTIVE_SEND_RECV)
		sent = (double)row->bytes;
	if (collective_bar(row->collective) == BAR_MESSAGES)
		return plain_messages(topology, row, sent);
	if (row->nodes > 1)
		bandwidth = fmin(bandwidth, topology_node_bandwidth(topology));
	return sent / bandwidth;
}

/* Leaves out rows of messages that launches decide, which take more of the host's time and say
 * nothing about the model; one process that has 64 messages for another node posts them one after
 * the other: two nodes of eight B200 take 861 us for 1 MiB (orcd-b200-rocky). */
static void launch_one_by_one(struct published *row)
{
	double launches = (double)row->gpus_per_process * launch_of_one_gpu;

	if (collective_bar(row->collective) == BAR_MESSAGES &&
		(row->predicted < 2 * launches ||
			(row->collective == COLLECTIVE_ALL_TO_ALL && row->nodes > 1)))
		row->judged = false;
	row->predicted = fmax(row->predicted, launches);
}

static bool predict_row(const struct catalogue *catalogue, struct arena *arena,
	struct published *row, struct error *error)
{
	const char *name = arena_printf(arena, "%lldx%s", (long long)row->nodes, row->topology);
	const struct runtime *runtime = runtime_of(RUNTIME_PYTORCH_FSDP2);
	struct group group = {.size = row->gpus, .stride = 1};
	struct topology *topology;
	struct collective_choice choice;
	struct libraries libraries;

	if (!catalogue_topology(catalogue, arena, name, &topology, error) ||
		!libraries_read(row->libraries[0] != '\0' ? row->libraries : libraries_unknown.text,
			&libraries))
		return false;
	topology->nodes = row->nodes;
	row->device = topology->device.name;
	row->links = row->nodes > 1 ? network_kind_names[topology->network.kind]
				    : fabric_kind_names[topology->fabric.kind];
	row->domain = row->nodes == 1 && topology->fabric.host_devices > 0 &&
		      row->gpus > topology->fabric.host_devices;
	choice = cost_collective_choice(
		topology, &libraries, runtime, row->collective, &group, row->bytes);
	row->algorithm = choice.algorithm;
	row->protocol = choice.protocol;
	row->predicted = choice.seconds;
	if (row->gpus_per_process > 1)
		launch_one_by_one(row);
	row->plain = plain_time(topology, row);
	return true;
}

bool measurements_predict(const struct catalogue *catalogue, struct arena *arena,
	struct published_set *rows, struct error *error)
{
	for (int i = 0; i < rows->n; i++)
		if (!predict_row(catalogue, arena, &rows->of[i], error))
			return false;
	return true;
}

double measurement_error(const struct published *row)
{
	return row->predicted / row->measured - 1;
}
