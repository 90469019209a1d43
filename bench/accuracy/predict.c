/* Predicts one row with the program: question, plan, schedule, simulation. */
#include "accuracy.h"
#include "schedule/memory/memory.h"
#include "schedule/resolve/resolve.h"

#include <string.h>

/* Another value for one column; column NULL: the row is not changed. */
struct change {
	const char *column, *value;
};

/* A row that trains a part of the model gets a model with that part. */
static bool resolve(const struct row *row, struct change change, struct arena *arena,
	struct row_case *read, struct error *error)
{
	struct question question = {.topology = read->topology};
	const struct trainable *trainable = &question.asked.trainable;

	for (int i = 0; i < row->header->n_cells; i++) {
		const char *column = row->header->cells[i], *cell = row->cells[i];
		if (change.column != NULL && strcmp(column, change.column) == 0)
			cell = change.value;
		if (column_is_option(column) && cell[0] != '\0' &&
			!question_set_by_name(&question, column, column, cell, arena, error))
			return false;
	}
	if (!trainable_is_all(trainable) &&
		!model_train(arena, read->model, trainable, &read->model, error))
		return false;
	question.model = read->model;
	return plan_resolve(&question, arena, &read->plan, error);
}

/* Uses a part of a node. */
static bool use_gpus(const struct row *row, struct topology *topology, struct error *error)
{
	int64_t gpus;

	return !parse_int(row_cell(row, "gpus"), &gpus) ||
	       topology_use_devices(topology, gpus, error);
}

static bool read_changed(const struct catalogue *catalogue, const struct row *row,
	struct change change, struct arena *arena, struct row_case *read, struct error *error)
{
	const char *seq_len = row_cell(row, "seq_len");

	if (!catalogue_model(catalogue, arena, row->model, seq_len, &read->model, error) ||
		!catalogue_topology(catalogue, arena, row->topology, &read->topology, error) ||
		!use_gpus(row, read->topology, error))
		return false;
	if (catalogue->adjust != NULL)
		catalogue->adjust(read->topology, catalogue->adjusting);
	return resolve(row, change, arena, read, error);
}

bool row_read(const struct catalogue *catalogue, const struct row *row, struct arena *arena,
	struct row_case *read, struct error *error)
{
	return read_changed(catalogue, row, (struct change){NULL, NULL}, arena, read, error);
}

/* nanotron's table is written by the first rank, which is in the first stage (helpers.py,
 * log_throughput; parallel/context.py). For other sources the stage that reserves most is compared.
 */
static int64_t printed_reserved_bytes(const struct row *row, const struct prediction *p)
{
	bool first = strcmp(row_cell(row, "runtime"), "nanotron") == 0 && p->n_classes > 1;
	int64_t outside = p->peak_memory_bytes - p->peak_reserved_bytes;

	return first ? p->classes[0].peak_memory_bytes - outside : p->peak_reserved_bytes;
}

static bool simulate_row(const struct catalogue *catalogue, struct row *row, struct change change,
	struct arena *arena, struct simulation *simulation, struct error *error)
{
	struct simulation_options options = {.without = catalogue->without};
	struct row_case read;
	struct schedule *schedule;

	if (!read_changed(catalogue, row, change, arena, &read, error))
		return false;
	const struct model *model = read.model;
	const struct topology *topology = read.topology;
	const struct plan plan = read.plan;
	if (!schedule_build(arena, &plan, model, topology, &schedule, error) ||
		!simulate(schedule, &options, false, arena, simulation, error))
		return false;
	double tokens =
		(double)plan.global_batch * (double)plan.seq_len / (double)plan_ranks(&plan);
	double peak = device_peak_flops(&topology->device, plan.param_dtype);
	row->reserved_bytes = printed_reserved_bytes(row, &simulation->prediction);
	double step = simulation->prediction.step_time;
	options.exchange_wait = row_exchange_wait(row, &plan, topology);
	if (options.exchange_wait > 0) {
		struct simulation checked;
		if (!simulate(schedule, &options, false, arena, &checked, error))
			return false;
		row->reserved_bytes = printed_reserved_bytes(row, &checked.prediction);
		step = checked.prediction.step_time;
	}
	row->gpus = plan_ranks(&plan);
	row->nodes = ceil_div(row->gpus, topology->devices_per_node);
	row->micro_batch = plan.micro_batch;
	row->seq_len = plan.seq_len;
	row->parameters = model->parameter_count;
	row->debugged_step = row_with_polls(row, &plan, step);
	if (row->measured_tokens > 0)
		row->measured_step = tokens / row->measured_tokens;
	if (peak > 0)
		row->baseline_step = 6 * (double)model->parameter_count * tokens / (0.5 * peak);
	return true;
}

void row_predict(const struct catalogue *catalogue, struct row *row, struct arena *keep,
	struct arena *scratch)
{
	struct simulation simulation;
	struct error error = {0};

	row->error = NULL;
	if (simulate_row(
		    catalogue, row, (struct change){NULL, NULL}, scratch, &simulation, &error)) {
		row->prediction = simulation.prediction;
		row->prediction.peak_at = arena_strdup(keep, simulation.prediction.peak_at);
		row->prediction.uncertainty_source =
			arena_strdup(keep, simulation.prediction.uncertainty_source);
	} else {
		row->error = arena_strdup(keep, error.message);
	}
}

bool row_predict_with(const struct catalogue *catalogue, const struct row *row, const char *column,
	const char *value, struct arena *scratch, struct prediction *prediction)
{
	struct row copy = *row;
	struct simulation simulation;
	struct error error = {0};

	if (!simulate_row(
		    catalogue, &copy, (struct change){column, value}, scratch, &simulation, &error))
		return false;
	*prediction = simulation.prediction;
	return true;
}

static int64_t resident_bytes(const struct program *program)
{
	int64_t total = 0;

	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].resident && !buffer_in_host(&program->buffers[i]))
			total += program->buffers[i].bytes;
	return total;
}

static bool count_bytes(const struct catalogue *catalogue, struct row *row, struct arena *arena,
	struct error *error)
{
	struct row_case read;
	struct schedule *schedule;
	struct ledger ledger;

	if (!row_read(catalogue, row, arena, &read, error) ||
		!schedule_build(arena, &read.plan, read.model, read.topology, &schedule, error))
		return false;
	int last = schedule->n_classes - 1;
	schedule_ledger(schedule, last, arena, &ledger);
	row->steady_bytes = resident_bytes(&schedule->programs[last]);
	row->prediction.peak_allocated_bytes = ledger.peak_bytes;
	return true;
}

void row_count_bytes(const struct catalogue *catalogue, struct row *row, struct arena *keep,
	struct arena *scratch)
{
	struct error error = {0};

	row->error = NULL;
	if (!count_bytes(catalogue, row, scratch, &error))
		row->error = arena_strdup(keep, error.message);
}
